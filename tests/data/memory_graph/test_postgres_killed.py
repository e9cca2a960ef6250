"""Kills of clients and of the PostgreSQL server: nothing half-written, nothing lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.record.select_episodes import episodes_of_origins
from turngraph.tests.postgres_server import Server, start_or_skip
from turngraph.tests.waiting import wait_until

pytestmark = pytest.mark.slow

CLIENT = """
import sys
from turngraph.data.memory_graph.graph import MemoryGraph
url, name, path, first = sys.argv[1:]
number = int(first)
while True:
    try:
        with MemoryGraph.open(url, tenant="killed", wait=60) as graph:
            while True:
                graph.remember(f"{name} {number} lives in Town {number % 7}. {name} met Anna.",
                               origin=f"{name} {number}", source=name)
                if number % 5 == 4:
                    graph.rename("Anna", f"Anna {name}")
                    graph.undo()
                with open(path, "a") as file:
                    file.write(f"{name} {number}\\n")
                number += 1
    except ValueError as error:
        assert "Town" not in str(error), error
        known = ("lost", "no server", "no connection", "refuses", "undo")
        if not any(word in str(error) for word in known):
            raise
"""
"""Remembers until it is killed, and notes what was acknowledged; goes on after the server's end."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = start_or_skip()
    yield server
    server.close()


def client(server: Server, name: str, path: Path, first: int) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", CLIENT, server.url, name, str(path), str(first)]
    return subprocess.Popen(arguments, env={**os.environ, "OMP_NUM_THREADS": "1"})


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def assert_whole(server: Server, origins: list[str]) -> None:
    """Check that the graph is sound, has all of these episodes, and that left edits are undone."""
    with MemoryGraph.open(server.url, tenant="killed", wait=60) as graph:
        assert graph.check() == []
        with graph.store.reading():
            assert len(episodes_of_origins(graph.store.db, origins)) == len(origins)
        if graph.stats().edits:  # killed between a rename and its undo
            while graph.stats().edits:
                graph.undo()
            assert graph.check() == []


def test_a_killed_client_leaves_whole_writes_and_keeps_nobody_waiting(
    server: Server, tmp_path: Path
) -> None:
    path, chance = tmp_path / "noted", random.Random(0)
    for _ in range(6):
        before = len(noted(path))
        process = client(server, "Bo", path, before)
        wait_until(lambda: len(noted(path)) > before + 2, process)  # noqa: B023
        time.sleep(chance.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert_whole(server, noted(path))


def test_a_killed_server_loses_nothing_that_was_acknowledged(
    server: Server, tmp_path: Path
) -> None:
    names, chance = ("Bo", "Cy"), random.Random(1)
    paths = {name: tmp_path / name for name in names}
    processes = [client(server, name, paths[name], 0) for name in names]
    try:
        for _ in range(4):
            before = {name: len(noted(paths[name])) for name in names}
            for name, process in zip(names, processes, strict=True):
                more = before[name] + 3
                wait_until(lambda: len(noted(paths[name])) > more, process)  # noqa: B023
            time.sleep(chance.uniform(0, 0.3))
            server.kill()
            server.start()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert_whole(server, [origin for path in paths.values() for origin in noted(path)])
