"""The LM that reads passages after the question and writes from the nodes that a graph has chosen.

Layers 1 to L read the passages in parallel, the graph scores entities and spans as answers, and the
layers above read the likeliest passages as one row.

Shapes: T tokens and N nodes of the B examples of a batch, D LM width, U tokens of the longest row
above the graph, P given answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional
from transformers import PreTrainedModel

from turngraph.configs.user_error import UserError
from turngraph.model.base_model import check_device
from turngraph.model.evidence_model import BatchLike, EvidenceModel, Loss, cross_entropy
from turngraph.model.generation import IGNORED_LABEL, Generated, Past, answer_logprobs, greedy
from turngraph.model.graph_at_layer import GraphAtLayer, kept_tokens, rows_above, true_places
from turngraph.model.node_answers import (
    NodeScores,
    entity_loss,
    mixture_loss,
    normalised,
    span_loss,
)
from turngraph.model.reader_layers import Above, ReaderDecoder, ReaderLayers, ReadingLike, Recorder


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
        scores: NodeScores = self.graph.scorer(
            features, batch.edge_index, batch.edge_types, batch.candidates
        )
        return scores

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
        added = self.graph.added(read.states[reading.nodes], scores, likely)
        added = added * is_read[:, None]
        return above, read.states.index_add(0, reading.nodes, added)

    def forward(self, batch: BatchLike) -> Loss:
        """Compute the cross-entropy of the answer's tokens and of the scorer, a sum.

        Raises:
            UserError: the device does not support the config's dtype.
        """
        check_device(self.config, self.device)
        reading, read = _reading(batch), self._read(batch)
        total = self._node_loss(batch, read.scores)
        num_tokens = (reading.labels != IGNORED_LABEL).sum()
        if self.writes:
            above, states = self.rows(batch, read, padded_left=False)
            labels = torch.where(above.is_token, reading.labels[above.tokens], IGNORED_LABEL)
            targets = next_tokens(labels).flatten()  # [B U]
            answers = true_places(targets != IGNORED_LABEL, len(batch.answer_places))
            with self._autocast():
                rows = self.lm_layers.above(states[above.tokens], above.positions, None)
                logits = self.lm_layers.logits(rows.flatten(0, 1)[answers])
            total = total + cross_entropy(logits, targets[answers])
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


def next_tokens(labels: Tensor) -> Tensor:
    """Return at each place the label of the next one, [B, T]."""
    return functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL)


def _reading(batch: BatchLike) -> ReadingLike:
    assert batch.reading is not None, "not laid out for a reader"
    return batch.reading
