"""Counts what a model needs in memory and operations, from its config alone, without its weights.

One step of the LM runs on the meta device, where tensors have shapes and no values; what it keeps
grows with the tokens. A reader's layers see fewer tokens above its graph than below.

Sizes: N nodes, T tokens of an example, D LM width, H heads.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, PreTrainedModel

from turngraph.configs.schema import ModelConfig
from turngraph.configs.user_error import UserError
from turngraph.model.base_model import embedding_table, empty_base_model
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.gatv2 import GPU_BLOCK
from turngraph.model.known_shapes import known_config, random_model
from turngraph.model.make_model import make_model
from turngraph.model.node_answers import LONGEST_SPAN
from turngraph.training.operations import (
    LmShape,
    Work,
    lm_shape,
    operations,
    reader_work,
    useful,
)

PASSAGE_TOKENS, TEXT_TOKENS, ANSWER_TOKENS = 15, 200, 8
"""Sizes of ConvMix's examples: a passage; instruction, dialogue and question; an answer."""
READ_LAUNCHES, GRAPH_LAUNCHES = 64, 1424
"""Kernels that a reader's step launches in addition to its LM's, counted on a CPU: for each layer
below the graph, with two groups of segments; for the graph (three GATv2 layers of four heads), the
choice of passages and the losses."""
ATTENTION = "turngraph_shapes"
FOUR_BITS = (4 + 0.127) / 8
"""Bytes of a weight in NF4 with quantized constants (Dettmers et al., 2023, section 3)."""


class Sizes(NamedTuple):
    """Tokens of an example: nodes of the evidence, other text, answer; and of one passage."""

    nodes: int
    text: int = TEXT_TOKENS
    answer: int = ANSWER_TOKENS
    passage: int = PASSAGE_TOKENS

    @property
    def tokens(self) -> int:
        """All tokens, T."""
        return self.nodes + self.text + self.answer


