"""The endpoint extractor against a real server on this machine."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turngraph.data.memory_graph.extract import replies
from turngraph.data.memory_graph.extract.budget import Budget, BudgetSpent, Tokens
from turngraph.data.memory_graph.extract.endpoint import (
    EndpointExtractor,
    EndpointSettings,
    wait_seconds,
)
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Fact,
    Thesis,
    Triplet,
    Update,
)
from turngraph.data.memory_graph.record.ingest import remember_many
from turngraph.data.memory_graph.record.store import Store
from turngraph.tests.data.memory_graph.chat_server import Answer, ChatServer, chat_server

EMPTY: dict[str, Any] = {"theses": [], "triplets": [], "times": []}


def thesis(text: str, *entities: str) -> dict[str, Any]:
    item = {"text": text, "entities": list(entities), "when": "", "hypothesis": False}
    return EMPTY | {"theses": [item]}


def extractor(server: ChatServer, **settings: Any) -> EndpointExtractor:
    defaults = {"backoff": 0.01, "max_tokens": 200, "timeout": 300.0}
    return EndpointExtractor(EndpointSettings(server.url, "tiny", **defaults | settings))


def excerpt_of(body: dict[str, Any]) -> str:
    return body["messages"][0]["content"].rpartition("Passage: ")[2].strip()


def echo(body: dict[str, Any], _: int) -> Answer:
    """Reply with the excerpt itself as the only thesis."""
    return Answer(thesis(excerpt_of(body)))


def test_a_plain_reply_and_its_cost() -> None:
    item = {"subject": "Anna", "relation": "lives in", "object": "Oslo", "when": "2020/"}
    reply = EMPTY | {"triplets": [item | {"hypothesis": False}], "times": ["2020"]}
    with chat_server(lambda *_: Answer(reply)) as server:
        found = extractor(server, prompt_price=2.0, completion_price=10.0)
        [said] = found.extract([Episode("Since 2020 Anna lives in Oslo.", "2021-01-01")])
    assert said.triplets == (Triplet("Anna", "lives in", "Oslo", "2020", span=(11, 29)),)
    assert said.times == ("2020",)
    cost = found.cost()
    assert cost["requests"] == 1
    assert cost["prompt_tokens"] + cost["completion_tokens"] == server.tokens
    price = cost["prompt_tokens"] * 2e-6 + cost["completion_tokens"] * 10e-6
    assert cost["cost"] == pytest.approx(price)
    assert found.name == "endpoint:tiny"


def test_the_request_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_KEY", "abc")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server(echo) as server:
        extractor(server, api_key_variable="TINY_KEY").extract([Episode("It rains.")])
        plain = {"response_format": "none", "token_limit": "max_completion_tokens"}
        extractor(server, temperature=None, **plain).extract([Episode("It rains.")])
        extractor(server, response_format="json_object").extract([Episode("It rains.")])
    first, second, third = server.requests
    assert server.headers[0]["Authorization"] == "Bearer abc"
    assert first["model"] == "tiny"
    assert first["max_tokens"] == 200
    assert first["temperature"] == 0
    assert first["response_format"]["json_schema"]["schema"]["required"][0] == "theses"
    assert second["max_completion_tokens"] == 200
    assert not second.keys() & {"max_tokens", "temperature", "response_format"}
    assert third["response_format"] == {"type": "json_object"}
    assert "Authorization" not in server.headers[1]


def test_results_keep_the_order_and_requests_the_limit() -> None:
    both = threading.Barrier(2)

    def answer(body: dict[str, Any], number: int) -> Answer:
        if number < 2:
            both.wait(60)
        return Answer(thesis(excerpt_of(body)), seconds=0.05 * (number % 3))

    texts = [f"Thing number {number} is here." for number in range(12)]
    with chat_server(answer) as server:
        said = extractor(server, concurrency=3).extract([Episode(text) for text in texts])
    assert [one.theses[0].text for one in said] == texts
    assert 2 <= server.most_parallel <= 3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failed_request_is_retried(status: int) -> None:
    def answer(body: dict[str, Any], number: int) -> Answer:
        return Answer(status=status, body="busy") if number < 2 else echo(body, number)

    with chat_server(answer) as server:
        [said] = extractor(server).extract([Episode("It rains.")])
    assert said.theses[0].text == "It rains."
    # after a fault of the network nothing is added
    assert [len(request["messages"]) for request in server.requests] == [1, 1, 1]


def test_the_server_sets_the_pause_before_a_retry() -> None:
    times = []

    def answer(body: dict[str, Any], number: int) -> Answer:
        times.append(time.monotonic())
        late = Answer(status=429, headers={"Retry-After": "0.4"})
        return late if number == 0 else echo(body, number)

    with chat_server(answer) as server:
        extractor(server).extract([Episode("It rains.")])
    assert times[1] - times[0] >= 0.4


def test_the_client_gives_up_on_a_pause_of_an_hour() -> None:
    with (
        chat_server(lambda *_: Answer(status=429, headers={"Retry-After": "3600"})) as server,
        pytest.raises(ValueError, match=r"status 429, and the server asks to wait 3600 s"),
    ):
        extractor(server).extract([Episode("It rains.")])
    assert len(server.requests) == 1


def test_retry_after_as_number_and_as_date() -> None:
    assert wait_seconds("7") == 7
    assert wait_seconds("Fri, 01 Jan 2010 00:00:00 GMT") == 0
    assert wait_seconds("Fri, 01 Jan 2100 00:00:00 GMT") > 1e9
    wrong = (None, "soon", "-3", "nan", "inf", "1e999", "", ";", "Fri, 01 Jan 99999 00:00:00 GMT")
    assert [wait_seconds(text) for text in wrong] == [None] * len(wrong)


GARBAGE = {
    "html": Answer(body="<html><body>Bad gateway</body></html>"),
    "a list": Answer(body="[1, 2]"),
    "no choices": Answer(body='{"choices": []}'),
    "null content": Answer(body='{"choices": [{"message": {"content": null}}]}'),
    "no message": Answer(body='{"choices": [7]}'),
    "prose": Answer("I am sorry, I cannot do that."),
    "cut JSON": Answer('{"theses": [{"text": "It'),
    "another schema": Answer({"facts": []}),
    "wrong type": Answer(EMPTY | {"times": [2020]}),
    "deep": Answer("[" * 100_000),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_invalid_replies_are_retried_and_then_an_error_with_the_origin(kind: str) -> None:
    raised = pytest.raises(ValueError, match=r"the episode letters:7: .* after 3 attempts")
    with chat_server(lambda *_: GARBAGE[kind]) as server, raised as error:
        extractor(server, retries=2).extract([Episode("My secret.", origin="letters:7")])
    assert len(server.requests) == 3
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("prose", "That is not JSON"),
        ("another schema", "Wrong: the reply lacks the field 'theses'"),
        ("wrong type", "Wrong: item 1 of 'times' of the reply must be of the type string"),
    ],
)
def test_the_model_is_told_what_was_wrong_with_its_reply(kind: str, fault: str) -> None:
    def answer(body: dict[str, Any], number: int) -> Answer:
        return GARBAGE[kind] if number == 0 else Answer(EMPTY)

    with chat_server(answer) as server:
        extractor(server, retries=1).extract([Episode("It rains.")])
    first, second = (request["messages"] for request in server.requests)
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert second[0] == first[0]
    assert second[2]["content"] == f"{fault}. Reply again with one JSON object."


def test_a_fence_and_thoughts_around_the_json_are_skipped() -> None:
    text = "<think>{hm}</think>\n```json\n" + json.dumps(thesis("It rains.")) + "\n```"
    with chat_server(lambda *_: Answer(text)) as server:
        [said] = extractor(server, response_format="none").extract([Episode("It rains.")])
    assert said.theses[0].text == "It rains."


def test_a_server_that_is_too_slow() -> None:
    with chat_server(lambda *_: Answer(EMPTY, seconds=0.5)) as server:
        slow = extractor(server, timeout=0.1, retries=1)
        with pytest.raises(
            ValueError, match=r"the episode a: no reply within 0.1 s; .* 2 attempts"
        ):
            slow.extract([Episode("It rains.", origin="a")])
    assert slow.cost()["estimated_requests"] == 2  # it may have answered and billed them


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_reply_that_dribbles_is_given_up(begin: bytes) -> None:
    """The timeout is for the whole reply: a byte now and then does not prolong it."""
    closed = threading.Event()

    def dribble() -> None:
        connection, _ = listening.accept()
        with connection:
            try:
                connection.sendall(begin)
                while not closed.wait(0.02):
                    connection.sendall(b"a")
            except OSError:  # the client has given up
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=dribble)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        slow = EndpointExtractor(EndpointSettings(url, "tiny", timeout=0.3, retries=0))
        with pytest.raises(ValueError, match=r"no reply within 0\.3 s"):
            slow.extract([Episode("It rains.")])
        closed.set()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(body="x" * 80_000), "a reply of more than 78336 bytes"),
        (Answer(body="{}", headers={"Content-Encoding": "gzip"}), "a compressed reply"),
    ],
)
def test_a_reply_is_read_up_to_a_limit(answer: Answer, reason: str) -> None:
    """What is compressed could be of any size, and is not read at all."""
    with chat_server(lambda *_: answer) as server, pytest.raises(ValueError, match=reason):
        extractor(server, retries=0).extract([Episode("It rains.")])
    assert server.headers[0]["Accept-Encoding"] == "identity"


def test_no_password_or_control_character_reaches_a_message() -> None:
    said = json.dumps({"error": "no \x1b[2J model\x07"})
    with chat_server(lambda *_: Answer(status=400, body=said)) as server:
        url = server.url.replace("://", "://me:pass%40word@")
        asked = EndpointExtractor(EndpointSettings(url, "tiny"))
        with pytest.raises(ValueError, match=r"status 400: no \ufffd\[2J model\ufffd$") as error:
            asked.extract([Episode("It rains.")])
    message = str(error.value)
    assert message.startswith("http://127.0.0.1:")
    assert message.isprintable()
    assert not any(word in message for word in ("pass", "word", "me:"))
    for wrong in ("ftp://me:password@host", "http://me:password@ho st:x", "http://a?key=password"):
        with pytest.raises(ValueError, match="base_url") as error:
            EndpointSettings(wrong, "tiny")
        assert "password" not in str(error.value)


HIDDEN = "Zorglub hid it under the third stone."
REFUSALS = {
    "wrong key sk-SECRET": "status 400$",
    "wrong key sk-\u200bsecret": "status 400$",
    "wrong key ...secret": "status 400$",
    "cannot read UNDER THE THIRD\tSTONE": "status 400$",
    "flagged: 'Zorglub' and 'stone'": r"status 400: flagged: '\u2026' and '\u2026'$",
    "the model is not known": "status 400: the model is not known$",
}


@pytest.mark.parametrize("said", REFUSALS)
def test_a_refusal_repeats_no_word_of_the_text_or_the_key(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no case, spacing or part."""
    monkeypatch.setenv("TINY_KEY", "sk-secret")
    for record in ({"error": {"message": said}}, {"detail": said}, {"detail": [{"msg": said}]}):
        body = json.dumps(record)
        with (
            chat_server(lambda *_, body=body: Answer(status=400, body=body)) as server,
            pytest.raises(ValueError, match=REFUSALS[said]),
        ):
            extractor(server, api_key_variable="TINY_KEY").extract([Episode(HIDDEN)])
        assert len(server.requests) == 1  # it is not retried


