"""The models, one class a kind: text, graph (paper, sections 4.5 and 4.6), nodes, reader.

Shapes: B examples (1 if they are packed into one row), T tokens, N nodes, E edges, D LM width,
V vocabulary, A answer tokens, K columns that have some, P given answers, C candidates, U tokens of
the longest row above a reader's graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
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
from turngraph.model.graph_at_layer import GraphAtLayer, kept_tokens, rows_above, true_places
from turngraph.model.graph_encoder import GraphEncoder
from turngraph.model.node_answers import (
    CandidatesLike,
    NodeAnswers,
    NodeScores,
    entity_loss,
    mixture_loss,
    normalised,
    span_loss,
)
from turngraph.model.packing import check_packing
from turngraph.model.reader_layers import (
    Above,
    ReaderDecoder,
    ReaderLayers,
    ReadingLike,
    Recorder,
)

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
        known = self.causal_lm.generation_config.eos_token_id
        known = {known} if isinstance(known, int) else set(known or ())
        return [end_id, *sorted(known - {end_id})]

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


class TextLM(EvidenceModel):
    """A causal LM, with LoRA or without, that reads the evidence as text."""

    def _build(self, base: PreTrainedModel) -> None:
        self._packing_checked = False
        self.lm = self._adapt(base)

    def input_embeddings(self, batch: BatchLike) -> Tensor:
        """Embed the tokens of the prompt, for training and generation alike, [B, T, D]."""
        embedded: Tensor = embedding_table(self.causal_lm)(batch.input_ids)
        return embedded

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

    def forward(self, batch: BatchLike) -> Loss:
        """Compute the cross-entropy of the answer tokens (equation 8).

        Logits are computed only where there are labels. The loss is a sum, not a mean: the training
        loop divides by the answer tokens of the whole step.

        Raises:
            UserError: the device does not support the config's dtype or attention, or packed
                examples would see each other.
        """
        check_device(self.config, self.device)
        places, length = batch.answer_places, batch.labels.shape[1]
        # every release of transformers takes one list of columns for all rows
        logits = self.logits(batch, batch.answer_columns)  # [B, K, V]
        columns = torch.searchsorted(batch.answer_columns, places % length)
        targets = batch.labels.flatten()[places + 1]
        loss = _cross_entropy(logits[places // length, columns], targets)
        return Loss(loss, torch.full_like(targets.sum(), len(targets)))

    @torch.no_grad()
    def generate(
        self,
        batch: BatchLike,
        max_new_tokens: int,
        end_id: int,
        on_token: Callable[[Tensor], None] | None = None,
        past: Past | None = None,
    ) -> Generated:
        """Generate answers greedily; arguments as in ``EvidenceModel.generate``."""
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
                synced=isinstance(self, FSDPModule),
            )


class GraphLM(TextLM):
    """A causal LM that reads node states as a soft prompt (paper, sections 4.5 and 4.6)."""

    def _build(self, base: PreTrainedModel) -> None:
        super()._build(base)
        self.encoder = GraphEncoder(all_embeddings(base), self.config.encoder)

    @property
    def graph_parts(self) -> dict[str, nn.Module]:
        """The graph encoder."""
        return {"encoder": self.encoder}

    def input_embeddings(self, batch: BatchLike) -> Tensor:
        """Compute H = H_prefix + H_g + H_suffix (equation 6), for training and generation alike.

        The LM embeds every token; node states then replace the embeddings of the evidence tokens.

        Returns:
            [B, T, D], in the LM's type.
        """
        embedded = super().input_embeddings(batch)  # [B, T, D]
        # even without nodes: data parallelism needs the encoder's gradients in every process
        states = self.encoder(node_ids_of(batch), batch.edge_index, batch.edge_types)  # [N, D]
        if batch.in_prompt is not None:
            states = states[batch.in_prompt]
        rows = embedded.flatten(0, 1)  # [B * T, D]
        return rows.index_copy(0, batch.node_places, states.to(rows.dtype)).view_as(embedded)


class NodeRanker(EvidenceModel):
    """A scorer of entities over frozen token embeddings; the LM itself is released."""

    writes = False

    def _build(self, base: PreTrainedModel) -> None:
        copy = all_embeddings(base).detach().clone()
        self.embeddings = nn.Embedding.from_pretrained(copy, freeze=True)
        self.scorer = NodeAnswers(copy.shape[1], self.config.scorer)

    @property
    def graph_parts(self) -> dict[str, nn.Module]:
        """The scorer."""
        return {"scorer": self.scorer}

    @property
    def device(self) -> torch.device:
        """The device of the token embeddings."""
        weight: Tensor = self.embeddings.weight
        return weight.device

    def features(self, batch: BatchLike) -> Tensor:
        """Return the features of a batch's nodes, normalised, [N, D]."""
        return normalised(self.embeddings(node_ids_of(batch)))

    def node_scores(self, batch: BatchLike, features: Tensor | None = None) -> NodeScores:
        """Score each candidate within its example.

        Args:
            batch: a batch with candidates.
            features: features of its nodes, [N, D]; None: ``features(batch)``.
        """
        assert batch.candidates is not None, "built without mentions"
        features = self.features(batch) if features is None else features
        found: NodeScores = self.scorer(
            features, batch.edge_index, batch.edge_types, batch.candidates
        )
        return found

    def forward(self, batch: BatchLike) -> Loss:
        """Compute the cross-entropy of the gold candidates, a sum over the examples."""
        assert batch.candidates is not None, "built without mentions"
        total = entity_loss(self.node_scores(batch).entities, batch.candidates)
        return Loss(total, (batch.labels != IGNORED_LABEL).sum())


