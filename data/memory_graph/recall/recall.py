"""Recalls the facts of the memory graph that may answer a question, or "no answer"."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.embedding import Embed, cached
from turngraph.data.memory_graph.memory_types import (
    EPISODIC,
    OBJECT,
    THESIS,
    Extractor,
    Fact,
)
from turngraph.data.memory_graph.recall.adjacency import Adjacency
from turngraph.data.memory_graph.recall.ended_marks import EndedMarks, stated_by
from turngraph.data.memory_graph.recall.filter_facts import closest_facts
from turngraph.data.memory_graph.recall.link_entities import (
    Matched,
    exact_objects,
    link_entities,
    match_names,
)
from turngraph.data.memory_graph.recall.pagerank import rank_episodes
from turngraph.data.memory_graph.recall.question_vectors import question_encoder
from turngraph.data.memory_graph.recall.question_view import QuestionView
from turngraph.data.memory_graph.recall.recollection import Recollection, newer_first
from turngraph.data.memory_graph.recall.stage_clock import Clock
from turngraph.data.memory_graph.recall.traverse import traverse
from turngraph.data.memory_graph.recall.traverse_settings import (
    PASSAGES,
    TURNS,
    Eigen,
    Restart,
    Traversal,
    parse_mixture,
)
from turngraph.data.memory_graph.recall.unread import UnreadEpisodes
from turngraph.data.memory_graph.recall.vectors import Vectors
from turngraph.data.memory_graph.recall.view import QuestionEntity
from turngraph.data.memory_graph.recall.word_index import WordIndex
from turngraph.data.memory_graph.record.ended_parts import has_ended_part
from turngraph.data.memory_graph.record.fact_texts import fact_texts
from turngraph.data.memory_graph.record.speaker import USER, of_oneself, speaker_of
from turngraph.data.memory_graph.times import second_of

if TYPE_CHECKING:  # themes need scipy, which takes long to import
    from turngraph.data.memory_graph.recall.theme_search import AskThemes, ThemeIndex
    from turngraph.data.memory_graph.record.store import Store

NodeLetter = Literal["E", "T", "O"]
LETTERS: dict[NodeLetter, int] = {"E": EPISODIC, "T": THESIS, "O": OBJECT}
HISTORY = """SELECT 2 * e.node FROM json_each(?) k JOIN episodes e ON e.node = k.value
    WHERE json_extract(e.properties, '$.kind') IN ('question', 'answer')"""
"""Selects the keys of a chat's questions and answers among given nodes."""
NUM_CACHED = 1000
"""Largest number of texts of questions whose vectors are cached."""
NUM_LATEST = 1000
SPOKEN = """SELECT avg(CASE WHEN speaker IS NULL THEN 0.0 ELSE 1.0 END) FROM
    (SELECT speaker FROM episodes ORDER BY node DESC LIMIT ?)"""
