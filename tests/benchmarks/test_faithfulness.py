"""The benchmark of explanations: removed passages, resumed records, the table."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turngraph.benchmarks.quality import faithfulness
from turngraph.benchmarks.quality.faithfulness import Ablation, best_first, measure, table
from turngraph.configs.schema import ScorerConfig
from turngraph.data.batches.collate import collate
from turngraph.data.cli import EXIT_GO_ON
from turngraph.data.jsonlines import write_conversations
from turngraph.inference.answer_batches import answer_batch
from turngraph.tests.tiny import LORA, stir, tiny_builder, tiny_conversation, tiny_model

Json = dict[str, Any]
SELECTIONS = {"share", "attention", "rank", "random"}


@pytest.fixture(scope="module")
def question() -> Ablation:
    builder = tiny_builder(graph="reader")
    example = builder.conversation(tiny_conversation(0))[1]
    return Ablation(stir(tiny_model()), builder, example, "Lima")


def test_what_is_taken_away_is_gone_from_graph_and_prompt(question: Ablation) -> None:
    kept = [0, 2, 3, 4]
    passages = [question.example.evidence[place].evidence for place in kept]
    graph = question.builder.graph(passages, question.encoded_question)
    assert len(graph.node_ids) < len(question.example.graph.node_ids)
    target = question.builder.prompt.target_ids("Lima")
    shorter = replace(question.example, graph=graph, target_ids=target)
    expected = -question.model(collate([shorter], "right", with_target=True)).total.item()
    assert question.likelihood([4, 0, 3, 2]) == pytest.approx(expected, abs=1e-5)
    assert question.likelihood(range(5)) == question.full != pytest.approx(expected, abs=1e-5)
    assert "Peru" in question.encoded_question  # of the turn before: the query is encoded here


@pytest.mark.parametrize("layer", [0, 1])
def test_where_the_graph_answers_it_is_the_answers_probability(layer: int) -> None:
    scorer = ScorerConfig(num_layers=2, width=16, dropout=0.0)
    lora = LORA if layer else None
    model = stir(tiny_model(answers="nodes", lora=lora, scorer=scorer, layer=layer))
    builder = replace(tiny_builder(graph="reader"), mentions=True)
    builder.prompt.question_first = layer > 0
    example = builder.conversation(tiny_conversation(0))[0]
    [record] = answer_batch(model, builder.prompt, [example], 0)
    question = Ablation(model, builder, example, record["answer"])
    assert question.full == pytest.approx(math.exp(record["logprob"]), abs=1e-3)
    texts = [item.evidence.text for item in example.evidence]
    holding = [index for index, text in enumerate(texts) if question.answer in text]
    assert 0 < len(holding) < len(texts)
    others = [index for index in range(len(texts)) if index not in holding]
    assert question.likelihood(others) == pytest.approx(0.0, abs=1e-9)
    assert 0 < question.likelihood(holding) <= 1
    assert measure(question, [1], 0)["likelihood"] == question.full


def test_a_record_has_both_losses_for_each_selection_and_size(question: Ablation) -> None:
    record = measure(question, [1, 3, 5], 0)
    assert set(record["losses"]) == SELECTIONS
    assert set(record["losses"]["random"]) == {"1", "3"}  # there are five passages
    assert record["num_passages"] == 5
    order = best_first(record["parts"]["share"])
    assert record["losses"]["share"]["3"] == pytest.approx(question.losses(order, 3))
    assert record["losses"]["rank"]["1"] == pytest.approx(question.losses([0, 1, 2, 3, 4], 1))
    assert measure(question, [1, 3, 5], 0) == record  # random draws are the question's own


def test_the_table_leaves_out_questions_with_too_few_passages() -> None:
    def record(number: int, passages: int, loss: float) -> Json:
        losses = {"share": {"3": [loss, 0.5]}, "rank": {"3": [1.0, 0.25]}}
        return {"conversation": str(number), "num_passages": passages, "losses": losses}

    text = table([record(0, 5, 2.0), record(1, 5, 4.0), record(2, 3, 99.0)], [3])
    assert "k = 3, 2 questions" in text
    assert "| share | +3.000 [+2.000, +4.000] | +0.500 [+0.500, +0.500] |  |" in text
    rank = "| rank | +1.000 [+1.000, +1.000] | +0.250 [+0.250, +0.250] | +2.000 [+1.000, +3.000] |"
    assert rank in text


def command(folder: Path, *options: str) -> list[str]:
    write_conversations(folder / "input.jsonl", [tiny_conversation(n) for n in range(2)])
    files = ["--input", str(folder / "input.jsonl"), "--records", str(folder / "records.jsonl")]
    return [*files, "--device", "cpu", *options]


def test_it_goes_on_where_it_was_stopped(
    graph_checkpoint: str, tiny_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(tmp_path, "--checkpoint", graph_checkpoint, "--num_questions", "4")
    words += ["--max_new_tokens", "3", "--sizes", "1", "3"]
    records = tmp_path / "records.jsonl"
    with pytest.raises(SystemExit) as stopped:
        faithfulness.main([*words, "--max_minutes", "0"])
    assert stopped.value.code == EXIT_GO_ON
    head, first = records.read_text(encoding="utf-8").splitlines()
    records.write_text(f'{head}\n{first}\n{{"conversation": "c', encoding="utf-8")  # killed
    faithfulness.main(words)
    lines = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    assert lines[1] == json.loads(first)
    assert len({(one["conversation"], one["turn"]) for one in lines[1:]}) == 4
    assert "k = 3, 4 questions" in capsys.readouterr().out
    whole = records.read_bytes()
    faithfulness.main([*words, "--num_questions", "2"])
    assert "k = 3, 2 questions" in capsys.readouterr().out
    assert records.read_bytes() == whole
    with pytest.raises(ValueError, match="measured with seed=0, now 1: take another file"):
        faithfulness.main([*words, "--seed", "1"])
    with pytest.raises(ValueError, match="measured with base_model=None, now"):
        faithfulness.main([*words, "--base_model", tiny_folder])
    write_conversations(tmp_path / "input.jsonl", [tiny_conversation(n) for n in range(3)])
    with pytest.raises(ValueError, match=r"measured with input=\w+, now \w+"):
        faithfulness.main(words)


def test_it_takes_the_packaged_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--checkpoint", "reader", "--num_questions", "1", "--sizes", "1"]
    faithfulness.main(command(tmp_path, *options))
    assert "k = 1, 1 questions" in capsys.readouterr().out
    record = json.loads((tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines()[1])
    assert 0 < record["likelihood"] <= 1
    assert sum(record["parts"]["share"]) > 0
