"""Remembering: episodes in, each once, batch after batch, each batch whole or not at all."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from tqdm import tqdm

from turngraph.data.memory_graph.memory_types import Episode, Extraction, Extractor
from turngraph.data.memory_graph.record.clean import clean_episode, clean_extraction
from turngraph.data.memory_graph.record.episode_writer import EpisodeWriter
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import now

BATCH = 200
MAX_SECONDS = 5.0
"""A write that has taken so long is committed after the episode at hand: others wait for it."""
NEW_OBJECTS = 100_000
"""A batch makes hundreds of thousands of Python's objects and no cycles of them: these are looked
for after so many only, instead of 700, which would take a seventh of the time."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What remembering added, and what it cost.

    Args:
        episodes: new ones.
        skipped: those whose origin was there already.
        objects, theses, triplets: new ones; what was known already is not counted.
        superseded: facts that were closed.
        seconds: all in all.
        cost: what the extractor counted meanwhile (tokens, requests), by name.
    """

    episodes: int = 0
    skipped: int = 0
    objects: int = 0
    theses: int = 0
    triplets: int = 0
    superseded: int = 0
    seconds: float = 0.0
    cost: Mapping[str, float] = field(default_factory=dict)


def remember_many(
    store: Store,
    extractor: Extractor,
    episodes: Iterable[Episode],
    progress: bool = False,
    batch: int = BATCH,
) -> Remembered:
    """Remember episodes in their order.

    What is committed stays if the process dies, and is skipped by its origin when the same
    episodes are remembered again.

    Args:
        store: the graph.
        extractor: says what they say.
        episodes: may be endless; ``batch`` of them are read at a time.
        progress: show a bar.
        batch: so many are extracted together, and committed together unless that takes long.

    Raises:
        ValueError: an episode or what the extractor found is not as it has to be (what was
            committed before stays), or the graph cannot be written.
    """
    counts: Counter[str] = Counter()
    seconds, cost = 0.0, Counter[str]()
    bar = tqdm(desc="remember", unit="episode", delay=1, leave=False, disable=not progress)
    with bar:
        for part in remember_batches(store, extractor, episodes, batch):
            counts.update({name: getattr(part, name) for name in COUNTED})
            seconds += part.seconds
            cost.update(part.cost)
            bar.update(part.episodes + part.skipped)
    return Remembered(**counts, seconds=seconds, cost=dict(cost))


COUNTED = ("episodes", "skipped", "objects", "theses", "triplets", "superseded")


def remember_batches(
    store: Store, extractor: Extractor, episodes: Iterable[Episode], batch: int = BATCH
) -> Iterator[Remembered]:
    """As ``remember_many``; yields after every commit what it added, when it is on the disk.

    Raises:
        ValueError: as of ``remember_many``.
    """
    numbered = enumerate(episodes)
    while part := list(islice(numbered, batch)):
        begun, spent = time.monotonic(), extractor.cost()
        given = [clean_episode(episode, f"episode {number}") for number, episode in part]
        new = _not_remembered(store, given)
        found = _extract(extractor, new)
        pending = list(zip(new, found, strict=True))
        skipped = len(given) - len(new)
        while pending or skipped:
            counts = Counter(skipped=skipped) + _write(store, extractor, pending)
            cost = Counter(extractor.cost())
            cost.subtract(spent)
            seconds = time.monotonic() - begun
            yield Remembered(**counts, seconds=seconds, cost=dict(cost))
            begun, spent, skipped = time.monotonic(), extractor.cost(), 0


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let Python look for cycles rarely, if it looks at all."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], NEW_OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _not_remembered(store: Store, episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes whose origins are not there, the first of those that have the same."""
    seen: set[str] = set()
    new = []
    for episode in episodes:
        if episode.origin is not None:
            if episode.origin in seen or _is_known(store, episode.origin):
                continue
            seen.add(episode.origin)
        new.append(episode)
    return new


def _is_known(store: Store, origin: str) -> bool:
    with store.clear_errors():
        sql = "SELECT 1 FROM episodes WHERE origin = ?"
        return store.db.execute(sql, (origin,)).fetchone() is not None


@_few_collections()
def _extract(extractor: Extractor, episodes: Sequence[Episode]) -> list[Extraction]:
    found = extractor.extract(episodes) if episodes else []
    if len(found) != len(episodes):
        raise ValueError(f"{extractor.name}: {len(found)} extractions for {len(episodes)} episodes")
    return [
        clean_extraction(extraction, len(episode.text), extractor.name)
        for episode, extraction in zip(episodes, found, strict=True)
    ]


@_few_collections()
def _write(
    store: Store, extractor: Extractor, pending: list[tuple[Episode, Extraction]]
) -> Counter[str]:
    """Commit as many of the pending episodes as time allows, and take them off the list."""
    if not pending:
        return Counter()
    done, skipped = 0, 0
    with store.writing() as revision:
        begun = time.monotonic()
        writer = EpisodeWriter(store.db, extractor, revision, now())
        writer.objects.look_up(name for _, found in pending for name in found.names())
        for episode, extraction in pending:
            # another process may have remembered it since it was looked for
            if episode.origin is not None and _is_known(store, episode.origin):
                skipped += 1
            else:
                writer.write(episode, extraction)
            done += 1
            if time.monotonic() - begun > MAX_SECONDS:
                break
        writer.rows.flush()
    del pending[:done]
    return writer.counts + Counter(skipped=skipped, objects=writer.objects.num_new)
