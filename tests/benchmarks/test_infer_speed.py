"""infer_speed.py counts what it says, and its systems answer the same questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, GenerationConfig

from turngraph.benchmarks.speed import answerers, infer_speed
from turngraph.benchmarks.speed.answerers import Bare, Ours, count_tokens, greedy_until
from turngraph.benchmarks.speed.infer_table import OURS, SYSTEMS, Cell, markdown, report
from turngraph.data.jsonlines import write_conversations
from turngraph.data.prompt import Prompt
from turngraph.tests.tiny import (
    END_ID,
    stir,
    tiny_base,
    tiny_conversation,
    tiny_examples,
    tiny_model,
    tiny_tokenizer,
)

pytestmark = pytest.mark.usefixtures("fresh_accelerator")
Json = dict[str, Any]
NEW_TOKENS = 5
YAML = """
data: {{train: {train}}}
evidence: {{memory: none, top_k: 5}}
model: {{base_model: {base_model}, dtype: float32, encoder: {{residual_gate_init: 0.5}}}}
"""


@pytest.fixture(scope="module")
def options(tiny_folder: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Six questions about a random tiny LM."""
    folder = tmp_path_factory.mktemp("speed")
    write_conversations(folder / "train.jsonl", [tiny_conversation(n) for n in range(2)])
    text = YAML.format(train=folder / "train.jsonl", base_model=tiny_folder)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    common = ["--config", str(folder / "config.yaml"), "--num_questions", "6", "--rounds", "2"]
    return [*common, "--max_new_tokens", str(NEW_TOKENS)]


def make_run(options: list[str], *more: str) -> infer_speed.Run:
    args, rest = infer_speed.parse([*options, *more])
    return infer_speed.Run(args, infer_speed.load(args, rest))


def test_batches_and_one_by_one_give_the_same_answers(options: list[str]) -> None:
    run = make_run(options)
    found = {name: run.build(name).answer(run.examples) for name in SYSTEMS}
    assert found["graph"].answers == found["single"].answers == found["merged"].answers
    assert len(set(found["graph"].answers)) > 3
    assert found["text"].answers != found["graph"].answers
    assert found["graph"].num_tokens == found["single"].num_tokens == found["merged"].num_tokens
    for system in found.values():
        assert len(system.answers) == 6
        assert 6 <= system.num_tokens <= 6 * NEW_TOKENS
        assert system.seconds > 0


def test_without_an_end_all_answers_have_all_tokens(options: list[str]) -> None:
    run = make_run(options, "--no_end")
    for name in SYSTEMS:
        assert run.build(name).answer(run.examples).num_tokens == 6 * NEW_TOKENS, name


def test_tokens_are_counted_up_to_and_with_the_end() -> None:
    ids = torch.tensor([[5, 9, 1, 1], [5, 6, 7, 8], [2, 5, 5, 5]])
    assert count_tokens(ids, torch.tensor([1, 2])) == 3 + 4 + 1
    assert count_tokens(ids, torch.tensor([], dtype=torch.long)) == 12


def test_all_systems_are_greedy_and_end_alike() -> None:
    base, prompt = tiny_base(), Prompt(tiny_tokenizer())
    base.generation_config = GenerationConfig(
        do_sample=True, temperature=0.5, repetition_penalty=1.3, eos_token_id=7
    )
    assert greedy_until(base, prompt, ending=True).end_id == END_ID
    config = base.generation_config
    assert config.eos_token_id == [END_ID, 7]
    assert (config.do_sample, config.repetition_penalty, config.temperature) == (False, 1.0, None)
    endless = greedy_until(base, prompt, ending=False)
    assert (endless.end_id, config.eos_token_id, prompt.end_id) == (-1, None, END_ID)


def passes(bare: Bare) -> list[Json]:
    """Inputs of all passes: tensors as lists, embeddings by their shape."""
    calls = [call for batch in bare.batches for call in batch]
    return [
        {
            name: list(value.shape) if name == "inputs_embeds" else value.tolist()
            for name, value in call.items()
            if isinstance(value, torch.Tensor)
        }
        for call in calls
    ]