def test_usage_that_no_request_can_have_is_estimated(caplog: pytest.LogCaptureFixture) -> None:
    def answer(body: dict[str, Any], _: int) -> Answer:
        usage = {"prompt_tokens": 10**400, "completion_tokens": 1}
        choice = {"message": {"content": json.dumps(EMPTY)}, "finish_reason": "stop"}
        return Answer(body=json.dumps({"choices": [choice], "usage": usage}))

    with chat_server(answer) as server:
        found = extractor(server, prompt_price=1.0)
        assert found.extract([Episode("It rains.")]) == [Extraction()]
    assert found.cost()["estimated_requests"] == 1
    assert found.cost()["cost"] < 1
    assert caplog.text == ""


def test_a_name_of_many_characters_is_not_compared_by_similarity() -> None:
    item = {"subject": "a b" * 10_000, "relation": "is", "object": "b", "when": ""}
    reply = EMPTY | {"triplets": [item | {"hypothesis": False}]}
    ratios = []
    with chat_server(lambda *_: Answer(reply)) as server, pytest.MonkeyPatch.context() as patch:
        ratio = replies.fuzz.partial_ratio
        patch.setattr(
            replies, "fuzz", SimpleNamespace(partial_ratio=lambda *t: ratios.append(t) or ratio(*t))
        )
        [said] = extractor(server, max_tokens=2000).extract([Episode("It rains.")])
    assert len(said.triplets) == 1
    assert all(len(name) <= replies.MAX_TEXT for name, _ in ratios)


