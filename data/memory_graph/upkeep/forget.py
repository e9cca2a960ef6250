"""Deletion of episodes without a trace in any file.

One transaction deletes them from the record (erase.py). Then the word indexes are merged, which
drops the deleted words, the database is rewritten (pages keep copies of rows that once moved), the
-wal is truncated, and the vectors are zeroed. If the process is killed in between, the next one
that opens the graph for writing finishes the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from tqdm import tqdm

from turngraph.data.memory_graph.memory_types import EPISODIC
from turngraph.data.memory_graph.names import well_formed
from turngraph.data.memory_graph.record.erase import Eraser
from turngraph.data.memory_graph.record.lookup import find_object
from turngraph.data.memory_graph.record.select_episodes import (
    episodes_of_entity,
    episodes_of_source,
)
from turngraph.data.memory_graph.record.store import Store


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Counts of what was deleted, or would be.

    Args:
        episodes: whole texts.
        theses, triplets, objects: those that only these episodes said.
        names: spellings that were seen only there.
        reopened: facts that had been superseded there and are open again.
    """

    episodes: int = 0
    theses: int = 0
    triplets: int = 0
    objects: int = 0
    names: int = 0
    reopened: int = 0


class _DryRun(Exception):
    """Rolls the transaction back."""


def forget(
    store: Store,
    episode: int | Iterable[int] | None = None,
    entity: str | int | None = None,
    source: str | None = None,
    dry_run: bool = False,
) -> Forgotten:
    """Delete episodes, an entity or a source, and everything that only they said.

    An entity is deleted with every whole episode that mentions it: those joined to it, those whose
    text has one of its names as words (unless another object has that name too), and those whose
    speaker it is. What other episodes say too stays. A fact that only deleted facts superseded is
    open again. The journal is emptied: no earlier edit can be undone.

    The whole database is rewritten, so deleting one episode takes as long as deleting many: delete
    them together.

    Args:
        store: the graph.
        episode: node id or ids.
        entity: name, or id if several objects have the name.
        source: as given with the episodes.
        dry_run: change nothing, only count.

    Raises:
        ValueError: not exactly one of the three is given; it is unknown; or another process read
            an older state for ``store.wait`` seconds: then the record has forgotten, and the files
            will when the graph is next opened for writing.
    """
    if [episode, entity, source].count(None) != 2:
        raise ValueError("forget takes one of episode, entity and source")
    found = Forgotten()
    try:
        with store.writing() as revision:
            eraser = Eraser(store.db, revision)
            node = None if entity is None else find_object(store.db, entity)
            eraser.erase(_episodes(store, episode, node, source), () if node is None else [node])
            found = Forgotten(**eraser.counts)
            if dry_run:
                raise _DryRun
            _set_pending(store, revision)
    except _DryRun:
        return found
    purge(store, revision)
    return found


def _episodes(
    store: Store, episode: int | Iterable[int] | None, node: int | None, source: str | None
) -> list[int]:
    if node is not None:
        return episodes_of_entity(store.db, node)
    if source is not None:
        found = episodes_of_source(store.db, well_formed(source))
        if not found:
            raise ValueError(f"{store.path}: no episode has the source {source!r}")
        return found
    ids = [episode] if isinstance(episode, int) else list(dict.fromkeys(episode or ()))
    for id_ in ids:
        sql = "SELECT 1 FROM nodes WHERE id = ? AND type = ?"
        if store.db.execute(sql, (id_, EPISODIC)).fetchone() is None:
            raise ValueError(f"{store.path}: #{id_} is no episode")
    return ids


def _set_pending(store: Store, revision: int) -> None:
    """Record in the same transaction that the files are still to be purged."""
    store.db.execute("INSERT OR IGNORE INTO meta VALUES ('purge', ?)", (revision,))


def finish(store: Store) -> None:
    """Purge the files if a killed process left that undone.

    Raises:
        ValueError: as ``purge``.
    """
    if (since := _pending(store)) is not None:
        purge(store, since)


def _pending(store: Store) -> int | None:
    """Return the first revision whose deletions are still in the files."""
    sql = "SELECT value FROM meta WHERE name = 'purge'"
    row: tuple[int] | None = store.db.execute(sql).fetchone()
    return None if row is None else row[0]


def purge(store: Store, since: int) -> None:
    """Remove every byte of deleted rows from all files of the database.

    Several processes may do this at the same time.

    Args:
        store: open for writing.
        since: the first revision with deletions.

    Raises:
        ValueError: another process read an older state too long, or the disk is full (a copy of
            the database is needed for a while).
    """
    with store.clear_errors():
        revision = store.revision
        marked = _pending(store)
    since = since if marked is None else min(since, marked)
    steps: tuple[Callable[[Store], None], ...] = (
        _merge_words,
        _vacuum,
        partial(_purge_derived, since=since),
        _empty_wal,
    )
    for step in tqdm(steps, desc="forget", unit="step", delay=2, leave=False):
        with store.clear_errors():
            step(store)
    with store.clear_errors():  # unless another process has deleted more meanwhile, and purges that
        sql = """DELETE FROM meta WHERE name = 'purge'
            AND NOT EXISTS (SELECT 1 FROM removed WHERE revision > ?)"""
        store.db.execute(sql, (revision,))


def _merge_words(store: Store) -> None:
    """Merge all segments of FTS5, which keep the words of deleted rows until then."""
    for table in ("name_words", "fact_words"):
        store.db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def _vacuum(store: Store) -> None:
    store.db.execute("VACUUM")


def _empty_wal(store: Store) -> None:
    """Truncate the -wal, once no process reads an older state."""
    if store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        raise ValueError(
            f"{store.path}: forgotten, but its -wal still has the text: another process has been"
            f" reading an older state for {store.wait:g} s; the next one that opens the graph for"
            " writing empties it"
        )


def _purge_derived(store: Store, since: int) -> None:
    if not store.derived.is_dir():
        return
    from turngraph.data.memory_graph.recall.adjacency import NAME
    from turngraph.data.memory_graph.recall.derived_files import drop_arrays
    from turngraph.data.memory_graph.recall.vectors import purge as purge_vectors

    drop_arrays(store.derived, NAME)  # they hold times

    sql = "SELECT kind, id FROM removed WHERE revision >= ?"
    gone = store.db.execute(sql, (since,)).fetchall()
    nodes = [id_ for kind, id_ in gone if kind == 0]
    purge_vectors(store.derived, [2 * id_ + kind for kind, id_ in gone], nodes)
