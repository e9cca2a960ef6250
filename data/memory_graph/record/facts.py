"""Facts as the record has them: read whole, and put into the word indexes."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from turngraph.data.memory_graph.memory_types import (
    EPISODIC,
    EPISODIC_EDGE,
    HYPER,
    OBJECT,
    SIMPLE,
    THESIS,
    Ends,
    Fact,
    Provenance,
    edge_key,
    node_key,
)
from turngraph.data.memory_graph.record.fact_texts import simple_text
from turngraph.data.normalise import words

_SIMPLE = f"""
SELECT e.id, s.id, s.text, e.relation, o.id, o.text, e.valid_from, e.valid_to, e.hypothesis
FROM json_each(?) k JOIN edges e ON e.id = k.value AND e.type = {SIMPLE}
JOIN nodes s ON s.id = e.source JOIN nodes o ON o.id = e.target"""
_ENDS = """
SELECT e.id, s.text, e.relation, o.text FROM json_each(?) k JOIN edges e ON e.id = k.value
JOIN nodes s ON s.id = e.source JOIN nodes o ON o.id = e.target"""
_TEXTS = "SELECT n.id, n.text FROM json_each(?) k JOIN nodes n ON n.id = k.value"
_NODES = f"""
SELECT n.id, n.type, n.text, n.valid_from, n.valid_to, n.hypothesis
FROM json_each(?) k JOIN nodes n ON n.id = k.value AND n.type IN ({THESIS}, {EPISODIC})"""
_MENTIONED = f"""
SELECT e.target, o.id, o.text FROM json_each(?) k
JOIN edges e ON e.target = k.value AND e.type IN ({HYPER}, {EPISODIC_EDGE})
JOIN nodes o ON o.id = e.source AND o.type = {OBJECT} ORDER BY e.id"""
_PROVENANCE = """
SELECT p.fact, p.episode, p.start, p.stop, e.source, e.speaker, n.said FROM json_each(?) k
JOIN provenance p ON p.fact = k.value
JOIN episodes e ON e.node = p.episode JOIN nodes n ON n.id = p.episode
ORDER BY n.said IS NOT NULL, n.said, p.episode, p.start"""
_EPISODES = """
SELECT e.node, e.source, e.speaker, n.said FROM json_each(?) k
JOIN episodes e ON e.node = k.value JOIN nodes n ON n.id = e.node"""


def load_facts(db: sqlite3.Connection, keys: Iterable[int]) -> list[Fact]:
    """The facts of these keys, in their order, whenever they hold.

    Raises:
        KeyError: there is no such fact.
    """
    keys = list(keys)
    edges = json.dumps([key >> 1 for key in keys if key & 1])
    nodes = json.dumps([key >> 1 for key in keys if not key & 1])
    places = _places(db, keys)
    found = {}
    for edge, *values in db.execute(_SIMPLE, (edges,)):
        found[edge_key(edge)] = _simple(edge_key(edge), *values, places=places)
    mentioned = defaultdict(list)
    for target, node, name in db.execute(_MENTIONED, (nodes,)):
        mentioned[target].append((node, name))
    for node, type, text, *holds, hypothesis in db.execute(_NODES, (nodes,)):
        key = node_key(node)
        if type == EPISODIC:
            [place] = places[key]
            places[key] = [Provenance(node, (0, len(text)), *place)]
        kind = "thesis" if type == THESIS else "episodic"
        entities, said_in = tuple(mentioned[node]), tuple(places[key])
        found[key] = Fact(key, kind, text, None, entities, *holds, bool(hypothesis), said_in)
    return [found[key] for key in keys]


def _simple(
    key: int, source: int, subject: str, relation: str, target: int, object: str,
    valid_from: str | None, valid_to: str | None, hypothesis: int, places: dict[int, list],
) -> Fact:  # fmt: skip
    text = simple_text(valid_from, subject, relation, object)
    entities = ((source, subject), (target, object))[: 1 if source == target else 2]
    ends, said_in = (subject, relation, object), tuple(places[key])
    return Fact(
        key, "simple", text, ends, entities, valid_from, valid_to, bool(hypothesis), said_in
    )


def _places(db: sqlite3.Connection, keys: list[int]) -> dict[int, list]:
    """Where each fact was said; of an episode its source, speaker and time only."""
    places: dict[int, list] = defaultdict(list)
    for fact, episode, start, stop, *rest in db.execute(_PROVENANCE, (json.dumps(keys),)):
        places[fact].append(Provenance(episode, (start, stop), *rest))
    nodes = [key >> 1 for key in keys if not key & 1]
    for node, *rest in db.execute(_EPISODES, (json.dumps(nodes),)):
        places[node_key(node)].append(tuple(rest))
    return places


def plain_texts(
    db: sqlite3.Connection, keys: Sequence[int]
) -> Iterator[tuple[int, tuple[str, Ends | None]]]:
    """Key, text without its time, and ends of facts."""
    edges = json.dumps([key >> 1 for key in keys if key & 1])
    for edge, *ends in db.execute(_ENDS, (edges,)):
        yield edge_key(edge), (" ".join(ends), tuple(ends))
    nodes = json.dumps([key >> 1 for key in keys if not key & 1])
    for node, text in db.execute(_TEXTS, (nodes,)):
        yield node_key(node), (text, None)


def index_words(text: str) -> str:
    """A text as the word indexes hold it."""
    return " ".join(words(text))


_FACT_WORDS = f"""
SELECT 2 * n.id, n.text FROM json_each(?) k
JOIN nodes n ON n.id = k.value >> 1 AND NOT k.value & 1 AND n.type IN ({THESIS}, {EPISODIC})
UNION ALL
SELECT 2 * e.id + 1, s.text || ' ' || e.relation || ' ' || o.text FROM json_each(?) k
JOIN edges e ON e.id = k.value >> 1 AND k.value & 1 AND e.type = {SIMPLE}
JOIN nodes s ON s.id = e.source JOIN nodes o ON o.id = e.target"""
_ALIAS_WORDS = "SELECT a.id, a.spelling FROM json_each(?) k JOIN aliases a ON a.id = k.value"


def index_facts(db: sqlite3.Connection, keys: Iterable[int], remove: bool = False) -> None:
    """Put facts into ``fact_words`` as they read now, simple triplets without their time.

    Args:
        db: inside a write.
        keys: of the facts.
        remove: take them out instead. The index has no copy of its texts: to change what a fact
            reads as (a name at one of its ends), take it out, change it, and put it in again.
    """
    ids = json.dumps(list(keys))
    index_rows(db, "fact_words", db.execute(_FACT_WORDS, (ids, ids)), remove)


def index_aliases(db: sqlite3.Connection, aliases: Iterable[int], remove: bool = False) -> None:
    """Put rows of ``aliases`` into ``name_words``, or take them out; see ``index_facts``."""
    rows = db.execute(_ALIAS_WORDS, (json.dumps(list(aliases)),))
    index_rows(db, "name_words", rows, remove)


def index_rows(
    db: sqlite3.Connection, table: str, rows: Iterable[tuple[int, str]], remove: bool
) -> None:
    """Put rows of ids and texts into ``name_words`` or ``fact_words``, or take them out."""
    indexed = sorted((number, index_words(text)) for number, text in rows)
    if remove:
        sql = f"INSERT INTO {table} ({table}, rowid, words) VALUES ('delete', ?, ?)"
    else:
        sql = f"INSERT INTO {table} (rowid, words) VALUES (?, ?)"
    db.executemany(sql, indexed)
