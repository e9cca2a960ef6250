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
    row = demo.answer_and_score(tmp_path, tmp_path, output, num_questions=1)
    assert (row["questions"], row["hit_at_1"], row["tokens"], row["seconds"]) == (1, 1, 7, 1.5)


def test_a_demo_that_was_stopped_resumes_and_a_complete_one_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[tuple[str, bool]] = []
    stops = iter([True])

    def answer(argv: Sequence[str]) -> None:
        assert "--fresh" not in argv
        [output] = (Path(o.partition("=")[2]) for o in argv if o.startswith("--output="))
        known.append((output.name, output.exists()))
        record = {"hit_at_1": 1, "hit_at_5": 1, "num_tokens": 7, "milliseconds": 1}
        output.write_text(dump(record) + "\n")

    def train(argv: Sequence[str]) -> None:
        assert "--fresh" not in argv
        known.append(("last", (tmp_path / "last").exists()))
        (tmp_path / "last").mkdir(exist_ok=True)
        (tmp_path / "last" / MANIFEST).write_text("{}")
        if next(stops, False):
            raise SystemExit(EXIT_GO_ON)

    def untrained(folder: Path, _: object) -> None:
        known.append((folder.name, folder.exists()))
        folder.mkdir()
        (folder / MANIFEST).write_text("{}")

    monkeypatch.setattr(demo.worldfacts, "main", lambda argv: None)
    monkeypatch.setattr(demo.train, "main", train)
    monkeypatch.setattr(demo.infer, "main", answer)
    monkeypatch.setattr(demo, "write_untrained", untrained)
    monkeypatch.setattr(demo, "show_conversation", lambda *_: None)
    argv = ["--output", str(tmp_path)]
    names = ["untrained", "untrained.jsonl", "last", "trained.jsonl", "wrong_evidence.jsonl"]
    anew = [(name, False) for name in names]
    with pytest.raises(SystemExit):
        demo.main(argv)
    assert known == anew[:3]
    for expected in ([(name, True) for name in names[1:3]] + anew[3:], anew):
        known.clear()
        demo.main(argv)
        assert known == expected
    stops = iter([True])
    with pytest.raises(SystemExit):
        demo.main(argv)
    known.clear()
    demo.main([*argv, "--seed", "1"])
    assert known == anew


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
