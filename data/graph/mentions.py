"""Which nodes name which entity: what an answer can be chosen from (``model.answers: nodes``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turngraph.data.graph.chain_graph import Mentions
from turngraph.data.types import Entity, Evidence


def entities_of(passages: Sequence[Evidence]) -> dict[str, Entity]:
    """The entities of some passages by id, in the order in which the passages name them."""
    entities: dict[str, Entity] = {}
    for passage in passages:
        for entity in passage.entities:
            entities.setdefault(entity.id, entity)
    return entities


def find_mentions(
    passages: Sequence[Evidence], nodes: dict[str, list[tuple[int, int]]], sizes: Sequence[int]
) -> Mentions:
    """The mentions in a graph.

    Args:
        passages: of the evidence.
        nodes: of ``chain_graph.span_nodes``.
        sizes: nodes of every passage, and of the question behind them.
    """
    numbers = {id_: number for number, id_ in enumerate(entities_of(passages))}
    found = [
        (numbers[id_], node)
        for id_, places in nodes.items()
        if id_ in numbers
        for _, node in places
    ]
    entities, last = np.array(found, np.int64).reshape(-1, 2).T
    return Mentions(entities, last, np.array(sizes, np.int64))
