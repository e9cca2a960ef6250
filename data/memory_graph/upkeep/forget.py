"""Deletion of episodes without a trace in any file.

One transaction deletes them from the record (erase.py). Then every file is purged (purge.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turngraph.data.memory_graph.memory_types import EPISODIC
from turngraph.data.memory_graph.names import well_formed
from turngraph.data.memory_graph.record.erase import Eraser
from turngraph.data.memory_graph.record.lookup import find_object
from turngraph.data.memory_graph.record.select_episodes import (
    episodes_of_entity,
    episodes_of_source,
)
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.upkeep.purge import finish, mark


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
            mark(store, revision)
    except _DryRun:
        return found
    finish(store)
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
