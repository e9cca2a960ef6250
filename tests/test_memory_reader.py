"""A trained model that answers from what a memory graph recalls: command, Python and server."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.shipped import READER
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Fact, Provenance
from turngraph.data.memory_graph.recall.recollection import Recollection
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.scoring.confidence import FEATURES, Calibration, Confidence
from turngraph.inference import memory_reader
from turngraph.inference.api import QA
from turngraph.inference.memory_reader import MemoryReader, place_of
from turngraph.inference.session import Session
from turngraph.memory import main
from turngraph.tests.chatting import Loaded

QUESTION = "Where does Anna live?"
TEXTS = ("Anna lives in Gdynia.", "Bert keeps bees in Lima.", "Anna likes tea.")


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = tmp_path / "my.db"
    with MemoryGraph.open(path, word_vectors) as graph:
        for text in TEXTS:
            graph.remember(text)
    return str(path)


def ask(capsys: Any, db: str, *words: str) -> str:
    capsys.readouterr()
    main(["ask", "--db", db, "--no_embed", *words])
    return capsys.readouterr().out


def test_the_command_answers_in_every_mode(
    db: str, capsys: Any, graph_checkpoint: str, qa: QA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turngraph.inference.memory_commands.load_reader", lambda name: qa)
    ways: dict[tuple[str, ...], str] = {
        (): QUESTION,
        ("--over", "facts"): QUESTION,
        ("--over", "episodes"): QUESTION,
        ("--plan", "rules"): QUESTION,
        ("--themes",): QUESTION,
        ("--compute",): "Why does Anna like tea?",  # nothing computes it
    }
    for way, question in ways.items():
        plain = json.loads(ask(capsys, db, *way, "--json", question))
        found = json.loads(ask(capsys, db, *way, "--json", "--reader", graph_checkpoint, question))
        assert plain["answer"] is None
        assert {fact["key"] for fact in found["facts"]} == {fact["key"] for fact in plain["facts"]}
        answer = found["answer"]
        assert answer["confidence"] is None, "the checkpoint is not calibrated"
        assert 0 < answer["probability"] <= 1
        if answer["fact"] is not None:
            [text] = [fact["text"] for fact in found["facts"] if fact["key"] == answer["fact"]]
            start, stop = answer["span"]
            assert text[start:stop].casefold().split() == answer["text"].casefold().split()
    first, *rows = ask(capsys, db, "--reader", graph_checkpoint, QUESTION).splitlines()
    assert first.startswith("answer: ")
    assert "not calibrated" in first
    assert any("Gdynia" in row for row in rows)


@pytest.mark.parametrize("words", [("--reader", QUESTION), (QUESTION, "--reader")])
def test_without_a_name_the_packaged_reader_answers(
    words: tuple[str, ...], db: str, capsys: Any, qa: QA, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load_reader = "turngraph.inference.memory_commands.load_reader"
    monkeypatch.setattr(load_reader, lambda name: loaded.append(name) or qa)
    assert ask(capsys, db, *words).startswith("answer: ")
    assert loaded == [READER]


@pytest.mark.parametrize(
    ("words", "answers"),
    [((), True), (("--over", "facts"), True), (("--no_reader",), False), (("--no_embed",), False),
     (("--plan", "rules"), False), (("--plan", "rules", "--reader"), True)],
)  # fmt: skip
def test_the_packaged_reader_answers_unless_something_else_does(
    words: tuple[str, ...],
    answers: bool,
    db: str,
    capsys: Any,
    qa: QA,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []
    commands = "turngraph.inference.memory_commands"
    monkeypatch.setattr(f"{commands}.load_reader", lambda name: loaded.append(name) or qa)
    monkeypatch.setattr(f"{commands}.make_embed", lambda name: word_vectors)
    main(["ask", "--db", db, QUESTION, *words])
    rows = capsys.readouterr().out.splitlines()
    assert any(row.startswith("answer: ") for row in rows) == answers
    assert loaded == [READER] * answers


def test_nothing_recalled_has_no_answer(tmp_path: Path, capsys: Any, graph_checkpoint: str) -> None:
    MemoryGraph.open(tmp_path / "empty.db").close()
    empty = str(tmp_path / "empty.db")
    assert ask(capsys, empty, "--reader", graph_checkpoint, QUESTION) == "no answer\n"


def test_answers_are_those_of_a_chat_over_the_same_passages(qa: QA, db: str) -> None:
    with MemoryGraph.open(db, word_vectors) as graph:
        found = graph.ask_episodes(QUESTION, reader=qa.reader(max_new_tokens=6))
        plain = graph.ask_episodes(QUESTION)
    assert plain.answer is None
    assert found.answer is not None
    assert found.facts == plain.facts
    told = Session(qa.model, qa.builder, tuple(found.evidence()), None, 6).ask(QUESTION)
    read = {fact.text for fact in found.facts}
    assert {item.evidence.text for item in told.evidence} <= read
    assert found.answer.probability <= 1


def fact(key: int, text: str, said: str | None = None, valid_from: str | None = None) -> Fact:
    places = (Provenance(key, (0, len(text)), said=said),)
    return Fact(key, "thesis", text, valid_from=valid_from, provenance=places)


def recalled(*facts: Fact) -> Recollection:
    return Recollection(QUESTION, (), facts, 1, {})


def test_each_statement_is_read_once_and_the_answer_has_its_place(
    graph_model: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, builder = graph_model
    read: list[list[str]] = []

    def answered(_: Any, __: Any, examples: Any, *___: Any, **____: Any) -> list[Any]:
        read.extend([item.evidence.text for item in example.evidence] for example in examples)
        record = {"answer": "gdynia", "logprob": math.log(0.5), "confidence": None}
        return [record]

    monkeypatch.setattr(memory_reader, "answer_batch", answered)
    thesis = fact(8, "Anna lives in Gdynia.")
    triplet = Fact(
        3, "simple", "Anna lives in Gdynia", ("Anna", "lives in", "Gdynia"),
        provenance=thesis.provenance,
    )  # fmt: skip
    reader = MemoryReader(model, builder, 4, None)
    tea = fact(4, "Tea is warm.", "2021-05-03T10:00")
    since = fact(6, "2020: Bert has bees", "2021-05-03", "2020")
    answer = reader.read(recalled(triplet, tea, thesis, since))
    assert sorted(read[0]) == [
        "2020: Bert has bees", "2021-05-03: Tea is warm.", "Anna lives in Gdynia.",
    ]  # fmt: skip
    assert answer is not None
    assert (answer.text, answer.fact, answer.span) == ("gdynia", 8, (14, 20))
    assert answer.probability == pytest.approx(0.5)
    assert MemoryReader(model, builder, 4, None).read(recalled()) is None


def test_what_the_model_is_not_sure_of_is_withheld(graph_model: Loaded) -> None:
    model, builder = graph_model
    never = Confidence(Calibration((0.0,) * len(FEATURES), -50.0, 10, 0.0), 0.5)
    reader = MemoryReader(model, builder, 4, never)
    answer = reader.read(recalled(fact(8, TEXTS[0])))
    assert answer is not None
    assert answer.text == "not in the evidence"
    assert answer.withheld is not None
    assert answer.confidence == 0.0


def test_neither_corpus_nor_memory_graph_of_the_checkpoint_is_read(graph_model: Loaded) -> None:
    model, builder = graph_model
    builder.memory_graph = MemoryGraphConfig(vectors="words")
    try:
        reader = MemoryReader(model, builder, 4, None)
    finally:
        builder.memory_graph = None
    assert reader.builder.memory_graph is None
    assert reader.builder.config.corpus is None


def test_a_prompt_that_is_too_long_is_one_error(graph_model: Loaded) -> None:
    model, builder = graph_model
    assert model.max_tokens is not None
    with pytest.raises(UserError, match=r"^the question cannot be answered: .* positions"):
        MemoryReader(model, builder, model.max_tokens, None).read(recalled(fact(8, TEXTS[0])))


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ("Anna", (2, (0, 4))),
        ("ANNA  lives", (2, (0, 10))),
        ("Ann", (None, None)),
        ("bees in Lima", (4, (11, 23))),
        ("2021-05-03", (8, None)),
        ("", (None, None)),
        ("(a", (None, None)),
    ],
)
def test_an_answer_is_found_as_whole_words(answer: str, place: object) -> None:
    facts = [fact(2 * number, text) for number, text in enumerate(TEXTS, 1)]
    facts.append(fact(8, "It rained.", "2021-05-03T10:00"))
    assert place_of(answer, facts) == place
