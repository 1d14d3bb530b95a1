"""Markov reward processes whose values are known: transitions, and the value of any state."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats


@dataclass(frozen=True)
class Transitions:
    """Transitions, in the order of the learners' arguments."""

    X: Floats
    """Shape (n, n_features)."""
    reward: Floats
    """Shape (n,)."""
    X_next: Floats
    """Shape (n, n_features)."""
    done: Floats
    """1 where an episode ends, else 0, shape (n,)."""

    @property
    def arguments(self) -> tuple[Floats, Floats, Floats, Floats]:
        """The four arrays."""
        return self.X, self.reward, self.X_next, self.done

    def part(self, start: int, stop: int) -> "Transitions":
        """Return those from `start` up to `stop`."""
        return Transitions(*(array[start:stop] for array in self.arguments))


CIRCLE_STEP, CIRCLE_NOISE = 0.5, 0.3
"""Mean and standard deviation of a step around the circle."""


def on_circle(angles: Floats) -> Floats:
    """Return the points of a circle at these angles (n,), shape (n, 2)."""
    return np.column_stack([np.cos(angles), np.sin(angles)])


def circle_walk(n_rows: int, seed: int) -> Transitions:
    """Return one endless walk around a circle, by normal steps, rewarded by the cosine of the angle."""
    steps = np.random.default_rng(seed).normal(CIRCLE_STEP, CIRCLE_NOISE, n_rows)
    angles = np.concatenate([[0.0], np.cumsum(steps)])
    return Transitions(on_circle(angles[:-1]), np.cos(angles[:-1]), on_circle(angles[1:]), np.zeros(n_rows))


def circle_values(angles: Floats, discount: float) -> Floats:
    """Return V = Re Σ γᵗ E e^{i(angle + t·step + noise)}, a geometric series."""
    ratio = discount * np.exp(1j * CIRCLE_STEP - CIRCLE_NOISE**2 / 2)
    return np.real(np.exp(1j * angles) / (1 - ratio))


def drive(states: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the next states (n, 2) of mountain cars pushed the way they roll, and whether they are out.

    Sutton & Barto (2018), "Reinforcement learning", example 10.1.
    """
    position, velocity = states.T
    push = np.where(velocity >= 0, 1.0, -1.0)
    velocity = np.clip(velocity + 0.001 * push - 0.0025 * np.cos(3 * position), -0.07, 0.07)
    position = position + velocity
    stopped = position < -1.2
    after = np.column_stack([np.maximum(position, -1.2), np.where(stopped, 0.0, velocity)])
    return after, after[:, 0] >= 0.5


def scaled(states: Floats) -> Floats:
    """Return position and velocity in units of their ranges, about zero."""
    return np.asarray((states - [-0.35, 0.0]) / [0.425, 0.035])


def mountain_car(n_episodes: int, seed: int) -> Transitions:
    """Return episodes from random states to the goal; each step costs 1."""
    rng = np.random.default_rng(seed)
    cars = np.column_stack([rng.uniform(-1.2, 0.49, n_episodes), rng.uniform(-0.07, 0.07, n_episodes)])
    parts = []
    while len(cars):
        after, out = drive(cars)
        parts.append(Transitions(scaled(cars), -np.ones(len(cars)), scaled(after), out.astype(float)))
        cars = after[~out]
    return Transitions(*(np.concatenate(arrays) for arrays in zip(*(part.arguments for part in parts), strict=True)))


def car_values(states: Floats, discount: float) -> Floats:
    """Return −(1 + γ + γ² + …) over the steps to the goal, by driving there."""
    values, factor, going = np.zeros(len(states)), 1.0, np.arange(len(states))
    while len(going):
        values[going] -= factor
        states, out = drive(states)
        states, going, factor = states[~out], going[~out], factor * discount
    return values
