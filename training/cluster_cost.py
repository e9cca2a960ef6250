"""Estimates what a training run needs on GPUs that are not here, from its config alone.

Weights and activations are counted by running one step of the LM on the meta device, where tensors
have shapes and no values. Time follows from the step's operations and a share of the GPU's peak.

Sizes: N nodes, T tokens of an example, D LM width, H heads.
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, PreTrainedModel

from turngraph.configs.schema import Config, ModelConfig
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.jsonlines import read_conversations
from turngraph.model.base_model import embedding_table, empty_base_model
from turngraph.model.gatv2 import GPU_BLOCK
from turngraph.model.graph_lm import EvidenceModel, make_model
from turngraph.model.known_shapes import known_config, random_model
from turngraph.training.operations import LmShape, lm_shape, operations, useful

ASSUMED_SHARE = 0.40
"""Operations of a step over the GPU's peak in bfloat16: an assumption, nothing was measured."""
USABLE = 0.92
"""Share of a GPU's memory for tensors; the rest is CUDA's own, and gaps."""
GPUS_PER_NODE = 8
PASSAGE_TOKENS, TEXT_TOKENS, ANSWER_TOKENS = 15, 200, 8
"""Sizes of ConvMix's examples: a passage; instruction, dialogue and question; an answer."""
ATTENTION = "turngraph_shapes"
FOUR_BITS = (4 + 0.127) / 8
"""Bytes of a weight in NF4 with quantized constants (Dettmers et al., 2023, section 3)."""


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
    "a100-80g": Chip(312e12, 80e9, 2.04e12, 300e9, 25e9),
}


class Gpus(NamedTuple):
    """GPUs of one kind, eight in a node.

    Args:
        name: a name of ``CHIPS``.
        num_gpus: all of them.
    """

    name: str
    num_gpus: int

    @property
    def chip(self) -> Chip:
        """The kind."""
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
    found = re.fullmatch(r"(.+?)(?:x([1-9]\d{0,4}))?", text)
    name, count = (found[1], int(found[2] or 1)) if found else (text, 1)
    if name not in CHIPS:
        known = ", ".join(CHIPS)
        raise UserError(
            f"option --for_gpu: {text!r} given, must be one of {known}, or as in h100x8"
        )
    if count > GPUS_PER_NODE and count % GPUS_PER_NODE:
        must = f"must be up to {GPUS_PER_NODE}, or a multiple of it: full nodes"
        raise UserError(f"option --for_gpu: {text!r} given, {must}")
    return Gpus(name, count)


class Sizes(NamedTuple):
    """Tokens of an example: nodes of the evidence, other text, answer."""

    nodes: int
    text: int = TEXT_TOKENS
    answer: int = ANSWER_TOKENS

    @property
    def tokens(self) -> int:
        """All tokens, T."""
        return sum(self)


@dataclass(frozen=True)
class Cost:
    """What a model needs, in bytes and numbers of weights.

    Args:
        lm: sizes that determine the LM's operations.
        frozen: bytes of frozen weights.
        adapters, encoder: trained weights, which are float32.
        per_token: bytes of activations of the LM for each token of a batch.
        per_node: bytes of activations of the encoder for each node.
        fixed: bytes that a step needs whatever its batch is.
        launches: kernels of the LM's forward and backward pass, without compiling.
    """

    lm: LmShape
    frozen: float
    adapters: int
    encoder: int
    per_token: float
    per_node: float
    fixed: float
    launches: int = 0

    @property
    def trained(self) -> int:
        """The number of trained weights."""
        return self.adapters + self.encoder

    def flops(self, sizes: Sizes, recomputed: bool) -> float:
        """Return the operations of one example, forward and backward."""
        of_lm = operations(self.lm, useful([sizes.tokens], sizes.answer), recomputed)
        return of_lm + self.encoder_flops(sizes)

    def encoder_flops(self, sizes: Sizes) -> float:
        """Return the operations of the encoder's matrices for one example: 2 forward, 4 back."""
        return 6.0 * self.encoder * sizes.nodes

    def activations(self, examples: int, sizes: Sizes) -> float:
        """Return the bytes of activations of a batch."""
        return examples * (self.per_token * sizes.tokens + self.per_node * sizes.nodes)

    def resident(self, processes: int = 1, layers: int = 1) -> dict[str, float]:
        """Return the bytes that a GPU holds between steps.

        Args:
            processes: that share all weights by FSDP2; 1: each has all.
            layers: decoder layers.
        """
        whole = 0.0 if processes == 1 else 2 * self.frozen / layers  # a layer, and the next one
        return {
            "weights": self.frozen / processes + whole,
            "adapters": 4 * self.adapters / processes,
            "encoder": 4 * self.encoder / processes,
            "gradients": 4 * self.trained / processes,
            "optimizer": 8 * self.trained / processes,
        }


