"""Raises passages that share a rare name with the best ones, for questions of several hops.

Edges by similarity lead to passages with similar statements. The passage for the next hop makes
another statement about something that the first passage names (compare HippoRAG's edges, arXiv
2405.14831).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from turngraph.data.normalise import fold

MAX_SHARING = 10
"""Most passages that a rare name occurs in."""
NUM_BEST = 5
"""Number of best passages that raise others."""


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
        """Return what is added to each passage's score for names shared with the best ones, [N].

        A name of n passages adds 1 / sqrt(n - 1) of the best passage's score: all of it if n is 2.
        Of several additions the largest counts.

        Args:
            scores: [N] scores of the passages.
        """
        gains = np.zeros(len(scores))
        for best in np.argsort(-scores, kind="stable")[:NUM_BEST].tolist():
            for group in self._groups.get(best, ()):
                others = group[group != best]
                gain = max(float(scores[best]), 0.0) / np.sqrt(len(others))
                gains[others] = np.maximum(gains[others], gain)
        return gains
