"""Generates a memory graph of any size: power-law degrees with one hub, clustered vectors.

Objects, theses and episodes belong to topics. Most edges stay within a topic, and the vectors of a
topic form a cluster, so that similarity to the question guides a walk, as in a real graph.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from turngraph.data.memory_graph.memory_types import (
    EPISODIC,
    EPISODIC_EDGE,
    HYPER,
    OBJECT,
    SIMPLE,
    THESIS,
    TIME,
    TIME_EDGE,
)
from turngraph.data.memory_graph.names import alias, text_hash
from turngraph.data.memory_graph.recall.derived_files import State, record_state
from turngraph.data.memory_graph.recall.vector_matrix import Row, VectorMatrix
from turngraph.data.memory_graph.recall.vectors import FACTS, NAMES, digest
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.fact_texts import changed_facts
from turngraph.data.memory_graph.record.facts import index_words
from turngraph.data.memory_graph.record.store import Store

WIDTH = 384
NODE_SHARES = {OBJECT: 0.45, THESIS: 0.40, EPISODIC: 0.14, TIME: 0.01}
EDGE_SHARES = {SIMPLE: 0.20, HYPER: 0.45, EPISODIC_EDGE: 0.30, TIME_EDGE: 0.05}
SKEW = 0.6  # an object's share of the edges falls with its rank to this power
NODES_PER_TOPIC = 500
OF_TOPIC = 0.8  # share of edges within a topic
TIMED = 0.1  # share of simple triplets that hold for some years only
NOISE = 0.7  # noise of a vector around the centre of its topic
BATCH = 20_000
SYLLABLES = "ba be bi bo da de di do ka ke ki ko la le li lo ma me mi mo na ne ni no ra re ri"


@dataclass(frozen=True)
class Shape:
    """Size of a synthetic graph.

    Args:
        nodes: number of nodes of all types.
        edges: number of edges of all types.
        hub: minimum number of edges of the hub.
        seed: random seed.
    """

    nodes: int
    edges: int
    hub: int
    seed: int = 0

    @property
    def starts(self) -> dict[int, int]:
        """First node id of each type; ids of a type are consecutive."""
        starts, first = {}, 1
        for kind, share in NODE_SHARES.items():
            starts[kind] = first
            first += int(share * self.nodes)
        return starts

    def count(self, kind: int) -> int:
        """Return the number of nodes of a type."""
        return int(NODE_SHARES[kind] * self.nodes)

    @property
    def num_topics(self) -> int:
        """Number of clusters of nodes and vectors."""
        return max(self.nodes // NODES_PER_TOPIC, 1)

    def topic(self, nodes: np.ndarray) -> np.ndarray:
        """Return the topic of each node."""
        return np.asarray(nodes) % self.num_topics


def make_graph(path: Path, shape: Shape) -> None:
    """Write a graph straight into the tables of a new database, as revision 1.

    Args:
        path: path of the database.
        shape: size of the graph.
    """
    rng = np.random.default_rng(shape.seed)
    with Store(path) as store:
        db = store.db
        db.execute("PRAGMA synchronous = OFF")
        sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
        indexes = db.execute(sql).fetchall()
        for name, _ in indexes:  # one sort at the end instead of a million searches
            db.execute(f"DROP INDEX {name}")
        with store.writing():
            names = object_names(shape)
            _write_objects(db, shape, names)
            edges = draw_edges(shape, rng)
            _write_texts(db, shape, names, edges, random.Random(shape.seed))
            _write_edges(db, edges, rng)
            _index_simple(db, names)
            for _, statement in tqdm(indexes, desc="indexes"):
                db.execute(statement)


def object_names(shape: Shape) -> list[str]:
    """Make a unique name of two words for each object; the first object's is at index 0."""
    rng = random.Random(shape.seed)
    parts = SYLLABLES.split()
    made = ("".join(rng.choices(parts, k=rng.choice((2, 3)))).title() for _ in range(9000))
    words = list(dict.fromkeys(made))
    found: dict[str, None] = {}
    while len(found) < shape.count(OBJECT):
        found[f"{rng.choice(words)} {rng.choice(words)}"] = None
    return list(found)


