"""Scores entities of the evidence as answers, by a GATv2 over the token graph, without an LM.

EXPLAIGNN (Christmann et al., 2023) scores entities in a graph of passages and entities. Here an
entity is scored at its mentions in the token graph, so that a cell's score depends on its header
and row.

Shapes: N nodes, E edges, D LM width, W width, S segments (passages, and the question of each
example), M mentions, C candidate entities of B examples.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from turngraph.configs.schema import EDGE_TYPES, PASSAGE_FEATURES, ScorerConfig
from turngraph.model.base_model import LORA, all_embeddings
from turngraph.model.gatv2 import GATv2Layer
from turngraph.model.passage_reader import PassageReader


class CandidatesLike(Protocol):
    """The tensors of candidates; ``data.batches.collate.Candidates`` documents their shapes."""

    segment_sizes: Tensor
    questions: Tensor
    features: Tensor
    nodes: Tensor
    segments: Tensor
    num_mentions: Tensor
    num_candidates: Tensor
    gold: Tensor | None


class NodeAnswers(nn.Module):
    """Scorer that computes the log-probability of each entity of E_t as the answer.

    Nodes are the LM's frozen token embeddings, or states of a layer of the LM, frozen or with LoRA,
    which has read their passage after the question (``config.layer``). They are normalised and
    projected, and nodes of the question get a vector. After the GATv2 layers a mention is
    represented by its last token's state, pooled states of its passage, and those of the question;
    an entity's score is the log-sum-exp of its mentions' scores.

    Args:
        base: the LM, with or without LoRA; its embeddings are copied, and with ``config.layer`` its
            first layers kept.
        config: the LM's layer; number of layers, width, heads, dropout.

    Raises:
        UserError: the LM has fewer layers than ``config.layer``.
    """

    def __init__(self, base: PreTrainedModel, config: ScorerConfig) -> None:
        super().__init__()
        self.config, width = config, config.width
        self.embeddings: nn.Embedding | None = None
        self.reader: PassageReader | None = None
        if config.layer:
            self.reader = PassageReader(base, config.layer)
        else:
            copy = all_embeddings(base).detach().clone()
            self.embeddings = nn.Embedding.from_pretrained(copy, freeze=True)
        self.project = nn.Linear(base.config.get_text_config().hidden_size, width)
        self.question = nn.Parameter(torch.zeros(width))
        self.layers = nn.ModuleList(
            GATv2Layer(
                width,
                width // config.heads,
                config.heads,
                num_edge_types=len(EDGE_TYPES),
                loop_free=True,
            )
            for _ in range(config.num_layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(config.num_layers + 1))
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Sequential(
            nn.Linear(6 * width + len(PASSAGE_FEATURES), width),
            nn.GELU(),
            nn.Dropout(2 * config.dropout),
            nn.Linear(width, 1),
        )

    def forward(
        self,
        node_ids: Tensor,
        edge_index: Tensor,
        edge_types: Tensor,
        candidates: CandidatesLike,
        features: Tensor | None = None,
    ) -> Tensor:
        """Compute each candidate's log-probability within its example, [C].

        Args:
            node_ids: token ids, [N].
            edge_index: source row and target row, [2, E].
            edge_types: index of each edge's type in ``EDGE_TYPES``, [E].
            candidates: the C candidates with their M mentions.
            features: of the nodes, [N, D]; None: ``self.features``.
        """
        is_question = torch.zeros_like(candidates.segment_sizes)
        is_question[candidates.questions] = 1
        is_question = is_question.repeat_interleave(candidates.segment_sizes)[:, None]  # [N, 1]
        if features is None:
            features = self.features(node_ids, candidates)
        states = self.norms[0](self.project(features) + is_question * self.question)
        states = self.dropout(states)  # [N, W]
        for layer, norm in zip(self.layers, self.norms[1:], strict=True):
            change = functional.gelu(layer(states, edge_index, edge_types))
            states = norm(states + self.dropout(change))
        scores = self.score(self._mentions(states, candidates)).squeeze(1)  # [M]
        scores = log_sum_exp(scores, candidates.num_mentions)  # [C]
        total = log_sum_exp(scores, candidates.num_candidates)  # [B]
        return scores - total.repeat_interleave(candidates.num_candidates)

    def features(self, node_ids: Tensor, candidates: CandidatesLike) -> Tensor:
        """Compute the nodes' features from the LM, normalised, [N, D], float32."""
        if self.reader is not None:
            found = self.reader(node_ids, candidates.segment_sizes, candidates.questions)
        else:
            assert self.embeddings is not None
            found = self.embeddings(node_ids)
        return functional.layer_norm(found.float(), found.shape[1:])

    def _mentions(self, states: Tensor, candidates: CandidatesLike) -> Tensor:
        """Return the features from which each mention is scored, [M, 6 W + features]."""
        sizes = candidates.segment_sizes
        most = torch.segment_reduce(states, "max", lengths=sizes)  # [S, W]
        means = torch.segment_reduce(states, "mean", lengths=sizes)
        means = torch.where(sizes[:, None] > 0, means, 0.0)  # a question may be empty
        examples = torch.repeat_interleave(candidates.num_candidates).repeat_interleave(
            candidates.num_mentions
        )
        question = means[candidates.questions][examples]  # [M, W]
        own, passage = states[candidates.nodes], means[candidates.segments]
        features = candidates.features[candidates.segments]
        highest = most[candidates.segments]
        parts = (own, own * question, question, passage, highest, passage * question, features)
        return torch.cat(parts, 1)

    def loss(self, logprobs: Tensor, candidates: CandidatesLike) -> Tensor:
        """Sum -log p(any gold candidate) over the examples that have a gold candidate."""
        assert candidates.gold is not None, "no targets"
        kept = torch.where(candidates.gold, logprobs, -torch.inf)
        held = log_sum_exp(kept, candidates.num_candidates)
        return -held[held > -torch.inf].sum()

    def saved_state(self) -> dict[str, Tensor]:
        """Return the tensors to save: all but those that the base model has."""
        known = ("embeddings.", "reader.")
        tensors = self.state_dict().items()
        return {k: v for k, v in tensors if not k.startswith(known) or LORA in k}


def log_sum_exp(values: Tensor, lengths: Tensor) -> Tensor:
    """Compute the log-sum-exp of consecutive parts; -inf for an empty part.

    Args:
        values: [K].
        lengths: lengths of the parts, which sum to K, [P].

    Returns:
        [P].
    """
    if not len(values):  # the result still needs a gradient
        return values.new_full((len(lengths),), -torch.inf) + values.sum()
    most = torch.segment_reduce(values.detach(), "max", lengths=lengths)
    most = torch.where(most.isfinite(), most, 0.0)
    exps = (values - most.repeat_interleave(lengths)).exp()
    total = torch.segment_reduce(exps, "sum", lengths=lengths)
    is_some = total > 0
    return (most + total.where(is_some, 1.0).log()).where(is_some, -torch.inf)
