"""Measures themes of planted topics: purity and NMI of pages, and time and memory at scale.

Time also of one more episode in a graph of many sources that has its themes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from turngraph.benchmarks.memory_graph.filling_speed import texts
from turngraph.benchmarks.memory_graph.synthetic_graph import Shape, object_names
from turngraph.data.eigen.search import NodeGraph, SearchSettings, best_first
from turngraph.data.eigen.themes import Theme, ThemeSettings, source_themes
from turngraph.data.embedding import Embed
from turngraph.data.jsonlines import read_conversations
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.vector_matrix import inner_products
from turngraph.data.memory_graph.recall.word_vectors import word_vectors

NUM_PAGES, MAX_PASSAGES = 100, 20
WIDTH, NOISE, NUM_THEMES, PER_TOPIC = 384, 0.7, 32, 500
NUM_ASKED = 40
PER_SOURCE, NUM_MORE = 100, 5


def measure_planted(path: Path, embed: Embed, seed: int) -> str:
    """Return purity and NMI by page of the themes of many pages' passages, titles cut.

    Args:
        path: conversations whose pools are the pages, as ``turngraph.data.sources.sqa`` writes.
        embed: the sentence encoder.
        seed: random seed of k-means.
    """
    texts: list[str] = []
    page: list[int] = []
    pools = {id(one.evidence): one.evidence for one in islice(read_conversations(path), 2000)}
    pages = [pool for pool in pools.values() if len(pool) >= MAX_PASSAGES][:NUM_PAGES]
    for number, pool in enumerate(pages):
        for passage in pool[:MAX_PASSAGES]:
            cut = passage.text.partition(", ")[2]
            texts += [cut] if cut else []
            page += [number] if cut else []
    vectors, of = embed(texts), np.array(page)
    lines = [
        f"### {len(texts)} passages of {len(pages)} pages as one source, titles cut",
        "",
        "| | K | purity of the top 10 | NMI |",
        "|---|---|---|---|",
    ]
    rows = {
        "themes, K by gap or size": ThemeSettings(),
        f"themes, K = {len(pages)}": ThemeSettings(num_themes=len(pages)),
        "|x| in place of rotation": ThemeSettings(num_themes=len(pages), rotation="none"),
        "complete graph": ThemeSettings(num_themes=len(pages), graph="complete"),
    }
    for row, settings in rows.items():
        themes = source_themes(vectors, settings=settings).themes
        lines.append(_planted_row(row, themes, of))
    lines.append(_planted_row("k-means", _k_means(vectors, len(pages), seed), of))
    return "\n".join(lines) + "\n"


def _planted_row(row: str, themes: Sequence[Theme], of: np.ndarray) -> str:
    group = np.zeros(len(of), np.int64)
    for number, theme in enumerate(themes):
        group[theme.members] = number
    tops = [np.bincount(of[theme.members[:10]]).max() / len(theme.members[:10]) for theme in themes]
    return f"| {row} | {len(themes)} | {np.mean(tops):.3f} | {nmi(group, of):.3f} |"


def nmi(one: np.ndarray, other: np.ndarray) -> float:
    """Return the normalised mutual information of two partitions, by their arithmetic mean."""
    joint = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(joint, (one, other), 1 / len(one))
    sides = joint.sum(1), joint.sum(0)
    apart = np.outer(*sides)
    used = joint > 0
    mutual = float((joint[used] * np.log(joint[used] / apart[used])).sum())
    entropies = [-float((p[p > 0] * np.log(p[p > 0])).sum()) for p in sides]
    return mutual / max(sum(entropies) / 2, 1e-12)


def _k_means(vectors: np.ndarray, number: int, seed: int) -> list[Theme]:
    """Return clusters by spherical k-means with k-means++ starts, the closest members first."""
    rng = np.random.default_rng(seed)
    centres = vectors[[int(rng.integers(len(vectors)))]]
    for _ in range(number - 1):
        far = np.maximum(1 - (vectors @ centres.T).max(1), 0) + 1e-9
        centres = np.vstack([centres, vectors[rng.choice(len(vectors), p=far / far.sum())]])
    for _ in range(30):
        of = (vectors @ centres.T).argmax(1)
        for index in range(number):
            if (of == index).any():
                centres[index] = vectors[of == index].mean(0)
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    close = vectors @ centres.T
    of = close.argmax(1)
    found = []
    for index in range(number):
        members = np.flatnonzero(of == index)
        order = members[np.argsort(-close[members, index], kind="stable")]
        if len(order):
            found.append(Theme(0.0, order, close[order, index], centres[index]))
    return found


def measure_scale(sizes: Sequence[int], seed: int) -> str:
    """Return build time, peak memory and milliseconds of a search, one process a size."""
    lines = [
        f"### One source of made-up chunks, {NUM_THEMES} themes, vectors given",
        "",
        "| chunks | build, s | CPU, s | peak RSS, GB | largest residual | search p50, ms |",
        "|---|---|---|---|---|---|",
    ]
    for size in sizes:
        code = f"from {__name__} import build; build({size}, {seed})"
        run = [sys.executable, "-c", code]
        done = subprocess.run(run, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)
        lines.append(
            f"| {size:,} | {found['build']:.1f} | {found['cpu']:.1f} | {found['memory']:.2f} | "
            f"{found['residual']:.0e} | {found['search']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def build(size: int, seed: int) -> None:
    """Build the themes of one made-up source, search it, and print the measures as JSON."""
    rng = np.random.default_rng(seed)
    topics = max(size // PER_TOPIC, 2)
    centres = rng.standard_normal((topics, WIDTH), dtype=np.float32)
    vectors = rng.standard_normal((size, WIDTH), dtype=np.float32)
    vectors *= NOISE
    for begin in range(0, size, 100_000):
        part = slice(begin, begin + 100_000)
        vectors[part] += centres[np.arange(size)[part] % topics]
        vectors[part] /= np.linalg.norm(vectors[part], axis=1, keepdims=True)
    began, used = time.perf_counter(), time.process_time()
    found = source_themes(vectors, settings=ThemeSettings(num_themes=NUM_THEMES))
    seconds, used = time.perf_counter() - began, time.process_time() - used
    inside = [(np.arange(size), found.neighbours)] if found.neighbours is not None else []
    graph = NodeGraph(size, inside, found.themes)
    rows = np.concatenate([vectors, [theme.vector for theme in found.themes]], dtype=np.float16)
    times = []
    for _ in range(NUM_ASKED):
        asked = (centres[rng.integers(topics)] / np.linalg.norm(centres[0])).astype(np.float16)
        began = time.perf_counter()
        scores = inner_products(asked, rows)
        starts = np.argpartition(-scores, 5)[:5].tolist()
        best_first(scores, starts, graph, SearchSettings(max_pops=4))
        times.append(1000 * (time.perf_counter() - began))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    measures = {"build": seconds, "cpu": used, "memory": memory, "residual": found.largest_residual}
    print(json.dumps({**measures, "search": float(np.median(times))}))


def measure_more(sizes: Sequence[int], seed: int) -> str:
    """Return the seconds that themes take after one more episode, in graphs of many sources.

    Made-up sentences, ``PER_SOURCE`` a source, by rules; word vectors, so
    that no sentence encoder takes part.
    """
    lines = [
        f"### One more episode in a graph of sources of {PER_SOURCE} chunks, word vectors",
        "",
        "| chunks | sources | themes | all themes, s | after one more episode, p50 and max, s |",
        "|---|---|---|---|---|",
    ]
    for size in sizes:
        made = texts(object_names(Shape(max(size, 1000), 0, 0, seed)), seed)
        parts = (
            Episode(sentence, None, f"source {index // PER_SOURCE}")
            for index, sentence in enumerate(
                islice((s for one in made for s in one.text.split(". ")), size)
            )
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory.db"
            with MemoryGraph.open(path, word_vectors) as graph:
                graph.remember_many(parts, progress=True)
                first = graph.make_themes()
            times = []
            with MemoryGraph.open(path, word_vectors) as graph:  # as a later command does
                for number in range(NUM_MORE):
                    graph.remember(f"Somebody new said that {number}.", source=f"source {number}")
                    times.append(graph.make_themes().seconds)
        lines.append(
            f"| {first.chunks:,} | {first.sources:,} | {sum(first.themes):,} | "
            f"{first.seconds:.1f} | {np.median(times):.2f}, {max(times):.2f} |"
        )
    return "\n".join(lines) + "\n"
