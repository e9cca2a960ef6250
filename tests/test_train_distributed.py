"""Several processes as a user starts them: by the launcher configs and the SLURM script."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from turngraph import infer, train
from turngraph.data.cli import EXIT_GO_ON
from turngraph.data.jsonlines import write_conversations
from turngraph.model.checkpoint import load_checkpoint
from turngraph.tests.processes import Command
from turngraph.tests.runs import ROOT, command, lines, options
from turngraph.tests.tiny import tiny_conversation

LAUNCHERS = ROOT / "configs" / "accelerate"
NUM_STEPS = 4
CALM = {  # nothing is drawn at random but the order of the data
    "model__encoder__dropout": 0,
    "model__lora__lora_dropout": 0,
    "training__batches_per_step": 4,
    "training__max_steps": NUM_STEPS,
    "training__num_epochs": 4,
    "training__eval_every": 1,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training data with a question without evidence; an odd number of questions to tune on."""
    folder = tmp_path_factory.mktemp("data")
    bare = replace(tiny_conversation(0, "bare"), evidence=())
    write_conversations(folder / "train.jsonl", [bare, *map(tiny_conversation, range(3))])
    write_conversations(folder / "tune.jsonl", [tiny_conversation(4)])
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, data: Path, tiny_folder: str) -> Path:
    """The output of an undisturbed run of one process."""
    output = tmp_path_factory.mktemp("alone") / "run"
    train.main(options(tiny_folder, data, output, **CALM))
    return output


def launch(strategy: str, *arguments: object) -> str:
    """Run a command in two processes, by a shipped config of accelerate; what it said."""
    config = ("--config_file", LAUNCHERS / f"{strategy}.yaml", "--num_processes", 2)
    _, said = Command("-m", "accelerate.commands.launch", *config, *arguments).communicate()
    return said


@pytest.mark.slow
@pytest.mark.parametrize("strategies", [("fsdp2",), ("ddp", "fsdp2")])
def test_a_run_goes_on_under_another_strategy_to_the_same_weights(
    strategies: tuple[str, ...], alone: Path, data: Path, tiny_folder: str, tmp_path: Path
) -> None:
    """One step by one process, one by two with each strategy, the rest by one."""
    output = tmp_path / "run"
    argv = options(tiny_folder, data, output, **CALM)
    with pytest.raises(SystemExit) as stopped:
        train.main([*argv, "--max_minutes=1e-9"])
    assert stopped.value.code == EXIT_GO_ON
    for number, strategy in enumerate(strategies, 2):
        said = launch(strategy, "train.py", *argv, "--max_minutes=1e-9")
        assert f"stopped at step {number} " in said, said[-3000:]
        assert ("sharded over 2 processes, in" in said) == (strategy == "fsdp2")
    train.main(argv)

    for name in ("loss", "gradient_norm", "residual_gate_1", "tune_hit_at_1", "tune_hit_at_5"):
        expected, found = (
            [line[name] for line in lines(run) if name in line] for run in (alone, output)
        )
        assert len(expected) == NUM_STEPS
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-7), name
    assert json.loads((output / "last" / "metrics.json").read_text())["questions"] == 3
    for name in ("graph_encoder", "adapter/adapter_model", "trainer_state/optimizer"):
        path = Path("last") / f"{name}.safetensors"
        expected, found = load_file(alone / path), load_file(output / path)
        assert expected.keys() == found.keys()
        for key, tensor in expected.items():
            assert torch.allclose(found[key], tensor, rtol=0, atol=1e-5), key
    load_checkpoint(output / "best")


@pytest.mark.slow
def test_two_processes_answer_every_question_once(alone: Path, data: Path, tmp_path: Path) -> None:
    argv = ["answer", "--checkpoint", alone / "last", "--input", data / "train.jsonl"]
    argv += ["--history", "predicted", "--max_new_tokens", 4, "--batch_size", 2, "--device", "cpu"]
    infer.main([*map(str, argv), "--output", str(tmp_path / "one.jsonl")])
    workers = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2)
    command(*workers, "infer.py", *argv, "--output", tmp_path / "two.jsonl")
    one, two = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("one.jsonl", "two.jsonl")
    )
    keys = ("conversation", "turn", "answer", "candidates", "evidence")
    assert [[r[k] for k in keys] for r in two] == [[r[k] for k in keys] for r in one]
    assert len(one) == 12


