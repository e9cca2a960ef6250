"""Proposals: entities that one model puts forward as answers, for another one to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turngraph.data.types import Entity

NUM_PROPOSALS = 20
"""Largest number of entities kept for a question, best first."""
Key = tuple[str, str]
"""Conversation and turn, by their ids."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entity as an answer, with log-probabilities in nats.

    Args:
        entity: the entity.
        logprob: log-probability among all candidates.
        written: log-probability of its label as text of an LM; None: there is no LM.
        proposed: ``logprob`` before an LM chose; None: there is no LM.
    """

    entity: Entity
    logprob: float
    written: float | None = None
    proposed: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """Return the log-probabilities that are known, by name."""
        known = {"logprob": self.logprob, "written": self.written, "proposed": self.proposed}
        return {name: value for name, value in known.items() if value is not None}


def chosen(
    proposals: Sequence[Proposal], written: Sequence[float], weight: float
) -> list[Proposal]:
    """Rank proposals by two models together, best first: a product of experts (Hinton, 2002).

        log p(a) = log p_LM(a) + w log p_nodes(a) - log of the sum over all proposals

    Args:
        proposals: proposals for one question, at least one.
        written: log-probability of each label as text of the LM.
        weight: w.
    """
    scores = np.array(written) + weight * np.array([p.logprob for p in proposals])
    logprobs = scores - np.logaddexp.reduce(scores)
    return [
        Proposal(proposals[i].entity, float(logprobs[i]), written[i], proposals[i].logprob)
        for i in np.argsort(-logprobs, kind="stable")
    ]
