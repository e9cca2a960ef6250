"""Finds the themes that a question is about, and the statements in them that are close to it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from turngraph.data.eigen.search import SearchSettings
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.recall.held_quotes import RecalledTheme, as_recalled
from turngraph.data.memory_graph.recall.question_view import QuestionView
from turngraph.data.memory_graph.recall.ranking import rounded
from turngraph.data.memory_graph.recall.theme_search import AskThemes, ThemeIndex, best_themes
from turngraph.data.memory_graph.recall.traverse_settings import Eigen
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.times import start

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

_THESES = """
SELECT c.id, p.fact, p.episode, p.start, p.stop FROM json_each(?) k JOIN chunks c ON c.id = k.value
JOIN provenance p ON p.episode = c.episode AND p.fact % 2 = 0
AND p.start >= c.start AND p.start < c.stop"""
"""Selects the theses of chunks, with the places that say them."""

_STATED = """
SELECT c.id, p.fact FROM json_each(?) k JOIN chunks c ON c.id = k.value
JOIN provenance p ON p.episode = c.episode AND p.start >= c.start AND p.start < c.stop
ORDER BY c.id, p.fact"""
"""Selects all facts that chunks state."""
MAX_COMPARED = 256
"""Closest theses among which those that fit into the words are chosen."""


class FoundThemes(NamedTuple):
    """Themes, best first, and their facts, theme by theme, each in order of time."""

    themes: tuple[RecalledTheme, ...]
    facts: tuple[Fact, ...]


def find_themes(
    store: Store, index: ThemeIndex, view: QuestionView, settings: AskThemes
) -> FoundThemes:
    """Return the themes of a question, and what they say that is closest to it.

    Args:
        store: the record, inside a read.
        index: its themes, at the same revision.
        view: the graph as the question sees it.
        settings: of the search and of what is returned.
    """
    if not index.themes:
        return FoundThemes((), ())
    cosines, hits = index.search(view, settings.search)
    best = best_themes(index, cosines, hits, settings.num_themes)
    found_at = {node for node, _ in hits if node < len(index.chunks)}
    whose: dict[int, int] = {}  # chunk: the first theme that has it
    for theme in best:
        chunks = index.chunks_of(theme).tolist()
        heaviest = chunks[: settings.max_members]
        for chunk in [*heaviest, *(c for c in chunks[settings.max_members :] if c in found_at)]:
            whose.setdefault(chunk, theme)
    chosen = _closest(store, index, view, list(whose), settings)
    themes, facts = [], []
    for theme in best:
        own = sorted((fact for chunk, fact in chosen if whose[chunk] == theme), key=_when)
        facts += own
        ids = index.chunks[index.chunks_of(theme)].tolist()
        shown = as_recalled(store, index.themes[theme], ids, view.second)
        keys = tuple(fact.key for fact in own)
        themes.append(replace(shown, score=float(cosines[theme]), facts=keys))
    return FoundThemes(tuple(themes), tuple(facts))


def facts_of_hits(
    db: Database, index: ThemeIndex, view: QuestionView, settings: Eigen
) -> np.ndarray:
    """Return the keys of the facts that a best-first search along the themes finds, int64.

    A passage stands for the facts that it states, the closest first, or for its episode if nothing
    was read of it; a theme for the facts that it quotes.

    Args:
        db: the record, inside a read.
        index: its themes, at the same revision.
        view: the graph as the question sees it.
        settings: of the search.
    """
    search = SearchSettings(settings.gamma, settings.num_starts, settings.max_pops)
    _, hits = index.search(view, search)
    count = len(index.chunks)
    ids = json.dumps([int(index.chunks[node]) for node, _ in hits if node < count])
    stated: dict[int, list[int]] = defaultdict(list)
    for chunk, fact in db.execute(_STATED, (ids,)):
        stated[chunk].append(fact)
    found: list[int] = []
    for node, _ in hits:
        if node >= count:
            found += [quote.fact for quote in index.themes[node - count].quotes]
            continue
        keys = np.array(stated[int(index.chunks[node])] or [2 * index.episodes[node]], np.int64)
        found += keys[np.argsort(-rounded(view.closeness(keys)), kind="stable")].tolist()
    each = np.array(list(dict.fromkeys(found)), np.int64)
    return view.holding(each)[: settings.top_k]


def _when(fact: Fact) -> tuple[float, int, tuple[int, int]]:
    place = fact.provenance[0]
    return (float("-inf") if place.said is None else start(place.said), place.episode, place.span)


def _closest(
    store: Store, index: ThemeIndex, view: QuestionView, chunks: list[int], settings: AskThemes
) -> list[tuple[int, Fact]]:
    """Return the theses closest to the question, each with the number of the chunk that says it.

    A chunk without theses, as of a language that nobody extracted, is there as its whole text.
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
    found: dict[int, tuple[int, Fact]] = {}
    left = settings.max_words
    best = np.lexsort((rows[:, 1], -near))[:MAX_COMPARED].tolist()
    facts = store.facts(rows[best, 1].tolist())
    for row, fact in zip(best, facts, strict=True):
        chunk, key, episode, first, last = rows[row].tolist()
        if key in found:
            continue
        size = len(fact.text.split())
        if found and size > left:
            continue
        left -= size
        places = [p for p in fact.provenance if p.episode == episode]
        place = replace(places[0], span=(first, last))
        text = fact.text[first:last] if fact.type == "episodic" else fact.text
        fact = replace(fact, text=text, provenance=(place,), score=float(near[row]))
        found[key] = int(np.searchsorted(index.chunks, chunk)), fact
    ended = view.ended_parts(found)
    return [
        (chunk, replace(fact, partly_until=ended.get(key))) for key, (chunk, fact) in found.items()
    ]
