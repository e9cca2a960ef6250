"""Scores entities and spans of the evidence as answers, by a GATv2 over the token graph.

EXPLAIGNN (Christmann et al., 2023) scores entities in a graph of passages and entities. Here an
entity is scored at its mentions in the token graph, so that a cell's score depends on its header
and row.

Shapes: N nodes, E edges, D LM width, W width, S segments (passages, and the question of each
example), M mentions, C candidate entities of B examples.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from turngraph.configs.schema import EDGE_TYPES, PASSAGE_FEATURES, SCORER_HEADS, ScorerConfig
from turngraph.model.gatv2 import GATv2Layer

KINDS = ("entity", "span", "none")
"""Where an answer is: a candidate, a span of a passage, or in no passage."""
LONGEST_SPAN = 24
"""Most tokens of a span that is an answer."""
HIGHEST = 20.0
"""Scores beyond it, and those of nothing, say no more of an answer's kind."""


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


class NodeScores(NamedTuple):
    """What a scorer says of the nodes of a batch, in nats.

    Args:
        entities: log-probability of each candidate within its example, [C].
        mentions: log-probability of each mention within its example, [M].
        spans: log-probability of the answer being the k + 1 nodes from each node on, within its
            example, [N, ``LONGEST_SPAN``]; -inf where they leave the passage. None without a span
            head.
        kinds: log-probability of the answer being a candidate, a span, or in none of the passages,
            [B, 3]; None without a span head.
        states: node states after the last layer, [N, W].
    """

    entities: Tensor
    mentions: Tensor
    spans: Tensor | None
    kinds: Tensor | None
    states: Tensor

    def span_logprobs(self, places: Tensor) -> Tensor:
        """Return the log-probability of spans by their first and last nodes, [2, A] to [A].

        It is -inf for spans of more than ``LONGEST_SPAN`` nodes.
        """
        assert self.spans is not None, "no span head"
        steps = places[1] - places[0]
        logprobs = self.spans[places[0], steps.clamp(max=LONGEST_SPAN - 1)]
        return logprobs.masked_fill(steps >= LONGEST_SPAN, -torch.inf)

    @property
    def span_ends(self) -> Tensor:
        """The probability of each node being the first, and the last, of the answer, [2, N]."""
        assert self.spans is not None, "no span head"
        return _ends_of(self.spans.exp())

    def shares(self, num_candidates: Tensor) -> Tensor:
        """Return the log-probability of each head having the answer, [B, 2].

        Without candidates a span is the answer, or none is.

        Args:
            num_candidates: number of candidates of each example, [B].
        """
        assert self.kinds is not None, "no span head"
        entity, span, _ = self.kinds.unbind(1)
        alone = num_candidates == 0
        span = torch.where(alone, torch.logaddexp(entity, span), span)
        return torch.stack([entity.masked_fill(alone, -torch.inf), span], 1)

    @property
    def held(self) -> Tensor:
        """The probability that the passages hold the answer, [B]."""
        assert self.kinds is not None, "no span head"
        return 1 - self.kinds[:, 2].exp()


