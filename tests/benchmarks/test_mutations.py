"""Tests of the benchmark that draws faults and runs the tests on each."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from turngraph.benchmarks.quality import mutations
from turngraph.benchmarks.quality.faults import Fault, draw, faults_of, marked
from turngraph.benchmarks.quality.forked_pytest import ForkedPytest
from turngraph.benchmarks.quality.mutations import Judge, Outcome
from turngraph.benchmarks.quality.reaching_tests import ReachingTests
from turngraph.tests.waiting import wait_until

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
    (tmp_path / "data" / "c.py").write_text("def f():\n    return 1 + 2\n", encoding="utf-8")
    kept = {fault for fault in draw(tmp_path, 8, 1, "") if fault.path != "data/c.py"}
    assert kept <= set(drawn)  # a change elsewhere makes room for itself only


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
def judge(forked: ForkedPytest, tmp_path: Path) -> Judge:
    return Judge(forked, FAULTS, tmp_path / "kept")


def fault(old: str, new: str) -> Fault:
    """A fault in the calculating file."""
    start = CALCULATING.index(old)
    line = CALCULATING[:start].count("\n") + 1
    return Fault("data/calculating.py", line, start, start + len(old), old, new)


FAULTS = [
    fault("a + b", "a - b"),
    fault("a + b", "b + a"),
    fault("2 * a", "3 * a"),
    fault("a - 1", "a - 2"),
    fault("return a + b", "while True: pass"),
]


def test_the_nearest_tests_come_first(judge: Judge) -> None:
    """By name, by the imports between, by folder; then those that start processes."""
    assert judge.reaching.files(FAULTS[0]) == [
        "tests/data/test_calculating.py",
        "tests/data/test_doubling.py",
        "tests/test_command.py",
    ]
    doubling = Fault("data/doubling.py", 1, 0, 0, "", "")
    assert judge.reaching.files(doubling)[0] == "tests/data/test_doubling.py"


def test_marks_are_where_the_faults_are() -> None:
    """Nested places are marked each; patterns cannot be, and their numbers come back."""
    text = """
def f(x):
    x += 1
    print(x)
    match x:
        case 3: pass
    return x + 1 < 4
"""
    faults = dict(enumerate(faults_of("a.py", text)))
    seen: list[int] = []
    with_marks, unmarked = marked(text.encode(), faults)
    namespace = {"MARK": seen.append, "print": lambda *_: None}
    exec(with_marks, namespace)
    assert namespace["f"](1) is True
    assert [faults[number].old for number in unmarked] == ["3"]
    assert sorted(set(seen)) == [number for number in faults if number not in unmarked]


@pytest.mark.slow
def test_what_reaches_a_fault_is_found_once(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests by name; the whole file after them where a fixture is there; child processes count."""
    tests, (plus, _, double, minus, _) = judge.reaching.tests, FAULTS
    assert tests("tests/data/test_calculating.py", plus) == [
        "tests/data/test_calculating.py::test_sum"
    ]
    test = "tests/data/test_doubling.py"
    assert tests(test, double) == [test]
    assert tests(test, minus) == []
    assert tests("tests/test_command.py", double) == ["tests/test_command.py::test_in_a_process"]
    assert tests("tests/test_nothing.py", double) == []
    assert (judge.pytest.copy / plus.path).read_text(encoding="utf-8") == CALCULATING
    monkeypatch.setattr(ReachingTests, "_reached", lambda *_: pytest.fail("runs again"))
    again = ReachingTests(judge.pytest, FAULTS, judge.reaching.kept)
    assert again.tests(test, double) == [test]
    again.blobs[plus.path] = "another"  # the product has changed
    with pytest.raises(pytest.fail.Exception):
        again.tests(test, double)


@pytest.mark.slow
def test_a_fault_is_seen_if_a_test_fails(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the nearest files or in those that reach it; an endless fault too; and it is kept."""
    monkeypatch.setattr(mutations, "NUM_NEAR", 1)
    monkeypatch.setattr(mutations, "RUN_LIMIT", 4.0)
    outcomes = dict(judge.outcomes(limit=600))
    assert [outcomes[one] for one in FAULTS] == [
        Outcome(True, "tests/data/test_calculating.py::test_sum"),
        Outcome(False, "passed: 3 test files"),
        Outcome(True, "tests/data/test_doubling.py::test_is_double"),
        Outcome(False, "passed: 3 test files"),
        Outcome(True, "tests/data/test_calculating.py does not end"),
    ]
    assert (judge.pytest.copy / FAULTS[0].path).read_text(encoding="utf-8") == CALCULATING
    monkeypatch.setattr(ForkedPytest, "run", lambda *_, **__: pytest.fail("runs again"))
    again = Judge(judge.pytest, FAULTS, judge.kept.path.parent)
    assert dict(again.outcomes(limit=600)) == outcomes


@pytest.mark.slow
def test_a_test_that_fails_without_the_fault_tells_nothing(judge: Judge) -> None:
    failing = judge.pytest.copy / "tests" / "data" / "test_calculating.py"
    sound = failing.read_text(encoding="utf-8")
    failing.write_text("def test_sum():\n    assert 1 == 2\n", encoding="utf-8")
    try:
        outcome = dict(judge.outcomes(limit=600))[FAULTS[0]]
    finally:
        failing.write_text(sound, encoding="utf-8")
    left = "1 of 3 test files left: tests/data/test_calculating.py"
    assert outcome == Outcome(False, f"not decided in 600 CPU s, {left}")


@pytest.mark.slow
def test_nothing_runs_on_when_it_ends(forked: ForkedPytest, tmp_path: Path) -> None:
    """Also where the end comes in the middle of a run, as by SIGTERM."""
    with ForkedPytest(forked.copy, libraries=False) as other:
        other._send([str(tmp_path / "printed"), None, "tests/test_nothing.py"])
        server = psutil.Process(other._server.pid)
        wait_until(lambda: bool(server.children()))
        started = [server, *server.children()]
    assert len(started) == 2
    assert not any(process.is_running() for process in started)
