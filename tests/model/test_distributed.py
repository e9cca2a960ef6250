"""FSDP2 on CPU: two processes train, answer and save as one does."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch.distributed.tensor import DTensor

from turngraph.configs.schema import (
    Config,
    EncoderConfig,
    ModelConfig,
    ScorerConfig,
    TrainingConfig,
)
from turngraph.data.batches.collate import collate
from turngraph.data.examples import Example
from turngraph.inference.answer_batches import answer_together
from turngraph.model.base_model import decoder_layers
from turngraph.model.checkpoint import load_checkpoint, save_checkpoint, trained_weights
from turngraph.model.distributed import (
    gather,
    is_sharded,
    place,
    shard,
    sharding_wanted,
)
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model
from turngraph.tests.processes import Command
from turngraph.tests.scorer_examples import read_examples, reader_builder
from turngraph.tests.tiny import (
    ARCHITECTURES,
    END_ID,
    LORA,
    stir,
    tiny_base,
    tiny_builder,
    tiny_conversation,
    tiny_examples,
    tiny_model,
)

pytestmark = pytest.mark.traced_processes


SCORER = ScorerConfig(num_layers=2, width=16, dropout=0.0, kept_nodes=24)
READER: dict[str, Any] = {"layer": 1, "scorer": SCORER}
KINDS: dict[str, dict[str, Any]] = {
    "graph": {"dtype": "float32"},
    "reader": READER | {"dtype": "float32", "gradient_checkpointing": True},
    "reader_bfloat16": READER | {"dtype": "bfloat16"},
}
"""Fields of the model's config, by name."""
GRAPH_FILES = {0: "graph_encoder.safetensors", 1: "graph_at_layer.safetensors"}
"""Layer of the graph -> file of its weights."""
NUM_STEPS, MAX_COUNT = 2, 3
FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
Json = dict[str, Any]


def run(base: str, kind: str, output: Path) -> Json:
    """Train, answer between the steps, and save, in any number of processes."""
    state = PartialState(cpu=True)
    config = Config(
        model=ModelConfig(base, lora=LORA, encoder=EncoderConfig(dropout=0.0), **KINDS[kind]),
        training=TrainingConfig(max_steps=0),
    )
    torch.manual_seed(0)
    model = place(stir(make_model(config.model)), torch.device("cpu"))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    found: Json = {"units": sum(map(is_sharded, model.modules())), "norms": [], "answers": []}
    for count in range(NUM_STEPS):
        found["norms"].append(train_step(model, optimizer, examples(kind, 4), state))
        found["answers"].append(answers(model, examples(kind, count)))
    found["generated"] = gather_object(
        [generated(model, kind, n) for n in range(state.process_index, 2, state.num_processes)]
    )
    found["answers"] += [answers(model, examples(kind, n)) for n in range(NUM_STEPS, MAX_COUNT + 1)]
    found["elements"] = sum(local(p).numel() for p in model.parameters())
    weights = trained_weights(model)
    if state.is_main_process:
        save_checkpoint(model, config, {}, output / kind, weights)
        (output / f"{kind}.json").write_text(json.dumps(found))
    state.wait_for_everyone()
    return found


def run_node_ranker(base: str, output: Path) -> Json:
    """Rank nodes before and after a step, in any number of processes."""
    state = PartialState(cpu=True)
    settings = ModelConfig(base, lora=None, answers="nodes", scorer=SCORER, dtype="float32")
    torch.manual_seed(0)
    model = place(stir(make_model(settings)), torch.device("cpu"))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    found: Json = {"units": sum(map(is_sharded, model.modules())), "ranked": [ranked(model)]}
    found["norm"] = train_step(model, optimizer, scorer_examples()[:2], state)
    found["ranked"].append(ranked(model))
    if state.is_main_process:
        (output / "node_ranker.json").write_text(json.dumps(found))
    state.wait_for_everyone()
    return found


