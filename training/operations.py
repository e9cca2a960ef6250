"""Counts an LM's floating-point operations from its sizes and the lengths of its examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from turngraph.model.base_model import decoder_layers


@dataclass(frozen=True)
class LmShape:
    """Sizes of an LM with LoRA that determine its number of operations.

    Args:
        num_layers: number of transformer layers.
        width: number of query heads times head dimension.
        body: frozen parameters in the layers' matrix products.
        head: parameters of the output layer, which only answer positions pass through.
        lora: trained LoRA parameters.
    """

    num_layers: int
    width: int
    body: int
    head: int
    lora: int

    def divided(self, layer: int) -> tuple[LmShape, LmShape]:
        """Return the sizes of layers 1 to ``layer``, and of the layers above it with the output."""
        share = 1 - layer / self.num_layers
        body, lora = round(share * self.body), round(share * self.lora)
        below = LmShape(layer, self.width, self.body - body, 0, self.lora - lora)
        return below, LmShape(self.num_layers - layer, self.width, body, self.head, lora)


class Work(NamedTuple):
    """Tokens through the layers, token pairs in attention, positions through the output layer."""

    tokens: float
    pairs: float
    answer_tokens: float


def lm_shape(lm: Any) -> LmShape:
    """Return the sizes of a transformers LM, with or without PEFT's LoRA."""
    linear = {
        name: module.in_features * module.out_features
        for name, module in lm.named_modules()
        if isinstance(module, nn.Linear)  # leaves out PEFT's wrappers
    }
    output = lm.get_output_embeddings()
    head = output.in_features * output.out_features
    lora = sum(size for name, size in linear.items() if "lora_" in name)
    config = lm.config.get_text_config()
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    body = sum(linear.values()) - lora - head
    num_layers = len(decoder_layers(lm))  # fewer than the config has, where some are released
    return LmShape(num_layers, heads * head_dim, body, head, lora)


def useful(lengths: Sequence[int], answer_tokens: int) -> Work:
    """Return the work of one batch without padding and masked pairs."""
    return Work(sum(lengths), sum(length**2 for length in lengths) / 2, answer_tokens)


def reader_work(
    prefix: int, passages: Sequence[int], suffix: int, answer_tokens: int, kept: int | None
) -> tuple[Work, Work]:
    """Return the work of one example below a reader's graph and above it, without masked pairs.

    Args:
        prefix: number of tokens before the passages, which each passage attends to.
        passages: number of tokens of each passage.
        suffix: number of tokens after the passages, with those of the answer.
        answer_tokens: number of tokens of the answer.
        kept: most tokens of passages that go on above the graph; None: all do.
    """
    num = sum(passages)
    pairs = prefix**2 / 2 + sum(n * prefix + n**2 / 2 for n in (*passages, suffix))
    above = prefix + (num if kept is None else min(num, kept)) + suffix
    return Work(prefix + num + suffix, pairs, 0), Work(above, above**2 / 2, answer_tokens)


def operations(shape: LmShape, work: Work, recomputed: bool) -> float:
    """Return the LM's floating-point operations, forward and backward; a multiply-add counts two.

    Frozen weights, per parameter and token: 2 forward, 2 backward for the input's gradient, none
    for their own. LoRA: 2 forward, 4 backward. Attention, per token pair and channel: 4 forward
    (scores, values), 10 backward, as fused kernels compute the scores again. With gradient
    checkpointing the layers' forward pass counts twice. Embeddings, norms, softmax and the
    optimizer are not counted; queries, keys and values of the first layer count in full, although
    text rows need no gradient of their input (under half a percent of 32 layers).

    Args:
        shape: sizes of the LM.
        work: work of one batch, or a sum over several.
        recomputed: whether gradient checkpointing is on.
    """
    forward = 1 + recomputed
    layers = (2 * forward + 2) * shape.body + (2 * forward + 4) * shape.lora
    attention = (4 * forward + 10) * shape.num_layers * shape.width
    return layers * work.tokens + attention * work.pairs + 4 * shape.head * work.answer_tokens
