"""The clients that hold a server to its word."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import uvicorn

from turngraph.benchmarks.speed import serve_neighbour, serve_soak
from turngraph.benchmarks.speed.serve_clients import Person, World
from turngraph.benchmarks.speed.serve_soak import KINDS, soak
from turngraph.benchmarks.speed.serving import free_address, growth
from turngraph.data.jsonlines import write_pool
from turngraph.inference.api import load
from turngraph.inference.serve.app import make_app
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.service import Service
from turngraph.inference.serve.users import Users, add_user
from turngraph.tests.chatting import CONVERSATION
from turngraph.tests.processes import Command
from turngraph.tests.waiting import wait_until


class Here:
    """A server in a thread of this process; it is stopped where another one is killed."""

    def __init__(self, service: Any, users: Users) -> None:
        self.make, self.users, self.port = service, users, 0
        self.process = psutil.Process(os.getpid())
        self.start()

    def start(self) -> None:
        app = make_app(self.make(), self.users, "localhost")
        config = uvicorn.Config(app, port=self.port, log_level="error", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        wait_until(lambda: self.server.started, pause=0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def stored(self) -> str:
        return "some"

    def kill(self) -> None:
        self.server.should_exit = True
        self.thread.join()


class Forked:
    """A server in a process of its own."""

    def __init__(self, url: str, *options: str) -> None:
        self.url, self.options = url, options
        self.start()

    def start(self) -> None:
        self.command = Command("-m", "turngraph", "serve", *self.options)
        wait_until(self.is_ready)
        self.process = psutil.Process(self.command.pid)

    def is_ready(self) -> bool:
        assert self.command.returncode is None, self.command.communicate()
        try:
            return httpx2.get(f"{self.url}/readyz").status_code == 200
        except httpx2.HTTPError:
            return False

    def kill(self) -> None:
        self.command.send_signal(signal.SIGKILL)
        wait_until(lambda: self.command.returncode is not None, pause=0.01)


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    names = ["quiet", *(f"{k.__name__.lower()}{i}" for k, n in KINDS.items() for i in range(n))]
    return {name: add_user(tmp_path / "tokens", name) for name in names}


@pytest.fixture
def pool(tmp_path: Path) -> str:
    write_pool(tmp_path / "pool.jsonl", CONVERSATION.evidence)
    return str(tmp_path / "pool.jsonl")


@pytest.fixture
def here(graph_checkpoint: str, tmp_path: Path, tokens: dict[str, str], pool: str) -> Any:
    qa = load(graph_checkpoint, device="cpu")
    options = ServeOptions((pool,), memory_dir="is kept", max_new_tokens=2)
    found = Here(lambda: Service(qa, options, tmp_path / "u"), Users(tmp_path / "tokens"))
    yield found
    found.kill()


def check(world: World, *done: str) -> None:
    assert world.wrong == []
    for what in ("turns", "facts stated", "documents", "vanished", "lies", *done):
        assert world.counts[what], what


@pytest.mark.slow
def test_nothing_is_lost_or_mixed_up_among_mixed_clients(
    here: Here, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("turngraph.inference.serve.limits.BODY_SECONDS", 2.0)
    monkeypatch.setattr(serve_soak, "MAX_OPEN", 1)
    world = World(here.url, tokens, (), stall_seconds=0.1)
    asyncio.run(soak(here, world, [CONVERSATION], argparse.Namespace(minutes=0.1, kills=0)))
    check(world, "memories read", "stalled: half a body")
    printed = capsys.readouterr().out
    assert "open files and threads" in printed
    assert "held after the load: conversations " in printed


def test_a_user_who_waits_beside_each_load_has_a_row(
    here: Here, tmp_path: Path, capsys: Any
) -> None:
    tokens = {name: add_user(tmp_path / "tokens", name) for name in serve_neighbour.USERS}
    args = argparse.Namespace(
        checkpoint="tiny", requests=2, at_once=3, conversations=2, statements=1, kilobytes=1
    )
    questions = [turn.question for turn in CONVERSATION.turns]
    asyncio.run(serve_neighbour.measure(World(here.url, tokens, ()), questions, args))
    lines = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if " s | " in line]
    assert [row[0] for row in rows] == [
        "is not there", "uploads and asks", "states and forgets", "lists conversations",
        "asks many at once",
    ]  # fmt: skip
    assert all(int(row[-1]) > 0 for row in rows[1:])


@pytest.mark.slow
def test_no_kill_loses_a_finished_turn(
    graph_checkpoint: str, tmp_path: Path, tokens: dict[str, str], pool: str
) -> None:
    address = free_address()
    server = Forked(
        f"http://{address}", "--checkpoint", graph_checkpoint, "--evidence", pool,
        "--address", address, "--tokens", str(tmp_path / "tokens"), "--device", "cpu",
        "--memory_dir", str(tmp_path / "users"), "--max_new_tokens", "4",
    )  # fmt: skip
    world = World(server.url, tokens, (), stall_seconds=0.1)
    kills = 3
    try:
        asyncio.run(
            soak(server, world, [CONVERSATION], argparse.Namespace(minutes=60, kills=kills))
        )
    finally:
        server.kill()
    check(world, "broken off", "conversations read")
    assert world.counts["kills"] == kills


def test_a_lost_turn_is_found(here: Here, tokens: dict[str, str]) -> None:
    world = World(here.url, tokens, ())

    async def lose() -> None:
        async with httpx2.AsyncClient(base_url=here.url, timeout=None) as client:
            person = Person(world, "quiet", client)
            id_ = await person.begin()
            await person.ask(id_, "Who?", None)
            person.states[id_] = [(("Who?", None), ("Where?", None))]
            await person.settle()
            del person.states[id_]
            await person.settle()
            person.states["0" * 32] = [()]
            await person.settle()

    asyncio.run(lose())
    assert [text.partition(": ")[2] or text for text in world.wrong][1:] == [
        "quiet has a conversation of others", "quiet has a conversation of others",
        "a conversation is lost",
    ]  # fmt: skip
    assert "are not the turns" in world.wrong[0]


def test_growth_is_told_from_noise() -> None:
    noise = [(n % 7) * 2**16 for n in range(400)]
    level = growth([(10 * n, 2**30 + noise[n]) for n in range(400)])
    leaking = growth([(10 * n, 2**30 + noise[n] + 10 * n * 2**13) for n in range(400)])
    assert level is not None
    assert leaking is not None
    assert str(level).endswith(": level")
    assert str(leaking).endswith(": grows")
    assert leaking.low < 8 < leaking.high
    assert growth([(1000 * n, 0) for n in range(10)]) is None
    assert growth([(n // 4, 2**30 + n * 2**20) for n in range(400)]) is None  # caches fill
    assert growth([(n // 399, 2**30) for n in range(400)]) is None
