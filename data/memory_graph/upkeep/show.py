"""Facts of one object: now, and over time."""

from __future__ import annotations

from dataclasses import dataclass

from turngraph.data.memory_graph.memory_types import EPISODIC_EDGE, HYPER, SIMPLE, Fact
from turngraph.data.memory_graph.record.lookup import find_object
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import now, start

_FACTS = f"""
SELECT 2 * id + 1 FROM edges WHERE type = {SIMPLE} AND (source = ?1 OR target = ?1)
UNION SELECT 2 * target FROM edges WHERE type = {HYPER} AND source = ?1"""
_ALIASES = """
SELECT a.spelling, (SELECT count(*) FROM sightings s WHERE s.alias = a.id) FROM aliases a
WHERE a.node = ? ORDER BY a.id"""
_EPISODES = f"SELECT count(*) FROM edges WHERE source = ? AND type = {EPISODIC_EDGE}"


@dataclass(frozen=True, slots=True)
class Shown:
    """Object with the facts that hold now.

    Args:
        node: its id.
        name: its name.
        aliases: every spelling with the number of episodes where it was seen.
        num_episodes: number of episodes that mention it.
        facts: simple triplets and theses that hold now, oldest first.
    """

    node: int
    name: str
    aliases: tuple[tuple[str, int], ...]
    num_episodes: int
    facts: tuple[Fact, ...]


def history(store: Store, entity: str | int) -> list[Fact]:
    """Return all simple triplets and theses of an object, also closed ones, in order of time.

    The time is the begin, else the first mention; facts without either come first.

    Raises:
        ValueError: no object has that name or id, or several have.
    """
    with store.reading():
        node = find_object(store.db, entity)
        return sorted(store.facts(key for (key,) in store.db.execute(_FACTS, (node,))), key=_when)


def _when(fact: Fact) -> tuple[float, int]:
    said = next((entry.said for entry in fact.provenance if entry.said is not None), None)
    begin = fact.valid_from or said
    return (float("-inf") if begin is None else start(begin)), fact.key


def show(store: Store, entity: str | int) -> Shown:
    """Return an object with the facts that hold now.

    Raises:
        ValueError: no object has that name or id, or several have.
    """
    with store.reading():
        facts = history(store, entity)
        node = find_object(store.db, entity)
        name = store.db.execute("SELECT text FROM nodes WHERE id = ?", (node,)).fetchone()[0]
        aliases = tuple(store.db.execute(_ALIASES, (node,)))
        [episodes] = store.db.execute(_EPISODES, (node,)).fetchone()
    moment = start(now())
    held = tuple(fact for fact in facts if _holds(fact, moment))
    return Shown(node, name, aliases, episodes, held)


def _holds(fact: Fact, moment: int) -> bool:
    begun = fact.valid_from is None or start(fact.valid_from) <= moment
    return begun and (fact.valid_to is None or moment < start(fact.valid_to))
