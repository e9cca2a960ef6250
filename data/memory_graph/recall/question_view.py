"""Implements ``view.View``, the memory graph as one question sees it, on the derived arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, Fact
from turngraph.data.memory_graph.recall.adjacency import Adjacency, Moment, Rows
from turngraph.data.memory_graph.recall.filter_facts import STOPWORDS
from turngraph.data.memory_graph.recall.hub_cache import Hub
from turngraph.data.memory_graph.recall.hub_vectors import MAX_HUB_ROWS, MIN_HUB_ROWS
from turngraph.data.memory_graph.recall.neighbour_index import MAX_EXACT
from turngraph.data.memory_graph.recall.ranking import largest, least, rounded
from turngraph.data.memory_graph.recall.traverse_settings import Eigen
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.recall.vectors import Vectors
from turngraph.data.memory_graph.recall.view import QuestionEntity
from turngraph.data.memory_graph.recall.word_index import WordIndex
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.ended_parts import ended_parts, not_begun, with_ends
from turngraph.data.memory_graph.record.fact_texts import fact_text, node_texts
from turngraph.data.normalise import words

_ADJACENT = """(SELECT b.node FROM episodes b WHERE b.source = e.source AND b.node {} e.node
    ORDER BY b.node {} LIMIT 1)"""
ADJACENT = f"""SELECT e.node, {_ADJACENT.format("<", "DESC")}, {_ADJACENT.format(">", "ASC")}
    FROM episodes e WHERE e.node IN (SELECT value FROM json_each(?))"""
SAID_IN = "SELECT episode, fact FROM provenance WHERE episode IN (SELECT value FROM json_each(?))"
HUB = 4096
"""Smallest degree of a hub, whose neighbourhood is cached."""
EXACT = 1024
"""Number of a hub's closest facts whose cosines are computed exactly."""


