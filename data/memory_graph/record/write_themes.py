"""Writes and erases chunks, questions and themes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from turngraph.data.memory_graph.memory_types import Span
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.meta import drop_meta, write_meta
from turngraph.data.memory_graph.record.theme_rows import (
    EVIDENCE,
    GROUPED,
    PROBE,
    ChunkRow,
    ThemeRow,
)

QUESTION, CHUNK = 2, 3
"""Values of the column ``kind`` of the table ``removed``."""
_EPISODES = f"""
SELECT e.node, n.text FROM episodes e JOIN nodes n ON n.id = e.node
WHERE e.source IS ? AND {EVIDENCE}
AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.episode = e.node) ORDER BY e.node"""


def add_chunks(
    db: Database,
    source: str | None,
    spans: Callable[[str], Sequence[Span]],
    revision: int,
) -> int:
    """Split those episodes of a source that have no chunks yet, and return the number of blank
    ones.

    Args:
        db: the record, in a write transaction.
        source: source of the episodes.
        spans: returns the spans of a text's parts; [] for a blank text.
        revision: revision of the write.
    """
    blank = 0
    for episode, text in db.execute(_EPISODES, (source,)).fetchall():
        parts = spans(text)
        blank += not parts
        db.executemany(
            "INSERT INTO chunks (episode, start, stop, revision) VALUES (?, ?, ?, ?)",
            [(episode, start, stop, revision) for start, stop in parts],
        )
    return blank


def put_questions(
    db: Database, made: Mapping[int, Sequence[str]], maker: str, revision: int
) -> None:
    """Replace a maker's questions for chunks; a question whose text is unchanged keeps its id.

    Args:
        db: the record, in a write transaction.
        made: texts by chunk; a chunk that was deleted meanwhile is skipped.
        maker: maker of the questions.
        revision: revision of the write.
    """
    sql = "SELECT value FROM json_each(?) k JOIN chunks c ON c.id = k.value"
    there = [chunk for (chunk,) in db.execute(sql, (json.dumps(list(made)),))]
    sql = "SELECT id, text FROM questions WHERE chunk = ? AND maker = ?"
    gone: list[int] = []
    new: list[tuple[int, int, str, str]] = []
    for chunk in there:
        texts = list(dict.fromkeys(made[chunk])) or [""]
        known = {text: id_ for id_, text in db.execute(sql, (chunk, maker))}
        gone += [id_ for text, id_ in known.items() if text not in texts]
        new += [(chunk, revision, maker, text) for text in texts if text not in known]
    delete_questions(db, gone, revision)
    sql = "INSERT INTO questions (chunk, revision, maker, kept, text) VALUES (?, ?, ?, 0, ?)"
    db.executemany(sql, new)


def delete_questions(db: Database, ids: Sequence[int], revision: int) -> None:
    """Delete questions, and note them in ``removed`` so that their vectors are dropped."""
    db.executemany("DELETE FROM questions WHERE id = ?", ((id_,) for id_ in ids))
    rows = ((QUESTION, id_, revision) for id_ in ids)
    db.executemany("INSERT INTO removed VALUES (?, ?, ?)", rows)


def keep_questions(db: Database, chunks: Iterable[ChunkRow], kept: Iterable[int]) -> None:
    """Mark the questions with which the themes of chunks are made, and unmark the others."""
    ids = json.dumps([chunk.id for chunk in chunks])
    sql = (
        "UPDATE questions SET kept = 0 WHERE chunk IN (SELECT value FROM json_each(?)) AND kept = 1"
    )
    db.execute(sql, (ids,))
    db.executemany("UPDATE questions SET kept = 1 WHERE id = ?", ((id_,) for id_ in kept))


def replace_themes(
    db: Database,
    level: int,
    source: str | None,
    themes: Iterable[ThemeRow],
    revision: int,
) -> None:
    """Replace the themes of a source, or, for level 2, all themes of level 2.

    For level 1, themes of level 2 with a replaced member are deleted, too, so that a run that stops
    here leaves no reference to a missing theme.
    """
    sql = "SELECT id FROM themes WHERE source IS ? AND level = ?"
    gone = [id_ for (id_,) in db.execute(sql, (source, level))]
    delete_themes(db, gone + (themes_above(db, gone) if level == 1 else []))
    for theme in themes:
        row = (level, theme.eigenvalue, revision, source, theme.maker, theme.summary)
        sql = """INSERT INTO themes (level, eigenvalue, revision, source, maker, summary)
            VALUES (?, ?, ?, ?, ?, ?) RETURNING id"""
        [id_] = db.execute(sql, row).fetchone()
        members = ((id_, member, weight) for member, weight in theme.members)
        db.executemany("INSERT INTO theme_members VALUES (?, ?, ?)", members)
        quotes = (
            (id_, position, quote.fact, quote.episode, quote.start, quote.stop)
            for position, quote in enumerate(theme.quotes)
        )
        db.executemany("INSERT INTO theme_quotes VALUES (?, ?, ?, ?, ?, ?)", quotes)


def themes_above(db: Database, themes: Iterable[int]) -> list[int]:
    """Return the themes of level 2 that have one of these themes of level 1 as a member."""
    sql = """SELECT DISTINCT t.id FROM json_each(?) k JOIN theme_members m ON m.member = k.value
        JOIN themes t ON t.id = m.theme AND t.level = 2 ORDER BY t.id"""
    return [id_ for (id_,) in db.execute(sql, (json.dumps(list(themes)),))]


def delete_themes(db: Database, ids: Sequence[int]) -> None:
    """Delete themes with their members and quotations."""
    for table, column in (("themes", "id"), ("theme_members", "theme"), ("theme_quotes", "theme")):
        values = ((id_,) for id_ in ids)
        db.executemany(f"DELETE FROM {table} WHERE {column} = ?", values)


def set_themed(db: Database, source: str | None, revision: int, maker: str) -> None:
    """Note the revision from which a source's themes are made, and that level 2 is outdated."""
    db.execute("DELETE FROM themed WHERE source IS ?", (source,))
    db.execute("INSERT INTO themed VALUES (?, ?, ?)", (source, revision, maker))
    drop_meta(db, GROUPED)


