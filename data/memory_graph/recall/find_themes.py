"""Finds the themes that a question is about, and the statements in them that are close to it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from turngraph.data.eigen.search import SearchSettings
from turngraph.data.memory_graph.memory_types import THESIS, Fact, node_key
from turngraph.data.memory_graph.recall.filter_facts import STOPWORDS
from turngraph.data.memory_graph.recall.held_quotes import RecalledTheme, as_recalled
from turngraph.data.memory_graph.recall.question_view import QuestionView
from turngraph.data.memory_graph.recall.ranking import rounded
from turngraph.data.memory_graph.recall.theme_search import AskThemes, ThemeIndex, best_themes
from turngraph.data.memory_graph.recall.traverse_settings import Eigen
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.times import start
from turngraph.data.normalise import words
from turngraph.data.retrieval.reciprocal_ranks import RRF, fuse

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

_THESES = """
SELECT c.id, p.fact, p.episode, p.start, p.stop FROM json_each(?) k JOIN chunks c ON c.id = k.value
JOIN provenance p ON p.episode = c.episode AND p.fact % 2 = 0
AND p.start >= c.start AND p.start < c.stop"""
"""Selects the theses of chunks, with the places that state them."""

_STATED = """
SELECT c.id, p.fact FROM json_each(?) k JOIN chunks c ON c.id = k.value
JOIN provenance p ON p.episode = c.episode AND p.start >= c.start AND p.start < c.stop
ORDER BY c.id, p.fact"""
"""Selects all facts that chunks state."""
MAX_COMPARED = 256
"""Number of the best theses, from which those that fit into ``max_words`` are chosen."""
MAX_MEMBERS = 256
"""Number of a theme's heaviest chunks whose statements are compared with the question."""
NUM_WORDED = 512
"""Number of theses ranked by full-text search; this ranking is fused with that by cosine."""


class FoundThemes(NamedTuple):
    """Themes, best first, and their facts, theme by theme, each in order of time."""

    themes: tuple[RecalledTheme, ...]
    facts: tuple[Fact, ...]


def find_themes(
    store: Store, index: ThemeIndex, view: QuestionView, settings: AskThemes
) -> FoundThemes:
    """Return the themes closest to a question, and the statements in them closest to it.

    Args:
        store: the record, in a read transaction.
        index: the themes at the record's revision.
        view: the graph as the question sees it.
        settings: settings of the search, and limits of the result.
    """
    if not index.themes:
        return FoundThemes((), ())
    cosines, hits = index.search(view, settings.search)
    best = best_themes(index, cosines, hits, settings.num_themes)
    found_at = {node for node, _ in hits if node < len(index.chunks)}
    whose: dict[int, int] = {}  # chunk: the first theme that has it
    for theme in best:
        chunks = index.chunks_of(theme).tolist()
        rest = (chunk for chunk in chunks[MAX_MEMBERS:] if chunk in found_at)
        for chunk in [*chunks[:MAX_MEMBERS], *rest]:
            whose.setdefault(chunk, theme)
    chosen = _closest(store, index, view, list(whose), settings)
    themes, facts = [], []
    for theme in best:
        theme_facts = sorted((fact for chunk, fact in chosen if whose[chunk] == theme), key=_when)
        if not theme_facts:
            continue
        facts += theme_facts
        ids = index.chunks[index.chunks_of(theme)].tolist()
        shown = as_recalled(store, index.themes[theme], ids, view.second)
        keys = tuple(fact.key for fact in theme_facts)
        themes.append(replace(shown, score=float(cosines[theme]), facts=keys))
    return FoundThemes(tuple(themes), tuple(facts))


def facts_of_hits(
    db: Database, index: ThemeIndex, view: QuestionView, settings: Eigen
) -> np.ndarray:
    """Return the keys of the facts that a best-first search along the themes finds, int64.

    The search reaches chunks and themes. A chunk gives the facts that it states, closest first, or
    its episode if it states none; a theme gives the facts that it quotes.

    Args:
        db: the record, in a read transaction.
        index: the themes at the record's revision.
        view: the graph as the question sees it.
        settings: settings of the search.
    """
    search = SearchSettings(settings.gamma, settings.num_starts, settings.max_pops)
    _, hits = index.search(view, search)
    count = len(index.chunks)
    ids = json.dumps([int(index.chunks[node]) for node, _ in hits if node < count])
    stated: dict[int, list[int]] = defaultdict(list)
    for chunk, fact in db.execute(_STATED, (ids,)):
        stated[chunk].append(fact)
    fact_keys: list[int] = []
    for node, _ in hits:
        if node >= count:
            fact_keys += [quote.fact for quote in index.themes[node - count].quotes]
            continue
        keys = np.array(stated[int(index.chunks[node])] or [2 * index.episodes[node]], np.int64)
        fact_keys += keys[np.argsort(-rounded(view.closeness(keys)), kind="stable")].tolist()
    each = np.array(list(dict.fromkeys(fact_keys)), np.int64)
    return view.holding(each)[: settings.top_k]


