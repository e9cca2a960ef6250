"""What can be saved of a damaged memory graph: its episodes, row by row around the damage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from turngraph.data.jsonlines import dump, whole_file
from turngraph.data.memory_graph.memory_types import EPISODIC
from turngraph.data.memory_graph.upkeep.pages import rows

COMMAND = "turngraph memory export --db {db} --damaged FILE"

NODE_COLUMNS, RECORD_COLUMNS = 9, 6
"""Of ``nodes`` and ``episodes``, by which their rows are told from others on a page."""


class Saved(NamedTuple):
    """Of so many episodes so many can be read; ``total`` is None where that cannot be read."""

    episodes: int
    total: int | None


def what_can_be_saved(path: str | Path) -> str:
    """How many episodes can still be read, and the command that writes them."""
    saved = _count(path)
    if not saved.episodes:
        return "no episode can be read in it; a backup is what can be restored"
    total = "" if saved.total is None else f" of {saved.total}"
    command = COMMAND.format(db=path)
    return (
        f"{saved.episodes}{total} episodes can still be read; `{command}` writes them as JSON"
        " Lines, from which `remember` fills a new memory graph"
    )


def _count(path: str | Path) -> Saved:
    with _damaged(path) as db:
        return Saved(sum(1 for _ in _episodes(db, path)), _total(db))


def salvage(path: str | Path, output: str | Path) -> Saved:
    """Write every episode that can still be read as a line that ``remember`` takes.

    Args:
        path: the damaged database; it is only read.
        output: JSON Lines of ``text``, ``time``, ``source``, ``origin``, ``speaker``,
            ``properties``. What else was in the graph is extracted again by remembering them.

    Raises:
        ValueError: nothing can be read, or the output cannot be written.
    """
    with _damaged(path) as db, whole_file(output, private=True) as file:
        episodes = 0
        for line in _episodes(db, path):
            file.write(dump(line) + "\n")
            episodes += 1
        if not episodes:
            raise ValueError(f"{path}: {what_can_be_saved(path)}")
        return Saved(episodes, _total(db))


@contextmanager
def _damaged(path: str | Path) -> Iterator[sqlite3.Connection]:
    uri = f"{Path(path).resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as db:
        with suppress(sqlite3.DatabaseError):
            db.execute("PRAGMA writable_schema = ON")  # else a file cut short is not read at all
        yield db


def _number(db: sqlite3.Connection, sql: str) -> int | None:
    try:
        return db.execute(sql).fetchone()[0]
    except (sqlite3.DatabaseError, TypeError):  # damaged there too, or no row
        return None


def _total(db: sqlite3.Connection) -> int | None:
    return _number(db, "SELECT count(*) FROM episodes")


def _episodes(db: sqlite3.Connection, path: str | Path) -> Iterator[dict[str, Any]]:
    """What SQLite can still read, then what only the pages of the file have."""
    highest = [
        "SELECT seq FROM sqlite_sequence WHERE name = 'nodes'",
        "SELECT max(id) FROM nodes",
        "SELECT max(node) FROM episodes",
        "SELECT max(target) FROM edges",
    ]
    last = max(_number(db, sql) or 0 for sql in highest)
    found: set[int] = set()
    records = dict(_records_of_pages(path))
    sql = "SELECT id, said, text FROM nodes WHERE id BETWEEN ? AND ? AND type = ?"
    with tqdm(total=last, desc="read", unit="row", delay=2, leave=False) as bar:
        for number, said, text in _readable(db, sql, last, bar):
            if not isinstance(text, str) or text.endswith("\0"):  # SQLite pads a page that is cut
                continue  # a whole one is found below
            found.add(number)
            yield _line(said, text, _record(db, number) or records.get(number))
    for number, values in rows(path):
        is_episode = len(values) == NODE_COLUMNS and values[1] == EPISODIC
        if is_episode and number not in found and isinstance(values[8], str):
            found.add(number)
            yield _line(values[3], values[8], records.get(number))


def _records_of_pages(path: str | Path) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for number, values in rows(path):
        if len(values) == RECORD_COLUMNS and isinstance(values[4], str):
            yield number, (*values[1:4], values[5])


def _line(said: Any, text: Any, record: tuple[Any, ...] | None) -> dict[str, Any]:
    """An episode as ``remember`` reads it; without what stood beside its text if that is lost."""
    line = {"text": text, "time": said}
    if record is not None:
        source, origin, speaker, properties = record
        line |= {"source": source, "origin": origin, "speaker": speaker}
        with suppress(ValueError):
            line["properties"] = json.loads(properties) or None
    return {name: value for name, value in line.items() if value is not None}


def _readable(
    db: sqlite3.Connection, sql: str, last: int, bar: tqdm[Any]
) -> Iterator[tuple[Any, ...]]:
    """Rows of all ids, in halves and halves of halves around those that cannot be read."""
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
        bar.update(high - low + 1)
        yield from rows


def _record(db: sqlite3.Connection, node: int) -> tuple[Any, ...] | None:
    """What stands beside an episode's text; None where that is damaged."""
    sql = "SELECT source, origin, speaker, properties FROM episodes WHERE node = ?"
    with suppress(sqlite3.DatabaseError):
        return db.execute(sql, (node,)).fetchone()
    return None