def set_grouped(db: Database, revision: int) -> None:
    """Note that level 2 is made from the themes of level 1, and the revision of all themes."""
    db.execute("UPDATE themed SET revision = ?", (revision,))
    write_meta(db, GROUPED, 1)


def make_anew(db: Database, probe: str) -> None:
    """Mark all themes as outdated, and note the new encoder by its vector of a known text."""
    db.execute("DELETE FROM themed")
    drop_meta(db, GROUPED)
    write_meta(db, PROBE, probe)


# Erasing


def erase_themes(db: Database, episodes: Sequence[int], revision: int) -> tuple[int, int]:
    """Delete chunks, questions and themes of episodes that are about to be deleted.

    A theme is deleted if it has a member or a quotation from these episodes, and a theme of level 2
    if a member theme is deleted. The sources of the episodes count as changed. Call this before the
    episodes are deleted.

    Returns:
        The number of questions and of themes that were deleted.
    """

    def ids(sql: str, keys: Iterable[int]) -> list[int]:
        return [row[0] for row in db.execute(sql, (json.dumps(list(keys)),))]

    chunks = ids("SELECT c.id FROM json_each(?) k JOIN chunks c ON c.episode = k.value", episodes)
    sql = "SELECT q.id, q.text FROM json_each(?) k JOIN questions q ON q.chunk = k.value"
    questions = dict(db.execute(sql, (json.dumps(chunks),)))
    of_chunks = """SELECT DISTINCT t.id FROM json_each(?) k JOIN theme_members m
        ON m.member = k.value JOIN themes t ON t.id = m.theme AND t.level = 1"""
    quoting = """SELECT DISTINCT q.theme FROM json_each(?) k
        JOIN theme_quotes q ON q.episode = k.value"""
    themes = {*ids(of_chunks, chunks), *ids(quoting, episodes)}
    themes.update(themes_above(db, themes))
    sql = """DELETE FROM themed WHERE EXISTS (SELECT 1 FROM json_each(?) k
        JOIN episodes e ON e.node = k.value WHERE e.source IS themed.source)"""
    if db.execute(sql, (json.dumps(episodes),)).rowcount:
        drop_meta(db, GROUPED)
    delete_themes(db, sorted(themes))
    delete_questions(db, list(questions), revision)
    db.executemany("DELETE FROM chunks WHERE id = ?", ((id_,) for id_ in chunks))
    db.executemany("INSERT INTO removed VALUES (?, ?, ?)", ((CHUNK, c, revision) for c in chunks))
    return sum(map(bool, questions.values())), len(themes)
