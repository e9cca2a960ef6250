"""A checkpoint whose scorer answers: its explanations, its chats, and its server."""

from __future__ import annotations

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

import turngraph.inference.answer_batches
from turngraph.configs.schema import ScorerConfig
from turngraph.data.batches.collate import candidate_entities
from turngraph.data.jsonlines import write_pool
from turngraph.data.prompt import Prompt
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn
from turngraph.inference.answer_batches import (
    answer_batch,
    lengths_beyond,
    prompt_length,
    surer,
)
from turngraph.inference.api import QA, load
from turngraph.inference.candidates import NUM_SPANS, spans
from turngraph.inference.explain import Given, explain_conversation, why
from turngraph.inference.serve.app import make_app
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.service import Service
from turngraph.inference.serve.users import Users
from turngraph.inference.session import Session
from turngraph.model.node_answers import LONGEST_SPAN
from turngraph.model.reader import Reader
from turngraph.tests.chatting import CONVERSATION, QUESTIONS, Loaded, Screen
from turngraph.tests.scorer_examples import EVIDENCE, read_examples
from turngraph.tests.tiny import LORA, stir, tiny_builder, tiny_conversation, tiny_model
from turngraph.tests.waiting import wait_until


@pytest.fixture(params=[0, 1], ids=["embeddings", "layer"])
def with_scorer(request: pytest.FixtureRequest) -> Loaded:
    layer: int = request.param
    scorer = ScorerConfig(num_layers=2, width=16, dropout=0.0)
    lora = LORA if layer else None
    model = stir(tiny_model(answers="nodes", layer=layer, lora=lora, scorer=scorer))
    builder = tiny_builder(**EVIDENCE)
    prompt = Prompt(builder.prompt.tokenizer, question_first=layer > 0)
    return model, replace(builder, prompt=prompt, mentions=True)


@pytest.fixture(scope="module")
def qa(node_ranker_checkpoint: str) -> QA:
    return load(node_ranker_checkpoint, device="cpu")


def asked(*passages: Evidence) -> Conversation:
    turn = Turn("0", "Where is Lima?", (Answer("Lima"),), evidence=passages)
    return Conversation("c", "", (turn,))


