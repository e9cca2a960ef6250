"""Removal of every byte of deleted rows from all files of a memory graph.

The transaction that deletes rows writes a mark into the record. Then the word indexes are merged,
which drops deleted words; the database is rewritten, as pages keep copies of rows that once moved;
derived arrays are dropped, vectors are zeroed, and the -wal is truncated. One process purges at a
time, and other processes wait. If it is killed, the next process that opens the graph for writing
finishes the purge.

A record in PostgreSQL may have derived files on several machines. Its mark stays, with the last
revision that deleted rows, and each machine notes the state up to which its own files are purged. A
machine purges its files when it forgets, or when it next opens the graph for writing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.meta import read_meta, write_meta
from turngraph.data.memory_graph.record.patience import Patience
from turngraph.data.memory_graph.record.store import Store

if TYPE_CHECKING:  # NumPy takes long to import
    from turngraph.data.memory_graph.recall.derived_files import State

LOCK = "purge.lock"
"""Lock in ``<db>.derived`` of the process that purges."""
PURGED = "purged.json"
"""State of a server's record up to which this machine's derived files are purged."""


def mark(store: Store, revision: int) -> None:
    """Mark the record, in the transaction that deletes rows, so that the files are purged later."""
    if not store.is_file:
        write_meta(store.db, "purge", revision)
        return
    sql = "INSERT INTO meta (name, value) VALUES ('purge', ?) ON CONFLICT DO NOTHING"
    store.db.execute(sql, (revision,))


def marked(store: Store) -> int | None:
    """Return the first revision whose deleted rows are still in this machine's files, or None."""
    with store.clear_errors():
        revision: int | None = read_meta(store.db, "purge")
        if store.is_file or revision is None:
            return revision
        purged = _purged(store)
    return None if revision <= purged else purged + 1


def _purged(store: Store) -> int:
    """Return the revision up to which this machine's files of a server's record are purged."""
    from turngraph.data.memory_graph.recall.derived_files import State, shows

    if not store.derived.is_dir():
        return store.revision
    try:
        state = State.of(json.loads((store.derived / PURGED).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):  # the file is missing or invalid
        return 0
    return state.revision if shows(store.db, state) else 0


def last_deletion(store: Store) -> int:
    """Return the last revision at which any process deleted anything; 0: nothing was deleted."""
    with store.clear_errors():
        [(revision,)] = store.db.execute("SELECT coalesce(max(revision), 0) FROM removed")
    return int(revision)


def finish(store: Store) -> None:
    """Purge the files if the record is marked, or wait while another process purges them.

    Args:
        store: the graph, open for writing.

    Raises:
        UserError: another process purged, or read an older state, for ``store.wait`` seconds: the
            record is already changed, and the files are purged when the graph is next opened for
            writing; or the disk is full (the purge needs space for a copy of the database).
    """
    if marked(store) is None:
        return
    if store.in_memory:
        _purge(store)
        return
    from turngraph.data.memory_graph.recall.derived_files import locked

    with locked(store.derived, store.wait, LOCK) as is_mine:
        if marked(store) is None:  # purged by the process that had the lock
            return
        if not is_mine:
            raise UserError(
                f"{store}: the text is forgotten, but not purged from the files: for"
                f" {store.wait:g} s another process was forgetting, or {store.derived} could not be"
                " written; the next process that opens the graph for writing purges the files"
            )
        _purge(store)


def _purge(store: Store) -> None:
    since = marked(store)
    assert since is not None, "only a marked record is purged"
    from turngraph.data.memory_graph.recall.derived_files import record_state

    with store.clear_errors():
        state = record_state(store.db)
    derived: Callable[[Store], None] = partial(_purge_derived, since=since, state=state)
    steps = (_merge_words, _vacuum, derived, _empty_wal) if store.is_file else (derived,)
    for step in track(steps, "forget", "steps", delay=2, leave=False):
        with store.clear_errors():
            step(store)
    if not store.is_file:
        return
    with store.clear_errors():  # keep the mark if another process has deleted more meanwhile
        sql = """DELETE FROM meta WHERE name = 'purge'
            AND NOT EXISTS (SELECT 1 FROM removed WHERE revision > ?)"""
        store.db.execute(sql, (state.revision,))


def _merge_words(store: Store) -> None:
    """Merge all segments of FTS5, which keep the words of deleted rows until they are merged."""
    for table in ("name_words", "fact_words"):
        store.db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def _vacuum(store: Store) -> None:
    store.db.execute("VACUUM")


def _empty_wal(store: Store) -> None:
    """Truncate the -wal when no process reads an older state.

    SQLite itself waits for readers, but not for another process's checkpoint.
    """
    patience = Patience(store.wait, f"{store}: another process reads an older state")
    while not _is_emptied(store.db):
        if not patience.pause():
            raise UserError(
                f"{store}: forgotten, but {store}-wal still has the text: another process has been"
                f" reading an older state for {store.wait:g} s; the next process that opens the"
                " graph for writing empties the file"
            )


def _is_emptied(db: Database) -> bool:
    return not db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def _purge_derived(store: Store, since: int, state: State) -> None:
    if store.in_memory or not store.derived.is_dir():
        return
    from turngraph.data.memory_graph.recall.adjacency import NAME
    from turngraph.data.memory_graph.recall.derived_files import THEMES, drop_arrays, write_json
    from turngraph.data.memory_graph.recall.vectors import purge as purge_vectors

    try:
        drop_arrays(store.derived, NAME, store.wait)  # which hold times
        drop_arrays(store.derived, THEMES, store.wait)  # which hold means of vectors
        purge_vectors(store.db, store.derived, since, store.wait)
        if not store.is_file:
            write_json(store.derived / PURGED, state._asdict())
    except OSError as error:
        raise UserError(
            f"{store}: forgotten, but {store.derived} still has vectors of the text and"
            f" cannot be written: {error.strerror}"
        ) from None
