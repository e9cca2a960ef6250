"""The benchmark of gold answers' losses: what it measures, resuming, the table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from turngraph.benchmarks.quality import gold_loss
from turngraph.benchmarks.quality.gold_loss import main, table
from turngraph.data.batches.collate import collate
from turngraph.data.cli import EXIT_GO_ON
from turngraph.data.jsonlines import write_conversations
from turngraph.model.checkpoint import checkpoint_config, save_checkpoint
from turngraph.model.graph_lm import make_model
from turngraph.tests.tiny import stir, tiny_conversation

Json = dict[str, Any]


@pytest.fixture
def options(tmp_path: Path, graph_checkpoint: str) -> list[str]:
    conversations = [tiny_conversation(number) for number in range(3)]
    write_conversations(tmp_path / "dev.jsonl", conversations)
    paths = ["--input", str(tmp_path / "dev.jsonl"), "--records", str(tmp_path / "r.jsonl")]
    return ["--checkpoints", graph_checkpoint, "--device", "cpu", *paths]


def records(tmp_path: Path) -> list[Json]:
    return list(map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines()[1:]))


def test_the_loss_is_that_of_the_gold_answer(
    tmp_path: Path, options: list[str], graph_model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    main(options)
    found = records(tmp_path)
    model, builder = graph_model
    expected = {}
    for number in range(3):
        for example in builder.conversation(tiny_conversation(number)):
            batch = collate([example], "right", with_target=True)
            expected[example.key] = model(batch).total.item()
    assert {(r["conversation"], r["turn"]): r["nats"] for r in found} == expected
    mean = sum(expected.values()) / len(expected)
    assert f"| {len(expected)} | {mean:.3f} [" in capsys.readouterr().out


def test_edges_that_are_cut_make_a_row_of_their_own(tmp_path: Path, options: list[str]) -> None:
    main([*options, "--cut_edges", "nothing", "all"])
    whole, cut = (
        {
            (r["conversation"], r["turn"]): r["nats"]
            for r in records(tmp_path)
            if r["cut_edges"] == c
        }
        for c in ("nothing", "all")
    )
    assert whole.keys() == cut.keys()
    assert all(abs(whole[key] - cut[key]) > 1e-4 for key in whole)


def test_it_goes_on_and_measures_nothing_twice(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(options)
    whole = (tmp_path / "r.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    (tmp_path / "r.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    with pytest.raises(SystemExit) as ended:
        main([*options, "--max_minutes", "0"])
    assert ended.value.code == EXIT_GO_ON
    main(options)
    assert (tmp_path / "r.jsonl").read_text() == whole
    monkeypatch.setattr(gold_loss, "load", lambda args: pytest.fail("nothing is left"))
    main(options)


def test_answers_from_nodes_have_no_such_loss(options: list[str], nodes_checkpoint: str) -> None:
    given = [*options[:2], nodes_checkpoint, *options[2:]]
    with pytest.raises(ValueError, match="answers is nodes"):
        main(given)


def test_other_questions_need_another_file(options: list[str]) -> None:
    main(options)
    with pytest.raises(ValueError, match="max_questions=None, now 2: take another file"):
        main([*options, "--max_questions", "2"])


def test_another_input_needs_another_file(tmp_path: Path, options: list[str]) -> None:
    main(options)
    write_conversations(tmp_path / "dev.jsonl", [tiny_conversation(number) for number in range(4)])
    with pytest.raises(ValueError, match=r"measured with input=\w+, now \w+: take another file"):
        main(options)


def test_a_checkpoint_is_known_by_what_it_holds(
    tmp_path: Path,
    options: list[str],
    graph_model: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = tmp_path / "last"
    shutil.copytree(options[1], checkpoint)
    given = ["--checkpoints", str(checkpoint), *options[2:]]
    main(given)
    first = records(tmp_path)
    before = capsys.readouterr().out
    assert f"| {checkpoint} | nothing | {len(first)} |" in before

    shutil.rmtree(checkpoint)  # trained again
    model, _ = graph_model
    other = stir(make_model(model.config), seed=1)
    save_checkpoint(other, checkpoint_config(options[1]), {}, checkpoint)
    main(given)
    assert len(records(tmp_path)) == 2 * len(first)
    after = capsys.readouterr().out
    assert f"| {checkpoint} | nothing | {len(first)} |" in after
    assert after != before

    checkpoint.rename(tmp_path / "moved")
    monkeypatch.setattr(gold_loss, "load", lambda args: pytest.fail("nothing is left"))
    main(["--checkpoints", str(tmp_path / "moved"), *options[2:]])
    moved = capsys.readouterr().out
    assert moved == after.replace(str(checkpoint), str(tmp_path / "moved"))


def test_the_table_pairs_questions() -> None:
    def record(checkpoint: str, turn: str, nats: float) -> Json:
        return {
            "checkpoint": f"runs/{checkpoint}",
            "checkpoint_hash": checkpoint,
            "cut_edges": "nothing",
            "conversation": turn,
            "turn": turn,
            "nats": nats,
        }

    found = [
        record("a", "1", 1.0),
        record("a", "2", 2.0),
        record("b", "2", 2.5),
        record("b", "3", 9.0),
    ]
    rows = [gold_loss.Row(name, name, "nothing") for name in "abc"]
    lines = table(found, rows).splitlines()[2:]
    assert lines[0] == "| a | nothing | 2 | 1.500 [1.000, 2.000] |  |  |"
    assert (
        lines[1]
        == "| b | nothing | 2 | 5.750 [2.500, 9.000] | +0.500 [+0.500, +0.500] (1) | 1.000 |"
    )
    assert lines[2] == "| c | nothing | 0 | nan [nan, nan] |  |  |"
