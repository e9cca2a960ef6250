"""Rewires entity edges at random, preserving degrees: the control for what the edges contribute."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from turngraph.data.graph.chain_graph import ChainGraph

TRIES_PER_EDGE = 20

Pair = tuple[int, int]


def shuffle_entity_edges(graph: ChainGraph, starts: np.ndarray, seed: int = 0) -> ChainGraph:
    """Return the graph with its entity edges rewired at random.

    Every passage keeps the number of its entity edges. Pairs of edges a-b and c-d between passages
    are repeatedly swapped to a-d and c-b; then each end is moved to a random token of its passage.
    No edge joins a passage with itself, and no edge occurs twice.

    Args:
        graph: a graph with its entity edges at the end, first one direction, then the other.
        starts: index of each passage's first node, then the number of nodes, [P + 1].
        seed: random seed; the result is a function of the graph and the seed.
    """
    num = graph.num_entity_edges // 2
    first = graph.edge_index.shape[1] - graph.num_entity_edges
    pairs = [(a, b) for a, b in graph.edge_index[:, first : first + num].T.tolist()]
    rng = random.Random(f"{seed}/{graph.node_ids.tobytes().hex()}")
    moved = _move(_swap(pairs, starts, rng), starts, rng)
    shuffled = np.array(moved, np.int64).reshape(-1, 2).T
    edges = [graph.edge_index[:, :first], shuffled, shuffled[::-1]]
    return replace(graph, edge_index=np.concatenate(edges, axis=1))


def _swap(pairs: list[Pair], starts: np.ndarray, rng: random.Random) -> list[Pair]:
    """Swap the partners of random pairs of edges."""
    pairs, known = list(pairs), set(map(frozenset, pairs))
    for _ in range(TRIES_PER_EDGE * len(pairs) if len(pairs) > 1 else 0):
        one, other = rng.sample(range(len(pairs)), 2)
        (a, b), (c, d) = pairs[one], pairs[other]
        if rng.random() < 0.5:
            c, d = d, c
        new = {frozenset((a, d)), frozenset((c, b))}
        apart = _passage(a, starts) != _passage(d, starts) and _passage(c, starts) != _passage(
            b, starts
        )
        if apart and not new & known:
            known = known - {frozenset((a, b)), frozenset((c, d))} | new
            pairs[one], pairs[other] = (a, d), (c, b)
    return pairs


def _move(pairs: list[Pair], starts: np.ndarray, rng: random.Random) -> list[Pair]:
    """Move the ends of each edge to random tokens of the same two passages."""
    pairs, known = list(pairs), set(map(frozenset, pairs))
    for index, (a, b) in enumerate(pairs):
        for _ in range(TRIES_PER_EDGE):
            new = _draw_token(a, starts, rng), _draw_token(b, starts, rng)
            if frozenset(new) not in known:
                known = known - {frozenset((a, b))} | {frozenset(new)}
                pairs[index] = new
                break
    return pairs


def _draw_token(node: int, starts: np.ndarray, rng: random.Random) -> int:
    """Return a random node of the same passage."""
    passage = _passage(node, starts)
    return rng.randrange(int(starts[passage]), int(starts[passage + 1]))


def _passage(node: int, starts: np.ndarray) -> int:
    """Return the index of a node's passage; passages may be empty."""
    return int(np.searchsorted(starts, node, side="right")) - 1
