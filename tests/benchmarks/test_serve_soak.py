"""The clients that hold a server to its word."""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn

from turngraph.benchmarks.speed import serve_soak
from turngraph.benchmarks.speed.serve_clients import Person, World, matches
from turngraph.benchmarks.speed.serve_soak import KINDS, soak
from turngraph.data.jsonlines import write_pool
from turngraph.inference.api import load
from turngraph.inference.serve.app import make_app
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.service import Service
from turngraph.inference.serve.users import Users, add_user
from turngraph.tests.chatting import CONVERSATION
from turngraph.tests.waiting import wait_until


class Here:
    """A server in a thread of this process; it is stopped where another one is killed."""

    def __init__(self, service: Any, users: Users) -> None:
        self.make, self.users, self.port = service, users, 0
        self.process = psutil.Process(os.getpid())
        self.start()

    def start(self) -> None:
        app = make_app(self.make(), self.users, "tiny")
        config = uvicorn.Config(app, port=self.port, log_level="error", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        wait_until(lambda: self.server.started, pause=0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture
def server(graph_checkpoint: str, tmp_path: Path) -> Any:
    qa = load(graph_checkpoint, device="cpu")
    pool = tmp_path / "pool.jsonl"
    write_pool(pool, CONVERSATION.evidence)
    for kind, num in KINDS.items():
        for number in range(num):
            add_user(tmp_path / "tokens", f"{kind.__name__.lower()}{number}")
    options = ServeOptions((str(pool),), memory_dir="is kept", max_new_tokens=2)
    found = Here(lambda: Service(qa, options, tmp_path / "u"), Users(tmp_path / "tokens"))
    yield found
    found.kill()


def world_of(server: Here, folder: Path) -> World:
    names = ["quiet", *(f"{k.__name__.lower()}{i}" for k, n in KINDS.items() for i in range(n))]
    tokens = {name: add_user(folder / "tokens", name) for name in names}
    server.kill()
    server.users = Users(folder / "tokens")
    server.start()
    return World(server.url, tokens, (), stall_seconds=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [0, 1])
def test_nothing_is_lost_or_mixed_up(
    server: Here, tmp_path: Path, kills: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("turngraph.inference.serve.limits.BODY_SECONDS", 0.2)
    monkeypatch.setattr(serve_soak, "MAX_OPEN", 1)
    world = world_of(server, tmp_path)
    given = argparse.Namespace(minutes=0.1, kills=kills)
    asyncio.run(soak(server, world, [CONVERSATION], given))
    assert world.wrong == []
    for what in ("turns", "facts stated", "documents", "vanished", "lies", "memories read"):
        assert world.counts[what], what
    assert ("open files and threads" in capsys.readouterr().out) == (not kills)


def test_a_state_is_all_turns_in_order() -> None:
    found = (("Who?", "Ann"), ("Where?", "Lima"))
    assert matches(found, (("Who?", "Ann"), ("Where?", None)))
    assert not matches(found, (("Who?", "Ann"),))
    assert not matches(found, (("Who?", "Bob"), ("Where?", None)))
    assert not matches(found, None)


def test_a_lost_turn_is_found(server: Here, tmp_path: Path) -> None:
    world = world_of(server, tmp_path)

    async def lose() -> None:
        import httpx2

        async with httpx2.AsyncClient(base_url=server.url, timeout=None) as client:
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
