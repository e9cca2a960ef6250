"""Cost of a model, counted without its weights, against what a step takes where there are some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from turngraph.benchmarks.speed.gpu_bench import (
    CONVMIX_READER,
    SQA_READER,
    Bench,
    training_flops,
)
from turngraph.configs.schema import ModelConfig, ScorerConfig
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.model.gatv2 import GPU_BLOCK
from turngraph.model.make_model import make_model
from turngraph.model.reader import Reader
from turngraph.tests.tiny import LORA, tiny_base
from turngraph.training.model_cost import (
    ATTENTION,
    GRAPH_LAUNCHES,
    READ_LAUNCHES,
    LiveBytes,
    Sizes,
    cost_of,
)
from turngraph.training.operations import LmShape, operations, reader_work


def peak_bytes(step: Callable[[], object]) -> int:
    """Peak bytes of tensors during a step, beyond those before it, by torch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = profiler.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda item: item[0]):
        held += change
        peak = max(peak, held)
    return peak


@pytest.mark.parametrize("recomputed", [False, True])
def test_activations_are_those_that_a_step_holds(recomputed: bool, tiny_folder: str) -> None:
    tokens, width = 512, 32
    config = ModelConfig(
        tiny_folder, "text", lora=LORA, dtype="float32", gradient_checkpointing=recomputed
    )
    cost = cost_of(config, tokens)
    model = make_model(config, tiny_base()).train()

    def step() -> None:
        output = model.causal_lm(
            inputs_embeds=torch.randn(1, tokens, width, requires_grad=True),
            position_ids=torch.arange(tokens)[None],
            use_cache=False,
            logits_to_keep=torch.arange(8),
        )
        output.logits.sum().backward()

    assert cost.per_token * tokens == pytest.approx(peak_bytes(step), rel=0.2)
    parameters = {p: p.numel() for p in model.parameters()}
    assert cost.adapters == sum(n for p, n in parameters.items() if p.requires_grad)
    assert cost.frozen == 4 * (sum(parameters.values()) - cost.adapters)
    assert cost.encoder == cost.per_node == 0
    assert cost.fixed == 2 * cost.adapters  # copies in bfloat16
    assert 100 < cost.launches < 1000  # of two layers


def test_attention_keeps_what_a_fused_kernel_keeps(tiny_folder: str) -> None:
    cost_of(ModelConfig(tiny_folder, "text", lora=LORA), 8)  # registers it
    query = torch.randn(2, 4, 16, 8, requires_grad=True)
    key, value = (torch.randn(2, 2, 16, 8, requires_grad=True) for _ in range(2))
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one.nbytes), id):
        ALL_ATTENTION_FUNCTIONS[ATTENTION](None, query, key, value, None)
    assert sum(kept) == 4 * (2 * query.numel() + key.numel() + value.numel() + 2 * 4 * 16)


def test_a_graph_model_has_an_encoder_and_four_bits_are_an_eighth(tiny_folder: str) -> None:
    config = ModelConfig(tiny_folder, lora=LORA, dtype="float32")
    cost, small = cost_of(config, 64), cost_of(replace(config, quantization="4bit"), 64)
    assert cost.encoder == 2 * (2 * (32 * 64 + 64) + 64 + 32) + 2  # by hand: two heads of 32, gates
    assert cost.per_node == 2 * 24 * 32
    assert cost.fixed == 2 * (cost.adapters + cost.encoder) + 8 * GPU_BLOCK
    body = cost.lm.body
    assert cost.frozen - small.frozen == pytest.approx(body * (4 - 0.516), rel=1e-3)
    with pytest.raises(UserError, match="'nodes' given"):
        cost_of(ModelConfig(tiny_folder, answers="nodes"))