def test_a_dead_server() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    dead = EndpointExtractor(EndpointSettings(url, "tiny", backoff=0.01, retries=2, budget=9000))
    with pytest.raises(ValueError, match=rf"{url}.*the episode a: no connection.* 3 attempts"):
        dead.extract([Episode("It rains.", origin="a")])
    assert dead.cost()["prompt_tokens"] == 0


def test_a_key_that_is_not_set_is_named() -> None:
    with (
        chat_server(lambda *_: Answer(status=401)) as server,
        pytest.raises(ValueError, match="status 401; the environment variable NO_KEY is not"),
    ):
        extractor(server, api_key_variable="NO_KEY").extract([Episode("It rains.")])


def test_a_reply_that_runs_out_of_tokens_is_requested_in_parts() -> None:
    def answer(body: dict[str, Any], _: int) -> Answer:
        text = excerpt_of(body)
        whole = text.count(".") == 1
        return Answer(thesis(text), finish="stop" if whole else "length")

    text = "Anna is here. Ben is there. Cleo is away. Dora sleeps."
    with chat_server(answer) as server:
        found = extractor(server)
        [said] = found.extract([Episode(text)])
    assert [one.text for one in said.theses] == re.findall(r"\w[^.]*\.", text)
    assert [text[slice(*one.span)] + "." for one in said.theses] == [t.text for t in said.theses]


