"""The demo's table, how it resumes, and the command that it ends with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from turngraph.benchmarks import demo
from turngraph.configs.parse import read_config
from turngraph.configs.shipped import find_config
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import EXIT_GO_ON
from turngraph.data.jsonlines import dump, read_conversations
from turngraph.model.checkpoint import MANIFEST
from turngraph.training.calibrate import MIN_OF_EACH
from turngraph.training.run_log import LOG


def test_an_answer_with_a_line_separator_is_one_record(tmp_path: Path) -> None:
    record = {"answer": "one\u2028two", "hit_at_1": 1, "hit_at_5": 1, "milliseconds": 1500.0}
    (tmp_path / "answers.jsonl").write_text(dump(record) + "\n")
    row = demo.numbers(tmp_path / "answers.jsonl")
    assert (row["questions"], row["hit_at_1"], row["seconds"]) == (1, 1, 1.5)


class Commands:
    """Stands in for the processes of the commands; writes what they would."""

    def __init__(self, stops: str | None = None) -> None:
        self.seen: list[tuple[str, str]] = []
        self.stops = stops

    def __call__(self, row: demo.Row, words: Sequence[str], *_: Any) -> None:
        given = dict(word[2:].split("=", 1) for word in words if "=" in word)
        self.seen.append((words[0], row.name))
        if row.name == self.stops:
            raise SystemExit(EXIT_GO_ON)
        assert "--fresh" not in words
        if words[0] == "train":
            folder = Path(given["training.output"])
            (folder / "last").mkdir(parents=True, exist_ok=True)
            (folder / "last" / MANIFEST).write_text("{}")
            (folder / LOG).write_text('{"step": 1, "seconds": 2.0, "loss": 1.0}\n')
        else:
            output = Path(given["output"])
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(dump({"hit_at_1": 1, "hit_at_5": 1, "milliseconds": 1}) + "\n")


def test_a_demo_that_was_stopped_resumes_and_a_complete_one_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untrained(folder: Path, _: object) -> None:
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_text("{}")

    monkeypatch.setattr(demo.worldfacts, "main", lambda argv: None)
    monkeypatch.setattr(demo, "write_untrained", untrained)
    monkeypatch.setattr(demo, "show_conversation", lambda *_: None)
    numbers = tmp_path / "numbers.json"
    argv = ["--output", str(tmp_path / "demo"), "--output_json", str(numbers), "--at_once", "1"]

    def run(commands: Commands, *more: str) -> list[tuple[str, str]]:
        monkeypatch.setattr(demo, "call", commands)
        demo.main([*argv, *more])
        return commands.seen

    with pytest.raises(SystemExit):
        run(Commands(stops="reader"))
    trained = [row.name for row in demo.TRAINED]
    seen = run(Commands())
    assert [name for what, name in seen if what == "train"] == trained
    assert [n for w, n in seen if w == "answer"] == ["untrained", *trained, demo.LATER.name]
    found = json.loads(numbers.read_text())
    assert list(found) == ["untrained", *trained, demo.LATER.name]
    assert found["reader"]["training_seconds"] == 2
    assert found["text"]["training_questions"] == 56
    folder = tmp_path / "demo" / "answers"
    with pytest.raises(SystemExit):  # a complete one starts over: nothing is answered yet
        run(Commands(stops="untrained"))
    assert not list(folder.glob("*.jsonl"))
    with pytest.raises(SystemExit):
        run(Commands(stops="reader"))
    assert list(folder.glob("text.jsonl"))
    with pytest.raises(SystemExit):  # with another seed as well
        run(Commands(stops="untrained"), "--seed", "1")
    assert not list(folder.glob("text.jsonl"))


def test_rows_differ_in_what_they_are_named_for() -> None:
    output = Path("runs/demo")
    configs = {
        row.name: read_config(find_config(row.config), *demo.training_options(output, row, 0))
        for row in demo.TRAINED
        if row.config
    }
    text, graph, reader, unlinked = configs.values()
    assert (text.model.evidence, graph.model.evidence, reader.model.layer > 0) == (
        "text", "graph", True,
    )  # fmt: skip
    assert (reader.evidence.edges, unlinked.evidence.edges) == ("all", "no_entity")
    assert reader.data.max_train_questions == unlinked.data.max_train_questions
    assert len({config.evidence.top_k for config in configs.values()}) == 1
    assert len({config.evidence.memory for config in configs.values()}) == 1


def test_the_demo_has_tune_questions_enough_for_a_calibration(tmp_path: Path) -> None:
    demo.worldfacts.main(["--output", str(tmp_path / "data")])
    options = demo.training_options(tmp_path, demo.READER, 0)
    data = read_config(find_config(demo.READER.config), *options).data
    tune = read_conversations(data.tune)
    chosen = choose_questions(tune, data.max_tune_questions, single_only=False, seed=0)
    wrong_in_readme = 1 - 0.78
    assert sum(map(len, chosen.values())) * wrong_in_readme > 1.5 * MIN_OF_EACH


def test_a_command_that_fails_ends_the_demo_and_its_lines_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = demo.Row("text")
    words = ["answer", "--checkpoint", "gone", "--input", "[x]", "--output", "y"]
    with pytest.raises(ValueError, match=r"^text: answer --checkpoint gone.* ended with 2$"):
        demo.call(row, words, "1", Console())
    assert "text: error: gone: no such folder" in capsys.readouterr().out
