"""Batches: padding, masks, labels and edges, position by position."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from turngraph.data.batches.collate import IGNORED_LABEL, Batch, collate
from turngraph.data.batches.reading import lay_out
from turngraph.data.examples import Example
from turngraph.data.graph.chain_graph import ChainGraph, Mentions
from turngraph.data.types import Conversation, Turn
from turngraph.tests.scorer_examples import read_examples

PAD = 0
LONG, SHORT, BARE = (3, 4, 2, 3), (2, 1, 2, 1), (2, 0, 3, 2)


def example(sizes: tuple[int, int, int, int], base: int, edges: Any = ()) -> Example:
    """Prefix, evidence, suffix and target of these sizes, their ids counted from ``base``."""
    ends = np.cumsum(sizes)
    prefix, nodes, suffix, target = np.split(np.arange(base, base + ends[-1]), ends[:-1])
    index = np.array(edges, np.int64).reshape(-1, 2).T
    conversation = Conversation(f"c{base}", "", (Turn("t7", "?"),))
    graph = ChainGraph(nodes, index, 0)
    return Example(
        conversation, 0, list(prefix), graph, list(suffix), list(map(int, target)), [], []
    )


EXAMPLES = [
    example(SHORT, 100),
    example(LONG, 200, [(0, 1), (3, 2)]),
    example(BARE, 300),
    example(LONG, 400, [(1, 0)]),
]


def make(side: Any = "right", with_target: bool = True, examples: Any = None) -> Batch:
    return collate(EXAMPLES if examples is None else examples, side, with_target)


def row_ids(batch: Batch, row: int) -> list[int]:
    return batch.input_ids[row][batch.attention_mask[row]].tolist()


def test_right_padding_starts_at_the_left() -> None:
    batch = make("right")
    assert batch.input_ids.shape == (4, 12)
    assert batch.input_ids[0].tolist() == [*range(100, 106), *[PAD] * 6]
    assert batch.attention_mask[0].tolist() == [True] * 6 + [False] * 6
    assert batch.attention_mask[1].all()


def test_left_padding_ends_at_the_right() -> None:
    batch = make("left")
    assert batch.input_ids[0].tolist() == [*[PAD] * 6, *range(100, 106)]
    assert batch.attention_mask[0].tolist() == [False] * 6 + [True] * 6


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_row_is_prefix_evidence_suffix_and_answer(side: Any) -> None:
    batch = make(side)
    assert [row_ids(batch, row) for row in range(4)] == [
        list(range(base, base + sum(sizes)))
        for base, sizes in ((100, SHORT), (200, LONG), (300, BARE), (400, LONG))
    ]
    prompts = make(side, with_target=False)
    assert prompts.input_ids.shape == (4, 9)
    assert row_ids(prompts, 1) == list(range(200, 209))


@pytest.mark.parametrize("side", ["right", "left"])
def test_labels_are_the_answer_at_its_own_positions(side: Any) -> None:
    batch = make(side)
    labelled = batch.labels != IGNORED_LABEL
    assert torch.equal(batch.labels[labelled], batch.input_ids[labelled])
    assert batch.labels[labelled].tolist() == [105, 209, 210, 211, 305, 306, 409, 410, 411]
    assert (make(side, with_target=False).labels == IGNORED_LABEL).all()


@pytest.mark.parametrize("side", ["right", "left"])
def test_an_answer_that_holds_the_pad_token_keeps_its_label(side: Any) -> None:
    first = example(SHORT, 100)
    first.target_ids[:] = [PAD, 7, PAD]
    first.suffix_ids[-1] = PAD
    batch = make(side, examples=[first, EXAMPLES[1]])
    labelled = (batch.labels[0] != IGNORED_LABEL).nonzero().flatten().tolist()
    start = 0 if side == "right" else batch.input_ids.shape[1] - 8
    assert labelled == [start + 5, start + 6, start + 7]
    assert batch.labels[0, labelled].tolist() == [PAD, 7, PAD]
    assert batch.attention_mask[0].sum() == 8


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_node_mask_names_the_nodes_in_row_major_order(side: Any) -> None:
    batch = make(side)
    nodes = np.concatenate([e.graph.node_ids for e in EXAMPLES])
    assert batch.input_ids[batch.node_mask].tolist() == nodes.tolist()
    assert batch.node_mask.sum(dim=1).tolist() == [1, 4, 0, 4]


def test_positions_count_an_examples_own_tokens() -> None:
    for side in ("right", "left"):
        batch = make(side)
        for row in range(4):
            own = batch.position_ids[row][batch.attention_mask[row]]
            assert own.tolist() == list(range(len(row_ids(batch, row))))
        assert batch.padded_right == (side == "right")
    # positions that start again would be taken for packed examples
    assert (make("right").position_ids == torch.arange(12)).all()


def pack(examples: Any = None) -> Batch:
    return collate(EXAMPLES if examples is None else examples, "right", True, packed=True)


def test_packed_examples_stand_one_behind_the_other_without_padding() -> None:
    packed, padded = pack(), make()
    sizes = [6, 12, 7, 12]
    assert packed.input_ids.shape == (1, sum(sizes))
    assert packed.attention_mask is None
    assert not packed.padded_right
    for field in ("input_ids", "position_ids", "node_mask", "labels"):
        parts = getattr(packed, field)[0].split(sizes)
        for row, part in enumerate(parts):
            assert part.tolist() == getattr(padded, field)[row, : sizes[row]].tolist(), field
    assert torch.equal(packed.edge_index, padded.edge_index)


def test_the_first_token_of_an_example_is_predicted_by_none() -> None:
    bare = example((0, 0, 0, 3), 500)
    packed = pack([EXAMPLES[0], bare])
    assert packed.labels[0, 6:].tolist() == [IGNORED_LABEL, 501, 502]
    for side in ("right", "left"):
        labels = make(side, examples=[EXAMPLES[0], bare]).labels[1]
        assert labels[labels != IGNORED_LABEL].tolist() == [501, 502]


def test_edges_are_shifted_by_the_nodes_before() -> None:
    edges = make().edge_index
    assert edges.dtype == torch.int64
    assert edges.T.tolist() == [[1, 2], [4, 3], [6, 5]]


def test_without_any_evidence() -> None:
    batch = make(examples=[EXAMPLES[2]])
    assert batch.edge_index.shape == (2, 0)
    assert not batch.node_mask.any()


def test_an_example_without_gold_answer_cannot_be_trained_on() -> None:
    unknown = example((1, 1, 1, 0), 500)
    with pytest.raises(ValueError, match="conversation c500, turn t7"):
        make(examples=[EXAMPLES[0], unknown])
    assert row_ids(make(with_target=False, examples=[unknown]), 0) == [500, 501, 502]


def test_a_batch_moves_as_a_whole() -> None:
    moved = make().to("cpu")
    assert torch.equal(moved.labels, make().labels)
    assert moved.edge_index.device.type == "cpu"
    assert pack().to("cpu").attention_mask is None
    read = collate(read_examples(2), "right", with_target=True)
    devices = [tensor.device.type for tensor in tensors_of(read.to("meta"))]
    assert devices == ["meta"] * len(tensors_of(read))
    assert None not in (read.reading, read.candidates)


def tensors_of(part: Any) -> list[torch.Tensor]:
    if is_dataclass(part):
        part = [getattr(part, field.name) for field in fields(part)]
    if isinstance(part, list):
        return [tensor for one in part for tensor in tensors_of(one)]
    return [part] if isinstance(part, torch.Tensor) else []


@pytest.mark.parametrize("packed", [False, True])
def test_nodes_may_take_no_position_in_the_prompt(packed: bool) -> None:
    known = EXAMPLES[1]
    hidden = replace(known, graph=replace(known.graph, num_hidden=2, edge_types=np.array([4, 0])))
    batch = collate([hidden, EXAMPLES[2], EXAMPLES[3]], "right", True, packed=packed)
    assert batch.input_ids[batch.node_mask].tolist() == [203, 204, 403, 404, 405, 406]
    assert batch.node_ids.tolist() == [203, 204, 205, 206, 403, 404, 405, 406]
    assert batch.in_prompt.tolist() == [0, 1, 4, 5, 6, 7]
    assert batch.edge_index.T.tolist() == [[0, 1], [3, 2], [5, 4]]
    assert batch.edge_types.tolist() == [4, 0, -1]
    assert hidden.num_tokens == known.num_tokens - 2


def test_where_every_node_is_in_the_prompt_nothing_is_kept_beside_it() -> None:
    batch = make()
    assert batch.node_ids is None
    assert batch.in_prompt is None
    assert batch.to("cpu").in_prompt is None


def read_example(
    sizes: tuple[int, int, int, int], base: int, of_passages: list[int], answers: Any
) -> Example:
    """As ``example``, with sizes of the passages and then of the question, whose ids are 0."""
    known, num_question = example(sizes, base), of_passages[-1]
    none = np.empty(0, np.int64)
    graph = replace(
        known.graph,
        node_ids=np.append(known.graph.node_ids, [0] * num_question),
        num_hidden=num_question,
        mentions=Mentions(none, none, np.array(of_passages), np.array(answers)),
    )
    return replace(known, graph=graph)


def test_a_reader_finds_every_token_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turngraph.data.batches.reading.SHORTEST", 2)
    first = read_example((3, 5, 1, 2), 100, [2, 0, 3, 2], [[0, 3], [1, 4]])
    second = read_example((5, 2, 3, 1), 200, [2, 1], [[0], [0]])
    read = lay_out([first, second], [[109, 110], [210]], 1)
    ignored = [IGNORED_LABEL]
    found = {name: value.tolist() for name, value in vars(read).items() if hasattr(value, "numel")}
    assert found == {
        "token_ids": [*range(100, 111), *range(200, 211)],
        "positions": [0, 1, 2, 3, 4, 3, 4, 5, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 5, 6, 7, 8],
        "labels": [*ignored * 9, 109, 110, *ignored * 10, 210],
        "examples": [0] * 11 + [1] * 11,
        "passages": [-1, -1, -1, 0, 0, 2, 2, 2, -1, -1, -1, *[-1] * 5, 3, 3, *[-1] * 4],
        "owners": [0, 0, 0, 1],
        "prefixes": [[0, 1, 2, 0, 0], [11, 12, 13, 14, 15]],
        "places": [
            *(0, 1, 2, 10, 11, 14, 15, 16, 18, 19, 20),
            *(5, 6, 7, 8, 9, 12, 13, 22, 23, 24, 25),
        ],
        "nodes": [3, 4, 5, 6, 7, 1, 2, 16, 17, 12],
        "answers": [[0, 3, 7], [1, 4, 7]],
        "num_answers": [2, 1],
    }
    assert (read.num_read, read.num_other) == ([5, 2], [6, 9])
    short, long = read.segments  # of up to two tokens, of up to four
    assert short.tokens.tolist() == [[3, 4], [16, 17]]
    assert long.tokens.tolist() == [[5, 6, 7, 0], [8, 9, 10, 0], [18, 19, 20, 21]]
    assert (short.examples.tolist(), long.examples.tolist()) == ([0, 1], [0, 0, 1])
    for segments, size in ((short, 2), (long, 4)):
        prefix = torch.arange(5) < torch.tensor([3, 5])[segments.examples, None]
        assert segments.mask.shape == (len(prefix), 1, size, 5 + size)
        for seen, mask in zip(prefix, segments.mask[:, 0], strict=True):
            assert (mask[:, :5] == seen).all()
            assert torch.equal(mask[:, 5:], torch.ones(size, size).tril().bool())
    prompts = lay_out([first, second], [[], []], 1)
    assert prompts.token_ids.tolist() == [*range(100, 109), *range(200, 210)]
    assert (prompts.labels == IGNORED_LABEL).all()


@pytest.mark.parametrize(
    ("lengths", "longest"), [([16, 17], [16, 17]), ([33, 32, 64, 65], [1, 32, 64, 65])]
)
def test_segments_of_similar_length_share_a_call(lengths: list[int], longest: list[int]) -> None:
    """Beside the passages there is a suffix of one token."""
    known = read_example((1, sum(lengths), 1, 1), 0, [*lengths, 0], [[], []])
    segments = lay_out([known], [[]], 0).segments
    assert [one.tokens.shape[1] for one in segments] == longest
