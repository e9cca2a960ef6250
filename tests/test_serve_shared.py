# ruff: noqa: F811 - fixtures of another file
"""Several servers over one PostgreSQL database: conversations and memories are shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from turngraph.benchmarks.speed.serving import free_address
from turngraph.data.memory_graph.record.place import of_tenant
from turngraph.inference.api import QA
from turngraph.inference.serve.conversation_store import Conflict
from turngraph.inference.session import Session
from turngraph.tests.chatting import CONVERSATION, QUESTIONS
from turngraph.tests.postgres_server import Server
from turngraph.tests.processes import Command
from turngraph.tests.test_serve import Start, ask, pool, start  # noqa: F401
from turngraph.tests.test_serve_faults import forget_and_look
from turngraph.tests.waiting import wait_until

Json = dict[str, Any]


def test_two_servers_share_conversations_and_memories(
    start: Start,
    qa: QA,
    postgres: Server,
) -> None:
    alone = Session(qa.model, qa.builder, CONVERSATION.evidence, None, 8)
    expected = [alone.ask(question).text for question in QUESTIONS]
    url = postgres.program_url()
    one, other = (start(memory=url, memory_dir=None) for _ in range(2))
    id_ = one.post("/api/conversations").json()["id"]
    place = f"/api/conversations/{id_}"
    assert ask(one, id_, QUESTIONS[0])["answer"] == expected[0]
    [left] = one.app.state.service._open.values()
    assert ask(other, id_, QUESTIONS[1])["answer"] == expected[1]
    assert ask(one, id_, QUESTIONS[2])["answer"] == expected[2]
    with pytest.raises(RuntimeError, match="shutdown"):  # closed: another server went on
        left.run(lambda _: None)
    assert other.post(f"{place}/undo").json() == {"question": QUESTIONS[2]}
    assert [turn["answer"] for turn in one.get(place).json()["turns"]] == expected[:2]
    assert ask(one, id_, QUESTIONS[2])["answer"] == expected[2]
    [listed] = other.get("/api/conversations").json()
    assert (listed["title"], listed["num_turns"]) == (QUESTIONS[0], 3)
    assert other.get(f"{place}/why").json()["passages"]
    saved = other.get(f"{place}/save").json()
    given = [one["label"] for turn in saved["turns"] for one in turn.get("answers", [])]
    assert given == [text for text in expected if text]

    ask(other, id_, "Anna lives in Gdynia.")
    told = one.get("/api/memory/ask", params={"question": "Where does Anna live?"}).json()
    assert "Gdynia" in told["facts"][0]["text"]
    ask(one, id_, "Anna moved to Oslo.")  # in the session that another server had gone on with
    assert one.get("/api/memory/history", params={"entity": "Oslo"}).json()
    opened = dict(one.app.state.service._open)
    ask(one, id_, QUESTIONS[0])  # nobody else went on: no session is opened again
    assert one.app.state.service._open == opened
    assert other.post("/api/memory/forget", json={"entity": "Anna"}).json()["episodes"] == 2
    assert other.delete(place).status_code == 204
    assert one.get(place).status_code == 404
    assert one.post(f"{place}/undo").status_code == 404
    assert one.app.state.service.held()["conversations"] == 0


def test_two_answers_at_once_in_one_conversation_are_not_both_kept(
    start: Start,
    postgres: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from turngraph.data.memory_graph.record.postgres_schema import drop_tenant
    from turngraph.data.memory_graph.record.postgres_store import administering
    from turngraph.inference.serve.shared_conversations import SharedConversations

    url = postgres.program_url()
    one, other = (start(memory=url, memory_dir=None) for _ in range(2))
    id_ = one.post("/api/conversations").json()["id"]
    ask(one, id_, QUESTIONS[0])
    session_ask, place = Session.ask, f"/api/conversations/{id_}"

    def asked_while(change: Callable[[], Any]) -> str:
        """Ask, change the conversation before the answer is written, and return the refusal."""

        def meanwhile(self: Session, *given: Any) -> Any:
            monkeypatch.setattr(Session, "ask", session_ask)
            change()
            return session_ask(self, *given)

        monkeypatch.setattr(Session, "ask", meanwhile)
        asked = {"question": QUESTIONS[1], "stream": False}
        reply = one.post(f"{place}/ask", json=asked)
        assert reply.status_code == 409
        return reply.text

    assert "ask again" in asked_while(lambda: ask(other, id_, QUESTIONS[2]))
    assert ask(one, id_, QUESTIONS[1])["turn"] == 2
    assert "ask again" in asked_while(lambda: other.post(f"{place}/undo"))
    assert ask(other, id_, QUESTIONS[1])["turn"] == 2
    assert ask(one, id_, QUESTIONS[2])["turn"] == 3
    talk = SharedConversations(str(of_tenant(url, "local")))
    with pytest.raises(Conflict):  # another has answered since
        talk.remove_turn(id_, 2)
    assert "deleted" in asked_while(lambda: other.delete(place))
    with administering(postgres.url) as db:
        drop_tenant(db, "local")
    for server in (one, other):
        assert server.post(f"{place}/undo").status_code == 404
        wait_until(lambda: not server.app.state.service.held()["conversations"])  # noqa: B023
        assert server.get("/api/conversations").json() == []


@pytest.mark.slow
def test_clients_go_on_at_another_server_when_one_is_killed(
    graph_checkpoint: str,
    pool: str,
    postgres: Server,
) -> None:
    addresses = [free_address() for _ in range(2)]
    command = ["-m", "turngraph", "serve", "--checkpoint", graph_checkpoint, "--device", "cpu"]
    command += ["--max_new_tokens", "4", "--evidence", pool, "--memory", postgres.program_url()]
    servers = [Command(*command, "--address", address) for address in addresses]
    bases = [f"http://{address}" for address in addresses]
    for base in bases:
        wait_until(lambda: _is_ready(base))  # noqa: B023
    answered: dict[str, list[str]] = {}
    stop = threading.Event()

    def chat() -> None:
        """Ask on and on, at the other server whenever one does not answer."""
        place, id_ = 0, ""
        while not stop.is_set():
            with httpx2.Client(base_url=bases[place], timeout=60) as client:
                try:
                    if not id_:
                        id_ = client.post("/api/conversations").json()["id"]
                        answered[id_] = []
                    question = f"Question {len(answered[id_])}?"
                    asked = {"question": question, "stream": False}
                    reply = client.post(f"/api/conversations/{id_}/ask", json=asked)
                    if reply.status_code == 200:
                        answered[id_].append(question)
                except httpx2.HTTPError:
                    place = 1 - place

    threads = [threading.Thread(target=chat) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(answered) == 3 and all(len(a) > 2 for a in answered.values()))
        servers[0].send_signal(9)
        before = {id_: len(asked) for id_, asked in answered.items()}
        wait_until(lambda: all(len(answered[id_]) > num + 2 for id_, num in before.items()))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    with httpx2.Client(base_url=bases[1], timeout=60) as client:
        for id_, asked in answered.items():
            turns = client.get(f"/api/conversations/{id_}").json()["turns"]
            kept = [turn["question"] for turn in turns]
            assert set(asked) <= set(kept)
    servers[1].send_signal(15)
    servers[1].communicate()


def _is_ready(base: str) -> bool:
    try:
        return bool(httpx2.get(f"{base}/readyz").status_code == 200)
    except httpx2.HTTPError:
        time.sleep(0.2)
        return False


def test_what_is_forgotten_stays_forgotten_in_a_shared_conversation(
    start: Start, postgres: Server
) -> None:
    forget_and_look(start, memory=postgres.program_url(), memory_dir=None)
