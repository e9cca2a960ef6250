"""Edges of the question and of tables, token by token."""

from __future__ import annotations

import numpy as np
import pytest

from turngraph.configs.schema import EDGE_TYPES
from turngraph.data.graph.chain_graph import (
    TokenisedPassage,
    TypedEdges,
    chain_graph,
    cut_edges,
)
from turngraph.data.graph.entity_spans import EntitySpan
from turngraph.data.graph.graph_edges import content_words, more_edges, question_edges, table_edges
from turngraph.data.types import Evidence, Source


def letters(text: str) -> TokenisedPassage:
    """One token for each character."""
    return TokenisedPassage(list(map(ord, text)), list(range(1, len(text) + 1)))


def graph_of(
    *texts: str, source: Source = "text"
) -> tuple[list[Evidence], list[TokenisedPassage], str]:
    """Passages, their tokens, and all their characters in one text, a node each."""
    passages = [Evidence(str(number), text, source) for number, text in enumerate(texts)]
    return passages, [letters(text) for text in texts], "".join(texts)


def joined(edges: TypedEdges, text: str) -> list[tuple[str, str]]:
    """What edges join, each end as the text up to it and back to the space before."""
    words = [text[: node + 1].rsplit(" ", 1)[-1] for node in range(len(text))]
    return sorted((words[a], words[b]) for a, b in edges[1].T.tolist())


def test_content_words_are_folded_singular_and_no_function_words() -> None:
    assert content_words("What are the Years of Pérus, 1985s gas-class dogs?") == (
        ("year", 18), ("peru", 27), ("1985", 34), ("gas", 38), ("class", 44), ("dog", 49),
    )  # fmt: skip


def test_same_words_join_question_and_evidence_both_ways() -> None:
    passages, tokens, text = graph_of("in Lima rain", "its Lima", " Is Lima a Port rains")
    kind, edges = question_edges(passages, tokens, [[], [], []])
    assert kind == "question"
    asked = len("in Lima rainits Lima")
    pairs = edges.T.tolist()
    assert sorted(pairs) == sorted([b, a] for a, b in pairs)
    forward = {(a, b) for a, b in pairs if a > b}
    lima = asked + len(" Is Lima") - 1
    assert forward == {(lima, 6), (lima, 19), (len(text) - 1, 11)}
    assert all(text[a].isalpha() for a, _ in pairs)


def test_same_entities_join_question_and_evidence() -> None:
    passages, tokens, _ = graph_of("the gap", "its hole?")
    spans = [[EntitySpan("Q1", 4, 7)], [EntitySpan("Q1", 4, 8)]]
    assert question_edges(passages, tokens, spans)[1].T.tolist() == [[14, 6], [6, 14]]


def test_the_question_is_joined_to_a_title_only_once() -> None:
    passages, tokens, _ = graph_of("Peru, It rains", "Peru, Lima", "Peru?")
    assert question_edges(passages, tokens, [[], [], []])[1].T.tolist() == [[27, 3], [3, 27]]


def test_a_word_that_was_cut_off_has_no_edge() -> None:
    passages, tokens, _ = graph_of("the Lima", "Lima")
    cut = TokenisedPassage(tokens[0].ids[:6], tokens[0].ends[:6], 2)
    assert question_edges(passages, [cut, tokens[1]], [[], []])[1].shape == (2, 0)


def test_headers_reach_every_token_of_their_cells() -> None:
    passages, tokens, text = graph_of("T, Ab is xy", source="table")
    headers, rows, columns = table_edges(passages, tokens)
    found = {(text[a], text[b]) for a, b in headers[1].T.tolist()}
    assert headers[0] == "header"
    assert found == {(a, b) for a in " Ab" for b in " xy"}
    assert rows[1].shape == columns[1].shape == (2, 0)


