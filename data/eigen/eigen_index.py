"""Ranks a pool's passages by best-first search over their similarities and themes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turngraph.data.eigen.search import SEARCH, NodeGraph, best_first
from turngraph.data.eigen.shared_names import SharedNames
from turngraph.data.eigen.similarity_graph import unit_vectors
from turngraph.data.eigen.summaries import Sentence, quotations
from turngraph.data.eigen.themes import (
    Theme,
    source_themes,
    themes_of_themes,
)
from turngraph.data.eigen.utility_questions import FUNCTION_WORDS
from turngraph.data.embedding import Embed
from turngraph.data.normalise import words
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.dense import query_vector
from turngraph.data.retrieval.reciprocal_ranks import fuse
from turngraph.data.types import Evidence, Query, Retrieved

DECIMALS = 6
WORD_WEIGHT = 0.8
"""Weight of a passage's BM25+ score, divided by the best one, beside its cosine: of 0.2, 0.4 and
0.8, best on MuSiQue and on both halves of LoCoMo (docs/results.md)."""
SHARED_WEIGHT = 0.2
"""Share of a best passage's score that is added to passages which have a rare name in common with
it."""


class EigenIndex:
    """Index of a pool with the interface of ``data.retrieval.bm25.EvidenceIndex``.

    Args:
        pool: the passages to index; each is a chunk. Blank ones rank last.
        embed: sentence encoder of texts and queries.
        sources: source of each passage; themes are made for each source by itself; None: one
            source.

    Attributes:
        themes: themes of level 1, by source; their members are positions in the pool.
        upper: themes of level 2; their members are positions in ``themes``.
        quoted: numbers of the chunks that each theme quotes, best first, of ``themes`` and then of
            ``upper``.

    Raises:
        UserError: the encoder returns a vector that is zero or not finite for a passage, which is
            named by its number.
    """

    def __init__(
        self,
        pool: Sequence[Evidence],
        embed: Embed,
        sources: Sequence[str] | None = None,
    ) -> None:
        self.pool, self.embed = pool, embed
        self.chunks = np.array(
            [i for i, passage in enumerate(pool) if passage.text.strip()], np.int64
        )
        texts = [pool[i].text for i in self.chunks.tolist()]
        passages = [pool[i] for i in self.chunks.tolist()]
        self._words = EvidenceIndex(passages)
        self._names = SharedNames([[entity.label for entity in p.entities] for p in passages])
        self._vectors = unit_vectors(embed(texts), "passage") if texts else np.zeros((0, 1))
        names = [""] * len(texts) if sources is None else [sources[i] for i in self.chunks.tolist()]
        by_source = [np.flatnonzero(np.array(names) == name) for name in dict.fromkeys(names)]
        themes: list[Theme] = []
        neighbours = []
        for numbers in by_source:
            of_source = source_themes(self._vectors[numbers])
            if of_source.neighbours is not None:
                neighbours.append((numbers, of_source.neighbours))
            themes += [_moved(theme, numbers) for theme in of_source.themes]
        upper = themes_of_themes(themes)
        self.quoted = [self._quotes(theme, texts) for theme in themes]
        self.quoted += [
            [chunk for member in theme.members.tolist() for chunk in self.quoted[member][:1]]
            for theme in upper
        ]
        self._theme_vectors = np.array([theme.vector for theme in (*themes, *upper)])
        self.graph = NodeGraph(len(texts), neighbours, themes, upper)
        self.themes = tuple(_moved(theme, self.chunks) for theme in themes)
        self.upper = upper

    def _quotes(self, theme: Theme, texts: Sequence[str]) -> list[int]:
        """Return the chunks that a theme of a pool quotes: whole passages, with known vectors."""
        heavy = theme.members[:32].tolist()
        sentences = [Sentence(chunk, 0, len(texts[chunk]), texts[chunk]) for chunk in heavy]
        quotes = quotations(theme, sentences, self._vectors[heavy])
        return [quote.sentence.chunk for quote in quotes]

    def rank(self, query: Query, top_k: int, turn: int = 0) -> list[Retrieved]:
        """Return the ``top_k`` best passages, best first, ties by position in the pool.

        What the search finds comes first; passages that it does not reach follow, by RRF.

        Args:
            query: Q_t, or its turns with their weights.
            top_k: maximum number of passages.
            turn: index of the turn, recorded with every passage.
        """
        order, scores = self.search(query)
        rest = np.setdiff1d(np.arange(len(self.pool)), self.chunks[order])
        places = np.concatenate([self.chunks[order], rest])[:top_k].tolist()
        values = [*scores.tolist(), *[0.0] * len(rest)]
        return [Retrieved(self.pool[i], values[n], turn) for n, i in enumerate(places)]

    def search(self, query: Query) -> tuple[np.ndarray, np.ndarray]:
        """Return all chunks, best first, and their scores, descending."""
        count = len(self.chunks)
        if count == 0:
            return np.zeros(0, np.int64), np.zeros(0)
        turns = [(query, 1.0)] if isinstance(query, str) else query
        vector = query_vector(self.embed, query)
        by_text = np.round(self._vectors @ vector, DECIMALS)
        each = [weight * self._words.scores(_content(text)) for text, weight in turns]
        by_words = np.sum(each, axis=0)
        by_theme = np.zeros(0)
        if len(self._theme_vectors):
            by_theme = np.round(self._theme_vectors @ vector, DECIMALS)
        by_passage = by_text.copy()
        if by_words.max() > 0:
            by_passage += WORD_WEIGHT * by_words / by_words.max()
        by_passage = by_passage + SHARED_WEIGHT * self._names.gains(by_passage)
        scores = np.concatenate([by_passage, by_theme])
        rankings = [_order(values) for values in (by_words, by_text)]
        rankings.append(_order(by_theme) + count)
        fused = fuse(rankings, len(scores))
        starts = fused[: SEARCH.num_starts]
        raised = _order(by_passage)[: SEARCH.num_starts]  # there may be no edge to such a passage
        starts = np.concatenate([starts, raised[~np.isin(raised, starts)]])
        hits = best_first(scores, starts.tolist(), self.graph, quoted=self.quoted)
        chunks = [hit.node for hit in hits if hit.node < count]
        rest = np.setdiff1d(fused[fused < count], chunks, assume_unique=True)
        order = np.concatenate([np.array(chunks, np.int64), rest])
        return order, 1 / (1 + np.arange(len(order)))


def _content(text: str) -> str:
    """Return a query without function words; all of it if it has no others."""
    return " ".join(word for word in words(text) if word not in FUNCTION_WORDS) or text


def _order(values: np.ndarray) -> np.ndarray:
    return np.argsort(-values, kind="stable")


def _moved(theme: Theme, places: np.ndarray) -> Theme:
    """Return a theme with each member, an index into ``places``, replaced by the place."""
    return Theme(theme.eigenvalue, places[theme.members], theme.weights, theme.vector)
