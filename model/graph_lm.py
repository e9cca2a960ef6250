"""The causal LM that reads node states as a soft prompt (paper, sections 4.5 and 4.6).

Shapes: B examples (1 where they are packed into one row), T tokens, N nodes, E edges, D LM width,
V vocabulary, A answer tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from turngraph.configs.schema import ModelConfig
from turngraph.model.base_model import (
    add_lora,
    all_embeddings,
    cast_adapter_inputs,
    check_device,
    compile_layers,
    fingerprint,
    load_base_model,
    recompute_layers,
)
from turngraph.model.generation import IGNORED_LABEL, Generated, Past, answer_logprobs, greedy
from turngraph.model.graph_encoder import GraphEncoder
from turngraph.model.node_answers import CandidatesLike, NodeAnswers
from turngraph.model.packing import check_packing

CHUNK_LOGITS = 2**24
"""Logits whose loss is computed at once: 64 MiB in float32; 512 answer tokens of 32k words."""


class BatchLike(Protocol):
    """The tensors of a batch; ``data.collate.Batch`` documents their shapes."""

    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor
    node_mask: Tensor
    edge_index: Tensor
    labels: Tensor
    edge_types: Tensor
    node_ids: Tensor | None
    in_prompt: Tensor | None
    padded_right: bool

    @property
    def candidates(self) -> CandidatesLike | None:
        """The entities that can be answered with; None where the graphs have no mentions."""


class Loss(NamedTuple):
    """Cross-entropy summed over the answer tokens, or over the answers, and the tokens' number."""

    total: Tensor
    num_tokens: Tensor


