"""Consistency check of a memory graph, and rebuilding of derived data."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import THESIS, TIME
from turngraph.data.memory_graph.names import alias, printable, text_hash
from turngraph.data.memory_graph.recall.adjacency import Adjacency
from turngraph.data.memory_graph.recall.csr import GONE, TYPE, read_columns
from turngraph.data.memory_graph.recall.derived_files import LOCK, State, locked, shows
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.recall.vectors import TEXTS, digest
from turngraph.data.memory_graph.record.database import RECOVER, Damaged, Database
from turngraph.data.memory_graph.record.facts import INDEXED, index_everything
from turngraph.data.memory_graph.record.integrity import (
    Problem,
    broken_rules,
    found_rows,
    rows_with_times,
    unreadable_times,
)
from turngraph.data.memory_graph.record.open_store import open_store
from turngraph.data.memory_graph.record.place import is_url
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import start
from turngraph.data.memory_graph.upkeep import purge

KEPT = (LOCK, purge.LOCK)
"""Lock files in the folder of derived files, which other processes may hold."""


def check(store: Store) -> list[Problem]:
    """Return every problem of a memory graph; change nothing.

    SQLite checks the file. ``integrity.py`` checks references, provenance and edges. Texts and
    names are compared with their hashes and normal forms, times are parsed, and word indexes and
    derived arrays are compared with the record.
    """
    try:
        with store.reading():
            problems = [Problem(what, damage=True) for what in store.damages()]
            is_readable = not problems
            if is_readable:
                problems += broken_rules(store.db)
                problems += _changed_texts(store.db) + _wrong_times(store.db)
                for table in INDEXED:
                    problems += _wrong_index(store.db, table)
                problems += _wrong_arrays(store)
        if is_readable:
            problems += _wrong_vectors(store)
    except Damaged:
        problems = [Problem("damaged file: a text in it cannot be read", damage=True)]
    return problems


def check_file(path: str | Path) -> list[Problem]:
    """Check a file that may be too damaged to be opened; the last problem says how to recover it.

    Raises:
        UserError: the file is missing, or is not a memory graph of this version.
    """
    try:
        with open_store(path, read_only=True) as store:
            problems = check(store)
    except UserError as error:
        cause = error.__cause__
        no_database = getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_NOTADB
        if not isinstance(error, Damaged) and not no_database:
            raise
        reason = str(error) if cause is None else printable(str(cause))
        problems = [Problem(f"damaged file, or never a memory graph: {reason}", damage=True)]
    is_damaged = not is_url(path) and any(problem.damage for problem in problems)
    return [*problems, Problem(RECOVER)] if is_damaged else problems


def _changed_texts(db: Database) -> list[Problem]:
    """Find texts that differ from their hashes, as after overwritten bytes."""
    sql = f"SELECT id, type, hash, text FROM nodes WHERE type IN ({THESIS}, {TIME})"
    changed = (row[0] for row in db.execute(sql) if text_hash(row[1], row[3]) != row[2])
    problems = found_rows("texts that differ from their hashes", changed, damage=True)
    names = db.execute("SELECT id, alias, spelling FROM aliases")
    wrong = (row[0] for row in names if alias(row[2]) != row[1])
    return problems + found_rows("aliases that differ from their spellings", wrong, damage=True)


def _wrong_times(db: Database) -> list[Problem]:
    if problems := unreadable_times(db):
        return problems
    for table in ("nodes", "edges"):
        inverted = (
            row_id
            for row_id, _, since, until in rows_with_times(db, table)
            if since is not None and until is not None and start(until) < start(since)
        )
        problems += found_rows(f"{table} that end before they begin", inverted)
    return problems


def _wrong_index(db: Database, table: str) -> list[Problem]:
    if db.words.is_right(table):
        return []
    what = f"{table} and the texts that it indexes differ"
    return [Problem(what, derived=True)]


def _wrong_arrays(store: Store) -> list[Problem]:
    """Check that the derived arrays, if they exist, equal the record after a refresh."""
    shown = Adjacency(store.db, store.derived, writable=False)
    if shown.revision < 0:
        return []
    shown.refresh()
    nodes, edges = read_columns(store.db)
    same = _equal(shown.nodes, nodes, "type", -1) and _equal(shown.edges, edges, "flags", GONE)
    what = f"the arrays of {store.derived.name} differ from the record"
    return [] if same else [Problem(what, derived=True)]


def _equal(shown: dict[str, Any], right: dict[str, Any], kind: str, none: int) -> bool:
    """Return whether columns are equal in all existing rows; arrays may have spare rows."""
    size = max(len(shown[kind]), len(right[kind]))
    kinds = [
        np.pad(columns[kind], (0, size - len(columns[kind])), constant_values=none)
        for columns in (shown, right)
    ]
    if kind == "flags":
        kinds = [np.where(flags & GONE, GONE, flags & TYPE) for flags in kinds]
    there = np.flatnonzero(kinds[1] != none)
    columns = [name for name in right if name != kind]
    return np.array_equal(kinds[0], kinds[1]) and all(
        np.array_equal(shown[name][there], right[name][there]) for name in columns
    )


def _wrong_vectors(store: Store) -> list[Problem]:
    """Check the vectors of all texts that were not written after the revision of the vectors."""
    problems = []
    for name, (changed, _) in TEXTS.items():
        folder = store.derived / name
        if not folder.is_dir():
            continue
        with ExitStack() as snapshot:
            # lock: vectors of forgotten texts are erased after the commit that forgets them
            with locked(folder, store.wait):
                snapshot.enter_context(store.reading())
                matrix = VectorMatrix(folder, writable=False)
            state = State.of(matrix.manifest)
            revision = state.revision
            if revision < 0 or not shows(store.db, state):  # missing, or another record's
                continue
            later = {key for key, _ in changed(store.db, revision)}
            texts = track(changed(store.db, -1), f"check {name}", "texts", delay=2, leave=False)
            wrong = sum(key not in later and matrix.hash_of(key) != digest(t) for key, t in texts)
        if wrong:
            what = f"vectors of {store.derived.name}/{name} differ from revision {revision}"
            problems.append(Problem(what, wrong, derived=True))
    return problems


def rebuild(store: Store) -> None:
    """Rebuild all indexes, and delete the derived files beside the database.

    Raises:
        UserError: another process is writing.
    """
    with store.writing():
        store.db.reindex()
        index_everything(store.db)
    with locked(store.derived, store.wait) as mine:
        if not mine:
            raise UserError(
                f"{store.derived}: no permission to write, or another process is writing"
            )
        for path in store.derived.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in KEPT:
                path.unlink(missing_ok=True)
