"""Tests of the benchmark that draws faults and runs the tests on each."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngraph.benchmarks.quality import reached_lines
from turngraph.benchmarks.quality.forked_pytest import ForkedPytest
from turngraph.benchmarks.quality.mutations import (
    Fault,
    Outcome,
    SeenFaults,
    draw,
    faults_of,
    judge,
)
from turngraph.benchmarks.quality.reached_lines import ReachedLines

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


CALCULATING = """
def add(a, b):
    return a + b


def scale(a):
    return 2 * a


def unused(a):
    return a - 1
"""
FILES = {
    "pyproject.toml": """
[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
[tool.coverage.run]
source = ["."]
parallel = true
patch = ["subprocess"]
data_file = "build/coverage/data"
""",
    "__init__.py": "",
    "data/calculating.py": CALCULATING,
    "data/doubling.py": "from turngraph.data.calculating import scale\n",
    "tests/__init__.py": "",
    "tests/data/test_calculating.py": """
from turngraph.data.calculating import add

def test_sum():
    assert add(1, 2) == 3
""",
    "tests/data/test_doubling.py": """
import pytest
from turngraph.data.doubling import scale

@pytest.fixture(scope="module")
def four():
    return scale(2)

def test_is_a_number(four):
    assert isinstance(four, int)

def test_is_double(four):
    assert four == 4
""",
    "tests/test_command.py": """
import subprocess, sys

def test_in_a_process():
    code = "from turngraph.data.calculating import scale; print(scale(3))"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"6\\n"
""",
    "tests/test_nothing.py": "def test_nothing():\n    pass\n",
}
"""A product and its tests: a line that a test reaches, a fixture, a child process, and no one."""


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPytest]:
    copy = tmp_path_factory.mktemp("copy") / "turngraph"
    for name, text in FILES.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text, encoding="utf-8")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "All"]):
        subprocess.run([*git, *command], cwd=copy, check=True)
    with ForkedPytest(copy, libraries=False) as pytest_:
        yield pytest_


@pytest.fixture
def reached(forked: ForkedPytest, tmp_path_factory: pytest.TempPathFactory) -> ReachedLines:
    kept = tmp_path_factory.getbasetemp() / "kept"
    return ReachedLines(forked, kept)


def fault(old: str, new: str) -> Fault:
    """A fault in the calculating file."""
    start = CALCULATING.index(old)
    line = CALCULATING[:start].count("\n") + 1
    return Fault("data/calculating.py", line, start, start + len(old), old, new)


def test_the_nearest_tests_come_first(reached: ReachedLines) -> None:
    """By name, by the imports between, by folder; then those that start processes."""
    assert reached.files("data/calculating.py", 3) == [
        "tests/data/test_calculating.py",
        "tests/data/test_doubling.py",
        "tests/test_command.py",
    ]
    assert reached.files("data/doubling.py", 1)[0] == "tests/data/test_doubling.py"


@pytest.mark.slow
def test_what_reaches_a_line_is_measured_once(
    reached: ReachedLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests by name; the whole file after them where a fixture or a child process is there."""
    path, test = "data/calculating.py", "tests/data/test_doubling.py"
    assert reached.tests("tests/data/test_calculating.py", path, 3) == [
        "tests/data/test_calculating.py::test_sum"
    ]
    assert reached.tests(test, path, 7) == [test]
    assert reached.tests(test, path, 11) == []
    assert reached.tests("tests/test_command.py", path, 7) == ["tests/test_command.py"]
    assert reached.tests("tests/test_nothing.py", path, 7) == []
    monkeypatch.setattr(reached_lines, "measure", lambda *_: pytest.fail("measured again"))
    again = ReachedLines(reached.pytest, reached.kept)
    assert again.tests(test, path, 7) == [test]
    again.blobs[path] = "another"  # the product has changed
    with pytest.raises(pytest.fail.Exception):
        again.tests(test, path, 7)


@pytest.mark.parametrize(
    ("old", "new", "seen", "reason"),
    [
        ("a + b", "a - b", True, "tests/data/test_calculating.py::test_sum"),
        ("a + b", "b + a", False, "passed: tests/data/test_calculating.py"),
        ("2 * a", "3 * a", True, "tests/data/test_doubling.py::test_is_double"),
        ("a - 1", "a - 2", False, "passed: tests/data/test_calculating.py"),
    ],
)
@pytest.mark.slow
def test_a_fault_is_seen_if_a_test_fails(
    old: str, new: str, seen: bool, reason: str, forked: ForkedPytest, reached: ReachedLines
) -> None:
    outcome = judge(forked, fault(old, new), reached, limit=600)
    assert outcome.seen == seen
    assert outcome.reason.startswith(reason)
    assert (forked.copy / "data/calculating.py").read_text(encoding="utf-8") == CALCULATING


@pytest.mark.slow
def test_what_the_time_does_not_suffice_for_is_said(
    forked: ForkedPytest, reached: ReachedLines
) -> None:
    endless = fault("return a + b", "while True: pass")
    outcome = judge(forked, endless, reached, limit=3)
    assert not outcome.seen
    assert outcome.reason.startswith("not decided in 3 s, 2 of 3 test files left")
    assert "until then: tests/data/test_calculating.py;" in outcome.reason
    assert forked.run(["tests/data/test_calculating.py"])[0] == 0  # the next run is as before


@pytest.mark.slow
def test_a_test_that_fails_without_a_fault_is_an_error(
    forked: ForkedPytest, reached: ReachedLines
) -> None:
    failing = forked.copy / "tests" / "test_nothing.py"
    sound = failing.read_text(encoding="utf-8")
    failing.write_text("def test_nothing():\n    assert 1 == 2\n", encoding="utf-8")
    try:
        with pytest.raises(ValueError, match=r"tests/test_nothing\.py: fails without a fault"):
            reached_lines.measure(forked, "tests/test_nothing.py")
    finally:
        failing.write_text(sound, encoding="utf-8")


def test_a_fault_that_was_seen_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    path, blobs = tmp_path / "kept" / "seen.jsonl", {"data/calculating.py": "1", "tests/a.py": "2"}
    one, other = fault("a + b", "a - b"), fault("2 * a", "3 * a")
    kept = SeenFaults(path, blobs)
    kept.add(one, outcome := Outcome(True, "tests/a.py::test"))
    kept.add(other, Outcome(False, "passed: tests/a.py"))
    again = SeenFaults(path, blobs)
    assert (again.find(one), again.find(other)) == (outcome, None)
    for changed in blobs:
        assert SeenFaults(path, blobs | {changed: "3"}).find(one) is None
