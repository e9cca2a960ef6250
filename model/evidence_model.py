"""The base class of the models, a batch's tensors, the loss, and what several models share.

Shapes: B examples, N nodes, V vocabulary, A answer tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import NamedTuple, Protocol, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from turngraph.configs.schema import ModelConfig
from turngraph.model.base_model import (
    LORA,
    add_lora,
    cast_adapter_inputs,
    compile_layers,
    embedding_table,
    fingerprint,
    load_base_model,
    recompute_layers,
)
from turngraph.model.base_probe import check_base_model
from turngraph.model.generation import Generated, Past
from turngraph.model.node_answers import CandidatesLike, NodeScores
from turngraph.model.reader_layers import ReadingLike

CHUNK_LOGITS = 2**24
"""Logits per chunk of the loss: 64 MiB in float32, 512 answer tokens of a 32k vocabulary."""


class BatchLike(Protocol):
    """The tensors of a batch; ``data.batches.collate.Batch`` documents their shapes."""

    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor
    node_mask: Tensor
    edge_index: Tensor
    labels: Tensor
    edge_types: Tensor
    node_ids: Tensor | None
    in_prompt: Tensor | None
    node_places: Tensor
    answer_places: Tensor
    answer_columns: Tensor
    padded_right: bool

    @property
    def candidates(self) -> CandidatesLike | None:
        """The candidate answers; None where the graphs have no mentions."""

    @property
    def reading(self) -> ReadingLike | None:
        """The batch as a reader reads it; None where no reader does."""


class Loss(NamedTuple):
    """Cross-entropy summed over the answer tokens or the answers, and the number of tokens."""

    total: Tensor
    num_tokens: Tensor


class EvidenceModel(nn.Module):
    """Base class of the models, which answer questions from evidence.

    Args:
        config: base model, LoRA, graph.
        base: the base model, loaded as the config says; None loads it by its name.

    Attributes:
        lm: the LM with its adapters, if it has any; None: only its token embeddings are used.

    Raises:
        UserError: the base model cannot be found or loaded as configured, does not read prompts
            as it must (``check_base_model``), or LoRA names layers that it does not have.
    """

    writes = True
    """Whether the model generates text; False: it only ranks candidate answers of the evidence."""

    def __init__(self, config: ModelConfig, base: PreTrainedModel | None) -> None:
        super().__init__()
        self.config = config
        if base is None:
            base = load_base_model(
                config.base_model,
                config.dtype,
                config.attn_implementation,
                config.quantization,
                config.trust_remote_code,
            )
            check_base_model(base)
        base.requires_grad_(False)
        # computed before the weights may be sharded; on the meta device they have no values
        self.base_fingerprint = "" if base.device.type == "meta" else fingerprint(base)
        self.lm: PreTrainedModel | PeftModel | None = None
        self._build(base)

    def _build(self, base: PreTrainedModel) -> None:
        """Make the model's parts from the base model, whose weights are frozen."""
        raise NotImplementedError

    def _adapt(self, base: PreTrainedModel) -> PreTrainedModel | PeftModel:
        """Add LoRA to the base model, if the config asks for it."""
        lm = base if self.config.lora is None else add_lora(base, self.config.lora)
        # in bfloat16, autocast casts their inputs
        cast_adapter_inputs(lm, self.config.dtype != "bfloat16")
        if self.config.gradient_checkpointing:
            recompute_layers(base)
        if self.config.compile:
            compile_layers(base)
        return lm

    def forward(self, batch: BatchLike) -> Loss:
        """Compute the loss of a batch, a sum over its answers.

        Raises:
            UserError: the device does not support the config's dtype or attention.
        """
        raise NotImplementedError

    @property
    def graph_parts(self) -> dict[str, nn.Module]:
        """The parts that read the graph, by name; each has ``layers`` and ``saved_state()``."""
        return {}

    @property
    def has_graph(self) -> bool:
        """Whether the evidence is read as a graph."""
        return bool(self.graph_parts)

    @property
    def graph_layers(self) -> nn.ModuleList:
        """The graph's convolutions; none without a graph."""
        for part in self.graph_parts.values():
            return cast(nn.ModuleList, part.layers)
        return nn.ModuleList()

    @property
    def causal_lm(self) -> PreTrainedModel:
        """The LM, with its adapters if it has any."""
        assert self.lm is not None, "the model has no LM"
        return cast(PreTrainedModel, self.lm)  # PEFT forwards other attributes to the base model

    @property
    def device(self) -> torch.device:
        """The device of the token embeddings."""
        return embedding_table(self.causal_lm).weight.device

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that prompt and answer may have together; None if there is no limit."""
        if self.lm is None:
            return None
        return getattr(self.lm.config.get_text_config(), "max_position_embeddings", None)

    def compute_in_float32(self) -> None:
        """Compute in float32 from now on; the frozen weights are converted, which is exact."""
        self.config = replace(self.config, dtype="float32")
        self.float()
        cast_adapter_inputs(self, True)

    def _autocast(self) -> torch.autocast:
        """Return the autocast context of the config's dtype; trainable weights stay float32."""
        low = self.config.dtype == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=low)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Compute in the config's dtype, and not compiled: a growing cache has too many shapes."""
        compiled = self.config.compile
        eager = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
        with self._autocast(), eager:
            yield

    def end_ids(self, end_id: int) -> list[int]:
        """Return the tokens that end an answer: ``end_id`` first, then the base model's own."""
        eos_ids = self.causal_lm.generation_config.eos_token_id
        eos_ids = {eos_ids} if isinstance(eos_ids, int) else set(eos_ids or ())
        return [end_id, *sorted(eos_ids - {end_id})]

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return trainable parameters by learning rate: ``lora``, ``encoder``, ``residual_gate``.

        All parts that read the graph count as the encoder.
        """
        groups: dict[str, list[nn.Parameter]] = {"lora": [], "encoder": [], "residual_gate": []}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                is_gate = name == "encoder.residual_gates"
                part = "lora" if LORA in name else "residual_gate" if is_gate else "encoder"
                groups[part].append(parameter)
        return {name: parameters for name, parameters in groups.items() if parameters}

    def node_scores(self, batch: BatchLike) -> NodeScores:
        """Score candidates and spans as answers; only models with a scorer do."""
        raise NotImplementedError

    def generate(
        self,
        batch: BatchLike,
        max_new_tokens: int,
        end_id: int,
        on_token: Callable[[Tensor], None] | None = None,
        past: Past | None = None,
    ) -> Generated:
        """Generate answers greedily.

        Args:
            batch: a batch padded on the left, without targets.
            max_new_tokens: most tokens of an answer.
            end_id: token that ends a turn; the base model's own end tokens end it as well.
            on_token: called after every step with the new ids, [B]; finished rows get ``end_id``.
            past: prefix cache of a conversation, if B is 1: the prefix that a prompt shares with
                the previous one is not computed again.
        """
        raise NotImplementedError


def node_ids_of(batch: BatchLike) -> Tensor:
    """Return the token ids of a batch's nodes, [N]."""
    if batch.node_ids is not None:
        return batch.node_ids
    return batch.input_ids.flatten()[batch.node_places]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum the cross-entropy in float32, chunk by chunk where there are many answer tokens.

    The float32 copies of a chunk are recomputed in the backward pass. The logits themselves are
    kept in the LM's type: they are small compared to the activations of the other tokens.

    Args:
        logits: [A, V].
        targets: [A].
    """
    rows = max(CHUNK_LOGITS // logits.shape[1], 1)
    if len(targets) <= rows:
        return _chunk_loss(logits, targets)
    chunks = zip(logits.split(rows), targets.split(rows), strict=True)
    losses = [
        checkpoint(_chunk_loss, *chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in chunks
    ]
    return torch.stack(losses).sum()


def _chunk_loss(logits: Tensor, targets: Tensor) -> Tensor:
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(precise, targets, reduction="sum")
