"""Writer of episodes and their statements into one transaction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeVar

from turngraph.data.memory_graph.memory_types import (
    EPISODIC,
    EPISODIC_EDGE,
    HYPER,
    SIMPLE,
    THESIS,
    TIME_EDGE,
    Episode,
    Extraction,
    Extractor,
    LazyFacts,
    Span,
    Thesis,
    Triplet,
    Update,
    edge_key,
    node_key,
)
from turngraph.data.memory_graph.names import text_hash
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.new_rows import FACT_TABLES, NewRows
from turngraph.data.memory_graph.record.objects import Objects
from turngraph.data.memory_graph.record.open_facts import (
    FactCache,
    around_thesis,
    around_triplet,
    named,
)
from turngraph.data.memory_graph.record.supersede import holds, supersede
from turngraph.data.memory_graph.times import start

_DEFINITE = re.compile(r"\bthe (\w+)")
TripletIdentity = tuple[int, str, int, bool]
"""Subject node, relation, object node, hypothesis."""
ThesisIdentity = tuple[str, bool]
"""Text, hypothesis."""
Identity = TripletIdentity | ThesisIdentity
"""Two statements with the same identity are one fact if their times fit."""
Statement = TypeVar("Statement", Triplet, Thesis)
Updates = dict[Identity, tuple[int, Update]]
"""New facts of an episode that may replace others: their keys, and the extractor's input."""
NamedKeys = tuple[tuple[int, ...], ...]
_SIMPLE_ROW = f"""
SELECT 2 * id + 1, valid_from, valid_to FROM edges INDEXED BY simple_edges
WHERE type = {SIMPLE} AND source = ?1 AND relation = ?2 AND target = ?3 AND hypothesis = ?4"""
_SIMPLE_ROWS = f"{_SIMPLE_ROW} AND valid_to IS NULL UNION ALL {_SIMPLE_ROW} AND valid_to > ?5"
_THESIS_ROWS = f"""
SELECT 2 * id, valid_from, valid_to FROM nodes
WHERE hash = ? AND type = {THESIS} AND text = ? AND hypothesis = ?"""


@dataclass(slots=True)
class StoredFact:
    """Key and validity of a fact in the record."""

    key: int
    valid_from: str | None
    valid_to: str | None


@dataclass(slots=True)
class Current:
    """The episode that is being written.

    Args:
        episode: the episode.
        node: its node id.
        said: time at which it was said; if unknown, the time of the write.
        first_edge: the first edge id of the episode.
        members: objects and theses that it mentions, each once.
        definite: words that follow "the" in its text, with which a short form of a name may begin.
        closed: old triplets that its triplets replaced, each with the span of the replacing
            statement.
    """

    episode: Episode
    node: int
    said: str
    first_edge: int
    definite: frozenset[str]
    members: dict[int, None] = field(default_factory=dict)
    closed: list[tuple[Span, int]] = field(default_factory=list)


