"""The lens: the simple triplets of a record as typed RDF quads, derived in memory.

Each fact is a named graph, ``tg:f<key>``. It contains a triple for each property that the fact's
relation names, and the roles of the event that its verb names. The default graph contains the
ontology, the types of events, names, and for each fact its begin, its end and the time at which it
was said (seconds from 1970 in UTC), the episodes that state it, and the facts that supersede it.
IRIs contain ids, no names. A relation that is not in the ontology becomes ``tg:related``, with its
words.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from turngraph.configs.extras import extra
from turngraph.data.amounts import read_amount
from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, SIMPLE
from turngraph.data.memory_graph.ontology.ontology import (
    PROV,
    RDF,
    RDFS,
    TG,
    XSD,
    Ontology,
    base_words,
)
from turngraph.data.memory_graph.recall.derived_files import State, record_state, shows
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.ended_parts import begin_of
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import parse_time, start

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import DefaultGraph, Literal, NamedNode, Quad
    from pyoxigraph import Store as QuadStore

AGENT, RELATED, WORDS = (NamedNode(TG + name) for name in ("agent", "related", "words"))
BEGINS, ENDS, SAID = (NamedNode(TG + name) for name in ("begins", "ends", "said"))
HYPOTHESIS, SUPERSEDED_BY = (NamedNode(TG + name) for name in ("hypothesis", "supersededBy"))
DERIVED_FROM, LABEL = NamedNode(PROV + "wasDerivedFrom"), NamedNode(RDFS + "label")
TYPE = NamedNode(RDF + "type")
INTEGER = NamedNode(XSD + "integer")
TRUE = Literal("true", datatype=NamedNode(XSD + "boolean"))
DATES = {4: "gYear", 7: "gYearMonth", 10: "date", 19: "dateTime"}
"""XSD datatype of a time, by the length of its ISO form."""
_CLASS_RELATIONS = frozenset({"be", "be a", "be an", "be the"})

_ROWS = f"""
SELECT 2 * e.id + 1, e.source, s.text, e.relation, e.target, o.text, e.said, e.valid_from,
    e.valid_to, e.hypothesis FROM edges e
JOIN nodes s ON s.id = e.source JOIN nodes o ON o.id = e.target WHERE e.type = {SIMPLE}"""
_CHANGED = f"""
WITH newer AS MATERIALIZED (
    SELECT 2 * id + 1 AS fact FROM edges WHERE type = {SIMPLE} AND revision > ?1)
SELECT fact FROM newer
UNION SELECT 2 * e.id + 1 FROM nodes n JOIN edges e ON e.source = n.id AND e.type = {SIMPLE}
    WHERE n.revision > ?1 AND n.type = {OBJECT}
UNION SELECT 2 * e.id + 1 FROM nodes n JOIN edges e ON e.target = n.id AND e.type = {SIMPLE}
    WHERE n.revision > ?1 AND n.type = {OBJECT}
UNION SELECT p.fact FROM nodes n JOIN provenance p ON p.episode = n.id AND p.fact % 2 = 1
    WHERE n.revision > ?1 AND n.type = {EPISODIC}
UNION SELECT s.old FROM newer JOIN supersessions s ON s.new = newer.fact AND s.old % 2 = 1"""
_MATES = """
SELECT DISTINCT q.fact FROM json_each(?) k
JOIN provenance p ON p.fact = k.value
JOIN provenance q ON q.episode = p.episode AND q.fact % 2 = 1"""


@dataclass(frozen=True, slots=True)
class Row:
    """Simple triplet of the record, with its spans and the keys of facts that supersede it."""

    key: int
    source: int
    source_name: str
    relation: str
    target: int
    target_name: str
    said: str | None
    valid_from: str | None
    valid_to: str | None
    hypothesis: bool
    spans: tuple[tuple[int, int, int], ...] = ()
    newer: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TypedFact:
    """Fact with its quads.

    Args:
        key: key of the fact.
        own: quads of this fact alone: its graph, and statements about it.
        shared: quads of the default graph that other facts may have, too: names, types of events.
        begins, ends: seconds from 1970 between which it holds; an undated fact begins when it was
            said. None: unknown, open.
        hypothesis: whether it was said only as a possibility.
        unknown: its relation, if this is not in the ontology; else None.
    """

    key: int
    own: tuple[Quad, ...]
    shared: tuple[Quad, ...]
    begins: int | None
    ends: int | None
    hypothesis: bool
    unknown: str | None = None

    def holds(self, moment: int) -> bool:
        """Return whether the fact holds at a second, by the same rule as ``memory ask --as_of``."""
        begun = self.begins is None or self.begins <= moment
        return begun and (self.ends is None or moment < self.ends)


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a fact in an event: the event's main fact, its class, and the object's role."""

    event: int
    iri: str
    role: str
    is_main: bool


