"""Makes the themes of level 2 (themes of themes), and the derived arrays of all themes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from turngraph.data.eigen.similarity_graph import unit_vectors
from turngraph.data.eigen.summaries import NUM_MEMBERS, quotations_of_themes
from turngraph.data.eigen.themes import Theme, themes_of_themes
from turngraph.data.memory_graph.recall.theme_arrays import (
    NONE,
    Graphs,
    ThemeArrays,
    chunk_vectors,
    graphs_of,
    join_rows,
    put_summaries,
    read_theme_arrays,
    write_theme_arrays,
)
from turngraph.data.memory_graph.recall.vectors import Vectors
from turngraph.data.memory_graph.record import theme_rows
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.record.theme_rows import QuoteRow, ThemeRow
from turngraph.data.memory_graph.record.write_themes import replace_themes, set_grouped
from turngraph.data.memory_graph.upkeep.theme_quotes import (
    QUOTED_WORDS,
    level_1,
    quoted_texts,
    theme_row,
)

TINY = 1e-6
"""A mean of unit vectors shorter than this counts as zero: the vectors cancel out."""


def group_themes(store: Store, vectors: Vectors, maker: str, made: Graphs) -> bool:
    """Make the themes of level 2, and write the arrays.

    Args:
        store: the graph.
        vectors: vectors of facts and questions.
        maker: maker of the questions.
        made: graphs of the sources whose themes this run has made.

    Returns:
        Whether all themes are up to date. False: a source has changed meanwhile, and the caller
        makes its themes and calls this again.
    """
    on_disk = not (store.read_only or store.in_memory)
    with store.reading():
        vectors.refresh()
        below = level_1(store)
        old = read_theme_arrays(store.db, store.derived) if on_disk else NONE
        means = _means(store, vectors, below, old)
    none = np.zeros(0)
    upper = themes_of_themes(
        [Theme(t.eigenvalue, none, none, v) for t, v in zip(below, means, strict=True)]
    )
    members = [[below[number].id for number in theme.members.tolist()] for theme in upper]
    rows = [
        theme_row(theme, 2, None, ids, quotes)
        for theme, ids, quotes in zip(upper, members, _quotes(store, members), strict=True)
    ]
    with store.writing() as revision:
        if theme_rows.theme_ids(store.db, 1) != sorted(theme.id for theme in below):
            return False  # themes were forgotten or made meanwhile
        replace_themes(store.db, 2, None, rows, revision)
        is_done = not theme_rows.changed_sources(store.db, maker)
        if is_done:
            set_grouped(store.db, revision)
    if on_disk:
        _write_arrays(store, vectors, old, made, below, means)
    return is_done


def complete_arrays(store: Store, vectors: Vectors) -> None:
    """Write the arrays again if chunks are missing in them, as after ``forget``."""
    with store.reading():
        sql = "SELECT id FROM chunks"
        there = np.array([id_ for (id_,) in store.db.execute(sql)], np.int64)
        old = read_theme_arrays(store.db, store.derived)
        if np.isin(there, old.chunks).all():
            return
        vectors.refresh()
        themes = level_1(store)
        means = _means(store, vectors, themes, old)
    _write_arrays(store, vectors, old, {}, themes, means)


def _means(
    store: Store, vectors: Vectors, themes: Sequence[ThemeRow], old: ThemeArrays
) -> np.ndarray:
    """Return each theme's vector: the stored one, else its summary's or its members' mean."""
    means, known = old.vectors_of(np.array([theme.id for theme in themes], np.int64))
    width = vectors.facts.width or len(vectors.probe)
    if means.shape[1] != width:
        means, known = np.zeros((len(themes), width), np.float32), np.zeros(len(themes), bool)
    new = {themes[row].id: row for row in np.flatnonzero(~known).tolist()}
    read = theme_rows.read_themes(store.db, new)
    ids = {member for theme in read for member, _ in theme.members}
    sql = "SELECT c.id, c.episode FROM json_each(?) k JOIN chunks c ON c.id = k.value"
    episodes = dict(store.db.execute(sql, (json.dumps(sorted(ids)),)))
    for theme in read:
        chunks = np.array([member for member, _ in theme.members], np.int64)
        places = np.array([episodes[chunk] for chunk in chunks.tolist()], np.int64)
        member_vectors = unit_vectors(
            chunk_vectors(vectors.facts, vectors.questions, chunks, places), "chunk"
        )
        weights = np.array([weight for _, weight in theme.members])
        mean = weights @ member_vectors.astype(np.float64)
        size = float(np.linalg.norm(mean))
        means[new[theme.id]] = mean / size if size > TINY else member_vectors[0]
    put_summaries(means, themes, new.values(), vectors.embed)
    return means


def _quotes(store: Store, members: Sequence[Sequence[int]]) -> list[tuple[QuoteRow, ...]]:
    """Return the quotations of themes of level 2, chosen from those of their heaviest members."""
    heaviest = [ids[:NUM_MEMBERS] for ids in members]
    with store.reading():
        quotes = theme_rows.quotes_of(store.db, [id_ for ids in heaviest for id_ in ids])
        texts = dict(zip(quotes, quoted_texts(store, quotes.values()), strict=True))
    chosen = []
    for ids in heaviest:
        places = quotations_of_themes([texts.get(id_, []) for id_ in ids], QUOTED_WORDS)
        chosen.append(tuple(quotes[ids[member]][position] for member, position in places))
    return chosen


def _write_arrays(
    store: Store,
    vectors: Vectors,
    old: ThemeArrays,
    made: Graphs,
    themes: Sequence[ThemeRow],
    means: np.ndarray,
) -> None:
    with store.reading():
        rows = store.db.execute("SELECT id FROM chunks ORDER BY id")
        there = np.array([id_ for (id_,) in rows], np.int64)
        lost = np.setdiff1d(there, old.chunks, assume_unique=True)
        graphs = {**graphs_of(store.db, vectors.facts, vectors.questions, lost, made), **made}
        joined = join_rows(old, graphs.values(), there)
        ids = np.array([theme.id for theme in themes], np.int64)
        order = np.argsort(ids)
        arrays = ThemeArrays(*joined, ids[order], means[order])
        write_theme_arrays(store.db, store.derived, arrays)
