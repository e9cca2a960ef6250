"""Which nodes name which entity: what an answer can be chosen from (``model.answers: nodes``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from data.chain_graph import Mentions
from data.types import Entity, Evidence

if TYPE_CHECKING:
    from data.examples import Example


def entities_of(pieces: Sequence[Evidence]) -> dict[str, Entity]:
    """The entities of some pieces by id, in the order in which the pieces name them."""
    entities: dict[str, Entity] = {}
    for piece in pieces:
        for entity in piece.entities:
            entities.setdefault(entity.id, entity)
    return entities


def candidate_entities(example: Example) -> list[Entity]:
    """The entities that an example can be answered with, in the order of ``Candidates``."""
    assert example.graph.mentions is not None, "built without mentions"
    entities = list(entities_of([item.evidence for item in example.evidence]).values())
    return [entities[number] for number in np.unique(example.graph.mentions.entities)]


def find_mentions(
    pieces: Sequence[Evidence], nodes: dict[str, list[tuple[int, int]]], sizes: Sequence[int]
) -> Mentions:
    """The mentions in a graph.

    Args:
        pieces: of the evidence.
        nodes: of ``chain_graph.span_nodes``.
        sizes: nodes of every piece, and of the question behind them.
    """
    numbers = {id_: number for number, id_ in enumerate(entities_of(pieces))}
    found = [
        (numbers[id_], node)
        for id_, places in nodes.items()
        if id_ in numbers
        for _, node in places
    ]
    entities, last = np.array(found, np.int64).reshape(-1, 2).T
    return Mentions(entities, last, np.array(sizes, np.int64))
