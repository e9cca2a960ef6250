"""Retrieves passages by sentence vectors, alone or fused with BM25+ by reciprocal ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from turngraph.data.embedding import Embed
from turngraph.data.retrieval.bm25 import SCORE_DECIMALS, EvidenceIndex, Stemmer
from turngraph.data.retrieval.reciprocal_ranks import RRF
from turngraph.data.types import Evidence, Query, Retrieved


class Index(Protocol):
    """Interface of every retriever of a pool."""

    def rank(self, query: Query, top_k: int, turn: int = 0) -> list[Retrieved]:
        """Return the ``top_k`` best passages, best first, ties by position in the pool."""


def query_vector(embed: Embed, query: Query) -> np.ndarray:
    """Return a query's vector: of its text, or the weighted mean of its turns'.

    Args:
        embed: the sentence encoder.
        query: Q_t, or its turns with their weights.
    """
    turns = [(query, 1.0)] if isinstance(query, str) else list(query)
    weights = np.array([weight for _, weight in turns])
    vectors = embed([text for text, _ in turns])
    vector: np.ndarray = weights @ vectors / max(weights.sum(), 1e-9)
    return vector


class DenseIndex:
    """Index of one pool by the cosine of sentence vectors.

    Args:
        pool: the passages to index.
        embed: the sentence encoder.
    """

    def __init__(self, pool: Sequence[Evidence], embed: Embed) -> None:
        self.pool, self.embed = pool, embed
        self._vectors = embed([passage.text for passage in pool]) if pool else np.zeros((0, 1))

    def scores(self, query: Query) -> np.ndarray:
        """Return the cosine of every passage, rounded so that equal passages tie."""
        if not self.pool:
            return np.zeros(0)
        similar = self._vectors @ query_vector(self.embed, query)
        scores: np.ndarray = np.round(similar.astype(np.float64), SCORE_DECIMALS)
        return scores

    def rank(self, query: Query, top_k: int, turn: int = 0) -> list[Retrieved]:
        """Return the ``top_k`` best passages, best first, ties by position in the pool.

        Args:
            query: Q_t, or its turns with their weights.
            top_k: maximum number of passages.
            turn: index of the turn, recorded with every passage.
        """
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [Retrieved(self.pool[i], float(scores[i]), turn) for i in order]


class FusedIndex:
    """Index of one pool by reciprocal-rank fusion of BM25+ and sentence vectors.

    Args:
        pool: the passages to index.
        embed: the sentence encoder.
        stemmer: as of ``EvidenceIndex``.
    """

    def __init__(self, pool: Sequence[Evidence], embed: Embed, stemmer: Stemmer = "none") -> None:
        self.pool = pool
        by_words = EvidenceIndex(pool, stemmer)
        self._indexes: tuple[Index, Index] = (by_words, DenseIndex(pool, embed))

    def rank(self, query: Query, top_k: int, turn: int = 0) -> list[Retrieved]:
        """Return the ``top_k`` best passages, best first, ties by position in the pool.

        Args:
            query: Q_t, or its turns with their weights.
            top_k: maximum number of passages.
            turn: index of the turn, recorded with every passage.
        """
        scores = np.zeros(len(self.pool))
        place = {id(passage): i for i, passage in enumerate(self.pool)}
        for index in self._indexes:
            for rank, retrieved in enumerate(index.rank(query, len(self.pool))):
                scores[place[id(retrieved.evidence)]] += 1 / (RRF + 1 + rank)
        scores = np.round(scores, 12)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [Retrieved(self.pool[i], float(scores[i]), turn) for i in order]
