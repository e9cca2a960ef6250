"""The server: users, conversations, documents and memory over HTTP; answers in shared batches."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from fastapi.testclient import TestClient

from turngraph import infer
from turngraph.benchmarks.speed.serving import free_address
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.jsonlines import write_pool
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.scoring.confidence import FEATURES, Calibration, Confidence
from turngraph.data.types import NOT_IN_EVIDENCE, Evidence, Retrieved
from turngraph.inference.api import QA
from turngraph.inference.serve import limited_reading
from turngraph.inference.serve.app import make_app
from turngraph.inference.serve.engine import Engine, Late
from turngraph.inference.serve.limits import BodyLimit
from turngraph.inference.serve.memory_routes import Forget
from turngraph.inference.serve.openai_routes import ChatMessage, ChatRequest, Ending, dialogue
from turngraph.inference.serve.run_server import serve
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.service import Service
from turngraph.inference.serve.streams import passage_json
from turngraph.inference.serve.users import Users, add_user
from turngraph.inference.session import Session
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import Generated
from turngraph.tests.chatting import CONVERSATION, QUESTIONS
from turngraph.tests.tiny import END_ID, tiny_examples, tiny_model
from turngraph.tests.waiting import wait_until

Json = dict[str, Any]
Start = Callable[..., TestClient]


@pytest.fixture
def pool(tmp_path: Path) -> str:
    write_pool(tmp_path / "pool.jsonl", CONVERSATION.evidence)
    return str(tmp_path / "pool.jsonl")


@pytest.fixture
def start(qa: QA, pool: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a server over the same folder, as often as it is called."""
    services = list[Service]()
    with ExitStack() as stack:

        def run(users: Users | None = None, **options: Any) -> TestClient:
            given = {"evidence": (pool,), "memory_dir": "is kept", "max_new_tokens": 8} | options
            service = Service(qa, ServeOptions(**given), tmp_path / "users")
            services.append(service)
            app = make_app(service, users or Users(None), "localhost")
            return stack.enter_context(TestClient(app, base_url="http://127.0.0.1:8080"))

        yield run
    assert not sum(service.engine.num_admitted for service in services)
    assert not sum(bool(service.places._taken) for service in services)


def ask(client: TestClient, id_: str, question: str, **headers: str) -> Json:
    reply = client.post(
        f"/api/conversations/{id_}/ask", json={"question": question, "stream": False}, **headers
    )
    assert reply.status_code == 200, reply.text
    return reply.json()


def events(text: str) -> list[tuple[str, Json]]:
    found = [block.split("\n") for block in text.strip().split("\n\n")]
    return [(kind.removeprefix("event: "), json.loads(data[6:])) for kind, data in found]


def test_a_conversation_is_answered_as_in_a_chat_and_outlives_the_server(
    start: Start, qa: QA
) -> None:
    alone = Session(qa.model, qa.builder, CONVERSATION.evidence, None, 8)
    answers = [alone.ask(question) for question in QUESTIONS]
    expected = [answer.text for answer in answers]
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    first = ask(client, id_, QUESTIONS[0])
    assert first["answer"] == expected[0]
    assert {"text", "source", "score", "from_turn"} <= first["evidence"][0].keys()
    scores = [passage["score"] for passage in first["evidence"]]
    assert scores == pytest.approx([item.score for item in answers[0].evidence], abs=1e-4)
    assert 0 <= first["probability"] <= 1
    streamed = client.post(f"/api/conversations/{id_}/ask", json={"question": QUESTIONS[1]})
    *pieces, (kind, last) = events(streamed.text)
    assert kind == "answer"
    assert "".join(data["text"] for _, data in pieces) == last["answer"] == expected[1]

    again = start()  # as after a kill: nothing was closed
    assert [t["answer"] for t in again.get(f"/api/conversations/{id_}").json()["turns"]] == (
        expected[:2]
    )
    assert ask(again, id_, QUESTIONS[2])["answer"] == expected[2]
    assert again.post(f"/api/conversations/{id_}/undo").json() == {"question": QUESTIONS[2]}
    assert ask(again, id_, QUESTIONS[2])["answer"] == expected[2]
    [listed] = again.get("/api/conversations").json()
    assert (listed["id"], listed["title"], listed["num_turns"]) == (id_, QUESTIONS[0], 3)
    why = again.get(f"/api/conversations/{id_}/why").json()
    assert sum(passage["share"] for passage in why["passages"]) == pytest.approx(1, abs=1e-3)
    assert {edge["entity"] for edge in why["edges"]} & {"Peru", "Lima"}
    saved = again.get(f"/api/conversations/{id_}/save").json()
    assert [turn["question"] for turn in saved["turns"]] == QUESTIONS
    assert saved["turns"][0]["evidence"]
    assert again.delete(f"/api/conversations/{id_}").status_code == 204
    assert again.get(f"/api/conversations/{id_}").status_code == 404


def test_clients_of_openai_get_answers_that_depend_on_the_dialogue(start: Start, qa: QA) -> None:
    alone = Session(qa.model, qa.builder, CONVERSATION.evidence, None, 8)
    expected = [alone.ask(question).text for question in QUESTIONS[:2]]
    client = start()
    assert client.get("/v1/models").json()["data"][0]["id"] == "turngraph"
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTIONS[0]},
        {"role": "assistant", "content": expected[0]},
        {"role": "user", "content": [{"type": "text", "text": QUESTIONS[1]}]},
    ]
    whole = client.post("/v1/chat/completions", json={"messages": messages, "temperature": 0})
    body = whole.json()
    [choice] = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": expected[1]}
    assert body["turngraph"]["evidence"]
    read, written, total = body["usage"].values()
    assert (read > written > 0, total) == (True, read + written)
    streamed = client.post("/v1/chat/completions", json={"messages": messages, "stream": True})
    *chunks, done = streamed.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    choices = [json.loads(c[6:])["choices"][0] for c in chunks]
    assert "".join(one["delta"].get("content", "") for one in choices) == expected[1]
    assert {one["index"] for one in [*choices, choice]} == {0}
    finished = [one["finish_reason"] for one in choices]
    assert finished == [None] * (len(chunks) - 1) + [choice["finish_reason"]]
    assert "usage" not in json.loads(chunks[-1][6:])
    stopped = {"messages": messages, "stream": True, "stop": f"{expected[1][-1]}\n"}
    *chunks, _ = client.post("/v1/chat/completions", json=stopped).text.strip().split("\n\n")
    said = [json.loads(c[6:])["choices"][0]["delta"].get("content", "") for c in chunks]
    assert "".join(said) == expected[1]  # with the end that may have been a stop
    with_usage = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = client.post("/v1/chat/completions", json={"messages": messages, **with_usage})
    *chunks, counted = [json.loads(c[6:]) for c in streamed.text.strip().split("\n\n")[:-1]]
    assert (counted["choices"], counted["usage"]) == ([], body["usage"])
    assert {chunk["usage"] for chunk in chunks} == {None}
    for options in ({}, {"include_usage": False}):
        asked = {"messages": messages, "stream": True, "stream_options": options}
        assert '"usage"' not in client.post("/v1/chat/completions", json=asked).text


