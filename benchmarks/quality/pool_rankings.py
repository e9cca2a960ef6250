"""Ranks the passages of pools by words, stems, sentence vectors, and fusions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from turngraph.data.embedding import Embed
from turngraph.data.examples import ExampleBuilder
from turngraph.data.retrieval.bm25 import EvidenceIndex, Stemmer
from turngraph.data.retrieval.dense import CANDIDATES, DenseIndex
from turngraph.data.retrieval.links import LinkedIndex
from turngraph.data.retrieval.reciprocal_ranks import fuse
from turngraph.data.scoring.metrics import answer_in_evidence
from turngraph.data.types import Answer, Evidence, Query, Retrieved

RETRIEVERS = {
    "bm25": ("words",),
    "bm25_stem": ("stems",),
    "links": ("links",),
    "dense": ("vectors",),
    "rrf": ("words", "vectors"),
    "rrf_stem": ("stems", "vectors"),
}
"""Retriever -> the kinds of ranking that it fuses by reciprocal ranks."""
Pool = tuple[Evidence, ...]


@dataclass
class PoolRankings:
    """Rankings of pools, whose indexes are kept.

    Args:
        embed: the sentence encoder.
        builder: counts the tokens of passages.
        top_k: passages of E_t.
        max_nodes: tokens of evidence in a prompt.
    """

    embed: Embed
    builder: ExampleBuilder
    top_k: int
    max_nodes: int
    _kept: dict[tuple[object, ...], tuple[Pool, Any]] = field(default_factory=dict)

    def order(self, retriever: str, pool: Pool, q_t: Query) -> np.ndarray:
        """Return the positions of all passages, best first, ties by position.

        Args:
            retriever: one of ``RETRIEVERS``.
            pool: the passages.
            q_t: Q_t, or its turns with their weights.
        """
        ranked = [
            np.argsort(-self._scores(kind, pool, q_t), kind="stable")
            for kind in RETRIEVERS[retriever]
        ]
        if len(ranked) > 1:  # vectors compare what words rank first, as in FusedIndex
            ranked[1] = ranked[1][np.isin(ranked[1], ranked[0][: max(CANDIDATES, self.top_k)])]
        return fuse(ranked, len(pool))

    def _scores(self, kind: str, pool: Pool, q_t: Query) -> np.ndarray:
        key = (kind, id(pool))
        if kind == "vectors":
            dense: DenseIndex = self._keep(key, pool, lambda: DenseIndex(pool, self.embed))
            return dense.scores(q_t)
        stemmer: Stemmer = "english" if kind == "stems" else "none"
        of_kind = LinkedIndex if kind == "links" else EvidenceIndex
        index: EvidenceIndex = self._keep(key, pool, lambda: of_kind(pool, stemmer=stemmer))
        return index.query_scores(q_t)

    def holds(self, pool: Pool, answers: Sequence[Answer]) -> np.ndarray:
        """Return whether each passage holds one of the answers, [passages]."""
        found = np.zeros(len(pool), bool)
        for answer in answers:
            found |= self._keep(
                ("holds", id(pool), answer),
                pool,
                lambda one=answer: np.array([bool(answer_in_evidence([one], [p])) for p in pool]),
            )
        return found

    def sizes(self, pool: Pool) -> np.ndarray:
        """Return the number of tokens of each passage, [passages]."""
        sizes: np.ndarray = self._keep(
            ("sizes", id(pool)),
            pool,
            lambda: np.array(self.builder.sizes([Retrieved(p, 0.0, 0) for p in pool]), int),
        )
        return sizes

    def num_in_prompt(self, pool: Pool, order: np.ndarray) -> int:
        """Return how many of the first ``top_k`` passages of an order fit into a prompt."""
        total = np.cumsum(self.sizes(pool)[order[: self.top_k]])
        return int(np.searchsorted(total, self.max_nodes, side="right"))

    def _keep(self, key: tuple[object, ...], pool: Pool, make: Any) -> Any:
        """Return what ``make`` returned for a key; the pool is held, so that its id stays its."""
        if key not in self._kept:
            self._kept[key] = pool, make()
        return self._kept[key][1]
