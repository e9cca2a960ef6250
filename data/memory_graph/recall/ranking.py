"""Best first, ties by content: the one order that all traversals share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
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


def best_first(
    costs: np.ndarray, content: Callable[[int], Any], expected: int = CHUNK
) -> Iterator[int]:
    """Positions by rising cost, sorted only as far as they are read.

    The same order as ``sorted(range(n), key=lambda i: (costs[i], content(i), i))``, but what lies
    beyond the part that is read is never looked at, and content is asked for only where costs tie.

    Args:
        costs: float [n]; smaller is better, infinite is left out.
        content: what decides between equal costs, comparable; read texts, never ids.
        expected: how many are likely to be read.
    """
    rest, size = np.flatnonzero(costs < np.inf), max(expected, CHUNK)
    while len(rest):
        now = np.ones(len(rest), bool)
        if len(rest) > size:
            now = costs[rest] <= np.partition(costs[rest], size - 1)[size - 1]
        chunk = rest[now]
        chunk = chunk[np.argsort(costs[chunk], kind="stable")].tolist()
        for _, tied in groupby(chunk, key=costs.__getitem__):
            group = list(tied)
            yield from group if len(group) == 1 else sorted(group, key=content)
        rest, size = rest[~now], size * 4
