"""Batch inference on a Ray cluster: the file of one process, whatever happens on the way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turngraph import infer
from turngraph.data.jsonlines import write_conversations
from turngraph.inference import answer_lines, answer_on_ray
from turngraph.inference.answer_on_ray import WindowAnswerer
from turngraph.tests.stand_in_ray import StandIn
from turngraph.tests.tiny import tiny_conversation

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several windows of a few conversations."""
    monkeypatch.setattr(answer_lines, "WINDOW", 9)
    monkeypatch.setattr(answer_lines, "WINDOW_CONVERSATIONS", 2)


@pytest.fixture
def argv(graph_checkpoint: str, tmp_path: Path) -> list[str]:
    """A command that answers six conversations."""
    path = tmp_path / "questions.jsonl"
    write_conversations(path, [tiny_conversation(number) for number in range(6)])
    options = ["--checkpoint", graph_checkpoint, "--input", str(path), "--device", "cpu"]
    return ["answer", *options, "--max_new_tokens", "4"]


def records(path: Path) -> list[Json]:
    """The predictions of a file, without the time that each took."""
    return [json.loads(line) | {"milliseconds": 0} for line in path.read_text().splitlines()]


@pytest.mark.parametrize("history", ["gold", "predicted"])
def test_the_answers_are_those_of_one_process(
    ray: StandIn, history: str, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "questions.jsonl").open("a") as file:
        file.write("{}\n")  # becomes an error record
    argv = [*argv, "--keep_going", "--history", history, "--output"]
    with pytest.raises(SystemExit):
        infer.main([*argv, str(tmp_path / "one.jsonl")])
    two = str(tmp_path / "two.jsonl")
    with pytest.raises(SystemExit) as stopped:
        infer.main([*argv, two, "--ray", "local", "--max_minutes", "1e-9"])
    assert stopped.value.code == 75
    assert not ray.running
    answered: list[list[int]] = []
    answer = WindowAnswerer.answer
    monkeypatch.setattr(
        WindowAnswerer,
        "answer",
        lambda self, window: answered.append(window[0]) or answer(self, window),
    )
    with pytest.raises(SystemExit):
        infer.main([*argv, two, "--ray", "local"])
    assert "error" in records(tmp_path / "two.jsonl")[-1]
    assert records(tmp_path / "two.jsonl") == records(tmp_path / "one.jsonl")
    # the first window was answered before
    assert answered == ([[3, 4, 5]] if history == "gold" else [[2, 3], [4, 5]])
    assert {path.name for path in tmp_path.glob("two*")} == {"two.jsonl", "two.jsonl.run.json"}
    assert ray.asked["num_gpus"] == 0


def test_what_does_not_go(
    ray: StandIn, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = ["--output", str(tmp_path / "out.jsonl"), "--ray", "local"]
    with pytest.raises(ValueError, match="--ray: remove --explain"):
        infer.main([*argv, *output, "--explain", str(tmp_path / "page.html")])
    of_gpu = [word for word in argv if word not in ("--device", "cpu")]
    with pytest.raises(ValueError, match="the cluster has no GPU, and 1 are needed"):
        infer.main([*of_gpu, *output])
    assert json.loads((tmp_path / "out.jsonl.run.json").read_text())["device"] == "cuda"
    with monkeypatch.context() as sharding:
        sharding.setattr("turngraph.inference.answer_job.sharding_wanted", lambda: True)
        with pytest.raises(ValueError, match="start one process without accelerate"):
            infer.main([*argv, *output])
    with monkeypatch.context() as two:
        state = SimpleNamespace(num_processes=2)
        two.setattr("turngraph.inference.answer.PartialState", lambda **_: state)
        with pytest.raises(ValueError, match="--ray: start one process"):
            infer.main([*argv, *output])
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 1, field id: missing"):
        infer.main([*argv, *output, "--input", str(bad)])


def killed_once(answerer: WindowAnswerer, window: Any) -> dict[int, Json]:
    """Answer a window; the process dies at its first try of the second one."""
    flag = Path(answerer.job.output).with_suffix(".tried")
    if 0 not in window[0] and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return WindowAnswerer.answer(answerer, window)


@pytest.mark.slow
def test_a_process_of_a_real_cluster_dies(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    infer.main([*argv, "--output", str(tmp_path / "one.jsonl")])
    monkeypatch.setattr(answer_on_ray.WindowAnswerer, "answer", killed_once)
    infer.main([*argv, "--output", str(tmp_path / "two.jsonl"), "--ray", "local"])
    assert (tmp_path / "two.tried").exists()
    assert records(tmp_path / "two.jsonl") == records(tmp_path / "one.jsonl")
