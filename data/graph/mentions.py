"""Finds which nodes mention which entity, for the candidates of ``model.answers: nodes``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from turngraph.data.graph.chain_graph import (
    Mentions,
    TokenisedPassage,
    first_token,
    last_token,
    node_starts,
)
from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.types import Answer, Entity, Evidence


def entities_of(passages: Sequence[Evidence]) -> dict[str, Entity]:
    """Return the entities of passages by id, in the order in which the passages list them."""
    entities: dict[str, Entity] = {}
    for passage in passages:
        for entity in passage.entities:
            entities.setdefault(entity.id, entity)
    return entities


def find_mentions(
    passages: Sequence[Evidence], nodes: dict[str, list[tuple[int, int]]], sizes: Sequence[int]
) -> Mentions:
    """Return the mentions of entities by a graph's nodes.

    Args:
        passages: passages of the evidence.
        nodes: result of ``chain_graph.span_nodes``.
        sizes: number of nodes of every passage, then of the question.
    """
    indices = {id_: index for index, id_ in enumerate(entities_of(passages))}
    mentions = [
        (indices[id_], node) for id_, spans in nodes.items() if id_ in indices for _, node in spans
    ]
    entities, last = np.array(mentions, np.int64).reshape(-1, 2).T
    return Mentions(entities, last, np.array(sizes, np.int64))


def find_answers(
    passages: Sequence[Evidence], tokens: Sequence[TokenisedPassage], answers: Sequence[Answer]
) -> np.ndarray:
    """Return first and last node of each place where a passage has a gold answer's words, [2, A].

    Args:
        passages: the evidence.
        tokens: tokens of each passage.
        answers: gold answers.
    """
    entities = tuple(Entity(f"answer {index}", a.label) for index, a in enumerate(answers))
    spans = entity_spans([replace(passage, entities=entities) for passage in passages])
    places = []
    for start, passage, held in zip(node_starts(tokens), tokens, spans, strict=False):
        for span in held:
            first = first_token(passage.ends, span.start)
            last = last_token(passage.ends, span.end)
            if last < len(passage.ids):  # else the passage was cut before the span's end
                places.append((int(start) + first, int(start) + last))
    return np.array(places, np.int64).reshape(-1, 2).T
