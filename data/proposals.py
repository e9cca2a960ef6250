"""Entities that one model proposes as answers, for another one to choose from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.jsonlines import Json, Place, field, iter_lines, records
from data.types import Entity

NUM_PROPOSALS = 20
"""Entities of a question that answers from nodes keep, best first."""
Key = tuple[str, str]


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


def read_proposals(path: str | Path, num: int) -> dict[Key, list[Proposal]]:
    """The first entities of every question that is answered in a file of predictions.

    Args:
        path: predictions of a model that answers from nodes.
        num: most entities of a question.

    Raises:
        ValueError: a line is malformed or repeats a question, or its candidates have no
            log-probabilities; the message names file, line and field.
    """
    found: dict[Key, list[Proposal]] = {}
    for place, record in iter_lines(path):
        if record.get("error"):
            continue
        key = (field(record, "conversation", str, place), field(record, "turn", str, place))
        if key in found:
            raise (place / "turn").error("this question is answered in a line before")
        found[key] = proposals_of(record, place)[:num]
    return found


def proposals_of(record: Json, place: Place) -> list[Proposal]:
    """What a model that answers from nodes proposes to a question.

    Args:
        record: its prediction.
        place: where that stands, for the errors.

    Raises:
        ValueError: as of ``read_proposals``.
    """
    field(record, "candidates", list, place)
    return [_proposal(one, at) for at, one in records(record, "candidates", place)]


def _proposal(record: Json, place: Place) -> Proposal:
    label = field(record, "label", str, place)
    logprob = record.get("logprob")
    is_number = isinstance(logprob, int | float) and not isinstance(logprob, bool)
    if not is_number or not -math.inf < logprob <= 0:
        wanted = "must be a number up to 0, as models that answer from nodes write it"
        raise (place / "logprob").error(wanted)
    return Proposal(Entity(field(record, "id", str, place, label), label), float(logprob))
