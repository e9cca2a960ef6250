"""Retrieves passages by sentence vectors, alone or fused with BM25+ by reciprocal ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from turngraph.data.embedding import Embed
from turngraph.data.retrieval.bm25 import SCORE_DECIMALS, EvidenceIndex, Ranker, Stemmer, best
from turngraph.data.retrieval.reciprocal_ranks import fused_scores
from turngraph.data.types import Evidence, Query, Retrieved

CANDIDATES = 64
"""Passages that vectors compare for ``rrf``. On SQA's tune part (562 questions, pools of up to 434
passages) the answer is among the first 12 for 89.1 % with 64, 88.6 % with all, 83.5 % by BM25+."""

NEAR = 0.3
"""Cosine that one passage must have for any to be found where none has a word of the question.
all-MiniLM-L6-v2 gives a question and a sentence in another language at most 0.28 (28 pairs of seven
languages)."""


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

    Vectors compare the ``CANDIDATES`` passages that BM25+ ranks first, or ``top_k`` if that is
    more, so that a large pool is not embedded as a whole.

    Args:
        pool: the passages to index.
        embed: the sentence encoder.
        ranker, stemmer: as of ``EvidenceIndex``.
    """

    def __init__(
        self, pool: Sequence[Evidence], embed: Embed, ranker: Ranker, stemmer: Stemmer
    ) -> None:
        self.pool, self.embed = pool, embed
        self._by_words = EvidenceIndex(pool, ranker, stemmer)

    def rank(self, query: Query, top_k: int, turn: int = 0) -> list[Retrieved]:
        """Return the ``top_k`` best passages, best first, ties by position in the pool.

        There are none if no passage has a word of the query, or a cosine to it of ``NEAR``.

        Args:
            query: Q_t, or its turns with their weights.
            top_k: maximum number of passages.
            turn: index of the turn, recorded with every passage.
        """
        if not self.pool:
            return []
        by_words = self._by_words.query_scores(query)
        first = best(by_words, max(CANDIDATES, top_k))
        rows = np.sort(first)
        of_rows = DenseIndex([self.pool[row] for row in rows], self.embed).scores(query)
        fused, scores = fused_rows(by_words, first, rows, of_rows)
        chosen = np.argsort(-scores, kind="stable")[:top_k]
        return [Retrieved(self.pool[fused[i]], float(scores[i]), turn) for i in chosen]


def fused_rows(
    by_words: np.ndarray, first: Sequence[int], rows: np.ndarray, cosines: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fuse the rankings of passages by words and by vectors.

    Args:
        by_words: BM25+ scores of all passages.
        first: rows of the best of them, best first; those without a word of the query are left out.
        rows: rows of the passages that vectors compare, ascending.
        cosines: their cosines to the query.

    Returns:
        Rows, ascending, and their scores by reciprocal-rank fusion; none if no passage has a word
        of the query, or a cosine to it of ``NEAR``.
    """
    matching = np.array([row for row in first if by_words[row] > 0], int)
    if not len(matching) and cosines.max(initial=-1.0) < NEAR:
        return matching, np.zeros(0)
    rankings = (matching, rows[np.argsort(-cosines, kind="stable")])
    fused = np.unique(np.concatenate(rankings))
    places = [np.searchsorted(fused, ranking) for ranking in rankings]
    return fused, fused_scores(places, len(fused))
