"""Searches chunks and themes best first, along the graph of their similarities.

With gamma 0 and the complete graph it is Algorithm 1 of GEM-RAG (arXiv 2409.15566), which uses no
edges and returns the chunks whose texts or questions are closest to the prompt.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.eigen.similarity_graph import Neighbours
from turngraph.data.eigen.themes import Theme
from turngraph.data.retrieval.reciprocal_ranks import fuse as fuse

DECIMALS = 6


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Settings of the search.

    Args:
        gamma: factor of the score that a neighbour inherits, besides the edge's weight; at least 0.
        num_starts: chunks or themes that the search starts at.
        max_pops: most nodes that are taken from the heap.
    """

    gamma: float = 0.7
    num_starts: int = 5
    max_pops: int = 64

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            UserError: a setting is out of range.
        """
        for name, least in (("gamma", 0), ("num_starts", 1), ("max_pops", 1)):
            value = getattr(self, name)
            if not least <= value < float("inf"):
                raise UserError(f"search: {name} {value!r} given, must be at least {least}")


SEARCH = SearchSettings()


class Graph(Protocol):
    """A graph over nodes: chunks from 0, then themes."""

    def of(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours of a node and the weights of the edges, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk or theme that the search found.

    Args:
        node: number of the chunk; for a theme, the number of chunks plus the theme's number.
        score: f = max(own score, gamma * w * f of the neighbour that led to it).
    """

    node: int
    score: float


def best_first(
    scores: np.ndarray,
    starts: Sequence[int],
    graph: Graph,
    settings: SearchSettings = SEARCH,
    quoted: Sequence[Sequence[int]] = (),
) -> list[Hit]:
    """Return nodes best first.

    Args:
        scores: [N] own score of every node: the largest cosine of the prompt with its text and its
            questions.
        starts: nodes that the heap begins with.
        graph: neighbours of every node.
        settings: settings of the search.
        quoted: for every theme, the chunks that its summary quotes; a theme whose quoted chunks are
            all found already is skipped.

    Returns:
        The nodes in the order in which they were taken.
    """
    own_scores = np.round(np.asarray(scores, np.float64), DECIMALS)
    num_chunks = len(own_scores) - len(quoted)
    best: dict[int, float] = {}
    heap: list[tuple[float, int]] = []
    for node in starts:
        best[node] = float(own_scores[node])
        heapq.heappush(heap, (-best[node], node))
    taken: set[int] = set()
    hits: list[Hit] = []
    pops = 0
    while heap and pops < settings.max_pops:
        negative, node = heapq.heappop(heap)
        if node in taken or -negative < best[node]:
            continue
        pops += 1
        taken.add(node)
        is_known = node >= num_chunks and taken.issuperset(quoted[node - num_chunks])
        if not is_known:
            hits.append(Hit(node, best[node]))
        others, weights = graph.of(node)
        inherited = np.round(
            settings.gamma * weights.astype(np.float64) * max(best[node], 0), DECIMALS
        )
        scores_there = np.where(
            inherited > 0, np.maximum(own_scores[others], inherited), own_scores[others]
        )
        if (
            len(others) > settings.max_pops
        ):  # of a large theme: the search can take no more than these
            fresh = np.flatnonzero(~np.isin(others, list(taken)))
            first = fresh[np.lexsort((others[fresh], -scores_there[fresh]))[: settings.max_pops]]
            others, scores_there = others[first], scores_there[first]
        for other, score in zip(others.tolist(), scores_there.tolist(), strict=True):
            if other not in taken and score > best.get(other, -np.inf):
                best[other] = score
                heapq.heappush(heap, (-score, other))
    return hits


class NodeGraph:
    """Graph of chunks and themes: similar chunks, themes and their members, themes of themes.

    Nodes are numbered: chunks, themes of level 1, themes of level 2.

    Args:
        num_chunks: number of chunks.
        neighbours: for every source, the numbers of its chunks and their graph.
        themes: themes of level 1, whose members are chunks.
        upper: themes of level 2, whose members are themes of level 1.
    """

    def __init__(
        self,
        num_chunks: int,
        neighbours: Sequence[tuple[np.ndarray, Neighbours]] = (),
        themes: Sequence[Theme] = (),
        upper: Sequence[Theme] = (),
    ) -> None:
        self.num_chunks = num_chunks
        self._inside = list(neighbours)
        self._place = np.full((num_chunks, 2), -1, np.int64)  # source, number in the source
        for index, (chunks, _) in enumerate(self._inside):
            self._place[chunks, 0], self._place[chunks, 1] = index, np.arange(len(chunks))
        self._more: dict[int, list[tuple[int, float]]] = {}
        first = num_chunks
        for level, below in ((themes, 0), (upper, num_chunks)):
            for node, theme in enumerate(level, start=first):
                members = (theme.members + below).tolist()
                for member, weight in zip(members, theme.weights.tolist(), strict=True):
                    self._more.setdefault(node, []).append((member, weight))
                    self._more.setdefault(member, []).append((node, weight))
            first += len(level)
        self.num_nodes = first

    def of(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours of a node and the weights of the edges."""
        more = self._more.get(node, [])
        others = np.array([other for other, _ in more], np.int64)
        weights = np.array([weight for _, weight in more])
        index, number = self._place[node].tolist() if node < self.num_chunks else (-1, -1)
        if index < 0:
            return others, weights
        chunks, inside = self._inside[index]
        near, similar = inside.of(number)
        return np.concatenate([chunks[near], others]), np.concatenate([similar, weights])
