"""Reads the texts of nodes and facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, SIMPLE, THESIS
from turngraph.data.memory_graph.record.database import Database

_SIMPLE = f"""SELECT 2 * e.id + 1, e.valid_from, s.text, e.relation, t.text
    FROM edges e JOIN nodes s ON s.id = e.source JOIN nodes t ON t.id = e.target
    WHERE e.type = {SIMPLE} AND """
_NODE = f"SELECT 2 * id, text FROM nodes WHERE type IN ({THESIS}, {EPISODIC}) AND "


def simple_text(valid_from: str | None, subject: str, relation: str, object: str) -> str:
    """Return the text of a simple triplet, with the time of its begin in front if it is known."""
    text = f"{subject} {relation} {object}"
    return text if valid_from is None else f"{valid_from}: {text}"


def fact_texts(db: Database, keys: Iterable[int]) -> dict[int, str]:
    """Return the texts of facts by key, without those that are missing."""
    keys = list(keys)
    edges = [key // 2 for key in keys if key % 2]
    nodes = [key // 2 for key in keys if key % 2 == 0]
    texts = dict(_many(db, f"{_NODE} id IN", nodes))
    for key, *parts in _many(db, f"{_SIMPLE} e.id IN", edges):
        texts[key] = simple_text(*parts)
    return texts


def fact_text(db: Database, key: int) -> str:
    """Return the text of one fact.

    Raises:
        KeyError: there is no such fact.
    """
    sql = f"{_SIMPLE} e.id = ?" if key % 2 else f"{_NODE} id = ?"
    row = db.execute(sql, (key // 2,)).fetchone()
    if row is None:
        raise KeyError(key)
    return simple_text(*row[1:]) if key % 2 else str(row[1])


def node_texts(db: Database, nodes: Iterable[int]) -> dict[int, str]:
    """Return the texts of nodes by id, without those that are missing."""
    nodes = list(nodes)
    if len(nodes) == 1:  # three times faster than a list of one
        return dict(db.execute("SELECT id, text FROM nodes WHERE id = ?", nodes))
    return dict(_many(db, "SELECT id, text FROM nodes WHERE id IN", nodes))


def _many(db: Database, sql: str, values: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query that ends in "id IN", for these ids."""
    yield from db.execute(f"{sql} (SELECT value FROM json_each(?))", (json.dumps(values),))


def _rows(db: Database, sql: str, since: int) -> Iterable[tuple[Any, ...]]:
    """Return the rows that were written after a revision; stream them if these are all rows."""
    return db.scan(sql, (since,)) if since < 0 else db.execute(sql, (since,))


def changed_names(db: Database, since: int) -> Iterator[tuple[int, str]]:
    """Yield id and name of every object that was written after a revision."""
    sql = f"SELECT id, text FROM nodes WHERE revision > ? AND type = {OBJECT}"
    yield from _rows(db, sql, since)


def changed_facts(db: Database, since: int) -> Iterator[tuple[int, str]]:
    """Yield key and text of every fact written after a revision, itself or one of its ends."""
    yield from _rows(db, f"{_NODE} revision > ?", since)
    for key, *parts in _rows(db, f"{_SIMPLE} e.revision > ?", since):
        yield key, simple_text(*parts)
    if since < 0:  # all facts were yielded
        return
    changed = f"SELECT id FROM nodes WHERE revision > ?1 AND type = {OBJECT}"
    at_changed = " UNION ".join(
        f"SELECT id FROM edges WHERE {end} IN ({changed})" for end in ("source", "target")
    )
    sql = f"{_SIMPLE} e.revision <= ?1 AND e.id IN ({at_changed})"
    for key, *parts in db.execute(sql, (since,)):
        yield key, simple_text(*parts)
