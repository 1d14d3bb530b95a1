"""The vectors of several machines in one dictionary: they contribute one each in turn."""

from collections.abc import Sequence

import numpy as np

from ridgestream.pipeline.base.array_checks import Integers


def join_turns(taken: Sequence[Integers]) -> Integers:
    """Return the distinct row indices of all machines: the first vector of each, then the second of each, and so on."""
    longest = max(len(own) for own in taken)
    turns = [[int(own[turn]) for own in taken if turn < len(own)] for turn in range(longest)]
    return np.array(list(dict.fromkeys(place for turn in turns for place in turn)), dtype=np.int64)


def take_turns(wished: Sequence[Integers], max_basis: int) -> list[Integers]:
    """Return the vectors of each machine up to where, in turns, they have `max_basis` distinct ones."""
    seen: set[int] = set()
    sizes = [0] * len(wished)
    for turn in range(max(len(own) for own in wished)):
        for machine, own in enumerate(wished):
            if turn < len(own) and len(seen) < max_basis:
                seen.add(int(own[turn]))
                sizes[machine] = turn + 1
    return [own[:size] for own, size in zip(wished, sizes, strict=True)]


def turns_of(places: Integers, taken: Sequence[Integers]) -> Integers:
    """Return the step at which each machine took each vector, −1 if it did not."""
    turns = np.full((len(places), len(taken)), -1)
    number = {int(place): vector for vector, place in enumerate(places)}
    for machine, own in enumerate(taken):
        turns[[number[int(place)] for place in own], machine] = np.arange(len(own))
    return turns