ASKED = [{"role": "user", "content": "What is the capital"}]
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}


@pytest.mark.parametrize(
    ("messages", "turns", "question"),
    [
        ([*ASKED, CALL, {"role": "tool", "content": "Lima"}], [], ASKED[0]["content"]),
        ([{"role": "assistant", "content": "Hi!"}, *ASKED], [], ASKED[0]["content"]),
        ([*ASKED, CALL, {"role": "user", "content": "of"}], [], "What is the capital of"),
        (
            [*ASKED, {"role": "assistant", "content": "Of"}, {"role": "function", "content": "x"},
             {"role": "assistant", "content": [{"type": "text", "text": "what?"},
                                               {"type": "refusal", "refusal": "no"}]},
             {"role": "user", "content": " "}, {"role": "user", "content": "Peru"},
             {"role": "system", "content": "be brief"}, {"role": "assistant", "content": ""}],
            [("What is the capital", "Of what?")], "Peru",
        ),
    ],
)  # fmt: skip
def test_a_dialogue_is_what_user_and_assistant_say(
    messages: list[Json], turns: list[tuple[str, str]], question: str
) -> None:
    assert dialogue([ChatMessage(**one) for one in messages]) == (turns, question)


REFUSED: list[Json] = [
    *({"messages": m} for m in ([*ASKED, ASKED[0] | {"role": "assistant"}], [], [CALL])),
    *(
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Who?"}, part]}]}
        for part in ({"type": "image_url"}, {"type": "text", "text": 5})
    ),
    {"messages": [{"role": "user", "content": " "}]},
    *({"max_tokens": n} for n in (0, -1)),
    *({"stop": stop} for stop in ("", ["a"] * 5)),
    {"n": 2},
    {"logprobs": True},
    {"top_logprobs": 3},
    {"response_format": {"type": "json_object"}},
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"function_call": {"name": "f"}},
    {"logit_bias": {"5": 1}},
    {"modalities": ["text", "audio"]},
    {"audio": {"voice": "x"}},
    {"web_search_options": {}},
]  # fmt: skip


def test_what_openai_has_and_this_server_does_not_is_refused(start: Start) -> None:
    client = start()
    for given in REFUSED:
        [(field, _)] = given.items()
        reply = client.post("/v1/chat/completions", json={"messages": ASKED} | given)
        assert reply.status_code == 400, reply.text
        error = reply.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["message"].startswith(field)
        assert error["type"] == "invalid_request_error"
        assert error["param"] == field or (field, error["param"]) == ("messages", None)
    images = client.post("/v1/chat/completions", json=REFUSED[3]).json()["error"]["message"]
    assert images == "messages: only parts of type text can be read"
    many = client.post("/v1/chat/completions", json={"messages": ASKED * 1001})
    assert "at most 1000 items" in many.json()["error"]["message"]


@pytest.mark.parametrize(
    ("field", "most", "more"),
    [
        ("messages", ASKED * 1000, ASKED * 1001),
        ("messages", [ASKED[0] | {"content": "x" * n} for n in (1, 100_000)],
         [ASKED[0] | {"content": "x" * 100_001}]),
        ("stop", ["x" * 1000] * 4, ["x" * 1001]),
        ("model", "x" * 500, "x" * 501),
        ("max_tokens", 1, 0), ("max_completion_tokens", 1, 0),
        ("n", 1, 2), ("logprobs", False, True), ("top_logprobs", 0, 1),
    ],
)  # fmt: skip
def test_a_field_of_openai_is_read_up_to_its_limit(field: str, most: Any, more: Any) -> None:
    read = ChatRequest(**{"messages": ASKED} | {field: most}).model_dump(include={field})
    assert read == {field: most}
    with pytest.raises(ValueError, match=field):
        ChatRequest(**{"messages": ASKED} | {field: more})


def test_nulls_are_defaults_and_the_model_has_one_name(start: Start) -> None:
    client = start(max_new_tokens=1)
    asked = {"messages": ASKED, "model": "turngraph"}
    plain = client.post("/v1/chat/completions", json=asked).json()["choices"]
    fields = client.get("/openapi.json").json()["components"]["schemas"]["ChatRequest"][
        "properties"
    ]
    nulls = dict.fromkeys(fields) | asked | {"temperature": None, "tools": None}
    nulls |= {"model": None, "modalities": ["text"], "response_format": {"type": "text"}}
    reply = client.post("/v1/chat/completions", json=nulls)
    assert (reply.status_code, reply.json()["choices"]) == (200, plain), reply.text
    assert client.get("/v1/models/turngraph").json() == client.get("/v1/models").json()["data"][0]
    assert client.get("/readyz").json()["model"] == "turngraph"
    for missing in (
        client.get("/v1/models/other"),
        client.post("/v1/chat/completions", json=asked | {"model": "other"}),
        client.post("/v1/embeddings", json={"input": "x"}),
    ):
        assert missing.status_code == 404
        assert missing.json()["error"]["code"] == "not_found"


