"""Cost of a run on GPUs that are not here, by hand, and as the command prints it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from turngraph import train
from turngraph.configs.models import resolve_model
from turngraph.configs.schema import Config, DataConfig, EvidenceConfig, ModelConfig, TrainingConfig
from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import write_conversations
from turngraph.model.known_shapes import SHAPES, known_config, random_model
from turngraph.tests.tiny import tiny_conversation
from turngraph.training import cluster_cost
from turngraph.training.cluster_cost import (
    CHIPS,
    USABLE,
    Gpus,
    batch_examples,
    cluster_lines,
    example_sizes,
    exchange_bytes,
    parse_gpus,
    plan,
)
from turngraph.training.model_cost import Cost, Sizes
from turngraph.training.operations import LmShape

MISTRAL = "mistralai/Mistral-7B-Instruct-v0.2"
SHAPE = LmShape(num_layers=32, width=4096, body=7 * 10**9, head=131 * 10**6, lora=75 * 10**6)
COST = Cost(
    *(SHAPE, 14.5e9, 75 * 10**6, 134 * 10**6),
    **{"per_token": 6e6, "per_node": 2e5, "fixed": 7e8, "launches": 0},
    **{"layer": 0, "kept": None, "per_prefix": 0.0, "per_pair": 0.0},
)


def config_of(batches: int = 8, **model: Any) -> Config:
    return Config(
        data=DataConfig(train="not/here.jsonl"),
        evidence=EvidenceConfig(top_k=100, max_nodes=4096),
        model=ModelConfig(**{"base_model": MISTRAL} | model),
        training=TrainingConfig(batches_per_step=batches),
    )


def test_a_plan_by_hand() -> None:
    sizes, chip = Sizes(1500), CHIPS["h100"]
    found = plan(config_of(), COST, Gpus("h100", 8), sharded=False, share=0.4)
    flops = (4 * 7e9 + 6 * 75e6) * 1708 + 14 * 32 * 4096 * 1708**2 / 2 + 4 * 131e6 * 8
    flops += 6 * 134e6 * 1500
    assert COST.flops(sizes, False) == pytest.approx(flops)
    forward = 2 * (7e9 + 75e6) * 1708 + 4 * 32 * 4096 * 1708**2 / 2  # of the LM's layers
    assert COST.flops(sizes, True) == pytest.approx(flops + forward)
    assert found.seconds == pytest.approx(flops / (0.4 * 989e12))
    assert found.tokens_per_second == pytest.approx(8 * 1708 / found.seconds)
    assert found.memory["optimizer"] == 8 * 209e6
    assert found.memory["activations"] == pytest.approx(4304 * 6e6 + 4096 * 2e5)
    rest = USABLE * chip.memory - (14.5e9 + 16 * 209e6 + 7e8)
    assert found.largest == int(rest // (4304 * 6e6 + 4096 * 2e5)) == 2
    pairs = replace(config_of(), training=TrainingConfig(batches_per_step=8, batch_size=2))
    two = plan(pairs, COST, Gpus("h100", 8), sharded=False, share=0.4)
    assert two.tokens_per_second == pytest.approx(2 * 8 * 1708 / two.seconds)
    shared = plan(config_of(), COST, Gpus("h100", 8), sharded=True, share=0.4)
    assert shared.memory["weights"] == pytest.approx(14.5e9 / 8 + 2 * 14.5e9 / 32)
    for part in ("adapters", "graph", "gradients", "optimizer"):
        assert shared.memory[part] == found.memory[part] / 8 > 0
    assert shared.seconds == found.seconds  # transfers are hidden by the computing
    slow = plan(config_of(), COST, Gpus("h100", 8), sharded=True, share=40.0)
    sent = 7 / 8 * (2 * (14.5e9 + 4 * 209e6) + 4 * 209e6)
    assert exchange_bytes(COST, Gpus("h100", 8), True, 1, False) == pytest.approx(sent)
    assert slow.seconds == pytest.approx(sent / 450e9)
    for gpus, bandwidth in ((Gpus("h100", 16), 400e9), (Gpus("a100-80g", 16), 200e9)):
        nodes = plan(config_of(16), COST, gpus, sharded=True, share=400.0)
        assert nodes.seconds == pytest.approx(sent * 15 / 14 / bandwidth)  # of the network
    launched = plan(config_of(), replace(COST, launches=10**6), Gpus("h100", 8), False, share=0.4)
    assert launched.seconds == pytest.approx(5.0)
    assert exchange_bytes(COST, Gpus("h100", 8), False, 3, False) == 7 / 8 * 8 * 209e6


def test_a_reader_copies_prefixes_and_masks_pairs_for_its_passages() -> None:
    none, copied = {"per_token": 0.0, "per_node": 0.0}, {"per_prefix": 5.0, "per_pair": 7.0}
    cost = replace(COST, layer=8, kept=300, **none, **copied)
    found = cost.activations(2, Sizes(300, 40, 8, passage=10))
    assert found == 2 * (30 * 40 * 5 + 300 * (40 + 10) * 7)


LINES = """\
GPUs          2 x h100 in 1 node, 80.0 GB each
parameters    250000000 trainable: 200000000 in adapters, 50000000 in the graph
examples      1708 tokens, the longest 4304: nodes, 200 of text and 8 of the answer (sizes of \
ConvMix)
              the LM's layers above 8 read up to 300 of the nodes