class EpisodeWriter:
    """Writes episodes in order; each may repeat or replace facts of those before it.

    A statement repeats an existing fact if that fact has the same words (and ends) and holds when
    the statement is said: the fact then gets another provenance. A statement of a closed fact makes
    a new fact.

    Args:
        db: the record, in a write transaction.
        extractor: decides which facts a new statement replaces.
        revision: revision of the write.
        now: ISO time; the boundary between two facts whose times are unknown.
    """

    def __init__(self, db: Database, extractor: Extractor, revision: int, now: str) -> None:
        self.db, self.extractor, self.revision, self.now = db, extractor, revision, now
        self.rows = NewRows(db, revision)
        self.objects = Objects(self.rows)
        self.counts: Counter[str] = Counter()
        self._fact_cache = FactCache(db)
        self._stored: dict[Identity, list[StoredFact]] = {}
        self._by_key: dict[int, StoredFact] = {}
        self._joined: dict[int, set[int]] = {}

    def write(self, episode: Episode, extraction: Extraction) -> None:
        """Add an episode and its statements, both clean (``clean.py``)."""
        node = self.rows.node(EPISODIC, episode.text, (episode.time, None, None, False))
        self.rows.episode(node, episode, self.extractor.name)
        self.rows.words(node_key(node), episode.text)
        said, first_edge = episode.time or self.now, self.rows.next_id("edges")
        definite = frozenset(_DEFINITE.findall(episode.text.lower()))
        current = Current(episode, node, said, first_edge, definite)
        for name in extraction.entities:
            self._object(name, current)
        self._statements(extraction.triplets, self._triplet, current)
        self._statements(extraction.theses, self._thesis, current)
        for member in current.members:
            self.rows.edge(EPISODIC_EDGE, member, node)
        for time in dict.fromkeys((*filter(None, [episode.time]), *extraction.times)):
            self.rows.edge(TIME_EDGE, self.objects.time(time), node)
        self.counts["episodes"] += 1

    def _object(self, name: str, current: Current) -> int:
        first = name.partition(" ")[0]
        is_short = first.lower() in current.definite and not first.islower()
        node, alias_id = self.objects.find(name, current.episode.source, is_short)
        return self._member(node, alias_id, current)

    def _end(self, name: str, triplet: Triplet, current: Current) -> int:
        """Return the object of a triplet's end; a local end gets an object of the episode's own."""
        if name not in triplet.local:
            return self._object(name, current)
        node, alias_id = self.objects.find_local(name, current.node)
        return self._member(node, alias_id, current)

    def _member(self, node: int, alias_id: int, current: Current) -> int:
        current.members[node] = None
        self.rows.sighting(alias_id, current.node)
        return node

    def _statements(
        self,
        statements: Iterable[Statement],
        write: Callable[[Statement, Updates, Current], None],
        current: Current,
    ) -> None:
        updates: Updates = {}
        for statement in statements:
            write(statement, updates, current)
        self._replace(updates, current)

    def _triplet(self, triplet: Triplet, updates: Updates, current: Current) -> None:
        subject = self._end(triplet.subject, triplet, current)
        target = self._end(triplet.object, triplet, current)
        identity = (subject, triplet.relation, target, triplet.hypothesis)
        if identity in updates:  # the statements between two equal ones take effect first
            self._replace(updates, current)
        key = self._said_before(identity, triplet, current)
        if key is None:
            key = self._new_triplet(identity, triplet, current)
            by_name = self._named(triplet, (key >> 1, current.node), current)
            find = partial(self._around_triplet, key, identity, by_name, triplet, current)
            known = self._fact_cache.lazy(find)
            updates[identity] = key, Update(triplet, current.episode, known, by_name)
        self.rows.provenance(key, current.node, *_span(triplet))

    def _new_triplet(self, identity: TripletIdentity, triplet: Triplet, current: Current) -> int:
        subject, relation, target, hypothesis = identity
        held = (current.episode.time, triplet.valid_from, triplet.valid_to, hypothesis)
        key = edge_key(self.rows.edge(SIMPLE, subject, target, relation, held))
        names = self.objects.name(subject), self.objects.name(target)
        self.rows.words(key, f"{names[0]} {relation} {names[1]}")
        self.counts["triplets"] += 1
        self._add(identity, StoredFact(key, triplet.valid_from, triplet.valid_to))
        return key

    def _thesis(self, thesis: Thesis, updates: Updates, current: Current) -> None:
        identity = (thesis.text, thesis.hypothesis)
        if identity in updates:
            self._replace(updates, current)
        entities = dict.fromkeys(self._object(name, current) for name in thesis.entities)
        key = self._said_before(identity, thesis, current)
        if key is None:
            key = self._new_thesis(identity, thesis, current)
            by_name = self._named(thesis, (current.first_edge, key >> 1), current)
            find = partial(self._around_thesis, key, entities, by_name, thesis, current)
            known = self._fact_cache.lazy(find)
            updates[identity] = key, Update(thesis, current.episode, known, by_name)
        self._join(HYPER, entities, key >> 1)
        current.members[key >> 1] = None
        self.rows.provenance(key, current.node, *_span(thesis))

    def _new_thesis(self, identity: ThesisIdentity, thesis: Thesis, current: Current) -> int:
        times = current.episode.time, thesis.valid_from, thesis.valid_to
        node = self.rows.node(THESIS, thesis.text, (*times, thesis.hypothesis))
        self._joined[node] = set()
        self._join(TIME_EDGE, map(self.objects.time, thesis_times(*times)), node)
        self.rows.words(node_key(node), thesis.text)
        self.counts["theses"] += 1
        self._add(identity, StoredFact(node_key(node), thesis.valid_from, thesis.valid_to))
        return node_key(node)

    def _join(self, type: int, sources: Iterable[int], thesis: int) -> None:
        """Add edges to a thesis from the sources that have none yet."""
        if thesis not in self._joined:
            sql = "SELECT source FROM edges WHERE target = ?"
            self._joined[thesis] = {row[0] for row in self.db.execute(sql, (thesis,))}
        for source in sources:
            if source not in self._joined[thesis]:
                self._joined[thesis].add(source)
                self.rows.edge(type, source, thesis)

    def _add(self, identity: Identity, fact: StoredFact) -> None:
        self._stored[identity].append(fact)
        self._by_key[fact.key] = fact

    # The same fact

    def _said_before(
        self, identity: Identity, statement: Triplet | Thesis, current: Current
    ) -> int | None:
        """Return the key of the fact that a statement repeats; None: the statement is new."""
        if identity not in self._stored:
            self._stored[identity] = []
            for stored in self._find_stored(identity, statement, current.said):
                self._add(identity, stored)
        for fact in self._stored[identity]:
            if _is_same(fact, statement, current.said) and not self._replaces_more(
                statement, fact, current
            ):
                return fact.key
        return None

    def _replaces_more(
        self, statement: Triplet | Thesis, fact: StoredFact, current: Current
    ) -> bool:
        """Return whether a statement names other open facts, which only a new fact can end."""
        before = (self.rows.next_id("edges"), current.node)
        if isinstance(statement, Thesis):
            before = (current.first_edge, self.rows.next_id("nodes"))
        return any(set(keys) - {fact.key} for keys in self._named(statement, before, current))

    def _find_stored(
        self, identity: Identity, statement: Triplet | Thesis, said: str
    ) -> Iterator[StoredFact]:
        if len(identity) == 2:
            text, hypothesis = identity
            values = (text_hash(THESIS, text), text, hypothesis)
            yield from self._stored_rows(_THESIS_ROWS, values)
        elif identity[0] < self.rows.first_node or identity[2] < self.rows.first_node:
            yield from self._stored_rows(_SIMPLE_ROWS, (*identity, said))
            if statement.valid_to is not None and statement.valid_to <= said:
                sql = f"{_SIMPLE_ROW} AND valid_to = ?5"
                yield from self._stored_rows(sql, (*identity, statement.valid_to))

    def _stored_rows(self, sql: str, values: tuple[object, ...]) -> Iterator[StoredFact]:
        for row in self.db.execute(sql, values):
            yield StoredFact(*row)

    # What replaces what

    def _named(self, new: Triplet | Thesis, before: tuple[int, int], current: Current) -> NamedKeys:
        """Return, for each entry of ``replaces``, the keys of the open facts that it describes."""
        if not new.replaces:
            return ()
        self.rows.flush(FACT_TABLES)
        moment = new.valid_from or current.said
        return tuple(tuple(named(self.db, what, before, moment)) for what in new.replaces)

    def _around_triplet(
        self,
        key: int,
        identity: TripletIdentity,
        by_name: NamedKeys,
        triplet: Triplet,
        current: Current,
    ) -> Iterator[int]:
        self.rows.flush(FACT_TABLES)
        moment = triplet.valid_from or current.said
        yield from chain.from_iterable(by_name)
        yield from around_triplet(self.db, key, identity[:3], moment)

    def _around_thesis(
        self,
        key: int,
        entities: Iterable[int],
        by_name: NamedKeys,
        thesis: Thesis,
        current: Current,
    ) -> Iterator[int]:
        self.rows.flush(FACT_TABLES)
        moment = thesis.valid_from or current.said
        yield from chain.from_iterable(by_name)
        first, stop = _span(thesis)
        closed = [old for span, old in current.closed if span[0] < stop and first < span[1]]
        yield from around_thesis(self.db, key, entities, closed, moment)

    def _replace(self, updates: Updates, current: Current) -> None:
        """Ask the extractor in one call which facts the new statements replace; close these."""
        pending = [item for item in updates.values() if not item[1].new.hypothesis]
        updates.clear()
        if not pending:
            return
        answers = self.extractor.replaced([update for _, update in pending])
        if len(answers) != len(pending):
            raise ValueError(
                f"{self.extractor.name}: {len(answers)} answers for {len(pending)} new statements"
            )
        for (key, update), replaced in zip(pending, answers, strict=True):
            if replaced:
                self._close(replaced, key, update, current)

    def _close(self, replaced: Iterable[int], key: int, update: Update, current: Current) -> None:
        assert isinstance(update.known, LazyFacts)
        if not set(replaced) <= set(update.known.keys):
            raise ValueError(f"{self.extractor.name}: replaces a fact that is not in Update.known")
        self.rows.flush(FACT_TABLES)
        for old in dict.fromkeys(replaced):
            changed = supersede(self.db, old, key, self.now, self.revision)
            for changed_key in changed:
                if fact := self._by_key.get(changed_key):
                    _, fact.valid_from, fact.valid_to, _ = holds(self.db, changed_key)
            if changed:
                self.counts["superseded"] += 1
                self.counts["superseded_theses"] += old % 2 == 0
                current.closed.append((_span(update.new), old))


def thesis_times(said: str | None, valid_from: str | None, valid_to: str | None) -> list[str]:
    """Return the times to which a thesis is joined: its own, else the time at which it was said."""
    own = dict.fromkeys(time for time in (valid_from, valid_to) if time is not None)
    return list(own) or ([] if said is None else [said])


def _span(statement: Triplet | Thesis) -> Span:
    assert statement.span is not None, "a clean statement has a span"
    return statement.span


def _is_same(fact: StoredFact, statement: Triplet | Thesis, said: str) -> bool:
    """Return whether a fact with equal words holds when a statement is said and has its times."""
    moment = start(said)
    if statement.valid_from is not None:
        begins = statement.valid_from == fact.valid_from
    else:
        begins = fact.valid_from is None or start(fact.valid_from) <= moment
    if statement.valid_to is not None:
        return begins and statement.valid_to == fact.valid_to
    return begins and (fact.valid_to is None or start(fact.valid_to) > moment)