@pytest.mark.parametrize("own_cache", [True, False])
def test_the_bare_passes_are_those_that_ours_makes(
    own_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not own_cache:  # as for LMs with other layers than attention
        monkeypatch.setattr(answerers, "key_value_cache", lambda lm, capacity: DynamicCache())
    model, prompt = stir(tiny_model()), Prompt(tiny_tokenizer())
    model.lm.generation_config.eos_token_id = list(range(0, 480, 5))  # answers of many lengths
    ours, bare, again = Ours(model, prompt, 8, {"batch_size": 4}), Bare(model), Bare(model)
    examples = tiny_examples(9)
    with bare.recording():
        answered = ours.answer(examples)
    counts = bare.counts()
    assert counts["batches"] == 3
    assert counts["step_tokens"] + len(examples) == answered.num_tokens
    assert counts["step_tokens"] < 4 * counts["steps"]  # rows left before others
    longest = sorted((e.num_tokens - len(e.target_ids) for e in examples), reverse=True)
    assert counts["prompt_tokens"] >= sum(longest)
    lengths: list[int] = []
    cache = model.lm.register_forward_pre_hook(
        lambda _, args, given: lengths.append(given["past_key_values"].get_seq_length()),
        with_kwargs=True,
    )
    with again.recording():
        prompts, steps = bare.run()
    cache.remove()
    assert passes(again) == passes(bare)
    assert lengths.count(0) == 3
    assert prompts > 0
    assert steps > 0
    width = [call["inputs_embeds"].shape[1] for call, *_ in bare.batches]
    expected = [
        length
        for batch, first in zip(bare.batches, width, strict=True)
        for length in [0, *range(first, first + len(batch) - 1)]
    ]
    assert lengths == expected


def test_the_report_by_hand() -> None:
    facts: Json = {"build_seconds": [1.0], "dtype": "bfloat16", "num_questions": 4}
    graph = Cell(4, seconds=[2.0, 4.0, 3.0], answers=["a", "b", "c", "d"], num_tokens=8)
    graph.prompt_seconds, graph.step_seconds = [1.0, 2.0, 1.5], [0.8, 1.6, 1.2]
    graph.passes = {"batches": 1, "prompt_tokens": 300, "steps": 6, "step_tokens": 12}
    single = Cell(4, seconds=[12.0], answers=["a", "x", "c", "y"], num_tokens=8)
    result = report({"graph": graph, "single": single, "pyg": Cell(4, error="no")}, facts)
    assert result["rows"]["graph"]["questions_per_second"] == pytest.approx(4 / 3)
    assert result["rows"]["graph"]["tokens_per_answer"] == 2
    assert result["ratios"] == {"graph / single": pytest.approx(4)}
    assert result["answers_that_differ"] == 2
    line = result["ceilings"]["graph"]
    assert line["prompt_tokens_per_second"] == pytest.approx(200)
    assert line["steps_per_second"] == pytest.approx(5)
    assert line["step_tokens_per_second"] == pytest.approx(10)
    assert line["share"] == pytest.approx(0.9)
    assert line["share_with_graphs"] == pytest.approx(2.7 / 4)


def test_the_command_prints_tables_and_writes_json(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "speed.json"
    infer_speed.main([*options, "--output", str(output)])
    result = json.loads(output.read_text())
    assert result["complete"]
    assert result["answers_that_differ"] == 0
    assert result["rows"].keys() == SYSTEMS.keys()
    assert result["ceilings"].keys() == OURS
    for line in result["rows"].values():
        assert len(line["seconds"]) == 2
        assert line["peak_bytes"] > 100_000
    for line in result["ceilings"].values():
        assert 0 < line["share_with_graphs"] < line["share"]
    printed = capsys.readouterr().out
    assert markdown(result).strip() in printed
    for name in SYSTEMS.values():
        assert f"| {name} |" in printed


def test_time_that_is_up_stops_it(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    infer_speed.main([*options, "--max_minutes", "0"])
    assert "Time ran out" in capsys.readouterr().out


def test_more_questions_than_there_are_is_an_error(options: list[str]) -> None:
    with pytest.raises(ValueError, match="--num_questions 7: there are only 6"):
        make_run(options, "--num_questions", "7")
