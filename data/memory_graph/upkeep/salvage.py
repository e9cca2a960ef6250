"""Recovery of the episodes of a damaged memory graph, row by row around the damage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.jsonlines import dump
from turngraph.data.memory_graph.memory_types import EPISODIC
from turngraph.data.memory_graph.record.integrity import highest_possible
from turngraph.data.memory_graph.record.place import is_url, shown
from turngraph.data.memory_graph.upkeep.pages import rows
from turngraph.data.memory_graph.upkeep.partial_files import noted
from turngraph.data.outputs import whole_file

COMMAND = "turngraph memory export --db {db} --damaged FILE"

LEAST_BYTES = 16
"""Least bytes of a node's row."""
NODE_COLUMNS, RECORD_COLUMNS = 9, 6
"""Number of columns of ``nodes`` and ``episodes``, which identify their rows on a page."""


class Saved(NamedTuple):
    """Number of readable episodes, and of all; ``total`` is None if unreadable."""

    episodes: int
    total: int | None


def what_can_be_saved(path: str | Path) -> str:
    """Describe how many episodes can still be read, and the command that writes them."""
    saved = _count(path)
    if not saved.episodes:
        return "no episode can be read in it; a backup is what can be restored"
    found = plural(saved.episodes, "episode")
    if saved.total is not None:
        found = f"{saved.episodes} of {plural(saved.total, 'episode')}"
    command = COMMAND.format(db=path)
    return (
        f"{found} can still be read; `{command}` writes them as JSON"
        " Lines, from which `remember` fills a new memory graph"
    )


def _count(path: str | Path) -> Saved:
    with _damaged(path) as db:
        return Saved(sum(1 for _ in _episodes(db, path)), _total(db))


def salvage(path: str | Path, output: str | Path) -> Saved:
    """Write every readable episode as a line that ``remember`` takes.

    Args:
        path: the damaged database, which is only read.
        output: JSON Lines of ``text``, ``time``, ``source``, ``origin``, ``speaker``,
            ``properties``. Remembering them extracts the rest of the graph again.

    Raises:
        UserError: no episode can be read, the output cannot be written, or it is no file.
    """
    if is_url(path):
        raise UserError(f"{shown(path)}: --damaged is for files; `export --jsonl` writes the graph")
    notes = partial(noted, Path(f"{path}.derived"))
    with _damaged(path) as db, whole_file(output, True, notes) as file:
        episodes = 0
        for line in _episodes(db, path):
            file.write(dump(line) + "\n")
            episodes += 1
        if not episodes:
            raise UserError(f"{path}: {what_can_be_saved(path)}")
        return Saved(episodes, _total(db))


@contextmanager
def _damaged(path: str | Path) -> Iterator[sqlite3.Connection]:
    uri = f"{Path(path).resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as db:
        with suppress(sqlite3.DatabaseError):
            db.execute("PRAGMA writable_schema = ON")  # to read a truncated file
        yield db


def _number(db: sqlite3.Connection, sql: str) -> int | None:
    try:
        return int(db.execute(sql).fetchone()[0])
    except (sqlite3.DatabaseError, TypeError, ValueError):  # damaged there too, or no row
        return None


def _total(db: sqlite3.Connection) -> int | None:
    return _number(db, "SELECT count(*) FROM episodes")


def _episodes(db: sqlite3.Connection, path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the episodes that SQLite can still read, then those that only the pages have."""
    highest = [
        "SELECT seq FROM sqlite_sequence WHERE name = 'nodes'",
        "SELECT max(id) FROM nodes",
        "SELECT max(node) FROM episodes",
        "SELECT max(target) FROM edges",
    ]
    # a changed id may be of any size; its row is found on its page
    most = highest_possible(Path(path).stat().st_size // LEAST_BYTES)
    last = max((n for sql in highest if 0 <= (n := _number(db, sql) or 0) <= most), default=0)
    found: set[int] = set()
    records = dict(_records_of_pages(path))
    sql = "SELECT id, said, text FROM nodes WHERE id BETWEEN ? AND ? AND type = ?"
    with progress(last, "read", "rows", delay=2, leave=False) as bar:
        for node, said, text in _readable(db, sql, last, bar.update):
            if not isinstance(text, str) or text.endswith("\0"):  # SQLite pads a cut page with NUL
                continue  # a text that really ends so is found below
            found.add(node)
            yield _line(said, text, _record(db, node) or records.get(node))
    for node, values in rows(path):
        is_episode = len(values) == NODE_COLUMNS and values[1] == EPISODIC
        if is_episode and node not in found and isinstance(values[8], str):
            found.add(node)
            yield _line(values[3], values[8], records.get(node))


def _records_of_pages(path: str | Path) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for node, values in rows(path):
        if len(values) == RECORD_COLUMNS and isinstance(values[4], str):
            yield node, (*values[1:4], values[5])


def _line(said: Any, text: Any, record: tuple[Any, ...] | None) -> dict[str, Any]:
    """Return an episode as ``remember`` reads it; its other fields may be lost."""
    line = {"text": text, "time": said}
    if record is not None:
        source, origin, speaker, properties = record
        line |= {"source": source, "origin": origin, "speaker": speaker}
        with suppress(RecursionError, TypeError, ValueError):
            line["properties"] = json.loads(properties) or None
    return {name: value for name, value in line.items() if value is not None}


def _readable(
    db: sqlite3.Connection, sql: str, last: int, advance: Callable[[int], object]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of all ids; bisect around those that cannot be read."""
    ranges = [(1, last)] if last else []
    while ranges:
        low, high = ranges.pop()
        try:
            rows = db.execute(sql, (low, high, EPISODIC)).fetchall() if high - low < 1000 else None
        except sqlite3.DatabaseError:
            rows = None if low < high else []
        if rows is None:
            middle = (low + high) // 2
            ranges += [(middle + 1, high), (low, middle)]
            continue
        advance(high - low + 1)
        yield from rows


def _record(db: sqlite3.Connection, node: int) -> tuple[Any, ...] | None:
    """Return the other fields of an episode; None if damaged."""
    sql = "SELECT source, origin, speaker, properties FROM episodes WHERE node = ?"
    row: tuple[Any, ...] | None = None
    with suppress(sqlite3.DatabaseError):
        row = db.execute(sql, (node,)).fetchone()
    return row
