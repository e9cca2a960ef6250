"""Episodes and what they say, written into one transaction."""

from __future__ import annotations

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
    Known,
    Span,
    Thesis,
    Triplet,
    Update,
    edge_key,
    node_key,
)
from turngraph.data.memory_graph.names import text_hash
from turngraph.data.memory_graph.record.known import Facts, around_thesis, around_triplet, named
from turngraph.data.memory_graph.record.objects import Objects
from turngraph.data.memory_graph.record.rows import OF_FACTS, Rows
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.record.supersede import holds, supersede
from turngraph.data.memory_graph.times import start

Same = tuple[object, ...]
"""What two statements have in common that are one fact, if their times fit."""
Statement = TypeVar("Statement", Triplet, Thesis)
Updates = dict[Same, tuple[int, Update]]
Named = tuple[tuple[int, ...], ...]
_SIMPLE_ROW = f"""
SELECT 2 * id + 1, valid_from, valid_to FROM edges INDEXED BY simple_edges
WHERE type = {SIMPLE} AND source = ?1 AND relation = ?2 AND target = ?3 AND hypothesis = ?4"""
_SIMPLE_ROWS = f"{_SIMPLE_ROW} AND valid_to IS NULL UNION ALL {_SIMPLE_ROW} AND valid_to > ?5"
_THESIS_ROWS = f"""
SELECT 2 * id, valid_from, valid_to FROM nodes
WHERE hash = ? AND type = {THESIS} AND text = ? AND hypothesis = ?"""


@dataclass(slots=True)
class Row:
    """A fact that is there, and when it holds."""

    key: int
    valid_from: str | None
    valid_to: str | None


@dataclass(slots=True)
class Current:
    """The episode that is being written.

    Args:
        episode, node: itself and its node.
        first_edge: the first edge that is its own.
        members: objects and theses that it mentions, each once.
        closed: triplets that its triplets replace, and where in its text.
    """

    episode: Episode
    node: int
    first_edge: int
    members: dict[int, None] = field(default_factory=dict)
    closed: list[tuple[Span, int]] = field(default_factory=list)


