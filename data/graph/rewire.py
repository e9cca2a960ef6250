"""Entity edges that lead elsewhere: what a trained model owes to the edges being the right ones."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from turngraph.data.graph.chain_graph import ChainGraph

TRIES_PER_EDGE = 20

Pair = tuple[int, int]


def shuffle_entity_edges(graph: ChainGraph, starts: np.ndarray, seed: int = 0) -> ChainGraph:
    """The graph with entity edges between passages, and at tokens, that are drawn at random.

    Every passage keeps the number of its entity edges. Of two edges between passages a-b and c-d
    come a-d and c-b, again and again; then each end moves to another token of its passage. No edge
    joins a passage with itself or stands there twice.

    Args:
        graph: with entity edges at the end, first one way, then the other.
        starts: first node of each passage, and the number of nodes at the end.
        seed: of the draw, which depends on the nodes as well and on nothing else.
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
    """The same ends, other partners."""
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
    """Each edge at other tokens of the two passages that it joins."""
    pairs, known = list(pairs), set(map(frozenset, pairs))
    for number, (a, b) in enumerate(pairs):
        for _ in range(TRIES_PER_EDGE):
            passages = _passage(a, starts), _passage(b, starts)
            new = tuple(rng.randrange(int(starts[p]), int(starts[p + 1])) for p in passages)
            if frozenset(new) not in known:
                known = known - {frozenset((a, b))} | {frozenset(new)}
                pairs[number] = new
                break
    return pairs


def _passage(node: int, starts: np.ndarray) -> int:
    """The passage of a node; passages may be empty."""
    return int(np.searchsorted(starts, node, side="right")) - 1
