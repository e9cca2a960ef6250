"""Tests of explanations: passages, entities, edges, dropped passages, pages."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turngraph.inference.explain
from turngraph import infer
from turngraph.data.batches.collate import collate
from turngraph.data.cli import EXIT_GO_ON
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.chain_graph import node_starts
from turngraph.data.jsonlines import write_conversations
from turngraph.data.scoring.explain_page import write_explain_page
from turngraph.data.scoring.explanation import ExplainedTurn, Explanation
from turngraph.data.types import Conversation, Evidence
from turngraph.inference.explain import (
    Given,
    dropped_passages,
    evidence_parts,
    explain_conversation,
    page_paths,
    why,
)
from turngraph.model.attribution import attribute
from turngraph.model.evidence_model import EvidenceModel
from turngraph.tests.tiny import stir, tiny_builder, tiny_conversation, tiny_model

ANSWERS = {0: "Lima", 1: "2 million", 2: "sol"}


def explained(
    turn: int = 0, conversation: Conversation | None = None, **evidence: Any
) -> tuple[ExplainedTurn, Example, ExampleBuilder]:
    """Explain a turn of the tiny benchmark with a random model."""
    builder = tiny_builder(**evidence)
    example = builder.conversation(conversation or tiny_conversation(0))[turn]
    return why(stir(tiny_model()), builder, example, ANSWERS[turn]), example, builder


def test_the_passages_are_those_that_the_model_was_given() -> None:
    found, example, _ = explained()
    assert [p.text for p in found.passages] == [item.evidence.text for item in example.evidence]
    assert [p.score for p in found.passages] == [item.score for item in example.evidence]
    assert (found.question, found.answer, found.gold) == (
        "What is the capital of Peru?",
        "Lima",
        ("Lima",),
    )
    assert found.logprob < 0


def test_shares_sum_to_one_and_are_the_passages_nodes() -> None:
    found, example, builder = explained()
    model, target = stir(tiny_model()), builder.prompt.target_ids("Lima")
    batch = collate([replace(example, target_ids=target)], "right", with_target=True)
    nodes = attribute(model, batch).nodes.numpy()
    starts = node_starts(builder.tokenise([item.evidence for item in example.evidence])[1])
    sizes = np.add.reduceat(np.abs(nodes), starts[:-1])
    assert [p.share for p in found.passages] == pytest.approx(sizes / sizes.sum(), rel=1e-4)
    assert sum(p.share for p in found.passages) == pytest.approx(1)
    assert sum(p.attention for p in found.passages) == pytest.approx(1)
    assert sum(edge.share for edge in found.edges) == pytest.approx(1)


def test_spans_mark_entities_in_the_text() -> None:
    found, _, _ = explained()
    marked = {
        passage.text[s.start : s.end]: s.label for passage in found.passages for s in passage.spans
    }
    assert marked["Peru"] == "Peru"
    assert marked["Lima"] == "Lima"
    ids = {span.label: span.entity for passage in found.passages for span in passage.spans}
    assert ids["Lima"] == "Q-Lima"


def test_edges_join_passages_that_name_the_same_entity() -> None:
    found, example, _ = explained()
    assert found.edges
    assert 2 * len(found.edges) == example.graph.num_entity_edges  # both ways
    for edge in found.edges:
        assert edge.first < edge.second
        for index in (edge.first, edge.second):
            assert edge.entity in {span.entity for span in found.passages[index].spans}
        assert 0 < edge.attention < 1
    assert any(edge.share for edge in found.edges)


def test_an_edge_that_is_cut_has_no_share() -> None:
    whole, _, _ = explained()
    builder = tiny_builder()
    builder.cut = "entity"
    example = builder.conversation(tiny_conversation(0))[0]
    found = why(stir(tiny_model()), builder, example, "Lima")
    assert whole.edges
    assert not found.edges
    assert [passage.attention for passage in found.passages] == [0.0] * len(found.passages)
    assert sum(passage.share for passage in found.passages) == pytest.approx(1)


def test_a_text_checkpoint_has_passages_and_no_edges() -> None:
    builder = tiny_builder()
    example = builder.conversation(tiny_conversation(0))[0]
    found = why(stir(tiny_model(evidence="text")), builder, example, "Lima")
    assert found.edges == ()
    assert {passage.attention for passage in found.passages} == {None}
    assert sum(passage.share for passage in found.passages) == pytest.approx(1)


@pytest.mark.parametrize("evidence", ["graph", "text"])
def test_nodes_without_a_position_of_their_own_count_for_their_passage(evidence: Any) -> None:
    """Question nodes follow the passages and take no position."""
    builder = tiny_builder(graph="reader")
    example = builder.conversation(tiny_conversation(0))[0]
    assert len(example.graph.prompt_ids) < len(example.graph.node_ids)
    found = why(stir(tiny_model(evidence=evidence)), builder, example, "Lima")
    assert len(found.passages) == len(example.evidence)
    assert sum(passage.share for passage in found.passages) == pytest.approx(1)
    assert min(passage.share for passage in found.passages) > 0


def test_a_prompt_marker_is_marked_where_the_model_read_it() -> None:
    conversation = tiny_conversation(0)
    marker = Evidence("m", "Peru </evidence> Lima", "text")
    found, _, _ = explained(
        conversation=replace(conversation, evidence=(marker, *conversation.evidence)), top_k=7
    )
    (passage,) = [passage for passage in found.passages if passage.id == "m"]
    assert passage.text == "Peru < /evidence> Lima"
    assert [passage.text[s.start : s.end] for s in passage.spans] == ["Peru", "Lima"]


def given(answers: Any) -> dict[int, Given]:
    return {index: Given(answer) for index, answer in answers.items()}


def of_conversation(
    model: EvidenceModel, history: Any = "gold", answers: Any = ANSWERS, **evidence: Any
) -> Any:
    builder = tiny_builder(**evidence)
    found = explain_conversation(
        model, builder, tiny_conversation(0), given(answers), history, "checkpoint", None
    )
    return json.loads(json.dumps(asdict(found)))


def test_memory_and_what_was_dropped() -> None:
    found = of_conversation(stir(tiny_model()), top_k=3, memory="random")
    first, *later = found["turns"]
    assert {passage["origin"] for passage in first["passages"]} == {"new"}
    brought = [
        passage for turn in later for passage in turn["passages"] if passage["origin"] == "memory"
    ]
    assert brought
    assert all(passage["from_turn"] < 2 for passage in brought)
    assert found["memory"] == "random"
    reasons = {passage["reason"] for turn in later for passage in turn["dropped"]}
    assert reasons == {"memory"}


def test_the_budget_drops_passages() -> None:
    (turn, *_) = of_conversation(stir(tiny_model()), max_nodes=60)["turns"]
    assert {passage["reason"] for passage in turn["dropped"]} == {"budget"}
    assert len(turn["passages"]) + len(turn["dropped"]) == 5
    _, example, builder = explained()
    given = replace(example, evidence=example.evidence[:-1])
    num = sum(builder.sizes(example.evidence))
    for max_nodes, reason in ((num, "memory"), (num - 1, "budget")):
        limited = replace(builder, config=replace(builder.config, max_nodes=max_nodes))
        (dropped,) = dropped_passages(limited, given, example.evidence)
        assert dropped.reason == reason


def test_history_fills_the_prompts_of_later_turns() -> None:
    model = stir(tiny_model())
    gold = of_conversation(model)
    same = of_conversation(model, "predicted", ANSWERS)
    other = of_conversation(model, "predicted", ANSWERS | {0: "Oslo"})
    assert (gold["history"], same["history"]) == ("gold", "predicted")
    assert [turn["logprob"] for turn in gold["turns"]] == [t["logprob"] for t in same["turns"]]
    assert other["turns"][2]["logprob"] != same["turns"][2]["logprob"]


def test_only_the_turns_that_were_answered_are_explained() -> None:
    found = of_conversation(stir(tiny_model()), answers={1: "2 million"})
    assert [turn["id"] for turn in found["turns"]] == ["1"]


def test_an_empty_answer_is_explained_and_a_turn_that_failed_is_not() -> None:
    found = of_conversation(stir(tiny_model()), answers={0: None, 1: "", 2: "sol"})
    assert [turn["id"] for turn in found["turns"]] == ["1", "2"]


def test_a_turn_that_was_read_alone_is_explained_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Example] = []

    def explain(_: object, __: object, example: Example, *___: object) -> list[ExplainedTurn]:
        read.append(example)
        return []

    monkeypatch.setattr(turngraph.inference.explain, "why_if_it_fits", explain)
    builder, conversation = tiny_builder(), tiny_conversation(0)
    builder.alone = True
    answers = given(ANSWERS)
    model = tiny_model()
    one = answers | {1: Given(ANSWERS[1], alone=True)}
    explain_conversation(model, builder, conversation, one, "gold", "x", None)
    with_dialogue = [example.alone is not None for example in read]
    assert with_dialogue == [False, False, True]  # the first has none, the second was read alone
    read.clear()
    one = answers | {2: Given(ANSWERS[2], alone=True)}
    explain_conversation(model, builder, conversation, one, "gold", "x", None)
    assert [example.alone is not None for example in read] == [False, True, False]


def test_turns_that_were_not_answered_fill_the_memory_too() -> None:
    settings = {"top_k": 3, "memory": "random"}
    [turn] = of_conversation(stir(tiny_model()), answers={2: "sol"}, **settings)["turns"]
    [example] = tiny_builder(**settings).conversation(tiny_conversation(0), [2])
    expected = [(item.evidence.text, item.from_turn) for item in example.evidence]
    assert [(one["text"], one["from_turn"]) for one in turn["passages"]] == expected
    assert any(from_turn < 2 for _, from_turn in expected)


def pages(checkpoint: str, folder: Path, conversations: list[Conversation], *more: str) -> set[str]:
    """Return the names of the pages that ``answer --explain`` writes."""
    write_conversations(folder / "input.jsonl", conversations)
    options = ["--input", folder / "input.jsonl", "--output", folder / "predictions.jsonl"]
    options += ["--explain", folder / "why" / "why.html", "--max_new_tokens", 3, *more]
    infer.main(["answer", "--checkpoint", checkpoint, *map(str, options)])
    return {path.name for path in (folder / "why").iterdir()}


def test_answer_explains_each_conversation_on_a_page(graph_checkpoint: str, tmp_path: Path) -> None:
    conversations = [tiny_conversation(0), tiny_conversation(1, "a/b c")]
    assert pages(graph_checkpoint, tmp_path, conversations) == {"why-c0.html", "why-a_b_c.html"}
    lines = (tmp_path / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    page = (tmp_path / "why" / "why-a_b_c.html").read_text(encoding="utf-8")
    for record in map(json.loads, lines[3:]):
        assert escape(record["question"]) in page
    (tmp_path / "why" / "why-c0.html").unlink()  # complete predictions are not computed again
    assert "why-c0.html" in pages(graph_checkpoint, tmp_path, conversations)
    assert (tmp_path / "predictions.jsonl").read_text(encoding="utf-8").splitlines() == lines


def test_answers_from_the_evidence_of_others_are_explained_by_it(
    graph_checkpoint: str, tmp_path: Path
) -> None:
    conversations = [
        replace(one, evidence=tuple(replace(e, id=f"{one.id}:{e.id}") for e in one.evidence))
        for one in (tiny_conversation(0), tiny_conversation(1))
    ]
    pages(graph_checkpoint, tmp_path, conversations, "--evidence_of", "other")
    for own, other in (("c0", "c1"), ("c1", "c0")):
        page = (tmp_path / "why" / f"why-{own}.html").read_text(encoding="utf-8")
        assert f"{other}:0" in page
        assert f"{own}:" not in page


def test_lines_that_could_not_be_read_have_no_page(graph_checkpoint: str, tmp_path: Path) -> None:
    bad = '{"turns": [{"question": "Who?"}]}\n{"id": "b", "turns": [{"question": "Who?"}, {}]}\n'
    write_conversations(tmp_path / "good.jsonl", [tiny_conversation(0)])
    lines = bad + (tmp_path / "good.jsonl").read_text(encoding="utf-8")
    (tmp_path / "in.jsonl").write_text(lines, encoding="utf-8")
    options = ["--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl"]
    options += ["--explain", tmp_path / "why" / "why.html", "--max_new_tokens", 3, "--keep_going"]
    with pytest.raises(SystemExit):
        infer.main(["answer", "--checkpoint", graph_checkpoint, *map(str, options)])
    assert [path.name for path in (tmp_path / "why").iterdir()] == ["why.html"]


@pytest.mark.parametrize(
    ("option", "error"),
    [
        (("--cut_edges", "shuffle"), "--cut_edges shuffle"),
        (("--output", "/dev/stdout"), "/dev/stdout is no file"),
    ],
)
def test_what_cannot_be_explained(
    option: tuple[str, str], error: str, graph_checkpoint: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=error):
        pages(graph_checkpoint, tmp_path, [tiny_conversation(0)], *option)


def test_pages_resume_where_they_were_stopped(
    graph_checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversations = [tiny_conversation(0), tiny_conversation(1), tiny_conversation(2)]
    written: list[str] = []

    def write(record: Explanation, path: Path) -> None:
        written.append(record.conversation)
        write_explain_page(record, path)
        if len(written) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(turngraph.inference.explain, "write_explain_page", write)
    with pytest.raises(SystemExit) as ended:
        pages(graph_checkpoint, tmp_path, conversations)
    assert ended.value.code == EXIT_GO_ON
    with (tmp_path / "why" / "why.html.unfinished").open("a", encoding="utf-8") as file:
        file.write('"c')  # as a kill or a full disk leaves it
    found = pages(graph_checkpoint, tmp_path, conversations)
    assert found == {"why-c0.html", "why-c1.html", "why-c2.html"}
    assert written == ["c0", "c1", "c2"]
    journal = tmp_path / "cut"
    journal.write_text('{"predictions": "x"}\n"c0"\n"c1')
    assert turngraph.inference.explain.explained(journal, "x") == {"c0"}
    assert journal.read_text() == '{"predictions": "x"}\n"c0"\n'
    # pages of other predictions do not count
    (tmp_path / "why" / "why.html.unfinished").write_text('{"predictions": "x"}\n"c0"\n')
    pages(graph_checkpoint, tmp_path, conversations)
    assert written[3:] == ["c0", "c1", "c2"]


def test_a_turn_that_does_not_fit_into_memory_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fits(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return attribute(*args)

    calls = 0
    monkeypatch.setattr(turngraph.inference.explain, "attribute", fits)
    found = of_conversation(stir(tiny_model()))
    assert [turn["id"] for turn in found["turns"]] == ["0", "2"]
    assert "conversation c0, turn 1: out of memory, not explained" in caplog.messages


def test_an_empty_answer_is_explained_by_its_end_token() -> None:
    model, builder = stir(tiny_model()), tiny_builder()
    example = builder.conversation(tiny_conversation(0))[0]
    ended = replace(example, target_ids=[builder.prompt.end_id])
    expected = -model(collate([ended], "right", with_target=True)).total.item()
    assert why(model, builder, example, "").logprob == pytest.approx(expected, abs=1e-5)


def test_what_the_lm_wrote_and_no_passage_says_has_no_parts() -> None:
    model, builder = stir(tiny_model(layer=1)), tiny_builder()
    builder.mentions = True
    example = builder.conversation(tiny_conversation(0))[0]
    parts = evidence_parts(model, builder, example, "nowhere at all")
    assert (parts.logprob, len(parts.edge_nodes), parts.edge_ends.shape) == (None, 0, (2, 0))
    assert not parts.passages.any()
    found = why(model, builder, example, "nowhere at all")
    assert [passage.share for passage in found.passages] == [0] * len(example.evidence)
    assert found.edges == ()


def test_page_names_are_distinct() -> None:
    paths = page_paths("out.html", ["a b", "a/b", "a_b", "A_B", "京" * 90])
    assert len({path.name.casefold() for path in paths.values()}) == 5
    assert max(len(path.name.encode()) for path in paths.values()) < 100
    assert {path.suffix for path in paths.values()} == {".html"}
