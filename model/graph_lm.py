"""Causal LM that reads node states as a soft prompt (paper, sections 4.5 and 4.6).

Shapes: B examples (1 if they are packed into one row), T tokens, N nodes, E edges, D LM width,
V vocabulary, A answer tokens, K columns that have some, P given answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from turngraph.configs.schema import ModelConfig
from turngraph.configs.user_error import UserError
from turngraph.model.base_model import (
    LORA,
    add_lora,
    all_embeddings,
    cast_adapter_inputs,
    check_device,
    compile_layers,
    embedding_table,
    fingerprint,
    load_base_model,
    recompute_layers,
)
from turngraph.model.base_probe import check_base_model
from turngraph.model.generation import IGNORED_LABEL, Generated, Past, answer_logprobs, greedy
from turngraph.model.graph_encoder import GraphEncoder
from turngraph.model.node_answers import CandidatesLike, NodeAnswers
from turngraph.model.packing import check_packing

CHUNK_LOGITS = 2**24
"""Logits per chunk of the loss: 64 MiB in float32, 512 answer tokens of a 32k vocabulary."""


class BatchLike(Protocol):
    """The tensors of a batch; ``data.batches.collate.Batch`` documents their shapes."""

    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor
    node_mask: Tensor
    node_places: Tensor
    answer_places: Tensor
    answer_columns: Tensor
    edge_index: Tensor
    labels: Tensor
    edge_types: Tensor
    node_ids: Tensor | None
    in_prompt: Tensor | None
    padded_right: bool

    @property
    def candidates(self) -> CandidatesLike | None:
        """The candidate answers; None where the graphs have no mentions."""


class Loss(NamedTuple):
    """Cross-entropy summed over the answer tokens or the answers, and the number of tokens."""

    total: Tensor
    num_tokens: Tensor


class GraphLM(nn.Module):
    """A causal LM with LoRA and, where the config asks for one, an encoder of the evidence graph.

    With ``answers: nodes`` there is a scorer and no LM: the LM is released once its token
    embeddings are copied, or all of it that is above the layer that the scorer reads.

    Args:
        config: base model, LoRA, encoder.
        base: the base model, loaded as the config says; None loads it by its name.

    Raises:
        UserError: the base model cannot be found or loaded as configured, does not read prompts
            as it must (``check_base_model``), or LoRA names layers that it does not have.
    """

    def __init__(self, config: ModelConfig, base: PreTrainedModel | None = None) -> None:
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
        self.encoder: GraphEncoder | None = None
        self.scorer: NodeAnswers | None = None
        self._packing_checked = False
        lm = base if config.lora is None else add_lora(base, config.lora)  # base itself gets it
        cast_adapter_inputs(lm, config.dtype != "bfloat16")  # autocast casts them in bf16
        if config.answers == "nodes":
            self.scorer = NodeAnswers(base, config.scorer)
            if self.scorer.reader is not None:
                self.scorer.reader.recomputes = config.gradient_checkpointing
            return
        self.lm = lm
        if config.evidence == "graph":
            self.encoder = GraphEncoder(all_embeddings(base), config.encoder)
        if config.gradient_checkpointing:
            recompute_layers(base)
        if config.compile:
            compile_layers(base)

    def compute_in_float32(self) -> None:
        """Compute in float32 from now on; the frozen weights are converted, which is exact."""
        self.config = replace(self.config, dtype="float32")
        self.float()
        cast_adapter_inputs(self, True)

    def keep_states(self, folder: str | None) -> None:
        """Keep the states that the scorer's LM reads in a folder, so that they are computed once.

        Args:
            folder: gets a folder for each base model, type and layer; None: they are not kept.

        Raises:
            UserError: the scorer reads no states, or those of layers that are trained.
        """
        if folder is None:
            return
        reader = None if self.scorer is None else self.scorer.reader
        if reader is None or reader.is_trained:
            must = "must be null unless nodes answer from states of a frozen layer above 0"
            raise UserError(f"config field training.state_folder: {folder!r} given, {must}")
        model = self.base_fingerprint.partition("/")[0][:12]
        name = f"{model}_{self.config.quantization}_{self.config.dtype}_{self.config.scorer.layer}"
        reader.folder = Path(folder) / name

    @property
    def causal_lm(self) -> PreTrainedModel:
        """The LM, with its adapters if it has any; only ``answers: text`` has an LM."""
        assert self.lm is not None, "answers: nodes has no LM"
        return cast(PreTrainedModel, self.lm)  # PEFT forwards other attributes to the base model

    @property
    def has_graph(self) -> bool:
        """Whether the evidence is read as a graph: there is an encoder or a scorer."""
        return self.encoder is not None or self.scorer is not None

    @property
    def graph_layers(self) -> nn.ModuleList:
        """The layers of the encoder or of the scorer; none without either."""
        part = self.encoder or self.scorer
        return nn.ModuleList() if part is None else part.layers

    @property
    def device(self) -> torch.device:
        """The device of the token embeddings, or of the scorer."""
        if self.scorer is not None:
            return self.scorer.question.device
        return embedding_table(self.causal_lm).weight.device

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that prompt and answer may have together; None if there is no limit."""
        if self.lm is None:
            return None
        return getattr(self.lm.config.get_text_config(), "max_position_embeddings", None)

    def input_embeddings(self, batch: BatchLike) -> Tensor:
        """Compute H = H_prefix + H_g + H_suffix (equation 6), for training and generation alike.

        The LM embeds every token; node states then replace the embeddings of the evidence tokens.

        Returns:
            [B, T, D], in the LM's type.
        """
        embedded: Tensor = embedding_table(self.causal_lm)(batch.input_ids)  # [B, T, D]
        if self.encoder is None:
            return embedded
        # even without nodes: data parallelism needs the encoder's gradients in every process
        states = self.encoder(node_ids_of(batch), batch.edge_index, batch.edge_types)  # [N, D]
        if batch.in_prompt is not None:
            states = states[batch.in_prompt]
        rows = embedded.flatten(0, 1)  # [B * T, D]
        return rows.index_copy(0, batch.node_places, states.to(rows.dtype)).view_as(embedded)

    def logits(self, batch: BatchLike, keep: Tensor | int = 0) -> Tensor:
        """Compute next-token logits.

        Args:
            batch: a batch with padding on either side, or packed.
            keep: the columns to compute, [K], or the number of the last ones; 0: compute all.

        Returns:
            [B, K, V], or [B, T, V] for all.

        Raises:
            UserError: the batch is packed, and the LM lets packed examples see each other.
        """
        mask = batch.attention_mask
        with self._autocast():
            if mask is None and not self._packing_checked:
                check_packing(self.causal_lm)
                self._packing_checked = True
            # Under causal attention right padding needs no mask, and no mask is fastest; with a
            # mask or a cache the LM would not recognise packed examples.
            needed = None if batch.padded_right else mask
            output = self.causal_lm(
                inputs_embeds=self.input_embeddings(batch),
                attention_mask=None if needed is None else needed.long(),
                position_ids=batch.position_ids,
                use_cache=False,
                logits_to_keep=keep,
            )
        logits: Tensor = output.logits
        return logits

    def _autocast(self) -> torch.autocast:
        """Return the autocast context of the config's dtype; trainable weights stay float32."""
        low = self.config.dtype == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=low)

    def forward(self, batch: BatchLike) -> Loss:
        """Compute the cross-entropy of the answer tokens (equation 8).

        Logits are computed only where there are labels. With ``answers: nodes`` it is the
        cross-entropy of the gold candidates. The loss is a sum, not a mean: the training loop
        divides by the answer tokens of the whole step.

        Raises:
            UserError: the device does not support the config's dtype or attention, or packed
                examples would see each other.
        """
        check_device(self.config, self.device)
        if self.scorer is not None:
            assert batch.candidates is not None, "built without mentions"
            total = self.scorer.loss(self.entity_logprobs(batch), batch.candidates)
            return Loss(total, (batch.labels != IGNORED_LABEL).sum())
        places, length = batch.answer_places, batch.labels.shape[1]
        # every release of transformers takes one list of columns for all rows
        logits = self.logits(batch, batch.answer_columns)  # [B, K, V]
        columns = torch.searchsorted(batch.answer_columns, places % length)
        targets = batch.labels.flatten()[places + 1]
        loss = _cross_entropy(logits[places // length, columns], targets)
        return Loss(loss, torch.full_like(targets.sum(), len(targets)))

    def entity_logprobs(self, batch: BatchLike, features: Tensor | None = None) -> Tensor:
        """Compute each candidate's log-probability within its example, [C] (``answers: nodes``).

        Args:
            batch: with candidates.
            features: of its nodes, [N, D]; None: ``node_features``.
        """
        assert self.scorer is not None
        assert batch.candidates is not None, "built without mentions"
        logprobs: Tensor = self.scorer(
            node_ids_of(batch), batch.edge_index, batch.edge_types, batch.candidates, features
        )
        return logprobs

    def node_features(self, batch: BatchLike) -> Tensor:
        """Compute the normalised features that the scorer's nodes get from the LM, [N, D]."""
        assert self.scorer is not None
        assert batch.candidates is not None, "built without mentions"
        return self.scorer.features(node_ids_of(batch), batch.candidates)

    def end_ids(self, end_id: int) -> list[int]:
        """Return the tokens that end an answer: ``end_id`` first, then the base model's own."""
        known = self.causal_lm.generation_config.eos_token_id
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
        """Generate answers greedily.

        Args:
            batch: a batch padded on the left, without targets.
            max_new_tokens: most tokens of an answer.
            end_id: token that ends a turn; the base model's own end tokens end it as well.
            on_token: called after every step with the new ids, [B]; finished rows get ``end_id``.
            past: prefix cache of a conversation, if B is 1: the prefix that a prompt shares with
                the previous one is not computed again.
        """
        ends = torch.tensor(self.end_ids(end_id), device=batch.input_ids.device)
        assert batch.attention_mask is not None, "packed"
        with self.decoding():
            return greedy(
                self.causal_lm,
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
        """Compute the LM's log-probability of given answers, [P].

        Args:
            batch: a batch padded on the left, without targets.
            answer_ids: tokens of the answers with their end token, padded on the right with
                ``IGNORED_LABEL``, grouped by example, [P, A].
            num_answers: number of answers of each example, [B].
        """
        assert batch.attention_mask is not None, "packed"
        with self.decoding():
            return answer_logprobs(
                self.causal_lm,
                self.input_embeddings(batch),
                batch.attention_mask,
                batch.position_ids,
                answer_ids,
                num_answers,
            )

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Compute in the config's dtype, and not compiled: a growing cache has too many shapes."""
        compiled = self.config.compile
        eager = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
        with self._autocast(), eager:
            yield

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return trainable parameters by learning rate: ``lora``, ``encoder``, ``residual_gate``.

        The scorer's parameters count as the encoder's, but for LoRA of the layers that it reads.
        """
        groups: dict[str, list[nn.Parameter]] = {"lora": [], "encoder": [], "residual_gate": []}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                is_gate = name == "encoder.residual_gates"
                part = "residual_gate" if is_gate else name.partition(".")[0]
                part = "lora" if LORA in name else "encoder" if part == "scorer" else part
                groups[part].append(parameter)
        return {name: parameters for name, parameters in groups.items() if parameters}


def node_ids_of(batch: BatchLike) -> Tensor:
    """Return the token ids of a batch's nodes, [N]."""
    if batch.node_ids is not None:
        return batch.node_ids
    return batch.input_ids.flatten()[batch.node_places]


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
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
    return functional.cross_entropy(logits.float(), targets, reduction="sum")
