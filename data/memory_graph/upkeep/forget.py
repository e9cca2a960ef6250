"""Forgetting: what only the forgotten episodes gave goes, and no file keeps a byte of it.

First one transaction takes it out of the record (erase.py). Then its words are merged out of the
word indexes, the database is written again (pages keep copies of rows that once moved), the -wal is
cut to nothing, and its vectors are zeroed. A process that is killed in between is finished by the
next one that opens the graph for writing.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """What was forgotten, or would be.

    Args:
        episodes: texts, whole.
        theses, triplets, objects: what only those said.
        names: spellings that were seen only there.
        reopened: facts that had been superseded there and now hold again.
    """

    episodes: int = 0
    theses: int = 0
    triplets: int = 0
    objects: int = 0
    names: int = 0
    reopened: int = 0


class _DryRun(Exception):
    """Takes the transaction back."""


def forget(
    store: Store,
    episode: int | Iterable[int] | None = None,
    entity: str | int | None = None,
    source: str | None = None,
    dry_run: bool = False,
) -> Forgotten:
    """Forget episodes, an entity or a source, and all that only they gave.

    An entity is forgotten with every episode, whole, that mentions it: those joined to it, those
    whose text has one of its names as words (unless another object has that name too), and those
    that it speaks in. What other episodes say as well stays. What had been superseded only by what
    goes holds again. The journal is emptied: nothing done before can be undone.

    Every byte of the database is written again, so forgetting takes as long for one episode as for
    many: forget them together.

    Args:
        store: the graph.
        episode: node id or ids.
        entity: name, or id where several objects have the name.
        source: as it was given with the episodes.
        dry_run: change nothing, only tell what would go.

    Raises:
        ValueError: not one of the three is given; there is nothing of that name or number; or
            another process kept reading an older state for ``store.wait`` seconds: the record has
            forgotten, and the files will when the graph is next opened for writing.
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
    numbers = [episode] if isinstance(episode, int) else list(dict.fromkeys(episode or ()))
    for number in numbers:
        sql = "SELECT 1 FROM nodes WHERE id = ? AND type = ?"
        if store.db.execute(sql, (number, EPISODIC)).fetchone() is None:
            raise ValueError(f"{store.path}: #{number} is no episode")
    return numbers


def _set_pending(store: Store, revision: int) -> None:
    """Note, in the same transaction, that the files still have to forget."""
    store.db.execute("INSERT OR IGNORE INTO meta VALUES ('purge', ?)", (revision,))


def finish(store: Store) -> None:
    """Purge the files of what a process that was killed has forgotten, if there was one.

    Raises:
        ValueError: as of ``purge``.
    """
    if (since := _pending(store)) is not None:
        purge(store, since)


def _pending(store: Store) -> int | None:
    """The revision from which on the files still have to forget."""
    row = store.db.execute("SELECT value FROM meta WHERE name = 'purge'").fetchone()
    return None if row is None else row[0]


def purge(store: Store, since: int) -> None:
    """Leave no byte of what is not in the record any more in any file of the database.

    Another process may do the same at the same time.

    Args:
        store: open for writing.
        since: the revision from which on something was forgotten.

    Raises:
        ValueError: another process kept reading an older state, or the disk is full (it takes the
            database's size for a while).
    """
    with store.clear_errors():
        revision = store.revision
        marked = _pending(store)
    since = since if marked is None else min(since, marked)
    steps = (_merge_words, _vacuum, partial(_purge_derived, since=since), _empty_wal)
    for step in tqdm(steps, desc="forget", unit="step", delay=2, leave=False):
        with store.clear_errors():
            step(store)
    with store.clear_errors():  # unless more was forgotten meanwhile, which is for who did that
        sql = """DELETE FROM meta WHERE name = 'purge'
            AND NOT EXISTS (SELECT 1 FROM removed WHERE revision > ?)"""
        store.db.execute(sql, (revision,))


def _merge_words(store: Store) -> None:
    """Words of deleted rows stay in the segments of FTS5 until all of them are merged."""
    for table in ("name_words", "fact_words"):
        store.db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def _vacuum(store: Store) -> None:
    store.db.execute("VACUUM")


def _empty_wal(store: Store) -> None:
    """Cut the -wal to nothing, which has to wait for those who still read an older state."""
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

    drop_arrays(store.derived, NAME)  # times stand in them

    sql = "SELECT kind, id FROM removed WHERE revision >= ?"
    gone = store.db.execute(sql, (since,)).fetchall()
    nodes = [number for kind, number in gone if kind == 0]
    purge_vectors(store.derived, [2 * number + kind for kind, number in gone], nodes)
