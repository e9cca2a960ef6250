"""Reads the open facts around a new statement, which the statement may replace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from string import ascii_lowercase, ascii_uppercase

from turngraph.data.memory_graph.memory_types import (
    HYPER,
    SIMPLE,
    THESIS,
    Ends,
    LazyFacts,
    Replaced,
    edge_key,
    node_key,
)
from turngraph.data.memory_graph.names import alias, text_hash
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.facts import load_facts, plain_texts

MAX_KNOWN = 40
"""Maximum number of facts of one kind with which a new statement is compared; hubs have more."""
LOOK_BACK = 160
"""Number of an entity's newest edges that are searched for open facts."""
MAX_RELATIONS = 120
_OPEN = "(valid_to IS NULL OR valid_to > :moment)"
# without statistics SQLite would scan all edges of a hub
_OF_SUBJECT = f"edges INDEXED BY simple_edges WHERE type = {SIMPLE} AND source = :subject"
_SAME = f"""
SELECT id FROM {_OF_SUBJECT} AND relation = :relation AND valid_to IS NULL AND id < :edge
UNION ALL
SELECT id FROM {_OF_SUBJECT} AND relation = :relation AND valid_to > :moment AND id < :edge
ORDER BY id DESC LIMIT {MAX_KNOWN}"""
_RELATIONS = f"""
WITH RECURSIVE known (relation, place) AS (
    SELECT min(relation), 1 FROM {_OF_SUBJECT}
    UNION ALL
    SELECT (SELECT min(relation) FROM {_OF_SUBJECT} AND relation > known.relation), place + 1
    FROM known WHERE relation IS NOT NULL AND place < {MAX_RELATIONS})
SELECT (SELECT id FROM {_OF_SUBJECT} AND relation = known.relation
    AND valid_to IS NULL AND id < :edge ORDER BY target DESC LIMIT 1)
FROM known WHERE relation IS NOT NULL"""
_AT_END = f"""
SELECT id FROM (SELECT id, valid_to FROM edges WHERE {{end}} = :node AND type = {SIMPLE}
AND id < :edge ORDER BY id DESC LIMIT {LOOK_BACK}) WHERE {_OPEN} LIMIT {MAX_KNOWN}"""
_THESES = f"""
SELECT target FROM (SELECT target FROM edges WHERE source = :node AND type = {HYPER}
AND target < :thesis ORDER BY id DESC LIMIT {LOOK_BACK}) WHERE NOT EXISTS (
SELECT 1 FROM nodes INDEXED BY nodes_by_end
WHERE id = target AND valid_to IS NOT NULL AND valid_to <= :moment) LIMIT {MAX_KNOWN}"""
_PAIRED = f"""
WITH paired AS MATERIALIZED (SELECT t.fact, t.fact >> 1 AS node FROM provenance f
    JOIN provenance t ON t.episode = f.episode AND t.start < f.stop AND t.stop > f.start
    WHERE f.fact = :fact AND t.fact % 2 = 0)
SELECT fact FROM paired JOIN nodes n ON n.id = node AND n.type = {THESIS}
WHERE n.id < :thesis AND {_OPEN} ORDER BY fact"""
_NAMED = f"""
SELECT id FROM edges WHERE type = {SIMPLE} AND id < :edge AND {_OPEN}{{conditions}} ORDER BY id"""
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_NAMED_THESIS = f"""
SELECT id FROM nodes WHERE hash = :hash AND type = {THESIS} AND id < :thesis AND {_OPEN}"""


