"""Entities of the evidence scored as answers, by a GATv2 over their nodes; no LM writes.

EXPLAIGNN (Christmann et al., 2023) scores entities of a graph of passages and entities. Here they
are scored where they stand in the token graph, so that a cell is read with its header and its row.

Shapes: N nodes, E edges, D LM width, W width, S segments (passages, and the question of each
example), M mentions, C candidate entities of B examples.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from turngraph.configs.schema import EDGE_TYPES, PASSAGE_FEATURES, ScorerConfig
from turngraph.model.gatv2 import GATv2Layer


class CandidatesLike(Protocol):
    """The tensors of a batch's candidates; ``data.collate.Candidates`` documents their shapes."""

    segment_sizes: Tensor
    questions: Tensor
    features: Tensor
    nodes: Tensor
    segments: Tensor
    num_mentions: Tensor
    num_candidates: Tensor
    gold: Tensor | None


class NodeAnswers(nn.Module):
    """Log-probabilities of the entities of E_t.

    Nodes are the LM's frozen token embeddings, normed and projected, and say whether they are the
    question's; after the GATv2 layers a mention is its last token's state beside what its passage
    and the question are on the whole, and an entity the log-sum-exp of its mentions' scores.

    Args:
        token_embeddings: the LM's input embeddings, [vocabulary, D]; copied.
        config: sizes.
    """

    def __init__(self, token_embeddings: Tensor, config: ScorerConfig) -> None:
        super().__init__()
        self.config, width = config, config.width
        copy = token_embeddings.detach().clone()
        self.embeddings = nn.Embedding.from_pretrained(copy, freeze=True)
        self.project = nn.Linear(copy.shape[1], width)
        self.asked = nn.Parameter(torch.zeros(width))
        self.layers = nn.ModuleList(
            GATv2Layer(width, width // config.heads, config.heads, num_edge_types=len(EDGE_TYPES))
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
        self, node_ids: Tensor, edge_index: Tensor, edge_types: Tensor, among: CandidatesLike
    ) -> Tensor:
        """Log-probability of each candidate among those of its example, [C].

        Args:
            node_ids: token ids, [N].
            edge_index: source row and target row, [2, E].
            edge_types: place of each edge in ``EDGE_TYPES``, [E].
            among: the candidates, M of their mentions.
        """
        asked = torch.zeros_like(among.segment_sizes)
        asked[among.questions] = 1
        asked = asked.repeat_interleave(among.segment_sizes)[:, None]  # [N, 1]
        embedded = self.embeddings(node_ids).float()
        embedded = functional.layer_norm(embedded, embedded.shape[1:])  # [N, D]
        states = self.norms[0](self.project(embedded) + asked * self.asked)
        states = self.dropout(states)  # [N, W]
        for layer, norm in zip(self.layers, self.norms[1:], strict=True):
            change = functional.gelu(layer(states, edge_index, edge_types))
            states = norm(states + self.dropout(change))
        scores = self.score(self._mentions(states, among)).squeeze(1)  # [M]
        scores = log_sum_exp(scores, among.num_mentions)  # [C]
        total = log_sum_exp(scores, among.num_candidates)  # [B]
        return scores - total.repeat_interleave(among.num_candidates)

    def _mentions(self, states: Tensor, among: CandidatesLike) -> Tensor:
        """What each mention is scored by, [M, 6 W + features]."""
        sizes = among.segment_sizes
        most = torch.segment_reduce(states, "max", lengths=sizes)  # [S, W]
        means = torch.segment_reduce(states, "mean", lengths=sizes)
        means = torch.where(sizes[:, None] > 0, means, 0.0)  # a question may be empty
        examples = torch.repeat_interleave(among.num_candidates).repeat_interleave(
            among.num_mentions
        )
        asked = means[among.questions][examples]  # [M, W]
        own, passage = states[among.nodes], means[among.segments]
        features = among.features[among.segments]
        parts = (own, own * asked, asked, passage, most[among.segments], passage * asked, features)
        return torch.cat(parts, 1)

    def loss(self, logprobs: Tensor, among: CandidatesLike) -> Tensor:
        """-log p of the gold answers, summed over the examples that have one among theirs."""
        assert among.gold is not None, "no targets"
        kept = torch.where(among.gold, logprobs, -torch.inf)
        held = log_sum_exp(kept, among.num_candidates)
        return -held[held > -torch.inf].sum()

    def saved_state(self) -> dict[str, Tensor]:
        """What a checkpoint holds: all but the embeddings, which the base model has."""
        return {k: v for k, v in self.state_dict().items() if not k.startswith("embeddings.")}


def log_sum_exp(values: Tensor, lengths: Tensor) -> Tensor:
    """Of parts that stand one behind the other; -inf of an empty part.

    Args:
        values: [K].
        lengths: of the parts, summing up to K, [P].

    Returns:
        [P].
    """
    if not len(values):  # of which the gradient is still asked for
        return values.new_full((len(lengths),), -torch.inf) + values.sum()
    most = torch.segment_reduce(values.detach(), "max", lengths=lengths)
    most = torch.where(most.isfinite(), most, 0.0)
    exps = (values - most.repeat_interleave(lengths)).exp()
    total = torch.segment_reduce(exps, "sum", lengths=lengths)
    is_some = total > 0
    return (most + total.where(is_some, 1.0).log()).where(is_some, -torch.inf)
