"""Collates examples into tensors; only tensors cross from ``data`` to ``model``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from turngraph.configs.schema import PASSAGE_FEATURES
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.batches.reading import IGNORED_LABEL, Reading, lay_out, on_each
from turngraph.data.examples import Example
from turngraph.data.graph.chain_graph import ChainGraph
from turngraph.data.graph.mentions import entities_of
from turngraph.data.scoring.metrics import same_entity
from turngraph.data.types import Entity

logger = logging.getLogger(__name__)


def candidate_entities(example: Example) -> list[Entity]:
    """Return the candidate entities of an example, in the order of ``Candidates``."""
    assert example.graph.mentions is not None, "built without mentions"
    entities = list(entities_of([item.evidence for item in example.evidence]).values())
    return [entities[index] for index in np.unique(example.graph.mentions.entities)]


@dataclass
class Candidates:
    """Candidate entities of a batch: C candidates of B examples.

    The nodes form S consecutive segments: the passages of an example, then its question. Mentions
    of one candidate are consecutive, and so are the candidates of one example.

    Args:
        segment_sizes: number of nodes of each segment, [S].
        questions: index of each example's question segment, [B].
        features: ``configs.schema.PASSAGE_FEATURES`` of each segment, [S, 3]; 0 for questions.
        nodes: the last node of each mention, [M].
        segments: index of each mention's segment, [M].
        num_mentions: number of mentions of each candidate, [C].
        num_candidates: number of candidates of each example, [B].
        gold: whether a candidate is a gold answer, [C]; None without targets.
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
        """Return the candidates on a device."""
        return replace(self, **on_each(self, lambda tensor: tensor.to(device, non_blocking=True)))


@dataclass
class Batch:
    """Batch of B examples of up to T tokens, evidence tokens included.

    Packed examples are concatenated in one row, and B is 1.

    Args:
        input_ids: token ids of prefix, evidence, suffix and answer, [B, T].
        attention_mask: False on padding, [B, T]; None if examples are packed.
        position_ids: position of each token in its example, from 0, [B, T]; padding continues the
            count on the right and has 0 on the left.
        node_mask: True on evidence tokens, [B, T]; the k-th True in row-major order is
            node k of the batch, or the k-th node that is ``in_prompt``.
        node_places: places of the True in ``node_mask``, counted row after row. These, and those of
            the labels, are found on the CPU: on a GPU the host would have to wait for them.
        labels: the answer's ids at their own positions, -100 elsewhere, [B, T].
        answer_places: places of the tokens before each label, counted row after row, [A].
        answer_columns: the columns of these places, ascending, each once, [K].
        edge_index: edges between nodes of the batch, source row and target row, [2, E].
        edge_types: type of each edge, [E]; -1 if unknown.
        node_ids: token ids of the nodes, [N]; None if all nodes are in the prompt.
        in_prompt: the nodes that have a position in the prompt, ascending; None if all have.
        padded_right: whether all padding follows the examples, so that no token of a causal LM
            attends to it.
        candidates: candidate answers; None if the graphs have no mentions.
        reading: the same tokens laid out for a reader; None for other models.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor
    node_mask: Tensor
    node_places: Tensor
    labels: Tensor
    answer_places: Tensor
    answer_columns: Tensor
    edge_index: Tensor
    edge_types: Tensor
    node_ids: Tensor | None
    in_prompt: Tensor | None
    padded_right: bool
    candidates: Candidates | None
    reading: Reading | None

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on a device."""
        tensors = on_each(self, lambda tensor: tensor.to(device, non_blocking=True))
        candidates = None if self.candidates is None else self.candidates.to(device)
        reading = None if self.reading is None else self.reading.to(device)
        return replace(self, **tensors, candidates=candidates, reading=reading)

    def pinned(self) -> Batch:
        """Return the batch in pinned memory, from which a GPU copies asynchronously."""
        candidates = self.candidates
        if candidates is not None:
            candidates = replace(candidates, **on_each(candidates, Tensor.pin_memory))
        reading = None if self.reading is None else self.reading.pinned()
        pinned = on_each(self, Tensor.pin_memory)
        return replace(self, **pinned, candidates=candidates, reading=reading)


