"""The training loop: what a step computes, what a run writes, and the two as a user runs them."""

from __future__ import annotations

import json
import logging
import math
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import turngraph.training.run
from turngraph import train
from turngraph.configs.parse import load_config
from turngraph.configs.schema import Config, DataConfig, EncoderConfig, ModelConfig, TrainingConfig
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.batches.prefetch import STEPS_AHEAD, Trial, fingerprint, steps
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli
from turngraph.data.examples import Example
from turngraph.data.jsonlines import write_conversations
from turngraph.data.types import Answer
from turngraph.inference.load import load_builder
from turngraph.model.checkpoint import check_manifest, load_checkpoint
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model
from turngraph.tests.runs import Json, command, lines, losses, options
from turngraph.tests.stand_in_ray import StandIn
from turngraph.tests.tiny import LORA, stir, tiny_builder, tiny_conversation, tiny_examples
from turngraph.tests.waiting import PATIENCE, wait_until
from turngraph.training import evaluation
from turngraph.training.evaluation import evaluation_key, tune_line, tune_loss
from turngraph.training.launcher import make_accelerator
from turngraph.training.optimizer import check_warmup, make_optimizer, rate_factor
from turngraph.training.run import Run


def quiet_run(tmp_path: Path, base: str, **training: Any) -> Run:
    """A run without dropout over a fresh model."""
    config = Config(
        data=DataConfig(train="given to Run.train"),
        model=ModelConfig(base, lora=LORA, encoder=EncoderConfig(dropout=0.0), dtype="float32"),
        training=TrainingConfig(
            **{"output": str(tmp_path / "run"), "max_grad_norm": 1e9} | training
        ),
    )
    torch.manual_seed(0)
    model = stir(make_model(config.model)).train()
    return Run(config, Accelerator(), model, tiny_builder(), [])


class Keeping:
    """An optimizer that keeps the gradients of a step and changes nothing."""

    def __init__(self, run: Run) -> None:
        self.run, self.found = run, dict[str, torch.Tensor]()
        self.param_groups = [{"lr": 0.0, "full_lr": 0.0}]

    def step(self) -> None:
        parameters = self.run.model.named_parameters()
        self.found = {name: p.grad.clone() for name, p in parameters if p.grad is not None}

    def zero_grad(self) -> None:
        self.run.model.zero_grad()


