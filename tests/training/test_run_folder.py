"""What a run's folder offers to resume from, what it refuses, and what is restored."""

from __future__ import annotations

import json
import logging
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from turngraph.configs.schema import Config, DataConfig, ModelConfig, TrainingConfig
from turngraph.model.checkpoint import check_manifest, read_checkpoint
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model
from turngraph.tests.model.test_forged_checkpoint import rehash
from turngraph.tests.tiny import LORA, save_tiny, stir
from turngraph.training.run_folder import (
    EVALUATION,
    FREE,
    ON_REQUEST,
    Progress,
    find_resumable,
    load_resumable,
    load_start,
    locked,
    save_resumable,
    start_afresh,
)
from turngraph.training.trainer_state import random_states, read_progress, set_random_states

pytestmark = pytest.mark.usefixtures("fresh_accelerator")

FREE_VALUES = {
    "data.draw_seed": 7,
    "data.num_workers": 3,
    "data.ray": "local",
    "data.train": "moved.jsonl",
    "model.base_model": "elsewhere",
    "model.trust_remote_code": ("somebody/model",),
    "training.eval_batch_size": 3,
    "training.output": "elsewhere",
    "training.save_every": 11,
    "training.save_minutes": 9.0,
    "training.wandb_project": "project",
}
ON_REQUEST_VALUES = {
    "data.max_tune_questions": 2,
    "data.tune": "other.jsonl",
    "model.attn_implementation": "eager",
    "model.compile": True,
    "model.encoder.dropout": 0.25,
    "model.gradient_checkpointing": True,
    "model.lora.lora_dropout": 0.25,
    "model.scorer.dropout": 0.25,
    "training.encoder_learning_rate": 0.25,
    "training.eval_every": 4,
    "training.learning_rate": 0.25,
    "training.max_grad_norm": 0.25,
    "training.max_new_tokens": 7,
    "training.max_steps": 70,
    "training.num_epochs": 7.5,
    "training.packing": True,
    "training.warmup_steps": 7,
}
FIXED_VALUES = {
    "evidence.top_k": 3,
    "model.encoder.num_layers": 1,
    "model.lora.r": 2,
    "model.layer": 1,
    "training.batch_size": 2,
    "training.seed": 1,
}
PROGRESS = Progress(
    step=6,
    finished=True,
    seconds=1.5,
    metrics={"step": 6, "hit_at_1": 0.25},
    best={"step": 3, "hit_at_1": 0.5},
    data="fingerprint",
    log_lines=8,
)


def changed(config: Any, name: str, value: Any) -> Any:
    """A config with another value of a field."""
    field, _, inner = name.partition(".")
    new = changed(getattr(config, field), inner, value) if inner else value
    return replace(config, **{field: new})


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def config(tiny_folder: str) -> Config:
    model = ModelConfig(tiny_folder, lora=LORA, dtype="float32")
    training = TrainingConfig(max_steps=9, warmup_steps=0)
    return Config(data=DataConfig("train.jsonl", "tune.jsonl"), model=model, training=training)


@pytest.fixture(scope="module")
def accelerator(fresh_accelerator: None) -> Accelerator:
    return Accelerator(cpu=True)


def trained(config: Config, seed: int) -> tuple[EvidenceModel, torch.optim.Optimizer]:
    """A model and its optimizer after a step of random gradients."""
    model = stir(make_model(config.model), seed)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    return model, optimizer