def collate(
    examples: Sequence[Example],
    padding_side: Literal["right", "left"],
    with_target: bool,
    packed: bool = False,
) -> Batch:
    """Pad examples into a batch, or pack them into one row.

    Args:
        examples: at least one example.
        padding_side: ``right`` to train, ``left`` to generate.
        with_target: whether the gold answer follows the prompt, with labels.
        packed: concatenate the examples in one row, without padding; for training only.

    Raises:
        UserError: an example has no gold answer to train on.
    """
    lengths = [e.num_tokens - (0 if with_target else len(e.target_ids)) for e in examples]
    shape = (1, sum(lengths)) if packed else (len(examples), max(lengths))
    input_ids = np.zeros(shape, np.int64)
    labels = np.full(shape, IGNORED_LABEL, np.int64)
    padded_right = not packed and padding_side == "right"
    position_ids = np.zeros(shape, np.int64)
    attention_mask, node_mask = np.zeros(shape, bool), np.zeros(shape, bool)
    end = 0
    for row, (example, length) in enumerate(zip(examples, lengths, strict=True)):
        if packed:
            row, start = 0, end
        else:
            start = 0 if padding_side == "right" else shape[1] - length
        end = start + length
        target = _target(example) if with_target else []
        evidence = example.graph.prompt_ids
        ids = [example.prefix_ids, evidence, example.suffix_ids, target]
        input_ids[row, start:end] = np.concatenate([np.asarray(i, np.int64) for i in ids])
        attention_mask[row, start:end] = True
        filled = shape[1] if padded_right else end
        position_ids[row, start:filled] = np.arange(filled - start)
        first_node = start + len(example.prefix_ids)
        node_mask[row, first_node : first_node + len(evidence)] = True
        labels[row, end - len(target) : end] = target
        labels[row, start] = IGNORED_LABEL  # the token before it is not part of the example
    graph = _join_graphs([example.graph for example in examples])
    rows, columns = np.nonzero(labels[:, 1:] != IGNORED_LABEL)
    reading = None
    if (first := examples[0].dialogue_start) is not None:
        reading = lay_out(examples, [_target(e) if with_target else [] for e in examples], first)
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        attention_mask=None if packed else torch.from_numpy(attention_mask),
        position_ids=torch.from_numpy(position_ids),
        node_mask=torch.from_numpy(node_mask),
        node_places=torch.from_numpy(np.flatnonzero(node_mask)),
        labels=torch.from_numpy(labels),
        answer_places=torch.from_numpy(rows * shape[1] + columns),
        answer_columns=torch.from_numpy(np.unique(columns)),
        edge_index=graph.edge_index,
        edge_types=graph.edge_types,
        node_ids=graph.node_ids,
        in_prompt=graph.in_prompt,
        padded_right=padded_right,
        candidates=join_candidates(examples, with_target),
        reading=reading,
    )


class _JoinedGraph(NamedTuple):
    """Fields of a ``Batch`` that describe its graph."""

    edge_index: Tensor
    edge_types: Tensor
    node_ids: Tensor | None
    in_prompt: Tensor | None


def _join_graphs(graphs: Sequence[ChainGraph]) -> _JoinedGraph:
    """Join the graphs of a batch as disjoint components of one."""
    starts = np.cumsum([0, *(len(graph.node_ids) for graph in graphs)])
    edges = [graph.edge_index + start for graph, start in zip(graphs, starts, strict=False)]
    types = [
        np.full(graph.edge_index.shape[1], -1) if graph.edge_types is None else graph.edge_types
        for graph in graphs
    ]
    joined = np.concatenate(edges, axis=1)
    assert (joined[0] != joined[1]).all(), "a self-loop, which the encoder adds itself"
    edge_index = torch.from_numpy(joined)
    edge_types = torch.from_numpy(np.concatenate(types))
    if not any(graph.num_hidden for graph in graphs):
        return _JoinedGraph(edge_index, edge_types, None, None)
    node_ids = np.concatenate([graph.node_ids for graph in graphs])
    sizes = [(len(graph.prompt_ids), graph.num_hidden) for graph in graphs]
    shown = np.repeat([True, False] * len(graphs), [size for pair in sizes for size in pair])
    return _JoinedGraph(
        edge_index, edge_types, torch.from_numpy(node_ids), torch.from_numpy(np.flatnonzero(shown))
    )


def join_candidates(examples: Sequence[Example], with_gold: bool) -> Candidates | None:
    """Return the candidates of a batch; None if a graph was built without mentions."""
    parts: dict[str, list[np.ndarray]] = {field.name: [] for field in fields(Candidates)}
    first_node = first_segment = 0
    for example in examples:
        if (mentions := example.graph.mentions) is None:
            return None
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


def with_gold_candidates(examples: Sequence[Example], path: str | None) -> list[Example]:
    """Return the examples whose passages have a gold answer; a scorer can learn only from these.

    A scorer has no loss on the others. A log line counts them.

    Args:
        examples: training examples with mentions; at least one.
        path: file that they come from, for messages.

    Raises:
        UserError: no example is left.
    """
    kept = [example for example in examples if _gold(example).any()]
    left_out = len(examples) - len(kept)
    if not kept:
        raise UserError(
            f"config field data.train: {path}: none of {plural(left_out, 'question')} has a gold "
            "answer in its passages, so that a scorer cannot learn from them"
        )
    if left_out:
        logger.info(
            "%s: %s left out of training: their passages do not have a gold answer",
            path,
            plural(left_out, "question"),
        )
    return kept


def _features(example: Example) -> np.ndarray:
    features = np.zeros((len(example.evidence) + 1, len(PASSAGE_FEATURES)), np.float32)
    best = max((item.score for item in example.evidence), default=0.0)
    for rank, item in enumerate(example.evidence):
        is_old = item.from_turn < example.turn
        features[rank] = item.score / best if best > 0 else 0.0, np.log1p(rank), is_old
    return features


def _gold(example: Example) -> np.ndarray:
    answers = example.conversation.turns[example.turn].answers
    entities = candidate_entities(example)
    return np.array([any(same_entity(e, a) for a in answers) for e in entities], bool)


def _target(example: Example) -> list[int]:
    if not example.target_ids:
        raise UserError(f"conversation {example.key[0]}, turn {example.key[1]}: no gold answer")
    return example.target_ids