class GraphLM(nn.Module):
    """A causal LM with LoRA, and an encoder for the evidence graph where the config asks for one.

    With ``answers: nodes`` there is a scorer and no LM: once its token embeddings are copied, it is
    let go.

    Args:
        config: base model, LoRA, encoder.
        base: the base model, ready as the config says; loaded by its name where it is not given.

    Raises:
        ValueError: the base model cannot be found or loaded as asked, or LoRA names layers that it
            has not got.
    """

    def __init__(self, config: ModelConfig, base: PreTrainedModel | None = None) -> None:
        super().__init__()
        self.config = config
        if base is None:
            base = load_base_model(
                config.base_model, config.dtype, config.attn_implementation, config.quantization
            )
        base.requires_grad_(False)
        self.base_fingerprint = fingerprint(base)  # now: the weights may be sharded later
        self.lm = self.encoder = self.scorer = None
        self._packing_checked = False
        if config.answers == "nodes":
            self.scorer = NodeAnswers(all_embeddings(base), config.scorer)
            return
        self.lm = add_lora(base, config.lora) if config.lora is not None else base
        cast_adapter_inputs(self.lm, config.dtype != "bfloat16")  # else autocast does it
        if config.evidence == "graph":
            self.encoder = GraphEncoder(all_embeddings(base), config.encoder)
        if config.gradient_checkpointing:
            recompute_layers(base)
        if config.compile:
            compile_layers(base)

    @property
    def device(self) -> torch.device:
        """Where the token embeddings are."""
        if self.scorer is not None:
            return self.scorer.embeddings.weight.device
        return self.lm.get_input_embeddings().weight.device

    @property
    def max_tokens(self) -> int | None:
        """How many positions the LM has for prompt and answer; None where nothing sets a limit."""
        if self.lm is None:
            return None
        return getattr(self.lm.config.get_text_config(), "max_position_embeddings", None)

    def input_embeddings(self, batch: BatchLike) -> Tensor:
        """H = H_prefix + H_g + H_suffix (equation 6), for training and generation alike.

        Every token is embedded by the LM; where the evidence stands, node states take the place
        of its tokens' embeddings.

        Returns:
            [B, T, D], in the LM's type.
        """
        table = self.lm.get_input_embeddings()
        embedded = table(batch.input_ids)  # [B, T, D]
        if self.encoder is None:
            return embedded
        # without nodes as well: under data parallelism every process needs the encoder's gradients
        node_ids = batch.input_ids[batch.node_mask] if batch.node_ids is None else batch.node_ids
        states = self.encoder(node_ids, batch.edge_index, batch.edge_types)  # [N, D]
        if batch.in_prompt is not None:
            states = states[batch.in_prompt]
        embedded = embedded.clone()
        embedded[batch.node_mask] = states.to(embedded.dtype)
        return embedded

    def logits(self, batch: BatchLike, keep: Tensor | int = 0) -> Tensor:
        """Next-token logits.

        Args:
            batch: with padding on either side, or packed.
            keep: True where to compute them, [B, T]; 0 computes all.

        Returns:
            [B, T, V], or [A, V] for the A positions to keep, row after row.

        Raises:
            ValueError: the batch is packed, and the LM does not keep the examples apart.
        """
        mask = batch.attention_mask
        masked = isinstance(keep, Tensor)
        # one list of columns for all rows is what every release of transformers takes
        columns = keep.any(0).nonzero().squeeze(1) if masked else keep  # [K]
        with self._autocast():
            if mask is None and not self._packing_checked:
                check_packing(self.lm)
                self._packing_checked = True
            # what is causal never looks to the right, and plain causal attention is the fastest;
            # with a mask or a cache the LM would no longer look for packed examples
            needed = mask is not None and not batch.padded_right
            output = self.lm(
                inputs_embeds=self.input_embeddings(batch),
                attention_mask=mask.long() if needed else None,
                position_ids=batch.position_ids,
                use_cache=False,
                logits_to_keep=columns,
            )
        return output.logits[keep[:, columns]] if masked else output.logits

    def _autocast(self) -> torch.autocast:
        """Compute in bf16 where the config says so; trainable weights stay in float32."""
        low = self.config.dtype == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=low)

    def forward(self, batch: BatchLike) -> Loss:
        """Cross-entropy of the answer tokens (equation 8); logits only where there are labels.

        With ``answers: nodes``, the answers' own. The sum is returned, not the mean: the loop
        divides by the answer tokens of the whole step.
        """
        check_device(self.config, self.device)
        if self.scorer is not None:
            assert batch.candidates is not None, "built without mentions"
            total = self.scorer.loss(self.entity_logprobs(batch), batch.candidates)
            return Loss(total, (batch.labels != IGNORED_LABEL).sum())
        targets = functional.pad(batch.labels[:, 1:], (0, 1), value=IGNORED_LABEL)  # [B, T]
        labelled = targets != IGNORED_LABEL
        logits = self.logits(batch, labelled)  # [A, V]
        return Loss(_cross_entropy(logits, targets[labelled]), labelled.sum())

    def entity_logprobs(self, batch: BatchLike) -> Tensor:
        """Of each candidate answer among those of its example, [C] (``answers: nodes``)."""
        assert self.scorer is not None
        assert batch.candidates is not None, "built without mentions"
        node_ids = batch.input_ids[batch.node_mask] if batch.node_ids is None else batch.node_ids
        return self.scorer(node_ids, batch.edge_index, batch.edge_types, batch.candidates)

    def end_ids(self, end_id: int) -> list[int]:
        """Tokens that end an answer: the prompt's ``end_id``, then the base model's own."""
        known = self.lm.generation_config.eos_token_id
        known = {known} if isinstance(known, int) else set(known or ())
        return [end_id, *sorted(known - {end_id})]

    @torch.no_grad()
    def generate(
        self,
        batch: BatchLike,
        max_new_tokens: int,
        end_id: int,
        on_token: Callable[[Tensor], None] | None = None,
        past: Past | None = None,
    ) -> Generated:
        """Greedy answers.

        Args:
            batch: padded on the left, without targets.
            max_new_tokens: longest answer.
            end_id: token that ends a turn; the base model's own end tokens end it as well.
            on_token: called after every step with the new ids, [B]; ``end_id`` behind an end.
            past: of a conversation whose turns are asked one by one: what a prompt has in common
                with the one before is not read again.
        """
        ends = torch.tensor(self.end_ids(end_id), device=batch.input_ids.device)
        with self._autocast(), self._not_compiled():
            return greedy(
                self.lm,
                self.input_embeddings(batch),
                batch.attention_mask,
                batch.position_ids,
                max_new_tokens,
                ends,
                on_token,
                synced=isinstance(self, FSDPModule),
                past=past,
            )

    @torch.no_grad()
    def answer_logprobs(self, batch: BatchLike, answer_ids: Tensor, num_answers: Tensor) -> Tensor:
        """Log-probability of given answers, [P], as the LM would write them.

        Args:
            batch: padded on the left, without targets.
            answer_ids: tokens of the answers with their end, padded on the right with
                ``IGNORED_LABEL``; those of one example together, [P, A].
            num_answers: of each example, [B].
        """
        with self._autocast(), self._not_compiled():
            return answer_logprobs(
                self.lm,
                self.input_embeddings(batch),
                batch.attention_mask,
                batch.position_ids,
                answer_ids,
                num_answers,
            )

    def _not_compiled(self) -> AbstractContextManager[None]:
        """Compiling is for training; the shapes of a growing cache are too many."""
        if not self.config.compile:
            return nullcontext()
        return torch.compiler.set_stance("force_eager")

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return trainable parameters by learning rate: ``lora``, ``encoder``, ``residual_gate``.

        The scorer's are the encoder's.
        """
        groups: dict[str, list[nn.Parameter]] = {"lora": [], "encoder": [], "residual_gate": []}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                is_gate = name == "encoder.residual_gates"
                part = "residual_gate" if is_gate else name.partition(".")[0]
                names = {"lm": "lora", "scorer": "encoder"}
                groups[names.get(part, part)].append(parameter)
        return {name: parameters for name, parameters in groups.items() if parameters}


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Summed cross-entropy in float32, of many answer tokens chunk by chunk.

    A chunk's float32 copies are recomputed in the backward pass. The logits themselves, in the LM's
    type, stay: next to the activations of the tokens around an answer they weigh little.

    Args:
        logits: [A, V].
        targets: [A].
    """
    rows = max(CHUNK_LOGITS // logits.shape[1], 1)
    if len(targets) <= rows:
        return _chunk_loss(logits, targets)
    chunks = zip(logits.split(rows), targets.split(rows), strict=True)
    settings = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.stack([checkpoint(_chunk_loss, *chunk, **settings) for chunk in chunks]).sum()


def _chunk_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.float(), targets, reduction="sum")
