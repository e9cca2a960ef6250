"""Asking the memory graph: from a question to the facts that may answer it, or to "no answer"."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, THESIS, Extractor, Fact
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.recall.adjacency import Adjacency
from turngraph.data.memory_graph.recall.filter_facts import closest_facts
from turngraph.data.memory_graph.recall.link_entities import link
from turngraph.data.memory_graph.recall.pagerank import rank_episodes
from turngraph.data.memory_graph.recall.question_view import QuestionView
from turngraph.data.memory_graph.recall.traverse import Traversal, traverse
from turngraph.data.memory_graph.recall.traverse_settings import Restart
from turngraph.data.memory_graph.recall.vectors import Vectors
from turngraph.data.memory_graph.recall.view import QuestionEntity
from turngraph.data.memory_graph.recall.word_index import WordIndex
from turngraph.data.memory_graph.record.fact_texts import fact_texts
from turngraph.data.memory_graph.times import end, now, parse_time, start
from turngraph.data.types import Entity, Evidence

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

NodeLetter = Literal["E", "T", "O"]
LETTERS = {"E": EPISODIC, "T": THESIS, "O": OBJECT}


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """How a question is answered from memory. The defaults are the paper's, where it names one."""

    traversal: Traversal = field(default_factory=Traversal)
    """Which algorithms search, and how."""
    forbidden: tuple[NodeLetter, ...] = ()
    """Node types that are not walked to: episodes, theses, objects. The linked objects are free."""
    num_facts: int = 50
    """Facts at most (N)."""
    num_candidates: int = 5
    """Objects that are looked at for each entity of the question (k)."""
    min_similarity: float = 0.0
    """Facts with a smaller cosine to the question are none; without any left there is no answer."""
    min_name_similarity: float = 0.5
    """An entity of the question means no object whose name has a smaller cosine to it, unless that
    is one of the object's aliases."""

    def __post_init__(self) -> None:
        for name in ("num_facts", "num_candidates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)!r} given, must be at least 1")
        for name in ("min_similarity", "min_name_similarity"):
            if not -1 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{name}: {getattr(self, name)!r} given, must lie between -1 and 1: a cosine"
                )
        for letter in self.forbidden:
            if letter not in LETTERS:
                raise ValueError(f"forbidden: {letter!r} given, must be one of {list(LETTERS)}")


@dataclass(frozen=True, slots=True)
class Recollection:
    """What the memory graph says to a question.

    Args:
        question: as it was asked.
        entities: names that it mentions and the objects that they mean.
        facts: best first, with their closeness as score; none: no answer.
        revision: of the graph that was asked.
        milliseconds: of each stage.
    """

    question: str
    entities: tuple[QuestionEntity, ...]
    facts: tuple[Fact, ...]
    revision: int
    milliseconds: dict[str, float]

    @property
    def no_answer(self) -> bool:
        """Nothing is known, or nothing close enough."""
        return not self.facts

    def evidence(self) -> list[Evidence]:
        """The facts as any other evidence; an entity's id is its name in normal form.

        Different objects of one name (two people named Anna) have their number in the id as well.
        """
        objects = dict(entity for fact in self.facts for entity in fact.entities)
        namesakes = Counter(alias(name) for name in objects.values())
        ids = {
            node: alias(name) if namesakes[alias(name)] == 1 else f"{alias(name)} #{node}"
            for node, name in objects.items()
        }
        return [
            Evidence(
                f"memory {fact.key}",
                fact.text,
                "memory",
                tuple(Entity(ids[node], name) for node, name in fact.entities),
            )
            for fact in self.facts
        ]


