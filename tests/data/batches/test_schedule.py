"""Which examples make which batch: order, budget, padding, and that nothing is remembered."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.configs.schema import EvidenceConfig, TrainingConfig
from turngraph.data.batches.schedule import BatchSchedule, check_shared_evenly
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.examples import ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.data.sources.sqa import convert, read_questions

# Tokens of SQA's questions with their evidence (top_k 20): percentiles 0, 5, ..., 100.
SQA_LENGTHS = (
    "655 954 1028 1060 1092 1126 1162 1190 1230 1266 1297 1335 1368 1411 1448 1515 1595 1682 1751 "
    "1834 2548"
)


def schedule(lengths: Any, **settings: Any) -> BatchSchedule:
    """A schedule over examples of these lengths; ``batch_tokens`` stands for ``batch_size``."""
    if "batch_tokens" in settings:
        settings["batch_size"] = None
    examples: Any = [
        SimpleNamespace(num_tokens=int(length), key=(f"c{number}", "0"))
        for number, length in enumerate(lengths)
    ]
    return BatchSchedule(examples, TrainingConfig(**settings))


def sqa_like(num: int) -> list[int]:
    known = list(map(int, SQA_LENGTHS.split()))
    places = np.random.default_rng(0).uniform(0, 100, num)
    return np.interp(places, np.linspace(0, 100, len(known)), known).astype(int).tolist()


def flat(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch]


def shuffled(num: int, epoch: int, seed: int) -> list[int]:
    """The order that every run so far took."""
    order = list(range(num))
    random.Random(f"epoch {epoch} of seed {seed}").shuffle(order)
    return order


def test_batches_of_one_size_stream_over_the_ends_of_epochs() -> None:
    found = schedule([9] * 7, batch_size=2, batches_per_step=3, num_epochs=3, seed=5)
    stream = [number for epoch in range(4) for number in shuffled(7, epoch, 5)]
    for number in range(4):
        taken = stream[number * 6 : number * 6 + 6]
        assert found.step(number) == [taken[:2], taken[2:4], taken[4:]]


@pytest.mark.parametrize(
    ("num", "num_epochs", "max_steps", "expected"),
    [(16, 1.5, None, 3), (17, 1.5, None, 4), (16, 1.5, 2, 2), (16, 1.5, 9, 3), (1, 0.1, None, 1),
     (80, 1.1, None, 11), (16, 1.5, 0, 0)],
)  # fmt: skip
def test_the_number_of_steps(
    num: int, num_epochs: float, max_steps: int | None, expected: int
) -> None:
    settings: Any = {"batches_per_step": 4, "num_epochs": num_epochs, "max_steps": max_steps}
    assert schedule([1] * num, batch_size=2, **settings).num_steps == expected
    assert schedule([3] * num, batch_tokens=6, **settings).num_steps == expected


def test_a_part_of_an_epoch_takes_that_part_of_its_batches() -> None:
    lengths = sqa_like(500)
    settings: Any = {"batch_tokens": 8000, "batches_per_step": 1}
    sizes = [len(schedule(lengths, **settings).epoch_batches(epoch)) for epoch in (0, 1)]
    found = schedule(lengths, num_epochs=1.5, **settings)
    assert found.num_steps == sizes[0] + -(-sizes[1] // 2)


def test_max_steps_beyond_the_epochs_are_told(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        schedule([5] * 8, batch_size=2, batches_per_step=1, num_epochs=2, max_steps=8).num_steps
        == 8
    )
    assert caplog.text == ""
    assert (
        schedule([5] * 8, batch_size=2, batches_per_step=1, num_epochs=2, max_steps=9).num_steps
        == 8
    )
    said = "training.max_steps: 9 given, but training.num_epochs: 2 ends after 8 steps"
    assert said in caplog.text


def test_no_more_epochs_are_looked_at_than_max_steps_reaches() -> None:
    found = schedule(sqa_like(100), batch_tokens=8000, num_epochs=1e9, max_steps=30)
    assert found.num_steps == 30


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=60),
    batch_tokens=st.integers(50, 200),
    per_step=st.integers(1, 4),
    packing=st.booleans(),
    seed=st.integers(0, 3),
)
def test_every_epoch_has_every_example_once_within_the_budget(
    lengths: list[int], batch_tokens: int, per_step: int, packing: bool, seed: int
) -> None:
    found = schedule(
        lengths,
        batch_tokens=batch_tokens,
        batches_per_step=per_step,
        packing=packing,
        seed=seed,
        num_epochs=3,
    )
    batches = [batch for step in range(found.num_steps) for batch in found.step(step)]
    for batch in batches:
        sizes = [lengths[number] for number in batch]
        assert 0 < (sum(sizes) if packing else len(sizes) * max(sizes)) <= batch_tokens
    taken = flat(batches)
    for epoch in range(3):
        part = taken[epoch * len(lengths) : (epoch + 1) * len(lengths)]
        assert sorted(part) == list(range(len(lengths)))
    epochs = [found.epoch_batches(epoch) for epoch in range(4)]
    assert batches == [batch for epoch in epochs for batch in epoch][: len(batches)]
    assert len(batches) - sum(map(len, epochs[:3])) in range(per_step)  # the last step is full


@pytest.mark.parametrize("settings", [{"batch_size": 3}, {"batch_tokens": 9000}])
def test_a_step_needs_none_of_the_steps_before(settings: Any) -> None:
    lengths = sqa_like(200)
    walked = schedule(lengths, num_epochs=4, seed=1, **settings)
    steps = [walked.step(number) for number in range(walked.num_steps)]
    for number in (walked.num_steps - 1, 7, 0):
        assert schedule(lengths, num_epochs=4, seed=1, **settings).step(number) == steps[number]
    assert schedule(lengths, num_epochs=4, seed=2, **settings).step(7) != steps[7]


@pytest.mark.parametrize("packing", [False, True])
def test_neighbours_and_order_change_from_epoch_to_epoch(packing: bool) -> None:
    lengths = sqa_like(2000)
    found = schedule(lengths, batch_tokens=12_000, packing=packing)
    first, second = (
        {frozenset(batch) for batch in found.epoch_batches(epoch)} for epoch in range(2)
    )
    assert len(first & second) < 0.1 * len(first)
    longest = [max(lengths[i] for i in batch) for batch in found.epoch_batches(0)]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.2


def test_grouped_by_length_there_is_little_padding() -> None:
    lengths = sqa_like(4000)
    grouped = schedule(lengths, batch_tokens=12_000)
    assert grouped.examples_per_batch() >= 8
    assert grouped.padding_share() < 0.02
    assert schedule(lengths, batch_size=8).padding_share() > 0.15


def test_the_batches_of_an_epoch_are_its_order_in_parts() -> None:
    batches = schedule(range(1, 12), batch_size=4, seed=3).epoch_batches(2)
    assert [len(batch) for batch in batches] == [4, 4, 3]
    assert flat(batches) == shuffled(11, 2, 3)


def test_what_is_padding_and_what_a_mean_batch() -> None:
    found = schedule([4, 4, 2, 2, 1], batch_size=5)
    assert found.padding_share() == pytest.approx(7 / 20)
    assert found.examples_per_batch() == 5
    assert schedule([4, 4, 2, 2, 1], batch_size=2).examples_per_batch() == 5 / 3
    assert schedule([4, 1], batch_size=2, packing=True).padding_share() == 0
    pairs = schedule([6, 6, 3, 3, 3, 3], batch_tokens=12)
    assert pairs.padding_share() == 0
    assert Counter(map(len, pairs.epoch_batches(0))) == {2: 1, 4: 1}


def test_packed_batches_are_filled_whatever_the_lengths() -> None:
    lengths = sqa_like(1000)
    found = schedule(lengths, batch_tokens=12_000, packing=True)
    assert sum(lengths) / len(found.epoch_batches(0)) > 0.9 * 12_000
    mixed = [np.std([lengths[i] for i in batch]) for batch in found.epoch_batches(0)]
    assert np.mean(mixed) > 0.5 * np.std(lengths)


@pytest.mark.parametrize("packing", [False, True])
def test_an_example_over_the_budget_is_an_error_that_names_it(packing: bool) -> None:
    with pytest.raises(ValueError, match=r"batch_tokens: 99 .* 2 examples .* c2, turn 0.* 120 tok"):
        schedule([5, 100, 120], batch_tokens=99, packing=packing)
    assert schedule([5, 100, 120], batch_tokens=120, packing=packing).num_steps == 1


@pytest.mark.parametrize(
    ("per_step", "world", "nearest"), [(4, 3, 3), (4, 8, 8), (7, 4, 8), (6, 4, 4), (16, 3, 15)]
)
def test_processes_that_cannot_share_a_step_are_an_error(
    per_step: int, world: int, nearest: int
) -> None:
    expected = rf"batches_per_step: {per_step} given, which {world} .* that fits is {nearest}$"
    with pytest.raises(ValueError, match=expected):
        check_shared_evenly(per_step, world)


@pytest.mark.slow
def test_padding_on_real_pages(sqa_folder: Path, smollm2_tokenizer: Any) -> None:
    questions = read_questions(sqa_folder / "train.tsv")
    tables = list(dict.fromkeys(question.table for question in questions))[:15]
    questions = [question for question in questions if question.table in tables]
    conversations, _ = convert(questions, sqa_folder / "table_csv", sqa_folder / "page")
    config = EvidenceConfig(top_k=20, memory="none", max_nodes=1024)  # as configs/sqa has it
    builder = ExampleBuilder(Prompt(smollm2_tokenizer), config)
    chosen = choose_questions(conversations, None, True, 0)
    examples = [
        e for n, turns in chosen.items() for e in builder.conversation(conversations[n], turns)
    ]
    found = BatchSchedule(examples, TrainingConfig(batch_size=None, batch_tokens=10_240))
    assert found.examples_per_batch() >= 8
    assert found.padding_share() <= 0.05
