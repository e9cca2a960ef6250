"""Measures how fast extraction by rules fills a memory graph with generated texts.

The graph is empty at first, or a synthetic one (``synthetic_graph.py``) of any size, as a million
nodes take only minutes to make. The facts of a synthetic graph contradict nothing, so that fewer
are closed than in a graph that was filled from texts.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from turngraph.benchmarks.memory_graph.synthetic_graph import Shape, make_graph, object_names
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.record.ingest import BATCH, remember_many
from turngraph.data.memory_graph.record.store import Store

Json = dict[str, Any]
SENTENCES_PER_TEXT = 10
NUM_STEPS = 10
TEXTS_AT_ONCE = BATCH
NUM_EMBEDDED = 1000
EMBEDDED_AT_ONCE = 200  # about what one batch of remembering adds
NUM_INTO = 10_000  # sentences into a synthetic graph, after one batch that warms up
VERBS = "met likes married visited founded left knows called paid joined".split()
TAILS = (
    "in {place}", "on 3 May {year}", "after the long winter of {year}", "at the station",
    "because the house was cold", "with a blue umbrella", "in {place} in {year}", "twice a week",
)  # fmt: skip


def texts(names: list[str], seed: int, first: int = 0) -> Iterator[Episode]:
    """Yield an endless sequence of texts; their names come from a growing part of a list."""
    rng = random.Random(seed + first)
    for index in count(first):
        widest = min(50 + 4 * index, len(names))
        sentences = [_sentence(rng, names, widest) for _ in range(SENTENCES_PER_TEXT)]
        year = 1990 + index % 30
        yield Episode(" ".join(sentences), f"{year}-05-03", "made up", f"text {seed} {index}")


def _sentence(rng: random.Random, names: list[str], widest: int) -> str:
    # power law: a few names are in every other sentence, most are in one
    who, whom, place = (names[int(widest * rng.random() ** 2.5)] for _ in range(3))
    tail = rng.choice(TAILS).format(place=place, year=rng.randint(1950, 2020))
    return f"{who} {rng.choice(VERBS)} {whom} {tail}."


def measure(path: Path, nodes: int, seed: int) -> list[Json]:
    """Remember texts until the graph has a given number of nodes.

    Args:
        path: path of the database.
        nodes: final number of nodes, reached in ten steps, each of which is measured.
        seed: random seed of the texts.
    """
    source = texts(object_names(Shape(max(nodes, 1000), 0, 0, seed)), seed)
    with Store(path) as store, tqdm(total=nodes, desc="filling", unit="node") as bar:
        ends = (nodes * step // NUM_STEPS for step in range(1, NUM_STEPS + 1))
        return [_until(store, source, end, bar) for end in ends]


def _until(store: Store, source: Iterator[Episode], nodes: int, bar: tqdm[Any]) -> Json:
    extractor, sentences, times = RulesExtractor(), 0, (0.0, 0.0)
    while (there := _count(store, "nodes")) < nodes or not sentences:
        taken = _remember(store, extractor, source)
        times = times[0] + taken[0], times[1] + taken[1]
        sentences += SENTENCES_PER_TEXT * TEXTS_AT_ONCE
        bar.update(_count(store, "nodes") - there)
    return _row(store, sentences, *times)


def measure_into(path: Path, shape: Shape, made: Path | None = None) -> Json:
    """Remember texts about all objects of a synthetic graph.

    Args:
        path: path of the database, which does not exist yet.
        shape: shape of the graph.
        made: existing graph of this shape to copy; None: make one.
    """
    if made is None:
        make_graph(path, shape)
    else:
        with closing(sqlite3.connect(made)) as old, closing(sqlite3.connect(path)) as new:
            old.backup(new)
    names = object_names(shape)
    source, extractor = texts(names, shape.seed, first=len(names)), RulesExtractor()
    parts = NUM_INTO // (SENTENCES_PER_TEXT * TEXTS_AT_ONCE)
    with Store(path) as store:
        _remember(store, extractor, source)
        taken = [_remember(store, extractor, source) for _ in tqdm(range(parts), "filling into")]
        wall, busy = map(sum, zip(*taken, strict=True))
        return _row(store, NUM_INTO, wall, busy)


def _remember(
    store: Store, extractor: RulesExtractor, source: Iterator[Episode]
) -> tuple[float, float]:
    """Remember the next texts; return seconds and CPU seconds."""
    part = list(islice(source, TEXTS_AT_ONCE))
    began, worked = time.perf_counter(), time.process_time()
    remember_many(store, extractor, part)
    return time.perf_counter() - began, time.process_time() - worked


def _row(store: Store, sentences: int, seconds: float, busy: float) -> Json:
    return {
        "nodes": _count(store, "nodes"),
        "edges": _count(store, "edges"),
        "per_second": sentences / seconds,
        "per_cpu_second": sentences / busy,
        "megabytes": _size(store.path) / 1e6,
    }


def _size(path: Path) -> int:
    """Return the bytes of a database and its write-ahead log."""
    return sum(p.stat().st_size for p in path.parent.glob(f"{path.name}*") if p.is_file())


def _count(store: Store, table: str) -> int:
    return store.db.execute("SELECT max(id) FROM " + table).fetchone()[0] or 0


def measure_embedding(embedder: str, seed: int) -> float:
    """Return the sentences per second that a sentence encoder embeds, in batches of remembering."""
    from turngraph.configs.models import sentence_encoder  # and with it torch

    embed = sentence_encoder(embedder)
    made = texts(object_names(Shape(1000, 0, 0, seed)), seed)
    found = RulesExtractor().extract(list(islice(made, NUM_EMBEDDED // SENTENCES_PER_TEXT)))
    facts = [thesis.text for extraction in found for thesis in extraction.theses]
    embed(facts[:EMBEDDED_AT_ONCE])
    began = time.perf_counter()
    for first in tqdm(range(0, len(facts), EMBEDDED_AT_ONCE), desc="embedding"):
        embed(facts[first : first + EMBEDDED_AT_ONCE])
    return len(facts) / (time.perf_counter() - began)
