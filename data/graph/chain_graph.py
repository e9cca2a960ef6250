"""Builds the evidence graph: token chains joined by entity edges, as index arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from turngraph.configs.schema import EDGE_TYPES
from turngraph.data.graph.entity_spans import EntitySpan

CutEdges = Literal["nothing", "entity", "shuffle", "all"]
TypedEdges = tuple[str, np.ndarray]
"""Edge type (a name of ``EDGE_TYPES``), and source row and target row, [2, E]."""

CHAIN_TYPES = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class TokenisedPassage:
    """Tokens of a passage.

    Args:
        ids: token ids, one node each.
        ends: end of each token, in characters of the passage's text; tokens of the tags around
            the text end at 0 or after the text.
        num_cut: number of tokens cut off because the passage alone exceeded the node budget.
    """

    ids: list[int]
    ends: list[int]
    num_cut: int = 0


@dataclass(frozen=True, slots=True)
class Mentions:
    """Mentions of entities by nodes.

    Args:
        entities: index of each mention's entity among the entities of E_t
            (``mentions.entities_of``), [M].
        nodes: the last node of each mention, [M].
        sizes: number of nodes of each passage, then of the question, [P + 1].
        answers: first and last node of each place where a passage has a gold answer's words,
            [2, A].
    """

    entities: np.ndarray
    nodes: np.ndarray
    sizes: np.ndarray
    answers: np.ndarray = field(default_factory=lambda: np.empty((2, 0), np.int64))


@dataclass(frozen=True, slots=True)
class ChainGraph:
    """Graph of E_t (paper, section 4.3).

    Args:
        node_ids: token id of every node, passage after passage, [N].
        edge_index: source row and target row, [2, E]; chain edges first.
        num_entity_edges: number of edges, at the end, that join entity spans.
        edge_types: index of each edge's type in ``EDGE_TYPES``, [E]; None if unknown.
        num_hidden: number of nodes at the end that are encoded but have no position in the
            prompt: the question's.
        mentions: mentions of entities; None if the builder does not keep them.
    """

    node_ids: np.ndarray
    edge_index: np.ndarray
    num_entity_edges: int
    edge_types: np.ndarray | None = None
    num_hidden: int = 0
    mentions: Mentions | None = None

    @property
    def prompt_ids(self) -> np.ndarray:
        """Token ids of the nodes with a position in the prompt, in order, [P]."""
        return self.node_ids[: len(self.node_ids) - self.num_hidden]

    def chain_index(self) -> np.ndarray:
        """Return the index of each node's token chain, [N], derived from the chain edges."""
        assert self.edge_types is not None, "edges without types"
        in_chain = np.isin(self.edge_types, [EDGE_TYPES.index(name) for name in CHAIN_TYPES])
        continues = np.zeros(len(self.node_ids), bool)
        continues[self.edge_index[:, in_chain].max(axis=0)] = True
        return np.cumsum(~continues) - 1


def chain_graph(
    passages: Sequence[TokenisedPassage],
    spans: Sequence[Sequence[EntitySpan]],
    both_ways: bool = False,
    max_entity_share: float = 0.5,
    more_edges: Sequence[TypedEdges] = (),
    num_hidden: int = 0,
) -> ChainGraph:
    """Build the evidence graph: token chains joined by entity edges (paper, section 4.3).

    Entity edges join the last tokens of every span and of the entity's first span, which is in the
    best-ranked passage, in both directions: O(m) edges for m spans.

    Args:
        passages: tokens of each passage, best-ranked first.
        spans: entity spans of each passage, in characters of its text.
        both_ways: whether chain edges also run backward; forward is w_1 -> w_2 -> ..., as in the
            paper's figure.
        max_entity_share: an entity in more than this fraction of the passages gets no edges.
        more_edges: edges of other types, to add.
        num_hidden: number of nodes at the end without a position in the prompt.
    """
    starts = node_starts(passages)
    node_ids = np.fromiter(
        (i for passage in passages for i in passage.ids), np.int64, int(starts[-1])
    )
    nodes = span_nodes(passages, spans, starts)
    joined = _entity_edges(nodes, len(passages), max_entity_share)
    parts = [*_chain_edges(starts, both_ways), *more_edges, ("entity", joined)]
    edge_index = np.concatenate([edges for _, edges in parts], axis=1)
    sizes = [edges.shape[1] for _, edges in parts]
    edge_types = np.repeat([EDGE_TYPES.index(name) for name, _ in parts], sizes)
    return ChainGraph(node_ids, edge_index, joined.shape[1], edge_types, num_hidden)


