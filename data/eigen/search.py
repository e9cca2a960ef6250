"""Searches chunks and themes best first, along the graph of their similarities.

With gamma 0 and the complete graph it is Algorithm 1 of GEM-RAG (arXiv 2409.15566), which reads no
edge: the chunks whose texts or questions are closest to the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from turngraph.data.eigen.themes import DEFAULT, Theme, ThemeSettings
from turngraph.data.embedding import Embed
from turngraph.data.types import Evidence, Query, Retrieved

RRF = 60


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Settings of the search.

    Args:
        gamma: how much of a chunk's score its neighbours inherit, times the edge's weight, from 0.
        num_starts: chunks or themes that the search starts at.
        max_pops: most nodes that are taken from the heap.
        max_tokens: token budget of what is returned; None: no limit.
    """

    gamma: float = 0.7
    num_starts: int = 5
    max_pops: int = 64
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ValueError: a setting is out of range.
        """


SEARCH = SearchSettings()


class Graph(Protocol):
    """A graph over nodes: chunks from 0, then themes."""

    def of(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours of a node and the weights of the edges, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk or theme that the search found.

    Args:
        node: number of the chunk; a theme's is the number of chunks plus its own.
        score: f = max(own score, gamma * w * f of the neighbour that led to it).
        found_from: the node that led to it; None for a start or by its own score.
    """

    node: int
    score: float
    found_from: int | None


def fuse(rankings: Sequence[np.ndarray], num_nodes: int) -> np.ndarray:
    """Return the nodes by reciprocal-rank fusion (k 60) of rankings, best first, ties by number.

    Args:
        rankings: node numbers each, best first; a node may be missing.
        num_nodes: number of nodes; those in no ranking come last, by number.
    """
    raise NotImplementedError


def best_first(
    scores: np.ndarray,
    starts: Sequence[int],
    graph: Graph,
    sizes: Sequence[int] | np.ndarray,
    settings: SearchSettings = SEARCH,
    quoted: Sequence[Sequence[int]] = (),
) -> list[Hit]:
    """Return nodes best first, within the token budget.

    Args:
        scores: [N] own score of every node: the largest cosine of the prompt with its text and its
            questions.
        starts: nodes that the heap begins with.
        graph: neighbours of every node.
        sizes: [N] tokens of every node's text.
        settings: of the search.
        quoted: for every theme, the chunks that its summary quotes; a theme whose quoted chunks are
            all found already is skipped.

    Returns:
        The nodes in the order in which they were taken; one that does not fit into what is left of
        the budget is left out, and the search goes on.
    """
    raise NotImplementedError


class EigenIndex:
    """Index of a pool with the interface of ``data.retrieval.bm25.EvidenceIndex``.

    Args:
        pool: the passages to index; each is a chunk.
        embed: sentence encoder of texts, questions and queries.
        sources: source of each passage, whose themes are made apart; None: one source.
        num_questions: utility questions by rules for each passage; 0: none.
        settings: of the search.
        themes: settings of the themes.

    Attributes:
        themes: of level 1, by source, whose members are positions in the pool.

    Raises:
        ValueError: the encoder returns a vector that is zero or not finite for a passage, which is
            named by its number.
    """

    def __init__(
        self,
        pool: Sequence[Evidence],
        embed: Embed,
        sources: Sequence[str] | None = None,
        num_questions: int = 3,
        settings: SearchSettings = SEARCH,
        themes: ThemeSettings = DEFAULT,
    ) -> None:
        self.pool = pool
        self.themes: tuple[Theme, ...] = ()
        raise NotImplementedError

    def rank(self, query: Query, top_k: int, turn: int = 0) -> list[Retrieved]:
        """Return the ``top_k`` best passages, best first, ties by position in the pool.

        Args:
            query: Q_t, or its turns with their weights.
            top_k: maximum number of passages.
            turn: index of the turn, recorded with every passage.
        """
        raise NotImplementedError