@dataclass
class Lens:
    """Typed quads of a record; ``refresh`` brings them to its newest revision.

    Args:
        store: the record.
        ontology: the ontology.
    """

    store: Store
    ontology: Ontology
    facts: dict[int, TypedFact] = field(default_factory=dict)
    num_rebuilt: int = 0
    """Number of times that all quads were derived again."""
    _uses: Counter[Quad] = field(default_factory=Counter)
    _state: State = field(default_factory=State)
    _journal: tuple[int, int | None] = (0, None)

    def __post_init__(self) -> None:
        self.rdf = QuadStore()

    def refresh(self) -> int:
        """Derive the facts that changed since the last call; after edits and forgetting, all facts.

        Returns the revision that the quads represent.
        """
        with self.store.reading() as revision:
            db = self.store.db
            journal = db.execute("SELECT count(*), max(id) FROM journal").fetchone()
            if self._must_rebuild(journal):
                self._rebuild()
            elif revision > self._state.revision:
                rows = list(_read(db, _affected(db, self._state.revision)))
                self._replace(self._derive(rows))
            self._state, self._journal = record_state(db), journal
            return revision

    def _must_rebuild(self, journal: tuple[int, int | None]) -> bool:
        db, last = self.store.db, self._state.revision
        if last < 0 or journal != self._journal or not shows(db, self._state):
            return True
        sql = "SELECT 1 FROM removed WHERE revision > ? LIMIT 1"
        return db.execute(sql, (last,)).fetchone() is not None

    def _rebuild(self) -> None:
        self.rdf.clear()
        self._uses.clear()
        self.facts = {fact.key: fact for fact in self._derive(list(_read(self.store.db, None)))}
        for fact in self.facts.values():
            self._uses.update(fact.shared)
        self.rdf.bulk_extend(self.ontology.quads)
        self.rdf.bulk_extend(quad for fact in self.facts.values() for quad in fact.own)
        self.rdf.bulk_extend(self._uses)
        self.num_rebuilt += 1

    def _replace(self, facts: Iterable[TypedFact]) -> None:
        for fact in facts:
            if old := self.facts.get(fact.key):
                for quad in old.own:
                    self.rdf.remove(quad)
                self._release(old.shared)
            self.facts[fact.key] = fact
            self._uses.update(fact.shared)
            self.rdf.extend([*fact.own, *fact.shared])

    def _release(self, quads: Iterable[Quad]) -> None:
        for quad in quads:
            self._uses[quad] -= 1
            if not self._uses[quad]:
                del self._uses[quad]
                self.rdf.remove(quad)

    @property
    def unknown(self) -> Counter[str]:
        """Number of facts, by relation, whose relation is not in the ontology."""
        return Counter(fact.unknown for fact in self.facts.values() if fact.unknown is not None)

    def snapshot(self, moment: int) -> QuadStore:
        """Return a store of all quads; its default graph also has the triples that hold.

        Args:
            moment: second, from 1970, at which the triples must hold.
        """
        quads = QuadStore()
        quads.bulk_extend(iter(self.rdf))
        quads.bulk_extend(self.held(moment))
        return quads

    def held(self, moment: int) -> Iterator[Quad]:
        """Yield the triples of facts that hold and are no hypotheses, in the default graph."""
        for fact in self.facts.values():
            if fact.holds(moment) and not fact.hypothesis:
                for quad in fact.own:
                    if not isinstance(quad.graph_name, DefaultGraph):
                        yield Quad(quad.subject, quad.predicate, quad.object)

    # From rows to quads

    def _derive(self, rows: Sequence[Row]) -> list[TypedFact]:
        parts = self._events(rows)
        return [self._typed(row, parts.get(row.key)) for row in rows]

    def _events(self, rows: Sequence[Row]) -> dict[int, _Part]:
        """Return the part of each fact in an event, by fact key.

        Facts with the same verb, subject and span are one event with several roles: "bought",
        "bought for" and "bought from". Several objects of the verb are several events.
        """
        groups: dict[tuple[object, ...], list[tuple[Row, str]]] = defaultdict(list)
        for row in rows:
            if event := self.ontology.event_of(row.relation):
                place = row.spans[0] if row.spans else row.key
                same = (row.source, place, event[0], row.valid_from, row.hypothesis)
                groups[same].append((row, event[1]))
        parts = {}
        for (*_, iri, _, _), members in groups.items():
            assert isinstance(iri, str)
            members.sort(key=lambda member: member[0].key)
            roles = [role for _, role in members]
            object_role = self.ontology.object_role(iri)
            main_role = object_role if object_role in roles else roles[0]
            mains = [row.key for row, role in members if role == main_role]
            for row, role in members:
                if role == main_role:
                    parts[row.key] = _Part(row.key, iri, role, True)
                elif len(mains) == 1:
                    parts[row.key] = _Part(mains[0], iri, role, False)
        return parts

    def _typed(self, row: Row, part: _Part | None) -> TypedFact:
        graph, subject = NamedNode(f"{TG}f{row.key}"), NamedNode(f"{TG}o{row.source}")
        own, shared = [*self._states(row, graph)], [_label(row.source, row.source_name)]
        if part is not None:
            event = NamedNode(f"{TG}e{part.event}")
            if part.is_main:
                own.append(Quad(event, AGENT, subject, graph))
            own.append(Quad(event, NamedNode(part.role), self._value(row, part.role), graph))
            shared.append(Quad(event, TYPE, NamedNode(part.iri)))
        unknown = None if own else row.relation
        if unknown is not None:
            own.append(Quad(subject, RELATED, NamedNode(f"{TG}o{row.target}"), graph))
            own.append(Quad(graph, WORDS, Literal(row.relation)))
        shared.append(_label(row.target, row.target_name))
        begins, ends, said = map(_second, (row.valid_from, row.valid_to, row.said))
        for predicate, second in ((BEGINS, begins), (ENDS, ends), (SAID, said)):
            if second is not None:
                own.append(Quad(graph, predicate, Literal(str(second), datatype=INTEGER)))
        if row.hypothesis:
            own.append(Quad(graph, HYPOTHESIS, TRUE))
        for episode in dict.fromkeys(span[0] for span in row.spans):
            own.append(Quad(graph, DERIVED_FROM, NamedNode(f"{TG}ep{episode}")))
        own += [Quad(graph, SUPERSEDED_BY, NamedNode(f"{TG}f{key}")) for key in row.newer]
        held = _second(begin_of(row.valid_from, row.said, row.valid_to))
        return TypedFact(
            row.key, tuple(own), tuple(dict.fromkeys(shared)), held, ends, row.hypothesis, unknown
        )

    def _states(self, row: Row, graph: NamedNode) -> Iterator[Quad]:
        """Yield the triples of a fact's property, in both directions, and of its class."""
        subject = NamedNode(f"{TG}o{row.source}")
        form = base_words(row.relation)
        if form in _CLASS_RELATIONS:
            for kind in self.ontology.class_words.get(base_words(row.target_name), ()):
                yield Quad(subject, TYPE, NamedNode(kind), graph)
        iri = self._property(form, row.target_name)
        if iri is None:
            return
        value = self._value(row, iri)
        yield Quad(subject, NamedNode(iri), value, graph)
        term = self.ontology.properties[iri]
        back = iri if term.symmetric else term.inverse
        if back is not None and isinstance(value, NamedNode) and value != subject:
            yield Quad(value, NamedNode(back), subject, graph)

    def _property(self, form: str, target: str) -> str | None:
        """Return the property of a relation, or of several the only one that fits, or None."""
        iris = self.ontology.property_words.get(form, [])
        if len(iris) > 1:
            iris = [iri for iri in iris if _fits(self.ontology.properties[iri].datatype, target)]
        return iris[0] if len(iris) == 1 else None

    def _value(self, row: Row, iri: str) -> NamedNode | Literal:
        datatype = self.ontology.properties[iri].datatype
        if datatype is None:
            return NamedNode(f"{TG}o{row.target}")
        return read_literal(row.target_name, datatype) or Literal(row.target_name)


