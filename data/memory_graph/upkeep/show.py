"""Reads the facts of an object, now and over time, and the turns of chats and conversations."""

from __future__ import annotations

import json
from dataclasses import dataclass

from turngraph.data.memory_graph.memory_types import (
    EPISODIC_EDGE,
    HYPER,
    SIMPLE,
    Episode,
    Fact,
)
from turngraph.data.memory_graph.record.ended_parts import holds_between, with_ends
from turngraph.data.memory_graph.record.lookup import find_object
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import local_time, now, start
from turngraph.data.memory_graph.turns import KIND, is_history, question_size

_FACTS = f"""
SELECT 2 * id + 1 FROM edges WHERE type = {SIMPLE} AND (source = ?1 OR target = ?1)
UNION SELECT 2 * target FROM edges WHERE type = {HYPER} AND source = ?1"""
_ALIASES = """
SELECT a.spelling, (SELECT count(*) FROM sightings s WHERE s.alias = a.id) FROM aliases a
WHERE a.node = ? ORDER BY a.id"""
_EPISODES = f"SELECT count(*) FROM edges WHERE source = ? AND type = {EPISODIC_EDGE}"

_TURNS = """
SELECT e.node, e.properties, e.speaker, n.said, e.source, n.text
FROM episodes e JOIN nodes n ON n.id = e.node
WHERE json_extract(e.properties, '$.kind') IN ('question', 'answer')
    OR json_extract(e.properties, '$.question') IS NOT NULL ORDER BY e.node"""


@dataclass(frozen=True, slots=True)
class Turn:
    """Episode of a chat or of a conversation.

    Args:
        episode: node id of the episode.
        kind: ``question`` or ``answer`` of a chat, or ``turn``: a conversation's question with its
            answer.
        speaker, source: fields of the episode.
        time: when it was said, as the speaker's clock showed it.
        text: text of the episode.
    """

    episode: int
    kind: str
    speaker: str | None
    time: str | None
    source: str | None
    text: str

    @property
    def recalled(self) -> bool:
        """Whether the turn can be evidence; of a chat's question only the facts can be."""
        return self.kind == "turn"


def turns(store: Store) -> list[Turn]:
    """Return the turns of chats and conversations in the order in which they were remembered."""
    with store.reading():
        rows = store.db.execute(_TURNS).fetchall()
    all_turns: list[Turn] = []
    for node, properties, speaker, time, source, text in rows:
        episode = Episode(text, properties=json.loads(properties))
        time = local_time(time, episode.properties)
        if is_history(episode):
            all_turns.append(Turn(node, episode.properties[KIND], speaker, time, source, text))
        elif question_size(episode) is not None:  # else a user gave a property of this name
            all_turns.append(Turn(node, "turn", speaker, time, source, text))
    return all_turns


@dataclass(frozen=True, slots=True)
class Shown:
    """Object with its facts that hold now.

    Args:
        node: node id of the object.
        name: name of the object.
        aliases: every spelling with the number of episodes that contain it.
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

    The time of a fact is its begin, else its first mention; facts without either come first. A
    thesis of which a part has ended has ``partly_until``. Facts that may have ended are marked, if
    earlier questions have stored vectors.

    Raises:
        UserError: no object has that name or id, or several have.
    """
    with store.reading():
        from turngraph.data.memory_graph.recall.ended_marks import stored_marks  # needs NumPy

        node = find_object(store.db, entity)
        facts = store.facts(key for (key,) in store.db.execute(_FACTS, (node,)))
        facts = sorted(with_ends(store.db, facts, start(now())), key=_when)
        return list(stored_marks(store).about(facts))


def _when(fact: Fact) -> tuple[float, int]:
    said = next((entry.said for entry in fact.provenance if entry.said is not None), None)
    begin = fact.valid_from or said
    return (float("-inf") if begin is None else start(begin)), fact.key


def show(store: Store, entity: str | int) -> Shown:
    """Return an object with its facts of ``history`` that hold now.

    Raises:
        UserError: no object has that name or id, or several have.
    """
    with store.reading():
        facts = history(store, entity)
        node = find_object(store.db, entity)
        name = store.db.execute("SELECT text FROM nodes WHERE id = ?", (node,)).fetchone()[0]
        aliases = tuple(store.db.execute(_ALIASES, (node,)))
        [episodes] = store.db.execute(_EPISODES, (node,)).fetchone()
    moment = start(now())
    held = tuple(fact for fact in facts if holds_between((fact.valid_from, fact.valid_to), moment))
    return Shown(node, name, aliases, episodes, held)
