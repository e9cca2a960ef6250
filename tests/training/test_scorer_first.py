"""One command trains the scorer alone, then LM and scorer on the choice; each resumes."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from turngraph import train
from turngraph.configs.parse import load_config
from turngraph.data.jsonlines import write_conversations
from turngraph.data.types import Answer, Conversation, Turn
from turngraph.model.checkpoint import read_checkpoint
from turngraph.tests.runs import command, lines, losses, options
from turngraph.tests.tables import pool
from turngraph.training.scorer_first import scorer_run

pytestmark = pytest.mark.usefixtures("fresh_accelerator")
SCORER, ADAPTER = "node_answers.safetensors", "adapter/adapter_model.safetensors"
CHOICE = {
    "data__table_questions": 12,
    "evidence__question_nodes": "query",
    "evidence__chain": "both",
    "evidence__max_prompt_nodes": 60,
    "evidence__top_k": 6,
    "model__evidence": "text",
    "model__answers": "choice",
    "model__lora__target_modules": "[q_proj, up_proj]",
    "model__scorer__width": 16,
    "model__scorer__heads": 2,
    "model__scorer__num_layers": 1,
    "model__scorer__num_proposals": 3,
    "training__num_epochs": 20,
    "training__max_steps": 6,
    "training__save_every": 2,
    "training__keep_last": 3,
    "scorer_training__batch_size": 4,
    "scorer_training__max_steps": 4,
    "scorer_training__num_epochs": 9,
    "scorer_training__warmup_steps": 0,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations about tables of their own, for training and tuning."""
    folder = tmp_path_factory.mktemp("tables")
    asked = (("Which city are the Reds from?", "Lima"), ("When were they founded?", "1901"))
    turns = tuple(Turn(str(n), text, (Answer(label),)) for n, (text, label) in enumerate(asked))
    for name, titles in (("train", ("League", "Cup", "Series")), ("tune", ("Trophy",))):
        found = [Conversation(title, "", turns, pool(title)) for title in titles]
        write_conversations(folder / f"{name}.jsonl", found)
    return folder


def argv(base: str, data: Path, output: Path, **changes: Any) -> list[str]:
    return options(base, data, output, **CHOICE | changes)


