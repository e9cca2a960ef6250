"""Planned asking with a local model and with a server, as a user runs it."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from turngraph.data.memory_graph.extract.endpoint import EndpointSettings
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.ontology.model_plan import ModelPlans, plan_prompt
from turngraph.data.memory_graph.ontology.typed_plan import Operation
from turngraph.data.memory_graph.plan.steps import (
    ClueRecall,
    Digest,
    PlanSettings,
    Progress,
    Ready,
    Searched,
)
from turngraph.data.memory_graph.recall.plan_trace import Clue, Step
from turngraph.inference import plan_models
from turngraph.inference.model_options import LANGUAGE_MODEL
from turngraph.inference.plan_models import planner_maker, plans_maker, server_planner
from turngraph.memory import main
from turngraph.tests.data.memory_graph.chat_server import Answer, ChatServer, chat_server
from turngraph.tests.tiny import save_tiny
from turngraph.tests.waiting import PATIENCE

QUESTION = "Who leads the country where Anna was born?"
FIELDS = {
    ("because", "independent", "questions"): "decompose",
    ("steps",): "plan",
    ("entities",): "names",
    ("facts", "answer"): "summarise",
    ("because", "enough"): "enough",
    ("because", "revise", "next"): "revise",
    ("answer",): "answer",
}


def question_of(body: dict[str, Any]) -> str:
    return body["messages"][0]["content"].rpartition("Question: ")[2].strip()


def stage_of(body: dict[str, Any]) -> str:
    schema = body["response_format"]["json_schema"]["schema"]
    return FIELDS[tuple(schema["properties"])]


def value_of(body: dict[str, Any]) -> Any:
    """The reply to a prompt about ``QUESTION``; another prompt raises."""
    about = question_of(body)
    return {
        "decompose": {
            QUESTION: {"because": "a chain", "independent": False, "questions": []},
        },
        "plan": {QUESTION: {"steps": ["Where was Anna born", "Who leads [1]"]}},
        "names": {
            "Where was Anna born": {"entities": ["Anna"]},
            "Who leads Norway": {"entities": ["Norway"]},
        },
        "summarise": {
            "Where was Anna born": {"facts": [1], "answer": "Norway"},
            "Who leads Norway": {"facts": [1], "answer": "Olav"},
        },
        "enough": {QUESTION: {"because": "?", "enough": "[2]" in body["messages"][0]["content"]}},
        "revise": {QUESTION: {"because": "no", "revise": False, "next": []}},
        "answer": {QUESTION: {"answer": "King Olav"}},
    }[stage_of(body)][about]


def by_script(body: dict[str, Any], _: int) -> Answer:
    return Answer(value_of(body))


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = tmp_path / "my.db"
    with MemoryGraph.open(path) as graph:
        for text in ("Anna was born in Norway.", "Olav leads Norway.", "Cem is a cook."):
            graph.remember(text)
    return str(path)


def run(capsys: Any, db: str, *options: object, question: str = QUESTION) -> str:
    """What asking by a plan prints; options stand before the question."""
    capsys.readouterr()
    main(["ask", "--db", db, "--no_embed", *map(str, options), question])
    return str(capsys.readouterr().out)


def endpoint(server: ChatServer, *options: object) -> list[object]:
    """The options of a server; its requests are not repeated."""
    return ["--plan", "endpoint", "--base_url", server.url, "--model", "tiny", "--retries", 0,
            *options]  # fmt: skip


# A server


def test_steps_answer_and_facts_are_printed(db: str, capsys: Any) -> None:
    with chat_server(by_script) as server:
        printed = run(capsys, db, *endpoint(server)).splitlines()
        found = json.loads(run(capsys, db, *endpoint(server), "--json"))
    assert printed[0].split("\t")[:3] == ["1", "Where was Anna born", "Anna"]
    assert printed[0].endswith("→ Norway")
    assert printed[1].split("\t")[:3] == ["2", "Who leads Norway", "Norway"]
    assert printed[1].endswith("→ Olav")
    assert printed[2] == "answer: King Olav (not calibrated)"
    assert any("Olav leads Norway" in line for line in printed[3:])
    assert (found["plan"]["answer"], found["plan"]["stopped"], found["plan"]["calls"]) == (
        "King Olav",
        "enough",
        10,
    )
    assert [stage_of(body) for body in server.requests[:10]] == [
        "decompose", "plan", "names", "summarise", "enough", "revise",
        "names", "summarise", "enough", "answer",
    ]  # fmt: skip
    assert server.requests[0]["max_tokens"] == 1024


def test_several_questions_keep_their_replies(
    db: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n{QUESTION}\n"))
    with chat_server(by_script) as server:
        main(["ask", "--db", db, "--no_embed", "--json", *map(str, endpoint(server))])
    first, again = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["plan"]["calls"], again["plan"]["calls"], len(server.requests)) == (10, 0, 10)
    assert again["plan"]["hits"] == again["plan"]["recalls"] > 0
    assert again["facts"] == first["facts"]


def test_a_budget_spent_in_the_middle_prints_what_was_found(
    db: str, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with chat_server(by_script) as server:
        run(capsys, db, *endpoint(server))
        words = [len(body["messages"][0]["content"].split()) for body in server.requests[:4]]
        largest = max(len(json.dumps(body)) for body in server.requests)
        # what the first calls took, and less than the next may take
        budget = sum(words) + 100 + largest
        caplog.clear()
        with pytest.raises(SystemExit) as stopped, caplog.at_level(logging.WARNING):
            run(capsys, db, *endpoint(server, "--budget", budget, "--max_tokens", 60))
    assert stopped.value.code == 1
    assert "stopped: budget" in caplog.text
    printed = capsys.readouterr().out
    assert "Where was Anna born" in printed
    assert "Anna was born in Norway" in printed
    assert 2 < len(server.requests) - 10 < 10


def test_concurrent_requests_of_a_wave() -> None:
    """Eight clue queries: with four at a time two rounds of requests, with one eight."""
    facts = (Fact(2, "thesis", "Olav leads Norway.", score=0.5),)
    found = tuple(ClueRecall(Clue(f"clue {n}"), facts) for n in range(8))
    step = Searched(Ready(Progress("q", "q"), Step(1, "s"), ("s",)), found)
    most = {}
    for concurrency in (1, 4):
        together = threading.Barrier(concurrency)

        def answer(_: Any, __: int, together: threading.Barrier = together) -> Answer:
            together.wait(PATIENCE)  # until so many requests are there
            return Answer({"facts": [1], "answer": "Olav"})

        with chat_server(answer) as server:
            settings = EndpointSettings(server.url, "tiny", concurrency=concurrency, retries=0)
            planner = server_planner(settings, PlanSettings(max_clues=8), None)
            assert planner.digest([step]) == [Digest(("Olav",), (2,))]
        assert planner.calls == len(server.requests) == 8
        most[concurrency] = server.most_parallel
    assert most == {1: 1, 4: 4}
    assert most[4] >= 2 * most[1]
    assert EndpointSettings("http://a", "tiny").concurrency == 4


@contextmanager
def closed_port() -> Iterator[str]:
    """The URL of a port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def refused(server: Callable[[dict[str, Any], int], Answer], db: str, capsys: Any) -> str:
    with chat_server(server) as running, pytest.raises(ValueError, match=r"stage \w+, ") as error:
        run(capsys, db, *endpoint(running))
    return str(error.value)


