"""Plain ``View`` of a small graph written by hand: every method follows its definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

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
from turngraph.data.memory_graph.recall.ranking import rounded
from turngraph.data.memory_graph.recall.traverse_settings import Eigen
from turngraph.data.memory_graph.recall.view import QuestionEntity
from turngraph.data.normalise import words

LETTERS = {"O": OBJECT, "T": THESIS, "E": EPISODIC}
Triple = tuple[str, str, str]


class TinyView:
    """View of a small graph.

    Args:
        triples: source, relation, target; the relation is used for simple triplets only.
            Their order is that of the ids.
        starts: names of the linked objects.
        types: of the nodes that are not objects.
        cosines: closeness of texts to the question; 0 for all others.
        vectors: of nodes by name; zeros for all others.
        forbidden: letters of node types that may not be visited.
        lone: nodes without a triplet.
        worded: BM25 of texts; all others have no word of the question.
        talk: episodes of one source, in their order.
    """

    def __init__(
        self,
        triples: Sequence[Triple],
        starts: Sequence[str] = (),
        types: Mapping[str, int] | None = None,
        cosines: Mapping[str, float] | None = None,
        vectors: Mapping[str, Sequence[float]] | None = None,
        forbidden: str = "",
        lone: Sequence[str] = (),
        worded: Mapping[str, float] | None = None,
        talk: Sequence[str] = (),
    ) -> None:
        self.worded, self.talk = worded or {}, talk
        types, self.cosines, self.vectors = types or {}, cosines or {}, vectors or {}
        self.triples = list(triples)
        names = [name for source, _, target in triples for name in (source, target)]
        self.ids = {name: i for i, name in enumerate(dict.fromkeys([*names, *lone, *starts]), 1)}
        self.names_of = {i: name for name, i in self.ids.items()}
        self.node_types = np.full(len(self.ids) + 1, -1, np.int8)
        for name, node in self.ids.items():
            self.node_types[node] = types.get(name, OBJECT)
        self.forbidden = {LETTERS[letter] for letter in forbidden}
        self.question = " ".join(starts)
        self.entities = tuple(QuestionEntity(name, self.ids[name]) for name in starts)
        self.neighbours: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def question_nodes(self) -> np.ndarray:
        return np.array(list(dict.fromkeys(e.node for e in self.entities)), np.int64)

    def allowed(self, node: int) -> bool:
        return node in self.question_nodes or int(self.node_types[node]) not in self.forbidden

    def around(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        if node not in self.neighbours:
            self.neighbours[node] = self.look_around(node)
        return self.neighbours[node]

    def look_around(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for triplet, (source, _, target) in enumerate(self.triples):
            ends = self.ids[source], self.ids[target]
            other = ends[1] if ends[0] == node else ends[0]
            if node in ends and self.allowed(other):
                found.append((triplet, other))
        both = np.array(found, np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def around_all(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = [
            (t, node, o) for node in nodes for t, o in zip(*self.around(int(node)), strict=True)
        ]
        table = np.array(parts, np.int64).reshape(-1, 3)
        return table[:, 0], table[:, 1], table[:, 2]

    def is_hub(self, nodes: np.ndarray) -> np.ndarray:
        return np.array([len(self.around(int(node))[0]) > 3 for node in nodes], bool)

    def similarity(self, triplets: np.ndarray) -> np.ndarray:
        return np.array([self.cosines.get(self.text(int(t)), 0) for t in triplets], np.float32)

    def closeness(self, keys: np.ndarray) -> np.ndarray:
        return np.array([self.cosines.get(self.fact_text(int(k)), 0) for k in keys], np.float32)

    def facts_around(self, triplets: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.fact_keys(triplets), rounded(self.similarity(triplets))

    def types(self, triplets: np.ndarray) -> np.ndarray:
        return np.array([self.type_of(int(t)) for t in triplets], np.int8)

    def type_of(self, triplet: int) -> int:
        source, target = (int(self.node_types[node]) for node in self.ends(np.array([triplet]))[0])
        if source == TIME:
            return TIME_EDGE
        return {OBJECT: SIMPLE, THESIS: HYPER, EPISODIC: EPISODIC_EDGE}[target]

    def ends(self, triplets: np.ndarray) -> np.ndarray:
        pairs = [(self.ids[self.triples[t][0]], self.ids[self.triples[t][2]]) for t in triplets]
        return np.array(pairs, np.int64).reshape(-1, 2)

    def fact_keys(self, triplets: np.ndarray) -> np.ndarray:
        simple = self.types(triplets) == SIMPLE
        return np.where(simple, 2 * np.asarray(triplets) + 1, 2 * self.ends(triplets)[:, 1])

    def node_vectors(self, nodes: np.ndarray) -> np.ndarray:
        size = len(next(iter(self.vectors.values()), [0.0]))
        rows = [self.vectors.get(self.names_of[int(node)], [0.0] * size) for node in nodes]
        return np.array(rows, np.float32).reshape(-1, size)

    def text(self, triplet: int) -> str:
        source, relation, target = self.triples[triplet]
        return f"{source} {relation} {target}" if self.type_of(triplet) == SIMPLE else target

    def names(self, nodes: Iterable[int]) -> list[str]:
        return [self.names_of[node] for node in nodes]

    def mentions(self, keys: np.ndarray, name: str) -> np.ndarray:
        wanted = words(name)
        return np.array([_holds(words(self.fact_text(int(key))), wanted) for key in keys], bool)

    def fact_text(self, key: int) -> str:
        return self.text(key // 2) if key % 2 else self.names_of[key // 2]

    def nearest(self, k: int) -> np.ndarray:
        keys = dict.fromkeys(self.fact_keys(np.arange(len(self.triples))).tolist())
        free = [key for key in keys if self.may_be_read(key)]
        order = sorted(
            free, key=lambda key: (-self.cosines.get(self.fact_text(key), 0), self.fact_text(key))
        )
        return np.array(order[:k], np.int64)

    def nearest_of(self, k: int, *, episodes: bool) -> np.ndarray:
        keys = self.nearest(10**6).tolist()
        types = self.node_types
        chosen = [key for key in keys if (not key % 2 and types[key // 2] == EPISODIC) == episodes]
        return np.array(chosen[:k], dtype=np.int64)

    def nearest_by_words(self, k: int, node_type: int) -> tuple[np.ndarray, np.ndarray]:
        found = [
            (-score, self.ids[text])
            for text, score in self.worded.items()
            if self.node_types[self.ids[text]] == node_type and node_type not in self.forbidden
        ]
        best = sorted(found)[:k]
        return np.array([n for _, n in best], np.int64), np.array([-s for s, _ in best], float)

    def by_themes(self, settings: Eigen) -> np.ndarray:
        return self.nearest(settings.top_k)  # it has no themes

    def adjacent(self, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        line = [self.ids[name] for name in self.talk]
        pairs = [pair for one, other in pairwise(line) for pair in ((one, other), (other, one))]
        found = np.array([p for p in pairs if p[0] in episodes], np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def may_be_read(self, key: int) -> bool:
        """A simple triplet is forbidden with objects, a thesis and an episode with their own."""
        kind = OBJECT if key % 2 else int(self.node_types[key // 2])
        return kind not in self.forbidden

    def triplets(self, *texts: str) -> list[int]:
        """Return the ids of simple triplets by their texts."""
        ids = {self.text(t): t for t in range(len(self.triples))}
        return [ids[text] for text in texts]

    def texts(self, triplets: Iterable[int]) -> list[str]:
        return [self.text(int(t)) for t in triplets]

    def facts(self, keys: Iterable[int]) -> list[str]:
        return [self.fact_text(int(key)) for key in keys]


def _holds(text: list[str], wanted: list[str]) -> bool:
    size = len(wanted)
    return size > 0 and any(text[i : i + size] == wanted for i in range(len(text) - size + 1))
