"""TRL trains on the ids and labels of our loop, and ends at the weights of our loop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from turngraph import infer, train
from turngraph.configs.parse import load_config
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.examples import Example
from turngraph.data.jsonlines import write_conversations
from turngraph.inference.load import load_builder
from turngraph.model.make_model import make_model
from turngraph.tests.tiny import save_tiny, tiny_conversation
from turngraph.training import trl_loop


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny LM."""
    folder = tmp_path_factory.mktemp("base_model")
    save_tiny(folder)
    return folder


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven questions whose answers differ in length."""
    path = tmp_path_factory.mktemp("conversations") / "train.jsonl"
    first, second, third = map(tiny_conversation, range(3))
    write_conversations(path, [first, second, replace(third, turns=third.turns[:1])])
    return path


pytestmark = pytest.mark.usefixtures("fresh_accelerator")


def options(base_model: Path, conversations: Path, output: Path) -> list[str]:
    """Two epochs of 7 examples in 4 steps, the last across the epochs' border, and clipping."""
    values = {
        "data.train": conversations,
        "evidence.memory": "none",
        "model.base_model": base_model,
        "model.evidence": "text",
        "model.dtype": "float32",
        "model.lora.r": 4,
        "model.lora.lora_alpha": 8,
        "model.lora.lora_dropout": 0.0,
        "training.batch_size": 2,
        "training.batches_per_step": 2,
        "training.num_epochs": 2,
        "training.learning_rate": 0.01,
        "training.warmup_steps": 2,
        "training.max_grad_norm": 0.5,
        "training.seed": 3,
        "training.output": output,
    }
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]


def examples_of(argv: list[str]) -> list[Example]:
    config = load_config(argv)
    return train.load_train_and_tune(config, load_builder(config))[0]


def test_trl_sees_our_batches_in_our_order(
    base_model: Path, conversations: Path, tmp_path: Path
) -> None:
    argv = options(base_model, conversations, tmp_path)
    config, examples = load_config(argv), examples_of(argv)
    args = trl_loop.trainer_arguments(config)
    assert args.use_cpu is not torch.accelerator.is_available()
    assert not args.gradient_checkpointing  # the model's own, if any
    builder = load_builder(config)
    schedule = BatchSchedule(examples, config.training)
    dataset = trl_loop.training_set(examples, schedule)
    model = make_model(config.model)
    tokenizer = builder.prompt.tokenizer
    trainer = trl_loop.make_trainer(model, config, args, dataset, tokenizer, num_steps=4)
    assert torch.initial_seed() == 3
    assert constants.HF_HUB_DISABLE_TELEMETRY

    ours = [[examples[i] for i in batch] for n in range(4) for batch in schedule.step(n)]
    theirs = list(trainer.get_train_dataloader())
    assert len(theirs) == len(ours) == 8
    for batch, given in zip(ours, theirs, strict=True):
        expected = collate(batch, "right", with_target=True)
        is_padding = ~expected.attention_mask
        ids = expected.input_ids.masked_fill(is_padding, tokenizer.pad_token_id)
        assert given["input_ids"].tolist() == ids.tolist()
        assert given["labels"].tolist() == expected.labels.tolist()
        assert given["attention_mask"].tolist() == expected.attention_mask.long().tolist()