class NodeAnswers(nn.Module):
    """Scorer of entities, and of spans, as answers: a GATv2 with heads.

    Features are projected, and nodes of the question get a vector. After the GATv2
    layers a mention is represented by its last node's state, pooled states of its passage, and
    those of the question; an entity's score is the log-sum-exp of its mentions' scores. A span's
    score is that of its first node, of its last one, of the two together (a product of their
    states, which starts at zero), and of its length. The kind of the answer is read from the
    question, the likeliest nodes, and how high the scores are before they are normalised.

    Args:
        num_features: D.
        config: number of layers, width, dropout.
        spans: also score spans, and which kind of answer there is.
    """

    def __init__(self, num_features: int, config: ScorerConfig, spans: bool = False) -> None:
        super().__init__()
        self.config, width = config, config.width
        self.project = nn.Linear(num_features, width)
        self.question = nn.Parameter(torch.zeros(width))
        self.layers = nn.ModuleList(
            GATv2Layer(
                width,
                width // SCORER_HEADS,
                SCORER_HEADS,
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
        self.spans: nn.Sequential | None = None
        if spans:
            self.spans = nn.Sequential(
                nn.Linear(5 * width + len(PASSAGE_FEATURES), width),
                nn.GELU(),
                nn.Dropout(2 * config.dropout),
                nn.Linear(width, 2),
            )
            self.first = nn.Linear(width, width // 2, bias=False)
            self.last = nn.Linear(width, width // 2, bias=False)
            self.length = nn.Parameter(torch.zeros(LONGEST_SPAN))
            nn.init.zeros_(self.first.weight)
            self.kinds = nn.Linear(3 * width + 3, len(KINDS))

    def forward(
        self, features: Tensor, edge_index: Tensor, edge_types: Tensor, candidates: CandidatesLike
    ) -> NodeScores:
        """Score the candidates, and spans if there is a span head.

        Args:
            features: of the nodes, from the LM, normalised (``normalised``), [N, D].
            edge_index: source row and target row, [2, E].
            edge_types: index of each edge's type in ``EDGE_TYPES``, [E].
            candidates: the C candidates with their M mentions.
        """
        sizes = candidates.segment_sizes
        is_question = torch.zeros_like(sizes)
        is_question[candidates.questions] = 1
        is_question = _repeated(is_question, sizes, len(features))[:, None]  # [N, 1]
        states = self.norms[0](self.project(features) + is_question * self.question)
        states = self.dropout(states)  # [N, W]
        for layer, norm in zip(self.layers, self.norms[1:], strict=True):
            change = functional.gelu(layer(states, edge_index, edge_types))
            states = norm(states + self.dropout(change))
        # unsafe: the lengths are not checked, for which a GPU would have to be waited for
        most = torch.segment_reduce(states, "max", lengths=sizes, unsafe=True)  # [S, W]
        means = torch.segment_reduce(states, "mean", lengths=sizes, unsafe=True)
        means = torch.where(sizes[:, None] > 0, means, 0.0)  # a question may be empty
        question = means[candidates.questions]  # [B, W]
        scores = _precise(self.score(self._mentions(states, most, means, candidates))).squeeze(1)
        entities = log_sum_exp(scores, candidates.num_mentions)  # [C]
        total = log_sum_exp(entities, candidates.num_candidates)  # [B]
        of_candidates = _repeated(total, candidates.num_candidates, len(entities))
        entities = entities - of_candidates
        mentions = scores - _repeated(of_candidates, candidates.num_mentions, len(scores))
        spans = kinds = None
        if self.spans is not None:
            segments = _owners_of(sizes, len(states))  # [N]
            examples = _examples(candidates)  # [S]
            owners = examples[segments]
            parts = (
                *(states, states * question[owners], question[owners]),
                *(means[segments], most[segments], candidates.features[segments]),
            )
            hidden = self.spans[:-1](torch.cat(parts, 1))
            both = _precise(self.spans[-1](hidden)).masked_fill(is_question > 0, -torch.inf)
            num_nodes = torch.zeros_like(candidates.questions).index_add(0, examples, sizes)  # [B]
            totals = [log_sum_exp(logits, num_nodes) for logits in both.unbind(1)]
            pairs = self._pairs(hidden, both, segments)
            total_of_spans = log_sum_exp(pairs.flatten(), LONGEST_SPAN * num_nodes).clamp(min=-1e30)
            spans = pairs - _repeated(total_of_spans, num_nodes, len(states))[:, None]
            likely = states * _ends_of(spans.exp()).mean(0)[:, None]
            pointed = torch.zeros_like(question).index_add(0, owners, likely)
            heights = torch.stack([total, *totals], 1).clamp(-HIGHEST, HIGHEST)
            seen = torch.cat((question, pointed, question * pointed, heights), 1)
            kinds = _precise(self.kinds(seen)).log_softmax(1)
        return NodeScores(entities, mentions, spans, kinds, states)

    def saved_state(self) -> dict[str, Tensor]:
        """Return the tensors to save."""
        return self.state_dict()

    def _pairs(self, hidden: Tensor, both: Tensor, segments: Tensor) -> Tensor:
        """Return the score of each span of up to ``LONGEST_SPAN`` nodes of a passage, [N, longest].

        Args:
            hidden: hidden states of the nodes, [N, W].
            both: score of each node as the first and as the last one, [N, 2].
            segments: segment of each node, [N].
        """
        lasts, keys = _windows(both[:, 1], -torch.inf), _windows(self.last(hidden), 0.0)
        together = torch.bmm(self.first(hidden)[:, None], keys)[:, 0] / keys.shape[1] ** 0.5
        is_inside = _windows(segments, -1) == segments[:, None]
        scores: Tensor = both[:, :1] + lasts + together + self.length
        return scores.masked_fill(~is_inside, -torch.inf)

    def _mentions(
        self, states: Tensor, most: Tensor, means: Tensor, candidates: CandidatesLike
    ) -> Tensor:
        """Return the features from which each mention is scored, [M, 6 W + features]."""
        of_candidates = _owners_of(candidates.num_candidates, len(candidates.num_mentions))
        examples = _repeated(of_candidates, candidates.num_mentions, len(candidates.nodes))
        question = means[candidates.questions][examples]  # [M, W]
        own, passage = states[candidates.nodes], means[candidates.segments]
        features = candidates.features[candidates.segments]
        highest = most[candidates.segments]
        parts = (own, own * question, question, passage, highest, passage * question, features)
        return torch.cat(parts, 1)


def _windows(values: Tensor, beyond: float) -> Tensor:
    """Return the values of each node and those after it, [N, ..., ``LONGEST_SPAN``].

    Args:
        values: of the nodes, [N, ...].
        beyond: value in place of those after the last node.
    """
    padding = [0, 0] * (values.dim() - 1) + [0, LONGEST_SPAN - 1]
    return functional.pad(values, padding, value=beyond).unfold(0, LONGEST_SPAN, 1)


def _ends_of(spans: Tensor) -> Tensor:
    """Return the sums over the spans that begin, and that end, at each node, [2, N].

    Args:
        spans: values of spans by first node and length, [N, ``LONGEST_SPAN``].
    """
    num, longest = spans.shape
    nodes = torch.arange(num, device=spans.device)[:, None]
    lasts = nodes + torch.arange(longest, device=spans.device)  # beyond the last node, values are 0
    ends = spans.new_zeros(num + longest).index_add(0, lasts.flatten(), spans.flatten())
    return torch.stack([spans.sum(1), ends[:num]])


def normalised(features: Tensor) -> Tensor:
    """Return features of nodes with mean 0 and variance 1, [N, D], in float32 or float64."""
    return functional.layer_norm(_precise(features), features.shape[1:])


def _precise(values: Tensor) -> Tensor:
    """Return values in float32 or float64: sums of probabilities in bfloat16 are beyond 1."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _examples(candidates: CandidatesLike) -> Tensor:
    """Return the index of each segment's example, [S]."""
    last = candidates.questions
    sizes = torch.diff(last, prepend=last.new_full((1,), -1))
    return _owners_of(sizes, len(candidates.segment_sizes))


def _owners_of(lengths: Tensor, total: int) -> Tensor:
    """Return the index of the part that each of ``total`` values is in, by the parts' lengths."""
    return torch.repeat_interleave(lengths, output_size=total)


def _repeated(values: Tensor, lengths: Tensor, total: int) -> Tensor:
    """Repeat each part's value as often as its length; a GPU need not be waited for the total."""
    return values.repeat_interleave(lengths, output_size=total)


def entity_loss(logprobs: Tensor, candidates: CandidatesLike) -> Tensor:
    """Sum -log p(any gold candidate) over the examples that have a gold candidate."""
    assert candidates.gold is not None, "no targets"
    kept = torch.where(candidates.gold, logprobs, -torch.inf)
    return -_sum_of_finite(log_sum_exp(kept, candidates.num_candidates))


def span_loss(scores: NodeScores, answers: Tensor, num_answers: Tensor) -> Tensor:
    """Sum -log p(any place of a gold answer) over the examples whose passages have one.

    Args:
        scores: of a scorer with a span head.
        answers: first and last node of each place, [2, A].
        num_answers: number of places of each example, [B].
    """
    return -_sum_of_finite(log_sum_exp(scores.span_logprobs(answers), num_answers))


def _sum_of_finite(values: Tensor) -> Tensor:
    """Sum the values that are not -inf; the others get no gradient."""
    return values.where(values > -torch.inf, 0.0).sum()


def mixture_loss(
    scores: NodeScores, candidates: CandidatesLike, answers: Tensor, num_answers: Tensor
) -> Tensor:
    """Sum -log of the chance of the answer by its kind.

    It is p(entity) p(gold candidates) + p(span) p(gold places); where no passage has the answer it
    is p(none). The chances of candidates and of places are not differentiated; those of the kinds
    are, with all that they are computed from.

    Args:
        scores: of a scorer with a span head.
        candidates: with gold.
        answers, num_answers: as in ``span_loss``.
    """
    assert candidates.gold is not None, "no targets"
    entities = torch.where(candidates.gold, scores.entities.detach(), -torch.inf)
    one = log_sum_exp(entities, candidates.num_candidates)  # [B]
    other = log_sum_exp(scores.span_logprobs(answers).detach(), num_answers)  # [B]
    either = (one > -torch.inf) | (num_answers > 0)
    assert scores.kinds is not None, "no span head"
    entity, span, none = scores.kinds.unbind(1)
    mixed = torch.logaddexp(entity + one.clamp(min=-100.0), span + other.clamp(min=-100.0))
    return -torch.where(either, mixed, none).sum()


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
    most = torch.segment_reduce(values.detach(), "max", lengths=lengths, unsafe=True)
    most = torch.where(most.isfinite(), most, 0.0)
    exps = (values - _repeated(most, lengths, len(values))).exp()
    total = torch.segment_reduce(exps, "sum", lengths=lengths, unsafe=True)
    is_some = total > 0
    return (most + total.where(is_some, 1.0).log()).where(is_some, -torch.inf)
