"""Estimates what a training run needs on GPUs that are not here, from its config alone.

Memory is what ``model_cost`` counts. Time follows from a step's operations and a share of the GPU's
peak.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.jsonlines import read_conversations
from turngraph.training.model_cost import PASSAGE_TOKENS, Cost, Sizes, cost_of

ASSUMED_SHARE = 0.40
"""Operations of a step over the GPU's peak in bfloat16: an assumption, nothing was measured."""
LAUNCH_SECONDS = 5e-6
"""Time between two kernel launches from Python: an assumption, nothing was measured."""
USABLE = 0.92
"""Share of a GPU's memory for tensors; the rest is for CUDA itself and lost to fragmentation."""
GPUS_PER_NODE = 8


class Chip(NamedTuple):
    """A GPU, from its maker's data sheet; dense operations, without sparsity.

    Args:
        flops: operations per second in bfloat16.
        memory: bytes.
        bandwidth: bytes per second between memory and cores.
        link: bytes per second to the other GPUs of a node, in one direction.
        network: bytes per second to other nodes, for each GPU, in one direction.
    """

    flops: float
    memory: float
    bandwidth: float
    link: float
    network: float


CHIPS = {
    "h100": Chip(989e12, 80e9, 3.35e12, 450e9, 50e9),
    "h200": Chip(989e12, 141e9, 4.8e12, 450e9, 50e9),
    "a100-80g": Chip(312e12, 80e9, 2.039e12, 300e9, 25e9),
}
"""From NVIDIA's data sheets of the SXM modules.

H100: 1,979 TFLOP/s in bfloat16 with sparsity, half of it without; 80 GB, 3.35 TB/s; NVLink 900 GB/s
in both directions together. H200: the same, 141 GB, 4.8 TB/s. A100 80GB: 312 TFLOP/s without
sparsity, 2,039 GB/s, NVLink 600 GB/s. Networks as in NVIDIA's DGX H100 and H200 (400 Gb/s for each
GPU) and DGX A100 (200 Gb/s).
"""


class Gpus(NamedTuple):
    """GPUs of one kind, eight in a node.

    Args:
        name: a name of ``CHIPS``.
        num_gpus: number of GPUs, of all nodes together.
    """

    name: str
    num_gpus: int

    @property
    def chip(self) -> Chip:
        """The GPU's data sheet."""
        return CHIPS[self.name]

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return math.ceil(self.num_gpus / GPUS_PER_NODE)


def parse_gpus(text: str) -> Gpus:
    """Read ``h200``, ``a100-80gx8`` or ``h100x16``, which is two nodes.

    Raises:
        UserError: there is no such GPU, or nodes would not be full.
    """
    match = re.fullmatch(r"(.+?)(?:x([1-9]\d{0,4}))?", text)
    if match is None or match[1] not in CHIPS:
        names = ", ".join(CHIPS)
        raise UserError(
            f"option --for_gpu: {text!r} given, must be one of {names}, or several as in h100x8"
        )
    name, count = match[1], int(match[2] or 1)
    if count > GPUS_PER_NODE and count % GPUS_PER_NODE:
        must = f"must be up to {GPUS_PER_NODE} GPUs, or a multiple of {GPUS_PER_NODE}: full nodes"
        raise UserError(f"option --for_gpu: {text!r} given, {must}")
    return Gpus(name, count)


@dataclass(frozen=True)
class Plan:
    """A run on some GPUs.

    Args:
        memory: bytes of a GPU by part, at the config's batch of the longest examples.
        largest: examples of the longest kind in the largest batch that fits; 0: none fits.
        tokens_per_second: tokens that all GPUs together process in a second.
        seconds: time of one step.
    """

    memory: dict[str, float]
    largest: int
    tokens_per_second: float
    seconds: float


