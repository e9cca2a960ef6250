"""The demo's table, and the command that it ends with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from turngraph.benchmarks import demo
from turngraph.data.cli import EXIT_GO_ON
from turngraph.data.jsonlines import dump
from turngraph.model.checkpoint import MANIFEST


def test_an_answer_with_a_line_separator_is_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "predictions.jsonl"
    record = {"answer": "one\u2028two", "hit_at_1": 1, "hit_at_5": 1, "num_tokens": 7}
    record["milliseconds"] = 1500.0
    monkeypatch.setattr(demo.infer, "main", lambda argv: output.write_text(dump(record) + "\n"))
    row = demo.answer_and_score(tmp_path, tmp_path, output, num_questions=1, fresh=True)
    assert (row["questions"], row["hit_at_1"], row["tokens"], row["seconds"]) == (1, 1, 7, 1.5)


def test_a_demo_that_was_stopped_resumes_and_a_complete_one_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def called(argv: Sequence[str]) -> None:
        calls.append(list(argv))
        if argv[0] == "--config" and len(calls) == 2:
            raise SystemExit(EXIT_GO_ON)
        for option in argv:
            if option.startswith("--output="):
                record = {"hit_at_1": 1, "hit_at_5": 1, "num_tokens": 7, "milliseconds": 1}
                Path(option.partition("=")[2]).write_text(dump(record) + "\n")

    def is_fresh(argv: list[str]) -> tuple[str, bool]:
        return argv[0], "--fresh" in argv

    def untrained(folder: Path, _: object) -> None:
        folder.mkdir(exist_ok=True)
        (folder / MANIFEST).write_text("{}")

    monkeypatch.setattr(demo.worldfacts, "main", lambda argv: None)
    monkeypatch.setattr(demo.train, "main", called)
    monkeypatch.setattr(demo.infer, "main", called)
    monkeypatch.setattr(demo, "write_untrained", untrained)
    monkeypatch.setattr(demo, "show_conversation", lambda *_: None)
    argv = ["--output", str(tmp_path)]
    with pytest.raises(SystemExit):
        demo.main(argv)
    assert [is_fresh(call) for call in calls] == [("answer", True), ("--config", True)]
    for fresh, seed in ((False, "0"), (True, "0"), (True, "1")):
        calls[:] = [["stopped"]] * 2
        demo.main([*argv, "--seed", seed])
        made = [is_fresh(call) for call in calls[2:]]
        assert made == [(name, fresh) for name in ("answer", "--config", "answer", "answer")]


def test_the_command_to_go_on_with_is_the_one_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".venv" / "bin"
    monkeypatch.setattr(demo.sys, "executable", str(folder / "python"))
    assert demo.turngraph_command() == "turngraph"
    folder.mkdir(parents=True)
    (folder / "turngraph").touch()
    assert demo.turngraph_command() == ".venv/bin/turngraph"
    monkeypatch.chdir(folder.parent.parent.parent)
    assert demo.turngraph_command() == f"{tmp_path.name}/.venv/bin/turngraph"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / ".venv"))
    assert demo.turngraph_command() == "turngraph"
