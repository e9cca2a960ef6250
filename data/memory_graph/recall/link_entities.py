"""From the entities of a question to the objects of the graph."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.recall.view import QuestionEntity
from turngraph.data.normalise import words

RRF = 60
"""Constant of reciprocal-rank fusion (Cormack et al. 2009)."""
NUM_RANKED = 50
"""Objects of each of the two rankings that are fused."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that a name may mean.

    Args:
        node: the object.
        score: of the fusion; larger is closer.
        similarity: cosine between the two names.
    """

    node: int
    score: float
    similarity: float


def link(
    db: sqlite3.Connection,
    names: Sequence[str],
    vectors: np.ndarray,
    matrix: VectorMatrix,
    top_k: int = 5,
    min_similarity: float = 0.0,
) -> tuple[QuestionEntity, ...]:
    """The object that each name means; a name that nothing is close enough to is left out.

    An object that has the very name among its aliases is it; where several have it (two people
    named Anna), up to ``top_k`` are. Otherwise the best candidate is.

    Args:
        db: the record, in a read transaction.
        names: as the question writes them.
        vectors: unit vectors of the names, [len(names), width].
        matrix: vectors of the objects' names.
        top_k: candidates that are looked at.
        min_similarity: cosine from which a candidate may be meant.
    """
    found: dict[QuestionEntity, None] = {}
    for name, vector in zip(names, vectors, strict=True):
        exact = exact_objects(db, name)[:top_k]
        if not exact:
            near = candidates(db, name, vector, matrix, top_k)
            exact = [c.node for c in near if c.similarity >= min_similarity][:1]
        found.update(dict.fromkeys(QuestionEntity(name, node) for node in exact))
    return tuple(found)


def exact_objects(db: sqlite3.Connection, name: str) -> list[int]:
    """Objects that have a name among their aliases, the oldest first."""
    sql = "SELECT DISTINCT node FROM aliases WHERE alias = ? ORDER BY node"
    return [node for (node,) in db.execute(sql, (alias(name),))]


def candidates(
    db: sqlite3.Connection, name: str, vector: np.ndarray, matrix: VectorMatrix, top_k: int
) -> list[Candidate]:
    """The objects whose names are closest: dense and BM25 by reciprocal-rank fusion, best first.

    An object's score is the sum of 1 / (60 + rank) over both rankings; ties by similarity, by id.

    Args:
        db: the record.
        name: as the question writes it.
        vector: its unit vector.
        matrix: vectors of the objects' names.
        top_k: how many at most.
    """
    query = vector.astype(np.float16)
    dense, _ = matrix.nearest(query, NUM_RANKED)
    scores: dict[int, float] = {}
    for ranking in (dense.tolist(), named_with(db, words(name))):
        for rank, node in enumerate(ranking, 1):
            scores[node] = scores.get(node, 0.0) + 1 / (RRF + rank)
    nodes = np.array(list(scores), dtype=np.int64)
    rows = matrix.rows(nodes)
    similarity = np.where(rows < 0, 0, matrix.dot(np.maximum(rows, 0), query))
    found = [
        Candidate(node, score, float(cosine))
        for (node, score), cosine in zip(scores.items(), similarity, strict=True)
    ]
    return sorted(found, key=lambda c: (-c.score, -c.similarity, c.node))[:top_k]


def named_with(db: sqlite3.Connection, terms: Iterable[str]) -> list[int]:
    """Objects that have a word in one of their names, best first by BM25 over names."""
    query = match_any(terms)
    if not query:
        return []
    sql = """SELECT a.node FROM name_words w JOIN aliases a ON a.id = w.rowid
        WHERE name_words MATCH ? ORDER BY w.rank, a.id LIMIT ?"""
    rows = db.execute(sql, (query, 4 * NUM_RANKED))  # an object may have several names
    return list(dict.fromkeys(node for (node,) in rows))[:NUM_RANKED]


def match_any(terms: Iterable[str]) -> str:
    """An FTS5 query for texts that have one of some words; "" without a word."""
    return " OR ".join(quoted(term) for term in dict.fromkeys(terms))


def quoted(text: str) -> str:
    """A text as an FTS5 phrase: whatever is in it, it is no syntax."""
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'
