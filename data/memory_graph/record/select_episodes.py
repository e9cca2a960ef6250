"""Selects the episodes of a source, an origin or an object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from turngraph.data.memory_graph.memory_types import EPISODIC, EPISODIC_EDGE
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.facts import index_words

_NAMES = """
SELECT spelling FROM aliases a WHERE node = ?1 AND NOT EXISTS
(SELECT 1 FROM aliases o WHERE o.alias = a.alias AND o.node != ?1)"""


def episodes_of_source(db: Database, source: str) -> list[int]:
    """Return the episodes of a source, oldest first."""
    sql = "SELECT node FROM episodes WHERE source = ? ORDER BY node"
    return [node for (node,) in db.execute(sql, (source,))]


def episodes_of_origins(db: Database, origins: Iterable[str]) -> list[int]:
    """Return the episodes of these origins in order; unknown origins are skipped."""
    sql = "SELECT node FROM episodes WHERE origin = ?"
    return [node for origin in origins for (node,) in db.execute(sql, (origin,))]


def episodes_of_entity(db: Database, node: int) -> list[int]:
    """Return the episodes that mention an object, oldest first.

    These are the episodes with an edge to the object; those with one of its names, in that spelling
    and as whole words, in their text or in a thesis; and those whose speaker has its name. A name
    that another object has, too, is searched in no other episodes.
    """
    sql = f"SELECT target FROM edges WHERE source = ? AND type = {EPISODIC_EDGE}"
    episodes = {target for (target,) in db.execute(sql, (node,))}
    names = own_names(db, node)
    for name in names:
        episodes.update(_with_words(db, name))
    episodes.update(_spoken_by(db, {alias(name) for name in names}))
    return sorted(episodes)


def own_names(db: Database, node: int) -> list[str]:
    """Return the spellings of an object that no other object has."""
    return [name for (name,) in db.execute(_NAMES, (node,))]


def _with_words(db: Database, name: str) -> Iterator[int]:
    phrase = index_words(name)
    if not phrase:
        return
    for node, type in db.words.spelled(phrase, name):
        if type == EPISODIC:
            yield node
        else:
            sql = "SELECT episode FROM provenance WHERE fact = ?"
            yield from (episode for (episode,) in db.execute(sql, (2 * node,)))


def _spoken_by(db: Database, names: set[str]) -> Iterator[int]:
    speakers = db.execute("SELECT DISTINCT speaker FROM episodes WHERE speaker IS NOT NULL")
    for (speaker,) in speakers.fetchall():
        if alias(speaker) in names:
            sql = "SELECT node FROM episodes WHERE speaker = ?"
            yield from (node for (node,) in db.execute(sql, (speaker,)))
