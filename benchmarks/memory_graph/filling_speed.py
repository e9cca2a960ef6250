"""Filling a memory graph with made-up texts by rules: sentences a second while it grows.

From an empty one on, or into a made-up graph (``synthetic_memory.py``) of any size: a million
nodes are there in minutes. Its facts contradict nothing, so less is closed than in a grown one.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
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
EMBEDDED_AT_ONCE = 200  # what one batch of remembering adds, about
NUM_INTO = 10_000  # sentences into a made-up graph, after as many texts as are written at once
VERBS = "met likes married visited founded left knows called paid joined".split()
TAILS = (
    "in {place}", "on 3 May {year}", "after the long winter of {year}", "at the station",
    "because the house was cold", "with a blue umbrella", "in {place} in {year}", "twice a week",
)  # fmt: skip


def texts(names: list[str], seed: int, number: int = 0) -> Iterator[Episode]:
    """Texts without end, from a number on; their people and places come from a pool that widens."""
    rng = random.Random(seed + number)
    while True:
        widest = min(50 + 4 * number, len(names))
        sentences = [_sentence(rng, names, widest) for _ in range(SENTENCES_PER_TEXT)]
        year = 1990 + number % 30
        yield Episode(" ".join(sentences), f"{year}-05-03", "made up", f"text {seed} {number}")
        number += 1


def _sentence(rng: random.Random, names: list[str], widest: int) -> str:
    # by a power law: a few are in every other sentence, most in one
    who, whom, place = (names[int(widest * rng.random() ** 2.5)] for _ in range(3))
    tail = rng.choice(TAILS).format(place=place, year=rng.randint(1950, 2020))
    return f"{who} {rng.choice(VERBS)} {whom} {tail}."


def measure(path: Path, nodes: int, seed: int) -> list[Json]:
    """Remember texts until there are so many nodes.

    Args:
        path: of the database.
        nodes: to stop at; ten steps lead there.
        seed: of the texts.
    """
    source = texts(object_names(Shape(max(nodes, 1000), 0, 0, seed)), seed)
    with Store(path) as store, tqdm(total=nodes, desc="filling", unit="node") as bar:
        ends = (nodes * step // NUM_STEPS for step in range(1, NUM_STEPS + 1))
        return [_until(store, source, end, bar) for end in ends]


def _until(store: Store, source: Iterator[Episode], nodes: int, bar: tqdm) -> Json:
    extractor, sentences, times = RulesExtractor(), 0, (0.0, 0.0)
    while (there := _count(store, "nodes")) < nodes or not sentences:
        taken = _remember(store, extractor, source)
        times = times[0] + taken[0], times[1] + taken[1]
        sentences += SENTENCES_PER_TEXT * TEXTS_AT_ONCE
        bar.update(_count(store, "nodes") - there)
    return _row(store, sentences, *times)


def measure_into(path: Path, shape: Shape, made: Path | None = None) -> Json:
    """Remember texts about all objects of a made-up graph.

    Args:
        path: of the database, which is not there yet.
        shape: of the graph.
        made: a graph of this shape that is there already, to be copied; None: it is made.
    """
    if made is None:
        make_graph(path, shape)
    else:
        with closing(sqlite3.connect(made)) as old, closing(sqlite3.connect(path)) as new:
            old.backup(new)
    names = object_names(shape)
    source, extractor = texts(names, shape.seed, number=len(names)), RulesExtractor()
    parts = NUM_INTO // (SENTENCES_PER_TEXT * TEXTS_AT_ONCE)
    with Store(path) as store:
        _remember(store, extractor, source)
        taken = [_remember(store, extractor, source) for _ in tqdm(range(parts), "filling into")]
        wall, busy = map(sum, zip(*taken, strict=True))
        return _row(store, NUM_INTO, wall, busy)


def _remember(
    store: Store, extractor: RulesExtractor, source: Iterator[Episode]
) -> tuple[float, float]:
    """Seconds and CPU seconds that the next texts take."""
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
    """Bytes of a database and of what was committed to it last."""
    return sum(p.stat().st_size for p in path.parent.glob(f"{path.name}*") if p.is_file())


def _count(store: Store, table: str) -> int:
    return store.db.execute("SELECT max(id) FROM " + table).fetchone()[0] or 0


def measure_embedding(embedder: str, seed: int) -> float:
    """Sentences a second that a sentence encoder embeds, in batches as remembering adds them."""
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
