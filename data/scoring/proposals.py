"""Proposals: entities that one model puts forward as answers, for another one to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turngraph.data.types import Entity

NUM_PROPOSALS = 20
"""Entities of a question that answers from nodes keep, best first."""
Key = tuple[str, str]
"""Conversation and turn, by their ids."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entity as an answer; numbers are nats.

    Args:
        entity: which.
        logprob: among what could have been proposed.
        written: of its label, as an LM would write it; None where no LM was asked.
        proposed: what ``logprob`` was before the LM was asked.
    """

    entity: Entity
    logprob: float
    written: float | None = None
    proposed: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """Those that there are, by name."""
        known = {"logprob": self.logprob, "written": self.written, "proposed": self.proposed}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Proposed:
    """What is proposed to a question, best first."""

    question: str
    proposals: list[Proposal]


def chosen(
    proposals: Sequence[Proposal], written: Sequence[float], weight: float
) -> list[Proposal]:
    """What two models together think likeliest, best first: a product of experts (Hinton, 2002).

        log p(a) = log p_LM(a) + w log p_nodes(a) - log of the sum over all proposals

    Args:
        proposals: of one question, at least one.
        written: log-probability of each label, as the LM would write it.
        weight: w.
    """
    scores = np.array(written) + weight * np.array([p.logprob for p in proposals])
    logprobs = scores - np.logaddexp.reduce(scores)
    return [
        Proposal(proposals[i].entity, float(logprobs[i]), written[i], proposals[i].logprob)
        for i in np.argsort(-logprobs, kind="stable")
    ]