def cost_of(config: ModelConfig, tokens: int = 2048) -> Cost:
    """Return a model's cost, by a step on the meta device.

    Args:
        config: names a model whose sizes are known (``model.known_shapes``), or whose config can
            be read.
        tokens: of the example whose activations are counted; they grow with their number.

    Raises:
        UserError: the model's config cannot be found, or nodes answer, which have no LM.
    """
    if config.answers == "nodes":
        raise UserError("config field model.answers: 'nodes' given, --for_gpu is for LMs")
    config = replace(config, compile=False)
    model = make_model(config, _shapes_of(config)).to("meta").train()
    layers: Any = model.causal_lm.config.get_text_config()
    trained = {n: sum(p.numel() for p in g) for n, g in model.parameter_groups().items()}
    adapters = trained.get("lora", 0)
    live = _step(model, tokens)
    shape = lm_shape(model.causal_lm)
    frozen: float = sum(
        p.numel() * p.element_size() for p in model.parameters() if not p.requires_grad
    )
    if config.quantization == "4bit":
        frozen -= shape.body * (torch.finfo(getattr(torch, config.dtype)).bits / 8 - FOUR_BITS)
    encoder = sum(trained.values()) - adapters
    width, heads = layers.hidden_size, config.encoder.heads
    return Cost(
        lm=shape,
        frozen=frozen,
        adapters=adapters,
        encoder=encoder,
        per_token=(live.peak - live.now) / tokens,
        # states before and after, in float32; rows of sources and targets, in bfloat16
        per_node=(16 + 4 * heads) * width * config.encoder.num_layers if encoder else 0,
        # bfloat16 copies of what is trained, and a block of edges with its rows
        fixed=2 * (adapters + encoder) + (8 * GPU_BLOCK if encoder else 0),
        launches=live.launches,
    )


def _shapes_of(config: ModelConfig) -> PreTrainedModel:
    """Return the base model without values; its attention keeps what fused kernels keep."""
    AttentionInterface.register(ATTENTION, _attention)
    known = known_config(config.base_model)
    if known is None:
        base = empty_base_model(config.base_model, config.dtype, config.trust_remote_code)
        known = base.config
    return random_model(known, config.dtype, ATTENTION, torch.device("meta"))


def _attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, None]:
    """Attention for transformers that computes nothing."""
    out: Tensor = _FusedShapes.apply(query, key, value)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2).contiguous(), None


class _FusedShapes(torch.autograd.Function):
    """Keeps queries, keys, values, output and a number for each query, as FlashAttention does."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return an output like the queries."""
        out = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, out, query.new_empty(query.shape[:3]).float())
        return out

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, ...]:
        """Return gradients of the right shapes."""
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


