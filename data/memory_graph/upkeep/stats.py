"""How much is in a memory graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turngraph.data.memory_graph.memory_types import (
    EDGE_TYPES,
    EPISODIC,
    NODE_TYPES,
    SIMPLE,
    THESIS,
)
from turngraph.data.memory_graph.record import schema
from turngraph.data.memory_graph.times import end, start

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store


@dataclass(frozen=True, slots=True)
class Stats:
    """What is in a memory graph.

    Args:
        nodes, edges: how many of each type.
        aliases: spellings of objects.
        sources: different ones that episodes belong to.
        closed: simple triplets and theses that have an end.
        superseded: those of them that another fact closes.
        edits: that can be undone, one after the other.
        first, last: when the first and the last episode was said; None: of none it is known.
        revision: number of writes.
        schema_version: of the tables.
        bytes: of each file, by its name; derived arrays together by their folder's.
    """

    nodes: dict[str, int]
    edges: dict[str, int]
    aliases: int
    sources: int
    closed: int
    superseded: int
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
            edits=_count(store, "* FROM journal"),
            first=first,
            last=last,
            revision=revision,
            schema_version=schema.version(store.db),
            bytes=_sizes(store),
        )


def _count(store: Store, what: str) -> int:
    words = what.split(" FROM ")
    return store.db.execute(f"SELECT count({words[0]}) FROM {words[1]}").fetchone()[0]


def _by_type(store: Store, table: str, names: tuple[str, ...]) -> dict[str, int]:
    counts = dict(store.db.execute(f"SELECT type, count(*) FROM {table} GROUP BY type"))
    return {name: counts.get(type, 0) for type, name in enumerate(names)}


def _time_range(store: Store) -> tuple[str | None, str | None]:
    sql = f"SELECT DISTINCT said FROM nodes WHERE type = {EPISODIC} AND said IS NOT NULL"
    times = [time for (time,) in store.db.execute(sql)]
    return min(times, key=start, default=None), max(times, key=end, default=None)


def _sizes(store: Store) -> dict[str, int]:
    files = [store.path, *(store.path.with_name(store.path.name + end) for end in ("-wal", "-shm"))]
    sizes = {file.name: file.stat().st_size for file in files if file.exists()}
    if store.derived.is_dir():
        arrays = (file for file in store.derived.rglob("*") if file.is_file())
        sizes[store.derived.name] = sum(file.stat().st_size for file in arrays)
    return sizes
