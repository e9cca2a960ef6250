"""Killed at any moment, read by several while one writes: nothing is lost, nothing is half."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.tests.data.memory_graph import remembering
from turngraph.tests.data.memory_graph.small_graphs import exported
from turngraph.tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
BATCH = 10
MAX_WAIT = {"begin": 0.002, "done": 0.03}
"""Seconds: about as long as a commit takes, and what comes between two."""


def command(path: Path, last: int, first: int = 0, batch: int = BATCH) -> list[str]:
    arguments = [str(path), *map(str, (first, last, batch))]
    return [sys.executable, "-m", remembering.__name__, *arguments]


@contextmanager
def remember(*arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """Another process that remembers; it is gone at the end."""
    with running(command(*arguments)) as process:
        yield process


@contextmanager
def running(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, cwd=ROOT, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def number_of(line: str) -> int:
    return int(line.split()[1]) if line.startswith("done") else 0


def kill(path: Path, last: int, after: str, commit: int, wait: float) -> tuple[int, bool]:
    """Kill a process that remembers.

    Args:
        path, last: the database, and how much there is to remember.
        after: "begin", just before a commit, or "done", after it.
        commit: the number of the commit in this run.
        wait: so many seconds later.

    Returns:
        How many episodes it had reported, and whether it died between "begin" and "done".
    """
    with running([*command(path, last), "ask"]) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "begin\n":  # it waits for us, however late we are
                process.stdin.write("go\n")
                process.stdin.flush()
            begun = sum(line == "begin\n" for line in lines)
            if begun == commit and line.startswith(after):
                time.sleep(wait)
                process.send_signal(signal.SIGKILL)
                break
        lines += list(process.stdout)  # what it still said before it died
        assert process.wait() == -signal.SIGKILL
    return max(map(number_of, lines)), lines[-1] == "begin\n"


def check_what_is_there(path: Path, reported: int) -> None:
    """Every reported episode, none twice, none half."""
    with MemoryGraph.open(path) as graph:
        sql = "SELECT n.text FROM episodes e JOIN nodes n ON n.id = e.node ORDER BY n.id"
        found = [text for (text,) in graph.store.db.execute(sql)]
        assert found == [remembering.text(number) for number in range(len(found))]
        assert len(found) >= reported
        sql = "SELECT count(*) FROM edges WHERE relation = 'met'"
        assert graph.store.db.execute(sql).fetchone()[0] == len(found)
        assert graph.check() == []


def kill_and_go_on(folder: Path, kills: int, inside: int, last: int) -> None:
    """Kill runs over one database, each going on where the last one died; then let one end.

    A commit is short: more runs are killed, sooner and sooner, until enough died inside one.

    Args:
        folder: for the databases.
        kills: how many times.
        inside: how many of them, at least, inside a commit.
        last: how many texts there are.
    """
    chance, died_inside, reported = random.Random(kills), 0, 0
    for number in range(10 * kills):
        if number >= kills and died_inside >= inside:
            break
        after = "begin" if died_inside < inside or number % 2 else "done"
        wait = chance.random() * MAX_WAIT[after] / (1 + number)
        told, died = kill(folder / "memory.db", last, after, chance.randrange(1, 3), wait)
        died_inside, reported = died_inside + died, max(reported, told)
        check_what_is_there(folder / "memory.db", reported)
    assert died_inside >= inside
    shown = []
    for name in ("memory.db", "undisturbed.db"):
        subprocess.run(command(folder / name, last), cwd=ROOT, check=True, capture_output=True)
        with MemoryGraph.open(folder / name) as graph:
            assert graph.check() == []
            assert graph.stats().nodes["episodic"] == last
            shown.append(exported(graph, folder))
    assert shown[0] == shown[1]


@pytest.mark.slow
def test_killed_twenty_times_and_gone_on(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, kills=20, inside=5, last=1300)


WATCH = """
import sys, time
from turngraph.data.memory_graph.graph import MemoryGraph
path, last, before = sys.argv[1], int(sys.argv[2]), 0
with MemoryGraph.open(path, read_only=True) as graph:
    while before < last:
        with graph.store.reading():
            episodes = graph.stats().nodes["episodic"]
            sql = "SELECT count(*) FROM edges WHERE relation = 'met'"
            assert graph.store.db.execute(sql).fetchone()[0] == episodes
        assert episodes >= before
        before = episodes
        assert graph.check() == []
        time.sleep(0.05)
print(before)
"""


def test_several_read_while_one_writes(tmp_path: Path) -> None:
    """Each reader sees whole commits only, in their order."""
    path, last = tmp_path / "memory.db", 40
    MemoryGraph.open(path).close()
    arguments = [sys.executable, "-c", WATCH, str(path), str(last)]
    readers = [
        subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    with remember(path, last) as writer:
        assert [reader.communicate(timeout=PATIENCE)[0] for reader in readers] == [f"{last}\n"] * 2
        assert [reader.returncode for reader in readers] == [0] * 2
        assert writer.wait(timeout=PATIENCE) == 0


def test_two_that_remember_the_same_at_once_remember_it_once(tmp_path: Path) -> None:
    path, last = tmp_path / "memory.db", 60
    with remember(path, last) as one, remember(path, last) as other:
        assert (one.wait(timeout=PATIENCE), other.wait(timeout=PATIENCE)) == (0, 0)
    with MemoryGraph.open(path) as graph:
        assert graph.check() == []
        assert graph.stats().nodes["episodic"] == last


def test_a_second_writer_waits_or_says_so(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryGraph.open(path) as one, MemoryGraph.open(path, wait=0.1) as other:
        waited = r"another process is writing to it; waited 0.1 s"
        with one.store.writing(), pytest.raises(ValueError, match=waited):
            other.remember("Anna lives in Paris.")
        with MemoryGraph.open(path, wait=PATIENCE) as patient, remember(path, 60):
            for number in range(5):
                patient.remember(f"Anna met Person {number}.")
        assert other.check() == []
