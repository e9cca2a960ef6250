"""Reads themes with those of their quotations that hold at a moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turngraph.data.eigen.summaries import MAX_WORDS
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.record.ended_parts import holds_between, with_ends
from turngraph.data.memory_graph.record.theme_rows import QuoteRow, ThemeRow, read_themes

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

_SOURCES = """SELECT DISTINCT e.source FROM json_each(?) k JOIN chunks c ON c.id = k.value
    JOIN episodes e ON e.node = c.episode ORDER BY e.source NULLS FIRST"""


@dataclass(frozen=True, slots=True)
class RecalledTheme:
    """A theme, as it is shown or recalled for a question.

    Args:
        id: its id in the record.
        level: 1: a group of chunks of a source; 2: a group of themes.
        eigenvalue: eigenvalue of its eigenvector, at most 1.
        num_chunks: number of its chunks.
        sources: sources of its chunks; None stands for chunks without a source.
        quotes: sentences that represent it best and hold at the moment, best first.
        summary, maker: summary of its quotations by a language model, and the model's name; None:
            no summary.
        score: cosine of the question and the mean of its chunks, or the mean of its summary and
            the summary's questions; 0 without a question.
        facts: keys of its facts among those of the recollection.
        questions: utility questions of the summary, by the same model.
    """

    id: int
    level: int
    eigenvalue: float
    num_chunks: int
    sources: tuple[str | None, ...]
    quotes: tuple[Fact, ...]
    summary: str | None = None
    maker: str | None = None
    score: float = 0.0
    facts: tuple[int, ...] = ()
    questions: tuple[str, ...] = ()


def held_quotes(store: Store, quotes: Sequence[QuoteRow], second: int) -> tuple[Fact, ...]:
    """Return the first quotations that hold at a moment, as facts whose one provenance is the
    quoted place.

    A sentence of which a part has ended has ``partly_until`` and comes after the others.

    Args:
        store: the record, in a read transaction.
        quotes: quotations, best first.
        second: second, counted from 1970, at which they must hold.
    """
    stated = store.facts([quote.fact for quote in quotes])
    facts = dict(zip(quotes, with_ends(store.db, stated, second, theses_only=True), strict=True))
    current = [
        quote
        for quote in quotes
        if holds_between((facts[quote].valid_from, facts[quote].valid_to), second)
    ]
    current.sort(key=lambda quote: facts[quote].partly_until is not None)
    quoted: list[Fact] = []
    left = MAX_WORDS  # the first quotation may be longer
    for quote in current:
        size = len(_words(facts[quote], quote).split())
        if quoted and size > left:
            continue
        left -= size
        quoted.append(_as_quoted(facts[quote], quote))
        if left <= 0:
            break
    return tuple(quoted)


def _as_quoted(fact: Fact, quote: QuoteRow) -> Fact:
    """Return a quoted fact with the quoted place only; an episode becomes the quoted sentence."""
    place = tuple(
        replace(entry, span=(quote.start, quote.stop))
        for entry in fact.provenance
        if entry.episode == quote.episode
    )[:1]
    return replace(fact, text=_words(fact, quote), provenance=place)


def _words(fact: Fact, quote: QuoteRow) -> str:
    return fact.text[quote.start : quote.stop] if fact.type == "episodic" else fact.text


def list_themes(store: Store, second: int) -> list[RecalledTheme]:
    """Return all themes, level 2 first, then by falling number of chunks.

    Args:
        store: the record.
        second: second, counted from 1970, at which their quotations hold.
    """
    with store.reading():
        rows = read_themes(store.db)
        chunks = {row.id: [member for member, _ in row.members] for row in rows if row.level == 1}
        for row in rows:
            if row.level == 2:
                chunks[row.id] = [c for member, _ in row.members for c in chunks[member]]
        shown = [as_recalled(store, row, chunks[row.id], second) for row in rows]
    return sorted(shown, key=lambda theme: (-theme.level, -theme.num_chunks, theme.id))


def as_recalled(store: Store, row: ThemeRow, chunks: Sequence[int], second: int) -> RecalledTheme:
    """Return a theme as it is shown at a moment, in a read transaction.

    Args:
        store: the record.
        row: the theme.
        chunks: ids of its chunks; for level 2, those of the themes below it.
        second: second, counted from 1970, at which its quotations hold.
    """
    sources = tuple(s for (s,) in store.db.execute(_SOURCES, (json.dumps(list(chunks)),)))
    lines = [] if row.summary is None else row.summary.split("\n")
    return RecalledTheme(
        id=row.id,
        level=row.level,
        eigenvalue=row.eigenvalue,
        num_chunks=len(set(chunks)),
        sources=sources,
        quotes=held_quotes(store, row.quotes, second),
        summary=lines[0] if lines else None,
        maker=row.maker,
        questions=tuple(lines[1:]),
    )
