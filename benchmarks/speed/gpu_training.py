"""Training rows of ``gpu.py``: ceilings, ours, its peers, SmolLM2, precision, reader."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from turngraph.benchmarks.speed.gpu_bench import (
    CONVMIX,
    SQA,
    SQA_READER,
    Bench,
    Evidences,
    RowError,
    Training,
    Values,
    clock,
)
from turngraph.configs.schema import Config
from turngraph.data.batches.collate import collate
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.examples import Example
from turngraph.model.base_model import decoder_layers
from turngraph.model.evidence_model import EvidenceModel, node_ids_of
from turngraph.model.graph_lm import GraphLM
from turngraph.model.make_model import make_model
from turngraph.model.reader import Reader
from turngraph.training.model_cost import Sizes, cost_of

GIB_COPIED = 4
QUESTIONS = 64
"""Different synthetic questions of a row."""
MOST_TOGETHER = 64
"""Most examples in one batch."""
SIZES_TRIED = (2, 4, 8, 16, 32)
"""Batch sizes of the peers, until memory or time ends."""


def ceilings(bench: Bench) -> Values:
    """Measure a matrix product of random numbers, and a copy: nothing is faster than these."""
    size, gib = (64, 0.001) if bench.tiny else (8192, GIB_COPIED)
    left, right = (
        torch.randn(size, size, device=bench.device, dtype=torch.bfloat16) for _ in range(2)
    )  # [size, size]
    flops = 2 * size**3 / bench.repeat(lambda: left @ right, 20, warm=3)
    source = torch.randn(int(gib * 2**28), device=bench.device)
    target = torch.empty_like(source)
    seconds = bench.repeat(lambda: target.copy_(source), 20, warm=3)
    return {"matmul_tflops": flops / 1e12, "copy_gb_s": 2 * source.nbytes / seconds / 1e9}


def train_row(*options: str, sizes: Evidences = CONVMIX) -> Callable[[Bench], Values]:
    """Return what measures a training with some options of its config."""

    def measure(bench: Bench) -> Values:
        if bench.tiny and "--model.compile=true" in options:
            raise RowError("compiling takes too long for a test")
        return _measured(_training(bench, sizes, *options), 10)

    return measure


def _training(bench: Bench, sizes: Evidences, *options: str) -> Training:
    config = bench.config(sizes, *options)
    return Training(bench, config, bench.examples(sizes, QUESTIONS, config))


def _measured(training: Training, most: int) -> Values:
    values = training.measure(most)
    return values | encoder_share(training, values) | waits(training)


def encoder_share(training: Training, values: Values) -> Values:
    """Measure the two passes of encoder or scorer alone, as a share of the time of its batch."""
    model, bench, config = training.run.model, training.bench, training.config
    if not model.has_graph:
        return {}
    batches = training.schedule.step(0)
    examples = [training.examples[index] for index in batches[0]]
    packed = config.training.packing
    tensors = collate(examples, "right", True, packed=packed).to(bench.device)

    def encode() -> None:
        edges = tensors.edge_index, tensors.edge_types
        if isinstance(model, Reader):
            assert tensors.candidates is not None, "built without mentions"
            features = tensors.edge_index.new_zeros(
                int(tensors.candidates.segment_sizes.sum()), model.graph.up.out_features
            )
            states = model.graph.scorer(features.float(), *edges, tensors.candidates).states
        else:
            assert isinstance(model, GraphLM), type(model)
            with model._autocast():
                states = model.encoder(node_ids_of(tensors), edges[0])
        states.sum().backward()

    seconds = bench.repeat(encode, 5)
    model.zero_grad()
    return {"encoder_share": seconds * len(batches) / values["seconds_step"]}


def waits(training: Training) -> Values:
    """Count how often a step waits for the GPU, as torch reports it."""
    if training.bench.device.type != "cuda":
        return {}
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            training.steps(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    found = [w for w in caught if "synchroniz" in str(w.message)]
    return {"waits_step": len(found)}


def largest_row(*options: str, sizes: Evidences = CONVMIX) -> Callable[[Bench], Values]:
    """Return what measures one batch a step with the most examples that fit."""

    def measure(bench: Bench) -> Values:
        if bench.device.type == "cpu" and any("flex_attention" in option for option in options):
            raise RowError("flex_attention has no gradients on a CPU")
        given = [*options, "--training.batches_per_step=1"]
        count = _fitting(bench, sizes, given)
        while True:
            with suppress(torch.OutOfMemoryError):
                size = f"--training.batch_size={count}"
                return _measured(_training(bench, sizes, size, *given), 6)
            if count == 1:
                raise RowError("one example does not fit")
            count = max(3 * count // 4, 1)

    return measure


def _fitting(bench: Bench, sizes: Evidences, options: Sequence[str]) -> int:
    """Return how many examples fit in a batch, from the memory that one takes."""
    if bench.device.type == "cpu":
        return 2
    training = _training(bench, sizes, "--training.batch_size=1", *options)
    training.steps(2)
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    training.steps(2)
    each = torch.cuda.max_memory_allocated() - held
    total = torch.cuda.get_device_properties(bench.device).total_memory
    return max(min(int((0.9 * total - held) / max(each, 1)), MOST_TOGETHER), 1)


def profiled(bench: Bench, sizes: Evidences) -> Values:
    """Profile two steps: the kernels that take most time, and the time without any."""
    training = _training(bench, sizes)
    training.steps(1 if bench.tiny else 2)
    activities = [ProfilerActivity.CPU]
    if bench.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as found:
        seconds = training.steps(1 if bench.tiny else 2)
    on_gpu = bench.device.type == "cuda"
    kind = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    kernels = [(getattr(event, kind) / 1e6, event.key) for event in found.key_averages()]
    busy = sum(time for time, _ in kernels)
    largest = sorted(kernels, reverse=True)[:3]
    values: Values = {"kernels": [f"{name[:80]} {time / busy:.0%}" for time, name in largest]}
    return values | ({"gaps_share": max(1 - busy / seconds, 0.0)} if on_gpu else {})


def peer_row(name: str) -> Callable[[Bench], Values]:
    """Return what measures our loop (graph, text) or a peer (trl, pyg) at its best batch size."""

    def measure(bench: Bench) -> Values:
        from turngraph.benchmarks.speed import peers  # PyG's models take seconds

        kind = "graph" if name in ("graph", "pyg") else "text"
        config = bench.config(CONVMIX, "--training.batches_per_step=1", f"--model.evidence={kind}")
        config = replace(config, model=replace(config.model, lora=peers.LORA))
        base, examples = bench.base(config), bench.examples(CONVMIX, QUESTIONS)
        system: Any
        if name == "pyg":
            system = peers.Pyg(base, bench.tokenizer, config)
        else:
            system = make_model(config.model, base).to(bench.device)
            system = peers.Trl(system, config, bench.tokenizer) if name == "trl" else system
        found: list[Values] = []
        for size in (2,) if bench.tiny else SIZES_TRIED:
            if found and time.monotonic() + 6 * found[-1]["seconds_step"] > bench.deadline:
                break
            training = replace(config.training, batch_size=size)
            try:
                found.append(
                    _two_steps(bench, replace(config, training=training), system, examples)
                )
            except torch.OutOfMemoryError:
                bench.free()
                break
        if not found:
            raise RowError(f"a batch of {SIZES_TRIED[0]} does not fit")
        return max(found, key=lambda values: values["examples_s"]) | bench.memory()

    return measure


def _two_steps(bench: Bench, config: Config, system: Any, examples: list[Example]) -> Values:
    """Return the speed of two steps after one: of our loop over a model, or of a peer."""
    if isinstance(system, EvidenceModel):
        return Training(bench, config, examples, system).measure(2, warm=1)
    schedule = BatchSchedule(examples, config.training)
    batches = [[examples[index] for index in schedule.step(n)[0]] for n in range(3)]
    system.train(batches[:1])
    seconds, loss = system.train(batches[1:])
    chosen = [example for batch in batches[1:] for example in batch]
    rates = {"examples_s": len(chosen), "tokens_s": sum(map(system.num_tokens, chosen))}
    rates = {name: number / seconds for name, number in rates.items()}
    return rates | {"batch": len(batches[0]), "seconds_step": seconds / 2, "loss": loss}


def sqa(how: str) -> Callable[[Bench], Values]:
    """Return what measures SmolLM2 on SQA's sizes: eager, compiled, or as CUDA graphs."""

    def measure(bench: Bench) -> Values:
        if how != "eager" and bench.tiny:
            raise RowError("compiling takes too long for a test")
        options = ["--training.batch_size=4", f"--model.compile={str(how == 'compiled').lower()}"]
        config = bench.config(SQA, "--training.batches_per_step=1", *options)
        examples = bench.examples(SQA, QUESTIONS, config)
        model = bench.model(config)
        if how == "graphs":
            if bench.device.type != "cuda":
                raise RowError("there are no CUDA graphs on a CPU")
            examples = examples[:1] * QUESTIONS  # a graph has one shape
            for layer in decoder_layers(model.causal_lm):
                layer.compile(mode="reduce-overhead", dynamic=False)
        return Training(bench, config, examples, model).measure(30, warm=4)

    return measure