@dataclass
class Read:
    """Output of a reader's layers 1 to L, and of its graph, for a batch.

    Args:
        states: states of all tokens after layer L, [T, D].
        scores: scores of the nodes.
        recorder: keys and values of layers 1 to L; None if they were not recorded.
    """

    states: Tensor
    scores: NodeScores
    recorder: Recorder | None


class Reader(EvidenceModel):
    """A causal LM with the graph between layers L and L + 1 (``model.layer``).

    With ``answers: nodes`` it stops at the graph, and the layers above are released.
    """

    def _build(self, base: PreTrainedModel) -> None:
        config = self.config
        if config.attn_implementation != "sdpa":
            raise UserError(
                f"config field model.attn_implementation: {config.attn_implementation!r} given, "
                "must be sdpa where model.layer is above 0"
            )
        self.writes = config.answers == "text"
        self.lm = self._adapt(base)
        self.lm_layers = ReaderLayers(self.causal_lm, config.layer)
        if not self.writes:
            self.lm_layers.release_above()
        width = base.config.get_text_config().hidden_size
        self.graph = GraphAtLayer(width, config.scorer, above=self.writes)

    @property
    def graph_parts(self) -> dict[str, nn.Module]:
        """The graph at layer L."""
        return {"graph": self.graph}

    def read(self, batch: BatchLike, record: bool = False) -> Read:
        """Run layers 1 to L over the questions and passages of a batch, and score the nodes.

        Args:
            batch: a batch laid out for a reader.
            record: also return keys and values, which generation needs.
        """
        return self._read(batch, record)

    def _read(self, batch: BatchLike, record: bool = False) -> Read:
        """Do the work of ``read``; unlike it, do not shard weights again that FSDP has gathered."""
        reading = _reading(batch)
        recorder = Recorder() if record else None
        with self._autocast():
            states = self.lm_layers.below(reading, recorder)
        return Read(states, self._scores(batch, normalised(states[reading.nodes])), recorder)

    def features(self, batch: BatchLike) -> Tensor:
        """Return the states of a batch's nodes after layer L, normalised, [N, D]."""
        reading = _reading(batch)
        with self._autocast():
            states = self.lm_layers.below(reading)
        return normalised(states[reading.nodes])

    def node_scores(self, batch: BatchLike, features: Tensor | None = None) -> NodeScores:
        """Score candidates and spans as answers.

        Args:
            batch: a batch laid out for a reader.
            features: features of its nodes, [N, D]; None: ``features(batch)``.
        """
        return self._scores(batch, self.features(batch) if features is None else features)

    def _scores(self, batch: BatchLike, features: Tensor) -> NodeScores:
        assert batch.candidates is not None, "built without mentions"
        found: NodeScores = self.graph.scorer(
            features, batch.edge_index, batch.edge_types, batch.candidates
        )
        return found

    def rows(self, batch: BatchLike, read: Read, padded_left: bool) -> tuple[Above, Tensor]:
        """Choose the passages that the layers above L read; return the rows of these layers.

        Returns:
            The rows, and the states of all tokens, to which the graph's output for the nodes is
            added, [T, D].
        """
        reading, candidates = _reading(batch), batch.candidates
        assert candidates is not None, "built without mentions"
        scores, most = read.scores, self.config.scorer.kept_nodes
        likely = self.graph.probabilities(scores, candidates, len(reading.nodes))
        above = rows_above(reading, kept_tokens(reading, likely, most), most, padded_left)
        is_read = reading.passages[reading.nodes] >= 0  # False for nodes of the question
        added = self.graph.added(read.states[reading.nodes], scores, likely * is_read)
        added = added * is_read[:, None]
        return above, read.states.index_add(0, reading.nodes, added)

    def forward(self, batch: BatchLike) -> Loss:
        """Compute the cross-entropy of the answer's tokens and of the nodes, a sum.

        Raises:
            UserError: the device does not support the config's dtype.
        """
        check_device(self.config, self.device)
        reading, read = _reading(batch), self._read(batch)
        total = self.config.scorer.loss_weight * self._node_loss(batch, read.scores)
        num_tokens = (reading.labels != IGNORED_LABEL).sum()
        if self.writes:
            above, states = self.rows(batch, read, padded_left=False)
            labels = torch.where(above.is_token, reading.labels[above.tokens], IGNORED_LABEL)
            targets = next_tokens(labels).flatten()  # [B U]
            answers = true_places(targets != IGNORED_LABEL, len(batch.answer_places))
            with self._autocast():
                rows = self.lm_layers.above(states[above.tokens], above.positions, None)
                logits = self.lm_layers.logits(rows.flatten(0, 1)[answers])
            total = total + _cross_entropy(logits, targets[answers])
        return Loss(total, num_tokens)

    def _node_loss(self, batch: BatchLike, scores: NodeScores) -> Tensor:
        candidates, reading = batch.candidates, _reading(batch)
        assert candidates is not None, "built without mentions"
        places = reading.answers, reading.num_answers
        return (
            entity_loss(scores.entities, candidates)
            + span_loss(scores, *places)
            + mixture_loss(scores, candidates, *places)
        )

    @torch.no_grad()
    def decoder(
        self, batch: BatchLike, read: Read
    ) -> tuple[ReaderDecoder, tuple[Tensor, Tensor, Tensor]]:
        """Return the reader as a causal LM that continues a batch, and its prompts.

        The prompts are the arguments of ``generation.greedy`` after the LM: states after layer L as
        embeddings, and a mask and positions with two channels, below the graph and above it.
        """
        assert read.recorder is not None, "read without a recorder"
        above, states = self.rows(batch, read, padded_left=True)
        reading = _reading(batch)
        below = torch.where(above.is_token, reading.positions[above.tokens], 0)
        prompt = (
            states[above.tokens],
            torch.stack([above.is_token & ~above.is_kept, above.is_token], 1),
            torch.stack([below, above.positions], 1),
        )
        return ReaderDecoder(self.lm_layers, read.recorder, above), prompt

    @torch.no_grad()
    def generate(
        self,
        batch: BatchLike,
        max_new_tokens: int,
        end_id: int,
        on_token: Callable[[Tensor], None] | None = None,
        past: Past | None = None,
        read: Read | None = None,
    ) -> Generated:
        """Generate answers greedily.

        Args:
            batch, max_new_tokens, end_id, on_token: as in ``EvidenceModel.generate``.
            past: unused: the next turn has another question and other passages, so that no prefix
                can be reused.
            read: result of ``self.read(batch, record=True)``; None: it is computed here.
        """
        ends = torch.tensor(self.end_ids(end_id), device=batch.input_ids.device)
        with self.decoding():
            read = self._read(batch, record=True) if read is None else read
            decoder, prompt = self.decoder(batch, read)
            return greedy(
                decoder,
                *prompt,
                max_new_tokens,
                ends,
                on_token,
                synced=isinstance(self, FSDPModule),
            )

    @torch.no_grad()
    def answer_logprobs(
        self,
        batch: BatchLike,
        answer_ids: Tensor,
        num_answers: Tensor,
        read: Read | None = None,
    ) -> Tensor:
        """Compute the log-probability of writing given answers, [P].

        Args:
            batch, answer_ids, num_answers: as in ``TextLM.answer_logprobs``.
            read: as in ``generate``.
        """
        with self.decoding():
            read = self._read(batch, record=True) if read is None else read
            decoder, prompt = self.decoder(batch, read)
            return answer_logprobs(
                decoder, *prompt, answer_ids, num_answers, synced=isinstance(self, FSDPModule)
            )


def make_model(config: ModelConfig, base: PreTrainedModel | None = None) -> EvidenceModel:
    """Make the model that a config describes.

    Args:
        config: base model, LoRA, graph.
        base: the base model, loaded as the config says; None loads it by its name.

    Raises:
        UserError: see the class of the model.
    """
    if config.layer:
        return Reader(config, base)
    if config.answers == "nodes":
        return NodeRanker(config, base)
    return (GraphLM if config.evidence == "graph" else TextLM)(config, base)


def next_tokens(labels: Tensor) -> Tensor:
    """Return at each place the label of the next one, [B, T]."""
    return functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL)


def _reading(batch: BatchLike) -> ReadingLike:
    assert batch.reading is not None, "not laid out for a reader"
    return batch.reading


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
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(precise, targets, reduction="sum")
