"""Ranks the answers that a model's graph finds: entities, spans, and what its LM writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from turngraph.data.batches.collate import Batch, candidate_entities
from turngraph.data.examples import Example
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.metrics import answer_value
from turngraph.data.scoring.proposals import NUM_PROPOSALS, Proposal, chosen
from turngraph.data.types import NOT_IN_EVIDENCE, Entity
from turngraph.model.distributed import is_sharded
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import IGNORED_LABEL, Generated
from turngraph.model.node_answers import NodeScores
from turngraph.model.reader import Read, Reader

NUM_SPANS = 8
"""Most spans of a question that are candidates."""
NUM_PLACES = 32
"""Most places of spans that are looked at: some of them have the same words."""
NUM_WRITTEN = 8
"""Most candidates of a question that the LM weighs."""
UNLIKELY = -7.0
"""Largest log-probability that an answer which only the LM wrote gets for the graph's part."""


@torch.no_grad()
def ranked(
    model: EvidenceModel,
    prompt: Prompt,
    batch: Batch,
    examples: Sequence[Example],
    scores: NodeScores,
) -> list[list[Proposal]]:
    """Return the likeliest answers of each example by the graph alone, best first.

    Where an LM writes, one of them is that no passage has the answer: an LM that never learned to
    write this will not choose it.

    Args:
        model: with a scorer.
        prompt: of its tokenizer.
        batch: the examples, without targets, on the model's device.
        examples: the examples.
        scores: of the batch.
    """
    assert batch.candidates is not None, "built without mentions"
    sizes = batch.candidates.num_candidates.tolist()
    entities = scores.entities.float().cpu().split(sizes)
    if scores.spans is None or scores.kinds is None:
        return [
            _best([(e, float(v)) for e, v in zip(candidate_entities(one), logprobs, strict=True)])
            for one, logprobs in zip(examples, entities, strict=True)
        ]
    num_nodes = [len(example.graph.node_ids) for example in examples]
    of_nodes = scores.spans.float().cpu().split(num_nodes)
    proposals, shares = [], scores.shares(batch.candidates.num_candidates).tolist()
    for index, example in enumerate(examples):
        of_entities, of_spans = shares[index]
        by_value = {
            answer_value(entity.label): (entity, float(logprob) + of_entities)
            for entity, logprob in reversed(_sorted(candidate_entities(example), entities[index]))
        }
        for text, logprob in spans(prompt, example, of_nodes[index]):
            entity, before = by_value.get(answer_value(text), (Entity(text, text), -np.inf))
            by_value[answer_value(text)] = entity, float(np.logaddexp(before, logprob + of_spans))
        if model.writes:
            none = Entity(NOT_IN_EVIDENCE, NOT_IN_EVIDENCE), float(scores.kinds[index, 2])
            by_value[answer_value(NOT_IN_EVIDENCE)] = none
        proposals.append(_best(list(by_value.values())))
    return proposals


def _sorted(entities: Sequence[Entity], logprobs: Tensor) -> list[tuple[Entity, float]]:
    order = logprobs.argsort(descending=True, stable=True).tolist()
    return [(entities[i], float(logprobs[i])) for i in order]


def _best(candidates: list[tuple[Entity, float]]) -> list[Proposal]:
    ordered = sorted(candidates, key=lambda one: -one[1])[:NUM_PROPOSALS]
    return [Proposal(entity, logprob) for entity, logprob in ordered]


def spans(prompt: Prompt, example: Example, logprobs: Tensor) -> list[tuple[str, float]]:
    """Return the likeliest spans of passages as texts, with log-probabilities, best first.

    Args:
        prompt: of the tokenizer.
        example: the question.
        logprobs: of the spans, by first node and length; see ``NodeScores.spans``.
    """
    by_text: dict[str, float] = {}
    for text, logprob, _, _ in _places(prompt, example, logprobs):
        by_text[text] = float(np.logaddexp(by_text.get(text, -np.inf), logprob))
    return sorted(by_text.items(), key=lambda span: -span[1])[:NUM_SPANS]


def span_places(prompt: Prompt, example: Example, answer: str, logprobs: Tensor) -> Tensor:
    """Return first and last node of each likely span that counts as an answer, [2, A].

    Args:
        prompt, example, logprobs: as in ``spans``.
        answer: compared as ``ranked`` does, by value.
    """
    found = _places(prompt, example, logprobs.detach().float().cpu())
    places = [place for text, _, *place in found if answer_value(text) == answer_value(answer)]
    return torch.tensor(places, dtype=torch.long).reshape(-1, 2).T


def _places(
    prompt: Prompt, example: Example, logprobs: Tensor
) -> Iterator[tuple[str, float, int, int]]:
    """Yield text, log-probability, first and last node of the likeliest spans."""
    assert example.graph.mentions is not None, "built without mentions"
    num_read = len(example.graph.prompt_ids)
    if not num_read:
        return
    sizes = example.graph.mentions.sizes[:-1]
    passage, begins = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes
    places = logprobs[:num_read].flatten()
    best = places.topk(min(NUM_PLACES, int(places.isfinite().sum())))
    for logprob, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        first, more = divmod(place, logprobs.shape[1])
        begin, size = int(begins[passage[first]]), int(sizes[passage[first]])
        ids = example.graph.node_ids[begin : begin + size].tolist()
        if text := prompt.span_text(ids, first - begin, first + more - begin):
            yield text, logprob, first, first + more


@torch.no_grad()
def decided(
    model: Reader,
    prompt: Prompt,
    batch: Batch,
    proposed: Sequence[Sequence[Proposal]],
    read: Read,
    generated: Generated,
    weight: float,
) -> list[list[Proposal]]:
    """Return the likeliest answers by graph and LM together, best first.

    The candidates are the best ones of the graph and what the LM writes; their score is log p_LM +
    w log p_graph.

    Args:
        model: a reader whose LM writes.
        prompt, batch: as in ``ranked``.
        proposed: what ``ranked`` found.
        read: what the model has read of the batch, with keys and values.
        generated: the answers that it wrote.
        weight: w.
    """
    written = [prompt.answer_text(ids) for ids in generated.ids.tolist()]
    candidates = []
    for proposals, text in zip(proposed, written, strict=True):
        listed = [*proposals[:NUM_WRITTEN]]
        labels = {answer_value(one.entity.label) for one in listed}
        if text and answer_value(text) not in labels:
            same = [
                one for one in proposals if answer_value(one.entity.label) == answer_value(text)
            ]
            least = min([UNLIKELY, *(one.logprob for one in proposals)])
            listed = [*listed, *(same or [Proposal(Entity(text, text), least)])]
        candidates.append(listed)
    ids = [prompt.target_ids(one.entity.label) for listed in candidates for one in listed]
    if not ids and not is_sharded(model):
        return candidates
    padded = torch.full((len(ids), max(map(len, ids), default=1)), IGNORED_LABEL)
    for row, answer_ids in enumerate(ids):
        padded[row, : len(answer_ids)] = torch.tensor(answer_ids)
    sizes = [len(listed) for listed in candidates]
    logprobs = model.answer_logprobs(
        batch, padded.to(model.device), torch.tensor(sizes, device=model.device), read
    )
    parts = logprobs.float().cpu().split(sizes)
    return [
        chosen(listed, values.tolist(), weight) if listed else []
        for listed, values in zip(candidates, parts, strict=True)
    ]
