"""Connections that say nothing, read nothing or are too many, before any of the application."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from turngraph import infer
from turngraph.configs.user_error import UserError
from turngraph.inference.serve import connections
from turngraph.inference.serve.connections import Server, listening, server_of
from turngraph.inference.serve.limits import BodyLimit
from turngraph.inference.serve.run_server import _folder, _shown, read_address
from turngraph.inference.serve.users import Users, add_user
from turngraph.tests.waiting import PATIENCE, wait_until

Connect = Callable[..., socket.socket]
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = 2**24
LET_GO = threading.Event()


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body, /long with many bytes."""
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    while scope["path"] == "/held" and not LET_GO.is_set():
        await asyncio.sleep(0.01)
    body = (await receive())["body"]
    answer = b"." * LONG if scope["path"] == "/long" else str(len(body)).encode()
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[[], Connect]]:
    """Starts a server whose users are in a file; returns what connects to it and sends bytes."""
    add_user(tmp_path / "tokens", "ada")
    running: list[tuple[Server, threading.Thread]] = []
    open_: list[socket.socket] = []

    def start() -> Connect:
        server = server_of(BodyLimit(application, Users(tmp_path / "tokens")), 1)
        [sock] = listening("127.0.0.1", 0)
        address = sock.getsockname()
        thread = threading.Thread(target=server.run, args=([sock],))
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started, pause=0.01)

        def connect(sent: bytes = b"") -> socket.socket:
            one = socket.create_connection(address, timeout=PATIENCE)
            open_.append(one)
            one.sendall(sent)
            return one

        connect.server = server
        return connect

    yield start
    for one in open_:
        one.close()
    for server, thread in running:
        server.should_exit = True
        thread.join()


def status(one: socket.socket) -> int:
    """Read an answer whole; 0: the connection has ended."""
    with one.makefile("rb") as file:
        try:
            if not (first := file.readline()):
                return 0
            found = int(first.split()[1])
            lines = dict(line.lower().split(b": ") for line in iter(file.readline, b"\r\n"))
            file.read(int(lines.get(b"content-length", 0)))
        except ConnectionResetError:
            return 0
    return found


