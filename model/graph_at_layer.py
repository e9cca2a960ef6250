"""The graph between two layers of a reader, and the choice of the passages that go on.

A GATv2 over the token graph scores entities and spans as answers. The likeliest passages' tokens
go on to the layers above, with what the graph says of them added to their states.

Shapes: T tokens and N nodes of the B examples of a batch, D LM width, U tokens of the longest row
above the graph.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turngraph.configs.schema import ScorerConfig
from turngraph.model.node_answers import CandidatesLike, NodeAnswers, NodeScores
from turngraph.model.reader_layers import Above, ReadingLike


class GraphAtLayer(nn.Module):
    """The graph between two layers of an LM: scorer, choice of passages, and what is added.

    A kept node's state h becomes h + |h| (g U x + p m): x is the state of the GATv2, p the node's
    probability, m a learned mark, U starts at zero, and |h| is the root mean square of h, which is
    not differentiated.

    Args:
        width: D.
        config: of the scorer.
        above: whether there are layers above that need what is added.
    """

    def __init__(self, width: int, config: ScorerConfig, above: bool) -> None:
        super().__init__()
        self.config = config
        self.scorer = NodeAnswers(width, config, spans=True)
        if not above:
            return
        self.up = nn.Linear(config.width, width)
        self.mark = nn.Parameter(torch.zeros(width))
        self.residual_gate = nn.Parameter(torch.ones(1))  # FSDP2 shards no scalars
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    @property
    def layers(self) -> nn.ModuleList:
        """The GATv2 layers."""
        return self.scorer.layers

    def probabilities(
        self, scores: NodeScores, candidates: CandidatesLike, num_nodes: int
    ) -> Tensor:
        """Return how likely each node is in the answer, [N], from 0 to 1.

        It is the mean of what both heads say: the mentions that end at the node, and the spans that
        begin or end there.
        """
        of_mentions = scores.mentions.new_zeros(num_nodes)
        of_mentions = of_mentions.index_add(0, candidates.nodes, scores.mentions.exp() / 2)
        return of_mentions + scores.span_ends.mean(0) / 2

    def added(self, states: Tensor, scores: NodeScores, probabilities: Tensor) -> Tensor:
        """Return what is added to the states of nodes, [N, D]."""
        size = states.detach().to(self.mark.dtype).pow(2).mean(1, keepdim=True).sqrt()
        change = self.residual_gate * self.up(scores.states) + probabilities[:, None] * self.mark
        added: Tensor = (size * change).to(states.dtype)
        return added

    def saved_state(self) -> dict[str, Tensor]:
        """Return the tensors to save."""
        return self.state_dict()


@torch.no_grad()
def kept_tokens(reading: ReadingLike, probabilities: Tensor, most: int | None) -> Tensor:
    """Return which tokens of passages go on, [T]: those of the likeliest passages.

    Args:
        reading: the batch.
        probabilities: of its nodes, [N].
        most: most tokens of an example; the last passage that begins within it is cut there. None:
            all go on.
    """
    passages, is_read = reading.passages, reading.passages >= 0
    if most is None:
        return is_read
    owners, examples = reading.owners, reading.examples
    mass = probabilities.new_zeros(len(owners) + 1)
    mass.index_add_(0, passages[reading.nodes] + 1, probabilities)  # 0: the question's nodes
    mass = mass.nan_to_num()  # NaN: training itself stops at a loss that is not finite
    order = (4 * owners - mass[1:]).argsort(stable=True)
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=mass.device))
    last = torch.full_like(passages, len(order))
    rank = torch.where(is_read, ranks[passages.clamp(min=0)], last) if len(order) else last
    by_rank = rank.argsort(stable=True)
    sizes = examples.new_zeros(len(reading.num_read)).index_add(0, examples, is_read.long())
    starts = sizes.cumsum(0) - sizes
    place = torch.empty_like(by_rank)
    place[by_rank] = torch.arange(len(by_rank), device=mass.device)
    return is_read & (place - starts[examples] < most)


def rows_above(reading: ReadingLike, kept: Tensor, most: int | None, padded_left: bool) -> Above:
    """Return the rows above the graph: all tokens but those of passages that were not kept.

    Args:
        reading: the batch.
        kept: by ``kept_tokens``, [T].
        most: as in ``kept_tokens``.
        padded_left: padding comes first; else last.
    """
    going, examples = kept | (reading.passages < 0), reading.examples
    lengths = [  # as long as what is chosen will be, whatever it is
        (num if most is None else min(num, most)) + other
        for num, other in zip(reading.num_read, reading.num_other, strict=True)
    ]
    sizes = examples.new_zeros(len(lengths)).index_add(0, examples, going.long())
    going = true_places(going, sum(lengths))
    owners, longest = examples[going], max(lengths)
    columns = torch.arange(len(going), device=going.device) - (sizes.cumsum(0) - sizes)[owners]
    if padded_left:
        columns = columns + (longest - sizes)[owners]
    tokens = going.new_zeros(len(lengths), longest)
    is_token = torch.zeros_like(tokens, dtype=torch.bool)
    tokens[owners, columns], is_token[owners, columns] = going, True
    return Above(tokens, is_token, is_token & (reading.passages[tokens] >= 0))


def true_places(mask: Tensor, count: int) -> Tensor:
    """Return where a mask is True, [count], ascending.

    Args:
        mask: [T].
        count: number of True values; ``nonzero`` would have to wait for a GPU to count them.
    """
    return (~mask).to(torch.uint8).argsort(stable=True)[:count]
