"""Values that something other than this program changed, and the episodes that they belong to.

SQLite notices an overwritten page only where its structure breaks. A flipped byte of a text is seen
when the text is decoded. No message shows a text: it names the episode, by which it is forgotten.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from operator import methodcaller

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import EPISODIC_EDGE, TIME_EDGE
from turngraph.data.memory_graph.names import printable
from turngraph.data.memory_graph.record import schema
from turngraph.data.memory_graph.record.integrity import broken_rules, unreadable_times
from turngraph.data.memory_graph.record.sqlite_database import SqliteDatabase

STRICT = methodcaller("decode")
"""Text factory of a connection. Unlike ``str``, it raises an error that does not show the text."""
LENIENT = methodcaller("decode", "utf-8", "replace")
"""Text factory that reads damaged texts too."""
UNREADABLE = "damaged; `check` says what can be saved"
SHOWN = 5
"""Maximum episodes in a message."""
TABLES = (
    "nodes", "episodes", "edges", "aliases", "supersessions", "journal", "questions", "themes",
    "themed",
)  # fmt: skip
"""Tables with texts."""
_SAID = "SELECT episode FROM provenance WHERE fact = "
_AT_TIMES = f"SELECT target FROM edges WHERE source = ?1 AND type = {TIME_EDGE}"
EPISODES = {
    "nodes": f"""SELECT node FROM episodes WHERE node = ?1 OR node IN ({_AT_TIMES})
        UNION SELECT target FROM edges WHERE source = ?1 AND type = {EPISODIC_EDGE}
        UNION SELECT p.episode FROM provenance p WHERE NOT p.fact & 1
        AND (p.fact = 2 * ?1 OR p.fact >> 1 IN ({_AT_TIMES}))""",
    "episodes": "SELECT ?1",
    "edges": f"{_SAID} 2 * ?1 + 1",
    "aliases": "SELECT episode FROM sightings WHERE alias = ?1",
    "supersessions": f"{_SAID} ?1",
    "questions": """SELECT c.episode FROM questions q JOIN chunks c ON c.id = q.chunk
        WHERE q.id = ?1""",
    "themes": "SELECT DISTINCT episode FROM theme_quotes WHERE theme = ?1",
}
"""Query for the episodes that a row belongs to, by table and first column."""


class Unavailable(UserError):
    """The file, the database or the machine fails, whatever was asked of the memory graph."""


class Damaged(Unavailable):
    """The file was changed by something other than this program."""


def damage(db: SqliteDatabase) -> str | None:
    """Describe the damaged values of a record by their episodes; None if there are none."""
    factory, db.text_factory = db.text_factory, bytes
    try:
        if _columns(db) != _right_columns():
            return UNREADABLE
        rows = {(table, key) for table in TABLES for key in _damaged_rows(db, table)}
        return _described(db, rows) if rows else None
    except (sqlite3.Error, UnicodeDecodeError):
        return UNREADABLE
    finally:
        db.text_factory = factory


def broken_record(db: SqliteDatabase) -> str | None:
    """Describe what no program wrote so: damaged values, or rows that do not fit together."""
    if (found := damage(db)) is not None:
        return found
    factory, db.text_factory = db.text_factory, LENIENT
    try:
        # first, as the rules may read an index where a table is damaged
        [(first, *_), *_] = db.execute("PRAGMA integrity_check(1)")
        broken = first != "ok" or broken_rules(db) or unreadable_times(db)
    except sqlite3.Error:
        return UNREADABLE
    finally:
        db.text_factory = factory
    return UNREADABLE if broken else None


def _columns(db: SqliteDatabase) -> list[tuple[object, ...]]:
    sql = "SELECT m.name, c.name, c.type FROM sqlite_schema m JOIN pragma_table_info(m.name) c"
    return sorted(db.execute(f"{sql} WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'"))


@cache
def _right_columns() -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=SqliteDatabase)) as db:
        db.text_factory = bytes
        schema.create(db)
        return _columns(db)


def _damaged_rows(db: SqliteDatabase, table: str) -> Iterator[int]:
    """Yield the first column of every row with a value of another type, or no UTF-8."""
    columns = db.execute(f"PRAGMA table_info({table})").fetchall()
    kinds = [{b"TEXT": str, b"INTEGER": int, b"REAL": float}[kind] for _, _, kind, *_ in columns]
    required = [bool(not_null) for _, _, _, not_null, *_ in columns]
    names = [str(name, "ascii") for _, name, *_ in columns]
    # a text comes as bytes, and so does a blob, which nothing here is
    types = " || ".join(f"(typeof({name}) = 'blob')" for name in names)
    sql = f"SELECT {types}, {', '.join(names)} FROM {table}"
    for blobs, *values in db.execute(sql):
        if b"1" in blobs or not all(map(_is_sound, values, kinds, required)):
            yield values[0] if isinstance(values[0], int) else 0


def _is_sound(value: object, kind: type, required: bool) -> bool:
    if value is None:
        return not required
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
        return kind is str
    return isinstance(value, kind)


def _described(db: SqliteDatabase, rows: set[tuple[str, int]]) -> str:
    episodes: set[int] = set()
    others = set()
    for table, key in sorted(rows):
        found = db.execute(EPISODES[table], (key,)).fetchall() if table in EPISODES else []
        episodes.update(episode for (episode,) in found)
        if not found:
            others.add(table)
    named = [_named(db, episode) for episode in sorted(episodes)]
    more = [f"and {len(named) - SHOWN} more"] if len(named) > SHOWN else []
    parts = [f"in episode {', '.join([*named[:SHOWN], *more])}"] if named else []
    parts += [f"in the table {', '.join(sorted(others))}"] if others else []
    help = "; `forget --episode` forgets it, a backup may have it whole" if named else ""
    return f"damaged texts {' and '.join(parts)}{help}"


def _named(db: SqliteDatabase, episode: int) -> str:
    """Name an episode by id and source, without any of its text."""
    row = db.execute("SELECT source FROM episodes WHERE node = ?", (episode,)).fetchone()
    source = row[0] if row else None
    if not isinstance(source, bytes):
        return f"#{episode}"
    return f"#{episode} (source {printable(LENIENT(source))[:80]})"
