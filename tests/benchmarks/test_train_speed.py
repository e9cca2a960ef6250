"""train_speed.py counts what it says, and every system trains on the same examples."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from turngraph.benchmarks.speed import base_models, peers, train_speed, train_table
from turngraph.data.batches.collate import collate
from turngraph.data.graph.chain_graph import ChainGraph
from turngraph.data.jsonlines import write_conversations
from turngraph.tests.tiny import tiny_conversation, tiny_examples
from turngraph.training import operations
from turngraph.training.operations import LmShape, Work

CPU = torch.device("cpu")
MISTRAL = "mistralai/Mistral-7B-Instruct-v0.2"
YAML = """
data: {{train: {train}}}
evidence: {{memory: none, top_k: 5}}
model: {{base_model: {base_model}, dtype: float32}}
"""


pytestmark = pytest.mark.usefixtures("fresh_accelerator")


@pytest.fixture(scope="module")
def config(tiny_folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config of six questions about a random tiny LM."""
    folder = tmp_path_factory.mktemp("speed")
    write_conversations(folder / "train.jsonl", [tiny_conversation(n) for n in range(2)])
    text = YAML.format(train=folder / "train.jsonl", base_model=tiny_folder)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    return folder / "config.yaml"


def options(config: Path, *more: str) -> list[str]:
    return ["--config", str(config), "--num_questions", "4", "--batch_sizes", "2", "4", *more]


@pytest.fixture
def run(config: Path) -> train_speed.Run:
    args, rest = train_speed.parse(options(config))
    return train_speed.Run(args, train_speed.load(args, rest))


def lm_of(system: peers.System) -> nn.Module:
    return system.module.llm_generator if isinstance(system, peers.Pyg) else system.module.lm