@pytest.mark.parametrize(
    ("history", "num_batches"),
    [("gold", 3), ("predicted", 2)],
)
@pytest.mark.slow
def test_answers_go_on_with_another_number_of_processes(
    history: str, num_batches: int, alone: Path, data: Path, tmp_path: Path
) -> None:
    """A batch by one process; one by each of two, where so many may be answered at once."""
    argv = ["answer", "--checkpoint", alone / "last", "--input", data / "train.jsonl"]
    argv += ["--history", history, "--max_new_tokens", 4, "--batch_size", 2, "--device", "cpu"]
    infer.main([*map(str, argv), "--output", str(tmp_path / "one.jsonl")])
    argv += ["--output", tmp_path / "two.jsonl"]
    with pytest.raises(SystemExit):
        infer.main([*map(str, argv), "--max_minutes", "1e-9"])
    said = launch("ddp", "infer.py", *argv, "--max_minutes", "1e-9")
    assert "stopped: the limit of 1e-09 min is reached" in said, said[-3000:]
    journal = (tmp_path / "two.jsonl.unfinished").read_text().splitlines()
    assert len(journal) == 2 * num_batches
    infer.main(list(map(str, argv)))
    one, two = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("one.jsonl", "two.jsonl")
    )
    assert [r["answer"] for r in two] == [r["answer"] for r in one]
    assert [r["evidence"] for r in two] == [r["evidence"] for r in one]


READER = CALM | {
    "evidence.graph": "reader",
    "model.layer": 1,
    "model.scorer.width": 16,
    "model.scorer.kept_nodes": 24,
    "model.scorer.dropout": 0,
    "training.eval_every": 2,
}


@pytest.fixture(scope="module")
def reader_alone(tmp_path_factory: pytest.TempPathFactory, data: Path, tiny_folder: str) -> Path:
    """The output of a reader's run in one process."""
    output = tmp_path_factory.mktemp("reader") / "run"
    train.main(options(tiny_folder, data, output, **READER))
    return output


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_reader_learns_in_two_processes_as_it_does_alone(
    strategy: str, reader_alone: Path, data: Path, tiny_folder: str, tmp_path: Path
) -> None:
    """FSDP2 recomputes activations, and goes on after a stop; a question has no evidence."""
    argv = options(tiny_folder, data, tmp_path / "two", **READER)
    if strategy == "fsdp2":
        argv.append("--model.gradient_checkpointing=true")
        launch(strategy, "train.py", *argv, "--max_minutes=1e-9")
    said = launch(strategy, "train.py", *argv)
    assert ("sharded over 2 processes, in" in said) == (strategy == "fsdp2"), said[-3000:]
    one, two = (lines(run) for run in (reader_alone, tmp_path / "two"))
    assert [line["step"] for line in two] == [line["step"] for line in one], said[-3000:]
    for name in ("loss", "gradient_norm", "tune_hit_at_5", "tune_loss"):
        expected, found = ([line[name] for line in run if name in line] for run in (one, two))
        assert found == pytest.approx(expected, rel=1e-4), name


@pytest.mark.parametrize("path", sorted(LAUNCHERS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_launchers_leave_precision_and_loading_to_the_run(path: Path) -> None:
    launcher = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert launcher["mixed_precision"] == "no"
    if launcher["distributed_type"] == "FSDP":
        assert launcher["fsdp_config"]["fsdp_version"] == 2


def slurm_script(folder: Path, code: int, *more: str, **environment: Any) -> tuple[int, str]:
    """Run the SLURM script with commands that stand for SLURM's; its exit code and their trace."""
    commands = {
        "srun": 'shift 2; SLURM_PROCID=3 SLURM_LOCALID=1 exec "$@"',
        "scontrol": "if [ $1 = show ]; then echo first; seq 100000; "
        'else echo "scontrol $@" >> trace; fi',
        "python": 'kill -USR1 $$; echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $@" >> trace; '
        f"exit {code}",
    }
    for name, text in commands.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = subprocess.run(
        ["bash", str(ROOT / "configs" / "slurm" / "train.sbatch"), "--config", "a b.yaml", *more],
        cwd=folder,
        env=os.environ | slurm | {"PATH": f"{folder}:{os.environ['PATH']}"} | environment,
        check=False,
    )
    return done.returncode, (folder / "trace").read_text()


def test_the_slurm_script_requeues_a_run_that_can_go_on_and_no_other(tmp_path: Path) -> None:
    started = "3 1 4 first train.py --config a b.yaml\n"
    assert slurm_script(tmp_path, EXIT_GO_ON) == (EXIT_GO_ON, f"{started}scontrol requeue 7\n")
    (tmp_path / "trace").unlink()
    for code in (0, 1):
        assert slurm_script(tmp_path, code) == (code, started)
        (tmp_path / "trace").unlink()
    # what is requeued goes on, also where the first start forgot what was there
    for restarts, last in ((0, " --fresh"), (1, "")):
        found = slurm_script(tmp_path, 0, "--fresh", SLURM_RESTART_COUNT=str(restarts))
        assert found == (0, started.replace("\n", f"{last}\n"))
        (tmp_path / "trace").unlink()
