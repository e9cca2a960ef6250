"""Several processes over one graph, some of which forget: all wait, none fails."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.tests.data.memory_graph import crowd
from turngraph.tests.data.memory_graph.hashing import Hashing

ROOT = Path(__file__).resolve().parents[3]


def play(path: Path, roles: dict[str, tuple[int, int]]) -> Counter[str]:
    """Return how often each line was printed.

    Args:
        path: of the graph, which is made here.
        roles: processes of each role, and turns of each.
    """
    with MemoryGraph.open(path, Hashing()) as graph:
        for person in crowd.PEOPLE:
            graph.remember(f"{person} lives in Paris.", "2020", "kept")
        graph.ask("Where does Anna live?")
    started = [
        subprocess.Popen(
            [sys.executable, "-m", crowd.__name__, role, str(path), str(turns), str(seed)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for role, (processes, turns) in roles.items()
        for seed in range(processes)
    ]  # fmt: skip
    lines: Counter[str] = Counter()
    for process in started:
        said, _ = process.communicate(timeout=1500)
        lines.update(said.splitlines())
        assert process.returncode == 0
    return lines


def check_what_is_left(path: Path) -> None:
    """What nobody forgot, and no byte of what was forgotten."""
    with MemoryGraph.open(path) as graph:
        assert graph.check() == []
        assert graph.stats().nodes["episodic"] == len(crowd.PEOPLE)
    files = [path, Path(f"{path}-wal"), *path.with_name(f"{path.name}.derived").rglob("*")]
    assert not any(b"Guest" in file.read_bytes() for file in files if file.is_file())


FEW = {"forget": (2, 3), "open": (1, 6), "ask": (1, 3), "check": (1, 3)}
MANY = {"forget": (2, 60), "open": (4, 170), "ask": (2, 60), "check": (1, 60)}


@pytest.mark.parametrize(
    ("roles", "done"), [(FEW, 18), pytest.param(MANY, 980, marks=pytest.mark.slow)]
)
def test_nobody_fails_where_others_forget(
    tmp_path: Path, roles: dict[str, tuple[int, int]], done: int
) -> None:
    path = tmp_path / "my.db"
    assert play(path, roles) == {"done": done}
    check_what_is_left(path)


@pytest.mark.slow
def test_torn_derived_files_are_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "my.db"
    lines = play(path, {"forget": (1, 4), "ask": (2, 8), "foul": (1, 20)})
    assert lines == {"done": 40}
    with MemoryGraph.open(path, Hashing()) as graph:  # the last to foul may have been the last
        graph.ask("Where does Anna live?")
    check_what_is_left(path)