def _when(fact: Fact) -> tuple[float, int, tuple[int, int]]:
    place = fact.provenance[0]
    return (float("-inf") if place.said is None else start(place.said), place.episode, place.span)


def _closest(
    store: Store, index: ThemeIndex, view: QuestionView, chunks: list[int], settings: AskThemes
) -> list[tuple[int, Fact]]:
    """Return the theses closest to the question, each with the index of its chunk.

    A chunk without theses, such as one in a language that is not extracted, gives its whole text.
    """
    ids = json.dumps(index.chunks[chunks].tolist())
    rows = np.array(store.db.execute(_THESES, (ids,)).fetchall(), np.int64).reshape(-1, 5)
    silent = np.setdiff1d(index.chunks[chunks], rows[:, 0])
    numbers = np.searchsorted(index.chunks, silent)
    texts = [2 * index.episodes[numbers], index.episodes[numbers], index.begins[numbers]]
    rows = np.concatenate([rows, np.stack([silent, *texts, index.ends[numbers]], axis=1)])
    rows = rows[view.which_hold(rows[:, 1])]
    near = rounded(view.closeness(rows[:, 1]))
    rows, near = rows[near >= settings.min_similarity], near[near >= settings.min_similarity]
    chosen: dict[int, tuple[int, Fact]] = {}
    left = settings.max_words
    best = _ranked(view, rows[:, 1], near)[:MAX_COMPARED]
    facts = store.facts(rows[best, 1].tolist())
    order = _by_speaker(view, facts, rows[best, 2], settings.others)
    best, facts = best[order], [facts[i] for i in order.tolist()]
    for row, fact in zip(best.tolist(), facts, strict=True):
        chunk, key, episode, first, last = rows[row].tolist()
        if key in chosen:
            continue
        if len(chosen) == settings.max_facts:
            break
        size = len(fact.text.split())
        if chosen and size > left:
            continue
        left -= size
        places = [p for p in fact.provenance if p.episode == episode]
        place = replace(places[0], span=(first, last))
        text = fact.text[first:last] if fact.type == "episodic" else fact.text
        fact = replace(fact, text=text, provenance=(place,), score=float(near[row]))
        chosen[key] = int(np.searchsorted(index.chunks, chunk)), fact
    told = view.with_ends([fact for _, fact in chosen.values()], theses_only=True)
    return [(chunk, fact) for (chunk, _), fact in zip(chosen.values(), told, strict=True)]


def _ranked(view: QuestionView, keys: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return the indices of facts, best first, by fused rankings of cosine and of full text."""
    by_closeness = np.lexsort((keys, -near))
    nodes, _ = view.nearest_by_words(NUM_WORDED, THESIS)
    places = {node_key(node): place for place, node in enumerate(nodes.tolist())}
    with_words = [i for i, key in enumerate(keys.tolist()) if key in places]
    with_words.sort(key=lambda i: (places[int(keys[i])], i))
    return fuse([by_closeness, np.array(with_words, np.int64)], len(keys))


def _by_speaker(
    view: QuestionView, facts: Sequence[Fact], episodes: np.ndarray, others: float
) -> np.ndarray:
    """Return the order of ranked facts after those of speakers whom the question names rise.

    Args:
        view: the question, which may name a speaker or be a speaker's own ("I").
        facts: facts, best first.
        episodes: for each fact, node id of the episode that is quoted.
        others: factor of the reciprocal rank of other speakers' facts, if a speaker is named.
    """
    who = [
        next((place.speaker or "" for place in fact.provenance if place.episode == episode), "")
        for fact, episode in zip(facts, episodes.tolist(), strict=True)
    ]
    linked = {entity.name for entity in view.entities}
    named = named_speakers(view.question, who) | linked.intersection(who)
    scores = (RRF + 1) / (RRF + 1 + np.arange(len(facts)))
    if named:
        scores *= [1.0 if speaker in named else others for speaker in who]
    return np.argsort(-scores, kind="stable")


def named_speakers(question: str, speakers: Iterable[str]) -> set[str]:
    """Return the speakers whose name shares a word with the question, not written in lower case."""
    spelled = [word for word in question.split() if not word.islower()]
    asked = {word for spelling in spelled for word in words(spelling)} - STOPWORDS
    return {speaker for speaker in set(speakers) if asked.intersection(words(speaker))}
