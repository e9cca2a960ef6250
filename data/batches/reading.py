"""Lays a batch out for a reader, whose first layers read each passage by itself.

The tokens of a batch form segments: of each example its prefix with the dialogue, its passages, and
its suffix with the answer. Below the graph's layer a segment sees its example's prefix and itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turngraph.data.examples import Example

IGNORED_LABEL = -100
SHORTEST = 16
"""Segments of up to this many tokens share one attention call, those of up to twice as many the
next one, and so on."""


@dataclass
class Segments:
    """Segments of similar length, whose attention is computed together.

    Args:
        tokens: index of each token among the T tokens of the batch, [R, M]; 0 on padding.
        examples: index of each segment's example, [R].
        mask: whether a token sees a token of the prefixes, padded to P tokens, or of its own
            segment, [R, 1, M, P + M]. Padding sees the prefix, so that no row of it is empty.
    """

    tokens: Tensor
    examples: Tensor
    mask: Tensor

    def to(self, device: torch.device | str) -> Segments:
        """Return the segments on a device."""
        return replace(self, **on_each(self, lambda tensor: tensor.to(device, non_blocking=True)))

    def pinned(self) -> Segments:
        """Return the segments in pinned memory, from which a GPU copies asynchronously."""
        return replace(self, **on_each(self, Tensor.pin_memory))


@dataclass
class Reading:
    """Batch of B examples with T tokens in all, without padding, one example after the other.

    Args:
        token_ids: prefix, passages, suffix and answer of each example, [T].
        positions: position of each token among those that it sees, [T].
        labels: the answer's ids at their own places, -100 elsewhere, [T].
        examples: index of each token's example, [T].
        passages: index of each token's passage among those of the batch, [T]; -1 outside passages.
        owners: index of each passage's example, [passages].
        num_read: number of tokens in the passages of each example; a list, so that the host need
            not wait for a GPU to know the length of a row.
        num_other: number of the other tokens of each example.
        prefixes: index of each prefix token, [B, P]; 0 on padding.
        segments: passages and suffixes, by length.
        places: where each token is in the concatenation of prefixes and segments with their
            padding, [T].
        nodes: index of each graph node's token, [N]: an example's passages, then its question.
        answers: first and last node of each place that has a gold answer's words, [2, A].
        num_answers: number of these places in each example, [B].
    """

    token_ids: Tensor
    positions: Tensor
    labels: Tensor
    examples: Tensor
    passages: Tensor
    owners: Tensor
    num_read: list[int]
    num_other: list[int]
    prefixes: Tensor
    segments: list[Segments]
    places: Tensor
    nodes: Tensor
    answers: Tensor
    num_answers: Tensor

    def to(self, device: torch.device | str) -> Reading:
        """Return the batch on a device."""
        moved = on_each(self, lambda tensor: tensor.to(device, non_blocking=True))
        return replace(self, **moved, segments=[segment.to(device) for segment in self.segments])

    def pinned(self) -> Reading:
        """Return the batch in pinned memory, from which a GPU copies asynchronously."""
        pinned = on_each(self, Tensor.pin_memory)
        return replace(self, **pinned, segments=[segment.pinned() for segment in self.segments])


def lay_out(
    examples: Sequence[Example], targets: Sequence[Sequence[int]], prefix_start: int
) -> Reading:
    """Lay examples out for a reader.

    Args:
        examples: at least one.
        targets: token ids of each example's answer, empty to generate.
        prefix_start: number of prefix tokens before the dialogue; those of the dialogue are nodes.
    """
    parts: dict[str, list[np.ndarray]] = {}
    segments: list[tuple[int, int, int]] = []  # example, first token, length
    prefix_sizes, num_read, num_other = list[int](), list[int](), list[int]()
    start = first_passage = first_node = 0
    for index, (example, target) in enumerate(zip(examples, targets, strict=True)):
        graph = example.graph
        assert graph.mentions is not None, "built without mentions"
        sizes: list[int] = graph.mentions.sizes[:-1].tolist()
        num_question = int(graph.mentions.sizes[-1])
        prefix, suffix = example.prefix_ids, [*example.suffix_ids, *target]
        num_prefix, num = len(prefix), int(sum(sizes))
        ids = np.concatenate([_ids(prefix), graph.prompt_ids, _ids(suffix)])
        lengths = [*sizes, len(suffix)]
        firsts = start + num_prefix + np.cumsum([0, *lengths[:-1]])
        segments += [(index, int(a), n) for a, n in zip(firsts, lengths, strict=True) if n]
        inside = [np.arange(num_prefix), *(num_prefix + np.arange(n) for n in lengths)]
        passages = np.full(len(ids), -1)
        passages[num_prefix : num_prefix + num] = first_passage + np.repeat(
            np.arange(len(sizes)), sizes
        )
        labels = np.full(len(ids), IGNORED_LABEL)
        if len(target):
            labels[-len(target) :] = target
        question = start + prefix_start + np.arange(num_question)
        read = start + num_prefix + np.arange(num)
        for name, values in {
            "token_ids": ids,
            "positions": np.concatenate(inside),
            "labels": labels,
            "examples": np.full(len(ids), index),
            "passages": passages,
            "owners": np.full(len(sizes), index),
            "nodes": np.concatenate([read, question]),
            "answers": first_node + graph.mentions.answers,
            "num_answers": np.array([graph.mentions.answers.shape[1]]),
        }.items():
            parts.setdefault(name, []).append(values)
        prefix_sizes.append(num_prefix)
        num_read.append(num)
        num_other.append(len(ids) - num)
        start, first_passage = start + len(ids), first_passage + len(sizes)
        first_node += num + num_question
    joined = {
        name: torch.from_numpy(np.concatenate(arrays, axis=-1).astype(np.int64))
        for name, arrays in parts.items()
    }
    num_tokens = [len(ids) for ids in parts["token_ids"]]
    starts = np.cumsum([0, *num_tokens[:-1]])
    prefixes, is_prefix = _padded(starts, np.array(prefix_sizes))
    groups, places = [], np.zeros(start, np.int64)
    places[prefixes[is_prefix]] = np.flatnonzero(is_prefix.ravel())
    before = prefixes.size
    for group in _by_length(segments):
        of, begins, num = np.array(group).T
        tokens, is_token = _padded(begins, num)
        places[tokens[is_token]] = before + np.flatnonzero(is_token.ravel())
        before += tokens.size
        seen = np.tril(np.ones((tokens.shape[1],) * 2, bool))
        own = np.broadcast_to(seen, (len(group), *seen.shape))
        seen_first = np.broadcast_to(is_prefix[of][:, None], (*tokens.shape, prefixes.shape[1]))
        mask = torch.from_numpy(np.concatenate([seen_first, own], axis=2)[:, None])
        groups.append(Segments(torch.from_numpy(tokens), torch.from_numpy(of), mask))
    return Reading(
        **joined,
        num_read=num_read,
        num_other=num_other,
        prefixes=torch.from_numpy(prefixes),
        segments=groups,
        places=torch.from_numpy(places),
    )


def _by_length(segments: Sequence[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """Divide segments into groups whose longest is at most twice as long as the shortest."""
    groups: dict[int, list[tuple[int, int, int]]] = {}
    for segment in segments:
        groups.setdefault(((segment[2] - 1) // SHORTEST).bit_length(), []).append(segment)
    return [groups[key] for key in sorted(groups)]


def _padded(starts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of ranges as rows, 0 on padding, and what is not padding."""
    columns = np.arange(sizes.max())
    is_in = columns < sizes[:, None]
    return np.where(is_in, starts[:, None] + columns, 0), is_in


def _ids(ids: Sequence[int]) -> np.ndarray:
    return np.asarray(ids, np.int64)


def on_each(parts: Any, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Return the changed tensors among the fields of a dataclass."""
    values = {field.name: getattr(parts, field.name) for field in fields(parts)}
    return {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
