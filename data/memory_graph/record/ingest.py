"""Ingestion of episodes in batches of one transaction each; an origin is remembered only once."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from turngraph.configs.progress import progress as shown_progress
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Extractor
from turngraph.data.memory_graph.record.clean import clean_episode, clean_extraction
from turngraph.data.memory_graph.record.episode_writer import EpisodeWriter
from turngraph.data.memory_graph.record.store import Store, tried_again
from turngraph.data.memory_graph.times import now

BATCH = 200
MAX_SECONDS = 5.0
"""Seconds after which a write is committed, as other writers wait for it."""
GC_THRESHOLD = 100_000
"""Number of new Python objects between two garbage collections. With Python's default of 700,
collections take a seventh of the time; a batch makes hundreds of thousands of objects without
cycles."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Counts and cost of an ingestion.

    Args:
        episodes: new episodes.
        skipped: episodes whose origin the graph already had.
        objects, theses, triplets: number of new ones.
        superseded: facts that were closed: theses and triplets.
        superseded_theses: theses among them.
        seconds: total time.
        cost: what the extractor used (tokens, requests), by name.
    """

    episodes: int = 0
    skipped: int = 0
    objects: int = 0
    theses: int = 0
    triplets: int = 0
    superseded: int = 0
    superseded_theses: int = 0
    seconds: float = 0.0
    cost: Mapping[str, float] = field(default_factory=dict)


def remember_many(
    store: Store,
    extractor: Extractor,
    episodes: Iterable[Episode],
    progress: bool = False,
    batch: int = BATCH,
) -> Remembered:
    """Remember episodes in order.

    Committed batches survive a crash of the process; if the same episodes are given again, those
    with a remembered origin are skipped.

    Args:
        store: the graph.
        extractor: finds the statements of an episode.
        episodes: read one batch at a time; may be endless.
        progress: show a progress bar.
        batch: episodes that are extracted together, and committed together unless that takes long.

    Raises:
        UserError: an episode or an extraction is invalid (committed batches stay), or the graph
            cannot be written.
    """
    counts: Counter[str] = Counter()
    seconds, cost = 0.0, Counter[str]()
    with shown_progress(None, "remember", "episodes", shown=progress, delay=1, leave=False) as bar:
        for remembered in remember_batches(store, extractor, episodes, batch):
            counts.update({name: getattr(remembered, name) for name in COUNTED})
            seconds += remembered.seconds
            cost.update(remembered.cost)
            bar.update(remembered.episodes + remembered.skipped)
    return Remembered(**counts, seconds=seconds, cost=dict(cost))


COUNTED = (
    "episodes",
    "skipped",
    "objects",
    "theses",
    "triplets",
    "superseded",
    "superseded_theses",
)


def remember_batches(
    store: Store, extractor: Extractor, episodes: Iterable[Episode], batch: int = BATCH
) -> Iterator[Remembered]:
    """Remember episodes as ``remember_many``; yield the counts of every commit.

    Raises:
        UserError: as ``remember_many``.
    """
    numbered = enumerate(episodes)
    while part := list(islice(numbered, batch)):
        begun, spent = time.monotonic(), extractor.cost()
        cleaned = [clean_episode(episode, f"episode {index}") for index, episode in part]
        new = _not_remembered(store, cleaned)
        extractions = _extract(extractor, new)
        pending = list(zip(new, extractions, strict=True))
        skipped = len(cleaned) - len(new)
        while pending or skipped:
            counts = Counter(skipped=skipped) + _write(store, extractor, pending)
            cost = Counter(extractor.cost())
            cost.subtract(spent)
            seconds = time.monotonic() - begun
            yield Remembered(**counts, seconds=seconds, cost=dict(cost))
            begun, spent, skipped = time.monotonic(), extractor.cost(), 0


@contextmanager
def _few_collections() -> Iterator[None]:
    """Run the garbage collector rarely, if it is on."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], GC_THRESHOLD) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _not_remembered(store: Store, episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes with a new origin or none; of equal origins, the first."""
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
    extractions = extractor.extract(episodes) if episodes else []
    if len(extractions) != len(episodes):
        raise ValueError(
            f"{extractor.name}: {len(extractions)} extractions for {len(episodes)} episodes"
        )
    return [
        clean_extraction(extraction, len(episode.text), extractor.name)
        for episode, extraction in zip(episodes, extractions, strict=True)
    ]


@tried_again
@_few_collections()
def _write(
    store: Store, extractor: Extractor, pending: list[tuple[Episode, Extraction]]
) -> Counter[str]:
    """Commit as many pending episodes as time allows, and remove them from the list."""
    if not pending:
        return Counter()
    done, skipped = 0, 0
    with store.writing() as revision:
        begun = time.monotonic()
        writer = EpisodeWriter(store.db, extractor, revision, now())
        writer.objects.look_up(name for _, extraction in pending for name in extraction.names())
        for episode, extraction in pending:
            # another process may have remembered the episode meanwhile
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
