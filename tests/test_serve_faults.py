# ruff: noqa: F811 - fixtures of another file
"""A server when something goes wrong: kills, damaged files, clients that leave; and forgetting."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from fastapi.testclient import TestClient

from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.types import Evidence
from turngraph.inference.api import QA
from turngraph.inference.evidence import read_evidence
from turngraph.inference.serve.app import make_app
from turngraph.inference.serve.conversation_store import ConversationStore
from turngraph.inference.serve.documents import Documents, is_name
from turngraph.inference.serve.engine import Busy, Engine, Late, Stopping
from turngraph.inference.serve.errors import (
    FAILED,
    NOT_FOUND,
    UNAVAILABLE,
    NotFound,
    Unavailable,
)
from turngraph.inference.serve.limited_reading import read_limited
from turngraph.inference.serve.limits import Turns
from turngraph.inference.serve.open_conversation import Gone, check_wanted
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.service import Service
from turngraph.inference.serve.streams import Streaming, failure
from turngraph.inference.serve.users import Users, add_user
from turngraph.inference.session import Session
from turngraph.tests.test_serve import Start, ask, fail, pool, start  # noqa: F401
from turngraph.tests.tiny import END_ID, tiny_examples, tiny_model
from turngraph.tests.waiting import wait_until

Json = dict[str, Any]
TOLD = "Anna lives in Gdynia."


def facts(client: TestClient) -> list[str]:
    found = client.get("/api/memory/ask", params={"question": "Where does Anna live?"}).json()
    return [fact["text"] for fact in found["facts"]]


def restarted(start: Start, client: TestClient, **options: Any) -> TestClient:
    client.app.state.service.close()
    return start(**options)


def forget_and_look(start: Start, **options: Any) -> None:
    """Forget what a conversation said; neither a look at it nor a close brings it back."""
    client = start(**options)
    id_ = client.post("/api/conversations").json()["id"]
    ask(client, id_, TOLD)
    began, _ = client.app.state.service.store("local").memory_of(id_)
    forgotten = client.post("/api/memory/forget", json={"source": f"chat {began}"}).json()
    assert forgotten["episodes"] == 2
    for _ in range(2):
        client = restarted(start, client, **options)
        assert client.get(f"/api/conversations/{id_}/why").status_code == 200
    assert facts(client) == []
    assert client.post(f"/api/conversations/{id_}/undo").status_code == 200
    ask(client, id_, TOLD)
    assert any("Gdynia" in text for text in facts(client))


@pytest.mark.parametrize("is_open", [True, False])
def test_a_conversation_is_deleted_with_or_without_what_it_stated(
    start: Start, is_open: bool
) -> None:
    client = start()
    kept, gone, empty = (client.post("/api/conversations").json()["id"] for _ in range(3))
    ask(client, kept, "Bob lives in Lima.")
    for told in (TOLD, "Anna lives in Torun."):
        ask(client, gone, told)
    if not is_open:
        client = restarted(start, client)
    folder = client.app.state.service.user_folder("local")
    with closing(sqlite3.connect(folder / "conversations.db")) as reader:  # keeps the log file
        reader.execute("SELECT id FROM conversations").fetchall()
        for id_ in (gone, empty):
            assert client.delete(f"/api/conversations/{id_}?forget=true").status_code == 204
            assert client.get(f"/api/conversations/{id_}").status_code == 404
        files = (folder / "memory.db", *folder.glob("conversations.db*"))
        assert not [path for path in files if b"Gdynia" in path.read_bytes()]
    assert facts(client) == []
    kept += "" if is_open else "?forget=false"  # which is the default
    assert client.delete(f"/api/conversations/{kept}").status_code == 204
    history = client.get("/api/memory/history", params={"entity": "Bob"}).json()
    assert any("Lima" in fact["text"] for fact in history)


def test_a_conversation_that_cannot_be_forgotten_is_not_deleted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    ask(client, id_, TOLD)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "undo", lambda *_: fail("the memory cannot be written"))
        assert client.delete(f"/api/conversations/{id_}?forget=true").status_code >= 400
    assert len(client.get(f"/api/conversations/{id_}").json()["turns"]) == 1
    assert client.delete(f"/api/conversations/{id_}?forget=true").status_code == 204
    assert facts(client) == []


def test_what_is_forgotten_stays_forgotten_in_a_conversation_that_goes_on(start: Start) -> None:
    forget_and_look(start)


def test_turns_that_a_killed_server_did_not_remember_are_remembered_later(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    ask(client, id_, "Where does Anna live?")
    with monkeypatch.context() as patch:
        patch.setattr(Session, "remember", no_more)
        ask(client, id_, TOLD)
    again = start()  # as after a kill: nothing was closed
    assert facts(again) == []
    again.get(f"/api/conversations/{id_}/why")
    assert any("Gdynia" in text for text in facts(restarted(start, again)))


def test_a_turn_that_cannot_be_kept_is_not_remembered(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    ask(client, id_, "Where does Anna live?")
    asked = {"question": TOLD, "stream": False}
    with monkeypatch.context() as patch:
        patch.setattr(ConversationStore, "add_turn", lambda *_: fail("the disk is full"))
        assert client.post(f"/api/conversations/{id_}/ask", json=asked).status_code == 422
    client = restarted(start, client)
    assert facts(client) == []
    assert ask(client, id_, "Where is Anna?")["turn"] == 1


def no_more(session: Session) -> None:
    assert session.persistent is not None
    if session.persistent.num_turns < len(session.turns):
        fail("no room")


def told(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["message"]


def test_faults_of_the_server_are_logged_and_told_without_paths(
    start: Start,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = start()
    client = TestClient(client.app, client.base_url, raise_server_exceptions=False)
    folder = tmp_path / "users" / "local"
    folder.mkdir(parents=True)
    for name, route in (
        ("conversations.db", "/api/conversations"),
        ("memory.db", "/api/memory/ask?question=Where"),
    ):
        (folder / name).write_bytes(b"no database" * 100)
        assert told(client.get(route)) == (503, UNAVAILABLE)
        assert client.get(route).json()["error"]["type"] == "server_error"
        assert f"{folder / name}" in caplog.text
        (folder / name).unlink()
    id_ = client.post("/api/conversations").json()["id"]
    with closing(sqlite3.connect(folder / "conversations.db", isolation_level=None)) as db:
        db.execute("INSERT INTO turns VALUES (?, 0, '{', '[]')", (id_,))
        assert told(client.get(f"/api/conversations/{id_}")) == (503, UNAVAILABLE)
        with pytest.raises(Unavailable, match="UNIQUE"):
            ConversationStore(folder / "conversations.db").add_turn(id_, 0, {}, ())
        assert db.execute("PRAGMA user_version").fetchone() == (2,)  # as files made before have it
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        db.execute("PRAGMA user_version = 99")
        with pytest.raises(Unavailable, match="another version"):
            ConversationStore(folder / "conversations.db")
    monkeypatch.setattr(Service, "store", lambda *_: {}["broken"])
    assert told(client.get(f"/api/conversations/{id_}")) == (500, FAILED)
    assert client.get(f"/api/conversations/{id_}").json()["error"]["type"] == "server_error"
    monkeypatch.setattr(Service, "store", lambda *_: b"\xff".decode())  # a ValueError of ours
    assert told(client.get(f"/api/conversations/{id_}")) == (500, FAILED)


def test_a_question_while_its_conversation_is_deleted_leaves_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    service, asked = client.app.state.service, {"question": "Who?", "stream": False}
    state, session_ask, deleted = ConversationStore.state, Session.ask, list[str]()

    def deleted_before(store: ConversationStore, id_: str) -> str | None:
        found = state(store, id_)
        if not deleted:
            deleted.append(id_)
            service.delete("local", id_, forget=False).result()
        return found

    def deleted_during(session: Session, *given: Any) -> Any:
        service.store("local").delete(id_)
        return session_ask(session, *given)

    assert told(client.post(f"/api/conversations/{'0' * 32}/ask", json=asked)) == (404, NOT_FOUND)
    for kind, name, changed in (
        (ConversationStore, "state", deleted_before),
        (Session, "ask", deleted_during),
    ):
        id_ = client.post("/api/conversations").json()["id"]
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, changed)
            reply = client.post(f"/api/conversations/{id_}/ask", json=asked)
        assert told(reply) == (404, NOT_FOUND)
        wait_until(lambda: not service.held()["conversations"])
    assert failure(NotFound(id_)) == {"message": NOT_FOUND}


class Client:
    """Who sends a request and reads no answer, as the application sees it.

    Args:
        leaves: set when it leaves.
    """

    def __init__(self, leaves: threading.Event) -> None:
        self.leaves, self.sent = leaves, list[Json]()

    async def post(self, app: Any, path: str, content: Json) -> None:
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            **{"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http"},
            **{"path": path, "query_string": b"", "headers": headers},
        }
        body = [{"type": "http.request", "body": json.dumps(content).encode()}]

        async def receive() -> Json:
            if not body:
                await asyncio.to_thread(self.leaves.wait)
            return body.pop() if body else {"type": "http.disconnect"}

        async def send(message: Json) -> None:
            self.sent.append(message)

        await app(scope, receive, send)


def test_a_client_that_leaves_ends_its_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def answer(_: Service, session: Session, question: str, listener: Streaming, *__: Any) -> None:
        begun.set()
        assert listener.gone.wait(60)
        raise Gone

    monkeypatch.setattr(Service, "_answer", answer)
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    for path, content in (
        (f"/api/conversations/{id_}/ask", {"question": "Who?", "stream": False}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Who?"}]}),
    ):
        begun.clear()
        asyncio.run(Client(begun).post(client.app, path, content))
        wait_until(lambda: not client.app.state.service.engine.num_admitted)


def test_an_answer_that_nobody_waits_for_is_told_apart_from_one_that_the_server_gave_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stays:
        async def receive(self) -> Json:
            await asyncio.sleep(3600)
            return {}

    async def stop() -> Streaming:
        streaming = Streaming()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(streaming.whole(answer, Stays()))
        await asyncio.sleep(0)
        waiting.cancel()  # as a server does whose time to stop is over
        with pytest.raises(Stopping):
            await waiting
        assert not answer.cancelled()
        answer.set_exception(Gone())  # which nobody reports as lost
        return streaming

    streaming = asyncio.run(stop())
    with pytest.raises(Gone):
        streaming.step("1", None)
    assert caplog.text == ""
    with pytest.raises(Gone):
        check_wanted(streaming, time.monotonic() + 60)
    assert failure(Late("too late")) == {"message": "too late"}
    assert failure(UserError("too\nlong")) == {"message": "too long"}
    assert "an answer failed" not in caplog.text
    assert failure(RuntimeError("secret")) == {"message": FAILED}
    assert failure(Unavailable("/secret/memory.db: damaged")) == {"message": UNAVAILABLE}
    assert "an answer failed" in caplog.text


def test_warnings_about_a_document_are_told_to_its_user_alone(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    lines = b'{"id": "private", "text": "a", "secret": 1}\n{"id": "private", "text": "b"}\n'
    client = start()
    with caplog.at_level("INFO"):
        caplog.clear()
        told = client.put("/api/documents/diary.jsonl", content=lines).json()
        client.put("/api/documents/letter.txt", content="Gru\xdf".encode("latin-1"))
        start().post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "?"}]})
    assert told["num_passages"] == 2
    repeated, unknown = told["warnings"]
    assert unknown.startswith("diary.jsonl, line 1, field secret: unknown and not read")
    assert repeated.startswith("diary.jsonl: evidence ids that occur more than once: 'private'")
    assert [one for one in caplog.records if one.name.startswith("turngraph.data")] == []


def test_a_document_that_is_removed_meanwhile_is_not_there(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, paths = start(), Documents._paths
    client.put("/api/documents/a.txt", content=b"Dune is a book.")

    def removed_meanwhile(documents: Documents, user: str) -> list[Path]:
        found = paths(documents, user)
        for path in found:
            path.unlink()
        return found

    monkeypatch.setattr(Documents, "_paths", removed_meanwhile)
    assert client.get("/api/documents").json() == []
    monkeypatch.setattr(Documents, "_paths", paths)
    assert client.delete("/api/documents/a.txt").status_code == 404
    folder = tmp_path / "users" / "local" / "documents"
    left, old, old_file = (folder / f".{digit * 32}" for digit in "012")
    for trial in (left, old):
        trial.mkdir()
        (trial / "a.txt").write_bytes(b"left by a kill")
    old_file.touch()
    for path in (old, old_file):
        os.utime(path, (0, 0))
    assert start().get("/api/documents").json() == []
    assert list(folder.iterdir()) == [left]  # may be in use


def test_a_token_that_was_replaced_or_removed_counts_no_more(
    start: Start,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "tokens"
    old = add_user(path, "ada")
    client = start(Users(path))

    def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return int(client.get("/api/conversations", headers=headers).status_code)

    assert status(old) == 200
    new, other = add_user(path, "ada"), add_user(path, "bob")
    assert [status(token) for token in (old, new, other)] == [401, 200, 200]
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert [status(token) for token in (new, other)] == [200, 401]
    line, before = path.read_text(), path.stat()
    for revoked in ("", "# " + line, "no user\n", line + line, None):
        path.write_text(line)
        assert status(new) == 200
        path.unlink() if revoked is None else path.write_text(revoked)
        assert [status(new) for _ in range(2)] == [401, 401], revoked
    messages = [one.message for one in caplog.records if one.levelname == "ERROR"]
    told = (
        "no user in it",
        "no user in it",
        "line 1: must",
        "line 2: user ada has",
        "No such file",
    )
    assert len(messages) == len(told)
    assert all(text in message for text, message in zip(told, messages, strict=True))
    path.write_text(line)
    assert status(new) == 200
    with path.open("r+") as file:  # a change in place of equal size within a tick of the clock
        file.write(f"ada {'0' * 64}")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert status(new) == 401
    path.write_text(line + "bob: a wrong line\n")
    assert status(new) == 200
    exhausted = OSError(errno.EMFILE, "Too many open files")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda _: (_ for _ in ()).throw(exhausted))
        assert status(new) == 200  # which says nothing about the users


def test_a_new_token_leaves_the_other_lines_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# friends\nada {'0' * 64}\n# family\n")
    path.chmod(0o644)
    token = add_user(path, "ada")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().splitlines()[:2] == ["# friends", "# family"]
    assert Users(path).user_of(f"bearer {token}") == "ada"
    with pytest.raises(UserError, match="'Ada' differs in case alone from ada"):
        add_user(path, "Ada")
    for wrong, message in ((b"# \xff\n", "not UTF-8"), (b"ada\n", "line 1")):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=message):
            add_user(path, "ada")
        assert path.read_bytes() == wrong


def test_a_server_is_reached_by_its_own_address(qa: QA, tmp_path: Path) -> None:
    for address, hosts in (
        ("127.0.0.2", ("127.0.0.2:80", "localhost", "[::1]:80")),
        ("::1", ("[::1]:80",)),
    ):
        app = make_app(Service(qa, ServeOptions(), tmp_path), Users(None), address)
        with TestClient(app, "http://localhost") as client:
            replies = [client.get("/healthz", headers={"Host": host}) for host in (*hosts, "other")]
        assert [reply.status_code for reply in replies] == [200] * len(hosts) + [400]


def test_no_user_takes_the_places_of_all() -> None:
    engine = Engine(tiny_model().eval(), END_ID, 2**14, 2, 3)
    asked = [engine.admit("ada") for _ in range(5)] + [engine.admit("bob")]
    for user in ("ada", "bob"):
        with pytest.raises(Busy):
            engine.admit(user)
    asked += [engine.admit("cem"), engine.admit("dan")]
    assert engine.num_admitted == engine.most_admitted
    engine.dismiss("dan", seconds=11.0)
    asked[-1] = engine.admit("dan")
    with pytest.raises(Busy) as told:
        engine.admit("eve")
    assert told.value.seconds == pytest.approx(4 * 2.0)  # rounds, mean seconds of an answer
    for one in asked:
        one.end()
    assert engine.num_admitted == 0
    assert not engine._num_of_user  # nothing is kept of those who have no question
    for _ in range(60):
        engine.admit("dan")
        engine.dismiss("dan", seconds=0.0)
    asked = [engine.admit(str(number)) for number in range(engine.most_admitted)]
    with pytest.raises(Busy) as told:
        engine.admit("eve")
    assert told.value.seconds == 1.0  # not at once, however quick answers are
    engine.close()


@pytest.mark.parametrize(("spare", "rows", "together"), [(0, 9, 2), (-1, 9, 1), (99, 1, 1)])
def test_no_more_answers_are_decoded_together_than_there_is_room_for(
    spare: int, rows: int, together: int
) -> None:
    batches = [collate([one], "left", with_target=False) for one in tiny_examples(2)]
    lengths = [batch.input_ids.shape[1] for batch in batches]
    assert lengths[0] != lengths[1]
    room = 2 * (max(lengths) + 9)
    engine = Engine(tiny_model().eval(), END_ID, room + spare, rows, 128)
    may_go_on, seen, step = threading.Event(), list[int](), engine._running.step

    def noted() -> Any:
        assert may_go_on.wait(60)
        seen.append(len(engine._running.rows))
        return step()

    engine._running.step = noted
    with ThreadPoolExecutor(2) as threads:
        for batch in batches:
            threads.submit(engine.generate, batch, 9, END_ID)
        wait_until(lambda: engine.num_running + len(engine._waiting) == 2)
        may_go_on.set()
    engine.close()
    assert max(seen) == together


@pytest.mark.parametrize("rows", [1, 2])
def test_users_of_whom_fewer_answers_are_decoded_go_first(rows: int) -> None:
    engine = Engine(tiny_model().eval(), END_ID, 2**14, rows, 128)
    order, admit = list[str](), engine._admit
    begun, may_go_on, step = threading.Event(), threading.Event(), engine._running.step

    def noted() -> Any:
        request = admit()
        order.extend([] if request is None else [request.user])
        return request

    def slow() -> Any:
        begun.set()
        assert may_go_on.wait(60)
        return step()

    engine._admit, engine._running.step = noted, slow
    batch = collate(tiny_examples(1), "left", with_target=False)
    with ThreadPoolExecutor(5) as threads:
        for number, user in enumerate(("ada", "ada", "ada", "ada", "bob")):
            threads.submit(engine.generate, batch, 9, END_ID, user=user)
            assert begun.wait(60)
            wait_until(lambda number=number: len(engine._waiting) == number)
        may_go_on.set()
    engine.close()
    assert order == ["ada", "bob", "ada", "ada", "ada"]


def test_prompts_wait_for_room_and_a_stop_ends_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed = list[Any]()
    monkeypatch.setattr("turngraph.inference.serve.engine.STEPS_PER_RELEASE", 1)
    monkeypatch.setattr("turngraph.inference.serve.engine.release_freed_memory", freed.append)
    engine = Engine(tiny_model().eval(), END_ID, 1, 32, 128)
    batch = collate(tiny_examples(1), "left", with_target=False)
    for error, told in (
        (torch.OutOfMemoryError("CUDA"), "the prompt is too long"),
        (RuntimeError("broken"), "^broken$"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(engine._running, "add", MagicMock(side_effect=error))
            with pytest.raises(Exception, match=told):
                engine.generate(batch, 9, END_ID)
    steps, step = threading.Semaphore(0), engine._running.step
    engine._running.step = lambda: steps.acquire(timeout=60) and step()
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(engine.generate, batch, 9, END_ID) for _ in range(2)]
        wait_until(lambda: engine.num_running == 1 and len(engine._waiting) == 1)
        freed.clear()
        steps.release(2)
        wait_until(lambda: len(freed) == 2)
        assert (engine.num_running, len(engine._waiting)) == (1, 1)
        closed = threads.submit(engine.close)
        wait_until(lambda: engine._closed)
        steps.release(2)
        closed.result()
        for one in asked:
            with pytest.raises(Stopping):
                one.result()


def test_users_build_their_prompts_in_turn() -> None:
    turns, order = Turns(), list[str]()

    def build(user: str) -> None:
        with turns.of(user):
            order.append(user)

    with ThreadPoolExecutor(5) as threads:
        with turns.of("cem"):
            for number, user in enumerate(("ada", "ada", "ada", "bob", "ada")):
                threads.submit(build, user)
                wait_until(lambda number=number: sum(map(len, turns._waiting.values())) > number)
        with pytest.raises(ZeroDivisionError), turns.of("cem"):  # comes last, and gives it back
            1 / 0  # noqa: B018
    assert order == ["ada", "bob", "ada", "ada", "ada"]
    build("dan")


def test_a_document_is_read_once_and_holds_nobody_but_its_user(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, may_go_on = list[str](), threading.Event()
    eases = dict[str, Any]()

    def noted(paths: list[Path], **limits: int) -> Any:
        reads.extend(path.name for path in paths)
        eases[paths[0].name] = limits
        assert paths[0].name != "slow.txt" or may_go_on.wait(60)
        return read_limited(paths, **limits)

    monkeypatch.setattr("turngraph.inference.serve.documents.read_limited", noted)
    tokens = {name: add_user(tmp_path / "tokens", name) for name in ("ada", "bob")}
    ada, bob = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
    client = start(Users(tmp_path / "tokens"), evidence=())
    documents = client.app.state.service.documents

    def texts(user: str) -> list[str]:
        return [passage.text.rpartition(", ")[2] for passage in documents.pool(user)]

    for name, text in (("a.txt", "A pier is old."), ("b.txt", "A quay is new.")):
        assert client.put(f"/api/documents/{name}", content=text, headers=ada).status_code == 201
        assert texts("ada")[-1] == text
    assert [passage.id for passage in documents.pool("ada")] == ["a.txt#0", "b.txt#0"]
    assert documents.pool("ada") is documents.pool("ada")
    assert client.delete("/api/documents/a.txt", headers=ada).status_code == 204
    assert texts("ada") == ["A quay is new."]
    with ThreadPoolExecutor(1) as threads:
        slow = {"content": "A mole is long.", "headers": ada}
        put = threads.submit(client.put, "/api/documents/slow.txt", **slow)
        wait_until(lambda: "slow.txt" in reads)
        assert texts("ada") == ["A quay is new."]
        client.put("/api/documents/c.txt", content="Dune is a book.", headers=bob)
        assert texts("bob") == ["Dune is a book."]
        may_go_on.set()
        assert put.result().status_code == 201
    assert texts("ada") == ["A quay is new.", "A mole is long."]
    assert reads == ["a.txt", "b.txt", "slow.txt", "c.txt"]
    folder = tmp_path / "users" / "bob" / "documents"
    (folder / "c.txt").write_text("Dune is a film.")  # as another server does that shares it
    assert texts("bob") == ["Dune is a film."]
    # what was read within the limits is not refused later, when the machine is busy
    assert eases == {"a.txt": {}, "b.txt": {}, "slow.txt": {}, "c.txt": {"ease": 2}}
    (folder / "d.jsonl").write_text("{")
    for _ in range(2):
        with pytest.raises(UserError, match=r"^d\.jsonl, line 1"):
            documents.pool("bob")
    assert reads[4:] == ["c.txt", "d.jsonl"]  # what cannot be read is not tried at each question


Load = tuple[str, str, Json]
UPLOADS: list[Load] = [
    ("PUT", f"/api/documents/{n}.txt", {"content": "A pier."}) for n in range(50)
]
FORGETS: list[Load] = [("POST", "/api/memory/forget", {"json": {"entity": "Anna"}})] * 50
WHYS: list[Load] = [("GET", "/api/conversations/{}/why", {})] * 50
LISTS: list[Load] = [("GET", "/api/conversations", {})] * 8
DELETES: list[Load] = [("DELETE", "/api/conversations/{}?forget=true", {})] * 50


@pytest.mark.parametrize(
    ("load", "held"),
    [
        pytest.param(UPLOADS, "inference.serve.documents.read_limited", id="uploads"),
        pytest.param(FORGETS, "data.memory_graph.graph.MemoryGraph.forget", id="forgets"),
        pytest.param(DELETES, "inference.session.Session.undo", id="deletes and forgets"),
        pytest.param(WHYS, "inference.session.Session.why", id="explanations"),
        pytest.param(
            LISTS, "inference.serve.conversation_store.ConversationStore.listed", id="lists"
        ),
    ],
)
def test_a_question_waits_for_no_load_of_another_user(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: list[Load], held: str
) -> None:
    """All that one user may ask at once is held, while another one is answered."""
    owner, _, name = f"turngraph.{held}".rpartition(".")
    work, may_end, running = resolve_name(f"turngraph.{held}"), threading.Event(), list[int]()

    def slow(*args: Any, **named: Any) -> Any:
        running.append(1)
        assert may_end.wait(600)
        return work(*args, **named)

    tokens = {user: add_user(tmp_path / "tokens", user) for user in ("ada", "bob")}
    ada, bob = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
    client = start(Users(tmp_path / "tokens"), deadline=600.0)
    places = client.app.state.service.places
    ids = [client.post("/api/conversations", headers=one).json()["id"] for one in (ada, bob)]
    for id_, user in zip(ids, (ada, bob), strict=True):
        ask(client, id_, TOLD, headers=user)
    monkeypatch.setattr(resolve_name(owner), name, slow)
    with ThreadPoolExecutor(50) as threads:
        asked = [
            threads.submit(client.request, method, path.format(ids[0]), headers=ada, **rest)
            for method, path, rest in load
        ]
        wait_until(lambda: sum(not one.done() for one in asked) == places.most_of_user)
        wait_until(lambda: running)
        assert ask(client, ids[1], "Where does Anna live?", headers=bob)["turn"] == 1
        assert sum(not one.done() for one in asked) == places.most_of_user
        may_end.set()
    refused = len(load) - places.most_of_user
    assert [one.result().status_code for one in asked].count(429) == refused
    assert not places._taken


def test_documents_of_the_user_who_asked_longest_ago_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, reads = "turngraph.inference.serve.documents", list[str]()

    def read(paths: list[Path], **_: int) -> tuple[tuple[Evidence, ...], list[str]]:
        reads.extend(path.name for path in paths)
        return read_evidence(paths), []

    def folder(user: str) -> Path:
        (tmp_path / user).mkdir(exist_ok=True)
        return tmp_path / user

    monkeypatch.setattr(f"{module}.read_limited", read)
    monkeypatch.setattr(f"{module}.MAX_POOLS", 2)
    documents = Documents(folder, (), len, len)
    for user in ("ada", "bob"):
        documents.add(user, f"{user}.txt", b"A pier is old.")
    documents.pool("ada")
    documents.add("cem", "cem.txt", b"A pier is old.")
    reads.clear()
    for user in ("ada", "cem", "bob"):
        documents.pool(user)
    assert reads == ["bob.txt"]


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("a", True), ("\u6c49.txt", True), ("a .b", True), ("x" * 200, True), ("x" * 201, False),
        ("\u6c49" * 67, False), ("", False), (".a", False), (" a", False), ("a/b", False),
        ("a\nb", False),
    ],
)  # fmt: skip
def test_a_name_of_a_document_is_a_visible_files(name: str, is_valid: bool) -> None:
    assert is_name(name) == is_valid


def test_a_user_has_so_many_documents(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turngraph.inference.serve.documents.MAX_DOCUMENTS", 1)
    client = start()
    put = [client.put(f"/api/documents/{n}.txt", content="A pier is old.") for n in "aab"]
    assert [reply.status_code for reply in put] == [201, 201, 422]
    assert "a user may have 1 documents" in put[2].json()["error"]["message"]


def test_what_a_user_has_is_for_the_servers_user_alone(start: Start, tmp_path: Path) -> None:
    client = start()
    assert client.put("/api/documents/a.txt", content="A pier is old.").status_code == 201
    ask(client, client.post("/api/conversations").json()["id"], TOLD)
    paths = list((tmp_path / "users").rglob("*"))
    names = {path.name for path in paths}
    assert {"local", "conversations.db", "memory.db", "documents", "a.txt"} <= names
    assert not [path for path in paths if path.stat().st_mode & 0o077]


def test_conversations_that_are_deleted_while_they_answer_hold_no_other_route(
    start: Start,
) -> None:
    client = start(memory_dir=None)
    service, may_end = client.app.state.service, threading.Event()
    ids = [service.store("local").create() for _ in range(50)]  # routes have 40 threads
    for id_ in ids:
        service.run("local", id_, lambda _: may_end.wait(60))
    with ThreadPoolExecutor(50) as threads:
        deleted = [threads.submit(client.delete, f"/api/conversations/{id_}") for id_ in ids]
        wait_until(lambda: not service.store("local").listed(1))
        assert client.get("/api/conversations").json() == []
        assert not any(one.done() for one in deleted)
        may_end.set()
        assert {one.result().status_code for one in deleted} == {204}
    assert service.held()["conversations"] == 0


def test_conversations_are_listed_in_pages(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    client = start()
    store = client.app.state.service.store("local")
    ids = [store.create() for _ in range(5)]
    assert store.num_remembered("gone") == 0

    def page(**query: object) -> list[str]:
        reply = client.get("/api/conversations", params=query)
        assert reply.status_code == 200, reply.text
        return [one["id"] for one in reply.json()]

    whole = page()
    assert sorted(whole) == sorted(ids)
    assert page(limit=2) == whole[:2]
    assert page(limit=2, after=whole[1]) == whole[2:4]
    assert page(limit=2, after=whole[3]) == whole[4:]
    assert page(after=whole[4]) == []
    assert page(limit=1) == whole[:1]
    assert page(limit=1000) == whole
    for query, status in (
        ("limit=0", 422),
        ("limit=1001", 422),
        ("after=x", 422),
        (f"after={'0' * 32}", 404),
    ):
        assert client.get(f"/api/conversations?{query}").status_code == status
    add = partial(store.add_turn, record={"question": "?"}, passages=[])
    for change, id_, when in ((add, whole[2], "9998"), (store.remove_turn, whole[3], "9999")):
        monkeypatch.setattr("turngraph.inference.serve.conversation_store.now", partial(str, when))
        change(id_, turn=0)
        assert page()[0] == id_  # the last changed first


def test_what_is_no_answer_has_places_of_its_own(start: Start) -> None:
    client = start()
    places = client.app.state.service.places
    client.put("/api/documents/a.txt", content="A pier.")
    id_ = client.post("/api/conversations").json()["id"]
    slow: list[tuple[str, str]] = [
        ("GET", "/api/memory/ask?question=Who"),
        ("GET", "/api/memory/plan?question=Who"),
        ("GET", "/api/memory/history?entity=Ada"),
        ("GET", "/api/memory/export"),
        ("GET", f"/api/conversations/{id_}/why"),
        ("GET", f"/api/conversations/{id_}/save"),
        ("PUT", "/api/documents/b.txt"),
        ("POST", f"/api/conversations/{id_}/undo"),
        ("DELETE", f"/api/conversations/{id_}?forget=true"),
    ]
    for users in (["local"] * places.most_of_user, [str(n) for n in range(places.most)]):
        with ExitStack() as stack:
            for user in users:
                stack.enter_context(places.taken(user))
            for method, path in slow:
                reply = client.request(method, path)
                assert (reply.status_code, reply.headers["Retry-After"]) == (429, "1"), path
            assert client.get("/api/documents").status_code == 200
            ask(client, id_, "Where is the pier?")
    with places.taken("another"):
        assert client.get(f"/api/conversations/{id_}/why").status_code == 200
        assert client.get("/api/memory/plan?question=Who").status_code == 200


def test_a_user_has_room_for_so_many_bytes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turngraph.inference.serve.documents.MAX_BYTES", 27)
    client = start()
    put = [client.put(f"/api/documents/{n}.txt", content="A pier is old.") for n in "ab"]
    assert [reply.status_code for reply in put] == [201, 422]
    message = (
        "b.txt: 14 bytes, beside 14 of other documents; a user may have 27 bytes: delete a document"
    )
    assert put[1].json()["error"]["message"] == message
    assert client.put("/api/documents/a.txt", content="A pier is new.").status_code == 201
    client.delete("/api/documents/a.txt")
    assert client.put("/api/documents/b.txt", content="A pier is old.").status_code == 201
    monkeypatch.setattr("turngraph.inference.serve.documents.MAX_BYTES", 28)
    assert client.put("/api/documents/a.txt", content="A pier is old.").status_code == 201


def test_documents_that_come_at_once_have_no_more_room(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "turngraph.inference.serve.documents"
    monkeypatch.setattr(f"{module}.MAX_BYTES", 20)
    client = start()

    def read(paths: list[Path]) -> tuple[tuple[Evidence, ...], list[str]]:
        # another server of the same folder keeps a document while the first one is read
        (paths[0].parents[1] / "b.txt").write_text("A pier is old.", encoding="utf-8")
        return read_evidence(paths), []

    monkeypatch.setattr(f"{module}.read_limited", read)
    reply = client.put("/api/documents/a.txt", content="A pier is old.")
    assert reply.status_code == 422
    assert "beside 14 of other documents" in reply.json()["error"]["message"]
    assert [one["name"] for one in client.get("/api/documents").json()] == ["b.txt"]


@pytest.mark.parametrize("is_read", [True, False])
def test_a_reader_that_leaves_a_stream_ends_the_answer(is_read: bool) -> None:
    async def read() -> bool:
        streaming, answer = Streaming(), asyncio.get_running_loop().create_future()
        pieces = streaming.until(answer)
        streaming.emit("Lima")
        assert await anext(pieces) == "Lima"
        if is_read:
            answer.set_result(None)
            assert [piece async for piece in pieces] == []
        await pieces.aclose()
        return streaming.gone.is_set()

    assert asyncio.run(read()) != is_read