@pytest.mark.parametrize("kept", [None, 40, 10**6])
def test_a_readers_limit_counts_the_nodes_that_the_graph_keeps(
    kept: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = ScorerConfig(num_layers=2, width=16, dropout=0.0, kept_nodes=kept)
    model = tiny_model(layer=1, scorer=scorer)
    builder = tiny_builder(**EVIDENCE)
    prompt = Prompt(builder.prompt.tokenizer, question_first=True)
    builder = replace(builder, prompt=prompt, mentions=True)
    example = builder.conversation(tiny_conversation(0))[0]
    num_nodes = len(example.graph.prompt_ids)
    length = prompt_length(example) - num_nodes + min(kept or num_nodes, num_nodes)
    assert num_nodes > 40
    for limit, words in (
        (length + 5, ""),
        (length + 4, f"a prompt of {length} tokens and up to 5"),
    ):
        monkeypatch.setattr(type(model), "max_tokens", limit)
        assert lengths_beyond(model, example, 5).startswith(words)
        assert bool(words) == bool(lengths_beyond(model, example, 5))


def test_an_answer_is_explained_by_passages_and_entities(with_scorer: Loaded) -> None:
    model, builder = with_scorer
    for example in builder.conversation(tiny_conversation(0)):
        began = time.monotonic()
        [record] = answer_batch(model, builder.prompt, [example], 0)
        assert 0 < record["milliseconds"] <= 1000 * (time.monotonic() - began)
        found = why(model, builder, example, record["answer"])
        assert found.answer == record["candidates"][0]["label"]
        close = 5e-3 if isinstance(model, Reader) else 1e-4  # unlikely spans are not listed
        assert found.logprob == pytest.approx(record["logprob"], abs=close)
        assert sum(passage.share for passage in found.passages) == pytest.approx(1)
        assert min(passage.share for passage in found.passages) > 0
        assert sum(passage.attention or 0 for passage in found.passages) == pytest.approx(1)
        assert sum(edge.share for edge in found.edges) == pytest.approx(1)


def test_of_two_readings_the_surer_answers(
    with_scorer: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turngraph.inference.answer_batches, "ALONE_SURE", 0.0)
    model, builder = with_scorer
    builder = replace(builder, alone=isinstance(model, Reader))
    memory, said = builder.memory(CONVERSATION), list[tuple[str, str]]()
    session, logprobs = Session(model, builder, CONVERSATION.evidence, None, 48), dict[int, float]()
    for turn, question in enumerate(QUESTIONS):
        example = builder.turn(CONVERSATION, turn, said, memory)
        assert (example.alone is None) == (not turn or not isinstance(model, Reader))
        readings = [replace(example, alone=None), example.alone or example]
        both = [answer_batch(model, builder.prompt, [one], 0)[0] for one in readings]
        [record] = answer_batch(model, builder.prompt, [example], 0)
        assert record["logprob"] == max(one["logprob"] for one in both)
        answer = session.ask(question)
        assert (answer.text, answer.record["logprob"]) == (record["answer"], record["logprob"])
        if record.get("alone"):
            logprobs[turn] = session.why().logprob
            assert logprobs[turn] == pytest.approx(record["logprob"], abs=5e-3)
        said.append((question, record["answer"]))
    assert bool(logprobs) == isinstance(model, Reader)
    answers = {turn: Given(text, alone=turn in logprobs) for turn, (_, text) in enumerate(said)}
    given = CONVERSATION, answers, "predicted", "", None
    turns = explain_conversation(model, builder, *given).turns
    found = {turn.index: turn.logprob for turn in turns if turn.index in logprobs}
    assert found == pytest.approx(logprobs, abs=1e-5)


@pytest.mark.parametrize(
    ("with_dialogue", "alone", "is_alone"),
    [
        ((0.3, 0.9), (0.4, 0.1), True),
        ((0.3, 0.1), (0.39, 0.9), False),  # surer, and still not sure
        ((0.5, 0.1), (0.5, 0.9), False),
        ((0.6, 0.1), (0.5, 0.9), False),  # its confidence counts, not its probability
        ((None, 0.3), (None, 0.5), True),
        ((None, 0.5), (None, 0.3), False),
    ],
)
def test_an_answer_without_the_dialogue_has_to_be_sure_and_surer(
    with_dialogue: tuple[float | None, float], alone: tuple[float | None, float], is_alone: bool
) -> None:
    first, second = (
        {"answer": text, "confidence": sure, "logprob": math.log(p), "milliseconds": 1.5}
        for text, (sure, p) in (("Lima", with_dialogue), ("Oslo", alone))
    )
    chosen = surer(first, second)
    assert chosen["answer"] == ("Oslo" if is_alone else "Lima")
    assert chosen.get("alone", False) == is_alone
    assert chosen["milliseconds"] == 3.0


def test_of_entities_of_one_name_the_likeliest_is_explained(with_scorer: Loaded) -> None:
    model, builder = with_scorer
    texts = {"e1": "Lima lies on the coast", "e2": "a bean is called Lima"}
    pool = (Evidence(id_, text, "text", (Entity(id_, "Lima"),)) for id_, text in texts.items())
    [example] = builder.conversation(asked(*pool))
    assert len(candidate_entities(example)) == 2
    [record] = answer_batch(model, builder.prompt, [example], 0)
    first, *others = (found["logprob"] for found in record["candidates"])
    if isinstance(model, Reader):  # to it they are one answer
        assert why(model, builder, example, "Lima").logprob == pytest.approx(first, abs=0.1)
        return
    assert first > max(others)
    assert why(model, builder, example, "Lima").logprob == pytest.approx(first, abs=1e-4)


def test_what_a_scorer_cannot_answer_is_not_explained(with_scorer: Loaded) -> None:
    model, builder = with_scorer
    example = builder.conversation(tiny_conversation(0))[0]
    if isinstance(model, Reader):  # its LM may write what no passage says
        assert not any(passage.share for passage in why(model, builder, example, "Oslo").passages)
        return
    with pytest.raises(ValueError, match="no entity of the evidence is named 'Oslo'"):
        why(model, builder, example, "Oslo")
    [example] = builder.conversation(asked(Evidence("e", "it rains", "text")))
    [record] = answer_batch(model, builder.prompt, [example], 0)
    assert record["answer"] == ""
    found = why(model, builder, example, "")
    assert [passage.share for passage in found.passages] == [0]
    assert found.edges == ()


def test_a_span_has_the_words_of_its_place_in_its_passage() -> None:
    prompt = tiny_builder().prompt
    for example in read_examples(6):
        assert example.graph.mentions is not None
        [answer] = example.conversation.turns[example.turn].answers
        for first, last in example.graph.mentions.answers.T.tolist():
            logprobs = torch.full((len(example.graph.node_ids), LONGEST_SPAN), -torch.inf)
            logprobs[first, last - first] = -0.5
            assert spans(prompt, example, logprobs) == [(answer.label, -0.5)]


def test_of_more_spans_than_are_listed_the_likeliest_stay() -> None:
    [example, *_], prompt = read_examples(1), tiny_builder().prompt
    logprobs = torch.randn(len(example.graph.node_ids), LONGEST_SPAN).log_softmax(0)
    listed = [logprob for _, logprob in spans(prompt, example, logprobs)]
    assert listed == sorted(listed, reverse=True)
    assert len(listed) == NUM_SPANS
    assert listed[0] >= logprobs.max()


def test_a_chat_answers_as_the_file_is_answered_and_says_why(qa: QA) -> None:
    pool = CONVERSATION.evidence
    expected = qa.generate_batch([QUESTIONS], [pool])
    session = qa.chat(pool)
    screen = Screen(session)
    said = screen(*QUESTIONS, "/why")
    assert [turn.text for turn in session.turns] == [record["answer"] for record in expected]
    assert all(record["answer"] in said for record in expected)
    assert re.search(r"The model gave its answer a probability of \d+%", said)
    assert "".join(qa.chat(pool).stream(QUESTIONS[0])) == expected[0]["answer"]
    session.undo()
    assert session.ask(QUESTIONS[2]).text == expected[2]["answer"]


def test_a_chat_without_an_entity_has_no_answer(qa: QA) -> None:
    session = qa.chat()
    said = Screen(session)(QUESTIONS[0], "/why")
    assert "(no answer)\n  probability less than 1%" in said
    assert "No evidence was given." in said
    assert session.last().probability == pytest.approx(0)


def test_a_server_answers_many_at_a_time_as_a_chat_does(qa: QA, tmp_path: Path) -> None:
    session = qa.chat(CONVERSATION.evidence)
    expected = [session.ask(question).text for question in QUESTIONS]
    write_pool(tmp_path / "pool.jsonl", CONVERSATION.evidence)
    options = ServeOptions(evidence=(str(tmp_path / "pool.jsonl"),))
    service = Service(qa, options, tmp_path / "users")
    app = make_app(service, Users(None), "localhost")
    with TestClient(app, base_url="http://127.0.0.1:8080") as client:

        def talk(_: int) -> list[str]:
            id_ = client.post("/api/conversations").json()["id"]
            route, said = f"/api/conversations/{id_}", []
            for question in QUESTIONS:
                reply = client.post(f"{route}/ask", json={"question": question, "stream": False})
                assert reply.status_code == 200, reply.text
                said.append(reply.json()["answer"])
            shares = [passage["share"] for passage in client.get(f"{route}/why").json()["passages"]]
            assert sum(shares) == pytest.approx(1, abs=1e-3)
            return said

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(talk, range(4))) == [expected] * 4
        message = {"role": "user", "content": QUESTIONS[0]}
        reply = client.post(
            "/v1/chat/completions", json={"model": "turngraph", "messages": [message]}
        )
        [choice] = reply.json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (expected[0], "stop")
        num_tokens = len(qa.builder.prompt.target_ids(expected[0]))
        assert reply.json()["usage"]["completion_tokens"] == num_tokens > 1
        for most, finish in ((1, "length"), (num_tokens, "stop")):
            asked = {"messages": [message], "max_tokens": most}
            reply = client.post("/v1/chat/completions", json=asked).json()
            assert reply["choices"][0]["finish_reason"] == finish
            assert reply["usage"]["completion_tokens"] == most
            begins = reply["choices"][0]["message"]["content"]
            assert begins == qa.builder.prompt.answer_text(
                qa.builder.prompt.target_ids(expected[0])[:most]
            )
        built = service.qa.builder.counts["graphs"]
        with ThreadPoolExecutor(1) as threads:
            with service.answering.of("another"):  # their question is prepared meanwhile
                asked_last = threads.submit(talk, 0)
                wait_until(lambda: service.qa.builder.counts["graphs"] > built)
                assert not asked_last.done()
            assert asked_last.result() == expected
        assert "turngraph_answers_total 18.0" in client.get("/metrics").text