@dataclass(frozen=True)
class Cost:
    """What a model needs, in bytes and numbers of weights.

    Args:
        lm: sizes that determine the LM's operations.
        frozen: bytes of frozen weights.
        adapters, encoder: trained weights, which are float32; a reader's scorer is its encoder.
        per_token: bytes of activations of the LM for each token of a batch.
        per_node: bytes of activations of the encoder for each node.
        fixed: bytes that a step needs whatever its batch is.
        launches: kernels of the LM's forward and backward pass, without compiling.
        layer: number of LM layers below a reader's graph; 0: no reader.
        kept: most nodes that the layers above the graph read; None: all.
        per_prefix: bytes of keys and values that a reader copies for each prefix token and passage.
        per_pair: bytes of a reader's attention mask for each token of a passage and token that it
            may see.
    """

    lm: LmShape
    frozen: float
    adapters: int
    encoder: int
    per_token: float
    per_node: float
    fixed: float
    launches: int
    layer: int
    kept: int | None
    per_prefix: float
    per_pair: float

    @property
    def trained(self) -> int:
        """The number of trained weights."""
        return self.adapters + self.encoder

    def flops(self, sizes: Sizes, recomputed: bool) -> float:
        """Return the operations of one example, forward and backward."""
        of_lm = sum(operations(*part, recomputed) for part in self.work(sizes))
        return of_lm + self.encoder_flops(sizes)

    def work(self, sizes: Sizes) -> list[tuple[LmShape, Work]]:
        """Return parts of the LM, each with what it computes of one example.

        Below a reader's graph, all other text is assumed to precede the passages. Each passage, and
        the answer, attends to that text and to itself.
        """
        if not self.layer:
            return [(self.lm, useful([sizes.tokens], sizes.answer))]
        passages = [sizes.passage] * (sizes.nodes // sizes.passage)
        works = reader_work(sizes.text, passages, sizes.answer, sizes.answer, self.kept)
        return list(zip(self.lm.divided(self.layer), works, strict=True))

    def encoder_flops(self, sizes: Sizes) -> float:
        """Return the operations of the encoder's matrices for one example: 2 forward, 4 back."""
        return 6.0 * self.encoder * sizes.nodes

    def activations(self, examples: int, sizes: Sizes) -> float:
        """Return the bytes of activations of a batch."""
        layers = self.lm.num_layers
        tokens = sum(shape.num_layers / layers * work.tokens for shape, work in self.work(sizes))
        copies = sizes.nodes / sizes.passage * sizes.text * self.per_prefix
        copies += sizes.nodes * (sizes.text + sizes.passage) * self.per_pair
        return examples * (self.per_token * tokens + self.per_node * sizes.nodes + copies)

    def resident(self, processes: int) -> dict[str, float]:
        """Return the bytes that a GPU holds between steps.

        Args:
            processes: number of processes that share all weights by FSDP2; 1: not sharded.
        """
        whole = (
            0.0 if processes == 1 else 2 * self.frozen / self.lm.num_layers
        )  # a layer, and the next one
        return {
            "weights": self.frozen / processes + whole,
            "adapters": 4 * self.adapters / processes,
            "graph": 4 * self.encoder / processes,
            "gradients": 4 * self.trained / processes,
            "optimizer": 8 * self.trained / processes,
        }


def cost_of(config: ModelConfig, tokens: int = 2048) -> Cost:
    """Return a model's cost, counted in a step on the meta device.

    Args:
        config: its ``base_model`` is in ``model.known_shapes``, or has a config that can be read.
        tokens: length of the example whose activations are counted; the cost of a token is their
            mean.

    Raises:
        UserError: the model's config cannot be found, or the model has no LM (``answers: nodes``
            and ``layer: 0``).
    """
    if config.answers == "nodes" and not config.layer:
        raise UserError(
            "config field model.answers: 'nodes' given with model.layer 0, --for_gpu needs an LM"
        )
    config = replace(config, compile=False)
    model = make_model(config, _shapes_of(config)).to("meta").train()
    layers: Any = model.causal_lm.config.get_text_config()
    layers._attn_implementation = ATTENTION  # in place of the one that a reader sets
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
    width, element = layers.hidden_size, getattr(torch, config.dtype).itemsize
    per_node = per_prefix = per_pair = 0.0
    of_graph = config.layer * READ_LAUNCHES + GRAPH_LAUNCHES if config.layer else 0
    if config.layer:
        # states and what is added to them, in float32; queries, keys, values, sums of each layer;
        # of each span that begins at the node: vector of its last node, with gradient, and scores
        per_node = 24 * width + 4 * 12 * config.scorer.width * config.scorer.num_layers
        per_node += 4 * LONGEST_SPAN * (config.scorer.width + 10)
        held = 1 if config.gradient_checkpointing else config.layer
        key_width = shape.width * layers.num_key_value_heads // layers.num_attention_heads
        per_prefix = held * 2 * key_width * element
        per_pair = shape.width / key_width * element
    elif encoder:
        # states before and after, in float32; rows of sources and targets, in bfloat16
        per_node = (16 + 4 * config.encoder.heads) * width * config.encoder.num_layers
    return Cost(
        lm=shape,
        frozen=frozen,
        adapters=adapters,
        encoder=encoder,
        per_token=(live.peak - live.now) / tokens,
        per_node=per_node,
        # bfloat16 copies of what is trained, and a block of edges with its rows
        fixed=2 * (adapters + encoder) + (8 * GPU_BLOCK if encoder and not config.layer else 0),
        launches=live.launches + of_graph,
        layer=config.layer,
        kept=config.scorer.kept_nodes,
        per_prefix=per_prefix,
        per_pair=per_pair,
    )


def _shapes_of(config: ModelConfig) -> PreTrainedModel:
    """Return the base model on the meta device; its attention keeps what a fused kernel keeps."""
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
    """Run a step of the LM; after it, only weights and gradients are live."""
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
        now: number of bytes at the moment.
        peak: the largest number so far.
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