def examples(kind: str, count: int) -> list[Example]:
    """Examples of a kind of model; the first two of a reader have no evidence, one passage."""
    if KINDS[kind].get("layer", 0) == 0:
        return tiny_examples(count)
    whole = tiny_conversation(0)
    builder, pools = reader_builder(), ((), whole.evidence[:1])
    few = [builder.conversation(replace(whole, evidence=pool), [0])[0] for pool in pools]
    few = [replace(few[0], conversation=replace(whole, id="none")), few[1]]
    return [*few, *read_examples(count)][:count]


def scorer_examples() -> list[Example]:
    """Three examples whose entities can be scored: an odd number for two processes."""
    return replace(tiny_builder(), mentions=True).conversation(tiny_conversation(1))


def ranked(model: EvidenceModel) -> list[tuple[str, list[str], float]]:
    """The answer to each question, its candidates, best first, and its log-probability."""
    prompt, examples = tiny_builder().prompt, scorer_examples()
    records = answer_together(model.eval(), prompt, examples, 8, batch_size=1)
    return [(r["answer"], [c["id"] for c in r["candidates"]], r["logprob"]) for r in records]


def train_step(
    model: EvidenceModel,
    optimizer: torch.optim.Optimizer,
    examples: list[Example],
    state: PartialState,
) -> float:
    """The gradients of a global batch, one example in a forward pass; their norm."""
    num_tokens = sum(len(e.target_ids) for e in examples)
    model.train()
    for example in examples[state.process_index :: state.num_processes]:
        loss = model(collate([example], "right", with_target=True)).total / num_tokens
        (loss * state.num_processes).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    return gather(norm).item()


def answers(model: EvidenceModel, examples: list[Example]) -> list[tuple[str, str, str, float]]:
    """Answers with their questions."""
    records = answer_together(model.eval(), tiny_builder().prompt, examples, 4, batch_size=2)
    return [(r["conversation"], r["turn"], r["answer"], r["logprob"]) for r in records]


def generated(model: EvidenceModel, kind: str, number: int) -> list[list[int]]:
    """An answer of one token or of nine."""
    batch = collate([examples(kind, 2)[number]], "left", with_target=False)
    return model.eval().generate(batch, 1 + 8 * number, END_ID).ids.tolist()


def local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, tiny_folder: str) -> Path:
    """What one process found and saved."""
    output = tmp_path_factory.mktemp("one")
    for kind in KINDS:
        run(tiny_folder, kind, output)
    run_node_ranker(tiny_folder, output)
    return output


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, tiny_folder: str) -> Path:
    """What two processes with shards found and saved."""
    output = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    module = ("-m", "turngraph.tests.model.test_distributed", tiny_folder, output)
    sizes = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        Command(*module, **FSDP2, **group, **sizes, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank in range(2)
    ]
    for rank in ranks:
        said = rank.communicate()[1]
        assert rank.returncode == 0, said[-3000:]
    return output


def found(output: Path, kind: str) -> Json:
    return json.loads((output / f"{kind}.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_shards_train_to_the_same_weights(one: Path, two: Path, kind: str) -> None:
    alone, together = found(one, kind), found(two, kind)
    assert (alone["units"], together["units"]) == (0, 4)  # two layers, encoder or scorer, the rest
    assert min(alone["norms"]) > 1  # clipped in every step
    tolerance = 1e-5 if KINDS[kind]["dtype"] == "float32" else 1e-3
    assert together["norms"] == pytest.approx(alone["norms"], rel=tolerance)
    expected, trained = (load_checkpoint(folder / kind) for folder in (one, two))
    for (name, a), b in zip(expected.named_parameters(), trained.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=tolerance), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_holds_its_part_and_nothing_more(one: Path, two: Path, kind: str) -> None:
    everything, part = (found(output, kind)["elements"] for output in (one, two))
    assert part < 0.52 * everything  # between the steps, and after answers


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_does_not_show_how_it_was_trained(one: Path, two: Path, kind: str) -> None:
    a, b = one / kind, two / kind
    names = [sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) for folder in (a, b)]
    assert names[0] == names[1]
    for name in (GRAPH_FILES[KINDS[kind].get("layer", 0)], "adapter/adapter_model.safetensors"):
        assert header(a / name) == header(b / name)
    assert (a / "config.yaml").read_bytes() == (b / "config.yaml").read_bytes()
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (a, b)]
    prints = [manifest["base_model_fingerprint"] for manifest in manifests]
    assert prints[0] == prints[1]