SCORER = ScorerConfig(num_layers=1, width=8, dropout=0.0, kept_nodes=100)


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_readers_activations_are_those_that_a_step_holds(
    recomputed: bool, tiny_folder: str, tmp_path: Path
) -> None:
    bench = Bench(torch.device("cpu"), False, 0, str(tmp_path))
    config = ModelConfig(
        tiny_folder,
        layer=1,
        scorer=SCORER,
        lora=LORA,
        dtype="float32",
        gradient_checkpointing=recomputed,
    )
    [example] = bench.examples(CONVMIX_READER, 1)
    model = make_model(config, tiny_base(vocabulary=4096)).train()
    batch = collate([example], "right", with_target=True)
    num, answer = len(example.graph.prompt_ids), len(example.target_ids)
    text = example.num_tokens - num - answer
    sizes = Sizes(num, text, answer, num // len(example.evidence))
    measured = peak_bytes(lambda: model(batch).total.backward())
    assert cost_of(config, 512).activations(1, sizes) == pytest.approx(measured, rel=0.2)


def test_a_readers_kernels_are_counted(tiny_folder: str, tmp_path: Path) -> None:
    scorer = replace(SCORER, num_layers=3)
    config = ModelConfig(tiny_folder, layer=2, scorer=scorer, lora=LORA, dtype="float32")
    bench = Bench(torch.device("cpu"), False, 0, str(tmp_path))
    model = make_model(config, tiny_base(vocabulary=4096)).train()
    batch = collate(bench.examples(SQA_READER, 1), "right", with_target=True)
    with LiveBytes() as live:
        model(batch).total.backward()
    assert cost_of(config, 64).launches == pytest.approx(live.launches, rel=0.1)


def test_what_a_reader_holds_for_nodes_and_passages_by_hand(tiny_folder: str) -> None:
    """Of two query heads and one of keys, each of 16 channels, over two layers of width 32."""
    scorer = replace(SCORER, num_layers=3)
    config = ModelConfig(tiny_folder, layer=2, scorer=scorer, lora=LORA, dtype="bfloat16")
    cost = cost_of(config, 64)
    assert cost.per_node == 24 * 32 + 3 * 48 * 8 + 24 * 4 * (8 + 10)  # with 24 spans
    assert cost.per_prefix == 2 * (16 + 16) * 2  # keys and values of two layers, two bytes each
    assert cost.per_pair == 2 * 2
    assert cost.fixed == 2 * (cost.adapters + cost.encoder)  # no block of an encoder's edges
    again = cost_of(replace(config, gradient_checkpointing=True), 64)
    assert again.per_prefix == cost.per_prefix / 2  # of one layer at a time
    text = cost_of(replace(config, evidence="text", layer=0), 64)
    assert cost.launches - text.launches == 2 * READ_LAUNCHES + GRAPH_LAUNCHES


def test_a_reader_computes_less_above_its_graph(tiny_folder: str, tmp_path: Path) -> None:
    config = ModelConfig(tiny_folder, layer=1, scorer=SCORER, lora=LORA, dtype="float32")
    cost = cost_of(config, 64)
    assert (cost.layer, cost.kept, cost.lm.num_layers) == (1, 100, 2)
    below, above = reader_work(30, [10, 20], 5, 4, kept=20)
    assert below == (65, 30**2 / 2 + 10 * 30 + 50 + 20 * 30 + 200 + 5 * 30 + 12.5, 0)
    assert above == (55, 55**2 / 2, 4)
    assert reader_work(30, [10], 5, 4, kept=20)[1] == reader_work(30, [10], 5, 4, None)[1]
    half = LmShape(1, 32, cost.lm.body // 2, 0, cost.lm.lora // 2)
    lower, upper = cost.lm.divided(1)
    assert lower == half
    assert upper == replace(half, head=cost.lm.head)
    sizes = Sizes(300, 30, 5, passage=10)
    works = reader_work(30, [10] * 30, 5, 5, kept=100)
    flops = sum(operations(*part, False) for part in zip((lower, upper), works, strict=True))
    assert cost.flops(sizes, False) == pytest.approx(flops + 6 * cost.encoder * 300)
    model = make_model(config, tiny_base(vocabulary=4096))
    assert isinstance(model, Reader)
    bench = Bench(torch.device("cpu"), True, 0, str(tmp_path))
    [example] = bench.examples(CONVMIX_READER, 1)
    assert training_flops(model, [example], again=False) > 0
    stopped = cost_of(replace(config, answers="nodes"), 64)
    assert stopped.lm.num_layers == 1
    assert stopped.frozen < cost.frozen
