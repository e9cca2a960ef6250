"""Caches the recalls of clue queries in memory, as long as they stay valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.plan.steps import ClueRecall, PlanSettings
from turngraph.data.memory_graph.recall.derived_files import State, record_state
from turngraph.data.memory_graph.recall.plan_trace import Clue
from turngraph.data.memory_graph.recall.recall import Recall
from turngraph.data.memory_graph.times import now, second_of

INFINITE = float("inf")
MAX_ENTRIES = 2000
"""Maximum number of cached recalls; the cache is cleared when more would be added."""
NUM_READ = 5
"""Number of a clue's best episodes whose facts are used to answer a step."""

_Key = tuple[str, tuple[int, ...] | None, str | None, PlanSettings]


class _Entry(NamedTuple):
    """A recall, and the seconds [since, until) in which it is valid."""

    since: float
    until: float
    facts: tuple[Fact, ...]
    episodes: tuple[Fact, ...]


class RecallCache:
    """Cache of recalls at one state of the record; a new state clears it.

    A recall with ``as_of`` stays valid. A recall without it is valid until the next second at which
    a fact begins or ceases to hold. Nothing is written to disk, as a recall repeats remembered
    texts.
    """

    def __init__(self) -> None:
        self._state = State()
        self._entries: dict[_Key, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Drop all recalls."""
        self._entries.clear()

    def search(
        self, recall: Recall, clues: Sequence[Clue], as_of: str | None, settings: PlanSettings
    ) -> list[ClueRecall]:
        """Return the recall of each clue, in order, from the cache or the memory graph.

        All recalls read one revision. Queries that are not in the cache are embedded in one batch.

        Args:
            recall: the memory graph.
            clues: clue queries.
            as_of: as in ``Recall.ask``.
            settings: settings of planned asking.
        """
        second = second_of(as_of or now())
        with recall.store.reading():
            self._show(record_state(recall.db))
            keys = [_key(clue, as_of, settings) for clue in clues]
            held = {key: self._entries[key] for key in keys if self._holds(key, second)}
            missing = {key: clue for key, clue in zip(keys, clues, strict=True) if key not in held}
            recall.embed_ahead(clue.query for clue in missing.values())
            fresh = {}
            for key, clue in missing.items():
                facts, episodes = _recalled(recall, clue, as_of, settings)
                since, until = -INFINITE, INFINITE
                if as_of is None:
                    since, until = second, recall.holds_until(second)
                fresh[key] = _Entry(since, until, facts, episodes)
        self._keep(fresh)
        entries = held | fresh
        return [
            ClueRecall(clue, entries[key].facts, entries[key].episodes, key in held)
            for key, clue in zip(keys, clues, strict=True)
        ]

    def _show(self, state: State) -> None:
        if state != self._state:
            self._state = state
            self._entries.clear()

    def _holds(self, key: _Key, second: int) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.since <= second < entry.until

    def _keep(self, fresh: dict[_Key, _Entry]) -> None:
        if len(self._entries) + len(fresh) > MAX_ENTRIES:
            self._entries.clear()
        self._entries |= fresh


def _key(clue: Clue, as_of: str | None, settings: PlanSettings) -> _Key:
    # without the names of the start objects: two steps may spell one object in two ways
    start = None if clue.start is None else tuple(entity.node for entity in clue.start)
    return clue.query, start, as_of, settings


def _recalled(
    recall: Recall, clue: Clue, as_of: str | None, settings: PlanSettings
) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
    """Return the facts of a clue and, if settings.over is "episodes", the episodes."""
    recall_settings = replace(settings.recall, num_facts=settings.num_facts)
    if settings.over == "facts":
        return recall.ask(clue.query, as_of, recall_settings, start=clue.start).facts, ()
    episodes, facts = recall.read_episodes(
        clue.query, as_of, recall_settings, start=clue.start, num_read=NUM_READ
    )
    return facts, episodes