@pytest.fixture(scope="module")
def saved(
    config: Config, accelerator: Accelerator, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A finished run's folder."""
    output = tmp_path_factory.mktemp("saved") / "run"
    save_resumable(output, *trained(config, 1), config, PROGRESS, accelerator)
    shutil.copytree(output / "last", output / "best")
    return output


def test_every_field_that_may_change_is_tried_here() -> None:
    assert FREE_VALUES.keys() == FREE
    assert ON_REQUEST_VALUES.keys() == ON_REQUEST
    assert EVALUATION < ON_REQUEST
    assert not FREE & ON_REQUEST


def test_nothing_is_offered_where_nothing_was_saved(config: Config, tmp_path: Path) -> None:
    assert find_resumable(tmp_path, config, "fingerprint", anyway=False) is None


@pytest.mark.parametrize("anyway", [False, True])
def test_what_does_not_change_what_is_learned_may_differ(
    saved: Path, config: Config, anyway: bool
) -> None:
    for name, value in FREE_VALUES.items():
        config = changed(config, name, value)
    assert find_resumable(saved, config, "fingerprint", anyway) == (saved / "last", PROGRESS)


@pytest.mark.parametrize("name", sorted(ON_REQUEST))
def test_other_fields_differ_on_request(saved: Path, config: Config, name: str) -> None:
    """A best evaluation is kept unless later ones are of other questions or other answers."""
    other = changed(config, name, ON_REQUEST_VALUES[name])
    with pytest.raises(ValueError, match="a checkpoint of another config: ") as error:
        find_resumable(saved, other, "fingerprint", anyway=False)
    said = str(error.value)
    assert said.startswith(f"{saved / 'last'}: ")
    assert f"{name}: " in said
    assert f" there, {ON_REQUEST_VALUES[name]!r} here" in said
    assert "--resume_anyway resumes with the new values, --fresh starts over" in said
    kept = name not in ("data.max_tune_questions", "data.tune", "training.max_new_tokens")
    wanted = replace(
        PROGRESS,
        finished=False,
        best=PROGRESS.best if kept else None,
        metrics=PROGRESS.metrics if kept else {},
    )
    found = find_resumable(saved, other, "fingerprint", anyway=True)
    assert found == (saved / "last", wanted)


@pytest.mark.parametrize("name", sorted(FIXED_VALUES))
def test_what_cannot_be_resumed_with_is_never_offered(
    saved: Path, config: Config, name: str
) -> None:
    other = changed(config, name, FIXED_VALUES[name])
    both = changed(other, "training.learning_rate", 0.25)
    for given, anyway, fields in (
        (other, False, [name]),
        (other, True, [name]),
        (both, False, [name, "training.learning_rate"]),
        (both, True, [name]),
    ):
        with pytest.raises(ValueError, match="another config") as error:
            find_resumable(saved, given, "fingerprint", anyway)
        said = str(error.value)
        listed = said.split("another config: ")[1].split(". --fresh")[0].split("; ")
        assert sorted(item.split(":")[0] for item in listed) == sorted(fields)
        assert "--resume_anyway" not in said
        assert said.endswith("--fresh starts over, another training.output keeps both")


def test_other_training_data_are_refused(saved: Path, config: Config) -> None:
    for anyway in (False, True):
        with pytest.raises(ValueError, match=r"last: trained on other data: .*data\.train"):
            find_resumable(saved, config, "another fingerprint", anyway)


def test_progress_with_unknown_fields_is_damaged(
    saved: Path, config: Config, tmp_path: Path
) -> None:
    output = shutil.copytree(saved, tmp_path / "run")
    path = output / "last" / "trainer_state" / "progress.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"stage": 1}))
    rehash(output / "last")
    with pytest.raises(ValueError, match="last: damaged, its progress has other fields"):
        find_resumable(output, config, "fingerprint", anyway=True)


def test_a_save_that_was_cut_off_is_put_back_before_it_is_offered(
    saved: Path, config: Config, tmp_path: Path
) -> None:
    shutil.copytree(saved, tmp_path / "run")
    (tmp_path / "run" / "last").rename(tmp_path / "run" / ".last-old")
    found = find_resumable(tmp_path / "run", config, "fingerprint", anyway=False)
    assert found == (tmp_path / "run" / "last", PROGRESS)


def test_of_two_checkpoints_of_a_step_the_last_is_offered(
    saved: Path, config: Config, tmp_path: Path
) -> None:
    output = shutil.copytree(saved, tmp_path / "run")
    shutil.copytree(output / "last", output / "step_00000006")
    found = find_resumable(output, config, "fingerprint", anyway=False)
    assert found == (output / "last", PROGRESS)


@pytest.mark.parametrize("name", ["adapter_config.json", "progress.json", "config.yaml"])
def test_a_run_whose_only_checkpoint_is_damaged_does_not_begin_again(
    name: str, saved: Path, config: Config, tmp_path: Path
) -> None:
    output = shutil.copytree(saved, tmp_path / "run")
    flip_a_bit(next((output / "last").rglob(name)))
    with pytest.raises(ValueError, match=rf"last.*{name}: changed or truncated") as error:
        find_resumable(output, config, "fingerprint", anyway=True)
    assert "--fresh starts over; --training.start_from CHECKPOINT" in str(error.value)
    assert str(output / "best") in str(error.value)


@pytest.mark.parametrize("missing", [False, True])
def test_a_lost_best_checkpoint_is_written_again(
    missing: bool, saved: Path, config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = shutil.copytree(saved, tmp_path / "run")
    if missing:
        shutil.rmtree(output / "best")
    else:
        flip_a_bit(output / "best" / "graph_encoder.safetensors")
    found = find_resumable(output, config, "fingerprint", anyway=False)
    assert found == (output / "last", replace(PROGRESS, best=None, finished=False))
    assert f"{output / 'best'}" in caplog.text
    assert "the end of the run, replaces this checkpoint" in caplog.text


def test_a_run_starts_from_the_weights_of_another_checkpoint(
    saved: Path, config: Config, tmp_path: Path
) -> None:
    (model, _), (other, _) = trained(config, 1), trained(config, 2)
    load_start(saved / "best", other)
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    with pytest.raises(ValueError, match=r"training\.start_from: .*nowhere: no such folder"):
        load_start(tmp_path / "nowhere", other)
    text = make_model(replace(config.model, evidence="text"))
    load_start(saved / "best", text)  # its adapter; the graph encoder has no place there
    wider = make_model(changed(config.model, "lora.r", 2))
    with pytest.raises(ValueError, match=r"training\.start_from: .*adapter_model.*shape"):
        load_start(saved / "best", wider)


def test_a_run_starts_from_no_other_base_model_and_from_nothing_damaged(
    saved: Path, config: Config, tmp_path: Path
) -> None:
    elsewhere = changed(config, "model.base_model", save_tiny(tmp_path / "base", seed=3))
    with pytest.raises(ValueError, match=r"training\.start_from: .*another base model"):
        load_start(saved / "best", make_model(elsewhere.model))
    damaged = shutil.copytree(saved / "best", tmp_path / "damaged")
    flip_a_bit(damaged / "graph_encoder.safetensors")
    with pytest.raises(ValueError, match=r"training\.start_from: .*changed or truncated"):
        load_start(damaged, make_model(config.model))


def test_what_a_killed_save_left_is_removed_and_nothing_of_ones_own(
    saved: Path, config: Config, tmp_path: Path
) -> None:
    output = shutil.copytree(saved, tmp_path / "run")
    shutil.copytree(output / "last", output / ".last-old")  # it had only this left to remove
    for name in (".best-practices", ".notes-old", ".last-old-notes"):
        (output / name).mkdir()
    (output / ".last-notes.partial").touch()
    (output / ".last-elsewhere.partial").symlink_to(saved)
    (output / "step_00000007").symlink_to(saved / "last")
    kept = {path.name for path in output.iterdir()} - {".last-old"}
    found = find_resumable(output, config, "fingerprint", anyway=False)
    assert found == (output / "last", PROGRESS)
    assert {path.name for path in output.iterdir()} == kept
    start_afresh(output)
    assert {path.name for path in output.iterdir()} == kept - {"best", "last"}
    assert (saved / "last" / "manifest.json").is_file()


def test_saves_are_kept_by_step_and_carry_their_metrics(
    config: Config, accelerator: Accelerator, tmp_path: Path
) -> None:
    model, optimizer = trained(config, 1)
    for step in (2, 4, 6):
        progress = replace(PROGRESS, step=step, metrics={"hit_at_1": step / 10})
        save_resumable(tmp_path, model, optimizer, config, progress, accelerator)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "step_00000004"]
    text = (tmp_path / "last" / "trainer_state" / "progress.json").read_text()
    assert text.startswith('{\n "step": 6,\n "finished": ')
    for name, step in (("step_00000004", 4), ("last", 6)):
        check_manifest(tmp_path / name)
        assert read_checkpoint(tmp_path / name).metrics == {"hit_at_1": step / 10, "steps": step}
        found = read_progress(tmp_path / name)
        assert found is not None
        assert found["step"] == step
    # nothing was trained: nothing of an optimizer is kept, and it is a checkpoint all the same
    save_resumable(tmp_path / "none", model, None, config, PROGRESS, accelerator)
    found = find_resumable(tmp_path / "none", config, "fingerprint", anyway=False)
    assert found is not None
    assert found[0] == tmp_path / "none" / "last"


@pytest.mark.parametrize("file", ["progress.json", "optimizer.safetensors"])
def test_a_run_that_skips_a_damaged_checkpoint_saves_and_keeps_the_intact_one(
    file: str, config: Config, accelerator: Accelerator, tmp_path: Path
) -> None:
    model, optimizer = trained(config, 1)
    for step in (2, 4):
        progress = replace(PROGRESS, step=step)
        save_resumable(tmp_path, model, optimizer, config, progress, accelerator)
    path = tmp_path / "last" / "trainer_state" / file
    path.write_bytes(path.read_bytes()[:-7])
    found = find_resumable(tmp_path, config, "fingerprint", anyway=False)
    assert found is not None
    assert found[0] == tmp_path / "step_00000002"
    for step in (5, 7):
        progress = replace(PROGRESS, step=step)
        save_resumable(tmp_path, model, optimizer, config, progress, accelerator)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "last",
            {5: "step_00000002", 7: "step_00000005"}[step],
        ]
        for folder in tmp_path.iterdir():
            check_manifest(folder)


