"""Rows that join and leave a running batch get the answers that they get alone."""

from __future__ import annotations

import random

import pytest
import torch

from turngraph.data.batches.collate import collate
from turngraph.data.examples import Example
from turngraph.model.generation import Past
from turngraph.model.graph_lm import GraphLM
from turngraph.model.running_batch import JoinedLayer, Row, RunningBatch
from turngraph.tests.tiny import ARCHITECTURES, END_ID, tiny_examples, tiny_model


def alone(model: GraphLM, example: Example, num: int) -> tuple[list[int], float]:
    batch = collate([example], "left", with_target=False)
    found = model.generate(batch, num, END_ID)
    return found.ids[0].tolist(), float(found.logprobs[0])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows_that_come_and_go_get_the_answers_that_they_get_alone(
    architecture: str,
) -> None:
    model, rng = tiny_model(architecture).eval(), random.Random(0)
    examples = tiny_examples(6)
    waiting = [(rng.choice(examples), rng.randint(1, 40)) for _ in range(7)]
    running, started = RunningBatch(model, END_ID), list[tuple[Row, Example, int]]()
    dropped: list[Row] = []
    while waiting or running.rows:
        while waiting and (not running.rows or rng.random() < 0.3):
            example, num = waiting.pop()
            batch = collate([example], "left", with_target=False)
            started.append((running.add(batch, num), example, num))
        if running.rows and rng.random() < 0.04:
            dropped.append(rng.choice(running.rows))
            running.drop(dropped[-1:])
        running.step()
    for row, example, num in started:
        ids, logprob = alone(model, example, num)
        if row in dropped:
            assert row.ids == ids[: len(row.ids)]
            continue
        assert row.done
        assert row.ids == ids
        assert row.logprob == pytest.approx(logprob, abs=1e-3)


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


def test_a_store_has_room_for_its_rows_alone() -> None:
    model = tiny_model().eval()
    short, long = (
        collate([example], "left", with_target=False)
        for example in (tiny_examples(1, top_k=1)[0], tiny_examples(1)[0])
    )
    running = RunningBatch(model, END_ID)
    for _ in range(9):
        running.add(short, 40)
    [layer, *_] = running._cache.layers
    assert isinstance(layer, JoinedLayer)
    assert layer._stores[0].shape[0] == 16
    running.drop(running.rows[2:])
    running.add(long, 40)
    assert layer._stores[0].shape[0] == 4
    running.drop(list(running.rows))
    assert layer._stores[0].numel() == 0
    ids = running.add(long, 3).ids
    while running.rows:
        running.step()
    assert ids == alone(model, tiny_examples(1)[0], 3)[0]


def test_a_row_that_cannot_join_leaves_the_others_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, (first, second) = tiny_model().eval(), tiny_examples(2)
    running = RunningBatch(model, END_ID)
    row = running.add(collate([first], "left", with_target=False), 12)
    layer = running._cache.layers[-1]

    def full(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(layer, "join", full)
    with pytest.raises(RuntimeError, match="out of memory"):
        running.add(collate([second], "left", with_target=False), 12)
    monkeypatch.undo()
    while running.rows:
        running.step()
    assert row.ids == alone(model, first, 12)[0]
