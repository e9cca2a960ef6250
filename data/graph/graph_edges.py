"""Builds the edges that are neither chain nor entity edges: question edges and table edges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from turngraph.data.entities import FUNCTION_WORDS
from turngraph.data.graph.chain_graph import TokenisedPassage, TypedEdges, last_token, node_starts
from turngraph.data.graph.entity_spans import EntitySpan
from turngraph.data.normalise import fold
from turngraph.data.table_structure import cells_of, repeated_spans
from turngraph.data.types import Evidence

_WORD = re.compile(r"[^\W_]+")

Pairs = Iterable[tuple[int, int]]


@lru_cache(maxsize=1 << 12)  # some 5 kB for each passage
def content_words(text: str) -> tuple[tuple[str, int], ...]:
    """Return a text's content words with the character offset at which each ends.

    Words are folded, and a plural's "s" is removed, as questions use plurals of headers.
    """
    words = []
    for match in _WORD.finditer(text):
        word = fold(match[0])
        if word not in FUNCTION_WORDS:
            plural = len(word) > 3 and word.endswith("s") and not word.endswith("ss")
            words.append((word[:-1] if plural else word, match.end()))
    return tuple(words)


def more_edges(
    passages: Sequence[Evidence],
    tokens: Sequence[TokenisedPassage],
    spans: Sequence[Sequence[EntitySpan]],
    with_tables: bool,
    with_question: bool,
) -> list[TypedEdges]:
    """Return question edges and table edges, if they are wanted.

    Args:
        passages: the evidence, best first, then the question if it has nodes.
        tokens: tokens of each passage.
        spans: entity spans of each passage.
        with_tables: whether to return table edges.
        with_question: whether the last of the passages is the question.
    """
    edges = [question_edges(passages, tokens, spans)] if with_question else []
    if with_tables:
        edges += table_edges(passages, tokens)
    return edges


def question_edges(
    passages: Sequence[Evidence],
    tokens: Sequence[TokenisedPassage],
    spans: Sequence[Sequence[EntitySpan]],
) -> TypedEdges:
    """Return edges between a question and the evidence, in both directions.

    Two mentions of the same entity, or two occurrences of the same word, are joined at their last
    tokens. Titles that a passage repeats are skipped, as they would join every passage.

    Args:
        passages: the evidence, best first, then the question.
        tokens: tokens of each passage.
        spans: entity spans of each passage.
    """
    starts, repeated = node_starts(tokens), repeated_spans(passages)
    of_question: dict[str, list[int]] = {}
    of_evidence: list[tuple[str, int]] = []
    for index, (passage, passage_spans) in enumerate(zip(passages, spans, strict=True)):
        lead = max((end for start, end in repeated[index] if start == 0), default=0)
        marks = [(f"entity {span.entity}", span.end) for span in passage_spans]
        for name, end in [*marks, *content_words(passage.text)]:
            token = last_token(tokens[index].ends, end)
            if token >= len(tokens[index].ids) or end <= lead:
                continue
            node = int(starts[index]) + token
            if index + 1 == len(passages):
                of_question.setdefault(name, []).append(node)
            else:
                of_evidence.append((name, node))
    pairs = {(node, other) for name, other in of_evidence for node in of_question.get(name, ())}
    return "question", _both_ways(pairs)


def table_edges(
    passages: Sequence[Evidence], tokens: Sequence[TokenisedPassage]
) -> list[TypedEdges]:
    """Return edges of table rows: header to cell, first cell to other cells, and along columns.

    Every token of a header is joined to every token of its cell, in one direction. Row and column
    edges join the last tokens of cells, in both directions; the cells of a column are joined to
    the one in its best-ranked row.

    Args:
        passages: the evidence, best first.
        tokens: tokens of each passage.
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
    """Return the indices of the tokens within a span of characters."""
    ends = tokens.ends
    return [i for i, e in enumerate(ends) if e <= end and (ends[i - 1] if i else 0) >= start < e]


def _index(pairs: Pairs) -> np.ndarray:
    return np.array(sorted(pairs), np.int64).reshape(-1, 2).T


def _both_ways(pairs: Pairs) -> np.ndarray:
    one_way = _index(pairs)
    return np.concatenate([one_way, one_way[::-1]], axis=1)
