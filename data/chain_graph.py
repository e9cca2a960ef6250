"""From pieces of evidence to one graph of token chains joined by entity edges, as index arrays."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from data.link import EntitySpan

ChainDirection = Literal["forward", "backward", "both"]
EntityEdges = Literal["star", "clique", "none"]
CutEdges = Literal["nothing", "entity", "all"]


@dataclass(frozen=True, slots=True)
class TokenisedPiece:
    """A piece of evidence as tokens.

    Args:
        ids: token ids, one node each.
        ends: where each token ends, in characters of the piece's text; tokens of the tags
            around the text end at 0 or behind the text.
        num_cut: tokens that were cut off because the piece alone exceeded the node budget.
    """

    ids: list[int]
    ends: list[int]
    num_cut: int = 0


@dataclass(frozen=True, slots=True)
class ChainGraph:
    """The graph of E_t (paper, section 4.3).

    Args:
        node_ids: token id of every node, piece after piece, [N].
        edge_index: source row and target row, [2, E]; chain edges first.
        num_entity_edges: how many of the edges, at the end, join entity spans.
    """

    node_ids: np.ndarray
    edge_index: np.ndarray
    num_entity_edges: int


def chain_graph(
    pieces: Sequence[TokenisedPiece],
    spans: Sequence[Sequence[EntitySpan]],
    chain: ChainDirection = "forward",
    entity_edges: EntityEdges = "star",
    max_entity_share: float = 0.5,
) -> ChainGraph:
    """Join token chains by entity edges.

    Args:
        pieces: tokens of each piece, best-ranked first.
        spans: entity spans of each piece, in characters of its text.
        chain: ``forward`` is w_1 -> w_2 -> ..., as the paper draws it.
        entity_edges: ``star`` joins every span to the first span in the best-ranked piece, O(m)
            edges for m spans; ``clique`` joins all pairs in different pieces; both ways,
            last token to last token.
        max_entity_share: an entity in more than this part of the pieces gets no edges.
    """
    starts = np.cumsum([0, *(len(piece.ids) for piece in pieces)])
    node_ids = np.fromiter((i for piece in pieces for i in piece.ids), np.int64, int(starts[-1]))
    nodes = _span_nodes(pieces, spans, starts)
    joined = _entity_edges(nodes, len(pieces), entity_edges, max_entity_share)
    chains = _chain_edges(starts, chain)
    edge_index = np.concatenate([chains, joined], axis=1)
    return ChainGraph(node_ids, edge_index, joined.shape[1])


def cut_edges(graph: ChainGraph, cut: CutEdges) -> ChainGraph:
    """The graph without its entity edges, or without any: what a trained model owes to them."""
    num_edges = graph.edge_index.shape[1]
    kept = {"nothing": num_edges, "entity": num_edges - graph.num_entity_edges, "all": 0}[cut]
    num_entity_edges = graph.num_entity_edges if cut == "nothing" else 0
    return ChainGraph(graph.node_ids, graph.edge_index[:, :kept], num_entity_edges)


def _chain_edges(starts: np.ndarray, chain: ChainDirection) -> np.ndarray:
    first = np.arange(max(int(starts[-1]) - 1, 0))
    first = np.delete(first, starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] <= len(first))] - 1)
    forward = np.stack([first, first + 1])
    if chain == "both":
        return np.concatenate([forward, forward[::-1]], axis=1)
    return forward if chain == "forward" else forward[::-1]


def _span_nodes(
    pieces: Sequence[TokenisedPiece], spans: Sequence[Sequence[EntitySpan]], starts: np.ndarray
) -> dict[str, list[tuple[int, int]]]:
    """Entity id -> (piece, node of the span's last token), in rank order."""
    nodes: dict[str, list[tuple[int, int]]] = {}
    for number, (piece, found) in enumerate(zip(pieces, spans, strict=True)):
        for span in found:
            token = _last_token(piece.ends, span.end)
            if token < len(piece.ids):  # else the piece was cut before the span's end
                nodes.setdefault(span.entity, []).append((number, int(starts[number]) + token))
    return nodes


def _last_token(ends: Sequence[int], end: int) -> int:
    """The last token of a span; of several that end with it (bytes of one character) the last."""
    last = bisect_right(ends, end) - 1
    return last if last >= 0 and ends[last] == end else bisect_left(ends, end)


def _entity_edges(
    nodes: dict[str, list[tuple[int, int]]], num_pieces: int, kind: EntityEdges, max_share: float
) -> np.ndarray:
    pairs: set[tuple[int, int]] = set()
    for places in nodes.values() if kind != "none" else ():
        in_pieces = {number for number, _ in places}
        if len(in_pieces) < 2 or len(in_pieces) / num_pieces > max_share:
            continue
        joins = (
            ((places[0], other) for other in places[1:])
            if kind == "star"
            else combinations(places, 2)
        )
        pairs.update((a, b) for (piece_a, a), (piece_b, b) in joins if piece_a != piece_b)
    if not pairs:
        return np.empty((2, 0), np.int64)
    one_way = np.array(sorted(pairs), np.int64).T
    return np.concatenate([one_way, one_way[::-1]], axis=1)
