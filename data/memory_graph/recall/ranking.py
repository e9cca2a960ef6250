"""Best first, ties by content: the one order that all traversals share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

CHUNK = 64
# The same text has the same vector, but its cosine differs in the last bits by what it was
# computed beside; rounded, equal texts tie and the order in which triplets lie changes nothing.
DECIMALS = 6


def rounded(cosines: np.ndarray) -> np.ndarray:
    """Cosines to ``DECIMALS``, float64."""
    return np.round(cosines.astype(np.float64), DECIMALS)


def distinct(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each id once, rising, and the place of every given one among them.

    What ``np.unique`` does with ``return_inverse``, by a table instead of sorting where the ids lie
    close: several times faster at a hub.
    """
    size = int(ids.max(initial=-1)) + 1
    if size > 64 * len(ids):
        return np.unique(ids, return_inverse=True)
    seen = np.zeros(size, bool)
    seen[ids] = True
    each = np.flatnonzero(seen)
    place = np.empty(size, np.int32)
    place[each] = np.arange(len(each))
    return each, place[ids]


def cost_of(cosines: np.ndarray) -> np.ndarray:
    """-ln s with s = max((1 + cos) / 2, 1e-6): 0 for the same direction, 13.8 for the opposite."""
    return -np.log(np.maximum((1 + cosines) / 2, 1e-6))


def least(costs: np.ndarray, k: int) -> np.ndarray:
    """Places of the ``k`` smallest and of all that equal the last of these, rising.

    Of many, a sample says what is certainly small enough, which is several times faster than to
    part all of them.
    """
    places = np.arange(len(costs))
    if len(costs) <= k:
        return places
    step = int((len(costs) / k) ** 0.5)
    if step > 1:
        sample = costs[::step]
        rank = min(4 * k // step + 3, len(sample) - 1)
        small = np.flatnonzero(costs <= np.partition(sample, rank)[rank])
        places = small if len(small) >= k else places
    bound = np.partition(costs[places], k - 1)[k - 1]
    return places[costs[places] <= bound]


def largest(scores: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    """Places of the ``k`` largest scores, largest first, equal ones by key."""
    places = np.arange(len(scores))
    if len(scores) > k:
        bound = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= bound)
    return places[np.lexsort((keys[places], -scores[places]))][:k]


def best_first(
    costs: np.ndarray, contents: Callable[[list[int]], Sequence[Any]], expected: int = CHUNK
) -> Iterator[int]:
    """Positions by rising cost, sorted only as far as they are read.

    The same order as ``sorted(range(n), key=lambda i: (costs[i], content of i, i))``, but what lies
    beyond the part that is read is never looked at, and contents are asked for only where costs
    tie.

    Args:
        costs: float [n]; smaller is better, infinite is left out.
        contents: what decides between positions of equal costs, comparable, for all of them at
            once; read texts, never ids.
        expected: how many are likely to be read.
    """
    rest, size = np.flatnonzero(costs < np.inf), max(expected, CHUNK)
    while len(rest):
        now = least(costs[rest], size)
        chunk = rest[now]
        chunk = chunk[np.argsort(costs[chunk], kind="stable")]
        ends = [*(np.flatnonzero(np.diff(costs[chunk])) + 1).tolist(), len(chunk)]
        chunk = chunk.tolist()
        for begin, end in zip([0, *ends], ends, strict=False):
            tied = chunk[begin:end]
            if len(tied) > 1:
                tied = [i for _, i in sorted(zip(contents(tied), tied, strict=True))]
            yield from tied
        rest, size = np.delete(rest, now), size * 4