def draw_edges(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Draw all edges as (type, source, target), int64 [edges, 3], in random order."""
    starts, first = shape.starts, np.arange(shape.count(THESIS))
    kinds = {kind: int(share * shape.edges) for kind, share in EDGE_SHARES.items()}
    draw = _Drawer(shape, rng)
    theses = draw.any(THESIS, kinds[HYPER])
    theses[: len(first)] = starts[THESIS] + first[: len(theses)]  # each mentions something
    in_episode = draw.any(EPISODIC, kinds[EPISODIC_EDGE])
    members = draw.objects(shape.topic(in_episode))
    members[: len(first)] = starts[THESIS] + first  # each is in one episode
    hyper = np.stack([draw.objects(shape.topic(theses)), theses], axis=1)
    times = [draw.any(TIME, kinds[TIME_EDGE]), draw.any(THESIS, kinds[TIME_EDGE])]
    joins = {HYPER: hyper, EPISODIC_EDGE: np.stack([members, in_episode], axis=1)}
    joins[TIME_EDGE] = np.stack(times, axis=1)
    joins = {kind: np.unique(pairs, axis=0) for kind, pairs in joins.items()}
    left = shape.edges - sum(map(len, joins.values()))
    subjects = draw.objects(rng.integers(0, shape.num_topics, left))
    simple = np.stack([subjects, draw.objects(shape.topic(subjects))], axis=1)
    joins[SIMPLE] = _with_hub(simple, shape, sum((p[:, 0] == 1).sum() for p in joins.values()))
    edges = [np.insert(pairs, 0, kind, axis=1) for kind, pairs in joins.items()]
    return rng.permutation(np.concatenate(edges))


def _with_hub(simple: np.ndarray, shape: Shape, others: int) -> np.ndarray:
    """Move sources of simple triplets to the hub until enough of its edges hold at any time."""
    missing = max(int(1.1 * shape.hub) - others - int((simple == 1).any(axis=1).sum()), 0)
    free = np.flatnonzero((simple != 1).all(axis=1))[:missing]
    simple[free, 0] = 1
    return simple


class _Drawer:
    """Draws nodes: objects by a power law within a topic, sometimes the hub (object 1)."""

    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        self.shape, self.rng = shape, rng
        self.hub_share = shape.hub / shape.edges

    def any(self, kind: int, count: int) -> np.ndarray:
        return self.shape.starts[kind] + self.rng.integers(0, self.shape.count(kind), count)

    def objects(self, topics: np.ndarray) -> np.ndarray:
        rng, shape, size = self.rng, self.shape, len(topics)
        count = shape.count(OBJECT)
        found = 1 + (count * rng.random(size) ** (1 / (1 - SKEW))).astype(np.int64)
        stay = rng.random(size) < OF_TOPIC
        near = found - shape.topic(found) + topics
        found = np.where(stay & (near >= 1) & (near <= count), near, found)
        return np.where(rng.random(size) < self.hub_share, 1, found)


def _write_objects(db: Database, shape: Shape, names: Sequence[str]) -> None:
    nodes = ((i, OBJECT, name) for i, name in enumerate(names, 1))
    db.executemany("INSERT INTO nodes (id, type, text, revision) VALUES (?, ?, ?, 1)", nodes)
    aliases = ((i, alias(name), name, i) for i, name in enumerate(names, 1))
    db.executemany("INSERT INTO aliases (id, alias, spelling, node) VALUES (?, ?, ?, ?)", aliases)
    words = ((i, index_words(name)) for i, name in enumerate(tqdm(names, desc="names"), 1))
    db.executemany("INSERT INTO name_words (rowid, words) VALUES (?, ?)", words)


def _write_texts(
    db: Database,
    shape: Shape,
    names: Sequence[str],
    edges: np.ndarray,
    rng: random.Random,
) -> None:
    """Write theses with the names of their objects, episodes and times."""
    hyper = edges[edges[:, 0] == HYPER]
    hyper = hyper[np.argsort(hyper[:, 2], kind="stable")]
    starts, mentioned = shape.starts, hyper[:, 1]
    ids = np.arange(starts[THESIS], starts[THESIS] + shape.count(THESIS) + 1)
    bounds = np.searchsorted(hyper[:, 2], ids)
    vocabulary = [f"w{i}" for i in range(20_000)]

    def texts() -> Iterator[tuple[int, int, str]]:
        for i in tqdm(range(shape.count(THESIS)), desc="theses"):
            subjects = " and ".join(names[o - 1] for o in mentioned[bounds[i] : bounds[i + 1]][:5])
            yield starts[THESIS] + i, THESIS, f"{subjects} {_words(rng, vocabulary, 6)}."
        for i in tqdm(range(shape.count(EPISODIC)), desc="episodes"):
            yield starts[EPISODIC] + i, EPISODIC, f"Text {i}: {_words(rng, vocabulary, 15)}."

    sql = "INSERT INTO nodes (id, type, text, hash, revision) VALUES (?, ?, ?, ?, 1)"
    words = "INSERT INTO fact_words (rowid, words) VALUES (?, ?)"
    batch: list[tuple[int, int, str]] = []
    for row in texts():
        batch.append(row)
        if len(batch) == BATCH:
            _put_texts(db, sql, words, batch)
            batch.clear()
    _put_texts(db, sql, words, batch)
    times = range(starts[TIME], starts[TIME] + shape.count(TIME))
    rows = [(i, TIME, f"{1 + i % 9000:04d}", text_hash(TIME, f"{1 + i % 9000:04d}")) for i in times]
    db.executemany(sql, rows)
    episodes = range(starts[EPISODIC], starts[EPISODIC] + shape.count(EPISODIC))
    sql = "INSERT INTO episodes (node, extractor) VALUES (?, 'none')"
    db.executemany(sql, ((i,) for i in episodes))


def _put_texts(db: Database, sql: str, words: str, rows: Sequence[tuple[int, int, str]]) -> None:
    hashes = ((i, kind, text, text_hash(kind, text)) for i, kind, text in rows)
    db.executemany(sql, hashes)
    db.executemany(words, ((2 * i, index_words(text)) for i, _, text in rows))


def _words(rng: random.Random, vocabulary: Sequence[str], count: int) -> str:
    """Draw words, some far more common than others."""
    size = len(vocabulary)
    return " ".join(vocabulary[int(size * rng.random() ** 3)] for _ in range(count))


def _write_edges(db: Database, edges: np.ndarray, rng: np.random.Generator) -> None:
    years = rng.integers(1980, 2020, len(edges))
    timed = (edges[:, 0] == SIMPLE) & (rng.random(len(edges)) < TIMED)

    def rows() -> Iterator[tuple[object, ...]]:
        whole = zip(edges.tolist(), years.tolist(), timed.tolist(), strict=True)
        for (kind, source, target), year, ends in tqdm(whole, "edges", len(edges)):
            relation = f"r{(source * 7 + target) % 50}" if kind == SIMPLE else None
            times = (str(year), str(year + 5)) if ends else (None, None)
            yield kind, source, target, relation, *times

    sql = """INSERT INTO edges (type, source, target, relation, valid_from, valid_to, revision)
        VALUES (?, ?, ?, ?, ?, ?, 1)"""
    db.executemany(sql, rows())
    db.execute(f"""INSERT INTO provenance (fact, episode, start, stop)
        SELECT 2 * source, target, 0, 10 FROM edges JOIN nodes n ON n.id = source
        WHERE edges.type = {EPISODIC_EDGE} AND n.type = {THESIS} ORDER BY 1, 2""")


def _index_simple(db: Database, names: Sequence[str]) -> None:
    sql = f"SELECT id, source, relation, target FROM edges WHERE type = {SIMPLE}"
    rows = (
        (2 * edge + 1, index_words(f"{names[source - 1]} {relation} {names[target - 1]}"))
        for edge, source, relation, target in tqdm(db.execute(sql).fetchall(), desc="triplets")
    )
    db.executemany("INSERT INTO fact_words (rowid, words) VALUES (?, ?)", rows)


class Clusters:
    """Draws vectors around the centres of topics.

    Args:
        shape: shape of the graph.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape, self.rng = shape, np.random.default_rng(shape.seed + 1)
        self.centres = self._normal(shape.num_topics)

    def _normal(self, count: int) -> np.ndarray:
        return self.rng.standard_normal((count, WIDTH), dtype=np.float32)

    def draw(self, topics: np.ndarray, noise: float = NOISE) -> np.ndarray:
        """Draw a unit vector near the centre of each topic, float32 [k, 384]."""
        vectors = self.centres[topics] + noise * self._normal(len(topics))
        unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


def make_vectors(store: Store, shape: Shape, probe: np.ndarray, index: bool) -> None:
    """Write vectors of all names and facts to ``<db>.derived``, as an embedder would.

    Args:
        store: the graph.
        shape: shape of the graph.
        probe: the question embedder's vector of ``vectors.PROBE``.
        index: whether usearch's index of neighbours is built; without it search is exact.
    """
    clusters = Clusters(shape)
    sql = f"SELECT id, text, id FROM nodes WHERE type = {OBJECT}"
    names = VectorMatrix(store.derived / NAMES)
    _put_vectors(names, store.db.execute(sql), clusters)
    ends = dict(store.db.execute(f"SELECT 2 * id + 1, source FROM edges WHERE type = {SIMPLE}"))
    facts = ((key, text, ends.get(key, key // 2)) for key, text in changed_facts(store.db, -1))
    vectors = VectorMatrix(store.derived / FACTS)
    _put_vectors(vectors, facts, clusters)
    for matrix in (names, vectors):
        matrix.save(record_state(store.db), probe, index=index)


def _put_vectors(
    matrix: VectorMatrix, rows: Iterator[tuple[int, str, int]], clusters: Clusters
) -> None:
    batch: list[tuple[int, str, int]] = []
    for row in tqdm(rows, desc=f"vectors of {matrix.folder.name}"):
        batch.append(row)
        if len(batch) == BATCH:
            _put_batch(matrix, batch, clusters)
            matrix.save(State(), [], index=False)
            batch.clear()
    _put_batch(matrix, batch, clusters)


def _put_batch(
    matrix: VectorMatrix, rows: Sequence[tuple[int, str, int]], clusters: Clusters
) -> None:
    labels = [Row(key, digest(text)) for key, text, _ in rows]
    nodes = np.array([node for *_, node in rows], dtype=np.int64)
    matrix.put(labels, clusters.draw(clusters.shape.topic(nodes)))


@dataclass(frozen=True)
class Question:
    """A question with the results of an embedder and an extractor.

    Args:
        text: text of the question.
        names: entities that it mentions.
        nodes: objects with these names.
        vectors: vectors of the question and of the names, by text.
    """

    text: str
    names: tuple[str, ...]
    nodes: tuple[int, ...]
    vectors: dict[str, np.ndarray]


def make_questions(
    db: Database, shape: Shape, *, count: int, misspelt: float, hub: float
) -> list[Question]:
    """Make questions about one thesis each, which name up to three of its objects.

    Args:
        db: database of the graph.
        shape: shape of the graph.
        count: number of questions.
        misspelt: share of names that match no alias.
        hub: share of questions that name the hub.
    """
    rng, clusters = random.Random(shape.seed + 2), Clusters(shape)
    questions: list[Question] = []
    while len(questions) < count:
        thesis = shape.starts[THESIS] + rng.randrange(shape.count(THESIS))
        sql = f"""SELECT o.id, o.text FROM edges e JOIN nodes o ON o.id = e.source
            WHERE e.target = ? AND e.type = {HYPER} AND o.id > 1 ORDER BY o.id DESC LIMIT 3"""
        found = db.execute(sql, (thesis,)).fetchall()[: rng.choice((1, 2, 2, 3))]
        if rng.random() < hub:
            sql = "SELECT id, text FROM nodes WHERE id = 1"
            found = [*found[:1], *db.execute(sql).fetchall()]
        if found:
            questions.append(_question(rng, clusters, thesis, found, misspelt))
    return questions


def _question(
    rng: random.Random,
    clusters: Clusters,
    thesis: int,
    found: Sequence[tuple[int, str]],
    misspelt: float,
) -> Question:
    names = [f"{text}x" if rng.random() < misspelt else text for _, text in found]
    nodes = [node for node, _ in found]
    drawn = clusters.draw(clusters.shape.topic(np.array([thesis, *nodes])), 0.9)
    text = f"What about {' and '.join(names)} {_words(rng, [f'w{i}' for i in range(20_000)], 4)}?"
    vectors = dict(zip([text, *names], drawn, strict=True))
    return Question(text, tuple(names), tuple(nodes), vectors)