class Recall:
    """The arrays of one memory graph, and asking them.

    Args:
        store: the record.
        embed: texts to unit vectors.
        extractor: finds the entities of a question.
        writable: False keeps what is derived in memory.
    """

    def __init__(
        self, store: Store, embed: Embed, extractor: Extractor, writable: bool = True
    ) -> None:
        self.db, self.embed, self.extractor = store.db, embed, extractor
        self.store = store
        self.adjacency = Adjacency(store.db, store.derived, writable)
        self.vectors = Vectors(store.db, store.derived, embed, writable)
        self.word_index = WordIndex(store.db)

    def refresh(self) -> int:
        """Bring everything derived to the record's revision, which is returned."""
        with self.store.reading():
            self.adjacency.refresh()
            return self.vectors.refresh()

    def ask(
        self, question: str, as_of: str | None = None, settings: RecallSettings | None = None
    ) -> Recollection:
        """The facts that may answer a question, best first.

        Args:
            question: in words.
            as_of: a time; what held at its end is answered. None: what holds now.
            settings: None: the paper's.

        Raises:
            ValueError: ``as_of`` is no time.
        """
        settings = settings or RecallSettings()
        with self._view(question, as_of, settings) as (view, clock):
            keys = traverse(view, settings.traversal).facts
            clock.lap("traverse")
            facts = self._filter(view, keys, settings)
            clock.lap("filter")
        revision = self.adjacency.revision
        return Recollection(question, view.entities, facts, revision, clock.milliseconds)

    def ask_episodes(
        self, question: str, as_of: str | None = None, settings: RecallSettings | None = None
    ) -> list[Fact]:
        """The episodes that may answer a question, by personalised PageRank, best first.

        Args:
            question, as_of: as of ``ask``.
            settings: of its traversals ``ppr`` is read, and ``restart``'s defaults where that has
                none. None: the defaults.

        Raises:
            ValueError: ``as_of`` is no time.
        """
        settings = settings or RecallSettings()
        ppr = settings.traversal.ppr
        ppr = replace(ppr, restart=ppr.restart or Restart())
        with self._view(question, as_of, settings) as (view, _):
            nodes, scores = rank_episodes(view, ppr)
            current = ~np.isin(2 * nodes, list(view.outdated(2 * nodes)))
            nodes, scores = nodes[current], scores[current]
            facts = self.store.facts((2 * nodes).tolist())
        return [
            replace(fact, score=score) for fact, score in zip(facts, scores.tolist(), strict=True)
        ]

    @contextmanager
    def _view(
        self, question: str, as_of: str | None, settings: RecallSettings
    ) -> Iterator[tuple[QuestionView, _Clock]]:
        """The graph at its newest revision as the question sees it, and what that took."""
        second = start(now()) if as_of is None else _last_second(as_of)
        clock = _Clock()
        names = self.extractor.entities(question)
        clock.lap("entities")
        vectors = np.asarray(self.embed([question, *names]), dtype=np.float32)
        clock.lap("embedding")
        with self.store.reading():
            revision = self.adjacency.refresh()
            self.vectors.refresh()
            self.word_index.show(revision)
            clock.lap("refresh")
            near = settings.num_candidates, settings.min_name_similarity
            entities = link(self.db, names, vectors[1:], self.vectors.names, *near)
            clock.lap("link")
            forbidden = tuple(LETTERS[letter] for letter in settings.forbidden)
            arrays = self.adjacency, self.vectors
            asked = question, vectors[0], entities, second, forbidden, self.word_index
            yield QuestionView(self.db, *arrays, *asked), clock

    def _filter(
        self, view: QuestionView, keys: np.ndarray, settings: RecallSettings
    ) -> tuple[Fact, ...]:
        keys = keys[~np.isin(keys, list(view.outdated(keys)))]
        similarity = view.closeness(keys)
        near = similarity >= settings.min_similarity
        similarities = dict(zip(keys[near].tolist(), similarity[near].tolist(), strict=True))
        read = fact_texts(self.db, similarities)
        # of a sentence that is a whole episode, too, the thesis: it knows when it holds
        texts = {key: read[key] for key in sorted(read, key=lambda k: (view.is_episode(k), k))}
        best = closest_facts(
            self.word_index, view.question, texts, similarities, settings.num_facts
        )
        facts = self.store.facts([key for key, _ in best])
        return tuple(
            replace(fact, score=score) for fact, (_, score) in zip(facts, best, strict=True)
        )

    def close(self) -> None:
        """Write down what is only in memory."""
        self.vectors.save()


def _last_second(as_of: str) -> int:
    """The end of a time that a question is asked as of."""
    if not isinstance(as_of, str):
        raise ValueError(f"as_of: {as_of!r} given, must be a text")
    try:
        return end(parse_time(as_of)) - 1
    except ValueError as error:
        raise ValueError(f"as_of: {as_of!r} given: {error}") from None


class _Clock:
    """Milliseconds between one lap and the next."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.milliseconds[name] = 1000 * (now - self._last)
        self._last = now