def test_an_answer_ends_before_a_text_that_stops_it(start: Start) -> None:
    client, asked = start(), {"messages": [{"role": "user", "content": QUESTIONS[0]}]}
    whole = client.post("/v1/chat/completions", json=asked).json()
    text = whole["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 :][:2]
    stopped = client.post("/v1/chat/completions", json=asked | {"stop": ["\n", stop]}).json()
    expected = text[: text.index(stop)]
    choice = stopped["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (expected, "stop")
    streamed = client.post("/v1/chat/completions", json=asked | {"stop": stop, "stream": True})
    chunks = [json.loads(c[6:]) for c in streamed.text.strip().split("\n\n")[:-1]]
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(deltas) == expected


@pytest.mark.parametrize("size", [1, 2, 9])
def test_nothing_of_a_stop_is_ever_given_out(size: int) -> None:
    text = "Lima and Limassol END of it, END"
    for stops in ([], ["END"], ["EN of", "END o"], ["mass", "END"], ["Lima"], ["none", "EEND"]):
        ending, given = Ending(stops), ""
        for start_ in range(0, len(text), size):
            given += ending.add(text[start_ : start_ + size])
        given += ending.add("", is_last=True)
        assert given == text[: min([text.find(s) for s in stops if s in text], default=None)]
        assert ending.has_ended == any(stop in text for stop in stops)
    ending = Ending(["D", "END"])
    assert [ending.add("Lima E"), ending.add("N")] == ["Lima", " "]  # no more is held back


def test_an_answer_of_a_completion_is_as_long_as_its_client_wants(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, asked = start(), {"messages": [{"role": "user", "content": QUESTIONS[0]}]}
    for given in (
        {"max_tokens": 3},
        {"max_completion_tokens": 3},
        {"max_tokens": 2, "max_completion_tokens": 3},  # the name that OpenAI's API has now
    ):
        body = client.post("/v1/chat/completions", json=asked | given).json()
        assert body["usage"]["completion_tokens"] == 3
        assert body["choices"][0]["finish_reason"] == "length"
    long = client.post("/v1/chat/completions", json=asked | {"max_tokens": 9999}).json()
    assert 3 < long["usage"]["completion_tokens"] <= 8  # the server's own limit
    engine = client.app.state.service.engine
    monkeypatch.setattr(
        EvidenceModel, "end_ids", lambda _, end_id: [end_id, 7]
    )  # the base model's own
    for last in (engine.end_id, 7):
        engine.generate = ending_at_once(last)
        body = client.post("/v1/chat/completions", json=asked).json()
        assert body["choices"][0]["finish_reason"] == "stop"


def ending_at_once(last: int) -> Any:
    def generate(*given: Any, **_: Any) -> Generated:
        given[3](torch.tensor([last]))
        return Generated(torch.tensor([[last]]), torch.zeros(1), torch.ones(1))

    return generate


def test_a_user_sees_nothing_of_another(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    tokens = {name: add_user(path, name) for name in ("ada", "bob")}
    assert path.stat().st_mode & 0o777 == 0o600
    assert not any(token in path.read_text() for token in tokens.values())
    client = start(Users(path))
    ada, bob = ({"headers": {"Authorization": f"Bearer {tokens[n]}"}} for n in ("ada", "bob"))
    id_ = client.post("/api/conversations", **ada).json()["id"]
    ask(client, id_, "I live in Gdynia. Where do I live?", **ada)
    client.put("/api/documents/a.txt", content=b"Gdynia is a port.", **ada)
    for method, route in (
        ("GET", f"/api/conversations/{id_}"),
        ("DELETE", f"/api/conversations/{id_}"),
        ("GET", f"/api/conversations/{id_}/why"),
        ("POST", f"/api/conversations/{id_}/undo"),
        ("DELETE", "/api/documents/a.txt"),
        ("GET", "/api/memory/history?entity=ada"),
    ):
        assert client.request(method, route, **bob).status_code == 404, route
    assert client.get("/api/conversations", **bob).json() == []
    assert client.get("/api/documents", **bob).json() == []
    for header in ({}, {"Authorization": "Bearer x"}, {"Authorization": tokens["ada"]}):
        reply = client.get("/api/conversations", headers=header)
        assert reply.status_code == 401
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert reply.json()["error"]["code"] == "invalid_api_key"
    for route in ("/healthz", "/readyz", "/metrics", "/"):
        assert client.get(route).status_code == 200


def test_what_a_user_states_is_remembered_and_forgotten(start: Start) -> None:
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    for way in ("ask", "plan"):
        assert client.get(f"/api/memory/{way}?question=Where").status_code == 404
    ask(client, id_, "Anna lives in Gdynia.")
    found = client.get("/api/memory/ask", params={"question": "Where does Anna live?"}).json()
    assert "Gdynia" in found["facts"][0]["text"]
    other = client.post("/api/conversations").json()["id"]
    told = ask(client, other, "Where does Anna live?")
    assert any(passage["source"] == "memory" for passage in told["evidence"])
    for mode in ("episodes", "plan", "themes"):
        asked = {"question": "Where does Anna live?", "mode": mode}
        found = client.get("/api/memory/ask", params=asked).json()
        assert found["mode"] == mode
        # what was asked or said in a chat is history; the facts read in it are evidence
        assert found["no_answer"] == (mode == "episodes")
        assert ["Gdynia" in fact["text"] for fact in found["facts"][:1]] == [True] * (
            mode != "episodes"
        )
        assert found["without_themes"] == (mode == "themes")
    assert found["answer"] is None
    asked = {"question": "Where does Anna live?", "answer": True}
    answer = client.get("/api/memory/ask", params=asked).json()["answer"]
    assert isinstance(answer["text"], str)
    assert 0 < answer["probability"] <= 1
    assert client.get("/api/memory/history", params={"entity": "Anna"}).json()
    assert b"Gdynia" in client.get("/api/memory/export").content
    planned = client.get("/api/memory/plan", params={"question": "Where does Anna live?"}).text
    (kind, step), *_, (last, recalled) = events(planned)
    assert (kind, last) == ("step", "answer")
    assert step["text"]
    assert "Gdynia" in recalled["facts"][0]["text"]
    assert recalled["answer"] is None
    _, read = events(client.get("/api/memory/plan", params=asked).text)[-1]
    assert read["answer"]["text"] == answer["text"]
    wanted = {"entity": "Anna", "dry_run": True}
    assert client.post("/api/memory/forget", json=wanted).json()["episodes"] == 2
    assert client.post("/api/memory/forget", json={"entity": "Anna"}).json()["episodes"] == 2
    assert client.get("/api/memory/history", params={"entity": "Anna"}).status_code == 422
    assert client.post("/api/memory/forget", json={}).status_code == 422


def test_the_memory_is_asked_as_of_a_time(start: Start) -> None:
    client = start()
    ask(client, client.post("/api/conversations").json()["id"], "Anna lives in Gdynia.")
    for as_of, is_known in ({}, True), ({"as_of": "2001"}, False):
        asked = {"question": "Where does Anna live?"} | as_of
        _, planned = events(client.get("/api/memory/plan", params=asked).text)[-1]
        for found in (client.get("/api/memory/ask", params=asked).json(), planned):
            assert any("Gdynia" in fact["text"] for fact in found["facts"]) == is_known


def test_answers_from_a_memory_have_a_confidence_of_their_own(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    sure, even = (Calibration((0.0,) * len(FEATURES), bias, 50, 0.1) for bias in (1.0, 0.0))
    both = Confidence(sure, None, of_memory=Confidence(even, 0.9))
    monkeypatch.setattr("turngraph.inference.serve.service.read_confidence", lambda *_: both)
    client = start()
    told = ask(client, client.post("/api/conversations").json()["id"], "Anna lives in Gdynia.")
    asked = {"question": "Where does Anna live?", "answer": True}
    answer = client.get("/api/memory/ask", params=asked).json()["answer"]
    assert (told["confidence"], answer["confidence"]) == (0.7311, 0.5)
    assert answer["text"] == NOT_IN_EVIDENCE


def test_the_steps_of_a_plan_come_before_the_answer(start: Start) -> None:
    client = start(plan="rules")
    id_ = client.post("/api/conversations").json()["id"]
    ask(client, id_, "Anna lives in Gdynia.")
    streamed = client.post(f"/api/conversations/{id_}/ask", json={"question": "Where is Anna?"})
    kinds = [kind for kind, _ in events(streamed.text)]
    assert kinds[0] == "step"
    assert kinds[-1] == "answer"


def test_documents_are_evidence_from_the_next_question_on(start: Start, qa: QA) -> None:
    client = start(evidence=())
    id_ = client.post("/api/conversations").json()["id"]
    assert ask(client, id_, "Who wrote Dune?")["evidence"] == []
    kept = list(qa.builder.retrieval.indexes)
    added = client.put("/api/documents/notes.md", content=b"# Dune\n\nFrank Herbert wrote Dune.\n")
    assert added.json() == {"name": "notes.md", "num_passages": 1, "warnings": []}
    [passage] = ask(client, id_, "Who wrote Dune?")["evidence"]
    assert "Frank Herbert wrote Dune." in passage["text"]
    assert client.get("/api/documents").json()[0]["name"] == "notes.md"
    assert client.delete("/api/documents/notes.md").status_code == 204
    assert ask(client, id_, "Who wrote Dune, again?")["evidence"] == []
    assert list(qa.builder.retrieval.indexes) == kept  # the index of the removed document is gone
    for name, content in (
        ("..%2Fx.txt", b"x"), (".txt", b"x"), ("a.exe", b"x"), ("a.jsonl", b"{"), ("a.pdf", b"%"),
        ("a.docx", b"PK\x03\x04"), ("e.txt", b""), (".hidden.txt", b"x"), ("a%00.txt", b"x"),
        ("a%5Cb.txt", b"x"), ("\u6c49" * 110 + ".txt", b"x"), ("bomb.docx", ZIP_BOMB),
        ("e.jsonl", b""), ("bomb.csv", b'a,b\n"' + b"x," * 10**6), ("deep.html", b"<div>" * 10**5),
    ):  # fmt: skip
        reply = client.put(f"/api/documents/{name}", content=content)
        assert reply.status_code in (404, 405, 422), (name, reply.text)
    assert client.get("/api/documents").json() == []
    common = "Tom's notes, 50 % & more [\u6c49].txt"
    assert client.put(f"/api/documents/{quote(common)}", content=b"x").json()["name"] == common
    assert client.delete(f"/api/documents/{quote(common)}").status_code == 204


with BytesIO() as made, ZipFile(made, "w", ZIP_DEFLATED) as archive:
    archive.writestr("word/document.xml", b"<a>" + b" " * 2**25)
    archive.close()
    ZIP_BOMB = made.getvalue()


def test_a_page_elsewhere_reaches_nothing(start: Start) -> None:
    """Neither under a name of its own for this machine, nor by a form, nor by a script."""
    client, own = start(), "http://127.0.0.1:8080"
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "127.0.0.1:x", ""):
        for path in ("/api/conversations", "/v1/models", "/", "/healthz"):
            reply = client.get(path, headers={"Host": host})
            assert reply.status_code == 400
            error = reply.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert "not reached under this host name" in error["message"]
    for host in ("127.0.0.1", "LOCALHOST:80", "[::1]", "[::1]:8080"):
        assert client.get("/api/conversations", headers={"Host": host}).status_code == 200
    page = client.get("/").headers
    assert page["content-security-policy"].startswith("default-src 'self';")
    assert page["x-content-type-options"] == "nosniff"
    id_ = client.post("/api/conversations").json()["id"]
    form = {"Content-Type": "text/plain", "Origin": "http://evil.example"}
    body = b'{"question": "Who?", "stream": false}'
    route = f"/api/conversations/{id_}/ask"
    assert client.post(route, content=body, headers=form).status_code == 403
    for method, path in (("POST", "/api/conversations"), ("GET", "/api/memory/export")):
        for foreign in (
            {"Origin": "http://evil.example"},
            {"Origin": "http://127.0.0.1:3000"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Origin": own, "Sec-Fetch-Site": "same-site"},
        ):
            assert client.request(method, path, headers=foreign).status_code == 403, foreign
    assert len(client.get("/api/conversations").json()) == 1
    for allowed in ({"Origin": own, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert client.post("/api/conversations", headers=allowed).status_code == 201
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    preflight = client.options(route, headers=asked)
    assert preflight.status_code == 403
    assert "access-control-allow-origin" not in preflight.headers


def test_bad_requests_are_refused_in_one_line(start: Start, monkeypatch: Any) -> None:
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    route = f"/api/conversations/{id_}/ask"
    for body, message in (
        (b"{", "the body is no JSON"),
        (b'{"question": " "}', "question: must not be blank"),
        (b'{"question": "a\\u0000"}', "question: NUL"),
        (b'{"question": 3}', "question: "),
        (b'{"question": "x", "stream": "perhaps"}', "stream: "),
    ):
        reply = client.post(route, content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code == 422, body
        assert message in reply.json()["error"]["message"]
    chat, is_json = "/v1/chat/completions", {"Content-Type": "application/json"}
    for unread in (b"[" * 100_000, b'{"messages": 1' + b"0" * 5_000 + b"}", b'{"model": "\xe9"}'):
        reply = client.post(chat, content=unread, headers=is_json)
        assert reply.status_code == 400
        assert reply.json()["error"]["message"] == "the body is no JSON"
    for kind in ("text/plain", "application/xml"):
        reply = client.post(chat, content=b"{}", headers={"Content-Type": kind})
        assert reply.status_code == 400
        assert "a JSON object, sent as application/json" in reply.json()["error"]["message"]
    long = client.get("/api/memory/ask", params={"question": "x" * 501})
    assert long.json()["error"]["message"] == "question: 501 characters, at most 500 are read"
    assert client.get("/api/memory/ask", params={"question": "x" * 500}).status_code == 404
    when = [{"question": "x", "as_of": "1" * num} for num in (40, 41)]
    statuses = [client.get("/api/memory/ask", params=one).status_code for one in when]
    assert statuses == [404, 422]
    longest = {"messages": [{"role": "user", "content": "x" * 4001}], "stream": True}
    too_long = client.post(chat, json=longest)
    assert (too_long.status_code, too_long.json()["error"]["message"]) == (
        400, "messages: a question of 4,001 characters, at most 4,000 are read",
    )  # fmt: skip
    assert client.post(route, content=b"x" * (2**20 + 1)).status_code == 413
    halves = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
    surrogate = client.post(chat, content=halves, headers=is_json)
    assert (surrogate.status_code, "surrogates" in surrogate.text) == (400, True)
    assert (
        client.post(f"/api/conversations/{'0' * 32}/ask", json={"question": "x"}).status_code == 404
    )
    assert client.get("/api/conversations/..%2F..%2Fetc").status_code in (404, 422)
    refused = client.post(route, json={"question": "word " * 3000})
    assert refused.status_code == 422
    assert refused.json()["error"]["message"] == "question: 15000 characters, at most 4000 are read"
    long = "\u6c49" * 4000  # three tokens each
    refused = client.post(route, json={"question": long, "stream": False})
    assert refused.status_code == 422
    assert "positions" in refused.json()["error"]["message"]
    kind, data = events(client.post(route, json={"question": long}).text)[-1]
    assert kind == "error"
    assert "positions" in data["message"]
    streamed = {"messages": [{"role": "user", "content": long}], "stream": True}
    *_, last = client.post(chat, json=streamed).text.strip().split("\n\n")
    assert "positions" in json.loads(last[6:])["error"]["message"]
    assert client.get(f"/api/conversations/{id_}").json()["turns"] == []


@pytest.mark.parametrize(
    ("field", "most", "more"),
    [
        ("entity", "x" * 500, "x" * 501), ("source", "x" * 500, "x" * 501),
        ("episodes", [1] * 1000, [1] * 1001), ("episodes", [1], [0]),
        ("episodes", [2**63 - 1], [2**63]),
    ],
)  # fmt: skip
def test_what_is_to_be_forgotten_has_limits(field: str, most: Any, more: Any) -> None:
    nothing = {"entity": None, "source": None, "episodes": None, "wide": False, "dry_run": False}
    assert Forget(**{field: most}).model_dump() == nothing | {field: most}
    with pytest.raises(ValueError, match=field):
        Forget(**{field: more})


def test_the_schema_names_the_statuses_of_errors(start: Start) -> None:
    paths = start().get("/openapi.json").json()["paths"]
    errors = {"400", "401", "404", "408", "413", "422", "429", "503", "504"}
    for path, method, done in (
        ("/api/documents", "get", "200"),
        ("/api/conversations", "post", "201"),
        ("/api/conversations/{id_}/ask", "post", "200"),
        ("/v1/models", "get", "200"),
        ("/api/memory/plan", "get", "200"),
    ):
        assert paths[path][method]["responses"].keys() == errors | {done}
    for path in ("/api/conversations/{id_}/ask", "/api/memory/plan", "/v1/chat/completions"):
        [asked] = paths[path].values()
        assert "text/event-stream" in asked["responses"]["200"]["content"]
    assert paths["/readyz"]["get"]["responses"].keys() == {"200", "503"}


def test_a_score_is_told_with_four_decimals() -> None:
    told = passage_json(Retrieved(Evidence("e", "Lima.", "text"), 0.123456, 2))
    assert (told["score"], told["from_turn"], told["text"]) == (0.1235, 2, "Lima.")


TEXTS = ("\0", "\ud800", "\u6c49" * 200)
VALID = {
    "question": "Who?", "entity": "Anna", "stream": False, "max_tokens": 1,
    "messages": [{"role": "user", "content": "Who?"}],
}  # fmt: skip


def test_no_value_of_any_field_breaks_the_server(start: Start) -> None:
    """What schemathesis does at length: each field of each route with values that are none."""
    client = start(max_new_tokens=1)
    id_ = client.post("/api/conversations").json()["id"]
    ask(client, id_, "Anna lives in Gdynia.")
    client = TestClient(client.app, client.base_url, raise_server_exceptions=False)
    schema, statuses = client.get("/openapi.json").json(), set[int]()

    def send(method: str, path: str, **given: Any) -> None:
        reply = client.request(method, path.replace("{id_}", id_), **given)
        assert reply.status_code < 500, (method, path, reply.text)
        statuses.add(reply.status_code)

    routes = [(path, method) for path, found in schema["paths"].items() for method in found]
    for path, method in sorted(routes, key=lambda route: route[1] == "delete"):
        operation = schema["paths"][path][method]
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        name = body["schema"]["$ref"].rpartition("/")[2] if body else None
        for text in TEXTS:
            send(method, path.replace("{name}", quote(text, errors="surrogatepass") + ".txt"))
            for one in operation.get("parameters", ()):
                if one["in"] == "query":
                    known = {"question": "Who?", "entity": "Anna"} | {one["name"]: text}
                    send(method, f"{path}?{urlencode(known, errors='surrogatepass')}")
        for field in schema["components"]["schemas"][name]["properties"] if name else ():
            for value in (*TEXTS, None, 2**70, [], [{"role": "user", "content": TEXTS[1]}]):
                content = json.dumps(VALID | {field: value})
                send(method, path, content=content, headers={"Content-Type": "application/json"})
    operations = (one for found in schema["paths"].values() for one in found.values())
    documented = {int(status) for one in operations for status in one["responses"]}
    assert {200, 201, 404, 422} <= statuses <= documented
    assert {400, 401, 408, 413, 429, 503, 504} <= documented


def test_a_body_that_comes_too_slowly_or_from_a_stranger_is_not_read(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_user(tmp_path / "tokens", "ada")
    monkeypatch.setattr("turngraph.inference.serve.limits.BODY_SECONDS", 0.05)

    async def silent() -> Any:
        asked.append(True)
        await asyncio.sleep(60)

    async def leaving() -> Any:
        return {"type": "http.disconnect"}

    async def status(app: Any, receive: Any = silent) -> int:
        scope = {"type": "http", "method": "PUT", "path": "/api/documents/a.txt", "headers": []}
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return int(sent[0]["status"])

    asked: list[bool] = []
    assert asyncio.run(status(start(Users(tmp_path / "tokens")).app)) == 401
    assert asked == []
    assert asyncio.run(status(BodyLimit(start().app, Users(None)))) == 408
    assert asked == [True]
    assert asyncio.run(status(BodyLimit(start().app, Users(None)), leaving)) == 400

    async def together(app: BodyLimit) -> list[int]:
        return await asyncio.gather(*(status(app) for _ in range(5)))

    monkeypatch.setattr("turngraph.inference.serve.limits.MOST_BODIES", 3)
    app = BodyLimit(start().app, Users(None))
    for _ in range(2):  # those of before have ended
        assert sorted(asyncio.run(together(app))) == [408, 408, 408, 429, 429]


@pytest.mark.parametrize(
    ("of_user", "of_all", "refused"),
    [
        pytest.param(119, 179, ["ada", "cem"], id="too many of one, too many of all"),
        pytest.param(120, 239, ["cem"], id="too many of all"),
        pytest.param(119, 240, ["ada"], id="too many of one"),
        pytest.param(120, 240, [], id="as many as may be"),
    ],
)
def test_bodies_that_come_at_once_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_user: int, of_all: int, refused: list[str]
) -> None:
    monkeypatch.setattr("turngraph.inference.serve.limits.MAX_HELD_OF_USER", of_user)
    monkeypatch.setattr("turngraph.inference.serve.limits.MAX_HELD", of_all)
    monkeypatch.setattr("turngraph.inference.serve.limits.MAX_BODY", 60)
    names = {add_user(tmp_path / "tokens", name): name for name in ("ada", "bob", "cem")}
    tokens, statuses = dict(zip(names.values(), names, strict=True)), list[tuple[str, int]]()

    async def ask_all() -> None:
        may_end = asyncio.Event()

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            assert len((await receive())["body"]) == 60
            await may_end.wait()
            await send({"type": "http.response.start", "status": 200})

        async def post(user: str) -> None:
            async def send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    statuses.append((user, message["status"]))

            parts = [{"type": "http.request", "body": b"x" * 30, "more_body": n} for n in (0, 1)]

            async def receive() -> Any:
                return parts.pop()

            headers = [(b"authorization", f"Bearer {tokens[user]}".encode())]
            scope = {"type": "http", "method": "POST", "path": "/api/x", "headers": headers}
            await app(scope, receive, send)

        app = BodyLimit(answer, Users(tmp_path / "tokens"))
        waiting = [asyncio.ensure_future(post(user)) for user in ("ada", "bob", "ada", "cem")]
        await asyncio.sleep(0)
        assert statuses == [(user, 429) for user in refused]
        may_end.set()
        await asyncio.gather(*waiting)
        await post("ada")
        assert not app._held

    asyncio.run(ask_all())
    assert [status for _, status in statuses[len(refused) :]] == [200] * (5 - len(refused))


@pytest.mark.parametrize(
    ("method", "path", "most"),
    [
        ("PUT", "/api/documents/a.txt", 5), ("POST", "/api/documents/a.txt", 3),
        ("PUT", "/api/conversations", 3), ("POST", "/v1/chat/completions", 3),
    ],
)  # fmt: skip
def test_a_document_alone_may_be_longer_than_a_request(
    method: str, path: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turngraph.inference.serve.limits.MAX_BODY", 3)
    monkeypatch.setattr("turngraph.inference.serve.limits.MAX_DOCUMENT", 5)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        sent.append(await receive())
        assert await receive() == {"type": "http.disconnect"}

    async def send_all(size: int) -> Any:
        messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"x" * size}]

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await app({"type": "http", "method": method, "path": path, "headers": []}, receive, send)

    app = BodyLimit(answer, Users(None))
    sent: list[Any] = []
    asyncio.run(send_all(most))
    assert sent == [{"type": "http.request", "body": b"x" * most, "more_body": False}]
    sent.clear()
    asyncio.run(send_all(most + 1))
    assert sent[0]["status"] == 413
    assert f"more than {most} bytes" in sent[1]["body"].decode()


def test_refusals_are_logged_without_their_text(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    client.app.state.service.engine.admit = fail_unexpectedly
    client = TestClient(client.app, client.base_url, raise_server_exceptions=False)
    id_ = client.post("/api/conversations").json()["id"]
    with caplog.at_level("INFO", "serve"):
        client.put("/api/documents/secret.exe", content=b"secret")
        client.get("/api/memory/ask", params={"question": "secret", "as_of": "secret"})
        client.post(f"/api/conversations/{id_}/ask", json={"question": ["secret"]})
        client.post("/v1/chat/completions", json={"messages": "secret"})
        client.get("/secret")
        monkeypatch.setattr(Service, "is_ready", False)
        assert client.get("/readyz").status_code == 503  # which is asked often: not logged
        failed = client.post(f"/api/conversations/{id_}/ask", json={"question": "secret"})
    assert failed.json()["error"]["message"] == "the server could not answer"
    assert [record.message for record in caplog.records if record.name == "serve"] == [
        "PUT /api/documents/{name}: 422",
        "GET /api/memory/ask: 404",
        "POST /api/conversations/{id_}/ask: 422",
        "POST /v1/chat/completions: 400",
        "GET a path: 404",
    ]
    assert "secret" not in caplog.text.replace("/secret", "")


def fail_unexpectedly(*_: object) -> None:
    raise RuntimeError("broken")


def test_prometheus_reads_how_much_is_asked(start: Start) -> None:
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    ask(client, id_, QUESTIONS[0])
    found = client.get("/metrics").text
    for line in (
        "# TYPE turngraph_answers_total counter",
        "turngraph_answers_total 1.0",
        "# TYPE turngraph_answers_running gauge",
        "turngraph_questions_waiting 0.0",
        'turngraph_held{what="conversations"} 1.0',
    ):
        assert line in found.splitlines()
    body = {"messages": [{"role": "user", "content": QUESTIONS[0]}]}
    usage = client.post("/v1/chat/completions", json=body).json()["usage"]
    before, after = (
        float(text.partition("\nturngraph_tokens_total ")[2].split("\n")[0])
        for text in (found, client.get("/metrics").text)
    )
    assert after - before == usage["completion_tokens"]


def test_many_completions_do_not_hold_other_routes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(Service, "_answer", lambda *_: may_end.wait(60) and fail("ended"))
    client = start()
    body = {"messages": [{"role": "user", "content": "Who?"}]}
    with ThreadPoolExecutor(50) as threads:
        asked = [
            threads.submit(client.post, "/v1/chat/completions", json=body) for _ in range(50)
        ]  # more than the threads of routes, which are 40
        wait_until(lambda: client.app.state.service.engine.num_admitted == 50)
        assert client.get("/api/conversations").json() == []
        assert not any(one.done() for one in asked)
        may_end.set()
        assert {one.result().status_code for one in asked} == {400}


def test_a_deadline_counts_from_the_arrival_of_a_question(start: Start) -> None:
    client, may_go_on = start(deadline=0.2), threading.Event()
    service = client.app.state.service
    id_ = client.post("/api/conversations").json()["id"]
    service.run("local", id_, lambda _: may_go_on.wait(60))  # what was asked before
    route, asked = f"/api/conversations/{id_}/ask", {"question": "Who?", "stream": False}
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(client.post, route, json=asked)
        wait_until(lambda: service.engine.num_admitted == 1)
        time.sleep(0.2)
        service.options = ServeOptions()  # a new deadline would be far
        may_go_on.set()
        assert late.result().status_code == 504


def test_a_question_that_is_late_waits_for_no_other(start: Start) -> None:
    client = start(deadline=0.01)
    service = client.app.state.service
    turns = [{"role": role, "content": "Who?"} for role in ("user", "assistant")]
    body = {"messages": [*turns, turns[0]]}
    built = service.qa.builder.counts["graphs"]
    with ThreadPoolExecutor(1) as threads, service.building.of("another"):
        late = threads.submit(client.post, "/v1/chat/completions", json=body)
        wait_until(lambda: late.done() or service.engine.num_admitted == 1)
        time.sleep(0.02)
    assert late.result().status_code == 504
    assert service.qa.builder.counts["graphs"] == built


def test_too_many_questions_wait_and_late_ones_end(start: Start) -> None:
    client = start(max_batch=1, max_waiting=1, deadline=1e-6)
    service = client.app.state.service
    admissions = [service.engine.admit("local") for _ in range(2)]
    id_ = client.post("/api/conversations").json()["id"]
    refused = client.post(f"/api/conversations/{id_}/ask", json={"question": "Who?"})
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    seconds = int(refused.headers["Retry-After"])
    assert seconds >= 1
    assert f"too many questions are waiting; ask again in {seconds} second" in refused.text
    for admission in admissions:
        admission.end()
    late = client.post(f"/api/conversations/{id_}/ask", json={"question": "Who?", "stream": False})
    assert late.status_code == 504
    assert client.get(f"/api/conversations/{id_}").json()["turns"] == []
    assert service.engine.num_admitted == 0


def test_an_answer_that_is_withheld_is_never_shown_in_part(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = Confidence(Calibration((0.0,) * len(FEATURES), 0.0, 50, 0.1), 0.9)
    monkeypatch.setattr("turngraph.inference.serve.service.read_confidence", lambda *_: strict)
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    streamed = client.post(f"/api/conversations/{id_}/ask", json={"question": QUESTIONS[0]})
    *pieces, (_, last) = events(streamed.text)
    assert [data for _, data in pieces] == [{"text": NOT_IN_EVIDENCE}]
    assert (last["answer"], last["confidence"]) == (NOT_IN_EVIDENCE, 0.5)
    assert last["withheld"]
    why = client.get(f"/api/conversations/{id_}/why").json()
    assert why["answer"] == last["withheld"]
    body = {"messages": [{"role": "user", "content": QUESTIONS[0]}], "stream": True}
    chunks = client.post("/v1/chat/completions", json=body).text.strip().split("\n\n")[:-1]
    deltas = [json.loads(c[6:])["choices"][0]["delta"].get("content", "") for c in chunks]
    assert "".join(deltas) == NOT_IN_EVIDENCE


def test_a_conversation_that_could_not_be_opened_is_opened_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    id_ = client.post("/api/conversations").json()["id"]
    with monkeypatch.context() as patch:
        patch.setattr(Service, "_new_session", lambda *_: fail("memory.db: damaged"))
        reply = client.post(
            f"/api/conversations/{id_}/ask", json={"question": "Who?", "stream": False}
        )
        assert reply.json()["error"]["message"] == "memory.db: damaged"
    assert ask(client, id_, QUESTIONS[0])["turn"] == 0


def test_the_conversation_asked_longest_ago_is_closed_and_goes_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turngraph.inference.serve.service.MAX_OPEN", 1)
    client = start()
    ids = [client.post("/api/conversations").json()["id"] for _ in range(3)]
    for turn in range(2):
        assert [ask(client, id_, QUESTIONS[0])["turn"] for id_ in ids] == [turn] * 3
    assert client.app.state.service.held()["conversations"] <= 2
    monkeypatch.setattr("turngraph.inference.serve.service.MAX_OPEN", 2)
    first, second, third = ids
    for id_ in (first, second, first, third):
        ask(client, id_, QUESTIONS[1])
    assert [id_ for _, id_ in client.app.state.service._open] == [first, third]
    assert client.app.state.service._states.keys() == client.app.state.service._open.keys()


def fail(message: str) -> None:
    raise UserError(message)


def test_what_idle_conversations_can_make_again_is_freed(start: Start) -> None:
    client = start(prefix_tokens=1)
    service = client.app.state.service
    ids = [client.post("/api/conversations").json()["id"] for _ in range(3)]
    for id_ in ids:
        ask(client, id_, "Anna lives in Gdynia. Where does she live?")
    held = service.held()
    assert (held["conversations"], held["memory_graphs"]) == (3, 1)
    sessions = [one._pool.submit(one._session.result).result() for one in service._open.values()]
    assert ["_recall" in vars(one.persistent.graph) for one in sessions] == [False, False, True]
    num_last = service._open["local", ids[-1]].num_prefix_tokens
    assert num_last > 0
    wait_until(lambda: service.held()["prefix_tokens"] == num_last)
    told = ask(client, ids[0], "Where does Anna live?")
    assert any(passage["source"] == "memory" for passage in told["evidence"])


def test_what_is_kept_of_many_users_has_a_limit(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turngraph.inference.serve.service.MAX_REMEMBERING", 2)
    monkeypatch.setattr("turngraph.inference.serve.documents.MAX_POOLS", 2)
    names = ["ada", "bob", "cem"]
    users = {n: {"Authorization": f"Bearer {add_user(tmp_path / 'tokens', n)}"} for n in names}
    client = start(Users(tmp_path / "tokens"))
    service, ids = client.app.state.service, dict[str, str]()
    before = service.qa.builder.num_cached["indexes"]
    for name, headers in users.items():
        client.put("/api/documents/a.txt", content=f"{name} wrote Dune.".encode(), headers=headers)
        ids[name] = client.post("/api/conversations", headers=headers).json()["id"]
        for question in ("Anna lives in Gdynia.", "Where does Anna live?"):
            ask(client, ids[name], question, headers=headers)
    counts = service.held()
    kinds = ("conversations", "memory_graphs", "document_pools")
    assert [counts[kind] for kind in kinds] == [3, 2, 2]
    assert counts["indexes"] == before + 2  # that of the first user is gone with the pool
    (service.user_folder("cem") / "documents" / "a.txt").write_text("By another server.")
    ask(client, ids["cem"], "Who wrote Dune?", headers=users["cem"])
    assert service.held()["indexes"] == before + 2
    told = ask(client, ids["ada"], "Who wrote Dune?", headers=users["ada"])
    assert any("ada wrote" in passage["text"] for passage in told["evidence"])
    assert service.held()["document_pools"] == 2
    client.put("/api/documents/a.txt", content=b"Dune is a book.", headers=users["ada"])
    assert service.held()["document_pools"] == 1


def test_nothing_of_an_answer_waits_for_the_garbage_collector(start: Start) -> None:
    client, body = start(), {"messages": [{"role": "user", "content": QUESTIONS[0]}]}
    gc.collect()
    gc.disable()
    try:
        before = num_sessions()
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        id_ = client.post("/api/conversations").json()["id"]
        ask(client, id_, "Anna lives in Gdynia. Where does she live?")
        assert num_sessions() == before + 1
        assert client.delete(f"/api/conversations/{id_}").status_code == 204
        # the executor's thread holds its task for a moment after the reply
        wait_until(lambda: num_sessions() == before, pause=0.1)
    finally:
        gc.enable()


def num_sessions() -> int:
    return sum(type(one) is Session for one in gc.get_objects())


def test_the_encoder_is_loaded_once_at_the_start(
    start: Start, qa: QA, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load, texts, by = threading.Event(), list[str](), set[str]()

    def encode(new: list[str]) -> Any:
        texts.extend(new)
        by.add(threading.current_thread().name)
        may_load.wait()
        return word_vectors(new)

    monkeypatch.setattr(qa.builder, "embed", None)
    monkeypatch.setattr("turngraph.inference.serve.service.sentence_encoder", lambda _: encode)
    client = start()
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    id_ = client.post("/api/conversations").json()["id"]
    with ThreadPoolExecutor(1) as threads:
        early = threads.submit(ask, client, id_, QUESTIONS[0])
        may_load.set()
        assert early.result()["turn"] == 0
    asked = client.get("/api/memory/ask", params={"question": "Who keeps the key?"})
    assert asked.status_code == 200
    assert "Who keeps the key?" in texts
    assert texts.count("loaded") == 1
    assert len(by) == 1, "each thread that encodes keeps buffers of its own"
    assert client.get("/readyz").status_code == 200


def test_many_conversations_at_once_are_answered_as_each_alone(start: Start, qa: QA) -> None:
    def alone(number: int) -> list[str]:
        session = Session(qa.model, qa.builder, CONVERSATION.evidence, None, 8)
        return [session.ask(question).text for question in questions(number)]

    def questions(number: int) -> list[str]:
        return random.Random(number).sample(QUESTIONS, 2)

    def served(number: int) -> list[str]:
        id_ = client.post("/api/conversations").json()["id"]
        return [ask(client, id_, question)["answer"] for question in questions(number)]

    client = start(memory_dir=None)
    with ThreadPoolExecutor(32) as threads:
        found = list(threads.map(served, range(32)))
    first = {tuple(questions(n)): n for n in range(32)}
    known = {asked: alone(number) for asked, number in first.items()}
    assert found == [known[tuple(questions(n))] for n in range(32)]


def test_the_engine_evicts_rows_whose_caller_leaves_and_outlives_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turngraph.inference.serve.engine.SECONDS_PER_CHECK", 0.05)
    model = tiny_model().eval()
    engine = Engine(model, END_ID, 2**14, 2, 128)
    batch = collate(tiny_examples(1), "left", with_target=False)
    expected = model.generate(batch, 40, END_ID).ids.tolist()

    def leave(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.generate(batch, 400, END_ID, leave)
    with pytest.raises(Late):
        engine.generate(batch, 400, END_ID, deadline=time.monotonic())
    for deadline in (None, time.monotonic() + 3600):
        with engine._changed, pytest.raises(ZeroDivisionError):  # nothing is decoded meanwhile
            engine.generate(batch, 400, END_ID, deadline=deadline, check=lambda: leave(None))
    assert engine.generate(batch, 40, END_ID).ids.tolist() == expected
    assert engine._running.rows == []
    wait_until(lambda: not engine.num_running)
    failed = list[Exception]()

    def fail(error: Exception) -> Any:
        if not engine._running.rows:  # the turn in which the rows before were evicted
            return []
        failed.append(error)
        raise error

    for error, told in (
        (RuntimeError("broken"), "^broken$"),
        (torch.OutOfMemoryError("CUDA"), "the prompt is too long for a batch with the other"),
    ):
        step = engine._running.step
        engine._running.step = partial(fail, error)
        with pytest.raises(Exception, match=told):
            engine.generate(batch, 40, END_ID)
        assert failed.pop() is error
        assert step is not engine._running.step
        assert engine.generate(batch, 40, END_ID).ids.tolist() == expected
    engine.close()
    with pytest.raises(Exception, match="stops"):
        engine.generate(batch, 1, END_ID)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "no user in it"),
        ("ada", "line 1: must be a user's name and a SHA-256"),
        (f"../x {'0' * 64}", "line 1: must be"),
        (f"# who\nada {'0' * 64}\nada {'1' * 64}", "line 3: user ada has a token already"),
        (f"ada {'0' * 64}\nAda {'1' * 64}", "line 2: user Ada differs in case alone from ada"),
    ],
)
def test_a_wrong_file_of_tokens_is_refused(lines: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(lines)
    with pytest.raises(ValueError, match=message):
        Users(tmp_path / "tokens")


def test_the_command_serves_until_it_is_stopped(
    graph_checkpoint: str, pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import uvicorn

    def run(server: uvicorn.Server, sockets: list[Any]) -> None:
        assert [one.getsockname() for one in sockets] == [("127.0.0.1", port)]
        assert begun.pop() == "readers of documents"
        with TestClient(server.config.app, base_url=f"http://localhost:{port}") as client:
            id_ = client.post("/api/conversations").json()["id"]
            found.append(ask(client, id_, QUESTIONS[0]))
            assert server.config.timeout_graceful_shutdown > ServeOptions().deadline

    def stop_soon(server: uvicorn.Server, _: list[Any]) -> None:
        with TestClient(server.config.app):
            wait_until(lambda: server.should_exit)

    found: list[Json] = []
    begun: list[str] = []
    start = limited_reading.forkserver.ensure_running
    monkeypatch.setattr(
        limited_reading.forkserver,
        "ensure_running",
        lambda: (begun.append("readers of documents"), start()),
    )
    port = int(free_address().rpartition(":")[2])
    monkeypatch.setattr(uvicorn.Server, "run", run)
    command = ["serve", "--checkpoint", graph_checkpoint, "--evidence", pool, "--device", "cpu"]
    command += ["--max_new_tokens", "2", "--port", str(port)]
    infer.main(command)
    infer.main([*command, "--memory_dir", str(tmp_path / "served")])
    assert found[0]["answer"] == found[1]["answer"]
    assert (tmp_path / "served" / "local" / "conversations.db").is_file()
    assert (tmp_path / "served").stat().st_mode & 0o777 == 0o700
    infer.main(["serve", "--tokens", str(tmp_path / "tokens"), "--add_user", "ada"])
    token = capsys.readouterr().out.split()[-1]
    assert Users(tmp_path / "tokens").user_of(f"Bearer {token}") == "ada"
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr("turngraph.inference.serve.service.sentence_encoder", lambda _: fail)
        patch.setattr(uvicorn.Server, "run", stop_soon)
        with pytest.raises(ValueError, match="loaded"):
            infer.main([*command, "--memory_dir", str(tmp_path / "served")])
    for wrong, message in (
        (["serve", "--add_user", "ada"], "--add_user needs --tokens"),
        (["serve", "--add_user", "a/b", "--tokens", "x"], "user 'a/b'"),
        ([*command, "--memory_dir", str(tmp_path / "file" / "x")], "--memory_dir"),
        ([*command, "--abstain_below", "0.5"], "no calibrated confidence"),
    ):
        with pytest.raises(ValueError, match=message):
            infer.main(wrong)


@pytest.mark.parametrize("host", ["0.0.0.0", "example.org"])
def test_other_machines_are_served_with_tokens_only(host: str) -> None:
    with pytest.raises(ValueError, match="with --tokens only"):
        serve("x", None, ServeOptions(), None, host, 80)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("batch_tokens", 0), ("max_batch", -1), ("max_waiting", 0), ("prefix_tokens", 0)),
        *(
            ("deadline", 0.0),
            ("deadline", 1e10),
            ("deadline", float("inf")),
            ("abstain_below", 1.5),
        ),
    ],
)
def test_options_out_of_range_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}: {value} given"):
        ServeOptions(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(UserError, match="--memory: must begin with postgresql"):
        ServeOptions(memory="my.db")
