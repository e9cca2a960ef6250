"""Edges beside chains and entities: the question to the evidence, and what a table's form says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np

from turngraph.data.entities import FUNCTION_WORDS
from turngraph.data.graph.chain_graph import TokenisedPassage, TypedEdges, last_token, node_starts
from turngraph.data.graph.entity_spans import EntitySpan
from turngraph.data.normalise import fold
from turngraph.data.table_structure import cells_of, repeated_spans
from turngraph.data.types import Evidence

_WORD = re.compile(r"[^\W_]+")

Pairs = Iterable[tuple[int, int]]


@lru_cache(maxsize=1 << 16)
def content_words(text: str) -> tuple[tuple[str, int], ...]:
    """The words of a text that are no function words, and behind which character each ends.

    They are folded, and a plural's "s" is taken off: questions ask for what a header has in the
    singular.
    """
    found = []
    for match in _WORD.finditer(text):
        word = fold(match[0])
        if word not in FUNCTION_WORDS:
            plural = len(word) > 3 and word.endswith("s") and not word.endswith("ss")
            found.append((word[:-1] if plural else word, match.end()))
    return tuple(found)


def more_edges(
    passages: Sequence[Evidence],
    tokens: Sequence[TokenisedPassage],
    spans: Sequence[Sequence[EntitySpan]],
    structure: Literal["none", "table"],
    with_question: bool,
) -> list[TypedEdges]:
    """All edges that are neither of a chain nor between entities of the evidence.

    Args:
        passages: the evidence, best first, and the question behind it where it has nodes.
        tokens: of each of them.
        spans: entity spans of each of them.
        structure: as ``EvidenceConfig.structure_edges`` says.
        with_question: whether the last of the passages is the question.
    """
    num = len(passages) - with_question
    edges = [question_edges(passages, tokens, spans)] if with_question else []
    if structure != "none":
        edges += table_edges(passages[:num], tokens[:num])
    return edges


def question_edges(
    passages: Sequence[Evidence],
    tokens: Sequence[TokenisedPassage],
    spans: Sequence[Sequence[EntitySpan]],
) -> TypedEdges:
    """Edges between a question and the evidence, both ways.

    The same entity or the same word joins the last tokens of its mentions. Titles that a passage
    repeats are passed over: they would join every passage alike.

    Args:
        passages: the evidence, best first, and the question behind it.
        tokens: of each of them.
        spans: entity spans of each of them.
    """
    starts, repeated = node_starts(tokens), repeated_spans(passages)
    asked: dict[str, list[int]] = {}
    places: list[tuple[str, int]] = []
    for number, (passage, found) in enumerate(zip(passages, spans, strict=True)):
        lead = max((end for start, end in repeated[number] if start == 0), default=0)
        marks = [(f"entity {span.entity}", span.end) for span in found]
        for name, end in [*marks, *content_words(passage.text)]:
            token = last_token(tokens[number].ends, end)
            if token >= len(tokens[number].ids) or end <= lead:
                continue
            node = int(starts[number]) + token
            if number + 1 == len(passages):
                asked.setdefault(name, []).append(node)
            else:
                places.append((name, node))
    pairs = {(node, other) for name, other in places for node in asked.get(name, ())}
    return "question", _both_ways(pairs)


def table_edges(
    passages: Sequence[Evidence], tokens: Sequence[TokenisedPassage]
) -> list[TypedEdges]:
    """Edges of rows: headers to cells, a row's first cell to its others, and along columns.

    Every token of a header is joined to every token of its cell, one way. The others join last
    tokens, both ways; a column's cells are joined to the cell of its best-ranked row.
    """
    starts = node_starts(tokens)
    headers: set[tuple[int, int]] = set()
    rows: set[tuple[int, int]] = set()
    columns: dict[str, list[int]] = {}
    for passage, passage_tokens, start in zip(passages, tokens, starts, strict=False):
        ends: list[int] = []
        for cell in cells_of(passage):
            inside = _tokens_of(passage_tokens, cell.cell - 1, cell.end)
            if not inside:
                continue
            named = _tokens_of(passage_tokens, cell.start - 1, cell.middle)
            headers.update((int(start) + a, int(start) + b) for a, b in product(named, inside))
            ends.append(int(start) + inside[-1])
            columns.setdefault(cell.header, []).append(ends[-1])
        rows.update((ends[0], other) for other in ends[1:])
    along = {(cells[0], other) for cells in columns.values() for other in cells[1:]}
    return [
        ("header", _index(headers)),
        ("row", _both_ways(rows)),
        ("column", _both_ways(along)),
    ]


def _tokens_of(tokens: TokenisedPassage, start: int, end: int) -> list[int]:
    """The tokens that lie within some characters of a passage."""
    ends = tokens.ends
    return [i for i, e in enumerate(ends) if e <= end and (ends[i - 1] if i else 0) >= start < e]


def _index(pairs: Pairs) -> np.ndarray:
    return np.array(sorted(pairs), np.int64).reshape(-1, 2).T


def _both_ways(pairs: Pairs) -> np.ndarray:
    one_way = _index(pairs)
    return np.concatenate([one_way, one_way[::-1]], axis=1)
