"""An LM chooses its answer among the entities that a node scorer proposes.

The node scorer reads many passages and finds candidates; the LM reads the best few passages and
scores each candidate's label as the answer to the question. The scorer is another checkpoint's
(``--proposals``), or part of the LM's own (``proposer`` in its config).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch.nn.utils.rnn import pad_sequence

from turngraph.data.batches.collate import Batch
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
        path: a checkpoint that answers from nodes, or a file of its predictions; None: the LM's
            own nodes propose, and its examples have the proposals.
        weight: of the node scorer's log-probabilities relative to the LM's.
        num: maximum number of proposals for one question.
        checkpoint: the checkpoint that proposes; None: ``path`` is a predictions file, or None.
        proposed: the proposals for each question; empty where examples have them.
    """

    path: str | None
    weight: float
    num: int
    checkpoint: Checkpoint | None = None
    proposed: dict[Key, Proposed] = field(default_factory=dict)

    @property
    def has_proposer(self) -> bool:
        """Whether a checkpoint makes the proposals while questions are answered."""
        return self.path is None or self.checkpoint is not None

    def of(self, example: Example) -> list[Proposal]:
        """Return the proposals for an example, best first; there may be none."""
        if self.path is None:
            return (example.proposals or [])[: self.num]
        found = self.proposed.get(example.key)
        return [] if found is None else found.proposals

    def read(self) -> None:
        """Read the proposals from the predictions file.

        Raises:
            UserError: as ``read_proposals``.
        """
        assert self.path is not None, "examples have the proposals"
        self.proposed.update(read_proposals(self.path, self.num))

    def missing(self, conversation: Conversation, number: int) -> str:
        """Return why a turn cannot be answered; "" if it has proposals, or the LM may write."""
        if self.path is None:
            return ""
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
            examples: all have proposals.
            max_new_tokens: labels are cut to this many tokens, as generated answers are.
        """
        proposals = [self.of(example) for example in examples]
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