class FactCache:
    """Cache of the texts and ends of facts during one write.

    Args:
        db: the record, in a write transaction that changes no words of facts.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._texts: dict[int, tuple[str, Ends | None]] = {}

    def lazy(self, find: Callable[[], Iterable[int]]) -> LazyFacts:
        """Return the facts whose keys ``find`` returns; nothing is read before they are used."""
        return LazyFacts(find, self._read_texts, lambda keys: load_facts(self._db, keys))

    def _read_texts(self, keys: Sequence[int]) -> list[tuple[str, Ends | None]]:
        missing = [key for key in keys if key not in self._texts]
        if missing:
            self._texts.update(plain_texts(self._db, missing))
        return [self._texts[key] for key in keys]


def around_triplet(
    db: Database, key: int, ends: tuple[int, str, int], moment: str
) -> Iterator[int]:
    """Yield keys of the simple triplets at both ends of a new triplet that hold at a moment.

    The triplets with its subject and relation come first, then the newest at either end, then one
    for each other relation of its subject, so that old facts of a hub are not missed.

    Args:
        db: the record.
        key: key of the new triplet; later triplets are excluded.
        ends: subject node, relation, object node.
        moment: ISO time.
    """
    subject, relation, target = ends
    values = {"subject": subject, "relation": relation, "edge": key >> 1, "moment": moment}
    same = [edge for (edge,) in db.execute(_SAME, values)]
    near: set[int] = set()
    for node in {subject, target}:
        for end in ("source", "target"):
            rows = db.execute(_AT_END.format(end=end), values | {"node": node})
            near.update(edge for (edge,) in rows)
    newest = sorted(near, reverse=True)[:MAX_KNOWN]
    others = [edge for (edge,) in db.execute(_RELATIONS, values) if edge is not None]
    yield from map(edge_key, dict.fromkeys((*same, *newest, *sorted(others, reverse=True))))


def around_thesis(
    db: Database, key: int, entities: Iterable[int], closed: Iterable[int], moment: str
) -> Iterator[int]:
    """Yield keys of the theses that mention a new thesis's entities and hold at a moment.

    First come theses whose sentence states a triplet that the new sentence replaces, then the
    theses that share most entities with the new thesis, the newest first.

    Args:
        db: the record.
        key: key of the new thesis; later theses are excluded.
        entities: object nodes that the new thesis mentions.
        closed: keys of the triplets that triplets of the new thesis's span replaced.
        moment: ISO time.
    """
    values = {"thesis": key >> 1, "moment": moment}
    theses: dict[int, None] = {}
    for fact in closed:
        theses |= dict.fromkeys(t for (t,) in db.execute(_PAIRED, values | {"fact": fact}))
    shared = Counter[int]()
    for node in entities:
        shared.update(node_key(t) for (t,) in db.execute(_THESES, values | {"node": node}))
    theses |= dict.fromkeys(sorted(shared, key=lambda thesis: (-shared[thesis], -thesis)))
    yield from islice(theses, MAX_KNOWN)


def named(db: Database, what: Replaced, before: tuple[int, int], moment: str) -> Iterator[int]:
    """Yield keys of the open facts that a description matches; case of relations and theses is
    ignored.

    Args:
        db: the record.
        what: description of the facts.
        before: exclusive limits of the edge ids and the thesis ids.
        moment: ISO time.
    """
    values: dict[str, object] = {"edge": before[0], "thesis": before[1], "moment": moment}
    if what.text is not None:
        values["hash"] = text_hash(THESIS, what.text)
        yield from (node_key(node) for (node,) in db.execute(_NAMED_THESIS, values))
    if (what.subject, what.object) != (None, None):
        yield from (edge_key(edge) for (edge,) in db.execute(*_edges_named(what, values)))


def _edges_named(what: Replaced, values: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Return the query for the edges that a description matches, and its values."""
    conditions = ""
    for column, name in (("source", what.subject), ("target", what.object)):
        if name is not None:
            placeholder = f":{column}"
            conditions += f" AND {column} IN (SELECT node FROM aliases WHERE alias = {placeholder})"
            values[column] = alias(name)
    if what.relation is not None:
        conditions += " AND lower(relation) = :relation"  # lower folds ASCII only
        values["relation"] = what.relation.translate(_LOWER)
    return _NAMED.format(conditions=conditions), values