def test_a_too_long_sentence_becomes_a_thesis_by_rules() -> None:
    with chat_server(lambda *_: Answer('{"theses', finish="length")) as server:
        [said] = extractor(server).extract([Episode("  Anna is here. ")])
        assert said.theses == (Thesis("Anna is here.", ("Anna",), span=(2, 15)),)
        with pytest.raises(ValueError, match="reply was cut off"):
            extractor(server).entities("Where is Anna?")
    with (
        chat_server(lambda *_: Answer("", finish="length")) as server,
        pytest.raises(ValueError, match="max_tokens: 200 given, used up before the reply"),
    ):
        extractor(server).extract([Episode("Anna is here.")])


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("usage", [True, False])
def test_the_budget_is_never_exceeded(concurrency: int, usage: bool) -> None:
    def answer(body: dict[str, Any], number: int) -> Answer:
        if number % 5 == 4:
            return Answer("one two three", status=500, usage=False)
        return Answer(thesis(excerpt_of(body)), seconds=0.01, usage=usage)

    budget = 30_000
    with chat_server(answer) as server:
        found = extractor(server, concurrency=concurrency, budget=budget)
        episodes = [Episode(f"Day {number}.") for number in range(1000)]
        with pytest.raises(BudgetSpent, match=f"budget of {budget} tokens: .* are kept"):
            found.extract(episodes)
        asked = len(server.requests)
        with pytest.raises(BudgetSpent):
            found.extract([Episode("One more.")])
    assert len(server.requests) == asked > 3
    assert server.tokens <= found.cost()["prompt_tokens"] + found.cost()["completion_tokens"]
    assert found.cost()["prompt_tokens"] + found.cost()["completion_tokens"] <= budget