def gradients(run: Run, batches: list[list[Example]]) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of one step of the loop."""
    examples = [example for batch in batches for example in batch]
    places = iter(range(len(examples)))
    indices = [[next(places) for _ in batch] for batch in batches]
    schedule: Any = SimpleNamespace(num_steps=1, step=lambda _: indices)
    logged: list[dict[str, float]] = []
    run.optimizer = keeping = Keeping(run)  # type: ignore[assignment]
    run.log = logged.append  # type: ignore[method-assign]
    train.train_steps(run, examples, schedule, [0], StopRequest())
    assert 0 <= logged[0]["data_wait_seconds"] < PATIENCE
    return logged[0]["loss"], keeping.found


def unequal_examples() -> list[Example]:
    """Four examples whose answers have different lengths."""
    examples = tiny_examples(4)
    long = replace(examples[1], target_ids=[*range(20, 32), *examples[1].target_ids])
    short = replace(examples[2], target_ids=examples[2].target_ids[-1:])
    return [examples[0], long, short, examples[3]]


def test_accumulating_four_times_one_is_a_batch_of_four(tmp_path: Path, tiny_folder: str) -> None:
    """The loss is the mean over the answer tokens of the step."""
    run, examples = quiet_run(tmp_path, tiny_folder), unequal_examples()
    assert len({len(example.target_ids) for example in examples}) >= 3
    loss, expected = gradients(run, [examples])
    total = sum(run.model(collate([e], "right", True)).total.item() for e in examples)
    assert loss == pytest.approx(total / sum(len(e.target_ids) for e in examples), rel=1e-5)
    assert set(expected) == {n for n, p in run.model.named_parameters() if p.requires_grad}
    for batches in ([[e] for e in examples], [examples[:1], examples[1:]]):
        other, found = gradients(run, batches)
        assert other == pytest.approx(loss, rel=1e-5)
        for name, gradient in expected.items():
            assert torch.allclose(found[name], gradient, rtol=1e-3, atol=1e-5), name


def test_processes_reduce_gradients_with_the_last_batch_of_a_step(
    tmp_path: Path, tiny_folder: str
) -> None:
    run, calls = quiet_run(tmp_path, tiny_folder), MagicMock()
    backward, run.accelerator.no_sync = run.accelerator.backward, calls.no_sync
    run.accelerator.backward = lambda loss: (calls.backward(), backward(loss))
    gradients(run, [[one] for one in unequal_examples()])
    alone = ["no_sync", "no_sync().__enter__", "backward", "no_sync().__exit__"]
    assert [name for name, *_ in calls.mock_calls] == [*3 * alone, "backward"]


def test_a_run_is_saved_when_its_minutes_are_up(
    tmp_path: Path, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, now = quiet_run(tmp_path, tiny_folder, save_minutes=2.0), time.monotonic()
    for seconds in (110, 130):
        monkeypatch.setattr(time, "monotonic", lambda seconds=seconds: now + seconds)
        assert run.minutes_are_up() == (seconds > 120)
    run.save_last()
    assert not run.minutes_are_up()


def test_processes_that_cannot_share_a_step_are_told_before_data_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = SimpleNamespace(is_main_process=True, num_processes=3)
    monkeypatch.setattr(train, "make_accelerator", lambda: three)
    with pytest.raises(UserError, match="4 given, which 3 processes cannot share"):
        train.main(["--data.train=none.jsonl", "--training.batches_per_step=4"])


def test_examples_without_evidence_are_trained_on(tmp_path: Path, tiny_folder: str) -> None:
    bare = tiny_builder().conversation(replace(tiny_conversation(0), evidence=()))
    loss, found = gradients(quiet_run(tmp_path, tiny_folder), [bare])
    assert loss > 0
    assert not found["encoder.residual_gates"].any()  # there, so that processes can add them up


def test_the_longest_answer_leaves_room_above_the_longest_gold_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    examples = unequal_examples()
    lengths = [len(example.target_ids) for example in examples]
    assert train.answer_limit(examples, None) == math.ceil(1.25 * max(lengths))
    assert train.answer_limit(examples, 1000) == math.ceil(1.25 * max(lengths))
    assert train.answer_limit([], None) == 48
    assert train.answer_limit(examples, max(lengths)) == max(lengths)
    assert not caplog.records
    assert train.answer_limit(examples, max(lengths) - 1) == max(lengths) - 1
    assert "cuts 1 of 4 gold answers" in caplog.text
    assert f"the longest has {max(lengths)} tokens" in caplog.text


def test_the_loss_of_tune_is_that_of_its_gold_answers(tmp_path: Path, tiny_folder: str) -> None:
    run = quiet_run(tmp_path, tiny_folder, eval_batch_size=3)
    run.tune = unequal_examples()
    run.model.eval()
    total = sum(run.model(collate([e], "right", True)).total.item() for e in run.tune)
    num_tokens = sum(len(example.target_ids) for example in run.tune)
    after_batch = MagicMock()
    assert tune_loss(run, after_batch) == pytest.approx(total / num_tokens, rel=1e-5)
    assert after_batch.call_count == 2


def test_a_process_computes_its_batches_of_tune_and_waits_for_the_others(
    tmp_path: Path, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two processes, which has one of three batches."""
    run, after_batch, sizes = quiet_run(tmp_path, tiny_folder, eval_batch_size=1), MagicMock(), []
    run.tune = unequal_examples()[:3]
    run.model.eval()
    own = run.model(collate(run.tune[1:2], "right", True)).total.item()
    run.model.register_forward_hook(lambda *_: sizes.append(1))
    second = {"process_index": 1, "num_processes": 2, "is_local_main_process": False}
    run.accelerator = SimpleNamespace(  # type: ignore[assignment]
        device=torch.device("cpu"), reduce=lambda total, _: total, **second
    )
    num_tokens = sum(len(example.target_ids) for example in run.tune)
    for sharded, num in ((False, 1), (True, 3)):  # all compute, where all hold a part of a layer
        monkeypatch.setattr(evaluation, "is_sharded", lambda _, sharded=sharded: sharded)
        assert tune_loss(run, after_batch) == pytest.approx(own / num_tokens, rel=1e-5)
        assert (len(sizes), after_batch.call_count) == (num, 2 * (1 + sharded))


def test_a_stop_that_another_process_asks_for_is_told(
    tmp_path: Path, tiny_folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = quiet_run(tmp_path, tiny_folder)
    run.stop_if_signalled(StopRequest())
    with pytest.raises(SystemExit) as ended:
        run.stop(StopRequest())
    assert ended.value.code == EXIT_GO_ON
    last = run.output / "last"
    assert caplog.messages == [
        "stopped at step 0 (requested in another process); run the same command to resume from "
        f"{last}"
    ]
    check_manifest(last)


def test_an_evaluation_names_its_interval() -> None:
    records = [
        {"hit_at_1": i % 2, "hit_at_5": 1, "conversation": str(i), "answer": ""} for i in range(20)
    ]
    line = tune_line(records, 0.25)
    match = re.fullmatch(
        r"H@1 0.500 \(95 % interval (0\.\d+) to (0\.\d+)\), "
        r"H@5 1.000 \(95 % interval 1.000 to 1.000\), loss 0.250, 20 questions",
        line,
    )
    assert match
    assert 0.2 < float(match[1]) < 0.4 < 0.6 < float(match[2]) < 0.8


def test_each_part_has_its_own_learning_rate(tiny_folder: str) -> None:
    model = make_model(ModelConfig(tiny_folder, lora=LORA, dtype="float32"))
    settings = TrainingConfig(learning_rate=1e-5, encoder_learning_rate=2e-4)
    optimizer = make_optimizer(model, settings)
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    assert rates == {"lora": 1e-5, "encoder": 2e-4, "residual_gate": 5e-3}
    assert isinstance(optimizer, torch.optim.Adam)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters() if p.requires_grad}


