"""Links the entities of a question to the objects of the graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.memory_types import OBJECT
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.recall.view import QuestionEntity
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.fact_texts import node_texts
from turngraph.data.normalise import words
from turngraph.data.retrieval.reciprocal_ranks import RRF

NUM_RANKED = 50
"""Number of objects in each of the two rankings that are fused."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that a name may mean.

    Args:
        node: node id of the object.
        score: score of reciprocal-rank fusion; larger is closer.
        similarity: cosine between the two names.
    """

    node: int
    score: float
    similarity: float


@dataclass(frozen=True, slots=True)
class Matched:
    """An object that a name may mean.

    Args:
        entity: the name, and the object's node id.
        label: the object's own name.
        is_exact: whether the name is one of the object's aliases.
    """

    entity: QuestionEntity
    label: str
    is_exact: bool


def link_entities(
    db: Database,
    names: Sequence[str],
    embed: Embed,
    matrix: VectorMatrix,
    top_k: int = 5,
    min_similarity: float = 0.0,
) -> tuple[QuestionEntity, ...]:
    """Link each name to the object or objects that it means; leave out names without a close
    object.

    If the name is an alias of one or more objects, it is linked to them: to at most ``top_k``
    namesakes (two people called Anna), or to at most 50 objects if it is a common noun ("bridge"),
    since each text may mean another bridge. Any other name is linked to the object with the closest
    name.

    Args:
        db: the record, in a read transaction.
        names: names, as the question spells them.
        embed: returns unit vectors of names; is called once, with the names that are no alias.
        matrix: vectors of the objects' names.
        top_k: maximum number of namesakes, and number of candidates for a name that is no alias.
        min_similarity: smallest cosine of a name to that of the object it is linked to.
    """
    known, vectors = _exact_or_embedded(db, names, embed)
    entities: dict[QuestionEntity, None] = {}
    for name, exact in zip(names, known, strict=True):
        if len(exact) > top_k:
            exact = exact[: NUM_RANKED if _is_described(db, exact[0]) else top_k]
        if name in vectors:
            near = candidates(db, name, vectors[name], matrix, top_k)
            exact = [c.node for c in near if c.similarity >= min_similarity][:1]
        entities.update(dict.fromkeys(QuestionEntity(name, node) for node in exact))
    return tuple(entities)


def match_names(
    db: Database,
    names: Sequence[str],
    embed: Embed,
    matrix: VectorMatrix,
    top_k: int,
    min_similarity: float,
) -> list[tuple[Matched, ...]]:
    """Return for each name the objects that have it as an alias, else candidates, best first.

    Args:
        db, names, embed, matrix: as in ``link_entities``.
        top_k: maximum number of objects for each name.
        min_similarity: smallest cosine of a candidate.
    """
    exact, vectors = _exact_or_embedded(db, names, embed)
    matches = []
    for name, sure in zip(names, exact, strict=True):
        nodes = list(sure)
        if name in vectors:
            near = candidates(db, name, vectors[name], matrix, top_k)
            nodes += [c.node for c in near if c.similarity >= min_similarity]
        nodes = list(dict.fromkeys(nodes))[:top_k]
        labels = node_texts(db, nodes)
        matches.append(tuple(Matched(QuestionEntity(name, n), labels[n], n in sure) for n in nodes))
    return matches


def _exact_or_embedded(
    db: Database, names: Sequence[str], embed: Embed
) -> tuple[list[list[int]], dict[str, np.ndarray]]:
    """Return the objects of each name that is an alias, and the vectors of the other names."""
    exact = [exact_objects(db, name) for name in names]
    unsure = [name for name, nodes in zip(names, exact, strict=True) if not nodes]
    vectors = np.asarray(embed(unsure)) if unsure else ()
    return exact, dict(zip(unsure, vectors, strict=True))


def exact_objects(db: Database, name: str) -> list[int]:
    """Return the objects that have a name among their aliases, the oldest first."""
    sql = "SELECT DISTINCT node FROM aliases WHERE alias = ? ORDER BY node"
    return [node for (node,) in db.execute(sql, (alias(name),))]


def _is_described(db: Database, node: int) -> bool:
    """Return whether an object has no name, but a description in lower case."""
    [(text,)] = db.execute("SELECT text FROM nodes WHERE id = ?", (node,))
    return bool(text.islower())


def candidates(
    db: Database, name: str, vector: np.ndarray, matrix: VectorMatrix, top_k: int
) -> list[Candidate]:
    """Return the objects with the closest names by reciprocal-rank fusion of dense and BM25.

    An object's score is the sum of 1 / (60 + rank) over both rankings. Best first; ties are broken
    by similarity, then by id.

    Args:
        db: the record.
        name: name, as the question spells it.
        vector: unit vector of the name.
        matrix: vectors of the objects' names.
        top_k: maximum number of objects.
    """
    query = vector.astype(np.float16)
    dense, _ = matrix.nearest(query, NUM_RANKED)
    scores: dict[int, float] = {}
    for ranking in (_known(db, dense.tolist()), objects_by_words(db, words(name))):
        for rank, node in enumerate(ranking, 1):
            scores[node] = scores.get(node, 0.0) + 1 / (RRF + rank)
    nodes = np.array(list(scores), dtype=np.int64)
    rows = matrix.rows(nodes)
    similarity = np.where(rows < 0, 0, matrix.dot(np.maximum(rows, 0), query))
    scored = [
        Candidate(node, score, float(cosine))
        for (node, score), cosine in zip(scores.items(), similarity, strict=True)
    ]
    return sorted(scored, key=lambda c: (-c.score, -c.similarity, c.node))[:top_k]


def _known(db: Database, nodes: list[int]) -> list[int]:
    """Return the nodes that are objects, in order; a corrupt vector file may have other keys."""
    sql = "SELECT n.id FROM json_each(?) k JOIN nodes n ON n.id = k.value AND n.type = ?"
    known = {node for (node,) in db.execute(sql, (json.dumps(nodes), OBJECT))}
    return [node for node in nodes if node in known]


def objects_by_words(db: Database, terms: Iterable[str]) -> list[int]:
    """Return the objects whose names contain any of some words, best first by BM25 over names."""
    nodes = db.words.best_names(list(terms), 4 * NUM_RANKED)  # an object may have several names
    return list(dict.fromkeys(nodes))[:NUM_RANKED]
