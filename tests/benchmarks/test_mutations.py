"""Tests of the benchmark that draws faults and runs the tests on each."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from turngraph.benchmarks.quality.mutations import Fault, draw, faults_of, is_seen, reaching

SOURCE = '''
LIMIT = 3


def longest(texts: list[str] | None = None, least: int = 1) -> int:
    """Return a length."""
    found: int | None = 0
    for text in texts or []:
        if len(text) > least and not text.isspace():
            found = found + len(text) * 2
    print("é", flush=True)
    return found
'''


def test_every_fault_is_a_program_that_differs() -> None:
    """Operators, numbers, conditions and calls change; signatures, types and texts do not."""
    faults = list(faults_of("a.py", SOURCE))
    changed = [
        SOURCE.encode()[: f.start] + f.new.encode() + SOURCE.encode()[f.end :] for f in faults
    ]
    sound = ast.dump(ast.parse(SOURCE))
    assert all(ast.dump(ast.parse(text)) != sound for text in changed)
    assert sorted((f.line, f.old, f.new) for f in faults) == [
        (7, "0", "1"),
        (8, "texts or []", "(texts and [])"),
        (9, "len(text) > least", "(len(text) >= least)"),
        (
            9,
            "len(text) > least and not text.isspace()",
            "(len(text) > least or not text.isspace())",
        ),
        (9, "not text.isspace()", "(text.isspace())"),
        (10, "2", "3"),
        (10, "found + len(text) * 2", "(found - len(text) * 2)"),
        (10, "len(text) * 2", "(len(text) / 2)"),
        (11, "True", "False"),
        (11, 'print("é", flush=True)', "pass"),
    ]


def test_draws_are_the_same_for_one_seed(tmp_path: Path) -> None:
    """Tests and benchmarks are never changed, and --under limits the draw."""
    for name in ("data/a.py", "model/b.py", "tests/test_a.py", "benchmarks/c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SOURCE, encoding="utf-8")
    drawn = draw(tmp_path, 8, 1, "")
    assert drawn == draw(tmp_path, 8, 1, "") != draw(tmp_path, 8, 2, "")
    assert {fault.path for fault in draw(tmp_path, 100, 0, "")} == {"data/a.py", "model/b.py"}
    assert {fault.path for fault in draw(tmp_path, 100, 0, "model/")} == {"model/b.py"}


def test_own_tests_run_first() -> None:
    """A line that only child processes reach is left to the tests of the commands."""
    fault = Fault("data/a.py", 4, 0, 1, "0", "1")
    lines = {"data/a.py": {4: ["tests/b/test_b.py::test", "tests/test_a.py::test"], 5: [""]}}
    assert reaching(lines, fault) == ["tests/test_a.py::test", "tests/b/test_b.py::test"]
    assert "tests/test_infer.py" in reaching(lines, fault._replace(line=5))
    assert reaching(lines, fault._replace(line=6)) == []


@pytest.mark.parametrize(("new", "seen"), [("a - b", True), ("b + a", False)])
def test_a_fault_is_seen_if_a_test_fails(tmp_path: Path, new: str, seen: bool) -> None:
    """The file is whole again afterwards."""
    copy = tmp_path / "turngraph"
    copy.mkdir()
    source = "def add(a, b):\n    return a + b\n"
    (copy / "adding.py").write_text(source, encoding="utf-8")
    test = "from turngraph.adding import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    (copy / "test_adding.py").write_text(test, encoding="utf-8")
    start = source.index("a + b")
    fault = Fault("adding.py", 2, start, start + len("a + b"), "a + b", new)
    assert is_seen(copy, fault, ["test_adding.py::test_add"], timeout=60) is seen
    assert (copy / "adding.py").read_text(encoding="utf-8") == source
