"""Policy evaluation on the dictionaries of the online LS-SVM, which Jung & Polani's slides name: error against vectors.

The slides give no numbers, and their process is a simulated soccer team. Ours are a walk on a circle and mountain cars,
whose values are known (`processes.py`). LSTD over the first 400 states, as far as they are independent, is the dense
solution.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ridgestream.jobs.reproduction.jung_polani.processes import (
    Transitions,
    car_values,
    circle_values,
    circle_walk,
    mountain_car,
    on_circle,
    scaled,
)
from ridgestream.jobs.reproduction.study import Bench, Cell, Measurement, Outcome, Study
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.policy.kernel_lstd import KernelLSTD
from ridgestream.pipeline.policy.online_lstd import OnlineLSTD

DENSE, POINTS = 400, 500
"""Vectors of the dense solution, and points at which values are compared."""


@dataclass(frozen=True)
class Process:
    """A process, and how its values are learned."""

    draw: Callable[[int], Transitions]
    """Draws transitions for a repeat."""
    known: Callable[[], tuple[Floats, Floats]]
    """Returns points (points, n_features) and their values."""
    sizes: tuple[int, ...]
    """The largest dictionaries that are compared."""
    gamma: float
    """The kernel's."""
    discount: float
    """What a reward counts a step later."""
    regularization: float
    """λ per row."""
    novelty_threshold: float
    """TOL1."""


def _circle_points() -> tuple[Floats, Floats]:
    angles = np.linspace(0, 2 * np.pi, POINTS)
    return on_circle(angles), circle_values(angles, CIRCLE.discount)


def _car_points() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    states = np.column_stack([rng.uniform(-1.2, 0.49, POINTS), rng.uniform(-0.07, 0.07, POINTS)])
    return scaled(states), car_values(states, CAR.discount)


CIRCLE = Process(partial(circle_walk, 4000), _circle_points, (4, 8, 12, 16), 1.0, 0.9, 1e-5, 1e-3)
CAR = Process(partial(mountain_car, 200), _car_points, (50, 100, 150, 200), 2.0, 0.98, 1e-6, 1e-3)


def measure_dense(process: Process, repeat: int) -> Outcome:
    """Measure LSTD over the first states."""
    drawn = process.draw(repeat)
    learner = KernelLSTD(
        RBF(process.gamma),
        discount=process.discount,
        regularization=process.regularization,
        dictionary=drawn.X[:DENSE],
    )
    return _measure(process, learner.partial_fit(*drawn.arguments))


def measure_online(process: Process, max_basis: int, repeat: int) -> Outcome:
    """Measure LSTD over a dictionary that is chosen in one pass."""
    learner = OnlineLSTD(
        RBF(process.gamma),
        discount=process.discount,
        regularization=process.regularization,
        novelty_threshold=process.novelty_threshold,
        max_basis=max_basis,
        selection="supervised",
    )
    return _measure(process, learner.partial_fit(*process.draw(repeat).arguments))


def _measure(process: Process, learner: KernelLSTD | OnlineLSTD) -> Outcome:
    points, known = process.known()
    error = learner.predict(points)[:, 0] - known
    return Outcome(float(np.sqrt(np.mean(error**2)) / np.std(known)), learner.n_basis)


def _settings(process: Process) -> dict[str, float]:
    names = ("gamma", "discount", "regularization", "novelty_threshold")
    return {name: getattr(process, name) for name in names}


def _alone(measure: Callable[[int], Outcome], bench: Bench, repeat: int) -> tuple[Outcome]:  # noqa: ARG001
    return (measure(repeat),)


def _measurements(name: str, process: Process) -> tuple[Measurement, ...]:
    online = {f"{name}, online, m ≤ {m}": partial(measure_online, process, m) for m in process.sizes}
    all_of_them = online | {f"{name}, first {DENSE} states": partial(measure_dense, process)}
    return tuple(Measurement((Cell(each),), partial(_alone, measure)) for each, measure in all_of_them.items())


STUDY = Study(
    title="Policy evaluation by least squares temporal differences",
    source="Jung & Polani (2006), the slides: applications",
    error="root mean squared error over the standard deviation of the true values",
    repeats=10,
    takes="a minute",
    given={"circle": _settings(CIRCLE), "mountain car": _settings(CAR)},
    choices={},
    measurements=(*_measurements("circle", CIRCLE), *_measurements("mountain car", CAR)),
    findings="""The slides give no numbers, and their process is a simulated soccer team. Ours are a walk on a circle
(4,000 transitions) and mountain cars that are driven the way they roll (10,200 transitions); their values are known.
Half as many vectors, chosen in one pass, have the error of the dense solution; where the limit is too small for the
states, values are of no use: give `max_basis` room. A limit too small does more harm here than in regression, since an
error in one value spreads to those before it.""",
)
