"""Ranks rows for all traversals: best first, ties broken by content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

CHUNK = 64
# The last bits of a text's cosine depend on the rows that are computed together with it. After
# rounding, equal texts tie, and the order of the triplets in memory does not matter.
DECIMALS = 6


def rounded(cosines: np.ndarray) -> np.ndarray:
    """Return cosines rounded to ``DECIMALS``, float64."""
    return np.round(cosines.astype(np.float64), DECIMALS)


def distinct(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each id once, sorted, and the index of every given id among them.

    The same as ``np.unique`` with ``return_inverse``. Where the ids are dense, a table replaces the
    sort, which is several times faster at a hub.
    """
    size = int(ids.max(initial=-1)) + 1
    if size > 64 * len(ids):
        return np.unique(ids, return_inverse=True)
    seen = np.zeros(size, bool)
    seen[ids] = True
    each = np.flatnonzero(seen)
    index = np.empty(size, np.int32)
    index[each] = np.arange(len(each))
    return each, index[ids]


def cost_of(cosines: np.ndarray) -> np.ndarray:
    """Return -ln s with s = max((1 + cos) / 2, 1e-6): 0 for the same direction, at most 13.8."""
    return np.asarray(-np.log(np.maximum((1 + cosines) / 2, 1e-6)))


def least(costs: np.ndarray, k: int) -> np.ndarray:
    """Return the sorted index of the ``k`` smallest costs and of all costs equal to the k-th.

    For many costs, a sample gives a bound that is certainly large enough, which is several times
    faster than partitioning all of them.
    """
    index = np.arange(len(costs))
    if len(costs) <= k:
        return index
    step = int((len(costs) / k) ** 0.5)
    if step > 1:
        sample = costs[::step]
        rank = min(4 * k // step + 3, len(sample) - 1)
        small = np.flatnonzero(costs <= np.partition(sample, rank)[rank])
        index = small if len(small) >= k else index
    bound = np.partition(costs[index], k - 1)[k - 1]
    return np.asarray(index[costs[index] <= bound])


def largest(scores: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    """Return the index of the ``k`` largest scores, largest first, equal ones by key."""
    index = np.arange(len(scores))
    if len(scores) > k:
        bound = np.partition(scores, len(scores) - k)[len(scores) - k]
        index = np.flatnonzero(scores >= bound)
    return index[np.lexsort((keys[index], -scores[index]))][:k]


def best_first(
    costs: np.ndarray, contents: Callable[[list[int]], Sequence[Any]], expected: int = CHUNK
) -> Iterator[int]:
    """Yield indices by rising cost; sort them only as far as they are read.

    The order is that of ``sorted(range(n), key=lambda i: (costs[i], content of i, i))``, but the
    part that is not read is not sorted, and contents are read only where costs tie.

    Args:
        costs: float [n]; smaller is better, infinite is left out.
        contents: returns comparable contents for all indices of equal cost at once: texts, no ids.
        expected: number of indices that are likely to be read.
    """
    rest, size = np.flatnonzero(costs < np.inf), max(expected, CHUNK)
    while len(rest):
        now = least(costs[rest], size)
        chunk = rest[now]
        chunk = chunk[np.argsort(costs[chunk], kind="stable")]
        ends = [*(np.flatnonzero(np.diff(costs[chunk])) + 1).tolist(), len(chunk)]
        order: list[int] = chunk.tolist()
        for begin, end in pairwise([0, *ends]):
            tied = order[begin:end]
            if len(tied) > 1:
                tied = [i for _, i in sorted(zip(contents(tied), tied, strict=True))]
            yield from tied
        rest, size = np.delete(rest, now), size * 4
