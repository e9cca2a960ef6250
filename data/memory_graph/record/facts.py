"""Reader of whole facts, and writer of the word indexes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from turngraph.configs.progress import track
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
from turngraph.data.memory_graph.record.database import Database, Rows
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
SELECT p.fact, p.episode, p.start, p.stop, e.source, e.speaker, n.said,
    json_extract(e.properties, '$.utc_offset') FROM json_each(?) k
JOIN provenance p ON p.fact = k.value
JOIN episodes e ON e.node = p.episode JOIN nodes n ON n.id = p.episode
ORDER BY n.said IS NOT NULL, n.said, p.episode, p.start"""
_EPISODES = """
SELECT e.node, e.source, e.speaker, n.said, json_extract(e.properties, '$.utc_offset')
FROM json_each(?) k
JOIN episodes e ON e.node = k.value JOIN nodes n ON n.id = e.node"""


def load_facts(db: Database, keys: Iterable[int]) -> list[Fact]:
    """Return the facts with these keys, in order; facts that no longer hold are included.

    Raises:
        KeyError: a fact is missing.
    """
    keys = list(keys)
    edges = json.dumps([key >> 1 for key in keys if key & 1])
    nodes = json.dumps([key >> 1 for key in keys if not key & 1])
    provenance = _provenance(db, keys)
    facts: dict[int, Fact] = {}
    for edge, source_id, source, relation, target_id, target, *holds in db.execute(
        _SIMPLE, (edges,)
    ):
        valid_from, valid_to, hypothesis = holds
        key = edge_key(edge)
        facts[key] = Fact(
            key=key,
            type="simple",
            text=simple_text(valid_from, source, relation, target),
            ends=(source, relation, target),
            entities=((source_id, source), (target_id, target))[
                : 1 if source_id == target_id else 2
            ],
            valid_from=valid_from,
            valid_to=valid_to,
            hypothesis=bool(hypothesis),
            provenance=tuple(provenance[key]),
        )
    episodes = {node: rest for node, *rest in db.execute(_EPISODES, (nodes,))}
    mentioned: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for target, node, name in db.execute(_MENTIONED, (nodes,)):
        mentioned[target].append((node, name))
    for node, type, text, valid_from, valid_to, hypothesis in db.execute(_NODES, (nodes,)):
        key = node_key(node)
        if type == EPISODIC:
            provenance[key] = [Provenance(node, (0, len(text)), *episodes[node])]
        facts[key] = Fact(
            key=key,
            type="thesis" if type == THESIS else "episodic",
            text=text,
            entities=tuple(mentioned[node]),
            valid_from=valid_from,
            valid_to=valid_to,
            hypothesis=bool(hypothesis),
            provenance=tuple(provenance[key]),
        )
    return [facts[key] for key in keys]


def _provenance(db: Database, keys: list[int]) -> dict[int, list[Provenance]]:
    """Return every span that states a triplet or a thesis, by fact key."""
    provenance: dict[int, list[Provenance]] = defaultdict(list)
    for fact, episode, start, stop, *rest in db.execute(_PROVENANCE, (json.dumps(keys),)):
        provenance[fact].append(Provenance(episode, (start, stop), *rest))
    return provenance


def plain_texts(db: Database, keys: Sequence[int]) -> Iterator[tuple[int, tuple[str, Ends | None]]]:
    """Yield key, text without time, and ends of facts; theses and episodes have no ends."""
    edges = json.dumps([key >> 1 for key in keys if key & 1])
    for edge, *ends in db.execute(_ENDS, (edges,)):
        yield edge_key(edge), (" ".join(ends), tuple(ends))
    nodes = json.dumps([key >> 1 for key in keys if not key & 1])
    for node, text in db.execute(_TEXTS, (nodes,)):
        yield node_key(node), (text, None)


def index_words(text: str) -> str:
    """Return a text in the form of the word indexes."""
    return " ".join(words(text))


_FACT_WORDS = f"""
SELECT 2 * n.id, n.text FROM json_each(?) k
JOIN nodes n ON n.id = k.value AND n.type IN ({THESIS}, {EPISODIC})
UNION ALL
SELECT 2 * e.id + 1, s.text || ' ' || e.relation || ' ' || o.text FROM json_each(?) k
JOIN edges e ON e.id = k.value AND e.type = {SIMPLE}
JOIN nodes s ON s.id = e.source JOIN nodes o ON o.id = e.target"""
_ALIAS_WORDS = "SELECT a.id, a.spelling FROM json_each(?) k JOIN aliases a ON a.id = k.value"


def index_facts(db: Database, keys: Iterable[int], remove: bool = False) -> int:
    """Add facts to ``fact_words`` with their current text; simple triplets without time.

    Returns the number of the given facts that the record has.

    Args:
        db: the record, in a write transaction.
        keys: keys of the facts.
        remove: remove the facts instead. The index keeps no copy of the texts, so it must be given
            the same text again: to change a fact's text (a name at one of its ends), remove the
            fact, change the text, and add the fact again.
    """
    return index_rows(db, "fact_words", indexed_texts(db, keys), remove)


def indexed_texts(db: Database, keys: Iterable[int]) -> Rows:
    """Return the keys of facts that the record has, each with its text in ``fact_words``."""
    keys = list(keys)
    nodes, edges = ([key >> 1 for key in keys if key & 1 == odd] for odd in (0, 1))
    return db.execute(_FACT_WORDS, (json.dumps(nodes), json.dumps(edges)))


def index_aliases(db: Database, aliases: Iterable[int], remove: bool = False) -> None:
    """Add rows of ``aliases`` to ``name_words``, or remove them; see ``index_facts``."""
    rows = db.execute(_ALIAS_WORDS, (json.dumps(list(aliases)),))
    index_rows(db, "name_words", rows, remove)


def index_rows(db: Database, table: str, rows: Iterable[tuple[int, str]], remove: bool) -> int:
    """Add rows of ids and texts to ``name_words`` or ``fact_words``, or remove them.

    Returns the number of rows.
    """
    indexed = [(row_id, index_words(text)) for row_id, text in rows]
    if remove:
        db.words.remove(table, indexed)
    else:
        db.words.add(table, indexed)
    return len(indexed)


_EVERY_FACT = f"""
SELECT 2 * id, text FROM nodes WHERE type IN ({THESIS}, {EPISODIC})
UNION ALL
SELECT 2 * e.id + 1, s.text || ' ' || coalesce(e.relation, '') || ' ' || o.text FROM edges e
JOIN nodes s ON s.id = e.source JOIN nodes o ON o.id = e.target WHERE e.type = {SIMPLE}"""
INDEXED = {"name_words": "SELECT id, spelling FROM aliases", "fact_words": _EVERY_FACT}
"""Query for the rows of each word index."""
BATCH = 1000


def index_everything(db: Database) -> None:
    """Rebuild the word indexes from the record, in a write transaction."""
    for table, sql in INDEXED.items():
        db.words.clear(table)
        rows = iter(track(db.scan(sql), f"fill {table}", "rows", delay=2, leave=False))
        while batch := list(islice(rows, BATCH)):
            index_rows(db, table, batch, remove=False)