class Batch:
    """Writes episodes in their order: each sees all that was said before it.

    A statement is the same fact as an older one of equal words (and ends) that holds when it is
    said: the fact gets another provenance. What was closed and is said again is a new fact.

    Args:
        store: inside a write.
        extractor: is asked what new statements replace.
        revision: of the write.
        now: ISO time; the boundary where it is not known when anything was said.
    """

    def __init__(self, store: Store, extractor: Extractor, revision: int, now: str) -> None:
        self.db, self.extractor, self.revision, self.now = store.db, extractor, revision, now
        self.rows = Rows(store.db, revision)
        self.objects = Objects(self.rows)
        self._facts = Facts(store.db)
        self.counts: Counter[str] = Counter()
        self._same: dict[Same, list[Row]] = {}
        self._rows: dict[int, Row] = {}
        self._joined: dict[int, set[int]] = {}

    def write(self, episode: Episode, extraction: Extraction) -> None:
        """Add an episode and what it says, both clean (``clean.py``)."""
        node = self.rows.node(EPISODIC, episode.text, (episode.time, None, None, False))
        self.rows.episode(node, episode, self.extractor.name)
        self.rows.words(node_key(node), episode.text)
        now = Current(episode, node, self.rows.next_id("edges"))
        for name in extraction.entities:
            self._object(name, now)
        self._statements(extraction.triplets, self._triplet, now)
        self._statements(extraction.theses, self._thesis, now)
        for member in now.members:
            self.rows.edge(EPISODIC_EDGE, member, node)
        for time in dict.fromkeys((*filter(None, [episode.time]), *extraction.times)):
            self.rows.edge(TIME_EDGE, self.objects.time(time), node)
        self.counts["episodes"] += 1

    def _object(self, name: str, now: Current) -> int:
        node, number = self.objects.find(name, now.episode.source)
        now.members[node] = None
        self.rows.sighting(number, now.node)
        return node

    def _statements(
        self,
        statements: Iterable[Statement],
        write: Callable[[Statement, Updates, Current], None],
        now: Current,
    ) -> None:
        updates: Updates = {}
        for statement in statements:
            write(statement, updates, now)
        self._replace(updates, now)

    def _triplet(self, triplet: Triplet, updates: Updates, now: Current) -> None:
        source, target = self._object(triplet.subject, now), self._object(triplet.object, now)
        same = (source, triplet.relation, target, triplet.hypothesis)
        if same in updates:  # what was said between the two comes between them
            self._replace(updates, now)
        key = self._said_before(same, triplet, now)
        if key is None:
            key = self._new_triplet(same, triplet, now)
            by_name = self._named(triplet, (key >> 1, now.node), now)
            known = partial(self._around_triplet, key, same, by_name, triplet, now)
            updates[same] = key, Update(triplet, now.episode, self._facts.known(known), by_name)
        self.rows.provenance(key, now.node, *triplet.span)

    def _new_triplet(self, same: Same, triplet: Triplet, now: Current) -> int:
        source, relation, target, hypothesis = same
        held = (now.episode.time, triplet.valid_from, triplet.valid_to, hypothesis)
        key = edge_key(self.rows.edge(SIMPLE, source, target, relation, held))
        names = self.objects.name(source), self.objects.name(target)
        self.rows.words(key, f"{names[0]} {relation} {names[1]}")
        self.counts["triplets"] += 1
        self._add(same, Row(key, triplet.valid_from, triplet.valid_to))
        return key

    def _thesis(self, thesis: Thesis, updates: Updates, now: Current) -> None:
        same = (thesis.text, thesis.hypothesis)
        if same in updates:
            self._replace(updates, now)
        entities = dict.fromkeys(self._object(name, now) for name in thesis.entities)
        key = self._said_before(same, thesis, now)
        if key is None:
            key = self._new_thesis(same, thesis, now)
            by_name = self._named(thesis, (now.first_edge, key >> 1), now)
            known = partial(self._around_thesis, key, entities, by_name, thesis, now)
            updates[same] = key, Update(thesis, now.episode, self._facts.known(known), by_name)
        self._join(HYPER, entities, key >> 1)
        now.members[key >> 1] = None
        self.rows.provenance(key, now.node, *thesis.span)

    def _new_thesis(self, same: Same, thesis: Thesis, now: Current) -> int:
        times = now.episode.time, thesis.valid_from, thesis.valid_to
        node = self.rows.node(THESIS, thesis.text, (*times, thesis.hypothesis))
        self._joined[node] = set()
        self._join(TIME_EDGE, map(self.objects.time, thesis_times(*times)), node)
        self.rows.words(node_key(node), thesis.text)
        self.counts["theses"] += 1
        self._add(same, Row(node_key(node), thesis.valid_from, thesis.valid_to))
        return node_key(node)

    def _join(self, type: int, sources: Iterable[int], thesis: int) -> None:
        """Edges to a thesis from those that have none yet."""
        if thesis not in self._joined:
            sql = "SELECT source FROM edges WHERE target = ?"
            self._joined[thesis] = {row[0] for row in self.db.execute(sql, (thesis,))}
        for source in sources:
            if source not in self._joined[thesis]:
                self._joined[thesis].add(source)
                self.rows.edge(type, source, thesis)

    def _add(self, same: Same, row: Row) -> None:
        self._same[same].append(row)
        self._rows[row.key] = row

    # The same fact

    def _said_before(self, same: Same, statement: Triplet | Thesis, now: Current) -> int | None:
        """The fact that a statement says once more."""
        said = now.episode.time or self.now
        if same not in self._same:
            self._same[same] = []
            for row in self._find_rows(same, statement, said):
                self._add(same, Row(*row))
        for row in self._same[same]:
            if _is_same(row, statement, said) and not self._replaces_more(statement, row, now):
                return row.key
        return None

    def _replaces_more(self, statement: Triplet | Thesis, row: Row, now: Current) -> bool:
        """Whether it names other facts that hold: to end them is said here, not where it was."""
        before = (self.rows.next_id("edges"), now.node)
        if isinstance(statement, Thesis):
            before = (now.first_edge, self.rows.next_id("nodes"))
        return any(set(keys) - {row.key} for keys in self._named(statement, before, now))

    def _find_rows(
        self, same: Same, statement: Triplet | Thesis, said: str
    ) -> Iterator[tuple[int, str | None, str | None]]:
        if isinstance(statement, Thesis):
            yield from self.db.execute(_THESIS_ROWS, (text_hash(THESIS, statement.text), *same))
        elif same[0] < self.rows.first_node or same[2] < self.rows.first_node:
            yield from self.db.execute(_SIMPLE_ROWS, (*same, said))
            if statement.valid_to is not None and statement.valid_to <= said:
                values = (*same, statement.valid_to)
                yield from self.db.execute(f"{_SIMPLE_ROW} AND valid_to = ?5", values)

    # What replaces what

    def _named(self, new: Triplet | Thesis, before: tuple[int, int], now: Current) -> Named:
        """For every fact that the user says is replaced, the keys of the open ones it may be."""
        if not new.replaces:
            return ()
        self.rows.flush(OF_FACTS)
        moment = new.valid_from or now.episode.time or self.now
        return tuple(tuple(named(self.db, what, before, moment)) for what in new.replaces)

    def _around_triplet(
        self, key: int, same: Same, by_name: Named, triplet: Triplet, now: Current
    ) -> Iterator[int]:
        self.rows.flush(OF_FACTS)
        moment = triplet.valid_from or now.episode.time or self.now
        yield from chain.from_iterable(by_name)
        yield from around_triplet(self.db, key, same[:3], moment)

    def _around_thesis(
        self, key: int, entities: Iterable[int], by_name: Named, thesis: Thesis, now: Current
    ) -> Iterator[int]:
        self.rows.flush(OF_FACTS)
        moment = thesis.valid_from or now.episode.time or self.now
        yield from chain.from_iterable(by_name)
        first, stop = thesis.span
        closed = [old for span, old in now.closed if span[0] < stop and first < span[1]]
        yield from around_thesis(self.db, key, entities, closed, moment)

    def _replace(self, updates: Updates, now: Current) -> None:
        """Ask what the new statements replace, in one question, and write it."""
        asked = [item for item in updates.values() if not item[1].new.hypothesis]
        updates.clear()
        if not asked:
            return
        answers = self.extractor.replaced([update for _, update in asked])
        if len(answers) != len(asked):
            raise ValueError(
                f"{self.extractor.name}: {len(answers)} answers for {len(asked)} new statements"
            )
        for (key, update), replaced in zip(asked, answers, strict=True):
            if replaced:
                self._close(replaced, key, update, now)

    def _close(self, replaced: Iterable[int], key: int, update: Update, now: Current) -> None:
        assert isinstance(update.known, Known)
        if not set(replaced) <= set(update.known.keys):
            raise ValueError(f"{self.extractor.name}: replaces a fact that was not among the known")
        self.rows.flush(OF_FACTS)
        for old in dict.fromkeys(replaced):
            changed = supersede(self.db, old, key, self.now, self.revision)
            for fact in changed:
                if row := self._rows.get(fact):
                    _, row.valid_from, row.valid_to, _ = holds(self.db, fact)
            if changed:
                self.counts["superseded"] += 1
                now.closed.append((update.new.span, old))


def thesis_times(said: str | None, valid_from: str | None, valid_to: str | None) -> list[str]:
    """The times that a thesis is joined to: those of its text, else when it was first said."""
    own = dict.fromkeys(time for time in (valid_from, valid_to) if time is not None)
    return list(own) or ([] if said is None else [said])


def _is_same(row: Row, statement: Triplet | Thesis, said: str) -> bool:
    """Whether a fact of equal words holds when a statement says it, with the times that it says."""
    moment = start(said)
    if statement.valid_from is not None:
        begins = statement.valid_from == row.valid_from
    else:
        begins = row.valid_from is None or start(row.valid_from) <= moment
    if statement.valid_to is not None:
        return begins and statement.valid_to == row.valid_to
    return begins and (row.valid_to is None or start(row.valid_to) > moment)
