"""Stopped, killed, refused: a run goes on where it was, to the same numbers, and loses nothing."""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from turngraph import train
from turngraph.data import example_cache
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.jsonlines import write_conversations
from turngraph.inference import answer_batches
from turngraph.tests.processes import Command
from turngraph.tests.runs import lines, losses, options
from turngraph.tests.tiny import tiny_conversation
from turngraph.tests.waiting import wait_until
from turngraph.training.kept_checkpoints import newest_checkpoint
from turngraph.training.run_folder import start_afresh
from turngraph.training.run_log import RunLog

NUM_STEPS = 12
STIRRED = {  # everything that draws random numbers, and an evaluation between
    "training__max_steps": NUM_STEPS,
    "training__num_epochs": 20,
    "training__save_every": 2,
    "training__eval_every": 6,
    "model__encoder__dropout": 0.3,
    "model__lora__lora_dropout": 0.2,
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums are taken in the same order here as in the runs that are commands."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def argv(base: str, folder: Path, output: Path, **changes: Any) -> list[str]:
    return options(base, folder, output, **STIRRED | changes)


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, tiny_folder: str
) -> Path:
    """The output of a run that nothing happens to."""
    output = tmp_path_factory.mktemp("undisturbed") / "run"
    train.main(argv(tiny_folder, tiny_data, output))
    return output


def same_run(one: Path, other: Path) -> None:
    """Both runs took the same steps to the last bit, each once, and ended at the same weights."""
    assert [line["step"] for line in lines(one) if "loss" in line] == [*range(1, NUM_STEPS + 1)]
    assert losses(one) == losses(other)
    scores = [[line for line in lines(run) if "tune_hit_at_1" in line] for run in (one, other)]
    assert [r["tune_hit_at_5"] for r in scores[0]] == [r["tune_hit_at_5"] for r in scores[1]]
    for name in ("graph_encoder.safetensors", "adapter/adapter_model.safetensors"):
        first, second = (load_file(run / "last" / name) for run in (one, other))
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first), name


def partial_folders(output: Path) -> list[Path]:
    return [path for name in ("last", "best") for path in output.glob(f".{name}-*")]


def num_logged(output: Path) -> int:
    path = output / "log.jsonl"
    return path.read_text().count('"loss"') if path.exists() else 0


def run_and_kill(arguments: list[str], output: Path, in_save: bool, rng: random.Random) -> str:
    """Start the run, kill it a step or two later; what it was doing."""
    start, steps = num_logged(output), rng.randint(1, 2)
    process = Command("train.py", *arguments)

    def reached() -> bool:
        """Whether it is there, or has ended; it is halted inside a save to be sure of it."""
        if process.returncode is not None:
            return True
        if num_logged(output) < min(start + steps, NUM_STEPS - 1):
            return False
        if not in_save:
            return True
        if not partial_folders(output):
            return False
        if process.halted() and not partial_folders(output):
            process.send_signal(signal.SIGCONT)  # the save was over: the next one
            return False
        return True

    wait_until(reached, pause=0.0005)
    if not in_save:
        time.sleep(rng.random() * 0.1)
    process.send_signal(signal.SIGKILL)
    _, said = process.communicate()
    if process.returncode != -signal.SIGKILL:
        assert process.returncode == 0, said[-2000:]
        return "finished"
    return "inside a save" if partial_folders(output) else "in a step"


def killed_and_resumed(
    kills: int, tiny_folder: str, data_folder: Path, output: Path, seed: int
) -> list[str]:
    """Kill a run so often, let it then finish; the trace of what each kill hit."""
    rng, trace = random.Random(seed), []
    arguments = argv(tiny_folder, data_folder, output, training__save_every=1)
    for number in range(kills):
        trace.append(run_and_kill(arguments, output, in_save=number % 2 == 0, rng=rng))
        newest = newest_checkpoint(output)
        trace[-1] += f", logged {num_logged(output)}, newest {newest and newest.name}"
        if trace[-1].startswith("finished"):  # begin again: every kill must hit a run
            shutil.rmtree(output)
    train.main(arguments)
    return trace