def four_bit(bench: Bench) -> Values:
    """Measure training over a base in NF4, whose random weights are quantized on the device."""
    import bitsandbytes

    config = bench.config(CONVMIX)
    base: Any = bench.base(config)
    for layer in decoder_layers(base):
        for name, linear in list(layer.named_modules()):
            if isinstance(linear, nn.Linear):
                small = bitsandbytes.nn.Linear4bit(
                    linear.in_features,
                    linear.out_features,
                    bias=False,
                    compute_dtype=torch.bfloat16,
                    quant_type="nf4",
                )
                small.weight = bitsandbytes.nn.Params4bit(
                    linear.weight.data.cpu(), requires_grad=False, quant_type="nf4"
                )
                parent, _, last = name.rpartition(".")
                setattr(layer.get_submodule(parent), last, small.to(bench.device))
    base.is_loaded_in_4bit = True
    bench.free()
    model = make_model(config.model, base).to(bench.device)
    return Training(bench, config, bench.examples(CONVMIX, QUESTIONS), model).measure(6)


def parity(bench: Bench) -> Values:
    """Train the same small model ten steps here, in both types, and on the CPU in float32."""
    config = bench.config(SQA, "--model.dtype=float32", "--model.encoder.dropout=0")
    examples = bench.examples(SQA, 8)
    here, base = bench.device, replace(bench, device=torch.device("cpu")).base(config)
    steps, losses = 2 if bench.tiny else 10, dict[str, list[float]]()
    for name, dtype, device in (
        ("cpu", "float32", torch.device("cpu")),
        ("float32", "float32", here),
        ("bfloat16", "bfloat16", here),
    ):
        kind: Any = dtype
        model_config = replace(config.model, dtype=kind)
        torch.manual_seed(bench.seed)
        model = make_model(model_config, deepcopy(base).to(getattr(torch, dtype))).to(device)
        losses[name] = _losses(model, examples, steps, config.training.learning_rate)
    errors = {
        name: max(abs(a - b) / abs(b) for a, b in zip(losses[name], losses["cpu"], strict=True))
        for name in ("float32", "bfloat16")
    }
    return {f"{name}_error": error for name, error in errors.items()} | {"losses": losses["cpu"]}


