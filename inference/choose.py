"""Answers that an LM chooses among the entities that a graph's nodes propose.

The nodes have read many passages and know what may be asked for; the LM reads the best few passages
and knows how an answer to the question reads.
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
    """What an LM chooses its answers from.

    Args:
        path: a checkpoint that answers from nodes, or its predictions.
        weight: of its log-probabilities beside the LM's.
        num: most proposals to a question.
        checkpoint: that proposes, read; None: the proposals are predictions.
        proposed: to each question.
    """

    path: str
    weight: float
    num: int
    checkpoint: Checkpoint | None = None
    proposed: dict[Key, Proposed] = field(default_factory=dict)

    @property
    def is_asked(self) -> bool:
        """Whether the proposals come from a checkpoint, while questions are answered."""
        return self.checkpoint is not None

    def read(self) -> None:
        """Take the proposals out of predictions.

        Raises:
            ValueError: as of ``read_proposals``.
        """
        self.proposed.update(read_proposals(self.path, self.num))

    def missing(self, conversation: Conversation, number: int) -> str:
        """What is wrong where nothing is proposed to a turn; "" where something is."""
        turn = conversation.turns[number]
        found = self.proposed.get((conversation.id, turn.id))
        if found is None or not found.proposals:
            return f"--proposals {self.path}: no entity is proposed to this question"
        if found.question != turn.question:
            return f"--proposals {self.path}: this is another question there: {found.question!r}"
        return ""

    def ranked(
        self,
        model: GraphLM,
        prompt: Prompt,
        batch: Batch,
        examples: Sequence[Example],
        max_new_tokens: int,
    ) -> list[list[Proposal]]:
        """The proposals to each example of a batch, the likeliest to both models first.

        Args:
            model: an LM that writes.
            prompt: of its tokenizer.
            batch: of the examples, padded on the left, on the model's device.
            examples: none of which is ``missing``.
            max_new_tokens: so many tokens of a label are read, as no more could be written.
        """
        proposals = [self.proposed[example.key].proposals for example in examples]
        sizes = [len(of_one) for of_one in proposals]
        labels = [proposal.entity.label for proposal in chain(*proposals)]
        ids = [torch.tensor(prompt.target_ids(label)[:max_new_tokens]) for label in labels]
        written = model.answer_logprobs(
            batch,
            pad_sequence(ids, batch_first=True, padding_value=IGNORED_LABEL).to(model.device),
            torch.tensor(sizes, device=model.device),
        )
        parts = written.float().cpu().split(sizes)
        return [
            chosen(of_one, logprobs.tolist(), self.weight)
            for of_one, logprobs in zip(proposals, parts, strict=True)
        ]