def node_starts(passages: Sequence[TokenisedPassage]) -> np.ndarray:
    """Return the index of each passage's first node, then the number of nodes, [P + 1]."""
    return np.cumsum([0, *(len(passage.ids) for passage in passages)])


def cut_edges(graph: ChainGraph, cut: CutEdges) -> ChainGraph:
    """Return the graph without its entity edges or without any edges, for ablations.

    Args:
        graph: a graph with its entity edges at the end.
        cut: ``nothing``, ``entity`` or ``all``; ``shuffle`` is ``rewire.shuffle_entity_edges``.
    """
    num_edges = graph.edge_index.shape[1]
    num_kept = {"nothing": num_edges, "entity": num_edges - graph.num_entity_edges, "all": 0}[cut]
    num_entity_edges = graph.num_entity_edges if cut == "nothing" else 0
    types = None if graph.edge_types is None else graph.edge_types[:num_kept]
    edges = graph.edge_index[:, :num_kept]
    return replace(graph, edge_index=edges, num_entity_edges=num_entity_edges, edge_types=types)


def _chain_edges(starts: np.ndarray, both_ways: bool) -> list[TypedEdges]:
    first = np.arange(max(int(starts[-1]) - 1, 0))
    first = np.delete(first, starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] <= len(first))] - 1)
    forward = np.stack([first, first + 1])
    both: list[TypedEdges] = [("forward", forward), ("backward", forward[::-1])]
    return both if both_ways else both[:1]


def span_nodes(
    passages: Sequence[TokenisedPassage], spans: Sequence[Sequence[EntitySpan]], starts: np.ndarray
) -> dict[str, list[tuple[int, int]]]:
    """Map entity ids to (passage, node of the span's last token) pairs, in rank order."""
    nodes: dict[str, list[tuple[int, int]]] = {}
    for index, (passage, passage_spans) in enumerate(zip(passages, spans, strict=True)):
        for span in passage_spans:
            token = last_token(passage.ends, span.end)
            if token < len(passage.ids):  # else the passage was cut before the span's end
                nodes.setdefault(span.entity, []).append((index, int(starts[index]) + token))
    return nodes


def first_token(ends: Sequence[int], start: int) -> int:
    """Return the index of the token that holds a span's first character.

    Args:
        ends: end of each token, in characters.
        start: start of the span, in characters.
    """
    return bisect_right(ends, start)


def last_token(ends: Sequence[int], end: int) -> int:
    """Return the index of a span's last token.

    If several tokens, bytes of one character, end with the span, it is the last of them.

    Args:
        ends: end of each token, in characters.
        end: end of the span, in characters.
    """
    last = bisect_right(ends, end) - 1
    return last if last >= 0 and ends[last] == end else last + 1


def _entity_edges(
    nodes: dict[str, list[tuple[int, int]]], num_passages: int, max_share: float
) -> np.ndarray:
    pairs: set[tuple[int, int]] = set()
    for mentions in nodes.values():
        in_passages = {passage for passage, _ in mentions}
        if len(in_passages) / num_passages > max_share:
            continue
        passage, first = mentions[0]
        pairs.update((first, node) for other, node in mentions[1:] if other != passage)
    if not pairs:
        return np.empty((2, 0), np.int64)
    one_way = np.array(sorted(pairs), np.int64).T
    return np.concatenate([one_way, one_way[::-1]], axis=1)
