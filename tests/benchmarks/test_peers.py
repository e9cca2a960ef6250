"""The systems that train beside each other see the same tokens and begin with the same loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoTokenizer

from turngraph.benchmarks.speed import peers
from turngraph.configs.schema import Config, ModelConfig, TrainingConfig
from turngraph.data.batches.collate import collate
from turngraph.data.graph.chain_graph import ChainGraph
from turngraph.model.base_model import load_base_model
from turngraph.model.make_model import make_model
from turngraph.tests.tiny import tiny_examples
from turngraph.training import operations
from turngraph.training.operations import LmShape, Work

System = peers.Trl | peers.Pyg
pytestmark = pytest.mark.usefixtures("fresh_accelerator")
EXAMPLES = tiny_examples(4)


@pytest.fixture
def build(tiny_folder: str) -> Callable[..., Any]:
    """Makes a system, or our model, around a random tiny LM."""

    def made(name: str, dtype: Any = "float32") -> Any:
        model = ModelConfig(tiny_folder, dtype=dtype, lora=peers.LORA)
        config = Config(model=model, training=TrainingConfig(max_steps=0))
        torch.manual_seed(0)
        base = load_base_model(tiny_folder, dtype, "sdpa")
        tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
        if name == "pyg":
            return peers.Pyg(base, tokenizer, config)
        ours = make_model(replace(model, evidence="graph" if name == "graph" else "text"), base)
        return peers.Trl(ours, config, tokenizer) if name == "trl" else ours

    return made


def lm_of(system: System) -> nn.Module:
    return system.module.llm_generator if isinstance(system, peers.Pyg) else system.module.lm


def watched(system: System) -> list[tuple[int, int]]:
    """Tokens and rows of every batch that a system's model is given from now on."""
    seen: list[tuple[int, int]] = []

    def note(module: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        mask = given["attention_mask"]
        seen.append((int(mask.sum()), mask.shape[0]))

    lm_of(system).register_forward_pre_hook(note, with_kwargs=True)
    return seen


def mean_loss(model: Any) -> float:
    """Our loss of a step over all examples."""
    loss = model.train()(collate(EXAMPLES, "right", with_target=True))
    return float(loss.total / loss.num_tokens)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trl", "pyg"])
def test_a_system_trains_lora_of_rank_8_on_the_batches_it_is_given(
    build: Callable[..., Any], name: str
) -> None:
    system = build(name)
    lora = {n: p for n, p in lm_of(system).named_parameters() if p.requires_grad}
    assert sum(p.numel() for p in lora.values()) == 1792  # by hand, see the test of lm_shape
    assert {p.dtype for p in system.module.parameters() if p.requires_grad} == {torch.float32}
    in_optimizer = {p for group in system.optimizer.param_groups for p in group["params"]}
    assert in_optimizer == {p for p in system.module.parameters() if p.requires_grad}
    before = {n: p.detach().clone() for n, p in lora.items()}
    seen = watched(system)
    batches = [EXAMPLES[:2], EXAMPLES[2:4]]
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
    build: Callable[..., Any],
) -> None:
    trl = build("trl")
    for example in EXAMPLES:
        mask = collate([example], "right", with_target=True).attention_mask
        assert trl.num_tokens(example) == int(mask.sum()) == example.num_tokens
    assert trl.train([EXAMPLES]).loss == pytest.approx(mean_loss(build("text")), rel=1e-4)


def test_trl_leaves_the_model_as_it_was_wrapped_in_nothing(build: Callable[..., Any]) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)  # bf16: TRL wraps the forward pass
    trl = build("trl", "bfloat16")
    ours = mean_loss(build("text", "bfloat16"))
    assert trl.train([EXAMPLES]).loss == pytest.approx(ours, rel=0.01)
    assert "_original_forward" not in vars(trl.module.lm)
    AcceleratorState._reset_state(reset_partial_state=True)


def test_gretriever_gets_our_words_uncut_and_its_own_prompt(build: Callable[..., Any]) -> None:
    system = build("pyg")
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


def test_the_sizes_of_an_lm_by_hand(build: Callable[..., Any]) -> None:
    # a layer: q and o 32 x 32, k and v 32 x 16, three of 32 x 64; LoRA 8 (32 + 32) and 8 (32 + 16)
    body, lora = 2 * (2 * 1024 + 2 * 512 + 3 * 2048), 2 * (512 + 384)
    assert (body, lora) == (18432, 1792)
    shape = operations.lm_shape(build("text").lm)
    assert shape == LmShape(2, 32, body, 480 * 32, lora)


def test_operations_are_those_that_torch_counts(build: Callable[..., Any]) -> None:
    model = build("graph").train()
    (example,) = tiny_examples(1)
    batch = collate([example], "right", with_target=True)
    states = model.input_embeddings(batch).detach().requires_grad_()  # the LM's part alone
    model.input_embeddings = lambda batch: states
    with FlopCounterMode(display=False) as counter:
        model(batch).total.backward()
    products = (torch.ops.aten.mm, torch.ops.aten.addmm)  # attention has kernels of its own
    counted = sum(counter.get_flop_counts()["Global"].get(op, 0) for op in products)
    work = Work(example.num_tokens, 0, len(example.target_ids))
    assert operations.operations(operations.lm_shape(model.lm), work, False) == counted


def test_useful_work_is_causal_and_without_padding() -> None:
    assert operations.useful([3, 5], 7) == (8, (9 + 25) / 2, 7)