def ends(one: socket.socket) -> bool:
    """Read until the connection ends, which it must do."""
    try:
        while one.recv(2**16):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_head_has_to_come_in_time(
    running: Callable[[], Connect], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = running()
    again = connect(GET)
    assert status(again) == 200
    [one] = connect.server.server_state.connections
    late = Future[Any]()
    one.loop.call_soon_threadsafe(lambda: late.set_result(one._late))
    assert late.result() is None  # between two requests it may wait longer
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    again.sendall(GET[:20])  # half a head of the next request
    assert ends(again)
    assert ends(connect())
    monkeypatch.setattr(connections, "HEAD_SECONDS", 1.0)
    assert ends(connect(GET[:20]))


@pytest.mark.parametrize("path", ["/api/documents/a.txt", "/v1/chat/completions", "/other"])
def test_nothing_of_a_body_is_waited_for_without_a_token(
    running: Callable[[], Connect], path: str
) -> None:
    connect, known = running(), 200 if path == "/other" else 401
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n".encode()
    one = connect(head)
    assert status(one) == known
    [served] = connect.server.server_state.connections
    wait_until(lambda: served._late is not None, pause=0.01)
    late = served._late
    for _ in range(3):
        one.sendall(b"x")
    time.sleep(0.02)
    assert served._late is late  # a byte now and then does not keep it open
    assert not late.cancelled()
    one.sendall(b"x" * 997 + GET)
    assert status(one) == 200
    assert late.cancelled()


def test_a_connection_that_says_nothing_makes_room_for_others(
    running: Callable[[], Connect], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 4)
    connect = running()
    connections_ = connect.server.server_state.connections
    silent = [connect(GET[:20]) for _ in range(4)]
    wait_until(lambda: len(connections_) == 4, pause=0.01)
    used = connect(GET)
    assert status(used) == 200
    assert ends(silent[0])  # the one that came first
    for _ in range(8):
        assert status(connect(GET)) == 200
    assert all(ends(one) for one in silent)
    left = list(connections_)
    assert 0 < len(left) <= 4
    made = Future[list[bool]]()  # of new connections in one turn of the loop each closes another
    left[0].loop.call_soon_threadsafe(
        lambda: made.set_result([left[0]._make_room() for _ in range(len(left) + 1)])
    )
    assert made.result() == [True] * len(left) + [False]


def test_a_connection_counts_as_idle_from_its_last_answer_on(
    running: Callable[[], Connect], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    connect = running()
    open_ = connect.server.server_state.connections
    used = connect(GET)
    assert status(used) == 200
    silent = connect(GET[:20])
    wait_until(lambda: len(open_) == 2, pause=0.01)
    used.sendall(GET)
    assert status(used) == 200
    assert status(connect(GET)) == 200
    used.sendall(GET)
    assert status(used) == 200
    assert ends(silent)


def test_connections_that_are_all_served_make_no_room(
    running: Callable[[], Connect], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    connect = running()
    open_ = connect.server.server_state.connections
    LET_GO.clear()
    served = [connect(GET.replace(b"/", b"/held", 1)) for _ in range(2)]
    wait_until(lambda: [one.is_idle for one in list(open_)] == [False, False], pause=0.01)
    assert status(connect(GET)) == 0  # no answer, which would take longer
    LET_GO.set()
    assert [status(one) for one in served] == [200, 200]


def test_a_client_that_reads_nothing_is_given_up(
    running: Callable[[], Connect], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    connect = running()
    state = connect.server.server_state
    open_ = state.connections
    long = GET.replace(b"/", b"/long", 1)
    late = connect(long)
    wait_until(lambda: any(one._unread is not None for one in list(open_)), pause=0.01)
    [served] = open_
    given_up = served._unread
    assert num_bytes(late) >= LONG
    wait_until(given_up.cancelled, pause=0.01)
    late.close()
    wait_until(lambda: not open_, pause=0.01)
    unread = [connect(long) for _ in range(2)]
    wait_until(lambda: sum(one._unread is not None for one in list(open_)) == 2, pause=0.01)
    assert all(one.flow.write_paused for one in open_)  # so that answers wait for their readers
    other = connect(GET)
    assert status(other) == 200  # none is idle, so one of these goes
    assert sorted(num_bytes(one) < LONG for one in unread) == [False, True]
    for one in (*unread, other):
        one.close()
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.05)
    last = connect(long)
    wait_until(lambda: state.total_requests == 5 and not open_, pause=0.01)
    assert num_bytes(last) < LONG


def num_bytes(one: socket.socket) -> int:
    found = 0
    try:
        while found < LONG and (part := one.recv(2**20)):
            found += len(part)
    except ConnectionResetError:
        pass
    return found


def test_exhausted_descriptors_are_logged_once_in_a_while(
    running: Callable[[], Connect],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    accept, failed = socket.socket.accept, list[int]()

    def exhausted(sock: socket.socket) -> Any:
        if len(failed) < 2 * connections.BACKLOG:
            failed.append(1)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    monkeypatch.setattr(asyncio.constants, "ACCEPT_RETRY_DELAY", 0.05)
    connect = running()
    assert status(connect(GET)) == 200  # as soon as there is one again
    assert len(failed) == 2 * connections.BACKLOG
    [line] = [one for one in caplog.records if one.name in ("serve", "asyncio")]
    assert line.message.endswith("Too many open files")
    with caplog.at_level("ERROR", "asyncio"):
        connect.server._fault(asyncio.new_event_loop(), {"message": "another"})
    assert "another" in caplog.text


def test_the_limit_of_files_is_raised_as_far_as_it_may_be(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.update(now=new))
    for before, after, most in (
        ((4096, 4096), 4096, connections.MAX_CONNECTIONS),
        ((resource.RLIM_INFINITY,) * 2, resource.RLIM_INFINITY, connections.MAX_CONNECTIONS),
        ((1024, 4096), 2000, connections.MAX_CONNECTIONS),
        ((256, resource.RLIM_INFINITY), 2000, connections.MAX_CONNECTIONS),
        ((256, 1024), 1024, 256),
    ):
        limits["now"] = before
        assert server_of(application, 1).config.limit_concurrency == most + 1
        assert limits["now"][0] == after
    assert "at most 256 connections are accepted; ulimit -n 2000" in caplog.text


def test_a_taken_port_is_found_before_the_model_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = f"^host 127.0.0.1, port {port}: Address already in use$"
        for options in (["--port", str(port)], ["--address", f"127.0.0.1:{port}"]):
            with pytest.raises(UserError, match=taken):
                infer.main(["serve", "--checkpoint", str(tmp_path), *options])
    with pytest.raises(UserError, match="not known"):
        listening("no-such-host.invalid", 80)


def test_an_address_that_the_machine_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here = (socket.AF_INET, ("127.0.0.1", 0))
    monkeypatch.setattr(connections, "_addresses", lambda *_: [missing, here])
    missing = (socket.AF_INET, ("192.0.2.1", 0))
    [one] = listening("localhost", 0)
    one.close()
    monkeypatch.setattr(connections, "_addresses", lambda *_: [here, missing, missing][1:])
    with pytest.raises(UserError, match="Cannot assign"):
        listening("localhost", 0)
    made, create = list[socket.socket](), socket.create_server
    keep = lambda *given, **more: made.append(create(*given, **more)) or made[-1]  # noqa: E731
    monkeypatch.setattr(socket, "create_server", keep)
    with create(here[1]) as taken:
        monkeypatch.setattr(
            connections, "_addresses", lambda *_: [here, (here[0], taken.getsockname())]
        )
        with pytest.raises(UserError, match="already in use"):
            listening("localhost", 0)
    assert [one.fileno() for one in made] == [-1]


def test_a_server_is_shown_and_has_a_folder_as_it_was_named(tmp_path: Path) -> None:
    assert [_shown(host, 80) for host in ("::1", "localhost")] == ["[::1]:80", "localhost:80"]
    for _ in range(2):
        with _folder(str(tmp_path / "new" / "users")) as folder:
            assert folder.is_dir()
    with _folder(None) as own:
        assert own.is_dir()
    assert (folder.is_dir(), own.exists()) == (True, False)


def test_host_and_port_are_given_apart_or_together() -> None:
    assert read_address(None, None, None) == ("127.0.0.1", 8080)
    for port in (1, 80, 2**16 - 1):
        assert read_address(None, port, None) == ("127.0.0.1", port)
    assert read_address("::1", None, None) == ("::1", 8080)
    assert read_address(None, None, "[::1]:80") == ("::1", 80)
    for wrong in ("8080", "localhost:", ":80"):
        with pytest.raises(UserError, match="HOST:PORT"):
            read_address(None, None, wrong)
    with pytest.raises(UserError, match="cannot be given with"):
        read_address(None, 80, "localhost:80")
    for host, port, told in (
        ("", 80, "--host: must not be empty"),
        ("localhost", 2**16, "--port: 65536 given, must be from 1 to 65535"),
        ("localhost", 0, "--port: 0 given, must be from 1 to 65535"),
    ):
        with pytest.raises(UserError, match=told):
            read_address(host, port, None)
