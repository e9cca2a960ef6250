"""Small memory graphs of known content, and what they hold as text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.upkeep.transfer import export_jsonl

TEXTS = (
    "Anna lives in Paris. Anna likes tea.",
    "Annie lives in Paris. Annie knows Anna.",
    "Bob lives in London. Bob met Anna in 2019.",
    "Annie works at Acme. Anna likes tea.",
    "Anna visited Rome. Bob met Annie.",
)


def episodes(texts: Iterable[str] = TEXTS, source: str = "talk") -> list[Episode]:
    """One episode a day, each with an origin."""
    return [
        Episode(text, f"2020-01-{day:02d}", source, f"{source}-{day}", speaker="Eve")
        for day, text in enumerate(texts, 1)
    ]


def small_graph(path: Path) -> MemoryGraph:
    """A graph of ``TEXTS``, by rules."""
    graph = MemoryGraph.open(path)
    graph.remember_many(episodes())
    return graph


def exported(graph: MemoryGraph, folder: Path) -> str:
    """The whole graph as JSON Lines."""
    export_jsonl(graph.store, folder / "exported.jsonl")
    return (folder / "exported.jsonl").read_text(encoding="utf-8")


def triplets(graph: MemoryGraph) -> set[tuple[str, str, str]]:
    """The simple triplets by name."""
    sql = """SELECT s.text, e.relation, o.text FROM edges e JOIN nodes s ON s.id = e.source
        JOIN nodes o ON o.id = e.target WHERE e.type = 0"""
    return set(graph.store.db.execute(sql))


def node_of(graph: MemoryGraph, text: str) -> int:
    """The id of the one node that reads so."""
    [(node,)] = graph.store.db.execute("SELECT id FROM nodes WHERE text = ?", (text,)).fetchall()
    return node


def embed(texts: Sequence[str]) -> np.ndarray:
    """Unit vectors by words: equal texts have equal ones."""
    vectors = np.full((len(texts), 32), 0.01, dtype=np.float32)
    for row, text in enumerate(texts):
        for word in re.findall(r"\w+", text.lower()):
            vectors[row, hashlib.blake2b(word.encode(), digest_size=1).digest()[0] % 32] += 1
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
