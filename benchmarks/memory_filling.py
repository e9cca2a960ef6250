"""Filling a memory graph with made-up texts by rules: sentences a second while it grows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.synthetic_memory import Shape, object_names
from data.memory_graph.extract.rules import RulesExtractor
from data.memory_graph.record.ingest import remember_many
from data.memory_graph.record.store import Store
from data.memory_graph.record.texts import changed_facts
from data.memory_graph.types import Episode

Json = dict[str, Any]
SENTENCES_PER_TEXT = 10
NUM_STEPS = 10
TEXTS_AT_ONCE = 100
NUM_EMBEDDED = 2000
VERBS = "met likes married visited founded left knows called paid joined".split()
TAILS = (
    "in {place}", "on 3 May {year}", "after the long winter of {year}", "at the station",
    "because the house was cold", "with a blue umbrella", "in {place} in {year}", "twice a week",
)  # fmt: skip


def texts(names: list[str], seed: int) -> Iterator[Episode]:
    """Texts without end; their people and places come from a pool that widens as they go on."""
    rng, number = random.Random(seed), 0
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


def measure(path: Path, nodes: int, embedder: str | None, seed: int) -> Json:
    """Remember texts until there are so many nodes.

    Args:
        path: of the database.
        nodes: to stop at; ten steps lead there.
        embedder: name of a sentence encoder, which embeds some of the facts in the end.
        seed: of the texts.
    """
    source = texts(object_names(Shape(max(nodes, 1000), 0, 0, seed)), seed)
    found: Json = {"steps": []}
    with Store(path) as store, tqdm(total=nodes, desc="filling", unit="node") as bar:
        for step in range(1, NUM_STEPS + 1):
            found["steps"].append(_step(store, source, nodes * step // NUM_STEPS, bar))
        if embedder:
            found["embedding"] = _embedding(store, embedder)
    return found


def _step(store: Store, source: Iterator[Episode], nodes: int, bar: tqdm) -> Json:
    extractor, sentences, seconds, busy = RulesExtractor(), 0, 0.0, 0.0
    while (there := _count(store, "nodes")) < nodes or not sentences:
        part = list(islice(source, TEXTS_AT_ONCE))
        began, worked = time.perf_counter(), time.process_time()
        remember_many(store, extractor, part)
        seconds += time.perf_counter() - began
        busy += time.process_time() - worked
        sentences += SENTENCES_PER_TEXT * len(part)
        bar.update(_count(store, "nodes") - there)
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


def _embedding(store: Store, embedder: str) -> float:
    """Texts a second."""
    from configs.models import sentence_encoder  # and with it torch

    embed = sentence_encoder(embedder)
    facts = [text for _, text in islice(changed_facts(store.db, -1), NUM_EMBEDDED)]
    embed(facts[:32])
    began = time.perf_counter()
    embed(facts)
    return len(facts) / (time.perf_counter() - began)
