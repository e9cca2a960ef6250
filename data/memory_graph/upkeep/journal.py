"""Journal of edits, which stores the rows that an edit changed, and undo.

The database records every changed row. This module updates the data that depend on the rows (word
indexes, revisions, the list of removed ids) after an edit and after an undo.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import HYPER, SIMPLE, edge_key, node_key
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.facts import index_facts, index_rows
from turngraph.data.memory_graph.record.store import Store, tried_again

KEYS = {
    "nodes": 1,
    "edges": 1,
    "aliases": 1,
    "sightings": 2,
    "provenance": 4,
    "supersessions": 2,
}
"""Tables that an edit may change, with the number of leading key columns."""
COLUMNS = {
    "nodes": "id type hash said valid_from valid_to hypothesis text".split(),
    "edges": "id type source target relation said valid_from valid_to hypothesis".split(),
    "aliases": "id alias spelling node given".split(),
    "sightings": "alias episode".split(),
    "provenance": "fact episode start stop".split(),
    "supersessions": "old new boundary old_valid_to new_valid_from".split(),
}
"""Columns of these tables, without the revision."""
REMOVED = {"nodes": 0, "edges": 1}
"""Value of the column ``kind`` of ``removed``, by table."""
Row = tuple[Any, ...]


class Change(NamedTuple):
    """Row before and after an edit; None: the row did not or does not exist."""

    table: str
    before: Row | None
    after: Row | None

    @property
    def row(self) -> Row:
        """The row after the edit, or the deleted one."""
        row = self.before if self.after is None else self.after
        assert row is not None, "a change has a row"
        return row


@contextmanager
def edit(db: Database, revision: int, operation: str, keys: Iterable[int]) -> Iterator[None]:
    """Context in which all writes are recorded as one edit in the journal.

    Args:
        db: the record, in a write transaction.
        revision: revision of the write.
        operation: name of the edit in the journal, with ids and without names of objects.
        keys: keys of the simple triplets whose text may change; new triplets need not be given.
    """
    keys = set(keys)
    index_facts(db, keys, remove=True)
    with db.recording(COLUMNS) as recorded:
        yield
        changes = _net_changes(Change(*row) for row in recorded())
    _update_dependents(db, changes, keys, revision)
    entry = json.dumps({"revision": revision, "changes": changes}, ensure_ascii=False)
    db.execute("INSERT INTO journal (operation, undo) VALUES (?, ?)", (operation, entry))


@tried_again
def undo(store: Store) -> str:
    """Undo the last edit, and return its operation.

    Later episodes stay; if they changed or use rows of the edit, it cannot be undone. Forgetting
    empties the journal, which must not keep forgotten texts.

    Raises:
        UserError: there is no edit, or its rows were changed or used since.
    """
    db = store.db
    with store.writing() as revision:
        sql = "SELECT id, operation, undo FROM journal ORDER BY id DESC LIMIT 1"
        entry = db.execute(sql).fetchone()
        if entry is None:
            raise UserError(f"{store}: no edit to undo; forgetting deletes the journal of edits")
        entry_id, operation, text = entry
        edited_at, changes = _entry(store, text)
        changes = _without_aliases_in_use(db, changes, edited_at)
        if _changed_since(db, changes, edited_at):
            raise UserError(
                f"{store}: {operation} cannot be undone: later episodes depend on it; use"
                " merge, split or rename to correct the graph"
            )
        reverse = [Change(table, after, before) for table, before, after in changes]
        keys = _simple_keys(db, reverse)
        index_facts(db, keys, remove=True)
        _write(db, reverse)
        _update_dependents(db, reverse, keys, revision)
        db.execute("DELETE FROM journal WHERE id = ?", (entry_id,))
    return str(operation)


def _entry(store: Store, text: str) -> tuple[int, list[Change]]:
    """Parse an entry of the journal: the revision of the edit, and the rows that it changed."""
    try:
        edited = json.loads(text)
        return int(edited["revision"]), [
            Change(str(table), before and tuple(before), after and tuple(after))
            for table, before, after in edited["changes"]
        ]
    except (KeyError, RecursionError, TypeError, ValueError):
        raise UserError(f"{store}: the journal is damaged; no edit can be undone") from None


def _net_changes(changes: Iterable[Change]) -> list[Change]:
    """Return the first and the last state of every row whose two states differ."""
    first: dict[Row, Row | None] = {}
    last: dict[Row, Row | None] = {}
    for table, before, after in changes:
        if before is not None:
            key = (table, *before[: KEYS[table]])
            first.setdefault(key, before)
            last[key] = None
        if after is not None:
            key = (table, *after[: KEYS[table]])
            first.setdefault(key, None)
            last[key] = after
    return [Change(key[0], first[key], last[key]) for key in first if first[key] != last[key]]


def _same_row(table: str) -> str:
    return " AND ".join(f"{name} = ?" for name in COLUMNS[table][: KEYS[table]])


def _write(db: Database, changes: list[Change]) -> None:
    """Apply changes; delete all old rows first, so that no new row conflicts with them."""
    for table, before, _ in changes:
        if before is not None:
            sql = f"DELETE FROM {table} WHERE {_same_row(table)}"
            db.execute(sql, before[: KEYS[table]])
    for table, _, after in changes:
        if after is not None:
            names = COLUMNS[table] + (["revision"] if table in REMOVED else [])
            values = [*after, 0] if table in REMOVED else after
            marks = ", ".join("?" * len(names))
            db.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", values)


def _update_dependents(db: Database, changes: list[Change], keys: set[int], revision: int) -> None:
    """Update word indexes, revisions and removed ids after changes of rows.

    Args:
        db: the record, in a write transaction.
        changes: changes of rows, already applied.
        keys: keys of facts that the caller removed from the word index.
        revision: revision of the write.
    """
    new = [c.row for c in changes if c.table == "edges" and c.before is None]
    index_facts(db, keys | {edge_key(row[0]) for row in new})
    aliases = [c for c in changes if c.table == "aliases"]
    index_rows(db, "name_words", [c.before[0:3:2] for c in aliases if c.before], remove=True)
    index_rows(db, "name_words", [c.after[0:3:2] for c in aliases if c.after], remove=False)
    for table, kind in REMOVED.items():
        rows = [c for c in changes if c.table == table]
        gone = [(kind, c.row[0], revision) for c in rows if c.after is None]
        came = json.dumps([c.row[0] for c in rows if c.before is None])
        sql = "DELETE FROM removed WHERE kind = ? AND id IN (SELECT value FROM json_each(?))"
        db.execute(sql, (kind, came))
        db.executemany("INSERT INTO removed VALUES (?, ?, ?)", gone)
        there = [(revision, c.after[0]) for c in rows if c.after is not None]
        db.executemany(f"UPDATE {table} SET revision = ? WHERE id = ?", there)


def _simple_keys(db: Database, changes: list[Change]) -> set[int]:
    """Return the keys of the simple triplets that change themselves or at one of their ends."""
    rows = [(table, row) for table, *rows in changes for row in rows if row is not None]
    keys = {edge_key(row[0]) for table, row in rows if table == "edges" and row[1] == SIMPLE}
    for node in {row[0] for table, row in rows if table == "nodes"}:
        keys |= simple_keys_at(db, node)
    return keys


def simple_keys_at(db: Database, node: int) -> set[int]:
    """Return keys of the simple triplets of an object."""
    sql = f"SELECT id FROM edges WHERE type = {SIMPLE} AND (source = ?1 OR target = ?1)"
    return {edge_key(edge) for (edge,) in db.execute(sql, (node,))}


def _without_aliases_in_use(db: Database, changes: list[Change], since: int) -> list[Change]:
    """Drop the changes that gave a name to a remaining object, if later episodes use the name."""
    new = {c.row[0] for c in changes if c.table == "nodes" and c.before is None}
    return [
        c
        for c in changes
        if c.table != "aliases" or c.before or c.row[3] in new or not _seen(db, c.row[0], since)
    ]


def _changed_since(db: Database, changes: list[Change], since: int) -> bool:
    """Return whether episodes after a revision changed or use the changed rows."""
    edges = {row[0] for c in changes if c.table == "edges" for row in c[1:] if row}
    for change in changes:
        table, before, after = change
        row = change.row
        sql = f"SELECT {', '.join(COLUMNS[table])} FROM {table} WHERE {_same_row(table)}"
        if db.execute(sql, row[: KEYS[table]]).fetchone() != after:
            return True
        if after is None:
            continue
        if table == "aliases" and _seen(db, row[0], since):
            return True
        if table == "edges" and _said(db, row, since):
            return True
        if table == "nodes" and before is None:
            sql = "SELECT id FROM edges WHERE source = ?1 OR target = ?1"
            if not edges.issuperset(edge for (edge,) in db.execute(sql, (row[0],))):
                return True
    return False


def _seen(db: Database, alias: int, since: int) -> bool:
    sql = (
        "SELECT 1 FROM sightings s JOIN nodes n ON n.id = s.episode"
        " WHERE s.alias = ? AND n.revision > ?"
    )
    return db.execute(sql, (alias, since)).fetchone() is not None


def _said(db: Database, edge: Row, since: int) -> bool:
    """Return whether the fact of an edge was said again after a revision."""
    edge_id, type, _, target, *_ = edge
    if type not in (SIMPLE, HYPER):
        return False
    key = edge_key(edge_id) if type == SIMPLE else node_key(target)
    sql = (
        "SELECT 1 FROM provenance p JOIN nodes n ON n.id = p.episode"
        " WHERE p.fact = ? AND n.revision > ?"
    )
    return db.execute(sql, (key, since)).fetchone() is not None
