"""Which nodes name which entity: what an answer can be chosen from (``model.answers: nodes``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from configs.schema import PIECE_FEATURES
from data.chain_graph import Mentions
from data.metrics import same_entity
from data.types import Entity, Evidence

if TYPE_CHECKING:
    from data.examples import Example


@dataclass
class Candidates:
    """The entities that the examples of a batch can be answered with: C of B examples.

    Nodes stand in S segments, one behind the other: the pieces of an example, then its question.
    Mentions of one candidate stand together, candidates of one example likewise.

    Args:
        segment_sizes: nodes in each segment, [S].
        questions: the segment of each example's question, [B].
        features: of each segment ``configs.schema.PIECE_FEATURES``, [S, 3]; 0 of questions.
        nodes: the last node of each mention, [M].
        segments: the segment of each mention, [M].
        num_mentions: of each candidate, [C].
        num_candidates: of each example, [B].
        gold: whether a candidate is a gold answer, [C]; None where there are no targets.
    """

    segment_sizes: Tensor
    questions: Tensor
    features: Tensor
    nodes: Tensor
    segments: Tensor
    num_mentions: Tensor
    num_candidates: Tensor
    gold: Tensor | None

    def to(self, device: torch.device | str) -> Candidates:
        """The same candidates on a device."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {
            name: tensor.to(device, non_blocking=True)
            for name, tensor in tensors.items()
            if tensor is not None
        }
        return replace(self, **moved)


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


def join_candidates(examples: Sequence[Example], with_gold: bool) -> Candidates:
    """The candidates of a batch."""
    parts: dict[str, list[np.ndarray]] = {field.name: [] for field in fields(Candidates)}
    first_node = first_segment = 0
    for example in examples:
        mentions = example.graph.mentions
        assert mentions is not None, "built without mentions"
        order = np.argsort(mentions.entities, kind="stable")
        nodes = mentions.nodes[order]
        ends = np.cumsum(mentions.sizes)
        counts = np.unique(mentions.entities, return_counts=True)[1]
        parts["segment_sizes"].append(mentions.sizes)
        parts["questions"].append(np.array([first_segment + len(ends) - 1]))
        parts["features"].append(_features(example))
        parts["nodes"].append(first_node + nodes)
        parts["segments"].append(first_segment + np.searchsorted(ends, nodes, side="right"))
        parts["num_mentions"].append(counts)
        parts["num_candidates"].append(np.array([len(counts)]))
        if with_gold:
            parts["gold"].append(_gold(example))
        first_node, first_segment = first_node + int(ends[-1]), first_segment + len(ends)
    gold = parts.pop("gold")
    joined = {name: torch.from_numpy(np.concatenate(arrays)) for name, arrays in parts.items()}
    return Candidates(**joined, gold=torch.from_numpy(np.concatenate(gold)) if with_gold else None)


def _features(example: Example) -> np.ndarray:
    found = np.zeros((len(example.evidence) + 1, len(PIECE_FEATURES)), np.float32)
    best = max((item.score for item in example.evidence), default=0.0)
    for rank, item in enumerate(example.evidence):
        is_old = item.from_turn < example.turn
        found[rank] = item.score / best if best > 0 else 0.0, np.log1p(rank), is_old
    return found


def _gold(example: Example) -> np.ndarray:
    answers = example.conversation.turns[example.turn].answers
    entities = candidate_entities(example)
    return np.array([any(same_entity(e, a) for a in answers) for e in entities], bool)


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