@pytest.fixture(scope="module")
def finished(tiny_folder: str, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "choice"
    train.main(argv(tiny_folder, data, output))
    return output


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The trained tensors of a checkpoint."""
    return load_file(folder / SCORER) | load_file(folder / ADAPTER)


def test_one_command_trains_both_in_one_folder(finished: Path) -> None:
    assert len(losses(finished / "scorer")) == 4
    assert len(losses(finished)) == 6
    assert all(
        line["loss_text"] + line["loss_choice"] + line["loss_scorer"] == pytest.approx(line["loss"])
        for line in lines(finished)
        if "loss" in line
    )
    of_scorer = read_checkpoint(finished / "scorer" / "best").config
    assert (of_scorer.model.answers, of_scorer.model.lora) == ("nodes", None)
    assert (of_scorer.data.train_repeats, of_scorer.training.encoder_learning_rate) == (0, 1e-3)
    assert of_scorer.evidence.max_prompt_nodes is None
    both = read_checkpoint(finished / "best")
    assert {SCORER, ADAPTER} < both.manifest["files"].keys()
    assert both.config.model.answers == "choice"
    assert "hit_at_1" in both.metrics


def test_a_complete_run_is_not_trained_again(
    finished: Path, tiny_folder: str, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = weights(finished / "last")
    with caplog.at_level(logging.INFO):
        train.main(argv(tiny_folder, data, finished))
    assert caplog.text.count("already complete") == 1  # the scorer's run is not looked at
    for name, tensor in weights(finished / "last").items():
        assert torch.equal(tensor, before[name])


def test_the_scorer_starts_from_its_own_run(tiny_folder: str, data: Path, tmp_path: Path) -> None:
    still = {"training__encoder_learning_rate": 0, "training__max_steps": 1}
    train.main(argv(tiny_folder, data, tmp_path / "one", **still))
    started = load_file(tmp_path / "one" / "last" / SCORER)
    trained = load_file(tmp_path / "one" / "scorer" / "best" / SCORER)
    assert all(torch.equal(tensor, trained[name]) for name, tensor in started.items())
    given = {"data__table_questions": 0, "model__scorer__init": tmp_path / "one/scorer/best"}
    train.main(argv(tiny_folder, data, tmp_path / "two", **still | given))
    assert not (tmp_path / "two" / "scorer").exists()
    again = weights(tmp_path / "two" / "last")
    for name, tensor in weights(tmp_path / "one" / "last").items():
        assert torch.equal(tensor, again[name])


@pytest.mark.parametrize("stage", ["", "scorer"])
def test_a_run_resumes_to_the_same_weights(
    stage: str, finished: Path, tiny_folder: str, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    shutil.copytree(finished, output)
    for name in ("best", "last"):
        shutil.rmtree(output / stage / name)
    if stage:  # LM and scorer had not begun
        for folder in output.glob("*/manifest.json"):
            shutil.rmtree(folder.parent)
        (output / "log.jsonl").unlink()
    train.main(argv(tiny_folder, data, output))
    assert losses(output) == losses(finished)
    assert [line["step"] for line in lines(output / "scorer") if "loss" in line] == [1, 2, 3, 4]
    again = weights(output / "last")
    for name, tensor in weights(finished / "last").items():
        assert torch.equal(tensor, again[name]), name


def test_accumulating_and_batching_are_the_same_steps(
    tiny_folder: str, data: Path, tmp_path: Path
) -> None:
    few = {"data__table_questions": 0, "training__max_steps": 3}
    few |= {"model__scorer__dropout": 0, "model__lora__lora_dropout": 0}
    for name, size, num in (("one", 1, 4), ("two", 4, 1)):
        shape = {"training__batch_size": size, "training__batches_per_step": num}
        train.main(argv(tiny_folder, data, tmp_path / name, **few | shape))
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-4)


def test_a_dry_run_estimates_both(
    tiny_folder: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train.main([*argv(tiny_folder, data, tmp_path / "run"), "--dry_run"])
    assert capsys.readouterr().out.count("steps  ") == 2
    assert not (tmp_path / "run").exists()


def test_fresh_trains_both_again(
    finished: Path, tiny_folder: str, data: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    changed = argv(tiny_folder, data, tmp_path / "run", scorer_training__max_steps=2)
    with pytest.raises(ValueError, match=r"scorer_training.max_steps: 4 there, 2 here"):
        train.main(changed)
    train.main([*changed, "--fresh"])
    assert len(losses(tmp_path / "run" / "scorer")) == 2
    assert len(losses(tmp_path / "run")) == 6


def test_what_is_not_used_does_not_change_the_scorers_run(tiny_folder: str, data: Path) -> None:
    one, other = (
        scorer_run(load_config(argv(tiny_folder, data, Path("x"), **changes)))
        for changes in ({}, {"model__scorer__weight": 2, "training__learning_rate": 0.5})
    )
    assert one == other
    assert one is not None
    assert scorer_run(one) is None
    plain = load_config(argv(tiny_folder, data, Path("x"), data__table_questions=0))
    assert scorer_run(plain) is None


def test_a_scorer_that_does_not_fit_is_refused(
    finished: Path, tiny_folder: str, data: Path, tmp_path: Path
) -> None:
    def message(folder: Path, **changes: Any) -> str:
        given = {"data__table_questions": 0, "model__scorer__init": folder}
        with pytest.raises(ValueError, match=r"config field model\.scorer\.init: ") as caught:
            train.main(argv(tiny_folder, data, tmp_path / "run", **given | changes))
        return str(caught.value)

    nodes = finished / "scorer" / "best"
    assert "no such folder" in message(tmp_path / "none")
    assert "its model.answers is choice, must be nodes" in message(finished / "best")
    assert "the config makes it" in message(nodes, model__scorer__width=32)
    assert "in only one of the two" in message(nodes, model__scorer__num_layers=2)


def test_without_tables_there_is_an_error(
    tiny_folder: str, tiny_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"train.jsonl: data.table_questions: 0 can be made"):
        train.main(argv(tiny_folder, tiny_data, tmp_path / "run"))


@pytest.mark.slow  # it starts three processes that import torch
def test_two_processes_train_as_one(tiny_folder: str, data: Path, tmp_path: Path) -> None:
    still = {"model__scorer__dropout": 0, "model__lora__lora_dropout": 0}
    still |= {"scorer_training__batches_per_step": 2, "training__batches_per_step": 4}
    train.main(argv(tiny_folder, data, tmp_path / "one", **still))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2, "train.py"]
    several = argv(tiny_folder, data, tmp_path / "two", **still)
    command(*launch, *several, ACCELERATE_USE_CPU="true")
    for stage in ("scorer", ""):
        one, two = (losses(tmp_path / name / stage) for name in ("one", "two"))
        assert two == pytest.approx(one, rel=1e-3)
