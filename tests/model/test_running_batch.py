"""Rows that join and leave a running batch get the answers that they get alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from turngraph.configs.schema import ModelConfig
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.examples import Example
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import Past, key_value_cache
from turngraph.model.make_model import make_model
from turngraph.model.running_batch import SPARE, JoinedLayer, Row, RunningBatch
from turngraph.tests.model.test_packing import blind_model
from turngraph.tests.tiny import ARCHITECTURES, END_ID, tiny_examples, tiny_model


def alone(model: EvidenceModel, example: Example, num: int) -> tuple[list[int], float, float]:
    batch = collate([example], "left", with_target=False)
    found = model.generate(batch, num, END_ID)
    return found.ids[0].tolist(), float(found.logprobs[0]), float(found.margins[0])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows_that_come_and_go_get_the_answers_that_they_get_alone(
    architecture: str,
) -> None:
    model, rng = tiny_model(architecture).eval(), random.Random(0)
    examples = tiny_examples(6)
    waiting = [(rng.choice(examples), rng.randint(1, 24)) for _ in range(5)]
    running, started = RunningBatch(model, END_ID), list[tuple[Row, Example, int]]()
    dropped: list[Row] = []
    while waiting or running.rows:
        while waiting and (not running.rows or rng.random() < 0.3):
            example, num = waiting.pop()
            batch = collate([example], "left", with_target=False)
            started.append((running.add(batch, num), example, num))
        if running.rows and rng.random() < 0.08:
            dropped.append(rng.choice(running.rows))
            running.drop(dropped[-1:])
        running.step()
    for row, example, num in started:
        ids, logprob, margin = alone(model, example, num)
        if row in dropped:
            assert row.ids == ids[: len(row.ids)]
            continue
        assert row.done
        assert row.ids == ids
        assert row.logprob == pytest.approx(logprob, abs=1e-3)
        assert row.margin == pytest.approx(margin, abs=1e-3)


def test_a_row_reads_and_writes_the_prefix_cache_of_its_conversation() -> None:
    model = tiny_model().eval()
    batch = collate(tiny_examples(1), "left", with_target=False)
    past, running = Past(), RunningBatch(model, END_ID)
    first = running.add(batch, 3, past)
    embeddings = model.input_embeddings(batch)
    assert past.num_cached(embeddings) == embeddings.shape[1] - 1
    second = running.add(batch, 3, past)
    while running.rows:
        running.step()
    assert first.ids == second.ids
    assert torch.allclose(torch.tensor(first.logprob), torch.tensor(second.logprob), atol=1e-4)


def test_rows_of_one_length_need_no_mask() -> None:
    model, masks = tiny_model().eval(), list[Any]()
    short, long = sorted(tiny_examples(4), key=lambda example: example.num_tokens)[::3]
    running = RunningBatch(model, END_ID)
    model.causal_lm.register_forward_pre_hook(
        lambda _, __, given: masks.append(given.get("attention_mask")), with_kwargs=True
    )
    rows = [running.add(collate([one], "left", with_target=False), 9) for one in (long, long)]
    running.step()
    assert masks == [None] * 3
    rows.append(running.add(collate([short], "left", with_target=False), 9))
    running.step()
    assert masks[-1].sum(1).tolist() == [row.length for row in rows]


def test_a_layer_that_holds_nothing_adds_nothing() -> None:
    """As where a layer reads the keys and values of another one."""
    model = tiny_model().eval()
    running, cache = RunningBatch(model, END_ID), key_value_cache(model.causal_lm, 9)
    cache.layers[0].update(*torch.ones(2, 1, 1, 3, 16))
    running._join(cache)
    held = [layer.is_initialized for layer in running._cache.layers]
    assert held == [True, False]


def test_a_layer_stores_little_more_than_its_rows_and_nothing_without_any() -> None:
    def rows(num: int, length: int) -> list[int]:
        for _ in range(num):
            layer.join(*(torch.ones(1, 2, length, 4) for _ in range(2)))
        return [store.numel() // 8 for store in layer._stores]

    layer = JoinedLayer()
    for num, length, room in ((33, 10, 36), (2, 100, 2)):
        assert rows(num, length) == [room * (length + 64)] * 2
        layer.keep([], 0)
        assert rows(0, 0) == [0, 0]
    rows(32, 10)
    layer.keep([3], 10)
    assert rows(1, 6000) == [2 * (6000 + 6000 // 8)] * 2  # and not 32 times as much
    layer.keep([0], 10)
    assert rows(4, 20) == [5 * (20 + 64)] * 2


def test_a_layer_grows_as_its_rows_do() -> None:
    layer, kept = JoinedLayer(), torch.rand(1, 2, 5, 4)
    for states in (torch.rand(1, 2, 300, 4), kept):
        layer.join(states, states)
    layer.keep([1], 5)
    for _ in range(2 * SPARE):
        new = torch.rand(1, 2, 1, 4)
        kept = torch.cat([kept, new], 2)
        assert all(torch.equal(shown, kept) for shown in layer.update(new, new))
    assert layer._stores[0].shape[2] <= 1.125 * (5 + 2 * SPARE) + SPARE


@pytest.mark.parametrize("num", [0, 1, 2])
def test_a_row_that_does_not_fit_leaves_the_others_as_they_were(
    num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, examples = tiny_model().eval(), sorted(tiny_examples(4), key=lambda e: e.num_tokens)
    running, join, calls = RunningBatch(model, END_ID), JoinedLayer.join, list[JoinedLayer]()
    shorter, longest = examples[:num], collate(examples[-1:], "left", with_target=False)
    rows = [running.add(collate([one], "left", with_target=False), 12) for one in shorter]

    def fail(layer: JoinedLayer, keys: torch.Tensor, values: torch.Tensor) -> None:
        calls.append(layer)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("in the second layer")
        join(layer, keys, values)

    monkeypatch.setattr(JoinedLayer, "join", fail)
    with pytest.raises(torch.OutOfMemoryError):
        running.add(longest, 12)
    rows.append(running.add(longest, 12))
    while running.rows:
        running.step()
    expected = [alone(model, one, 12)[0] for one in (*shorter, examples[-1])]
    assert [row.ids for row in rows] == expected


def test_out_of_memory_while_a_layer_is_laid_out_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer, zeros, calls = JoinedLayer(), torch.Tensor.new_zeros, list[Any]()
    layer.join(*torch.arange(80.0).view(2, 1, 2, 5, 4))
    before = [shown.clone() for shown in layer._show()]

    def fail(*given: Any) -> torch.Tensor:
        calls.append(given)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("of the values")
        return zeros(*given)

    monkeypatch.setattr(torch.Tensor, "new_zeros", fail)
    with pytest.raises(torch.OutOfMemoryError):
        layer.join(torch.ones(1, 2, 99, 4), torch.ones(1, 2, 99, 4))
    for shown, known in zip(layer._show(), before, strict=True):
        assert torch.equal(shown, known)


@pytest.mark.parametrize(
    ("architecture", "kind"), [("mamba", "linear_attention"), ("lfm2", "conv")]
)
def test_an_lm_with_other_layers_than_attention_is_refused(architecture: str, kind: str) -> None:
    config = ModelConfig("tiny", lora=None, dtype="float32")
    model = make_model(config, blind_model(architecture))
    with pytest.raises(UserError, match=f"not batched for an LM with layers of type {kind}"):
        RunningBatch(model, END_ID)
    stateful = tiny_model()
    stateful.causal_lm.get_base_model()._is_stateful = True
    with pytest.raises(UserError, match="not batched for an LM with layers of type llama"):
        RunningBatch(stateful, END_ID)