def watched(system: peers.System) -> list[tuple[int, int]]:
    """Tokens and rows of every batch that a system's model is given from now on."""
    seen: list[tuple[int, int]] = []
    ours = isinstance(system, peers.Ours)

    def note(module: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        mask = args[0].attention_mask if ours else given["attention_mask"]
        seen.append((int(mask.sum()), mask.shape[0]))

    watched_module = system.module if ours else lm_of(system)
    watched_module.register_forward_pre_hook(note, with_kwargs=True)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", train_table.SYSTEMS)
def test_a_system_trains_lora_of_rank_8_on_the_batches_it_is_given(
    run: train_speed.Run, name: str
) -> None:
    system = run.build(name)
    lora = {n: p for n, p in lm_of(system).named_parameters() if p.requires_grad}
    assert sum(p.numel() for p in lora.values()) == 1792  # by hand, see the test of lm_shape
    assert {p.dtype for p in system.module.parameters() if p.requires_grad} == {torch.float32}
    in_optimizer = {p for group in system.optimizer.param_groups for p in group["params"]}
    assert in_optimizer == {p for p in system.module.parameters() if p.requires_grad}
    before = {n: p.detach().clone() for n, p in lora.items()}
    seen = watched(system)
    batches = [run.examples[:2], run.examples[2:4]]
    first = system.train(batches)
    for _ in range(3):
        last = system.train(batches)
    assert seen == [(sum(map(system.num_tokens, batch)), 2) for batch in batches] * 4
    assert all(not torch.equal(p, before[n]) for n, p in lora.items() if "lora_B" in n)
    assert all(p.grad is None for p in system.module.parameters())
    assert math.isfinite(first.loss)
    assert last.loss < first.loss
    assert first.seconds > 0


def test_ours_and_trl_see_the_same_tokens_and_begin_with_the_same_loss(
    run: train_speed.Run,
) -> None:
    text, trl, graph = (run.build(name) for name in ("text", "trl", "graph"))
    for example in run.examples:
        mask = collate([example], "right", with_target=True).attention_mask
        counts = {s.num_tokens(example) for s in (text, trl, graph)}
        assert counts == {int(mask.sum())} == {example.num_tokens}
    losses = [system.train([run.examples]).loss for system in (text, trl)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_trl_leaves_the_model_as_it_was_wrapped_in_nothing(config: Path) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)  # bf16: TRL wraps the forward pass
    args, rest = train_speed.parse(options(config, "--model.dtype", "bfloat16"))
    run = train_speed.Run(args, train_speed.load(args, rest))
    trl, text = run.build("trl"), run.build("text")
    losses = [system.train([run.examples]).loss for system in (text, trl)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    assert "_original_forward" not in vars(trl.module.lm)
    AcceleratorState._reset_state(reset_partial_state=True)


def test_gretriever_gets_our_words_uncut_and_its_own_prompt(run: train_speed.Run) -> None:
    system = run.build("pyg")
    (example,) = tiny_examples(1)
    long = np.tile(example.graph.node_ids, 20)
    longer = replace(example, graph=ChainGraph(long, example.graph.edge_index, 0))
    assert len(long) > 2 * 512
    own = system.num_tokens(example) - example.num_tokens  # its markers for ours, a graph token
    assert 0 < own < 60
    assert system.num_tokens(longer) - system.num_tokens(example) == pytest.approx(
        len(long) - len(example.graph.node_ids), rel=0.02
    )
    data = system.graph(example)
    for item in example.evidence:
        assert item.evidence.text in data.desc
    assert data.question.endswith("Answer:")
    assert data.label.strip() == "Lima"
    assert data.x.shape == (len(example.evidence), 1024)
    source, target = data.edge_index.tolist()
    assert len(source) > 0
    for one, other in zip(source, target, strict=True):
        ids = [{e.id for e in example.evidence[n].evidence.entities} for n in (one, other)]
        assert one != other
        assert ids[0] & ids[1]


def test_the_sizes_of_an_lm_by_hand(run: train_speed.Run) -> None:
    # a layer: q and o 32 x 32, k and v 32 x 16, three of 32 x 64; LoRA 8 (32 + 32) and 8 (32 + 16)
    body, lora = 2 * (2 * 1024 + 2 * 512 + 3 * 2048), 2 * (512 + 384)
    assert (body, lora) == (18432, 1792)
    assert run.build("text").shape == LmShape(2, 32, body, 480 * 32, lora)
    assert run.build("pyg").shape is None


def test_operations_are_those_that_torch_counts(run: train_speed.Run) -> None:
    model = run.build("graph").module.train()
    (example,) = tiny_examples(1)
    batch = collate([example], "right", with_target=True)
    states = model.input_embeddings(batch).detach().requires_grad_()  # the LM's part alone
    model.input_embeddings = lambda batch: states
    with FlopCounterMode(display=False) as counter:
        model(batch).total.backward()
    products = (torch.ops.aten.mm, torch.ops.aten.addmm)  # attention has kernels of its own
    counted = sum(counter.get_flop_counts()["Global"].get(op, 0) for op in products)
    work = Work(example.num_tokens, 0, len(example.target_ids))
    assert operations.operations(operations.lm_shape(model.lm), work) == counted


@pytest.mark.parametrize(
    ("lengths", "packed", "attention", "tokens", "pairs"),
    [
        ([3, 5], False, "sdpa", 10, 50),  # padded to 5, and the mask computed in full
        ([4, 4], False, "sdpa", 8, 16),  # no mask: causal
        ([5], True, "sdpa", 5, 12.5),
        ([3, 5], True, "sdpa", 8, 64),  # also what separates the examples is computed
        ([3, 5], True, "flex_attention", 8, 17),
    ],
)
def test_executed_work(
    lengths: list[int], packed: bool, attention: str, tokens: float, pairs: float
) -> None:
    assert train_speed.executed(lengths, 7, packed, attention) == (tokens, pairs, 7)
    total = sum(lengths)
    assert operations.useful(lengths, 7) == (total, sum(n * n for n in lengths) / 2, 7)


@pytest.mark.slow
def test_a_whole_run(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "speed.json"
    train_speed.main(options(config, "--rounds", "2", "--output", str(output)))
    result = json.loads(output.read_text(encoding="utf-8"))
    assert result["complete"]
    assert result["interleaved"]
    rows = {(r["system"], r["batch_size"], r["grouped"]): r for r in result["rows"]}
    assert set(rows) == {
        (name, size, grouped)
        for name in train_table.SYSTEMS
        for size, grouped in ((2, True), (4, True), (4, False))
    }
    for row in rows.values():
        assert len(row["seconds"]) == len(row["losses"]) == 2
        median = sum(row["seconds"]) / 2
        assert row["examples_per_second"] == pytest.approx(4 / median)
        assert row["tokens_per_second"] == pytest.approx(row["num_tokens"] / median)
        assert row["peak_bytes"] > 100_000
    for name in train_table.SYSTEMS:
        assert rows[name, 4, True]["peak_bytes"] > rows[name, 2, True]["peak_bytes"]
        (fastest,) = [r for r in rows.values() if r["system"] == name and r["best"]]
        both = [rows[name, size, True]["examples_per_second"] for size in (2, 4)]
        assert fastest["examples_per_second"] == max(both)
    same = {rows[name, 4, True]["num_tokens"] for name in ("graph", "text", "trl")}
    assert len(same) == 1
    ours, peer = (rows[name, 4, False]["tokens_per_second"] for name in ("graph", "trl"))
    ratio = result["ratios"]["random_order"]["graph / trl"]["tokens_per_second"]
    assert ratio == pytest.approx(ours / peer)
    assert 0 < result["encoder"]["memory_share"] < 1
    assert result["encoder"]["time_share"] > 0

    printed = capsys.readouterr().out
    assert printed == train_table.markdown(result) + "\n"
    tables = [line for line in printed.splitlines() if line.startswith("| ours, graph |")]
    assert len(tables) == 3  # the best, random order, the rest


def test_no_time_left_leaves_what_was_measured(config: Path, tmp_path: Path) -> None:
    output = tmp_path / "speed.json"
    more = ("--systems", "text", "--max_minutes", "0", "--output", str(output))
    train_speed.main(options(config, *more))
    result = json.loads(output.read_text(encoding="utf-8"))
    assert not result["complete"]
    assert [row["examples_per_second"] for row in result["rows"]] == [None] * 3
    assert "Time ran out" in train_table.markdown(result)


def test_a_tokenizer_cut_to_a_vocabulary(smollm2_tokenizer: Any) -> None:
    cut = base_models.load_tokenizer(MISTRAL, random_weights=True)
    text = "Nebuchadnezzar II besieged Jerusalem; 東京 is far.\n<|im_end|>"
    ids = cut(text).input_ids
    assert cut.decode(ids) == text
    assert max(ids) < 32000 == len(cut)
    assert ids[-1] == smollm2_tokenizer.eos_token_id
    assert len(smollm2_tokenizer(text).input_ids) <= len(ids) < 0.5 * len(text)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--num_questions", "6"], "--num_questions 6: no multiple of 4"),
        (["--num_questions", "12"], "--num_questions 12: there are only 6"),
        (["--device", "cuda"], "--device cuda: torch finds no GPU"),
        (["--model.nothing", "1"], "model.nothing"),
        (["--random_weights", "--model.quantization", "4bit"], "model.quantization: '4bit'"),
    ],
)
def test_bad_options(
    config: Path, more: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=message):
        train_speed.main(options(config, *more))