@pytest.mark.slow
def test_twenty_kills_change_nothing(
    undisturbed: Path,
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
) -> None:
    hits: list[str] = []
    for seed in range(4):
        output = tmp_path / f"run_{seed}"
        hits += killed_and_resumed(5, tiny_folder, tiny_data, output, seed)
        same_run(output, undisturbed)
    print("\n".join(hits))
    assert len([hit for hit in hits if not hit.startswith("finished")]) >= 20 - 2, hits
    assert sum(hit.startswith("inside a save") for hit in hits) >= 5, hits


@pytest.mark.parametrize(
    ("number", "during", "num_batches", "at_step"),
    [
        (signal.SIGTERM, "memory_advice", 5, 3),  # the first batch of the third step
        pytest.param(signal.SIGINT, "memory_advice", 5, 3, marks=pytest.mark.slow),
        (signal.SIGUSR1, "answer_safely", 1, 6),  # the first batch of the first evaluation
    ],
)
def test_a_signal_stops_with_a_checkpoint_and_the_same_command_goes_on(
    number: signal.Signals,
    during: str,
    num_batches: int,
    at_step: int,
    undisturbed: Path,
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "run"
    arguments = argv(tiny_folder, tiny_data, output)
    batches: list[int] = []
    module = train if during == "memory_advice" else answer_batches
    function = getattr(module, during)

    def signalled(*given: Any) -> Any:
        batches.append(len(batches))
        if len(batches) == num_batches:
            os.kill(os.getpid(), number)
        return function(*given)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(module, during, signalled)
        with pytest.raises(SystemExit) as stopped:
            train.main(arguments)
    assert stopped.value.code == EXIT_GO_ON
    assert during == "memory_advice" or len(batches) == 1
    assert signal.getsignal(number) is before
    assert ("Ctrl-C" if number == signal.SIGINT else number.name) in caplog.text
    step = json.loads((output / "last" / "trainer_state" / "progress.json").read_text())["step"]
    assert step == at_step
    said = ": the command saves its work and stops after the step or evaluated batch at hand"
    assert said in capfd.readouterr().err
    train.main(arguments)
    same_run(output, undisturbed)


def test_a_signal_while_examples_are_built_stops_before_training(
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TURNGRAPH_CACHE", str(tmp_path / "cache"))
    build = example_cache.build_task

    def signalled(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return build(*given)

    monkeypatch.setattr(example_cache, "build_task", signalled)
    with pytest.raises(SystemExit) as stopped:
        train.main(argv(tiny_folder, tiny_data, tmp_path / "run"))
    assert stopped.value.code == EXIT_GO_ON
    assert "stopped before training (SIGTERM)" in caplog.text
    assert not (tmp_path / "run").exists()


def test_ctrl_c_again_leaves_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop
        assert capfd.readouterr().err == (
            "\nCtrl-C: the command saves its work and stops soon; press Ctrl-C again to end now\n"
        )
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_when_its_minutes_are_up_it_stops(
    undisturbed: Path,
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
) -> None:
    arguments = argv(tiny_folder, tiny_data, tmp_path / "run")
    for _ in range(2):
        with pytest.raises(SystemExit) as stopped:
            train.main([*arguments, "--max_minutes=1e-9"])
        assert stopped.value.code == EXIT_GO_ON
    assert len(losses(tmp_path / "run")) == 2
    train.main(arguments)
    same_run(tmp_path / "run", undisturbed)


@pytest.mark.parametrize(("minutes", "lost"), [("1e-9", False), ("null", True)])
def test_a_killed_run_loses_minutes_and_says_which_steps(
    minutes: str,
    lost: bool,
    undisturbed: Path,
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    output, batches = tmp_path / "run", list[int]()
    changes = {"training__save_every": "null", "training__save_minutes": minutes}
    arguments = argv(tiny_folder, tiny_data, output, **changes)
    advice = train.memory_advice

    def killed(*given: Any) -> Any:
        batches.append(len(batches))
        if len(batches) == 7:  # in the fourth step
            raise KeyboardInterrupt
        return advice(*given)

    with monkeypatch.context() as patch:
        patch.setattr(train, "memory_advice", killed)
        with pytest.raises(KeyboardInterrupt):
            train.main(arguments)
    assert len(losses(output)) == 3
    train.main(arguments)
    same_run(output, undisturbed)
    said = "log.jsonl: step 3 had been taken when the run ended without a checkpoint of it"
    assert (said in caplog.text) == lost
    assert ("the steps from 1 on, which are lost, are taken again" in caplog.text) == lost


@pytest.fixture(scope="module")
def stopped_once(
    tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, tiny_folder: str
) -> Path:
    output = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(SystemExit):
        train.main([*argv(tiny_folder, tiny_data, output), "--max_minutes=1e-9"])
    return output


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A run stopped after its first step, to be changed."""
    return shutil.copytree(stopped_once, tmp_path / "run")


def test_a_finished_run_is_left_alone_and_fresh_begins_again(
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    arguments = options(tiny_folder, tiny_data, tmp_path / "run")
    train.main(arguments)
    before = (tmp_path / "run" / "log.jsonl").read_text()
    caplog.set_level(logging.INFO)
    train.main(arguments)
    assert "already complete" in caplog.text
    assert (tmp_path / "run" / "log.jsonl").read_text() == before
    train.main([*arguments, "--fresh"])
    assert losses(tmp_path / "run") == [json.loads(x)["loss"] for x in before.splitlines()[:3]]


def test_a_finished_run_goes_on_where_it_is_told_to(
    tiny_data: Path, tiny_folder: str, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    train.main(options(tiny_folder, tiny_data, output))
    more = {"training__max_steps": 5, "training__num_epochs": 9}
    with pytest.raises(ValueError, match=r"training\.max_steps: 3 there, 5 here.*--resume_anyway"):
        train.main(options(tiny_folder, tiny_data, output, **more))
    train.main([*options(tiny_folder, tiny_data, output, **more), "--resume_anyway"])
    assert [line["step"] for line in lines(output) if "loss" in line] == [1, 2, 3, 4, 5]
    # an evaluation on other questions says nothing of the best one before
    asked = more | {"data__max_tune_questions": 2}
    train.main([*options(tiny_folder, tiny_data, output, **asked), "--resume_anyway"])
    assert json.loads((output / "best" / "metrics.json").read_text())["questions"] == 2


def test_a_trained_run_is_not_written_over_by_an_untrained_one(
    tiny_data: Path, tiny_folder: str, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    train.main(options(tiny_folder, tiny_data, output))
    before = (output / "last" / "manifest.json").read_text()
    untrained = options(tiny_folder, tiny_data, output, training__max_steps=0)
    with pytest.raises(ValueError, match=r"training\.max_steps: 3 there, 0 here"):
        train.main(untrained)
    assert (output / "last" / "manifest.json").read_text() == before
    for _ in range(2):  # a finished one is left alone
        train.main(options(tiny_folder, tiny_data, tmp_path / "zero", training__max_steps=0))
    assert len(lines(tmp_path / "zero")) == 1


def test_what_changes_nothing_may_change(
    stopped: Path,
    undisturbed: Path,
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
) -> None:
    moved = tmp_path / "moved"
    stopped.rename(moved)
    (moved / "last").rename(moved / ".last-old")  # a save was killed between two names
    (moved / ".last-abc.partial").mkdir()
    changes = {"training__save_every": 5, "training__eval_batch_size": 2}
    train.main(argv(tiny_folder, tiny_data, moved, **changes))
    same_run(moved, undisturbed)
    assert not partial_folders(moved)


def test_other_data_are_refused(
    stopped: Path, tiny_data: Path, tiny_folder: str, tmp_path: Path
) -> None:
    shutil.copytree(tiny_data, tmp_path / "data")
    arguments = argv(tiny_folder, tmp_path / "data", stopped)
    others = [tiny_conversation(n) for n in (3, 2, 1, 0)]
    write_conversations(tmp_path / "data" / "train.jsonl", others)
    with pytest.raises(ValueError, match=r"data\.train"):
        train.main([*arguments, "--resume_anyway"])


def test_a_folder_in_use_is_refused(stopped: Path, tiny_data: Path, tiny_folder: str) -> None:
    with (
        train.locked(stopped),
        pytest.raises(ValueError, match=r"training\.output.*another run"),
    ):
        train.main(argv(tiny_folder, tiny_data, stopped))


def test_a_harmed_checkpoint_is_passed_over_for_the_one_before(
    undisturbed: Path,
    tiny_data: Path,
    tiny_folder: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(undisturbed, tmp_path / "run")
    harmed = tmp_path / "run" / "last" / "trainer_state" / "optimizer.safetensors"
    harmed.write_bytes(harmed.read_bytes()[:-7])
    changes = {"training__output": tmp_path / "run"}
    caplog.set_level(logging.INFO)
    train.main(argv(tiny_folder, tiny_data, tmp_path / "run", **changes))
    assert "optimizer.safetensors: changed or truncated" in caplog.text
    assert f"step_{NUM_STEPS:08d}" in caplog.text or "step_000000" in caplog.text
    same_run(tmp_path / "run", undisturbed)


def test_a_write_that_fails_keeps_the_checkpoint_before(
    stopped: Path,
    undisturbed: Path,
    tiny_data: Path,
    tiny_folder: str,
) -> None:
    """As on a full disk: the system refuses to write more into a file."""
    arguments = argv(tiny_folder, tiny_data, stopped)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = (stopped / "last" / "trainer_state" / "optimizer.safetensors").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, hard))
    try:
        with pytest.raises(ValueError, match="last: checkpoint cannot be written"):
            train.main(arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert not partial_folders(stopped)
    newest = newest_checkpoint(stopped)
    assert newest is not None
    assert newest.name == "last"
    train.main(arguments)
    same_run(stopped, undisturbed)


@pytest.mark.parametrize("name", ["best", "last"])
@pytest.mark.parametrize("more", [[], ["--fresh"]])
def test_a_folder_of_ones_own_is_neither_replaced_nor_removed(
    more: list[str], name: str, tiny_data: Path, tiny_folder: str, tmp_path: Path
) -> None:
    mine = tmp_path / "run" / name / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(ValueError, match=f"{name}: no checkpoint of a run"):
        train.main([*options(tiny_folder, tiny_data, tmp_path / "run"), *more])
    assert mine.read_text() == "mine"
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {name, ".lock"}


def test_a_log_of_another_kind_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "mine"}\n')
    for change in (start_afresh, lambda folder: RunLog(folder, 0, 0, None, {})):
        with pytest.raises(ValueError, match=rf"{path}, line 1: not the log of a run"):
            change(tmp_path)
    assert path.read_text() == '{"event": "mine"}\n'


def test_curves_of_steps_that_are_taken_again_are_drawn_once(tmp_path: Path) -> None:
    for first, num_lines in ((1, 0), (2, 1)):
        log = RunLog(tmp_path, num_lines, num_lines, None, {})
        for step in (first, first + 1):
            log.write(step, 1.0, {"loss": step + num_lines / 2})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in events] == [(1, 1.0), (2, 2.5), (3, 3.5)]


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("", '{"st'),
        ('{"step": 1, "loss": 2.0}\n', "{"),
        ('{"step": 1, "loss": 2.0}\n', '{"step": '),
        ('{"step": 1, "loss": 2.0}\n', '{"step": 2, "lo'),
    ],
)
def test_a_line_of_which_a_killed_run_wrote_a_part_is_cut(
    whole: str, part: str, tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_text(whole + part)
    log = RunLog(tmp_path, 1, whole.count("\n"), None, {})
    assert (tmp_path / "log.jsonl").read_text() == whole
    log.write(2, 1.0, {"loss": 1.0})
    assert lines(tmp_path)[-1]["step"] == 2
    assert len(lines(tmp_path)) == log.num_lines


def test_a_log_keeps_its_lines_and_a_full_disk_is_told(tmp_path: Path) -> None:
    text = "".join(f'{{"step": {step}}}\n' for step in range(1, 4))
    (tmp_path / "log.jsonl").write_text(text)
    inode = (tmp_path / "log.jsonl").stat().st_ino

    log = RunLog(tmp_path, 2, 2, None, {})
    assert (tmp_path / "log.jsonl").read_text() == text[: 2 * len(text) // 3]
    assert log.path.stat().st_ino == inode  # cut in place: a kill leaves no second file
    log.write(3, 1.0, {"loss": float("nan"), "rate": 0.5})
    assert lines(tmp_path)[2] == {"step": 3, "seconds": 1.0, "loss": None, "rate": 0.5}
    log.path = Path("/dev/full")
    with pytest.raises(ValueError, match="/dev/full: cannot be written: No space left"):
        log.write(4, 1.0, {"loss": 1.0})