def header(path: Path) -> bytes:
    """The part of a safetensors file that tells names, types, shapes and places."""
    content = path.read_bytes()
    return content[: 8 + int.from_bytes(content[:8], "little")]


@pytest.mark.parametrize("kind", ["graph", "reader"])
@pytest.mark.parametrize("count", range(MAX_COUNT + 1))
def test_every_question_is_answered_once_whatever_their_number(
    one: Path, two: Path, count: int, kind: str
) -> None:
    alone, together = (found(output, kind)["answers"][count] for output in (one, two))
    assert [tuple(record[:2]) for record in together] == [e.key for e in examples(kind, count)]
    assert [record[:3] for record in together] == [record[:3] for record in alone]
    assert [r[3] for r in together] == pytest.approx([r[3] for r in alone], abs=1e-3)


@pytest.mark.parametrize("kind", ["graph", "reader"])
def test_a_process_whose_answers_are_shorter_waits_for_the_others(
    one: Path, two: Path, kind: str
) -> None:
    alone, together = (found(output, kind)["generated"] for output in (one, two))
    assert together == alone
    short, long = [len(ids) for (ids,) in together]
    assert short == 1 < long


def test_answers_of_a_node_ranker_are_the_same_with_shards(one: Path, two: Path) -> None:
    """Scores need the gathered weights of the scorer, and of what holds it, in every process."""
    alone, together = found(one, "node_ranker"), found(two, "node_ranker")
    assert (alone["units"], together["units"]) == (0, 2)  # the scorer, the rest
    assert together["norm"] == pytest.approx(alone["norm"], rel=1e-5)
    for expected, answered in zip(alone["ranked"], together["ranked"], strict=True):
        assert [record[:2] for record in answered] == [record[:2] for record in expected]
        wanted = pytest.approx([record[2] for record in expected], abs=1e-4)
        assert [record[2] for record in answered] == wanted
    assert alone["ranked"][0] != alone["ranked"][1]  # the step changed them


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_decoder_layers_of_an_architecture_are_found(architecture: str) -> None:
    lm = tiny_model(architecture).lm
    layers = decoder_layers(lm)
    assert len(layers) == len({id(layer) for layer in layers}) == lm.config.num_hidden_layers
    adapted = [name for layer in layers for name, _ in layer.named_parameters() if "lora_" in name]
    assert len(adapted) == sum("lora_" in name for name, _ in lm.named_parameters()) > 0


def test_a_model_without_known_layers_is_refused() -> None:
    base = tiny_base()
    base._no_split_modules = None
    with pytest.raises(ValueError, match=r"model\.base_model: no decoder layers"):
        decoder_layers(base)


def test_quantized_weights_are_refused() -> None:
    model = tiny_model()
    model.config = ModelConfig("tiny", quantization="4bit")
    with pytest.raises(ValueError, match=r"model\.quantization: '4bit' given, must be none"):
        shard(model, torch.device("cpu"))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, r"fsdp_config\.fsdp_version: 1 given, must be 2"),
        ({"FSDP_VERSION": "1"}, r"fsdp_version: 1 given, must be 2"),
        ({"FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "true"}, r"fsdp_offload_params: true given"),
        (
            {"FSDP_VERSION": "2", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"},
            r"fsdp_cpu_ram_efficient_loading: true given, must be false",
        ),
        ({"FSDP_VERSION": "2"}, r"there is no process group; start with accelerate launch"),
    ],
)
def test_a_launcher_that_asks_for_something_else_is_refused(
    environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ({"ACCELERATE_USE_FSDP": "true"} | environment).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        sharding_wanted()


def test_without_a_word_from_the_launcher_nothing_is_sharded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ACCELERATE_USE_FSDP", raising=False)
    model = tiny_model()
    assert place(model, torch.device("cpu")) is model
    assert not is_sharded(model)


if __name__ == "__main__":
    for each in KINDS:
        run(sys.argv[1], each, Path(sys.argv[2]))
    run_node_ranker(sys.argv[1], Path(sys.argv[2]))