@pytest.fixture(scope="module")
def trained(
    base_model: Path, conversations: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Runs of train.py and of TRL on one config."""
    runs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("trl")
    train.main(options(base_model, conversations, runs[0]))
    train.main([*options(base_model, conversations, runs[1]), "--training.loop", "trl"])
    return runs


def log_of(run: Path) -> list[dict[str, float]]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for line in lines if "loss" in (record := json.loads(line))]


def test_losses_and_gradients_agree(trained: tuple[Path, Path]) -> None:
    ours, theirs = map(log_of, trained)
    assert [record["step"] for record in theirs] == [1, 2, 3, 4]
    assert min(record["gradient_norm"] for record in ours) > 0.5  # clipping acted
    for name in ("loss", "gradient_norm"):
        expected = [record[name] for record in ours]
        assert [record[name] for record in theirs] == pytest.approx(expected, rel=1e-5)


def test_rates_start_above_0(trained: tuple[Path, Path]) -> None:
    rates = [record["learning_rate"] for record in log_of(trained[1])]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.005])


def test_weights_agree(trained: tuple[Path, Path]) -> None:
    ours, theirs = (
        load_file(run / "last" / "adapter" / "adapter_model.safetensors") for run in trained
    )
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(theirs[name], weight, atol=1e-5, rtol=0)
    moved = [weight.abs().max() for name, weight in theirs.items() if "lora_B" in name]
    assert min(moved) > 0.01


def test_checkpoint_answers_as_ours(
    trained: tuple[Path, Path], conversations: Path, tmp_path: Path
) -> None:
    ours, theirs = trained[0] / "best", trained[1] / "best"
    files = [sorted(str(p.relative_to(run)) for p in run.rglob("*")) for run in (ours, theirs)]
    assert files[0] == files[1]
    pickles = {".pt", ".bin", ".pkl", ".pth"}
    assert not [path for path in trained[1].rglob("*") if path.suffix in pickles]
    answers = []
    for number, run in enumerate((ours, theirs)):
        output = tmp_path / f"{number}.jsonl"
        argv = ["answer", "--checkpoint", str(run), "--input", str(conversations)]
        infer.main([*argv, "--output", str(output), "--max_new_tokens", "4"])
        records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
        answers.append([(r["question"], r["answer"], r["num_tokens"]) for r in records])
    assert len(answers[0]) == 7
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("model.evidence", {"model.evidence": "graph"}),
        ("model.lora", {"model.lora": "null"}),
        ("model.lora", {"model.lora": "null", "training.max_steps": "0"}),
        ("training.max_steps", {"training.max_steps": "0"}),
    ],
)
def test_a_config_that_trl_cannot_train_is_refused(
    conversations: Path, tmp_path: Path, field: str, changes: dict[str, str]
) -> None:
    values = {"data.train": str(conversations), "model.evidence": "text"} | changes
    values["training.output"] = str(tmp_path / "run")
    argv = [text for name, value in values.items() for text in (f"--{name}", value)]
    with pytest.raises(ValueError, match=f"^option --{field}: "):
        train.main([*argv, "--training.loop", "trl"])
    assert not (tmp_path / "run").exists()


def test_several_processes_are_refused(
    base_model: Path, conversations: Path, tmp_path: Path
) -> None:
    config = load_config(options(base_model, conversations, tmp_path))
    model, accelerator = SimpleNamespace(config=config.model), SimpleNamespace(num_processes=2)
    run: Any = SimpleNamespace(config=config, model=model, accelerator=accelerator)
    schedule: Any = SimpleNamespace(num_steps=1)
    with pytest.raises(UserError, match=r"training\.loop: 'trl' given, .*; 2 were started"):
        trl_loop.train_with_trl(run, [], schedule, StopRequest())


def test_a_base_model_whose_loss_trl_averages_otherwise_is_refused(
    base_model: Path, conversations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(options(base_model, conversations, tmp_path))
    averaging = SimpleNamespace(model_accepts_loss_kwargs=False)
    monkeypatch.setattr(trl_loop, "SFTTrainer", lambda **_: averaging)
    args, rest = trl_loop.trainer_arguments(config), (MagicMock(), MagicMock())
    with pytest.raises(UserError, match=r"model\.base_model: .* set training\.loop to native"):
        trl_loop.make_trainer(make_model(config.model), config, args, *rest, num_steps=4)


def test_a_loss_that_is_no_number_leaves_no_checkpoint(
    base_model: Path, conversations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trl_loop, "RELEASE_EVERY", 2)
    monkeypatch.setattr(trl_loop, "release_freed_memory", released := MagicMock())
    argv = [*options(base_model, conversations, tmp_path), "--training.loop", "trl"]
    with pytest.raises(UserError, match=r"step 2: .*nan.*, must be finite; no checkpoint"):
        train.main([*argv, "--training.learning_rate=1e30"])
    assert released.call_count == 2  # in four steps
    assert not (tmp_path / "last").exists()


def test_a_finished_run_is_kept_and_a_stopped_one_starts_over(
    base_model: Path,
    conversations: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trl_loop, "cast_adapter_inputs", cast := MagicMock())
    argv = [*options(base_model, conversations, tmp_path / "run"), "--training.loop", "trl"]
    with pytest.raises(SystemExit) as stopped:
        train.main([*argv, "--max_minutes=1e-9"])
    assert stopped.value.code == EXIT_GO_ON
    assert not (tmp_path / "run" / "last").exists()
    cast.reset_mock()
    train.main(argv)
    assert [enabled for (_, enabled), _ in cast.call_args_list] == [True, True]  # in float32
    before = (tmp_path / "run" / "last" / "manifest.json").read_bytes()
    caplog.set_level("INFO")
    train.main(argv)
    assert "already complete; --fresh trains again" in caplog.text
    assert (tmp_path / "run" / "last" / "manifest.json").read_bytes() == before