def test_rows_and_columns() -> None:
    texts = ("T, A is 1, B is 2, C is 3", "T, A is 4, C is 6")
    passages, tokens, text = graph_of(*texts, source="table")
    _, rows, columns = table_edges(passages, tokens)
    assert {(text[a], text[b]) for a, b in rows[1].T.tolist()} == {
        ("1", "2"), ("1", "3"), ("4", "6"), ("2", "1"), ("3", "1"), ("6", "4"),
    }  # fmt: skip
    assert {(text[a], text[b]) for a, b in columns[1].T.tolist()} == {
        ("1", "4"), ("4", "1"), ("3", "6"), ("6", "3"),
    }  # fmt: skip


def test_a_columns_cells_are_joined_to_the_one_in_its_best_ranked_row() -> None:
    passages, tokens, text = graph_of("T, A is 1", "T, A is 2", "T, A is 3", source="table")
    *_, columns = table_edges(passages, tokens)
    forward = [(text[a], text[b]) for a, b in columns[1].T.tolist() if a < b]
    assert forward == [("1", "2"), ("1", "3")]


def test_of_a_row_that_was_cut_off_the_cells_before_have_edges() -> None:
    texts = "T, A is 1, B is 2, C is 3", "T, B is 4, C is 5"
    passages, whole, text = graph_of(*texts, source="table")
    cut = text.index(" 3")
    tokens = [TokenisedPassage(whole[0].ids[:cut], whole[0].ends[:cut], 1), whole[1]]
    _, rows, columns = table_edges(passages, tokens)
    ends = text[:cut] + texts[1]
    found = {(ends[a], ends[b]) for a, b in np.hstack([rows[1], columns[1]]).T.tolist() if a < b}
    assert found == {("1", "2"), ("4", "5"), ("2", "4")}


def test_sentences_have_no_table_edges() -> None:
    passages, tokens, _ = graph_of("T, A is 1, B is 2", source="text")
    assert all(edges.shape == (2, 0) for _, edges in table_edges(passages, tokens))


@pytest.mark.parametrize("with_tables", [False, True])
def test_the_question_is_no_passage_of_evidence(with_tables: bool) -> None:
    passages, tokens, _ = graph_of(
        "T, A is 1999", "T, A is 7, B is 8", "A is 1999?", source="table"
    )
    edges = more_edges(passages, tokens, [[], [], []], with_tables, with_question=True)
    question = len("T, A is 1999T, A is 7, B is 8")
    for name, pairs in edges:
        assert (pairs.max(initial=0) >= question) == (name == "question"), name


def test_edge_types_say_what_each_edge_is_and_are_cut_with_it() -> None:
    passages, tokens, _ = graph_of("a Lima", "b Lima", "c", "Lima?")
    spans = [[EntitySpan("Q", 2, 6)], [EntitySpan("Q", 2, 6)], [], []]
    more = more_edges(passages, tokens, spans, with_tables=False, with_question=True)
    graph = chain_graph(tokens, spans, both_ways=True, more_edges=more)
    names = [EDGE_TYPES[kind] for kind in graph.edge_types]
    assert names == ["forward"] * 14 + ["backward"] * 14 + ["question"] * 4 + ["entity"] * 2
    without = cut_edges(graph, "entity")
    assert len(without.edge_types) == without.edge_index.shape[1] == 32
    assert cut_edges(graph, "all").edge_types.shape == (0,)


def test_an_entity_that_ends_where_a_repeated_title_ends_has_no_edge() -> None:
    passages, tokens, _ = graph_of("Acme, one", "Acme, two", "a b")
    at_comma = [EntitySpan("Q1", 0, 5)]
    edges = question_edges(passages, tokens, [at_comma, at_comma, [EntitySpan("Q1", 2, 3)]])
    assert edges[1].T.tolist() == [[20, 4], [4, 20]]


def test_a_repeated_header_hides_no_cell_before_it() -> None:
    row = "T{}, City is {}, Land is Peru"
    passages, tokens, text = graph_of(row.format(1, "Lima"), row.format(2, "Ica"), source="table")
    asked = Evidence("q", "Ica", "text")
    edges = question_edges([*passages, asked], [*tokens, letters("Ica")], [[], [], []])[1]
    cell, question = text.index("Ica") + 2, len(text) + 2
    assert edges.T.tolist() == [[question, cell], [cell, question]]
