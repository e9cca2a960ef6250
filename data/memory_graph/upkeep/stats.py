"""Counts and file sizes of a memory graph."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turngraph.data.memory_graph.memory_types import (
    EDGE_TYPES,
    EPISODIC,
    NODE_TYPES,
    SIMPLE,
    THESIS,
)
from turngraph.data.memory_graph.times import end, start

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and file sizes of a memory graph.

    Args:
        nodes, edges: counts by type.
        aliases: number of spellings of objects.
        sources: number of different sources.
        closed: number of simple triplets and theses with an end.
        superseded: number of facts that another fact closes.
        themes: number of themes of each level, of chunks, and of questions in use.
        edits: number of edits that can be undone.
        first, last: time of the first and the last episode; None: no time is known.
        revision: number of writes.
        schema_version: version of the tables.
        bytes: size of each file by name; derived arrays are summed under their folder's name.
    """

    nodes: dict[str, int]
    edges: dict[str, int]
    aliases: int
    sources: int
    closed: int
    superseded: int
    themes: dict[str, int]
    edits: int
    first: str | None
    last: str | None
    revision: int
    schema_version: int
    bytes: dict[str, int]


def stats(store: Store) -> Stats:
    """Count what is in a memory graph."""
    with store.reading() as revision:
        closed = f"edges WHERE type = {SIMPLE} AND valid_to IS NOT NULL"
        first, last = _time_range(store)
        return Stats(
            nodes=_by_type(store, "nodes", NODE_TYPES),
            edges=_by_type(store, "edges", EDGE_TYPES),
            aliases=_count(store, "* FROM aliases"),
            sources=_count(store, "DISTINCT source FROM episodes"),
            closed=_count(store, f"* FROM {closed}")
            + _count(store, f"* FROM nodes WHERE type = {THESIS} AND valid_to IS NOT NULL"),
            superseded=_count(store, "DISTINCT old FROM supersessions"),
            themes={
                "level 1": _count(store, "* FROM themes WHERE level = 1"),
                "level 2": _count(store, "* FROM themes WHERE level = 2"),
                "chunks": _count(store, "* FROM chunks"),
                "questions": _count(store, "* FROM questions WHERE kept = 1"),
            },
            edits=_count(store, "* FROM journal"),
            first=first,
            last=last,
            revision=revision,
            schema_version=store.db.version(),
            bytes=_sizes(store),
        )


def _count(store: Store, what: str) -> int:
    columns, _, tables = what.partition(" FROM ")
    return int(store.db.execute(f"SELECT count({columns}) FROM {tables}").fetchone()[0])


def _by_type(store: Store, table: str, names: tuple[str, ...]) -> dict[str, int]:
    counts = dict(store.db.execute(f"SELECT type, count(*) FROM {table} GROUP BY type"))
    return {name: counts.get(type, 0) for type, name in enumerate(names)}


def _time_range(store: Store) -> tuple[str | None, str | None]:
    sql = f"SELECT DISTINCT said FROM nodes WHERE type = {EPISODIC} AND said IS NOT NULL"
    times = [time for (time,) in store.db.execute(sql)]
    return min(times, key=start, default=None), max(times, key=end, default=None)


def _sizes(store: Store) -> dict[str, int]:
    """Return sizes in bytes; files that another process deletes meanwhile count as 0."""
    sizes = {file.name: _size(file) for file in store.files() if file.exists()}
    if store.derived.is_dir():
        tree = os.walk(store.derived)
        arrays = (Path(folder, name) for folder, _, names in tree for name in names)
        sizes[store.derived.name] = sum(map(_size, arrays))
    return sizes


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
