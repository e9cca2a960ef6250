"""An LM chooses its answer among the entities that a node scorer proposes.

The scorer is another checkpoint's (``--proposals``), or the model's own (``answers: choice``). It
reads many passages and finds candidates; the LM reads the best few passages and scores each
candidate's label as the answer to the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch.nn.utils.rnn import pad_sequence

from turngraph.data.batches.collate import Batch, candidate_entities
from turngraph.data.examples import Example
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.predictions import read_proposals
from turngraph.data.scoring.proposals import Key, Proposal, Proposed, chosen
from turngraph.data.types import Conversation
from turngraph.model.checkpoint import Checkpoint
from turngraph.model.generation import IGNORED_LABEL
from turngraph.model.graph_lm import GraphLM


@dataclass(frozen=True)
class Choice:
    """The proposals that an LM chooses its answers from.

    Args:
        path: a checkpoint that answers from nodes, or a file of its predictions.
        weight: of the node scorer's log-probabilities relative to the LM's.
        num: maximum number of proposals for one question.
        checkpoint: the checkpoint that proposes; None: ``path`` is a predictions file.
        proposed: the proposals for each question.
    """

    path: str
    weight: float
    num: int
    checkpoint: Checkpoint | None = None
    proposed: dict[Key, Proposed] = field(default_factory=dict)

    @property
    def has_proposer(self) -> bool:
        """Whether a checkpoint makes the proposals while questions are answered."""
        return self.checkpoint is not None

    def read(self) -> None:
        """Read the proposals from the predictions file.

        Raises:
            ValueError: as ``read_proposals``.
        """
        self.proposed.update(read_proposals(self.path, self.num))

    def missing(self, conversation: Conversation, number: int) -> str:
        """Return why a turn has no proposals; "" if it has some."""
        turn = conversation.turns[number]
        found = self.proposed.get((conversation.id, turn.id))
        if found is None or not found.proposals:
            return f"--proposals {self.path}: no entity is proposed for this question"
        if found.question != turn.question:
            return f"--proposals {self.path}: another question is there: {found.question!r}"
        return ""

    def ranked(
        self,
        model: GraphLM,
        prompt: Prompt,
        batch: Batch,
        examples: Sequence[Example],
        max_new_tokens: int,
    ) -> list[list[Proposal]]:
        """Return the proposals for each example, the most likely under both models first.

        Args:
            model: the LM, which generates text.
            prompt: with the LM's tokenizer.
            batch: the examples, padded on the left, on the model's device.
            examples: all have proposals (``missing`` returns "").
            max_new_tokens: labels are cut to this many tokens, as generated answers are.
        """
        proposals = [self.proposed[example.key].proposals for example in examples]
        sizes = [len(candidates) for candidates in proposals]
        labels = [proposal.entity.label for proposal in chain(*proposals)]
        ids = [torch.tensor(prompt.target_ids(label)[:max_new_tokens]) for label in labels]
        label_ids = pad_sequence(ids, batch_first=True, padding_value=IGNORED_LABEL)
        written = model.answer_logprobs(
            batch,
            answer_ids=label_ids.to(model.device),
            num_answers=torch.tensor(sizes, device=model.device),
        )
        per_example = torch.split(written.float().cpu(), sizes)
        return [
            chosen(candidates, logprobs.tolist(), self.weight)
            for candidates, logprobs in zip(proposals, per_example, strict=True)
        ]


def chosen_entities(
    model: GraphLM, batch: Batch, examples: Sequence[Example]
) -> list[list[Proposal] | None]:
    """Return the entities that a model's own scorer proposes, as its LM ranks them, best first.

    Args:
        model: with ``answers: choice``.
        batch: the examples, without targets, on the model's device.
        examples: the examples.

    Returns:
        The proposals of each example; None if its evidence names no entity.
    """
    proposals, written = model.choose(batch)
    assert batch.candidates is not None, "built without mentions"
    sizes = batch.candidates.num_candidates
    starts = (sizes.cumsum(0) - sizes).tolist()
    parts = (proposals.indices, proposals.exists, proposals.logprobs.float(), written.float())
    found: list[list[Proposal] | None] = []
    for example, start, *rows in zip(examples, starts, *(p.tolist() for p in parts), strict=True):
        indices, exists, logprobs, labels = rows
        entities, num = candidate_entities(example), sum(exists)
        proposed = [
            Proposal(entities[index - start], logprob)
            for index, logprob in zip(indices[:num], logprobs[:num], strict=True)
        ]
        weight = model.config.scorer.weight
        found.append(chosen(proposed, labels[:num], weight) if proposed else None)
    return found
