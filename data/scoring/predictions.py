"""Reads predictions: one JSON line a turn, with checks."""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.json_fields import (
    Json,
    Location,
    field,
    iter_lines,
    records,
    shown,
)
from turngraph.data.types import Answer, Entity

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One line of a predictions file, with the fields that scoring reads.

    Args:
        line: its number in the file, from 1.
        conversation, turn: ids, together the question's key.
        answer: the generated text; "" after an error.
        gold: the gold answers, at least one.
        candidates: the entities nearest to the answer, from ``metrics.nearest_entities``.
        source: source of the answer according to the benchmark; None: unknown.
        domain: domain of the conversation.
        turn_index: index in the conversation; None: not given.
        answer_in_evidence: the sources that hold the answer; None: not given.
        num_tokens, milliseconds: cost of the answer; NaN: not given.
        logprob: log-probability of the answer; NaN: not given.
        guess_at_1, guess_at_5: chance levels of H@1 and H@5; NaN: not given.
        error: why there is no answer; None: there is one.
        is_entity: the answer is the label of its first candidate (a scorer answered, or an LM
            chose), so that the candidates have log-probabilities.
    """

    line: int
    conversation: str
    turn: str
    answer: str
    gold: tuple[Answer, ...]
    candidates: tuple[Entity, ...]
    source: str | None
    domain: str
    turn_index: int | None
    answer_in_evidence: tuple[str, ...] | None
    num_tokens: float
    milliseconds: float
    logprob: float
    guess_at_1: float
    guess_at_5: float
    error: str | None
    is_entity: bool


def unfinished(path: str | Path) -> Path:
    """Return the path of the file that exists while predictions are incomplete."""
    return Path(f"{path}.unfinished")


def check_whole(path: str | Path) -> None:
    """Check that predictions are complete.

    Raises:
        UserError: they are not.
    """
    if unfinished(path).exists():
        raise UserError(f"{path}: not complete; run the command that writes this file again")


def read_predictions(path: str | Path) -> list[Prediction]:
    """Read the predictions of a file, in its order.

    Questions without a gold answer and unreadable lines of the input are left out; a warning
    counts them.

    Raises:
        UserError: a line is malformed or repeats a question; the message names file, line and
            field. Or no line has a gold answer, or the file is not complete.
    """
    predictions: list[Prediction] = []
    lines: dict[tuple[str, str], int] = {}
    check_whole(path)
    num_without = 0
    for location, record in iter_lines(path):
        if "turns" in record and "turn" not in record:
            raise location.error(
                "this is a conversation; predictions are needed, which `turngraph answer --output` "
                "writes"
            )
        if "gold" not in record:
            num_without += 1
            continue
        prediction = _parse(record, location)
        key = (prediction.conversation, prediction.turn)
        if key in lines:
            raise (location / "turn").error(
                f"this question is answered in line {lines[key]} already"
            )
        lines[key] = prediction.line
        predictions.append(prediction)
    if not predictions:
        what = "prediction" if not num_without else "gold answer"
        raise UserError(f"{path}: no {what} in it, there is nothing to score")
    if num_without:
        lines_without = plural(num_without, "line")
        logger.warning("%s: not scored: %s without a gold answer", path, lines_without)
    return predictions


def _parse(record: Json, location: Location) -> Prediction:
    error = field(record, "error", str, location, None)
    gold = tuple(
        Answer(field(value, "label", str, at), field(value, "id", str, at, None))
        for at, value in records(record, "gold", location)
    )
    if not gold:
        raise (location / "gold").error("no gold answer: there is nothing to score against")
    if error is None:
        field(record, "candidates", list, location)  # without candidates H@1 would be exact match
    return Prediction(
        line=location.line or 0,
        conversation=field(record, "conversation", str, location),
        turn=field(record, "turn", str, location),
        answer=field(record, "answer", str, location) if error is None else "",
        gold=gold,
        candidates=_candidates(record, location) if error is None else (),
        source=field(record, "source", str, location, None),
        domain=field(record, "domain", str, location, ""),
        turn_index=_turn_index(record, location),
        answer_in_evidence=_sources(record, location),
        num_tokens=_number(record, "num_tokens", location),
        milliseconds=_number(record, "milliseconds", location),
        logprob=-_number(record, "logprob", location, sign=-1),
        guess_at_1=_number(record, "guess_at_1", location),
        guess_at_5=_number(record, "guess_at_5", location),
        error=error,
        is_entity=error is None and any("logprob" in one for one in record["candidates"]),
    )


def _candidates(record: Json, location: Location) -> tuple[Entity, ...]:
    pairs = [
        (field(value, "label", str, at), field(value, "id", str, at, None))
        for at, value in records(record, "candidates", location)
    ]
    return tuple(Entity(label if id_ is None else id_, label) for label, id_ in pairs)


def _sources(record: Json, location: Location) -> tuple[str, ...] | None:
    sources = field(record, "answer_in_evidence", list, location, None)
    for index, source in enumerate(sources or ()):
        if not isinstance(source, str):
            raise (location / "answer_in_evidence" / index).error("must be a string")
    return None if sources is None else tuple(sources)


def _turn_index(record: Json, location: Location) -> int | None:
    index = _number(record, "turn_index", location)
    if index % 1 > 0:
        raise (location / "turn_index").error(f"must be a whole number, not {index}")
    return None if math.isnan(index) else int(index)


def _number(record: Json, name: str, location: Location, sign: int = 1) -> float:
    """Return a number from 0; with sign -1, the absolute value of a number up to 0."""
    value = record.get(name)
    if value is None:
        return math.nan
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= sign * value <= sys.float_info.max:
        range_ = "from 0" if sign > 0 else "up to 0"
        raise (location / name).error(f"must be a number {range_}, not {shown(value)}")
    return float(sign * value)
