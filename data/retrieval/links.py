"""Retrieves passages by words, and by entities that they share with passages that match."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turngraph.data.retrieval.bm25 import SCORE_DECIMALS, EvidenceIndex, Ranker, Stemmer
from turngraph.data.types import Evidence, Query

MAX_SHARE = 0.2
"""An entity of more than this fraction of the passages gives no bonus. Of 0.05, 0.1, 0.2 and 0.5,
best on HybridQA tune (docs/benchmarks.md)."""


class LinkedIndex(EvidenceIndex):
    """BM25+ index of one pool, which raises passages that share an entity with one that matches.

    A passage's score is its BM25+ score plus a bonus, the largest over its entities. An entity's
    bonus is the BM25+ score of the best other passage with the entity, above the lowest score of
    the pool, times the entity's rarity 1 - log n / log N, if n of N passages have it. So a row that
    matches the question raises the texts that its cells link to, and a text raises such rows.

    Args:
        pool, ranker, stemmer: as of ``EvidenceIndex``.
    """

    def __init__(self, pool: Sequence[Evidence], ranker: Ranker, stemmer: Stemmer) -> None:
        super().__init__(pool, ranker, stemmer)
        having: dict[str, list[int]] = {}
        for number, passage in enumerate(pool):
            for id_ in {entity.id: None for entity in passage.entities}:
                having.setdefault(id_, []).append(number)
        most = max(2, int(MAX_SHARE * len(pool)))
        groups = [numbers for numbers in having.values() if 2 <= len(numbers) <= most]
        sizes = np.array([len(numbers) for numbers in groups], int)
        self._passages = np.array([number for numbers in groups for number in numbers], int)
        self._starts = np.cumsum(sizes) - sizes
        self._groups = np.repeat(np.arange(len(groups)), sizes)
        self._rarity = np.repeat(1 - np.log(sizes) / np.log(max(len(pool), 2)), sizes)

    def query_scores(self, query: Query) -> np.ndarray:
        """Return the score of every passage, with the bonus of its entities."""
        scores = super().query_scores(query)
        if not len(self._passages):
            return scores
        above = scores - scores.min()
        pair_scores = above[self._passages]
        best = np.maximum.reduceat(pair_scores, self._starts)[self._groups]
        groups_of_best = np.flatnonzero(pair_scores == best)
        _, first = np.unique(self._groups[groups_of_best], return_index=True)
        holders = groups_of_best[first]  # the best passage of each entity
        pair_scores[holders] = -1.0
        second = np.maximum.reduceat(pair_scores, self._starts)
        best[holders] = second  # the best passage's own bonus comes from the second
        bonus = np.zeros(len(scores))
        np.maximum.at(bonus, self._passages, best * self._rarity)
        total: np.ndarray = np.round(scores + bonus, SCORE_DECIMALS)
        return total
