"""The row sinc of Table 1 of Jung & Polani (2006): a noisy sinc.

The paper gives the noise; the number of rows, 1,000, is ours. Errors are over points without noise, in the units of the
unscaled target.
"""

from functools import cache, partial

import numpy as np

from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.jung_polani.comparison import GIVEN, Task
from ridgestream.jobs.reproduction.jung_polani.pictures import draw_against_vectors
from ridgestream.jobs.reproduction.split import Split
from ridgestream.jobs.reproduction.study import Published, Study

ROWS, NOISE = 1000, 0.2


@cache
def draw(data: DataFolder, repeat: int) -> Split:  # noqa: ARG001 (one set of rows, in several orders)
    """Return scaled training rows, and points without noise; the same at each call."""
    rng = np.random.default_rng(0)
    x, points = rng.uniform(-10, 10, ROWS), np.linspace(-10, 10, ROWS)
    y = np.sinc(x / np.pi) + NOISE * rng.standard_normal(ROWS)
    scaled, at = ((each - x.mean()) / x.std() for each in (x, points))
    targets, known = ((each - y.mean()) / y.std() for each in (y, np.sinc(points / np.pi)))
    return Split(scaled[:, np.newaxis], targets, at[:, np.newaxis], known, float(y.std()) ** 2)


TASK = Task("", draw, tuple(2.0**power for power in range(-1, 6)))

STUDY = Study(
    title="Noisy sinc: subset selection compared",
    source="Jung & Polani (2006), Table 1",
    error="mean squared error",
    repeats=100,
    takes="a minute",
    given={"rows": ROWS, "noise": NOISE, **GIVEN},
    choices={"all rows": TASK.chosen},
    measurements=TASK.measurements(
        Published(5.6e-4, None, 10), Published(9.1e-4, 1.5e-4, 14.36), Published(7.5e-4, 3.1e-4, 11.06)
    ),
    draw=partial(draw_against_vectors, [TASK.name], "mean squared error"),
    findings="""The paper does not give the number of rows; ours is 1,000. KRLS has Engel's coefficients, without a
penalty; the online learner has the penalty λt from the first row on. **That the online learner takes fewer vectors than
KRLS is not seen here**: at this width, novelty alone ends at as many.""",
)