"""Selects the fraction of the latest episodes that have a speaker; NULL without episodes."""


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """Settings of ``Recall.ask``. The defaults are the paper's, where it names one."""

    traversal: Traversal = field(default_factory=Traversal)
    """Algorithms that search, and their settings."""
    forbidden: tuple[NodeLetter, ...] = ()
    """Node types that are not walked to: E (episodes), T (theses), O (objects). Linked objects are
    exempt."""
    num_facts: int = 50
    """Maximum number of facts (N)."""
    num_candidates: int = 5
    """Number of candidate objects for each entity of the question (k)."""
    min_similarity: float = 0.0
    """Facts with a smaller cosine to the question are left out; if none are left, there is no
    answer."""
    by_similarity: bool = True
    """If the question names no object of the graph, search all facts by similarity instead of
    returning nothing. Episodes from which no fact was extracted are always searched by
    similarity."""
    min_flat_similarity: float = 0.3
    """Smallest cosine of a fact that a search by similarity returns."""
    min_name_similarity: float = 0.5
    """Smallest cosine of an entity of the question to the name of the object it is linked to; an
    entity that is an alias of an object is linked in any case."""

    def __post_init__(self) -> None:
        for name in ("num_facts", "num_candidates"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: {getattr(self, name)!r} given, must be at least 1")
        for name in ("min_similarity", "min_flat_similarity", "min_name_similarity"):
            if not -1 <= getattr(self, name) <= 1:
                raise UserError(
                    f"{name}: {getattr(self, name)!r} given, must lie between -1 and 1: a cosine"
                )
        for letter in self.forbidden:
            if letter not in LETTERS:
                raise UserError(f"forbidden: {letter!r} given, must be one of {list(LETTERS)}")


class Recall:
    """Question answering over the arrays of one memory graph.

    Args:
        store: the record.
        embed: returns unit vectors of texts.
        extractor: finds the entities of a question.
        writable: whether to write derived arrays to files; otherwise they stay in memory.
    """

    def __init__(
        self, store: Store, embed: Embed, extractor: Extractor, writable: bool = True
    ) -> None:
        self.db, self.embed, self.extractor = store.db, embed, extractor
        self.store = store
        self.adjacency = Adjacency(store.db, store.derived, writable)
        self.vectors = Vectors(store.db, store.derived, embed, writable)
        self.word_index = WordIndex(store.db)
        self.forget_queries()
        self._unread = UnreadEpisodes(store.db)
        self.marks = EndedMarks(store, self.vectors.facts, self.vectors.probe)

    def ask(
        self,
        question: str,
        as_of: str | None = None,
        settings: RecallSettings | None = None,
        start: Sequence[QuestionEntity] | None = None,
    ) -> Recollection:
        """Return the facts that may answer a question, best first.

        Without ``as_of``, theses of which a part has ended come last; with it, closeness alone
        decides. A fact that may have ended another is moved directly before it from up to
        three places behind (``EndedMarks``).

        Args:
            question: text of the question.
            as_of: a time; facts that held at its end are returned. None: facts that hold now.
            settings: settings of the search; None: the defaults.
            start: objects at which the search starts; None: those that the question names.

        Raises:
            UserError: ``as_of`` is not a time.
        """
        settings = settings or RecallSettings()
        with self.view_of(question, as_of, settings, start) as (view, clock):
            keys = traverse(view, settings.traversal).facts
            flat = settings.by_similarity and not view.entities and not len(keys)
            if flat:
                least = max(settings.min_similarity, settings.min_flat_similarity)
                settings = replace(settings, min_similarity=least)
                keys = traverse(view, replace(settings.traversal, mixture="flat")).facts
            elif settings.by_similarity:
                keys = np.union1d(keys, self._unread.near(view, settings.min_flat_similarity))
            clock.lap("traverse")
            facts = self.closest(view, keys, settings, is_now=as_of is None)
            facts = self.marks.newer_first(facts)
            clock.lap("filter")
        themed = "eigen" in parse_mixture(settings.traversal.mixture)
        return Recollection(
            question=question,
            entities=view.entities,
            facts=facts,
            revision=self.adjacency.revision,
            milliseconds=clock.milliseconds,
            by_similarity=flat,
            behind=self._themes.behind if themed else (),
            without_themes=themed and not self._themes.themes,
        )

    def ask_episodes(
        self, question: str, as_of: str | None = None, settings: RecallSettings | None = None
    ) -> Recollection:
        """Return the episodes that may answer a question, by personalised PageRank, best first.

        An episode that may have ended what another says is moved directly before it from up to
        three places behind (``EndedMarks``).

        Args:
            question, as_of: as in ``ask``.
            settings: settings whose traversal's ``ppr`` is used. If it has no ``restart``, the
                default for turns is used if most of the latest episodes have a speaker, else that
                for passages. None: the defaults.

        Raises:
            UserError: ``as_of`` is not a time.
        """
        settings = settings or RecallSettings()
        with self.view_of(question, as_of, settings) as (view, clock):
            episodes = self.marks.newer_first(
                self.ranked_episodes(view, settings, is_now=as_of is None)
            )
            clock.lap("rank")
        return Recollection(
            question=question,
            entities=view.entities,
            facts=episodes,
            revision=self.adjacency.revision,
            milliseconds=clock.milliseconds,
            mode="episodes",
        )

    def read_episodes(
        self,
        question: str,
        as_of: str | None = None,
        settings: RecallSettings | None = None,
        start: Sequence[QuestionEntity] | None = None,
        num_read: int = 5,
    ) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
        """Return episodes as ``ask_episodes`` does, and the closest facts that the best of them
        state.

        Args:
            question, as_of, settings, start: as in ``ask``.
            num_read: number of the best episodes whose facts are returned, at most ``num_facts``
                facts.

        Raises:
            UserError: ``as_of`` is not a time.
        """
        settings = settings or RecallSettings()
        with self.view_of(question, as_of, settings, start) as (view, _):
            episodes = self.marks.newer_first(
                self.ranked_episodes(view, settings, is_now=as_of is None)
            )
            read = stated_by(self.db, [fact.key // 2 for fact in episodes[:num_read]])
            keys = view.holding(np.array(read, dtype=np.int64))
            return episodes, self.closest(view, keys, settings, is_now=as_of is None)

    def ranked_episodes(
        self, view: QuestionView, settings: RecallSettings, is_now: bool, history: bool = False
    ) -> list[Fact]:
        """Return episodes ranked by PageRank; with ``history``, also those of chats."""
        ppr = settings.traversal.ppr
        ppr = replace(ppr, restart=ppr.restart or self._default_restart())
        nodes, scores = rank_episodes(view, ppr)
        left_out = view.outdated(2 * nodes, is_now)
        left_out.update(() if history else self.history_among(2 * nodes))
        current = ~np.isin(2 * nodes, list(left_out))
        nodes, scores = nodes[current], scores[current]
        facts = self.store.facts((2 * nodes).tolist())
        return [
            replace(fact, score=score) for fact, score in zip(facts, scores.tolist(), strict=True)
        ]

    @cached_property
    def _themes(self) -> ThemeIndex:
        from turngraph.data.memory_graph.recall.theme_search import ThemeIndex

        writable = self.vectors.facts.writable
        return ThemeIndex(self.db, self.store.derived, self.vectors, self.embed, writable)

    def _search_themes(self, view: QuestionView, settings: Eigen) -> np.ndarray:
        """Return the keys of facts from a search over the themes; without themes, the closest."""
        from turngraph.data.memory_graph.recall.find_themes import facts_of_hits

        self._themes.refresh()
        if not self._themes.themes:
            return view.nearest(settings.top_k)
        return facts_of_hits(self.db, self._themes, view, settings)

    def ask_themes(
        self, question: str, as_of: str | None = None, settings: AskThemes | None = None
    ) -> Recollection:
        """Return the themes that a question is about, and the statements in them that are close to
        it.

        The facts are theses of the themes' chunks, those closest to the question, theme by theme
        and each in order of time, except that a fact that may have ended another of its theme
        stands directly before it (``EndedMarks``). Without themes, all facts are searched
        by similarity.

        Args:
            question, as_of: as in ``ask``.
            settings: settings of the search, and limits of the result; None: the defaults.

        Raises:
            UserError: ``as_of`` is not a time.
        """
        from turngraph.data.memory_graph.recall.find_themes import find_themes
        from turngraph.data.memory_graph.recall.theme_search import AskThemes

        settings = settings or AskThemes()
        with self.view_of(question, as_of, RecallSettings()) as (view, clock):
            self._themes.refresh()
            clock.lap("themes")
            closest = find_themes(self.store, self._themes, view, settings)
            marked = {fact.key: fact for fact in self.marks.among(closest.facts)}
            of_themes = [newer_first([marked[key] for key in one.facts]) for one in closest.themes]
            themes = tuple(
                replace(theme, facts=tuple(fact.key for fact in facts))
                for theme, facts in zip(closest.themes, of_themes, strict=True)
            )
            clock.lap("search")
        if not self._themes.themes:
            flat = RecallSettings(Traversal("flat"), num_facts=settings.max_facts)
            without = self.ask(question, as_of, flat)
            return replace(without, without_themes=True, mode="themes")
        return Recollection(
            question=question,
            entities=view.entities,
            facts=tuple(fact for facts in of_themes for fact in facts),
            revision=self.adjacency.revision,
            milliseconds=clock.milliseconds,
            mode="themes",
            themes=themes,
            behind=self._themes.behind,
        )

    def candidates(
        self,
        names: Sequence[str],
        top_k: int,
        min_similarity: float = 0.5,
    ) -> list[tuple[Matched, ...]]:
        """Return for each name the objects that it may mean, best first; see ``match_names``.

        Args:
            names: names, as a question spells them.
            top_k: maximum number of objects for each.
            min_similarity: smallest cosine between a name and that of an object.
        """
        with self.store.reading():
            self.adjacency.refresh()
            self.vectors.refresh()
            return match_names(
                self.db,
                names,
                self._vectors_of,
                self.vectors.names,
                top_k=top_k,
                min_similarity=min_similarity,
            )

    def closeness_of_names(self, text: str, names: Sequence[str]) -> np.ndarray:
        """Return the cosine of each name to a text, float32; objects' stored vectors are used."""
        [vector] = self._vectors_of([text])
        with self.store.reading():
            self.vectors.refresh()
            nodes = [next(iter(exact_objects(self.db, name)), -1) for name in names]
            rows = self.vectors.names.rows(np.array(nodes, dtype=np.int64))
            products = self.vectors.names.dot(np.maximum(rows, 0), vector.astype(np.float16))
        cosines = np.array(products, dtype=np.float32)
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            cosines[unknown] = self._vectors_of([names[i] for i in unknown.tolist()]) @ vector
        return cosines

    def names(self, question: str) -> list[str]:
        """Return the names that a question mentions, in order; "I" is the graph's speaker."""
        names = self.extractor.entities(question)
        if not of_oneself(question):
            return names
        with self.store.clear_errors():
            speaker = speaker_of(self.db)
        others = [name for name in names if name != USER]
        return list(dict.fromkeys(others if speaker is None else [*others, speaker]))

    def embed_ahead(self, queries: Iterable[str]) -> None:
        """Embed queries and the names in them, in one batch an encoder, and cache the vectors."""
        asked = list(queries)
        batches = {self.embed_questions: asked.copy()}
        names = [name for query in asked for name in self.names(query)]
        batches.setdefault(self.embed_queries, []).extend(names)
        for embed, texts in batches.items():
            if texts:
                embed(texts)

    def forget_queries(self) -> None:
        """Drop the cached vectors of questions."""
        self.embed_queries = cached(self.embed, max_texts=NUM_CACHED)
        tuned = question_encoder(self.vectors.probe)
        self.embed_questions = cached(tuned, NUM_CACHED) if tuned else self.embed_queries

    def _vectors_of(self, texts: Sequence[str]) -> np.ndarray:
        """Return the unit vectors of names in questions, float32."""
        return np.asarray(self.embed_queries(texts), dtype=np.float32)

    def holds_until(self, second: int) -> float:
        """Return a second up to which no fact begins or ceases to hold; see ``Adjacency``.

        As long as the record does not change, a question asked at any second before it recalls the
        same facts as at ``second``.
        """
        return self.adjacency.holds_until(second)

    def _default_restart(self) -> Restart:
        """Return the default restart for turns or for passages, by the latest episodes."""
        [(share,)] = self.db.execute(SPOKEN, (NUM_LATEST,))
        return TURNS if share is not None and share > 0.5 else PASSAGES

    @contextmanager
    def view_of(
        self,
        question: str,
        as_of: str | None,
        settings: RecallSettings,
        begin: Sequence[QuestionEntity] | None = None,
    ) -> Iterator[tuple[QuestionView, Clock]]:
        """Yield the graph at its newest revision as the question sees it, and the clock."""
        second = second_of(as_of)
        clock = Clock()
        names = self.names(question) if begin is None else []
        clock.lap("entities")
        [vector] = np.asarray(self.embed_questions([question]), dtype=np.float32)
        clock.lap("embedding")
        with self.store.reading():
            revision = self.adjacency.refresh()
            self.vectors.refresh()
            self.word_index.show(revision)
            clock.lap("refresh")
            entities = tuple(begin or ()) or link_entities(
                self.db,
                names,
                self._vectors_of,
                self.vectors.names,
                top_k=settings.num_candidates,
                min_similarity=settings.min_name_similarity,
            )
            clock.lap("link")
            view = QuestionView(
                self.db,
                self.adjacency,
                self.vectors,
                question=question,
                vector=vector,
                entities=entities,
                as_of=second,
                forbidden=tuple(LETTERS[letter] for letter in settings.forbidden),
                word_index=self.word_index,
                search_themes=self._search_themes,
            )
            yield view, clock

    def closest(
        self, view: QuestionView, keys: np.ndarray, settings: RecallSettings, is_now: bool
    ) -> tuple[Fact, ...]:
        """Return those of some facts that hold and are closest to a question, best first."""
        left_out = [*view.outdated(keys, is_now), *self.history_among(keys)]
        if not is_now:
            left_out += view.out_of_time(keys)
        keys = keys[~np.isin(keys, left_out)]
        similarity = view.closeness(keys)
        near = similarity >= settings.min_similarity
        similarities = dict(zip(keys[near].tolist(), similarity[near].tolist(), strict=True))
        read = fact_texts(self.db, similarities)
        # of a thesis and an episode with the same text, keep the thesis, which has times
        texts = {key: read[key] for key in sorted(read, key=lambda k: (view.is_episode(k), k))}
        best = closest_facts(
            self.word_index, view.question, texts, similarities, settings.num_facts
        )
        closest = self.store.facts([key for key, _ in best])
        scored = [replace(f, score=score) for f, (_, score) in zip(closest, best, strict=True)]
        facts = view.with_ends(scored)
        if is_now:  # facts that hold completely come first, unless the question is about the past
            facts.sort(key=lambda fact: has_ended_part(fact, view.second))
        return tuple(facts)

    def marked(self, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        """Mark the facts that newer theses may have ended, in the same order.

        Args:
            facts: facts of any question; see ``EndedMarks.about``.
        """
        with self.store.reading():
            self.vectors.refresh()
            return self.marks.about(facts)

    def history_among(self, keys: np.ndarray) -> list[int]:
        """Return the keys of a chat's questions and answers, which are no evidence."""
        nodes = keys[keys % 2 == 0] // 2
        rows = self.db.execute(HISTORY, (json.dumps(nodes.tolist()),))
        return [key for (key,) in rows]

    def close(self) -> None:
        """Write the vectors that are only in memory."""
        with self.store.clear_errors():
            self.vectors.save()
            if "_themes" in self.__dict__:
                self._themes.vectors.save()