def test_facts_remembered_before_the_budget_was_spent_are_kept(tmp_path: Path) -> None:
    episodes = [Episode(f"Day {number}.", origin=str(number)) for number in range(12)]
    with chat_server(echo) as server, Store(tmp_path / "memory.db") as store:
        small = extractor(server, budget=6000)
        with pytest.raises(BudgetSpent):
            remember_many(store, small, episodes, batch=2)
        [(remembered,)] = store.db.execute("SELECT count(*) FROM episodes")
        assert 0 < remembered < 12
        done = remember_many(store, extractor(server, budget=100_000), episodes)
    assert (done.skipped, done.episodes) == (remembered, 12 - remembered)
    assert done.cost["requests"] == done.episodes


def test_tokens_that_a_server_adds_to_prompts_are_counted() -> None:
    budget = Budget(7000)
    with budget.reserve(Tokens(1000, 100)) as reservation:
        reservation.report(Tokens(4000, 100))
    message = "4100 are spent, and the next request could take 4100"
    with pytest.raises(BudgetSpent, match=message), budget.reserve(Tokens(1000, 100)):
        pass


def known(key: int, text: str, since: str | None = None) -> Fact:
    return Fact(key, "simple", text, valid_from=since)


def test_which_facts_are_replaced() -> None:
    def answer(body: dict[str, Any], _: int) -> Answer:
        text = body["messages"][0]["content"]
        assert "1. Anna lives in Paris (since 2010)\n" in text
        assert "New, said 2020-02 by Anna: Anna lives in Oslo\n" in text
        return Answer({"replaced": [3, 1, 1]})

    facts = (known(11, "Anna lives in Paris", "2010"), known(13, "b"), known(15, "c"))
    episode = Episode("I live in Oslo.", "2020-02", speaker="Anna")
    new = Triplet("Anna", "lives in", "Oslo")
    guess = Triplet("Anna", "lives in", "Oslo", hypothesis=True)
    updates = [Update(new, episode, facts), Update(guess, episode, facts), Update(new, episode, ())]
    with chat_server(answer) as server:
        assert extractor(server).replaced(updates) == [(11, 15), (), ()]
    assert len(server.requests) == 1


def test_many_known_facts_are_split_into_several_requests() -> None:
    def answer(body: dict[str, Any], _: int) -> Answer:
        lines = re.findall(r"^(\d+)\. fact (\d+)$", body["messages"][0]["content"], re.MULTILINE)
        return Answer({"replaced": [int(n) for n, fact in lines if int(fact) % 30 == 7]})

    facts = tuple(known(2 * n + 1, f"fact {n}") for n in range(100))
    update = Update(Thesis("x"), Episode("x"), facts)
    with chat_server(answer) as server:
        assert extractor(server).replaced([update]) == [(15, 75, 135, 195)]
    assert len(server.requests) == 3


def test_a_number_of_no_known_fact_is_invalid() -> None:
    update = Update(Thesis("x"), Episode("x"), (known(1, "a"), known(3, "b")))
    refused = pytest.raises(ValueError, match="a reply that breaks the prompt's schema")
    with chat_server(lambda *_: Answer({"replaced": [3]})) as server, refused:
        extractor(server, retries=0).replaced([update])


def test_names_of_a_question() -> None:
    with chat_server(lambda *_: Answer({"entities": ["Ben", " Anna ", "anna", "Eskil"]})) as server:
        found = extractor(server)
        assert found.entities("Where did Anna's friend Ben go?") == ["Ben", "Anna"]
    assert found.cost()["unseen_names"] == 1


def test_no_remembered_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with chat_server(lambda *_: Answer(thesis("Anna stole it.", "Anna"))) as server:
        extractor(server).extract([Episode("Anna stole it.")])
    assert "stole" not in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base_url", "localhost"),
        ("max_tokens", 0),
        ("concurrency", 0),
        ("timeout", 0.0),
        ("budget", -1),
    ],
)
def test_invalid_settings(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        EndpointSettings(**{"base_url": "http://a/v1", "model": "m"} | {name: value})