def plan(config: Config, cost: Cost, gpus: Gpus, sharded: bool, share: float) -> Plan:
    """Return the estimate of a run.

    Args:
        config: config of the run.
        cost: cost of its model.
        gpus: GPUs that it runs on.
        sharded: True: FSDP2; False: data parallelism, or one GPU.
        share: operations of a step over the GPU's peak.
    """
    chip, settings, model = gpus.chip, config.training, config.model
    batch, (usual, longest) = batch_examples(config), example_sizes(config)
    held = cost.resident(gpus.num_gpus if sharded else 1) | {"step": cost.fixed}
    room = USABLE * chip.memory - sum(held.values())
    per_step = settings.batches_per_step * batch  # examples of all GPUs
    mine = math.ceil(settings.batches_per_step / gpus.num_gpus)  # batches of one GPU
    again = model.gradient_checkpointing
    computing = batch * cost.flops(usual, again) / (share * chip.flops)
    launching = 0.0 if model.compile else cost.launches * LAUNCH_SECONDS
    speed = chip.link if gpus.num_nodes == 1 else min(chip.link, GPUS_PER_NODE * chip.network)
    exchanging = exchange_bytes(cost, gpus, sharded, mine, again) / speed
    # launching kernels and sending weights and gradients overlap with computing
    seconds = max(mine * max(computing, launching), exchanging)
    return Plan(
        held | {"activations": cost.activations(batch, longest)},
        max(int(room // cost.activations(1, longest)), 0),
        per_step * usual.tokens / seconds,
        seconds,
    )


def exchange_bytes(cost: Cost, gpus: Gpus, sharded: bool, batches: int, recomputed: bool) -> float:
    """Return the bytes that a GPU sends to others in a step.

    Args:
        cost: cost of the model.
        gpus: all GPUs of the run.
        sharded: True: FSDP2, which gathers each layer once a pass and adds gradients up once a
            batch; False: data parallelism, which adds them up once a step, and sends the sums back.
        batches: number of batches of one GPU in a step.
        recomputed: whether layers are computed again in the backward pass.
    """
    share, gradients = (gpus.num_gpus - 1) / gpus.num_gpus, 4 * cost.trained
    if not sharded:
        return share * 2 * gradients
    gathers = 3 if recomputed else 2
    return batches * share * (gathers * (cost.frozen + 4 * cost.trained) + gradients)


def example_sizes(config: Config) -> tuple[Sizes, Sizes]:
    """Return the sizes of a usual and of the longest example, estimated from a config."""
    usual = PASSAGE_TOKENS * config.training_passages
    most = config.evidence.max_nodes or 2 * usual
    return Sizes(min(usual, most)), Sizes(most)


def batch_examples(config: Config) -> int:
    """Return the number of usual examples in a batch."""
    settings, (usual, _) = config.training, example_sizes(config)
    return settings.batch_size or max((settings.batch_tokens or 0) // usual.tokens, 1)


def cluster_lines(config: Config, text: str) -> list[str]:
    """Return lines of text: memory by part, largest batch, speed and time of a run on GPUs.

    Args:
        config: config of the run; neither its data nor the weights of its model need be here.
        text: the GPUs, for ``parse_gpus``.

    Raises:
        UserError: as ``parse_gpus`` and ``cost_of``, or processes and batches do not agree.
    """
    gpus = parse_gpus(text)
    per_step = config.training.batches_per_step
    if per_step % gpus.num_gpus:
        given = f"config field training.batches_per_step: {per_step} given"
        raise UserError(f"{given}, must be a multiple of the {gpus.num_gpus} GPUs")
    cost, (usual, longest) = cost_of(config.model), example_sizes(config)
    kinds = {"DDP": False, "FSDP2": True} if gpus.num_gpus > 1 else {"one GPU": False}
    plans = {kind: plan(config, cost, gpus, way, ASSUMED_SHARE) for kind, way in kinds.items()}
    num, known = _questions(config)
    steps = max(int(config.training.num_epochs * num / (per_step * batch_examples(config))), 1)
    steps = min(steps, config.training.max_steps or steps)
    lines = [
        f"GPUs          {gpus.num_gpus} x {gpus.name} in {plural(gpus.num_nodes, 'node')}, "
        f"{_gb(gpus.chip.memory)} each",
        f"parameters    {cost.trained} trainable: {cost.adapters} in adapters, {cost.encoder} in "
        "the graph",
        f"examples      {usual.tokens} tokens, the longest {longest.tokens}: nodes, "
        f"{usual.text} of text and {usual.answer} of the answer (sizes of ConvMix)",
    ]
    if 0 < cost.layer < cost.lm.num_layers:
        most = "all" if cost.kept is None else f"up to {cost.kept}"
        lines.append(f"              the LM's layers above {cost.layer} read {most} of the nodes")
    for kind, one in plans.items():
        total, room = sum(one.memory.values()), USABLE * gpus.chip.memory
        parts = ", ".join(f"{name} {_gb(size)}" for name, size in one.memory.items())
        fits = "fits" if total <= room else "does not fit"
        lines += [
            f"memory        {kind}, at the longest batch: {parts}",
            f"              in all {_gb(total)} of {_gb(room)} that can be used: {fits}; largest "
            f"batch {plural(one.largest, 'example')}",
            f"time          {kind}: {one.tokens_per_second:.0f} tokens/s, {one.seconds:.2f} s a "
            f"step, {_hours(steps * one.seconds)} for {plural(steps, 'step')} of {known}",
        ]
    share = f"time is for {ASSUMED_SHARE:.0%} of the GPU's {gpus.chip.flops / 1e12:.0f} TFLOP/s"
    launches = f"{cost.launches} kernels a batch at {1e6 * LAUNCH_SECONDS:g} µs each"
    lines.append(f"              {share}, and at least {launches}: assumptions until measured;")
    lines.append("              without evaluations")
    return lines


def _questions(config: Config) -> tuple[int, str]:
    """Return the number of training questions, and the words for where it comes from."""
    data = config.data
    if data.max_train_questions is not None:
        num = data.max_train_questions
    elif data.train is not None and Path(data.train).exists():
        num = sum(len(c.turns) for c in read_conversations(data.train))
    else:
        return 10_000, f"10,000 questions, as {data.train} is not here"
    return num, plural(num, "question")


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
