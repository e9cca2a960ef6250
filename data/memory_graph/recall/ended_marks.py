"""Marks the facts that newer statements may have ended, and ranks the newer ones before them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from turngraph.data.memory_graph.memory_types import HYPER, Fact, Span
from turngraph.data.memory_graph.recall.endings import said_of, shipped
from turngraph.data.memory_graph.recall.recollection import MAX_PLACES, newer_first
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.recall.vectors import FACTS, is_same
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.times import start

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

MAX_COMPARED = 200
"""Largest number of theses that are compared with each other."""
STATED = """SELECT DISTINCT fact FROM provenance WHERE episode IN (SELECT value FROM json_each(?))
    ORDER BY fact"""
"""Selects the keys of the facts that given episodes state."""
ABOUT = f"""SELECT DISTINCT 2 * target FROM edges WHERE type = {HYPER}
    AND source IN (SELECT value FROM json_each(?)) ORDER BY 1 DESC LIMIT ?"""
"""Selects the keys of the newest theses that mention given objects, up to a number."""


def stated_by(db: Database, episodes: Iterable[int]) -> list[int]:
    """Return the keys of the facts that episodes state, sorted."""
    return [key for (key,) in db.execute(STATED, (json.dumps(list(episodes)),))]


@dataclass(frozen=True, slots=True)
class EndedMarks:
    """Marks of the facts of one record.

    Args:
        store: the record.
        matrix: vectors of the facts.
        probe: vector of ``vectors.PROBE`` by the encoder of ``matrix``.
    """

    store: Store
    matrix: VectorMatrix
    probe: np.ndarray

    def among(self, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        """Mark the facts that newer ones of the same episodes may have ended, in the same order.

        Call it in a read transaction.
        """
        episodes = [fact.key >> 1 for fact in facts if fact.type == "episodic"]
        episodes += [place.episode for fact in facts for place in fact.provenance]
        stated = stated_by(self.store.db, dict.fromkeys(episodes))
        theses = self.store.facts([key for key in stated if key % 2 == 0])
        return mark_ended(facts, theses, self.matrix, self.probe)

    def about(self, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        """Mark the facts that newer theses about their subjects may have ended, in the same order.

        Args:
            facts: facts of any question; the newest theses about their subjects are compared.
        """
        subjects = list(dict.fromkeys(fact.entities[0][0] for fact in facts if fact.entities))
        episodes = dict.fromkeys(place.episode for fact in facts for place in fact.provenance)
        with self.store.reading():
            newest = self.store.db.execute(ABOUT, (json.dumps(subjects), MAX_COMPARED // 2))
            own = [key for key in stated_by(self.store.db, episodes) if key % 2 == 0]
            keys = [*own[: MAX_COMPARED // 2], *(key for (key,) in newest)]
            theses = self.store.facts(dict.fromkeys(keys))
        return mark_ended(facts, theses, self.matrix, self.probe)

    def newer_first(self, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        """Mark facts as ``among`` does; move a newer fact close behind a marked one before it."""
        return newer_first(self.among(facts), MAX_PLACES)


def stored_marks(store: Store) -> EndedMarks:
    """Return marks by the vectors that earlier questions stored; without any, they mark nothing."""
    matrix = VectorMatrix(store.derived / FACTS, writable=False)
    return EndedMarks(store, matrix, np.array(matrix.manifest["probe"], np.float32))


def mark_ended(
    facts: Sequence[Fact], theses: Sequence[Fact], matrix: VectorMatrix, probe: np.ndarray
) -> tuple[Fact, ...]:
    """Mark the facts that newer theses may have ended, in the same order.

    Only theses with a time and a vector are compared. A triplet or an episode is marked if all its
    theses are marked. Nothing is marked if the vectors are another encoder's than the classifiers'.

    Args:
        facts: facts to mark.
        theses: theses of the facts' episodes or subjects; the first ``MAX_COMPARED`` are compared.
        matrix: vectors of the facts.
        probe: vector of ``vectors.PROBE`` by the encoder of ``matrix``.
    """
    compared = [one for one in theses if not one.hypothesis and one.provenance][:MAX_COMPARED]
    compared = [thesis for thesis in compared if thesis.provenance[0].said is not None]
    if len(compared) < 2 or not is_same(probe, shipped().probe):
        return tuple(facts)
    vectors = matrix.vectors(np.array([thesis.key for thesis in compared], dtype=np.int64))
    has_vector = np.asarray(vectors.any(axis=1), dtype=bool)
    compared = [thesis for thesis, is_known in zip(compared, has_vector, strict=True) if is_known]
    if len(compared) < 2:
        return tuple(facts)
    by_key = {thesis.key: thesis for thesis in compared}
    ended = {key: by_key[new] for key, new in _ended(compared, vectors[has_vector]).items()}
    keys = {fact.key for fact in facts}
    of_episode: dict[int, list[Fact]] = defaultdict(list)
    by_place: dict[tuple[int, Span], Fact] = {}
    for thesis in theses:
        for place in thesis.provenance:
            of_episode[2 * place.episode].append(thesis)
            by_place[place.episode, place.span] = thesis

    def mark(fact: Fact) -> Fact:
        if fact.type == "episodic":
            own: list[Fact | None] = [*of_episode[fact.key]]
        elif fact.type == "simple":
            own = [by_place.get((place.episode, place.span)) for place in fact.provenance]
        else:
            own = [fact]
        new = [ended.get(thesis.key) if thesis is not None else None for thesis in own]
        if not new or new[0] is None or None in new:
            return fact
        shown = 2 * new[0].provenance[0].episode  # if the thesis is not among the facts
        is_whole = new[0].key not in keys and shown in keys
        return replace(fact, may_have_ended=shown if is_whole else new[0].key)

    return tuple(map(mark, facts))


def _ended(theses: Sequence[Fact], vectors: np.ndarray) -> dict[int, int]:
    """Map the key of each thesis that may have ended to that of the newer thesis that ends it."""
    said = [
        said_of(thesis.text, thesis.provenance[0].speaker, (name for _, name in thesis.entities))
        for thesis in theses
    ]
    times = np.array([start(thesis.provenance[0].said or "") for thesis in theses])
    likely = shipped().judge(said, vectors)
    likely[times[:, None] >= times[None, :]] = 0
    likely[[thesis.valid_to is not None for thesis in theses]] = 0
    return {
        old.key: theses[int(row.argmax())].key
        for old, row in zip(theses, likely, strict=True)
        if row.max() >= shipped().threshold
    }
