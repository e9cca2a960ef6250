"""Deletion of episodes without a trace in any file.

One transaction deletes the episodes from the record (erase.py). Then all files are purged of their
texts (purge.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import EPISODIC
from turngraph.data.memory_graph.names import well_formed
from turngraph.data.memory_graph.record.erase import Eraser
from turngraph.data.memory_graph.record.lookup import UnknownNameError, find_object
from turngraph.data.memory_graph.record.select_episodes import (
    episodes_of_entity,
    episodes_of_source,
    own_names,
)
from turngraph.data.memory_graph.record.store import Store, tried_again
from turngraph.data.memory_graph.record.wide_search import NO_OBJECT, Mention, wide_mentions
from turngraph.data.memory_graph.times import local_time
from turngraph.data.memory_graph.upkeep.purge import finish, mark

logger = logging.getLogger(__name__)

_LISTED = """SELECT n.id, n.said, e.properties, e.source, n.text FROM json_each(?) k
    JOIN nodes n ON n.id = k.value JOIN episodes e ON e.node = n.id ORDER BY n.id"""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Numbers of deleted rows, or, in a dry run, of rows that would be deleted.

    Args:
        episodes: episodes, with their whole texts.
        theses, triplets, objects: those that only these episodes state or mention.
        names: spellings that only these episodes contain.
        reopened: facts that only deleted facts had superseded, and that are open again.
        questions: utility questions of these episodes.
        themes: themes with a member or a quotation from these episodes.
    """

    episodes: int = 0
    theses: int = 0
    triplets: int = 0
    objects: int = 0
    names: int = 0
    reopened: int = 0
    questions: int = 0
    themes: int = 0


@dataclass(frozen=True, slots=True)
class Listed:
    """An episode that ``forget`` would delete; ``said`` is the time on its speaker's clock."""

    episode: int
    said: str | None
    source: str | None
    text: str


class _DryRun(Exception):
    """Raised to roll back the transaction of a dry run."""


def forget(
    store: Store,
    episode: int | Iterable[int] | None = None,
    entity: str | int | None = None,
    source: str | None = None,
    dry_run: bool = False,
    wide: bool = False,
) -> Forgotten:
    """Delete episodes, an entity or a source, and everything that only the deleted episodes state.

    An entity is deleted with every whole episode that mentions it: an episode with an edge to the
    entity, an episode whose text contains one of its names as words (unless another object has the
    name, too), or an episode whose speaker it is. With ``wide``, the episodes that
    ``other_mentions`` lists are deleted as well; if no object has the name, only these. A statement
    that a remaining episode makes, too, stays. A fact that only deleted facts superseded is open
    again. The journal is emptied, so no earlier edit can be undone.

    The whole database is rewritten, so deleting one episode takes as long as deleting many: delete
    episodes together.

    Args:
        store: the graph.
        episode: node id or ids.
        entity: name, or id if several objects have the name.
        source: ``Episode.source`` of the episodes.
        dry_run: whether to change nothing and only count.
        wide: whether to delete the entity's ``other_mentions``, too.

    Raises:
        UserError: not exactly one of episode, entity and source is given; the graph does not have
            it; ``wide`` is given without an entity; or another process read an older state for
            ``store.wait`` seconds. In this last case the record is already changed, and the files
            are purged when the graph is next opened for writing.
    """
    if [episode, entity, source].count(None) != 2:
        raise UserError("forget takes exactly one of episode, entity and source")
    if wide and entity is None:
        raise UserError("wide: only an entity can be forgotten widely")
    if not isinstance(episode, int | None):
        episode = list(episode)  # a list, as a second attempt reads it again
    chosen = partial(_chosen, store, episode, entity, source, wide)
    forgotten = _erase(store, chosen, dry_run)
    if not dry_run:
        finish(store)
    return forgotten


@tried_again
def _erase(
    store: Store, chosen: Callable[[], tuple[list[int], list[int]]], dry_run: bool
) -> Forgotten:
    forgotten = Forgotten()
    with suppress(_DryRun), store.writing() as revision:
        eraser = Eraser(store.db, revision)
        eraser.erase(*chosen())
        forgotten = Forgotten(**eraser.counts)
        if dry_run:
            raise _DryRun
        mark(store, revision)
    return forgotten


def to_forget(
    store: Store,
    episode: int | Iterable[int] | None = None,
    entity: str | int | None = None,
    source: str | None = None,
    wide: bool = False,
    limit: int = 20,
) -> list[Listed]:
    """Return the first episodes that ``forget`` would delete, in the order of the record.

    Args:
        store: the graph.
        episode, entity, source, wide: as in ``forget``.
        limit: largest number of episodes.

    Raises:
        UserError: as ``forget``.
    """
    with store.reading():
        nodes, _ = _chosen(store, episode, entity, source, wide)
        rows = store.db.execute(_LISTED, (json.dumps(sorted(nodes)[:limit]),)).fetchall()
    return [
        Listed(node, local_time(said, json.loads(properties)), source, text)
        for node, said, properties, source, text in rows
    ]


def other_mentions(store: Store, entity: str | int) -> list[Mention]:
    """Return the episodes that ``forget`` leaves without ``wide`` but that may mention an entity.

    The search finds an entity's names in other cases, forms and Unicode spellings, as handles, in
    addresses, or in parts; it also finds words that only look like a name. Names that another
    object has are not searched for. If no object has the name, as after it was forgotten, the name
    itself is searched for.

    Args:
        store: the graph.
        entity: name, or id if several objects have the name.

    Raises:
        UserError: no object has the id, or several have the name.
    """
    with store.reading():
        return _mentions(store, entity)


def _mentions(store: Store, entity: str | int) -> list[Mention]:
    if (node := _object(store, entity)) is None:
        return wide_mentions(store.db, NO_OBJECT, [str(entity)], ())
    known = episodes_of_entity(store.db, node)
    return wide_mentions(store.db, node, own_names(store.db, node), known)


def _object(store: Store, entity: str | int) -> int | None:
    """Return the id of an object; None if no object has the name, as after it was forgotten."""
    try:
        return find_object(store.db, entity)
    except UnknownNameError:
        return None


def _chosen(
    store: Store,
    episode: int | Iterable[int] | None,
    entity: str | int | None,
    source: str | None,
    wide: bool,
) -> tuple[list[int], list[int]]:
    """Return the episodes to delete, and the objects to delete with all their names."""
    if entity is None:
        return _episodes(store, episode, source), []
    others = [mention.episode for mention in _mentions(store, entity)] if wide else []
    if others and _object(store, entity) is None:
        return others, []
    node = find_object(store.db, entity)
    return sorted({*episodes_of_entity(store.db, node), *others}), [node]


def _episodes(store: Store, episode: int | Iterable[int] | None, source: str | None) -> list[int]:
    if source is not None:
        episodes = episodes_of_source(store.db, well_formed(source))
        if not episodes:
            name = Path(source).name  # the source of a file
            is_known = name != source and episodes_of_source(store.db, well_formed(name))
            hint = f"; did you mean {name!r}?" if is_known else ""
            raise UserError(f"{store}: no episode has the source {source!r}{hint}")
        return episodes
    assert episode is not None, "one of the three is given"
    ids = [episode] if isinstance(episode, int) else list(dict.fromkeys(episode))
    for id_ in ids:
        sql = "SELECT 1 FROM nodes WHERE id = ? AND type = ?"
        if abs(id_) >= 2**63 or store.db.execute(sql, (id_, EPISODIC)).fetchone() is None:
            raise UserError(f"{store}: #{id_} is not an episode")
    return ids
