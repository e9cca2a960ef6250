"""Answers that an LM chooses among the entities that a graph's nodes propose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turngraph.inference.answer
import turngraph.inference.propose
from turngraph import infer
from turngraph.benchmarks.quality import proposal_weight
from turngraph.data.batches.collate import collate
from turngraph.data.jsonlines import write_conversations
from turngraph.data.scoring.predictions import read_proposals, unfinished
from turngraph.data.scoring.proposals import Proposal, chosen
from turngraph.data.scoring.score import score_predictions
from turngraph.data.types import Entity
from turngraph.model.generation import IGNORED_LABEL
from turngraph.tests.tiny import tiny_conversation

Json = dict[str, Any]
CONVERSATIONS = [tiny_conversation(number) for number in range(4)]


def run(folder: Path, checkpoint: str, name: str, *options: object) -> list[Json]:
    """Records of ``infer.py answer``, in a file of that name."""
    write_conversations(folder / "input.jsonl", CONVERSATIONS)
    arguments = ["--checkpoint", checkpoint, "--input", folder / "input.jsonl", "--fresh"]
    arguments += ["--output", folder / name, *options]
    infer.main(["answer", *map(str, arguments)])
    return lines(folder / name)


def lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def proposed(nodes_checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What that model proposes."""
    folder = tmp_path_factory.mktemp("proposals")
    run(folder, nodes_checkpoint, "nodes.jsonl")
    return folder / "nodes.jsonl"


def names(record: Json) -> list[str]:
    return [candidate["id"] for candidate in record["candidates"]]


def test_two_models_together_are_a_product() -> None:
    proposed, spelt = {"a": 0.5, "b": 0.3, "c": 0.2}, (0.1, 0.2, 0.05)
    found = [Proposal(Entity(name, name), float(np.log(p))) for name, p in proposed.items()]
    written = [float(np.log(p)) for p in spelt]
    together = chosen(found, written, weight=2.0)
    products = {"a": 0.5**2 * 0.1, "b": 0.3**2 * 0.2, "c": 0.2**2 * 0.05}
    assert [one.entity.id for one in together] == ["a", "b", "c"]
    for one in together:
        wanted = products[one.entity.id] / sum(products.values())
        assert one.logprob == pytest.approx(np.log(wanted))
    assert [one.written for one in together] == written
    assert [one.proposed for one in together] == [one.logprob for one in found]
    assert [one.entity.id for one in chosen(found, written, weight=0.0)] == ["b", "a", "c"]


def test_the_answer_is_one_of_the_proposals(
    graph_checkpoint: str, proposed: Path, tmp_path: Path
) -> None:
    records = run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", proposed)
    before = lines(proposed)
    assert [r["question"] for r in records] == [r["question"] for r in before]
    changed = 0
    for record, of_nodes in zip(records, before, strict=True):
        logprobs = {c["id"]: c["logprob"] for c in of_nodes["candidates"]}
        assert set(names(record)) == set(logprobs)
        assert len(logprobs) > 3
        assert record["answer"] == record["candidates"][0]["label"]
        assert record["logprob"] == record["candidates"][0]["logprob"]
        scores = [c["logprob"] for c in record["candidates"]]
        assert scores == sorted(scores, reverse=True)
        assert np.exp(scores).sum() == pytest.approx(1, abs=1e-2)
        for candidate in record["candidates"]:
            assert candidate["proposed"] == logprobs[candidate["id"]]
        changed += names(record) != names(of_nodes)
    assert changed > 4
    infer.main(["score", "--predictions", str(tmp_path / "out.jsonl")])


def test_labels_are_as_likely_as_the_lm_would_write_them(
    graph_checkpoint: str, graph_model: Any, proposed: Path, tmp_path: Path
) -> None:
    records = run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", proposed)
    model, builder = graph_model
    conversation = CONVERSATIONS[0]
    for example, record in zip(builder.conversation(conversation), records[:3], strict=True):
        for candidate in record["candidates"][:4]:
            ids = builder.prompt.target_ids(candidate["label"])
            example.target_ids[:] = ids
            batch = collate([example], "right", with_target=True)
            assert (batch.labels != IGNORED_LABEL).sum() == len(ids)
            with torch.no_grad():
                loss = float(model(batch).total)
            assert candidate["written"] == pytest.approx(-loss, abs=1e-2)


