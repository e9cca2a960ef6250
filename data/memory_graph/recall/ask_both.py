"""Ranks facts and episodes of the memory graph together, which is the default way of asking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.recall.ended_marks import stated_by
from turngraph.data.memory_graph.recall.recall import Recall, RecallSettings
from turngraph.data.memory_graph.recall.recollection import Recollection, first_facts
from turngraph.data.memory_graph.recall.traverse import traverse
from turngraph.data.retrieval.reciprocal_ranks import fuse

NUM_FUSED = 30
"""Number of episodes of each ranking that are fused; twice as many facts are searched."""


def ask_both(
    recall: Recall, question: str, as_of: str | None = None, settings: RecallSettings | None = None
) -> Recollection:
    """Return the facts that a search for facts and a search for episodes rank best together.

    Episodes are ranked by reciprocal-rank fusion of two rankings: that of their closest facts,
    and personalised PageRank. Each episode gives the closest fact that it states, else itself
    (but not a chat's question or answer); the other close facts follow. A score is the
    closeness to the question. A fact that may have ended another is moved directly before it
    from up to three places behind (``EndedMarks``).

    Args:
        recall: the graph's ``Recall``, with its arrays.
        question, as_of: as in ``Recall.ask``.
        settings: as in ``Recall.ask`` and ``Recall.ask_episodes``; of the traversals only ``ppr``
            is used.

    Raises:
        UserError: ``as_of`` is not a time.
    """
    settings = settings or RecallSettings()
    least = max(settings.min_similarity, settings.min_flat_similarity)
    flat = replace(settings.traversal, mixture="flat")
    ppr = replace(settings.traversal.ppr, top_k=max(NUM_FUSED, settings.num_facts))
    wide = replace(
        settings,
        traversal=replace(flat, ppr=ppr),
        num_facts=max(2 * NUM_FUSED, settings.num_facts),
        min_similarity=least,
    )
    with recall.view_of(question, as_of, settings) as (view, clock):
        searched = settings.by_similarity or bool(view.entities)
        keys = traverse(view, flat).facts if searched else np.zeros(0, np.int64)
        facts = recall.closest(view, keys, wide, is_now=as_of is None)
        clock.lap("facts")
        episodes = (
            recall.ranked_episodes(view, wide, is_now=as_of is None, history=True)
            if facts or view.entities
            else []
        )
        keys = np.array([fact.key for fact in episodes], dtype=np.int64)
        history = recall.history_among(keys)
        said = [key // 2 for key in history]
        stated = view.holding(np.array(stated_by(recall.db, said), dtype=np.int64))
        near_enough = settings.min_similarity if view.entities else least
        of_history = replace(wide, min_similarity=near_enough)
        facts += recall.closest(view, stated, of_history, is_now=as_of is None)
        near = view.closeness(keys).tolist()
        scored = [replace(fact, score=score) for fact, score in zip(episodes, near, strict=True)]
        close = [fact for fact in scored if view.entities or fact.score >= least]
        ranked = fuse_facts(facts, view.with_ends(close))
        fused = recall.marks.newer_first([f for f in ranked if f.key not in history])
        clock.lap("episodes")
    return Recollection(
        question=question,
        entities=view.entities,
        facts=first_facts(fused, settings.num_facts),
        revision=recall.adjacency.revision,
        milliseconds=clock.milliseconds,
        by_similarity=not view.entities,
        mode="both",
    )


def fuse_facts(facts: Sequence[Fact], episodes: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return ranked facts and episodes as one ranking; see ``ask_both``."""
    of_episodes: dict[int, Fact] = {}
    for fact in facts:
        if fact.type == "episodic":
            of_episodes.setdefault(fact.key >> 1, fact)
        for place in fact.provenance:
            of_episodes.setdefault(place.episode, fact)
    whole = {fact.key >> 1: fact for fact in episodes}
    episode_ids = np.array(sorted({*of_episodes, *whole}))
    rankings = [np.searchsorted(episode_ids, list(ranked)) for ranked in (of_episodes, whole)]
    order = episode_ids[fuse(rankings, len(episode_ids))].tolist() if len(episode_ids) else []
    first = [of_episodes.get(id_) or whole[id_] for id_ in order]
    return tuple({fact.key: fact for fact in (*first, *facts)}.values())
