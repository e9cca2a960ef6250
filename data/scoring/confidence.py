"""Computes the calibrated probability that an answer is right, and withholds unlikely answers.

The calibration is a logistic regression over features of an answer's record. It is fitted on tune
questions at the end of an evaluation and stored in the checkpoint (``training.calibrate``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json
from turngraph.data.types import NOT_IN_EVIDENCE

FEATURES = ("logprob", "margin", "is_entity", "held")


def features(record: Json) -> list[float]:
    """Return the calibration's features of a prediction record, in the order of ``FEATURES``.

    Returns:
        The log-probability of the answer; the smallest lead of a token over the next likely one,
        in log-probability; 1 if the answer is the label of an entity of the evidence, else 0; the
        probability that the passages hold the answer, by a reader's graph, or 1 if the record does
        not have it. Scores of passages are no feature: each retriever has a scale of its own.
    """
    labels = [str(candidate["label"]).casefold() for candidate in record["candidates"][:1]]
    return [
        max(float(record["logprob"]), -50.0),
        min(float(record["margin"]), 50.0),
        float(str(record["answer"]).casefold() in labels),
        float(record.get("held", 1.0)),
    ]


@dataclass(frozen=True)
class Calibration:
    """A logistic regression over ``features``.

    Args:
        weights: weights of the features, in their order.
        bias: the intercept.
        num_questions: tune questions that it was fitted on.
        expected_error: expected calibration error on tune questions, each predicted by a fit on
            others.
    """

    weights: tuple[float, ...]
    bias: float
    num_questions: int
    expected_error: float

    def probability(self, record: Json) -> float:
        """Return the probability that a record's answer is right."""
        pairs = zip(self.weights, features(record), strict=True)
        score = self.bias + sum(weight * value for weight, value in pairs)
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, score))))

    def to_json(self) -> Json:
        """Return what ``from_json`` reads."""
        return {"features": list(FEATURES)} | asdict(self)

    @staticmethod
    def from_json(calibration: Any, where: str) -> Calibration | None:
        """Read a calibration from a checkpoint's metrics; None: there is none.

        Args:
            calibration: what ``to_json`` returned.
            where: names it in an error.

        Raises:
            UserError: it is no calibration of these features.
        """
        if calibration is None:
            return None
        try:
            assert calibration["features"] == list(FEATURES)
            weights = tuple(float(weight) for weight in calibration["weights"])
            rest = (float(calibration["bias"]), int(calibration["num_questions"]))
            error = float(calibration["expected_error"])
            assert len(weights) == len(FEATURES)
            assert all(map(math.isfinite, (*weights, *rest, error)))
        except (AssertionError, KeyError, TypeError, ValueError):
            raise UserError(f"{where}: no calibration of {', '.join(FEATURES)}") from None
        return Calibration(weights, *rest, error)


@dataclass(frozen=True)
class Confidence:
    """Calibration of answers, and the probability below which they are withheld.

    Args:
        calibration: calibration of the checkpoint.
        abstain_below: probability below which an answer is withheld; None: never. If it is set, an
            answer is also withheld where no passage has a score above 0.
        of_memory: holds instead where all passages come from a memory graph; None: this one does.
    """

    calibration: Calibration
    abstain_below: float | None
    of_memory: Confidence | None = None

    def applied(self, record: Json) -> Json:
        """Return a record with its ``confidence``; a withheld answer stands in ``withheld``."""
        sources = {item.get("source") for item in record["evidence"]}
        if self.of_memory is not None and sources == {"memory"}:
            return self.of_memory.applied(record)
        probability = self.calibration.probability(record)
        record = record | {"confidence": round(probability, 4)}
        if self.abstain_below is None or (is_found(record) and probability >= self.abstain_below):
            return record
        hits = {name: False for name in ("hit_at_1", "hit_at_5") if name in record}
        withheld = {"answer": NOT_IN_EVIDENCE, "withheld": record["answer"], "candidates": []}
        return record | withheld | hits


def is_found(record: Json) -> bool:
    """Return whether a passage of the record has a score above 0."""
    return any(float(item["score"]) > 0 for item in record["evidence"])


def expected_error(probabilities: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """Return the expected calibration error (Naeini et al., 2015) over bins of equal width."""
    total = 0.0
    for index in range(bins):
        inside = [i for i, p in enumerate(probabilities) if min(int(p * bins), bins - 1) == index]
        sure = sum(probabilities[i] for i in inside)
        total += abs(sure - sum(bool(right[i]) for i in inside))
    return total / max(len(probabilities), 1)