def _losses(
    model: EvidenceModel, examples: Sequence[Example], steps: int, rate: float
) -> list[float]:
    """Return the mean loss of each step of a plain loop over one batch a step."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer, losses = torch.optim.Adam(trained, rate), list[float]()
    model.train()
    for index in range(steps):
        batch = collate(examples[index % 4 :: 4], "right", with_target=True).to(model.device)
        loss = model(batch)
        mean = loss.total / loss.num_tokens
        mean.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(mean.detach()))
    return losses


def reader_steps(bench: Bench) -> Values:
    """Train the reader; the loop stops where a loss is not finite."""
    config = bench.config(SQA_READER, "--training.batches_per_step=1")
    training = Training(bench, config, bench.examples(SQA_READER, QUESTIONS, config))
    steps, began = (2 if bench.tiny else 300), clock(bench.device)
    while training.taken < steps and (not training.taken or time.monotonic() < bench.deadline):
        training.steps(min(10, steps - training.taken))
    seconds = clock(bench.device) - began
    losses = [values["loss"] for values in training.logged]
    assert all(map(math.isfinite, losses)), "the loop has not stopped"
    values = {"steps": training.taken, "seconds_step": seconds / training.taken}
    last = statistics.mean(losses[-20:])
    return values | {"first_loss": losses[0], "last_loss": last} | bench.memory()


def estimate_row(name: str, sizes: Evidences) -> Callable[[Bench], Values]:
    """Return what compares the dry run's estimate of memory with that of a measured row.

    It raises ``RowError`` where that row was not measured.
    """

    def measure(bench: Bench) -> Values:
        row = bench.known.get(name, {})
        if "peak_gb" not in row:
            raise RowError(f"needs the memory of row {name}, on a GPU")
        estimate = estimated(bench, sizes) / 1e9
        found = {"estimated_gb": estimate, "measured_gb": row["peak_gb"]}
        return found | {"error": abs(estimate / row["peak_gb"] - 1)}

    return measure


def estimated(bench: Bench, sizes: Evidences) -> float:
    """Return the bytes that a step is estimated to need, for the longest example."""
    config = bench.config(sizes)
    cost, examples = cost_of(config.model), bench.examples(sizes, QUESTIONS, config)
    longest = max(examples, key=lambda example: example.num_tokens)
    num = len(longest.graph.prompt_ids)
    text = longest.num_tokens - num - len(longest.target_ids)
    passage = max(num // max(len(longest.evidence), 1), 1)
    of_step = cost.activations(1, Sizes(num, text, len(longest.target_ids), passage))
    return sum(cost.resident(1).values()) + cost.fixed + of_step
