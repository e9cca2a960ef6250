"""Finds which nodes mention which entity, for the candidates of answers from nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turngraph.data.graph.chain_graph import Mentions
from turngraph.data.types import Entity, Evidence


def entities_of(passages: Sequence[Evidence]) -> dict[str, Entity]:
    """Return the entities of passages by id, in the order in which the passages list them."""
    entities: dict[str, Entity] = {}
    for passage in passages:
        for entity in passage.entities:
            entities.setdefault(entity.id, entity)
    return entities


def mentioned_entities(passages: Sequence[Evidence], mentions: Mentions) -> list[Entity]:
    """Return the entities that nodes mention, in ascending order of ``mentions.entities``."""
    entities = list(entities_of(passages).values())
    return [entities[index] for index in np.unique(mentions.entities)]


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
    found = [
        (indices[id_], node) for id_, spans in nodes.items() if id_ in indices for _, node in spans
    ]
    entities, last = np.array(found, np.int64).reshape(-1, 2).T
    return Mentions(entities, last, np.array(sizes, np.int64))