def test_weights_optimizer_and_random_numbers_are_restored(
    config: Config, accelerator: Accelerator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (model, optimizer), (other, others) = trained(config, 1), trained(config, 2)

    def draw() -> list[float]:  # normal numbers come in pairs, of which one is kept
        normal = random.gauss(), np.random.standard_normal()
        return [*normal, random.random(), np.random.random_sample(), *torch.rand(3).tolist()]

    draw()
    save_resumable(tmp_path, model, optimizer, config, PROGRESS, accelerator)
    drawn = draw()
    with caplog.at_level(logging.INFO):
        load_resumable(tmp_path / "last", replace(PROGRESS), other, others, accelerator)
    assert draw() == drawn
    assert f"resumed from {tmp_path / 'last'}, step 6" in caplog.text
    assert "resumed a run of" not in caplog.text
    pairs = list(zip(model.named_parameters(), other.named_parameters(), strict=True))
    assert all(torch.equal(one, two) for (_, one), (_, two) in pairs)
    for (name, one), (_, two) in pairs:
        assert one.requires_grad == (one in optimizer.state), name
        for key, value in optimizer.state.get(one, {}).items():
            assert torch.equal(others.state[two][key], value), (name, key)


def test_random_numbers_of_a_run_without_gpu_are_restored_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = random_states()
    drawn = random.random()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    set_random_states({name: one for name, one in states.items() if name != "cuda"})
    assert random.random() == drawn


def test_another_number_of_processes_is_told_and_draws_its_own_numbers(
    config: Config, accelerator: Accelerator, saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = trained(config, 2)
    progress = replace(PROGRESS, num_processes=3)
    torch.manual_seed(8)
    wanted = torch.rand(3).tolist()
    torch.manual_seed(8)
    load_resumable(saved / "last", progress, model, optimizer, accelerator)
    assert torch.rand(3).tolist() == wanted
    assert "resumed a run of 3 processes with 1" in caplog.text
    assert progress.num_processes == 1


def test_another_base_model_is_refused_before_anything_is_loaded(
    config: Config, accelerator: Accelerator, saved: Path, tmp_path: Path
) -> None:
    elsewhere = changed(config, "model.base_model", save_tiny(tmp_path / "base", seed=3))
    model, optimizer = trained(elsewhere, 2)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match="another base model"):
        load_resumable(saved / "last", replace(PROGRESS), model, optimizer, accelerator)
    assert all(map(torch.equal, before, model.parameters()))


def test_starting_afresh_removes_checkpoints_and_logs_and_nothing_else(tmp_path: Path) -> None:
    for name in ("best", "last", "step_00000004", "step_00000006"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").touch()
    for name in (".best-abc.partial", "answers", ".step_00000002-gone", "step_mine", "tensorboard"):
        (tmp_path / name).mkdir()
    (tmp_path / "tensorboard" / "events.out.tfevents.1").touch()
    for name in ("step_mine/notes", "tensorboard/mine.txt"):
        (tmp_path / name).touch()
    for name in ("log.jsonl", "answers.jsonl", ".lock"):
        (tmp_path / name).touch()
    start_afresh(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".lock", "answers", "answers.jsonl", "step_mine", "tensorboard"]
    assert [path.name for path in (tmp_path / "tensorboard").iterdir()] == ["mine.txt"]
    start_afresh(tmp_path)  # nothing is there: as well
    start_afresh(tmp_path / "nowhere")


def test_a_folder_is_locked_for_one_run_at_a_time(tmp_path: Path) -> None:
    output = tmp_path / "new" / "run"
    with locked(output):
        assert output.is_dir()
        with (
            pytest.raises(ValueError, match=r"training\.output: .*run is in use by another run"),
            locked(output),
        ):
            pytest.fail("two runs have it")
    with pytest.raises(KeyError), locked(output):
        raise KeyError
    with locked(output):  # given back, whatever happened
        pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(ValueError, match=r"training\.output: .*file/run: Not a directory"),
        locked(tmp_path / "file" / "run"),
    ):
        pytest.fail("no folder")