def test_the_weight_decides_whose_answer_it_is(
    graph_checkpoint: str, proposed: Path, tmp_path: Path
) -> None:
    options = ("--proposals", proposed, "--num_proposals", 3)
    by_nodes = run(tmp_path, graph_checkpoint, "a.jsonl", *options, "--proposal_weight", 1e6)
    by_lm = run(tmp_path, graph_checkpoint, "b.jsonl", *options, "--proposal_weight", 0)
    for record, of_lm, of_nodes in zip(by_nodes, by_lm, lines(proposed), strict=True):
        assert names(record) == names(of_nodes)[:3]
        written = [candidate["written"] for candidate in of_lm["candidates"]]
        assert written == sorted(written, reverse=True)


def test_batches_change_nothing(graph_checkpoint: str, proposed: Path, tmp_path: Path) -> None:
    found = []
    for size in (1, 5):
        options = ("--proposals", proposed, "--batch_size", size)
        records = run(tmp_path, graph_checkpoint, "out.jsonl", *options)
        found.append([(names(record), round(record["logprob"], 2)) for record in records])
    assert found[0] == found[1]


def test_a_question_without_proposals_is_named(
    graph_checkpoint: str, proposed: Path, tmp_path: Path
) -> None:
    kept = lines(proposed)
    kept[1] = kept[1] | {"candidates": []}
    kept[2] = {k: v for k, v in kept[2].items() if k != "answer"} | {"error": "out of memory"}
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in kept[:4]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"turn 1: --proposals .*some.jsonl: no entity"):
        run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", path)
    with pytest.raises(SystemExit):
        run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", path, "--keep_going")
    records = lines(tmp_path / "out.jsonl")
    errors = [number for number, record in enumerate(records) if "error" in record]
    assert errors == [1, 2, *range(4, len(records))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": [{"id": "a", "label": "a"}]}, r"line 1, field candidates\[0\].logprob"),
        ({"candidates": [{"label": "a", "logprob": 0.5}]}, r"candidates\[0\].logprob: must be"),
        ({"candidates": "a"}, "line 1, field candidates"),
        ({"candidates": [{"id": "a", "logprob": -1}]}, r"candidates\[0\].label"),
        ({"turn": None}, "line 1, field turn"),
        ({"turn": "1"}, "line 2, field turn: this question is answered in a line before"),
    ],
)
def test_what_are_no_proposals_is_refused(
    change: Json, message: str, proposed: Path, tmp_path: Path
) -> None:
    first, second = lines(proposed)[:2]
    path = tmp_path / "p.jsonl"
    records = (first | change, second)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_proposals(path, 5)


