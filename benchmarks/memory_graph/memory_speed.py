"""Measures speed and memory of a large memory graph.

    python -m turngraph.benchmarks.memory_graph speed [--nodes 100000]

Fills a graph with generated texts by rules, up to a number of nodes, in steps: sentences a second.
Names follow a power law, so that a few objects have most of the edges. Then asks it: the first
question, which computes vectors; opening; asking, also after each text that is remembered; the
resident memory of all this.

Prints Markdown tables; ``--output`` writes JSON.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tqdm import tqdm

from turngraph.benchmarks.memory_graph.memory_retrieval import parser_of, write_reports
from turngraph.configs.models import sentence_encoder
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import Traversal
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.record.ingest import BATCH, remember_many
from turngraph.data.memory_graph.record.store import Store
from turngraph.model.checkpoint import commit

Json = dict[str, Any]
COMMAND = ("python", "-m", "turngraph.benchmarks.memory_graph", "speed")
SENTENCES_PER_TEXT = 10
NUM_STEPS = 10
SYLLABLES = "ba be bi bo da de di do ka ke ki ko la le li lo ma me mi mo na ne ni no ra re ri"
VERBS = "met likes married visited founded left knows called paid joined".split()
TAILS = (
    "in {place}", "on 3 May {year}", "after the long winter of {year}", "at the station",
    "because the house was cold", "with a blue umbrella", "in {place} in {year}", "twice a week",
)  # fmt: skip


def main(argv: Sequence[str]) -> None:
    """Measure, print the tables and write the JSON file."""
    args = parse(argv)
    names = names_of(args.nodes, args.seed)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "filled.db"
        report: Json = {
            "commit": commit(),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
            "filling": fill(path, args.nodes, names, args.seed),
        }
        report["asking"] = ask(path, names, args.questions, args.mixture, args.embedder)
    if args.output:
        write_reports(args.output, [*COMMAND, *argv], [report])
    print(markdown(report))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(COMMAND, __doc__)
    add = parser.add_argument
    add("--nodes", type=int, default=50_000, help="nodes of the graph")
    add("--questions", type=int, default=200, help="a tenth of them names the hub")
    add("--mixture", default="BeamSearch + WaterCircles")
    add("--embedder", help="sentence encoder; default: vectors of words, which need no model")
    add("--folder", help="folder for the temporary database; default: the system's")
    add("--seed", type=int, default=0)
    add("--output", help="JSON file")
    return parser.parse_args(argv)


def names_of(nodes: int, seed: int) -> list[str]:
    """Make names of two words, more than a graph of so many nodes has objects."""
    rng, parts = random.Random(seed), SYLLABLES.split()
    made = ("".join(rng.choices(parts, k=rng.choice((2, 3)))).title() for _ in range(9000))
    words, found = list(dict.fromkeys(made)), dict[str, None]()
    while len(found) < max(nodes // 2, 100):
        found[f"{rng.choice(words)} {rng.choice(words)}"] = None
    return list(found)


def texts(names: Sequence[str], seed: int) -> Iterator[Episode]:
    """Yield an endless sequence of texts; their names come from a growing part of a list."""
    rng = random.Random(seed)
    for index in count():
        widest = min(50 + 4 * index, len(names))
        sentences = [_sentence(rng, names, widest) for _ in range(SENTENCES_PER_TEXT)]
        year = 1990 + index % 30
        yield Episode(" ".join(sentences), f"{year}-05-03", "made up", f"text {seed} {index}")


def _sentence(rng: random.Random, names: Sequence[str], widest: int) -> str:
    # power law: a few names are in every other sentence, most are in one
    who, whom, place = (names[int(widest * rng.random() ** 2.5)] for _ in range(3))
    tail = rng.choice(TAILS).format(place=place, year=rng.randint(1950, 2020))
    return f"{who} {rng.choice(VERBS)} {whom} {tail}."


def fill(path: Path, nodes: int, names: Sequence[str], seed: int) -> list[Json]:
    """Remember texts until the graph has a number of nodes, in ten steps that are measured."""
    source, extractor, rows = texts(names, seed), RulesExtractor(), list[Json]()
    with Store(path) as store, tqdm(total=nodes, desc="filling", unit="node") as bar:
        for step in range(1, NUM_STEPS + 1):
            sentences, began, worked = 0, time.perf_counter(), time.process_time()
            while (there := _count(store, "nodes")) < nodes * step // NUM_STEPS:
                remember_many(store, extractor, list(islice(source, BATCH)))
                sentences += SENTENCES_PER_TEXT * BATCH
                bar.update(_count(store, "nodes") - there)
            if not sentences:  # the step before went further
                continue
            files = path.parent.glob(f"{path.name}*")
            rows.append(
                {
                    "nodes": _count(store, "nodes"),
                    "edges": _count(store, "edges"),
                    "per_second": sentences / (time.perf_counter() - began),
                    "per_cpu_second": sentences / (time.process_time() - worked),
                    "megabytes": sum(p.stat().st_size for p in files if p.is_file()) / 1e6,
                }
            )
    return rows


def _count(store: Store, table: str) -> int:
    return store.db.execute("SELECT max(id) FROM " + table).fetchone()[0] or 0


def ask(path: Path, names: Sequence[str], num: int, mixture: str, embedder: str | None) -> Json:
    """Measure vectors, opening, asking, and asking after a new text, in milliseconds."""
    embed = sentence_encoder(embedder) if embedder else word_vectors
    rng, found, settings = random.Random(0), dict[str, Any](), RecallSettings(Traversal(mixture))
    asked = [names[0 if i % 10 == 0 else int(50 * rng.random() ** 2.5)] for i in range(num)]
    questions = [f"Who {rng.choice(VERBS)} {name} in {rng.choice(names[:50])}?" for name in asked]
    for part in ("computing vectors", "opening"):
        with MemoryGraph.open(path, embed, RulesExtractor()) as graph:
            found[part] = _timed(graph, questions[0], settings)
    with MemoryGraph.open(path, embed, RulesExtractor()) as graph:
        graph.ask(questions[0], settings=settings)
        found["asking"] = _percentiles([_timed(graph, q, settings) for q in tqdm(questions)])
        found["resident MB"] = psutil.Process().memory_info().rss / 2**20
        late = list[float]()
        for index, question in enumerate(tqdm(questions, desc="remembering, asking")):
            graph.remember(f"{asked[index]} met Visitor {index}. Visitor {index} left.")
            late.append(_timed(graph, question, settings))
        found["asking after a text"] = _percentiles(late)
    return found


def _timed(graph: MemoryGraph, question: str, settings: RecallSettings) -> float:
    began = time.perf_counter()
    graph.ask(question, settings=settings)
    return 1000 * (time.perf_counter() - began)


def _percentiles(milliseconds: Sequence[float]) -> list[float]:
    """Return p50 and p95."""
    return [float(value) for value in np.percentile(milliseconds, (50, 95))]


def markdown(report: Json) -> str:
    """Return the Markdown tables."""
    heads = ("nodes", "edges", "sentences/s", "per CPU second", "file MB")
    lines = [f"| {' | '.join(heads)} |", "|---:" * len(heads) + "|"]
    for row in report["filling"]:
        lines.append(f"| {' | '.join(f'{value:,.0f}' for value in row.values())} |")
    lines += ["", "| | ms, or p50 | p95 |", "|---|---:|---:|"]
    for name, value in report["asking"].items():
        cells = value if isinstance(value, list) else [value]
        shown = [f"{cell:,.2f}" for cell in cells] + [""] * (2 - len(cells))
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)