def test_what_a_server_does_wrong_is_named_by_stage_and_step_without_text(
    db: str, capsys: Any
) -> None:
    def off(stage: str, answer: Answer) -> Callable[[dict[str, Any], int], Answer]:
        return lambda body, n: answer if stage_of(body) == stage else by_script(body, n)

    messages = [
        refused(off("plan", Answer({"steps": "one"})), db, capsys),
        refused(off("summarise", Answer("I am sorry.")), db, capsys),
        refused(off("revise", Answer(finish="length", content='{"because"')), db, capsys),
        refused(off("enough", Answer(status=500)), db, capsys),
    ]
    assert "stage plan, the sub-question: a reply that breaks the prompt's schema" in messages[0]
    assert "stage summarise, step 1: a reply that is not JSON" in messages[1]
    assert messages[2].startswith(
        "stage revise, after step 1: no complete reply of the prompt's schema"
    )
    assert "stage enough, after step 1: status 500" in messages[3]
    with closed_port() as url, pytest.raises(ValueError, match="no connection") as error:
        run(capsys, db, "--plan", "endpoint", "--base_url", url, "--model", "m", "--retries", 0)
    for message in (*messages, str(error.value)):
        assert not any(word in message for word in ("Anna", "Norway", "country"))


def test_the_local_model_is_the_one_that_is_named_or_the_default(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    for load in ("load_planner", "load_plans"):
        monkeypatch.setattr(plan_models, load, lambda model, *_: loaded.append(model))
    with MemoryGraph.open(db) as graph:
        for options in ({}, {"model": "mine"}):
            planner_maker("lm", PlanSettings(), options)(graph)
            plans_maker("lm", options)(graph)
    assert loaded == [LANGUAGE_MODEL, LANGUAGE_MODEL, "mine", "mine"]


def test_options_of_models_need_their_plan(db: str, capsys: Any) -> None:
    wrong = {
        ("--plan", "endpoint", "--model", "m"): "--plan endpoint needs --base_url",
        ("--plan", "endpoint", "--base_url", "http://a"): "--plan endpoint needs --model",
        ("--plan", "endpoint", "--base_url", "ftp://a", "--model", "m"): "base_url: 'ftp://a'",
        ("--plan", "rules", "--model", "m"): "--model needs --plan lm or endpoint",
        ("--model", "m"): "--model needs --plan lm or endpoint",
        ("--plan", "lm", "--budget", "5"): "--budget needs --plan endpoint",
        ("--plan", "endpoint", "--device", "cpu"): "--device needs --plan lm",
        ("--abstain_below", "0.5"): "--abstain_below needs a reader: give --reader",
        ("--reader", "./missing"): "./missing: no such folder",
        ("--plan", "rules", "--reader", "./missing"): "./missing: no such folder",
    }
    for options, message in wrong.items():
        with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
            run(capsys, db, *options)


# A local model


def test_a_local_model_of_random_weights_plans(
    db: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replies always have their schema; nothing is claimed about what they say."""
    monkeypatch.setattr("turngraph.inference.plan_models.MAX_NEW_TOKENS", 120)
    model = save_tiny(tmp_path / "lm")
    found = json.loads(run(capsys, db, "--plan", "lm", "--model", model, "--steps", 2, "--json"))
    assert 1 <= found["plan"]["calls"] <= 10
    [sub] = found["plan"]["subs"]
    assert sub["question"] == QUESTION
    assert 1 <= len(sub["steps"]) <= 2
    assert found["facts"]


# A checkpoint


def test_a_checkpoint_answers_the_steps_of_rules(
    db: str, capsys: Any, graph_checkpoint: str
) -> None:
    found = json.loads(
        run(capsys, db, "--plan", "rules", "--reader", graph_checkpoint, "--steps", 2, "--json")
    )
    plain = json.loads(run(capsys, db, "--plan", "rules", "--steps", 2, "--json"))
    assert found["plan"]["calls"] == 0
    [read], [ruled] = found["plan"]["subs"], plain["plan"]["subs"]
    assert read["steps"][0]["texts"] == ruled["steps"][0]["texts"]
    assert ruled["steps"][0]["answers"][0] == "Norway"
    assert read["steps"][0]["answers"] != ruled["steps"][0]["answers"]
    assert len(read["steps"][0]["answers"]) <= 1


def test_the_planner_of_computed_answers_is_made_by_name(tmp_path: Path) -> None:
    """A random tiny model writes a plan that fits the schema, or that none was found."""
    server = {"model": "m", "base_url": "http://localhost:1/v1", "device": None}
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        assert isinstance(plans_maker("endpoint", server)(graph), ModelPlans)
        local = plans_maker("lm", {"model": save_tiny(tmp_path / "lm"), "device": None})(graph)
        prompt = plan_prompt("How often did Anna fly?", ("fly", "live in"), ("Anna",))
        [value] = local.replies([prompt])
    assert value["operation"] in (*get_args(Operation), "none")
    assert {fact["term"] for fact in value["facts"]} <= {"fly", "live in"}