def test_proposals_to_other_questions_are_refused_before_anything_is_loaded(
    graph_checkpoint: str, proposed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = lines(proposed)
    kept[4] = kept[4] | {"question": "Who?"}
    path = tmp_path / "other.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
    monkeypatch.setattr(
        turngraph.inference.answer, "load", lambda args: pytest.fail("loaded first")
    )
    with pytest.raises(ValueError, match=r"other.jsonl: another question is there: 'Who\?'"):
        run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", path)
    path.write_text("".join(json.dumps(record) + "\n" for record in kept[:4]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"turn 1: --proposals .*other.jsonl: no entity"):
        run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", path)
    unfinished(path).touch()
    with pytest.raises(ValueError, match="not complete"):
        run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", path)


def test_a_label_is_one_answer_whatever_it_holds(proposed: Path, tmp_path: Path) -> None:
    first = lines(proposed)[0]
    gold = first["gold"][0]
    for label in ("Paris; Lyon", ""):
        for best, hits in (
            ({"id": "x", "label": label}, (0, 1)),
            (gold | {"label": label}, (1, 1)),
        ):
            second = {"id": "y", "label": "y"} if hits[0] else gold
            candidates = [one | {"logprob": -1.0} for one in (best, second)]
            record = first | {"answer": label, "candidates": candidates}
            path = tmp_path / "p.jsonl"
            path.write_text(json.dumps(record) + "\n", encoding="utf-8")
            scores = score_predictions(path)
            assert tuple(scores.values[0, :2]) == hits


def test_what_an_lm_has_written_is_no_proposal(graph_checkpoint: str, tmp_path: Path) -> None:
    run(tmp_path, graph_checkpoint, "written.jsonl", "--max_new_tokens", 3)
    with pytest.raises(ValueError, match="as models that answer from nodes write it"):
        run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", tmp_path / "written.jsonl")


def test_options_that_do_not_go_together(
    graph_checkpoint: str,
    nodes_checkpoint: str,
    proposed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ("--proposals", proposed)
    for name, value in (
        ("--history", "predicted"),
        ("--evidence_of", "other"),
        ("--cut_edges", "all"),
    ):
        with pytest.raises(ValueError, match=f"{name}.* needs the checkpoint"):
            run(tmp_path, graph_checkpoint, "out.jsonl", *options, name, value)
    with pytest.raises(ValueError, match="50 given, there are up to 20"):
        run(tmp_path, graph_checkpoint, "out.jsonl", *options, "--num_proposals", 50)
    for name in ("--num_proposals", "--proposal_weight"):
        with pytest.raises(ValueError, match="need --proposals"):
            run(tmp_path, graph_checkpoint, "out.jsonl", name, 2)
    monkeypatch.setattr(turngraph.inference.propose, "sharding_wanted", lambda: True)
    with pytest.raises(ValueError, match="--proposals: not possible under FSDP"):
        run(tmp_path, graph_checkpoint, "out.jsonl", *options)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"model.answers is nodes"):
        run(tmp_path, nodes_checkpoint, "out.jsonl", *options)
    with pytest.raises(ValueError, match="is also the input"):
        run(proposed.parent, graph_checkpoint, proposed.name, *options)
    for wrong in ("-1", "nan", "inf", "x"):
        with pytest.raises(SystemExit):
            run(tmp_path, graph_checkpoint, "out.jsonl", *options, "--proposal_weight", wrong)


def test_only_the_same_proposals_go_on(
    graph_checkpoint: str, proposed: Path, tmp_path: Path
) -> None:
    run(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", proposed)
    other = tmp_path / "other.jsonl"
    other.write_bytes(proposed.read_bytes() + b"\n")
    for changed in (("--proposals", other), ("--proposals", proposed, "--num_proposals", 2), ()):
        arguments = ["--checkpoint", graph_checkpoint, "--input", tmp_path / "input.jsonl"]
        arguments += ["--output", tmp_path / "out.jsonl", *changed]
        with pytest.raises(ValueError, match=r"out.jsonl"):
            infer.main(["answer", *map(str, arguments)])


def test_other_weights_without_asking_again(
    graph_checkpoint: str, proposed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, graph_checkpoint, "all.jsonl", "--proposals", proposed)
    capsys.readouterr()
    proposal_weight.main([str(tmp_path / "all.jsonl")])
    printed = capsys.readouterr().out
    rows = {
        row.split("|")[1].strip(): row.split("|")[2:-1] for row in printed.split("\n") if "|" in row
    }
    for weight in (0.25, 5):
        options = ("--num_proposals", 3, "--proposal_weight", weight)
        records = run(tmp_path, graph_checkpoint, "a.jsonl", "--proposals", proposed, *options)
        hits = np.mean([record["hit_at_1"] for record in records])
        assert float(rows[f"{weight:g}"][1]) == pytest.approx(hits, abs=1e-3)
    golds = [{g["label"] for g in record["gold"]} for record in lines(proposed)]
    labels = [[c["label"] for c in record["candidates"]] for record in lines(proposed)]
    held = np.mean([bool(g & set(of[:2])) for g, of in zip(golds, labels, strict=True)])
    assert float(rows["gold among them"][0]) == pytest.approx(held, abs=1e-3)
    assert max(float(c) for k, r in rows.items() if k[0] in "0125" for c in r) > 0
    with pytest.raises(ValueError, match="line 1, field candidates: were not chosen from"):
        proposal_weight.main([str(proposed)])