def test_the_rate_warms_up_and_falls_to_nothing(caplog: pytest.LogCaptureFixture) -> None:
    warm = TrainingConfig(warmup_steps=4)
    assert [rate_factor(warm, step, 12) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [rate_factor(warm, step, 12) for step in (8, 11, 12)] == [0.5, 0.125, 0.0]
    assert rate_factor(TrainingConfig(warmup_steps=0), 0, 4) == 1.0
    assert rate_factor(TrainingConfig(warmup_steps=100), 3, 4) == 1.0
    check_warmup(TrainingConfig(warmup_steps=4), 4)
    assert not caplog.messages
    check_warmup(TrainingConfig(warmup_steps=100), 52)
    assert "training.warmup_steps: 100, but the run has 52 steps" in caplog.text


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, tiny_folder: str) -> Path:
    """The output of one run of three steps, evaluated after the second and at the end."""
    output = tmp_path_factory.mktemp("run") / "out"
    train.main(options(tiny_folder, tiny_data, output, training__eval_every=2))
    return output


def test_a_run_writes_what_the_design_says(finished: Path) -> None:
    assert {path.name for path in finished.iterdir() if path.name != ".lock"} == {
        "best",
        "last",
        "log.jsonl",
        "tensorboard",
    }
    events = EventAccumulator(str(finished / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in events.Scalars("loss")]
    assert shown == list(enumerate(losses(finished), 1))
    for name in ("best", "last"):
        check_manifest(finished / name)
    metrics = json.loads((finished / "last" / "metrics.json").read_text())
    assert metrics["steps"] == metrics["step"] == 3
    assert metrics["questions"] == 6
    assert 0 <= metrics["hit_at_1"] <= metrics["hit_at_5"] <= 1


def test_the_log_has_losses_rates_gates_and_evaluations(finished: Path) -> None:
    steps = [line for line in lines(finished) if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 3]
    for line in steps:
        assert line["loss"] > 0
        assert line["gradient_norm"] > 0
        assert line["relative_change"] > 0
        assert all(0.05 < line[name] < 2**9 for name in ("memory_gib", "peak_memory_gib"))
    times = np.diff([0, *(line["seconds"] for line in steps)])
    tokens = times * [line["tokens_per_second"] for line in steps]
    assert tokens.min() > 100
    assert tokens == pytest.approx(tokens.round())
    rates = [line["learning_rate"] for line in steps]
    assert rates == pytest.approx([1e-3, 1e-3 * 2 / 3, 1e-3 / 3])  # as taken, not as planned
    gates = [[line["residual_gate_0"], line["residual_gate_1"]] for line in steps]
    assert len({tuple(pair) for pair in gates}) == 3  # they learn
    evaluated = [line["step"] for line in lines(finished) if "tune_hit_at_1" in line]
    assert evaluated == [2, 3]


def test_training_changes_all_that_is_trained_and_nothing_else(
    finished: Path, tiny_folder: str
) -> None:
    model = load_checkpoint(finished / "last")
    config = load_config(["--config", str(finished / "last" / "config.yaml")])
    train.set_seed(config.training.seed)
    fresh = dict(make_model(config.model).named_parameters())
    for name, parameter in model.named_parameters():
        changed = not torch.equal(parameter, fresh[name])
        assert changed == parameter.requires_grad, name


def test_a_seed_gives_the_same_losses_to_the_last_bit(
    finished: Path, tiny_data: Path, tiny_folder: str, tmp_path: Path
) -> None:
    for seed in (0, 1):
        output = tmp_path / str(seed)
        train.main(options(tiny_folder, tiny_data, output, data__tune="null", training__seed=seed))
    assert losses(tmp_path / "0") == losses(finished)  # evaluation draws nothing
    assert losses(tmp_path / "1") != losses(finished)


def test_seeds_of_weights_can_share_the_drawn_questions(tiny_data: Path, tiny_folder: str) -> None:
    def drawn(**seeds: str) -> list[tuple[str, int]]:
        num = {"data__tune": "null", "data__max_train_questions": "3"}
        config = load_config(options(tiny_folder, tiny_data, tiny_data.parent, **num, **seeds))
        examples, _ = train.load_train_and_tune(config, train.load_builder(config))
        return [example.key for example in examples]

    of_seed_0, of_seed_1 = drawn(training__seed="0"), drawn(training__seed="1")
    assert of_seed_0 != of_seed_1
    assert drawn(training__seed="1", data__draw_seed="0") == of_seed_0


def test_every_seed_is_evaluated_on_the_same_questions(tiny_data: Path, tiny_folder: str) -> None:
    found = set[tuple[Any, ...]]()
    for seed in range(4):
        changes = {"training__seed": seed, "data__draw_seed": seed, "data__train": "null"}
        changes |= {"training__max_steps": 0, "data__max_tune_questions": 3}
        config = load_config(options(tiny_folder, tiny_data, tiny_data.parent, **changes))
        _, tune = train.load_train_and_tune(config, load_builder(config))
        found.add(tuple(example.key for example in tune))
    assert [len(keys) for keys in found] == [3]


def test_training_learns(tiny_data: Path, tiny_folder: str, tmp_path: Path) -> None:
    changes = {
        "training__max_steps": 40,
        "training__num_epochs": 20,
        "training__learning_rate": 5e-3,
        "training__batches_per_step": 1,
        "training__batch_size": 6,
        "data__tune": "null",
    }
    train.main(options(tiny_folder, tiny_data, tmp_path / "out", **changes))
    found = losses(tmp_path / "out")
    assert sum(found[-5:]) / 5 < 0.75 * sum(found[:5]) / 5


def test_a_dry_run_says_what_a_run_needs_and_writes_nothing(
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Standard error is no terminal here: each bar is a line at its start and one at its end."""
    monkeypatch.setenv("TURNGRAPH_CACHE", str(tmp_path / "cache"))  # no examples are there yet
    changes = {"training__max_steps": 30, "training__num_epochs": 20, "training__eval_every": 7}
    changes |= {"training__eval_batch_size": 2, "training__batch_size": 3}  # of 6 questions
    changes |= {"training__save_every": 1, "training__save_minutes": 1e-9}
    argv = options(tiny_folder, tiny_data, tmp_path / "out", **changes)
    clock, answer_tune = [0.0], train.answer_tune
    monkeypatch.setattr(train, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def in_a_minute(*given: Any) -> list[Json]:
        clock[0] += 60
        return answer_tune(*given)

    monkeypatch.setattr(train, "answer_tune", in_a_minute)
    with caplog.at_level(logging.INFO):
        train.main([*argv, "--dry_run"])
    said = capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    model = make_model(load_config(argv).model)
    trained, frozen = (
        sum(p.numel() for p in model.parameters() if p.requires_grad is wanted)
        for wanted in (True, False)
    )
    assert f"{trained} trainable, {frozen} frozen" in said
    assert re.search(r"examples +12: tokens \d+ on average, \d+ at most, nodes", said)
    assert "30 of 2 batches; 3.0 examples a batch, 9.2 % padding" in said
    assert re.search(r"time +[\d.]+ min: training .* tokens/s\), 5 evaluations of 3\.0 min", said)
    assert re.search(r"peak [\d.]+ GiB of [\d.]+ GiB: fits", said)
    logged = [record.getMessage() for record in caplog.records]
    assert f"loading {tiny_folder}" in logged
    assert "  training.max_steps: 30" in logged
    versions = f", torch {torch.__version__}, 1 process on cpu"
    assert any(line.startswith("commit ") and line.endswith(versions) for line in logged)
    assert not any("max_grad_norm" in line for line in logged)
    assert any(re.fullmatch(r"  and \d+ fields with default values", line) for line in logged)
    assert any(re.fullmatch(r"graphs of train.jsonl: \d+ conversations", line) for line in logged)
    assert "30 steps; 3.0 examples a batch, 9.2 % of the tokens are padding" in logged
    assert "dry run: 4 steps" in logged
    begin, end = logged.index("dry run: 4 steps"), len(logged) - 1
    assert any(line.startswith("dry run: done in") for line in logged[begin:])
    assert any(re.fullmatch(r"evaluate: \d+ questions", line) for line in logged[begin:end])
    assert not any(line.startswith(("train:", "answer with:")) for line in logged)


def test_ctrl_c_ends_a_dry_run_at_once(
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    steps: list[int] = []

    def interrupted(*_: object) -> list[float]:
        steps.append(len(steps))
        signal.raise_signal(signal.SIGINT)
        return [1e-3]

    monkeypatch.setattr(train, "set_rates", interrupted)
    argv = [*options(tiny_folder, tiny_data, tmp_path / "out"), "--dry_run"]
    with pytest.raises(SystemExit) as ended:
        run_cli(lambda: train.main(argv))
    assert (ended.value.code, steps) == (130, [0])
    written = capfd.readouterr()
    assert written.err.splitlines()[-1] == "stopped"
    assert "saved" not in written.err
    assert written.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("limit", [60, 10])
def test_what_does_not_fit_into_the_model_is_found_before_the_first_step(
    limit: int, tiny_data: Path, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EvidenceModel, "max_tokens", limit)
    with pytest.raises(ValueError, match=r"turn .*: a prompt of \d+ tokens .* evidence.max_nodes"):
        train.main(options(tiny_folder, tiny_data, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_questions_to_tune_on_that_do_not_fit_are_found_as_well(
    tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = tiny_conversation(0)
    write_conversations(tmp_path / "train.jsonl", [replace(one, turns=one.turns[:1])])
    write_conversations(tmp_path / "tune.jsonl", [tiny_conversation(1)])
    argv = options(tiny_folder, tmp_path, tmp_path / "run")
    config = load_config(argv)
    [example], _ = train.load_train_and_tune(config, load_builder(config))
    monkeypatch.setattr(EvidenceModel, "max_tokens", example.num_tokens)
    with pytest.raises(ValueError, match=r"conversation c1, turn .*: a prompt of \d+ tokens"):
        train.main(argv)
    assert not (tmp_path / "run").exists()


def test_a_ranker_is_trained_where_a_candidate_is_gold(
    tiny_folder: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known, other = tiny_conversation(0), tiny_conversation(1)
    lost = replace(other.turns[0], answers=(Answer("nobody", "Nobody"),))
    pairs = [replace(known, turns=known.turns[:1]), replace(other, turns=(lost,))]
    write_conversations(tmp_path / "train.jsonl", pairs)
    changes = {"model__answers": "nodes", "model__lora": "null", "evidence__graph": "reader"}
    changes |= {"data__tune": "null", "training__max_steps": 1}
    argv = options(tiny_folder, tmp_path, tmp_path / "run", **changes)
    with caplog.at_level(logging.INFO):
        train.main([option for option in argv if "lora.r" not in option])
    assert "train.jsonl: 1 question left out of training" in caplog.text


def test_what_evaluating_needs_is_said_in_the_words_of_training(
    tiny_data: Path, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise UserError("out of memory: a batch of 8 x 90 tokens did not fit")

    arguments = options(tiny_folder, tiny_data, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(train, "answer_together", no_memory)
        with pytest.raises(ValueError, match=r"while evaluating: out of .*eval_batch_size"):
            train.main(arguments)
    train.main(arguments)  # the steps are not taken again
    assert [line["step"] for line in lines(tmp_path / "run") if "loss" in line] == [1, 2, 3]
    assert (tmp_path / "run" / "best").is_dir()


def test_what_the_launcher_would_change_is_refused(
    tiny_data: Path, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    wrong = r"gradient_accumulation_steps: 4 given, must be 1: .* training\.batches_per_step"
    with pytest.raises(ValueError, match=wrong):
        train.main(options(tiny_folder, tiny_data, tmp_path / "run"))


def test_a_precision_of_the_launcher_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_accelerator().mixed_precision == "no"
    monkeypatch.setattr(Accelerator, "mixed_precision", "bf16")
    with pytest.raises(UserError, match=r"mixed_precision: 'bf16' given, must be 'no': .*dtype"):
        make_accelerator()


def test_a_run_starts_from_given_weights_and_goes_on_from_its_own(
    tmp_path: Path, tiny_folder: str
) -> None:
    def same(one: Run, other: Run) -> bool:
        return all(map(torch.equal, one.model.parameters(), other.model.parameters()))

    given = quiet_run(tmp_path / "given", tiny_folder)
    stir(given.model, seed=1)
    given.save_best()
    start = str(given.output / "best")
    run, again = (quiet_run(tmp_path / "own", tiny_folder, start_from=start) for _ in range(2))
    assert not same(run, given)
    run.resume("data", anyway=False)
    assert same(run, given)
    stir(run.model, seed=2)
    run.save_last()
    again.optimizer = make_optimizer(again.model, again.config.training)
    again.resume("data", anyway=False)
    assert same(again, run)
    assert not same(again, given)


def test_other_keys_order_or_bounds_are_other_training_data() -> None:
    first, second = tiny_examples(2)
    *suffix, last = first.suffix_ids
    graph = first.graph
    graphs = [
        replace(graph, edge_index=graph.edge_index[::-1]),
        replace(graph, edge_types=1 - graph.edge_types),
        replace(graph, num_hidden=1),
    ]
    others = [
        [second, first],
        [replace(first, turn=first.turn + 1), second],
        *([replace(first, graph=graph), second] for graph in graphs),
        [replace(first, suffix_ids=suffix, target_ids=[last, *first.target_ids]), second],
    ]
    assert len({fingerprint(examples) for examples in ([first, second], *others)}) == 7


def test_a_dry_run_begins_with_the_largest_batch() -> None:
    examples = tiny_examples(9)
    examples[4] = replace(examples[4], target_ids=[*range(20, 90), *examples[4].target_ids])
    schedule = BatchSchedule(examples, TrainingConfig(batches_per_step=1, num_epochs=20))
    trial = Trial(schedule, examples)
    assert schedule.step(trial.indices[0]) == [[4]]
    assert trial.indices[1:] == [0, 20, 40, 60, 80, 99, 119, 139, 159, 179]
    assert trial.sizes[trial.indices[0]] == examples[4].num_tokens
    trial.times = [9.0, *(trial.sizes[n] / 50 for n in trial.indices[1:])]
    assert "(50 tokens/s)" in trial.lines(TrainingConfig(batches_per_step=1), 0.0)[-1]
    batches = [[[0]] * 5, [[0, 0]], [[0]]]  # the first step is larger, not its batches
    short: Any = SimpleNamespace(settings=schedule.settings, num_steps=3, step=batches.__getitem__)
    assert Trial(short, examples).indices == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("num_steps", "timed"),
    [
        (1, [0]),
        (3, [0, 1, 2]),
        (39, [0, 19, 38]),
        (40, [0, 13, 26, 39]),
        (200, [0, 22, 44, 66, 88, 111, 133, 155, 177, 199]),
    ],
)
def test_a_dry_run_takes_three_to_ten_steps_beside_the_largest(
    num_steps: int, timed: list[int]
) -> None:
    step: Any = SimpleNamespace(
        settings=TrainingConfig(), num_steps=num_steps, step=lambda index: [[index]]
    )
    examples: Any = [SimpleNamespace(num_tokens=n + 1) for n in range(num_steps)]
    assert Trial(step, examples).indices == [num_steps - 1, *timed]


@pytest.mark.parametrize(
    ("packing", "eval_every", "num_evaluations"),
    [(False, None, 1), (False, 39, 2), (False, 40, 1), (True, 13, 4)],
)
def test_a_dry_run_tells_how_long_the_run_will_take(
    packing: bool, eval_every: int | None, num_evaluations: int
) -> None:
    """Each step has one batch of two examples, one of them twice as long; 20 tokens a second."""
    graphs = [SimpleNamespace(node_ids=[0] * n, edge_index=np.zeros((2, 3 * n))) for n in (1, 5)]
    examples: Any = [
        SimpleNamespace(num_tokens=tokens, graph=graphs[number % 2])
        for step in range(20, 780, 19)
        for number, tokens in enumerate((step, step // 2))
    ]
    settings = TrainingConfig(packing=packing, eval_every=eval_every, batches_per_step=1)
    schedule: Any = SimpleNamespace(
        settings=settings,
        num_steps=40,
        step=lambda index: [[2 * index, 2 * index + 1]],
        examples_per_batch=lambda: 2.0,
        padding_share=lambda: 0.125,
    )
    trial = Trial(schedule, examples)
    sizes = [sum(e.num_tokens for e in examples[2 * n : 2 * n + 2]) for n in range(40)]
    assert trial.sizes == (
        sizes if packing else [2 * examples[2 * n].num_tokens for n in range(40)]
    )
    trial.times = [99.0, *(trial.sizes[n] / 20 for n in trial.indices[1:])]
    of_examples, of_steps, of_time = trial.lines(settings, 30.0)
    num_tokens = [example.num_tokens for example in examples]
    mean = sum(num_tokens) / 80
    assert of_examples.endswith(
        f"80: tokens {mean:.0f} on average, 761 at most, nodes 3 on average, 5 at most, "
        "edges 9 on average, 15 at most"
    )
    assert of_steps.endswith("40 of 1 batch; 2.0 examples a batch, 12.5 % padding")
    training = sum(trial.sizes) / 20 / 60
    evaluations = "1 evaluation" if num_evaluations == 1 else f"{num_evaluations} evaluations"
    assert of_time.endswith(
        f"{training + num_evaluations / 2:.1f} min: training {training:.1f} min (20 tokens/s), "
        f"{evaluations} of 0.5 min"
    )


def test_the_steps_of_a_process_are_its_share_and_made_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples, asked = tiny_examples(8), list[int]()
    batches = [[[n % 8], [(n + 1) % 8, (n + 2) % 8]] for n in range(9)]

    def step(index: int) -> list[list[int]]:
        asked.append(index)
        return batches[index]

    clock = SimpleNamespace(monotonic=iter(range(100)).__next__)
    monkeypatch.setattr("turngraph.data.batches.prefetch.time", clock)
    order = [3, 1, 4, 2, 8]
    taken = steps(examples, SimpleNamespace(step=step), order, rank=1, world=2)
    for position, index in enumerate(order):
        made = next(taken)
        ahead = order[: position + 1 + STEPS_AHEAD]
        wait_until(lambda ahead=ahead: asked == ahead)
        assert (made.index, made.wait) == (index, 1)
        assert [[examples.index(e) for e in b] for b in made.examples] == batches[index][1:]
        both = [examples[n] for batch in batches[index] for n in batch]
        assert made.answer_tokens == sum(len(e.target_ids) for e in both)
        assert made.num_tokens == sum(e.num_tokens for e in both)
        [batch] = made.batches
        assert batch.input_ids.shape[0] == 2
    assert next(taken, None) is None
    [whole] = steps(examples, SimpleNamespace(step=step), [0], packed=True)
    assert [len(batch.input_ids) for batch in whole.batches] == [1, 1]
    assert list(steps(examples, SimpleNamespace(step=step), [])) == []


def answering(rates: Iterator[tuple[float, float]]) -> Any:
    """Stand in for ``answer_together``, with the same H@1 and H@5 for all questions."""

    def answers(_: Any, __: Any, examples: list[Example], *___: Any, **____: Any) -> list[Json]:
        found = dict(zip(("hit_at_1", "hit_at_5"), next(rates), strict=True))
        return [found | {"conversation": example.conversation.id} for example in examples]

    return answers


def test_best_is_the_best_on_tune_and_last_the_last(
    tiny_data: Path, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H@1 decides, then H@5."""
    rates = iter([(0.5, 0.75), (0.5, 0.5), (0.25, 1.0)])
    monkeypatch.setattr(train, "answer_together", answering(rates))
    train.main(options(tiny_folder, tiny_data, tmp_path / "out", training__eval_every=1))
    found = {
        name: json.loads((tmp_path / "out" / name / "metrics.json").read_text())
        for name in ("best", "last")
    }
    assert (found["best"]["step"], found["best"]["hit_at_5"]) == (1, 0.75)
    assert (found["last"]["step"], found["last"]["hit_at_5"]) == (3, 1.0)
    best, last = (load_checkpoint(tmp_path / "out" / name) for name in ("best", "last"))
    assert not torch.equal(best.encoder.residual_gates, last.encoder.residual_gates)


def test_of_equal_hits_the_lower_loss_and_of_equal_losses_the_later_is_the_best(
    tiny_data: Path, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = {"hit_at_1": 0.5, "hit_at_5": 0.5}
    assert evaluation_key(hits | {"loss": 2.0}) > evaluation_key(hits | {"loss": 2.5})
    monkeypatch.setattr(train, "answer_together", answering(repeat((0.5, 0.5))))
    nothing_is_learned = {"model__evidence": "text", "training__learning_rate": 1e-30}
    changes = nothing_is_learned | {"training__eval_every": 1}
    train.main(options(tiny_folder, tiny_data, tmp_path / "out", **changes))
    losses_of_tune = {line["tune_loss"] for line in lines(tmp_path / "out") if "tune_loss" in line}
    assert len(losses_of_tune) == 1
    metrics = json.loads((tmp_path / "out" / "best" / "metrics.json").read_text())
    assert metrics["step"] == 3


def test_without_tune_best_is_the_last(
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = {"data__tune": "null", "training__eval_every": 1}
    monkeypatch.setattr("turngraph.configs.progress.LOG_INTERVAL", 0.0)
    monkeypatch.setattr(train, "RELEASE_EVERY", 3)
    log, released = tmp_path / "out" / "log.jsonl", list[int]()
    monkeypatch.setattr(
        train, "release_freed_memory", lambda _: released.append(len(log.read_text().splitlines()))
    )
    with caplog.at_level(logging.INFO):
        train.main(options(tiny_folder, tiny_data, tmp_path / "out", **changes))
    assert "train: 3 steps" in caplog.messages
    shown = r"loss=\d\.\d{3}, tokens_s=\d+, memory=\d+\.\dGiB, peak=\d+\.\dGiB"
    assert any(re.fullmatch(f"train: 3 of 3, .*{shown}", line) for line in caplog.messages)
    assert "done; not evaluated" in caplog.messages
    asked, best = f"--input {tiny_data / 'train.jsonl'}", tmp_path / "out" / "best"
    written = f"--output {tmp_path / 'out' / 'answers.jsonl'}"
    assert caplog.messages[-1] == (
        f"answer with: turngraph answer --checkpoint {best} {asked} {written}"
    )
    assert released == [2]  # in the third step, before it is logged
    best, last = (load_checkpoint(tmp_path / "out" / name) for name in ("best", "last"))
    assert torch.equal(best.encoder.residual_gates, last.encoder.residual_gates)


def test_no_steps_give_a_checkpoint_of_the_untrained_model(
    tiny_data: Path, tiny_folder: str, tmp_path: Path
) -> None:
    changes = {
        "model__lora": "null",
        "model__evidence": "text",
        "training__max_steps": 0,
        "data__train": "null",
    }
    argv = [
        o for o in options(tiny_folder, tiny_data, tmp_path / "out", **changes) if "lora.r" not in o
    ]
    with pytest.raises(UserError, match=r"max_steps: 0 given: nothing is trained"):
        train.main([*argv, "--dry_run"])
    train.main(argv)
    metrics = json.loads((tmp_path / "out" / "last" / "metrics.json").read_text())
    assert metrics["steps"] == 0
    assert metrics["questions"] == 6
    model = load_checkpoint(tmp_path / "out" / "last")
    assert not model.has_graph
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_questions(
    tmp_path: Path, tiny_folder: str
) -> None:
    run = quiet_run(tmp_path, tiny_folder)
    with torch.no_grad():
        run.model.encoder.residual_gates.fill_(float("nan"))
    before = [p.detach().clone() for p in run.model.encoder.layers.parameters()]
    with pytest.raises(ValueError, match=r"step 1: loss nan.*nothing is saved.*c0"):
        train.train(run, tiny_examples(3), StopRequest(), resume_anyway=False)
    assert not (run.output / "last").exists()
    report = json.loads((run.output / "not_finite_step_1_process_0.json").read_text())
    assert report["not_finite_weights"] == ["encoder.residual_gates"]
    assert report["batches"][0]["questions"][0][0] == "c0"
    after = run.model.encoder.layers.parameters()
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("bad", [1, 2])
def test_a_gradient_that_is_no_number_loses_no_earlier_step(
    tmp_path: Path, tiny_folder: str, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    whole = quiet_run(tmp_path / "whole", tiny_folder, batch_size=1, batches_per_step=2)
    train.train(whole, tiny_examples(4), StopRequest(), resume_anyway=False)
    run = quiet_run(tmp_path / "run", tiny_folder, batch_size=1, batches_per_step=2)
    clip = run.accelerator.clip_grad_norm_
    norms: list[torch.Tensor] = []

    def one_bad_norm(*given: Any) -> torch.Tensor:
        norms.append(clip(*given))
        return norms[-1] * (float("nan") if len(norms) == bad else 1.0)

    monkeypatch.setattr(run.accelerator, "clip_grad_norm_", one_bad_norm)
    with pytest.raises(
        ValueError, match=rf"step {bad}: .* norm nan, must be finite; the weights before"
    ):
        train.train(run, tiny_examples(4), StopRequest(), resume_anyway=False)
    again = quiet_run(tmp_path / "run", tiny_folder, batch_size=1, batches_per_step=2)
    train.train(again, tiny_examples(4), StopRequest(), resume_anyway=False)
    assert losses(again.output) == losses(whole.output)
    for here, there in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(here, there)


def test_gradients_are_clipped_together_and_forgotten_after_the_step(
    tmp_path: Path, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = quiet_run(tmp_path, tiny_folder, max_grad_norm=0.01, warmup_steps=0)
    trained = [p for p in run.model.parameters() if p.requires_grad]
    before = torch.cat([p.detach().flatten().clone() for p in trained])
    monkeypatch.setattr(
        turngraph.training.run,
        "make_optimizer",
        lambda *_: torch.optim.SGD([{"params": trained, "lr": 1.0, "full_lr": 1.0}]),
    )
    train.train(run, tiny_examples(4), StopRequest(), resume_anyway=False)
    after = torch.cat([p.detach().flatten() for p in trained])
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-2)
    assert lines(run.output)[0]["gradient_norm"] > 0.01
    assert all(parameter.grad is None for parameter in trained)


@pytest.mark.slow
def test_as_a_user_runs_it(tiny_folder: str, tmp_path: Path) -> None:
    """Benchmark, training, answers, scores and chat, each by its own command."""
    data, run = tmp_path / "data", tmp_path / "run"
    counts = ("--num_train", 6, "--num_tune", 2, "--num_test", 2)
    command("-m", "turngraph.data.sources.worldfacts", "--output", data, *counts)
    changes = {"training__max_steps": 2, "evidence__memory": "rerank", "evidence__top_k": 6}
    command("train.py", *options(tiny_folder, data, run, **changes))
    assert len(losses(run)) == 2

    test, found = data / "test.jsonl", tmp_path / "predictions.jsonl"
    arguments = ("--checkpoint", run / "best", "--max_new_tokens", 6)
    command("infer.py", "answer", *arguments, "--input", test, "--output", found)
    records = [json.loads(line) for line in found.read_text().splitlines()]
    assert len(records) == 10
    assert any(item["from_turn"] < r["turn_index"] for r in records for item in r["evidence"])

    scored = command("infer.py", "score", "--predictions", found, "--by", "source", "turn")
    assert "H@1" in scored
    assert "infobox" in scored

    pool = tmp_path / "pool.jsonl"
    passages = json.loads(test.read_text().splitlines()[0])["evidence"]
    pool.write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    asked = "What is the capital of Peru?\nAnd its population?\n"
    said = command("infer.py", "chat", *arguments, "--evidence", pool, text=asked)
    assert said.count(", new]") >= 2


@pytest.mark.parametrize(
    ("top_k", "expected", "on_ray"),
    [(None, 4, False), (2, 2, False), (2, 2, True)],
)
def test_training_questions_may_get_fewer_passages(
    top_k: int | None,
    expected: int,
    on_ray: bool,
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    ray: StandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TURNGRAPH_CACHE", str(tmp_path / "cache"))
    more = {"data__ray": "local", "data__num_workers": 1} if on_ray else {}
    given = options(tiny_folder, tiny_data, tmp_path / "run", **more)
    config = load_config([*given, f"--training.max_passages={'null' if top_k is None else top_k}"])
    builder = load_builder(config)
    examples, tune = train.load_train_and_tune(config, builder)
    assert {len(example.evidence) for example in examples} == {expected}
    assert {len(example.evidence) for example in tune} == {4}
    assert bool(ray.most_waiting) == on_ray
    assert builder.config == config.evidence