def read_literal(text: str, datatype: str) -> Literal | None:
    """Return a text as a literal of an XSD datatype; a partial date gets ``gYear`` or the like.

    None is returned if the text is no value of the datatype.
    """
    kind = datatype.removeprefix(XSD)
    if kind in ("date", "dateTime", "gYear", "gYearMonth"):
        try:
            iso = parse_time(text)
        except ValueError:
            return None
        iso = {13: f"{iso}:00:00", 16: f"{iso}:00"}.get(len(iso), iso)
        return Literal(iso, datatype=NamedNode(XSD + DATES[len(iso)]))
    if kind in ("decimal", "integer"):
        amount = read_amount(text)
        if amount is None or (kind == "integer" and amount.number % 1):
            return None
        return Literal(f"{amount.number.normalize():f}", datatype=NamedNode(datatype))
    return Literal(text, datatype=NamedNode(datatype))


def _fits(datatype: str | None, text: str) -> bool:
    return datatype is None or read_literal(text, datatype) is not None


@lru_cache(maxsize=1 << 16)
def _label(node: int, name: str) -> Quad:
    return Quad(NamedNode(f"{TG}o{node}"), LABEL, Literal(name))


def _second(iso: str | None) -> int | None:
    return None if iso is None else start(iso)


# From the record to rows


