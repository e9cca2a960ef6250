"""Shuffled entity edges: every passage keeps its number, the partners are others."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data.graph.chain_graph import ChainGraph, TokenisedPassage, chain_graph, node_starts
from turngraph.data.graph.entity_spans import EntitySpan
from turngraph.data.graph.rewire import shuffle_entity_edges
from turngraph.tests.tiny import tiny_builder, tiny_conversation

SIZE = 4
Pairs = set[tuple[int, int]]


def entity_pairs(graph: ChainGraph) -> Pairs:
    index = graph.edge_index[:, graph.edge_index.shape[1] - graph.num_entity_edges :]
    return set(zip(*index.tolist(), strict=True))


def graph_of(places: dict[str, list[int]], num_passages: int) -> tuple[ChainGraph, np.ndarray]:
    """Passages of four tokens; the entity named i ends with each passage's token i."""
    passages = [TokenisedPassage([7] * SIZE, [1, 2, 3, 4]) for _ in range(num_passages)]
    spans: list[list[EntitySpan]] = [[] for _ in passages]
    for number, (name, found) in enumerate(places.items()):
        for passage in found:
            spans[passage].append(EntitySpan(name, number % SIZE, number % SIZE + 1))
    return chain_graph(passages, spans, max_entity_share=1.0), node_starts(passages)


def check(graph: ChainGraph, shuffled: ChainGraph) -> None:
    before, after = entity_pairs(graph), entity_pairs(shuffled)
    assert len(after) == len(before) == graph.num_entity_edges == shuffled.num_entity_edges
    assert after == {(b, a) for a, b in after}
    assert Counter(a // SIZE for a, _ in after) == Counter(a // SIZE for a, _ in before)
    assert all(a // SIZE != b // SIZE for a, b in after)
    chains = graph.edge_index.shape[1] - graph.num_entity_edges
    assert (shuffled.edge_index[:, :chains] == graph.edge_index[:, :chains]).all()
    assert shuffled.node_ids is graph.node_ids
    assert shuffled.edge_types is graph.edge_types


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.integers(0, 7), min_size=2, unique=True), max_size=4
    ),
    st.integers(0, 3),
)
def test_every_passage_keeps_its_number_of_edges(places: dict[str, list[int]], seed: int) -> None:
    graph, starts = graph_of(places, 8)
    check(graph, shuffle_entity_edges(graph, starts, seed))


@pytest.mark.parametrize("seed", range(5))
def test_no_edge_occurs_twice_where_no_token_is_free(seed: int) -> None:
    passages = [TokenisedPassage([7], [1]) for _ in range(6)]
    places = {"a": (0, 1, 2, 3), "b": (1, 2, 3, 4), "c": (2, 3, 4, 5)}
    spans = [[EntitySpan(e, 0, 1) for e, p in places.items() if i in p] for i in range(6)]
    graph = chain_graph(passages, spans, max_entity_share=1.0)
    assert len(entity_pairs(graph)) == 18
    found = entity_pairs(shuffle_entity_edges(graph, node_starts(passages), seed))
    assert Counter(a for a, _ in found) == Counter(a for a, _ in entity_pairs(graph))


def test_two_edges_become_any_other_two() -> None:
    graph, starts = graph_of({"a": [0, 1], "b": [2, 3]}, 4)
    found = set()
    for seed in range(20):
        pairs = entity_pairs(shuffle_entity_edges(graph, starts, seed))
        found.add(frozenset((a // SIZE, b // SIZE) for a, b in pairs if a < b))
    possible = {(0, 1), (2, 3)}, {(0, 2), (1, 3)}, {(0, 3), (1, 2)}
    assert found == set(map(frozenset, possible))


def test_partners_are_others_and_the_same_each_time() -> None:
    graph, starts = graph_of({"a": [0, 1], "b": [2, 3], "c": [4, 5], "d": [6, 7]}, 8)
    shuffled = [shuffle_entity_edges(graph, starts, *seed) for seed in ((), (0,), (1,))]
    assert entity_pairs(shuffled[0]) == entity_pairs(shuffled[1]) != entity_pairs(graph)
    assert entity_pairs(shuffled[2]) != entity_pairs(shuffled[0])
    before, *after = (
        {(a // SIZE, b // SIZE) for a, b in entity_pairs(g)} for g in [graph, *shuffled]
    )
    assert before not in after, "passages, not tokens alone"


def test_edges_of_a_single_star_move_to_other_tokens() -> None:
    graph, starts = graph_of({"a": [0, 1, 2, 3]}, 4)
    shuffled = shuffle_entity_edges(graph, starts)
    check(graph, shuffled)
    assert not entity_pairs(shuffled) & entity_pairs(graph)


def test_the_builder_shuffles_what_it_would_cut() -> None:
    plain, shuffling = tiny_builder(), tiny_builder()
    shuffling.cut = "shuffle"
    graphs = [
        [example.graph for n in range(3) for example in builder.conversation(tiny_conversation(n))]
        for builder in (plain, shuffling)
    ]
    counts = [[graph.num_entity_edges for graph in found] for found in graphs]
    assert counts[0] == counts[1]
    changed = [entity_pairs(a) != entity_pairs(b) for a, b in zip(*graphs, strict=True)]
    assert all(changed)
    assert all(counts[0])