def _step(model: EvidenceModel, tokens: int) -> LiveBytes:
    """Run a step of the LM; what is left after it is weights and gradients."""
    device = torch.device("meta")
    width = embedding_table(model.causal_lm).embedding_dim
    kind = getattr(torch, model.config.dtype)
    states = torch.empty(1, tokens, width, dtype=kind, requires_grad=True, device=device)
    live = LiveBytes()
    with live:
        output = model.causal_lm(
            inputs_embeds=states,
            position_ids=torch.arange(tokens, device=device)[None],
            use_cache=False,
            logits_to_keep=torch.arange(ANSWER_TOKENS, device=device),
        )
        output.logits.float().sum().backward()
        del output
    return live


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that operations have touched and that still exist.

    Attributes:
        now: bytes at the moment.
        peak: most of them.
        launches: operations that have made a new tensor, not a view.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's is untyped
        self.now = self.peak = self.launches = 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], _: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and count its arguments and results."""
        result = func(*args, **kwargs or {})
        given, made = (
            [t.untyped_storage() for t in tree_leaves(some) if isinstance(t, Tensor)]
            for some in (args, result)
        )
        self.launches += bool({s._cdata for s in made} - {s._cdata for s in given})
        for storage in (*given, *made):
            self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._known:
            return
        self._known[storage._cdata] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, storage._cdata)

    def _forget(self, key: int) -> None:
        self.now -= self._known.pop(key)


@dataclass(frozen=True)
class Plan:
    """A run on some GPUs.

    Args:
        memory: bytes of a GPU by part, at the config's batch of the longest examples.
        largest: examples of the longest kind in the largest batch that fits; 0: none fits.
        tokens_per_second: of all GPUs.
        seconds: of one step.
    """

    memory: dict[str, float]
    largest: int
    tokens_per_second: float
    seconds: float


def plan(config: Config, cost: Cost, gpus: Gpus, sharded: bool, share: float) -> Plan:
    """Return the estimate of a run.

    Args:
        config: of the run.
        cost: of its model.
        gpus: what it runs on.
        sharded: FSDP2; False: data parallelism, or one GPU.
        share: operations of a step over the GPU's peak.
    """
    chip, settings, model = gpus.chip, config.training, config.model
    batch, (usual, longest) = batch_examples(config), example_sizes(config)
    held = cost.resident(gpus.num_gpus if sharded else 1, cost.lm.num_layers) | {"step": cost.fixed}
    room = USABLE * chip.memory - sum(held.values())
    per_step = settings.batches_per_step * batch  # examples, of all GPUs
    mine = math.ceil(settings.batches_per_step / gpus.num_gpus)  # batches
    computing = (
        mine * batch * cost.flops(usual, model.gradient_checkpointing) / (share * chip.flops)
    )
    seconds = max(computing, _exchange_seconds(cost, gpus, sharded, mine, model))
    return Plan(
        held | {"activations": cost.activations(batch, longest)},
        max(int(room // cost.activations(1, longest)), 0),
        per_step * usual.tokens / seconds,
        seconds,
    )


def _exchange_seconds(
    cost: Cost, gpus: Gpus, sharded: bool, batches: int, model: ModelConfig
) -> float:
    """Return the seconds of a step's transfers between GPUs, which go on beside its operations."""
    if gpus.num_gpus == 1:
        return 0.0
    chip, part = gpus.chip, (gpus.num_gpus - 1) / gpus.num_gpus
    speed = chip.link if gpus.num_nodes == 1 else min(chip.link, GPUS_PER_NODE * chip.network)
    gradients = 2 * 4 * cost.trained  # to be added up, and back
    if not sharded:
        return part * gradients / speed
    gathers = 3 if model.gradient_checkpointing else 2
    return batches * part * (gathers * (cost.frozen + 4 * cost.trained) + gradients / 2) / speed


def example_sizes(config: Config) -> tuple[Sizes, Sizes]:
    """Return the usual and the longest example that a config makes, as far as it says."""
    evidence = config.in_training.evidence
    usual = PASSAGE_TOKENS * evidence.top_k
    most = evidence.max_nodes or 2 * usual
    return Sizes(min(usual, most)), Sizes(most)


def batch_examples(config: Config) -> int:
    """Return the number of usual examples in a batch."""
    settings, (usual, _) = config.training, example_sizes(config)
    return settings.batch_size or max((settings.batch_tokens or 0) // usual.tokens, 1)


def cluster_lines(config: Config, text: str) -> list[str]:
    """Return lines of text: memory by part, largest batch, speed and time of a run on GPUs.

    Args:
        config: of the run; neither its data nor the weights of its model need be here.
        text: the GPUs, for ``parse_gpus``.

    Raises:
        UserError: as ``parse_gpus`` and ``cost_of``, or processes and batches do not agree.
    """
    gpus = parse_gpus(text)
    per_step = config.training.batches_per_step
    if per_step % gpus.num_gpus:
        given = f"config field training.batches_per_step: {per_step} given"
        raise UserError(f"{given}, {gpus.num_gpus} GPUs must divide it")
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
        "the encoder",
        f"examples      {usual.tokens} tokens, the longest {longest.tokens}: nodes, "
        f"{usual.text} of text and {usual.answer} of the answer (sizes of ConvMix)",
    ]
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
    lines.append(f"              {share}, an assumption until measured; without evaluations")
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
    num = num * data.train_repeats + data.table_questions
    return num, plural(num, "question")


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