memory        DDP, at the longest batch: weights 70.0 GB, adapters 0.8 GB, graph 0.2 GB, \
gradients 1.0 GB, optimizer 2.0 GB, step 5.0 GB, activations 25.0 GB
              in all 104.0 GB of 73.6 GB that can be used: does not fit; largest batch 0 examples
time          DDP: 34160 tokens/s, 0.40 s a step, 8.3 min for 1,250 steps of 10,000 questions, \
as not/here.jsonl is not here
memory        FSDP2, at the longest batch: weights 39.4 GB, adapters 0.4 GB, graph 0.1 GB, \
gradients 0.5 GB, optimizer 1.0 GB, step 5.0 GB, activations 25.0 GB
              in all 71.4 GB of 73.6 GB that can be used: fits; largest batch 1 example
time          FSDP2: 21499 tokens/s, 0.64 s a step, 13.2 min for 1,250 steps of 10,000 \
questions, as not/here.jsonl is not here
              time is for 40% of the GPU's 989 TFLOP/s, and at least 20000 kernels a batch at 5 \
µs each: assumptions until measured;
              without evaluations"""


def test_the_lines_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"adapters": 2 * 10**8, "encoder": 5 * 10**7, "layer": 8, "kept": 300}
    cost = replace(COST, frozen=70e9, per_node=25e9 / 4096, per_token=0.0, fixed=5e9, **sizes)
    monkeypatch.setattr(cluster_cost, "cost_of", lambda _: replace(cost, launches=20_000))
    config = config_of(8)
    assert "\n".join(cluster_lines(config, "h100x2")) == LINES
    long = replace(config, training=replace(config.training, num_epochs=20.0))
    assert "2.8 hours for 25,000 steps of" in "\n".join(cluster_lines(long, "h100x2"))
    short = replace(config, training=replace(config.training, max_steps=10))
    assert "0.1 min for 10 steps of" in "\n".join(cluster_lines(short, "h100x2"))


@pytest.mark.parametrize(
    ("size", "tokens", "max_nodes", "num", "longest"),
    [(5, None, 4096, 5, 4096), (None, 3416, 1500, 2, 1500), (None, 1, None, 1, 3000)],
)
def test_a_batch_of_tokens_has_as_many_usual_examples_as_fit(
    size: int | None, tokens: int | None, max_nodes: int | None, num: int, longest: int
) -> None:
    evidence = EvidenceConfig(top_k=100, max_nodes=max_nodes)
    settings = TrainingConfig(batch_size=size, batch_tokens=tokens)
    config = replace(config_of(), evidence=evidence, training=settings)
    assert batch_examples(config) == num
    assert example_sizes(config) == (Sizes(1500), Sizes(longest))


def test_questions_are_those_of_the_config_or_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write_conversations(path, [tiny_conversation(number) for number in range(2)])
    for most, expected in ((None, (6, "6 questions")), (1, (1, "1 question"))):
        data = DataConfig(train=str(path), max_train_questions=most)
        assert cluster_cost._questions(replace(config_of(), data=data)) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("h200", ("h200", 1, 1)), ("a100-80gx8", ("a100-80g", 8, 1))]
)
def test_gpus_are_read(text: str, expected: tuple[str, int, int]) -> None:
    gpus = parse_gpus(text)
    assert (*gpus, gpus.num_nodes) == expected
    assert parse_gpus("h100x16").num_nodes == 2


@pytest.mark.parametrize("text", ["h300", "h100x0", "h100x12", "", "x8"])
def test_gpus_that_do_not_exist_are_named(text: str) -> None:
    with pytest.raises(UserError, match="option --for_gpu: "):
        parse_gpus(text)


def test_mistral_by_name_has_as_many_parameters_as_its_card_says() -> None:
    for version, num in (("v0.2", 7_241_732_096), ("v0.3", 7_248_023_552)):
        config = known_config(f"mistralai/Mistral-7B-Instruct-{version}")
        assert config is not None
        model = random_model(config, "bfloat16", "sdpa", torch.device("meta"))
        assert sum(parameter.numel() for parameter in model.parameters()) == num
    assert known_config("tiny") is None


def test_smollm2_by_name_has_the_sizes_of_its_file() -> None:
    name = "HuggingFaceTB/SmolLM2-135M-Instruct"
    found = AutoConfig.from_pretrained(resolve_model(name))
    for field, expected in SHAPES[name].items():
        assert getattr(found, field) == pytest.approx(expected)


def test_the_command_needs_neither_data_nor_weights(
    tiny_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data.train=no.jsonl", f"--model.base_model={tiny_folder}", "--dry_run"]
    train.main([*options, "--for_gpu", "h100x4"])
    shown = capsys.readouterr().out
    assert "4 x h100 in 1 node" in shown
    assert "assumptions until measured" in shown
    assert shown.count("FSDP2") == 2
    assert "10,000 questions, as no.jsonl is not here" in shown
    train.main([*options, "--for_gpu", "h100x4", "--data.max_train_questions=1"])
    assert capsys.readouterr().out.count("for 1 step of 1 question") == 2
    for gpus, flops in (("h100", 989), ("h200", 989), ("a100-80g", 312)):
        train.main([*options, "--for_gpu", gpus])
        assert f"of the GPU's {flops} TFLOP/s" in capsys.readouterr().out
    with pytest.raises(UserError, match="must come with --dry_run"):
        train.main([*options[:2], "--for_gpu", "h100x4"])
    with pytest.raises(UserError, match="must be a multiple of the 8 GPUs"):
        cluster_lines(config_of(4), "h100x8")