class QuestionView:
    """View of one question at one moment and revision; used within one read transaction.

    Args:
        db: the record.
        adjacency, vectors: both at the record's revision.
        question: the question, as the user wrote it.
        vector: unit vector of the question.
        entities: the linked objects.
        as_of: second at which facts must hold.
        forbidden: node types that are not walked to, except for the linked objects.
        word_index: word index, shared by questions to the same record; None: a new one.
        search_themes: returns the keys of the facts found by a search over the themes; None: all
            facts are searched by similarity.
    """

    def __init__(
        self,
        db: Database,
        adjacency: Adjacency,
        vectors: Vectors,
        *,
        question: str,
        vector: np.ndarray,
        entities: tuple[QuestionEntity, ...],
        as_of: int,
        forbidden: tuple[int, ...] = (),
        word_index: WordIndex | None = None,
        search_themes: Callable[[QuestionView, Eigen], np.ndarray] | None = None,
    ) -> None:
        self.question, self.entities = question, entities
        self._db, self._adjacency, self._vectors = db, adjacency, vectors
        self._vector = np.asarray(vector, dtype=np.float32)
        free = tuple(dict.fromkeys(entity.node for entity in entities))
        self._moment = Moment(as_of, forbidden, free)
        self._cosines = CosineCache(vectors.facts, self._vector)
        self._word_index = word_index or WordIndex(db)
        self._search_themes = search_themes
        self._texts: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._hubs: dict[int, Hub] = {}
        self._facts_of_hubs: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def vector(self) -> np.ndarray:
        """Unit vector of the question, float32."""
        return self._vector

    @property
    def second(self) -> int:
        """Second at which facts must hold."""
        return self._moment.as_of

    def which_hold(self, keys: np.ndarray) -> np.ndarray:
        """Return whether each fact holds at the moment and is not forbidden; bool [k]."""
        return self._adjacency.facts_allowed(np.asarray(keys, dtype=np.int64), self._moment)

    @property
    def node_types(self) -> np.ndarray:
        """Type of each node by id, int8; -1 where there is none."""
        return self._adjacency.node_types

    @cached_property
    def question_nodes(self) -> np.ndarray:
        """The linked objects, each once."""
        return np.array(self._moment.free, dtype=np.int64)

    def around(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the allowed triplets at a node and their other ends."""
        triplets, _, others = self.around_all(np.array([node]))
        return triplets, others

    def around_all(self, nodes: np.ndarray) -> Rows:
        """Return the allowed triplets at many nodes, their ends there and their other ends."""
        nodes = np.asarray(nodes, dtype=np.int64)
        parts: list[Rows] = []
        begin = 0
        for i in np.flatnonzero(self.is_hub(nodes)).tolist():
            hub = self._hub(int(nodes[i]))
            between = self._adjacency.around_all(nodes[begin:i], self._moment)
            parts += [between, (hub.triplets, hub.ends, hub.others)]
            begin = i + 1
        parts.append(self._adjacency.around_all(nodes[begin:], self._moment))
        parts = [part for part in parts if len(part[0])] or parts[:1]
        if len(parts) == 1:
            return parts[0]  # not copied: ``facts_around`` recognises a hub's array
        triplets, ends, others = map(np.concatenate, zip(*parts, strict=True))
        return triplets, ends, others

    def _hub(self, node: int) -> Hub:
        if node not in self._hubs:
            self._hubs[node] = self._adjacency.hub(node, self._moment)
        return self._hubs[node]

    def is_hub(self, nodes: np.ndarray) -> np.ndarray:
        """Return which nodes are hubs."""
        return self._adjacency.degrees(nodes) >= HUB

    def facts_around(self, triplets: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return keys of the facts of triplets from ``around_all``, and their rounded cosines."""
        for node, hub in self._hubs.items():
            if hub.triplets is triplets:
                return self._hub_facts(node)
        keys = self.fact_keys(triplets)
        return keys, rounded(self.closeness(keys))

    def _hub_facts(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        if node not in self._facts_of_hubs:
            keys = self._hub(node).keys
            self._facts_of_hubs[node] = keys, rounded(self._cosines.of_hub(keys))
        return self._facts_of_hubs[node]

    def similarity(self, triplets: np.ndarray) -> np.ndarray:
        """Return the cosine of each triplet to the question."""
        return self.closeness(self.fact_keys(triplets))

    def closeness(self, keys: np.ndarray) -> np.ndarray:
        """Return the cosine of each fact to the question, float32; 0 for one without a vector."""
        return self._cosines.of(keys)

    def outdated(self, keys: np.ndarray, is_now: bool) -> set[int]:
        """Return the keys of episodes that state facts of which none holds at the moment.

        If the moment is now, a sentence of which all parts have ended still counts as holding,
        since people ask about the past, too.
        """
        episodes = [key // 2 for key in keys.tolist() if self.is_episode(key)]
        said = self._db.execute(SAID_IN, (json.dumps(episodes),)).fetchall()
        if not said:
            return set()
        whose, facts = np.array(said, dtype=np.int64).T
        held = self._adjacency.facts_allowed(facts, Moment(self._moment.as_of))
        if not is_now:
            held &= ~np.isin(facts, list(self.out_of_time(facts[held])))
        return {2 * episode for episode in set(whose.tolist()) - set(whose[held].tolist())}

    def with_ends(self, facts: Sequence[Fact], theses_only: bool = False) -> list[Fact]:
        """Return facts with the times at which their parts ended; see ``ended_parts.with_ends``."""
        return with_ends(self._db, facts, self._moment.as_of, theses_only)

    def out_of_time(self, keys: np.ndarray) -> set[int]:
        """Return the keys of facts whose parts have all ended, and of undated facts said later."""
        given = keys.tolist()
        theses = [key for key in given if not self.is_episode(key)]
        ended = ended_parts(self._db, theses, self._moment.as_of)
        later = not_begun(self._db, given, self._moment.as_of)
        return later | {key for key, part in ended.items() if part.is_whole}

    def types(self, triplets: np.ndarray) -> np.ndarray:
        """Return the edge type of each triplet."""
        return self._adjacency.types(triplets)

    def ends(self, triplets: np.ndarray) -> np.ndarray:
        """Return source and target of each triplet."""
        return self._adjacency.ends(triplets)

    def fact_keys(self, triplets: np.ndarray) -> np.ndarray:
        """Return the key of the fact whose text each triplet has."""
        return self._adjacency.fact_keys(np.asarray(triplets, dtype=np.int64))

    def node_vectors(self, nodes: np.ndarray) -> np.ndarray:
        """Return unit vectors of names and texts; zeros for times."""
        nodes = np.asarray(nodes, dtype=np.int64)
        objects = self.node_types[nodes] == OBJECT
        out = np.zeros((len(nodes), len(self._vector)), dtype=np.float32)
        out[objects] = self._vectors.names.vectors(nodes[objects])
        out[~objects] = self._vectors.facts.vectors(2 * nodes[~objects])
        return out

    def text(self, triplet: int) -> str:
        """Return the text of a triplet."""
        return self.fact_text(int(self._adjacency.edges["fact"][triplet]))

    def fact_text(self, key: int) -> str:
        """Return the text of a fact."""
        if key not in self._texts:
            self._texts[key] = fact_text(self._db, key)
        return self._texts[key]

    def is_episode(self, key: int) -> bool:
        """Return whether a fact is an episode."""
        return key % 2 == 0 and bool(self.node_types[key // 2] == EPISODIC)

    def names(self, nodes: Iterable[int]) -> list[str]:
        """Return the text of each node."""
        nodes = list(nodes)
        unknown = [node for node in nodes if node not in self._names]
        if unknown:
            self._names |= node_texts(self._db, unknown)
        return [self._names[node] for node in nodes]

    def mentions(self, keys: np.ndarray, name: str) -> np.ndarray:
        """Return whether each fact contains the words of a name in sequence."""
        return self._word_index.mention(" ".join(words(name)), keys)

    def nearest(self, k: int) -> np.ndarray:
        """Return the keys of the closest facts that hold and are not forbidden."""
        facts, wanted = self._vectors.facts, k
        while True:
            keys, _ = facts.nearest(self._vector.astype(np.float16), wanted)
            allowed = self.holding(keys)
            if len(allowed) >= k or wanted >= facts.count:
                return allowed[:k]
            wanted *= 4

    def nearest_of(self, k: int, *, episodes: bool) -> np.ndarray:
        """Return the keys of the ``k`` closest episodes, or of other facts, that hold."""
        if episodes:
            nodes = np.flatnonzero(self.node_types == EPISODIC)
            if len(nodes) <= MAX_EXACT:  # else they are filtered from the closest facts
                keys = self.holding(2 * nodes)
                return np.asarray(keys[largest(self.closeness(keys), keys, k)])
        wanted = 4 * k
        while True:
            keys = self.nearest(wanted)
            is_text = keys % 2 == 0
            are_episodes = is_text.copy()
            are_episodes[is_text] = self.node_types[keys[is_text] // 2] == EPISODIC
            nearest: np.ndarray = keys[are_episodes == episodes][:k]
            if len(nearest) == k or len(keys) < wanted:
                return nearest
            wanted *= 4

    def by_themes(self, settings: Eigen) -> np.ndarray:
        """Return the keys of the facts found by a search over the themes, best first."""
        if self._search_themes is None:
            return self.nearest(settings.top_k)
        return self._search_themes(self, settings)

    def holding(self, keys: np.ndarray) -> np.ndarray:
        """Return the keys of the facts that hold and are not forbidden."""
        allowed: np.ndarray = keys[self._adjacency.facts_allowed(keys, self._moment)]
        return allowed

    def nearest_by_words(self, k: int, node_type: int) -> tuple[np.ndarray, np.ndarray]:
        """Return at most ``k`` nodes of a type, best first by BM25 of their texts, and the BM25."""
        terms = [word for word in words(self.question) if word not in STOPWORDS]
        rows = self._db.words.best_nodes(terms, node_type, k)
        nodes = np.array([node for node, _ in rows], dtype=np.int64)
        allowed = self._adjacency.facts_allowed(2 * nodes, self._moment)
        return nodes[allowed], np.array([score for _, score in rows], dtype=float)[allowed]

    def adjacent(self, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of an episode and the episode directly before or after it in its source."""
        rows = self._db.execute(ADJACENT, (json.dumps(episodes.tolist()),))
        ids = [(one, other) for one, *others in rows for other in others if other is not None]
        pairs = np.array(ids, dtype=np.int64).reshape(-1, 2)
        pairs = pairs[self._adjacency.facts_allowed(2 * pairs[:, 1], self._moment)]
        return pairs[:, 0], pairs[:, 1]


class CosineCache:
    """Cosines of facts to one question, each computed once.

    Args:
        matrix: vectors of the facts.
        vector: vector of the question.
    """

    def __init__(self, matrix: VectorMatrix, vector: np.ndarray) -> None:
        self.matrix, self.query = matrix, vector.astype(np.float16)
        # 0: not computed yet; the last slot is that of row -1, a fact without a vector
        self._cosines = np.zeros(matrix.count + 1, dtype=np.float32)

    def of(self, keys: np.ndarray) -> np.ndarray:
        """Return the cosine of each fact, float32; 0 for one without a vector."""
        rows = self.matrix.rows(keys)
        cosines: np.ndarray = self._cosines[rows]
        unknown = np.flatnonzero(cosines == 0)
        unknown = unknown[rows[unknown] >= 0]
        if len(unknown):
            new = rows[unknown]
            cosines[unknown] = self._cosines[new] = self.matrix.dot(new, self.query)
        return cosines

    def of_hub(self, keys: np.ndarray) -> np.ndarray:
        """Return approximate cosines of a hub's facts; those of the ``EXACT`` closest are exact.

        The error is less than 0.005.
        """
        rows, copies = self.matrix.rows(keys), self.matrix.hub_vectors
        if len(rows) < MIN_HUB_ROWS:
            return self.of(keys)
        positions, missing = copies.positions(rows)
        cosines = (
            copies.dot(self.query)[positions] if len(copies.rows) else np.empty(len(rows), "f4")
        )
        cosines[missing] = self.of(keys[missing])
        if min(len(missing), MAX_HUB_ROWS) > max(len(copies.rows), MIN_HUB_ROWS):
            self.matrix.copy_hub(rows[missing])  # for later questions
        near = least(-cosines, EXACT)
        cosines[near] = self.of(keys[near])
        return cosines
