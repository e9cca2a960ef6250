"""Token chains and entity edges, as index arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data.graph.chain_graph import ChainGraph, TokenisedPassage, chain_graph, cut_edges
from turngraph.data.graph.entity_spans import EntitySpan


def letters(text: str, first_id: int = 0) -> TokenisedPassage:
    """One token for each character."""
    return TokenisedPassage(
        list(range(first_id, first_id + len(text))), list(range(1, len(text) + 1))
    )


def spans_at(**ends: int) -> list[EntitySpan]:
    """Spans of one character each, by entity and end."""
    return [EntitySpan(entity, end - 1, end) for entity, end in ends.items()]


def pairs(graph: ChainGraph) -> list[tuple[int, int]]:
    return list(map(tuple, graph.edge_index.T.tolist()))


def entity_pairs(graph: ChainGraph) -> list[tuple[int, int]]:
    found = pairs(graph)
    return found[len(found) - graph.num_entity_edges :]


def build(passages: list[Any], spans: list[Any] | None = None, **settings: Any) -> ChainGraph:
    return chain_graph(passages, spans or [[] for _ in passages], **settings)


def test_nodes_are_the_tokens_passage_after_passage() -> None:
    graph = build([letters("abc", 10), letters("de", 20)])
    assert graph.node_ids.tolist() == [10, 11, 12, 20, 21]
    assert graph.node_ids.dtype == graph.edge_index.dtype == np.int64


@pytest.mark.parametrize(
    ("both_ways", "expected"),
    [
        (False, {(0, 1), (1, 2), (3, 4)}),
        (True, {(0, 1), (1, 2), (3, 4), (1, 0), (2, 1), (4, 3)}),
    ],
)
def test_chains_stay_inside_a_passage_in_the_direction_asked_for(
    both_ways: bool, expected: set[tuple[int, int]]
) -> None:
    graph = build([letters("abc"), letters("de"), letters("f")], both_ways=both_ways)
    assert set(pairs(graph)) == expected
    assert len(pairs(graph)) == len(expected)
    assert graph.num_entity_edges == 0


def test_the_papers_direction_is_the_default() -> None:
    assert pairs(build([letters("abc")])) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("sizes", [[], [0], [1], [0, 0], [1, 1, 1], [0, 2, 0, 0, 3, 0]])
def test_passages_of_any_size(sizes: list[int]) -> None:
    graph = build([letters("x" * size) for size in sizes], both_ways=True)
    assert graph.edge_index.shape == (2, 2 * sum(max(size - 1, 0) for size in sizes))
    assert graph.node_ids.shape == (sum(sizes),)


FOUR = [letters("abcd", 10 * i) for i in range(4)]  # nodes 0-3, 4-7, 8-11, 12-15


def test_edges_join_last_tokens() -> None:
    passages = [letters("Kid A x"), letters("on Kid A"), *FOUR[:2]]
    spans = [[EntitySpan("Q", 0, 5)], [EntitySpan("Q", 3, 8)], [], []]
    assert entity_pairs(build(passages, spans)) == [(4, 7 + 7), (7 + 7, 4)]


def test_a_token_that_reaches_over_the_end_of_the_span_is_its_last() -> None:
    coarse = TokenisedPassage([1, 2, 3], [3, 6, 9])
    spans = [[EntitySpan("Q", 0, 4)], [EntitySpan("Q", 4, 6)], [], []]
    assert entity_pairs(build([coarse, coarse, *FOUR[:2]], spans))[0] == (1, 3 + 1)


def test_of_the_bytes_of_a_character_the_last_is_the_spans_last_token() -> None:
    bytes_ = TokenisedPassage([1, 2, 3, 4, 5], [1, 2, 2, 2, 3])  # the second character: 3 tokens
    spans = [[EntitySpan("Q", 0, 2)], spans_at(Q=1), [], []]
    assert entity_pairs(build([bytes_, *FOUR[:3]], spans))[0] == (3, 5)


def test_a_span_behind_the_cut_of_its_passage_gets_no_edge() -> None:
    cut = TokenisedPassage([1, 2], [1, 2], num_cut=3)
    spans = [[EntitySpan("Q", 1, 3), EntitySpan("R", 1, 2)], spans_at(Q=1, R=2), [], []]
    assert set(entity_pairs(build([cut, *FOUR[:3]], spans))) == {(1, 3), (3, 1)}


def test_spans_of_one_passage_are_never_joined() -> None:
    spans = [[*spans_at(Q=1), *spans_at(Q=3)], [*spans_at(Q=2), *spans_at(Q=4)], [], []]
    assert set(entity_pairs(build(FOUR, spans))) == {(0, 5), (5, 0), (0, 7), (7, 0)}
    assert entity_pairs(build(FOUR, [spans[0], [], [], []])) == []


def test_two_entities_that_end_in_the_same_tokens_make_one_edge() -> None:
    both = [EntitySpan("Q", 0, 2), EntitySpan("R", 1, 2)]
    assert entity_pairs(build(FOUR, [both, both, [], []])) == [(1, 5), (5, 1)]


@pytest.mark.parametrize(
    ("in_passages", "num_passages", "share", "joined"),
    [(2, 4, 0.5, True), (3, 4, 0.5, False), (2, 3, 0.5, False), (2, 2, 1.0, True),
     (2, 2, 0.99, False), (29, 100, 0.29, True), (30, 100, 0.29, False), (3, 30, 0.1, True),
     (2, 4, 0.0, False)],
)  # fmt: skip
def test_an_entity_in_more_than_its_share_of_the_passages_gets_no_edges(
    in_passages: int, num_passages: int, share: float, joined: bool
) -> None:
    passages = [letters("ab") for _ in range(num_passages)]
    spans = [spans_at(Q=1) if i < in_passages else [] for i in range(num_passages)]
    graph = build(passages, spans, max_entity_share=share)
    assert graph.num_entity_edges == (2 * (in_passages - 1) if joined else 0)


def test_the_share_counts_passages_and_not_spans() -> None:
    crowd = [EntitySpan("Q", i, i + 1) for i in range(4)]
    assert build(FOUR, [crowd, spans_at(Q=1), [], []]).num_entity_edges == 2
    three_of_five = [*([spans_at(Q=1)] * 3), [], []]  # more than the half, the default
    assert build([*FOUR, letters("abcd")], three_of_five).num_entity_edges == 0


ENTITIES = st.lists(st.sets(st.sampled_from("PQRS")), min_size=1, max_size=7)


@given(ENTITIES, st.sampled_from([0.3, 0.5, 1.0]))
def test_entity_edges_are_symmetric_distinct_and_as_many_as_they_should_be(
    mentioned: list[set[str]], share: float
) -> None:
    passages = [letters("PQRS") for _ in mentioned]
    place = {entity: i + 1 for i, entity in enumerate("PQRS")}
    spans = [spans_at(**{e: place[e] for e in sorted(found)}) for found in mentioned]
    graph = build(passages, spans, max_entity_share=share)
    found = entity_pairs(graph)
    assert len(set(found)) == len(found)
    assert {(b, a) for a, b in found} == set(found)
    expected = set()
    for entity in "PQRS":
        nodes = [4 * i + place[entity] - 1 for i, names in enumerate(mentioned) if entity in names]
        if len(nodes) <= share * len(mentioned):
            expected |= {(nodes[0], node) for node in nodes[1:]}
    assert {(a, b) for a, b in found if a < b} == expected


def test_cutting_takes_the_entity_edges_or_all_and_leaves_the_nodes() -> None:
    spans = [spans_at(x=1), spans_at(x=2)]
    graph = build([letters("ab"), letters("cd")], spans, max_entity_share=1.0)
    assert graph.num_entity_edges == 2
    assert cut_edges(graph, "nothing").edge_index.tolist() == graph.edge_index.tolist()
    entity = cut_edges(graph, "entity")
    assert pairs(entity) == [(0, 1), (2, 3)]
    assert entity.num_entity_edges == 0
    nothing_left = cut_edges(graph, "all")
    assert nothing_left.edge_index.shape == (2, 0)
    assert nothing_left.node_ids.tolist() == graph.node_ids.tolist()
