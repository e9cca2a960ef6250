"""Raises passages that share a rare name with the best ones, where the second hop of a question is.

Edges by similarity lead to passages that say the same again; what answers the next hop says
something else of a thing that the first passage names (HippoRAG's edges, arXiv 2405.14831).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from turngraph.data.normalise import fold

MAX_SHARING = 10
"""A name of more passages is not rare."""
NUM_BEST = 5
"""Number of the best passages, whose names count."""


class SharedNames:
    """The passages of a pool by the rare names in them.

    Args:
        names: names in each passage.
    """

    def __init__(self, names: Sequence[Iterable[str]]) -> None:
        having: dict[str, set[int]] = defaultdict(set)
        for number, each in enumerate(names):
            for name in each:
                having[fold(name)].add(number)
        self._groups: dict[int, list[np.ndarray]] = defaultdict(list)
        for numbers in having.values():
            if 1 < len(numbers) <= MAX_SHARING:
                group = np.array(sorted(numbers), np.int64)
                for number in numbers:
                    self._groups[number].append(group)

    def gains(self, scores: np.ndarray) -> np.ndarray:
        """Return what the best passages give to others: their score by how rare the name is.

        A name of two passages gives the whole score, one of n passages 1 / sqrt(n - 1) of it.

        Args:
            scores: [N] of the passages.
        """
        found = np.zeros(len(scores))
        for best in np.argsort(-scores, kind="stable")[:NUM_BEST].tolist():
            for group in self._groups.get(best, ()):
                others = group[group != best]
                given = max(float(scores[best]), 0.0) / np.sqrt(len(others))
                found[others] = np.maximum(found[others], given)
        return found
