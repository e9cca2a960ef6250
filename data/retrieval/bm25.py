"""Retrieves E_t, the top-k passages of an evidence pool for a query, by BM25+."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from rank_bm25 import BM25Plus

from turngraph.configs.extras import extra
from turngraph.data.normalise import UNSPACED, WORD, fold
from turngraph.data.retrieval.numpy_bm25s import bm25s
from turngraph.data.retrieval.similar_terms import SimilarTerms
from turngraph.data.types import Evidence, Query, Retrieved

Ranker = Literal["bm25s", "rank_bm25"]
Stemmer = Literal["none", "english"]

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every index at DEBUG

K1, B, DELTA = 1.5, 0.75, 1.0
MAX_QUERY_WORDS = 128
"""Words of Q_t that are kept, the last ones, where Q_t is one text."""
MAX_SIMILAR_WORDS = 32
"""Words of a query that no passage has, and that are compared with the terms of passages."""
SCORE_DECIMALS = 6
"""Scores are rounded, as those of equal passages may differ in the last bits."""
_RUN = re.compile(rf"[{UNSPACED}]{{2,}}|{WORD.pattern}")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def best(scores: np.ndarray, top_k: int) -> list[int]:
    """Return the rows of the largest scores, best first, ties by row.

    Args:
        scores: [rows].
        top_k: maximum number of rows.
    """
    rows = np.arange(len(scores))
    if 0 < top_k < len(scores) // 8:  # much faster than to sort all of a corpus
        above = np.flatnonzero(scores > scores.min())  # passages with a word of the query
        if len(above) >= top_k:
            rows = above
        values = scores[rows]
        rows = rows[values >= np.partition(values, len(rows) - top_k)[len(rows) - top_k]]
    order: list[int] = rows[np.argsort(-scores[rows], kind="stable")][:top_k].tolist()
    return order


def cut_query(query: str, max_words: int = MAX_QUERY_WORDS) -> str:
    """Truncate a query to its last ``max_words`` words, as BM25 counts words."""
    starts = [match.start() for match in WORD.finditer(query)]
    return query if len(starts) <= max_words else query[starts[-max_words] :]


def terms(text: str, stemmer: Stemmer = "none") -> list[str]:
    """Split a text into the terms that BM25+ compares: its words, or their stems.

    Of scripts without spaces, each two neighbouring characters are a term (Chinese, Japanese, Thai,
    Lao, Khmer, Burmese), and each Chinese character, as most are a word.

    Args:
        text: a passage or a query.
        stemmer: ``english``: Snowball's stems of the words.

    Raises:
        UserError: the stemmer is not installed.
    """
    folded = fold(text)
    if _UNSPACED.search(folded):
        words = [term for run in _RUN.findall(folded) for term in _terms_of(run)]
    else:
        words = WORD.findall(folded)
    if stemmer == "none":
        return words
    with extra("stems", "evidence.stemmer needs"):
        import Stemmer as snowball
    # made anew, as threads must not share one: it takes less than a microsecond
    stems: list[str] = snowball.Stemmer(stemmer).stemWords(words)
    return stems


def _terms_of(run: str) -> list[str]:
    if len(run) < 2 or not _UNSPACED.match(run):
        return [run]
    return [*_HAN.findall(run), *(run[i : i + 2] for i in range(len(run) - 1))]


class EvidenceIndex:
    """BM25+ index over one pool (Robertson and Zaragoza 2009; k1 1.5, b 0.75, delta 1).

    A term of the query that no passage has stands for the pool's terms that are spelled like it
    (``SimilarTerms``), as in languages that write a word's endings without a space.

    Args:
        pool: the passages to index.
        ranker: ``bm25s`` (sparse, fast) or ``rank_bm25`` (reference implementation); the ranks are
            the same.
        stemmer: as of ``terms``.

    Raises:
        UserError: the stemmer is not installed.
    """

    def __init__(
        self, pool: Sequence[Evidence], ranker: Ranker = "bm25s", stemmer: Stemmer = "none"
    ) -> None:
        self.pool = pool
        self.ranker = ranker
        self.stemmer = stemmer
        self._bm25: BM25Plus | bm25s.BM25 | None = None
        corpus = [terms(passage.text, stemmer) for passage in pool]
        if not any(corpus):  # no words; every passage then scores 0
            return
        if ranker == "rank_bm25":
            self._bm25 = BM25Plus(corpus, k1=K1, b=B, delta=DELTA)
        else:
            self._bm25 = bm25s.BM25(method="bm25+", k1=K1, b=B, delta=DELTA, dtype="float64")
            self._bm25.index(corpus, show_progress=False)

    @classmethod
    def of(cls, pool: Sequence[Evidence], bm25: bm25s.BM25 | None) -> EvidenceIndex:
        """Return an index that was made before.

        Args:
            pool: its passages, each of which is read only when it is a result.
            bm25: BM25+ over the ``terms`` of these passages; None: no passage has a term.
        """
        index = cls((), "bm25s")
        index.pool, index._bm25 = pool, bm25
        return index

    def scores(self, query: str) -> np.ndarray:
        """Return the BM25+ score of every passage, rounded so that equal passages tie."""
        scores, added = self._scores(query)
        return np.round(scores + added, SCORE_DECIMALS)

    def _scores(self, text: str) -> tuple[np.ndarray, float]:
        """Return scores above that of a passage without a word of the text, and that score."""
        if self._bm25 is None:
            return np.zeros(len(self.pool)), 0.0
        known, other = list[str](), list[str]()
        for token in terms(text, self.stemmer):
            (known if token in self._vocabulary else other).append(token)
        scores, added = self._exact(known)
        scores = scores - added
        for token in other[-MAX_SIMILAR_WORDS:]:
            highest = np.zeros(len(self.pool))  # of a passage's most similar term, not their sum
            for term, share in self._similar.like(token):
                exact, least = self._exact([term])
                highest = np.maximum(highest, share * np.where(exact > least, exact, 0.0))
            scores = scores + highest
        return scores, added

    @cached_property
    def _similar(self) -> SimilarTerms:
        return SimilarTerms(self._vocabulary)

    @property
    def _vocabulary(self) -> dict[str, Any]:
        """The terms that passages have."""
        of: Any = self._bm25
        vocabulary: dict[str, Any] = of.idf if isinstance(of, BM25Plus) else of.vocab_dict
        return vocabulary

    def _exact(self, known: list[str]) -> tuple[np.ndarray, float]:
        """Return the scores for terms that some passages have, and what a passage without has.

        It is delta times the idf of each term, which BM25+ adds to all passages.
        """
        if not known:
            return np.zeros(len(self.pool)), 0.0
        of: Any = self._bm25
        scores: np.ndarray = of.get_scores(known)
        if isinstance(of, BM25Plus):
            return scores, sum(DELTA * of.idf[term] for term in known)
        return scores, float(of.nonoccurrence_array[[of.vocab_dict[term] for term in known]].sum())

    def rank(self, query: Query, top_k: int, turn: int = 0) -> list[Retrieved]:
        """Return the ``top_k`` best passages, best first, ties by position in the pool.

        Passages that score 0 are left out: none of their words is similar to a word of the query.

        Args:
            query: Q_t, or its turns with their weights.
            top_k: maximum number of passages.
            turn: index of the turn, recorded with every passage.
        """
        scores = self.query_scores(query)
        indices = [i for i in best(scores, top_k) if scores[i] > 0]
        return [Retrieved(self.pool[i], float(scores[i]), turn) for i in indices]

    def query_scores(self, query: Query) -> np.ndarray:
        """Return the score of every passage for Q_t, or for its turns with their weights.

        It is 0 without a word of the query, where BM25+ has delta times the idf of each word.
        """
        turns = [(query, 1.0)] if isinstance(query, str) else list(query)
        total = np.zeros(len(self.pool))
        for text, weight in turns:
            total += weight * self._scores(text)[0]
        return np.round(total, SCORE_DECIMALS)