def _affected(db: Database, revision: int) -> list[int]:
    """Return keys of the facts that changed after a revision, and of those of the same events."""
    changed = [key for (key,) in db.execute(_CHANGED, (revision,))]
    mates = [key for (key,) in db.execute(_MATES, (json.dumps(changed),))]
    firsts = _first_episodes(db, [*changed, *mates])
    theirs = {firsts[key] for key in changed if key in firsts}
    affected = {*changed, *(key for key in mates if firsts[key] in theirs)}
    return sorted(affected)


def _first_episodes(db: Database, keys: Iterable[int]) -> dict[int, int]:
    sql = """SELECT p.fact, min(p.episode) FROM json_each(?) k
        JOIN provenance p ON p.fact = k.value GROUP BY p.fact"""
    return dict(db.execute(sql, (json.dumps(list(keys)),)).fetchall())


def _read(db: Database, keys: Sequence[int] | None) -> Iterator[Row]:
    """Yield the simple triplets with these keys, or all, in the order of their keys."""
    values = () if keys is None else (json.dumps(list(keys)),)
    facts = "% 2 = 1" if keys is None else "IN (SELECT value FROM json_each(?))"
    edges = "" if keys is None else "AND e.id IN (SELECT value >> 1 FROM json_each(?))"
    spans = _grouped(
        db,
        f"SELECT fact, episode, start, stop FROM provenance WHERE fact {facts} ORDER BY 1, 2, 3, 4",
        values,
    )
    newer = _grouped(
        db, f"SELECT old, new FROM supersessions WHERE old {facts} ORDER BY 1, 2", values
    )
    rows = db.execute(f"{_ROWS} {edges} ORDER BY e.id", values).fetchall()
    for key, source, source_name, relation, target, target_name, *times, hypothesis in rows:
        said, valid_from, valid_to = times
        yield Row(
            key,
            source,
            source_name,
            relation,
            target,
            target_name,
            said,
            valid_from,
            valid_to,
            bool(hypothesis),
            spans=tuple((episode, first, stop) for episode, first, stop in spans.get(key, ())),
            newer=tuple(new for (new,) in newer.get(key, ())),
        )


def _grouped(
    db: Database, sql: str, values: Sequence[object]
) -> Mapping[int, list[tuple[int, ...]]]:
    groups: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for key, *rest in db.execute(sql, values):
        groups[key].append(tuple(rest))
    return groups
