"""Chooses a theme's quotations: theses of its heaviest chunks, with their places in episodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from turngraph.data.eigen.summaries import (
    MAX_WORDS,
    NUM_MEMBERS,
    Sentence,
    quotations,
    sentences_of,
    summaries_by_lm,
)
from turngraph.data.eigen.themes import Theme
from turngraph.data.eigen.utility_questions import questions_by_lm
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.record import theme_rows
from turngraph.data.memory_graph.record.fact_texts import fact_texts
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.record.theme_rows import (
    ChunkRow,
    QuoteRow,
    ThemeRow,
    ThesisRow,
)
from turngraph.data.memory_graph.upkeep.theme_questions import Lm
from turngraph.data.normalise import words

QUOTED_WORDS = 3 * MAX_WORDS
"""Number of words of the stored quotations: more than are shown, as some may have ended."""


def theme_quotes(
    theme: Theme,
    chunks: Sequence[ChunkRow],
    texts: Sequence[str],
    theses: Sequence[ThesisRow],
    facts: VectorMatrix,
    embed: Embed,
) -> tuple[QuoteRow, ...]:
    """Return the quotations of a theme of level 1, best first, including ended ones.

    If most of its heaviest chunks have no theses, as in a language that the rules do not read, the
    sentences of these chunks are quoted, too.

    Args:
        theme: the theme; its members are indices of ``chunks``.
        chunks, texts: chunks of its source, and their texts.
        theses: theses of its source.
        facts: vectors of the theses.
        embed: sentence encoder.
    """
    heaviest = theme.members[:NUM_MEMBERS].tolist()
    stated = _theses_in({number: chunks[number] for number in heaviest}, theses)
    said = [(number, thesis) for number in heaviest for thesis in stated[number]]
    rows = [QuoteRow(t.fact, t.episode, t.start, t.stop) for _, t in said]
    sentences = [
        Sentence(number, t.start - chunks[number].start, t.stop - chunks[number].start, t.text)
        for number, t in said
    ]
    vectors = facts.vectors(np.array([t.fact for _, t in said], np.int64))
    silent = {number for number in heaviest if not stated[number]}
    if 2 * len(silent) > len(heaviest):
        others = [
            one for one in sentences_of(theme, texts) if one.chunk in silent and words(one.text)
        ]
        rows += [_as_row(chunks[one.chunk], one) for one in others]
        sentences += others
        embedded = np.asarray(embed([one.text for one in others]), np.float32)
        vectors = np.concatenate([vectors, embedded.reshape(len(others), -1)])
    lengths = np.linalg.norm(vectors, axis=1)
    sound = np.flatnonzero(np.isfinite(lengths) & (lengths > 0)).tolist()
    chosen = quotations(
        theme, [sentences[i] for i in sound], vectors[sound], max_words=QUOTED_WORDS
    )
    return tuple(rows[sound[quotation.index]] for quotation in chosen)


def theme_row(
    theme: Theme,
    level: int,
    source: str | None,
    members: Sequence[int],
    quotes: tuple[QuoteRow, ...],
) -> ThemeRow:
    """Return a theme as a row of the record that has no id yet.

    Args:
        theme: the theme, with the weights of its members.
        level, source: level and source of the theme.
        members: ids of the members: chunks or themes.
        quotes: quotations of the theme.
    """
    weighted = tuple(zip(members, theme.weights.tolist(), strict=True))
    return ThemeRow(0, level, source, float(theme.eigenvalue), weighted, quotes)


def _as_row(chunk: ChunkRow, sentence: Sentence) -> QuoteRow:
    begin = chunk.start
    place = (begin + sentence.start, begin + sentence.stop)
    return QuoteRow(2 * chunk.episode, chunk.episode, *place)


def _theses_in(
    chunks: Mapping[int, ChunkRow], theses: Sequence[ThesisRow]
) -> dict[int, list[ThesisRow]]:
    """Return the theses that begin in each chunk, by the chunk's index; hypotheses are left out."""
    within: dict[int, list[tuple[int, ChunkRow]]] = defaultdict(list)
    for number, chunk in chunks.items():
        within[chunk.episode].append((number, chunk))
    by_chunk: dict[int, list[ThesisRow]] = defaultdict(list)
    for thesis in theses:
        for number, chunk in within.get(thesis.episode, ()):
            if chunk.start <= thesis.start < chunk.stop and not thesis.hypothesis:
                by_chunk[number].append(thesis)
    return by_chunk


def quoted_texts(store: Store, quotes: Iterable[Sequence[QuoteRow]]) -> list[list[str]]:
    """Return the texts of each theme's quotations, in a read transaction."""
    quotes = list(quotes)
    texts = fact_texts(store.db, {quote.fact for each in quotes for quote in each})
    return [
        [
            texts[q.fact][q.start : q.stop] if q.fact == 2 * q.episode else texts[q.fact]
            for q in each
        ]
        for each in quotes
    ]


def summarised(
    store: Store,
    themes: Sequence[ThemeRow],
    before: Sequence[ThemeRow],
    lm: Lm,
    counts: Counter[str],
) -> list[ThemeRow]:
    """Return themes with a language model's summaries of their quotations that have not ended.

    Below a summary stand the questions that the model makes of it, as of any chunk.

    Args:
        store: the record.
        themes: new themes.
        before: earlier themes of the source, whose summaries are reused for themes that have not
            changed.
        lm: writes the summaries and their questions.
        counts: receives the numbers of replies with questions, by outcome.
    """
    assert lm.write is not None, "asked for summaries"
    with store.reading():
        current = [_without_ended(store, theme) for theme in themes]
        old_summaries = {
            (row.members, _without_ended(store, row).quotes): row.summary
            for row in before
            if row.maker == lm.maker
        }
        quoted = quoted_texts(store, (theme.quotes for theme in current))
    summaries = [old_summaries.get((theme.members, theme.quotes)) for theme in current]
    new = [i for i, text in enumerate(summaries) if text is None and quoted[i]]
    written = summaries_by_lm([quoted[i] for i in new], lm.write, maker=lm.maker)
    made = {i: one.text for i, one in zip(new, written, strict=True) if one.maker == lm.maker}
    lines = {i: [text] for i, text in made.items()}
    for question in questions_by_lm(list(made.values()), lm.generate, counts):
        lines[list(made)[question.chunk]].append(question.text)
    for i in made:
        summaries[i] = "\n".join(lines[i])
    return [
        replace(theme, summary=text, maker=None if text is None else lm.maker)
        for theme, text in zip(themes, summaries, strict=True)
    ]


def _without_ended(store: Store, theme: ThemeRow) -> ThemeRow:
    facts = store.facts([quote.fact for quote in theme.quotes])
    held = [quote for quote, fact in zip(theme.quotes, facts, strict=True) if fact.valid_to is None]
    return replace(theme, quotes=tuple(held))


def in_order(themes: Sequence[ThemeRow]) -> list[ThemeRow]:
    """Return themes sorted by source, then by id."""
    return sorted(themes, key=lambda t: (t.source is not None, t.source or "", t.id))


def level_1(store: Store) -> list[ThemeRow]:
    """Return the themes of level 1 in a fixed order, without members and quotations."""
    return in_order(theme_rows.read_themes(store.db, level=1, with_places=False))
