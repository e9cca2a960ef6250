"""Examples to tensors; only tensors cross from ``data`` to ``model``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from data.examples import Example

IGNORED_LABEL = -100


@dataclass
class Batch:
    """B examples of up to T tokens, evidence tokens included.

    Packed, the examples stand one behind the other in one row, and B is 1.

    Args:
        input_ids: token ids of prefix, evidence, suffix and answer, [B, T].
        attention_mask: False on padding, [B, T]; None where examples are packed.
        position_ids: places of the tokens in their example, from 0, [B, T]; going on over padding
            on the right, 0 on the left.
        node_mask: True where the evidence stands, [B, T]; the k-th True in row-major order is
            node k of the batch.
        edge_index: edges between nodes of the batch, source row and target row, [2, E].
        labels: the answer's ids at their own positions, -100 elsewhere, [B, T].
        padded_right: whether all padding stands behind the examples, where no token of a causal LM
            sees it.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor
    node_mask: Tensor
    edge_index: Tensor
    labels: Tensor
    padded_right: bool

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        tensors = {
            field.name: tensor.to(device, non_blocking=True)
            for field in fields(self)
            if isinstance(tensor := getattr(self, field.name), Tensor)
        }
        return replace(self, **tensors)


def collate(
    examples: Sequence[Example],
    padding_side: Literal["right", "left"],
    with_target: bool,
    pad_id: int = 0,
    packed: bool = False,
) -> Batch:
    """Pad examples into a batch, or pack them into one row.

    Args:
        examples: at least one.
        padding_side: ``right`` to train, ``left`` to generate.
        with_target: whether the gold answer stands behind the prompt, with labels.
        pad_id: fills the padding; never read, as the mask hides it.
        packed: one example behind the other in one row, without padding; to train only.

    Raises:
        ValueError: an example has no gold answer to train on.
    """
    lengths = [e.num_tokens - (0 if with_target else len(e.target_ids)) for e in examples]
    shape = (1, sum(lengths)) if packed else (len(examples), max(lengths))
    input_ids = np.full(shape, pad_id, np.int64)
    labels = np.full(shape, IGNORED_LABEL, np.int64)
    padded_right = not packed and padding_side == "right"
    position_ids = np.zeros(shape, np.int64)
    attention_mask, node_mask = np.zeros(shape, bool), np.zeros(shape, bool)
    edges, num_nodes, end = [], 0, 0
    for row, (example, length) in enumerate(zip(examples, lengths, strict=True)):
        if packed:
            row, start = 0, end
        else:
            start = 0 if padding_side == "right" else shape[1] - length
        end = start + length
        target = _target(example) if with_target else []
        ids = [example.prefix_ids, example.graph.node_ids, example.suffix_ids, target]
        input_ids[row, start:end] = np.concatenate([np.asarray(i, np.int64) for i in ids])
        attention_mask[row, start:end] = True
        filled = shape[1] if padded_right else end
        position_ids[row, start:filled] = np.arange(filled - start)
        first_node = start + len(example.prefix_ids)
        node_mask[row, first_node : first_node + len(example.graph.node_ids)] = True
        labels[row, end - len(target) : end] = target
        labels[row, start] = IGNORED_LABEL  # what stands before it is no part of the example
        edges.append(example.graph.edge_index + num_nodes)
        num_nodes += len(example.graph.node_ids)
    arrays = (position_ids, node_mask, np.concatenate(edges, axis=1), labels)
    mask = None if packed else torch.from_numpy(attention_mask)
    tensors = map(torch.from_numpy, arrays)
    return Batch(torch.from_numpy(input_ids), mask, *tensors, padded_right=padded_right)


def _target(example: Example) -> list[int]:
    if not example.target_ids:
        raise ValueError(f"conversation {example.key[0]}, turn {example.key[1]}: no gold answer")
    return example.target_ids
