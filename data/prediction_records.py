"""Makes the lines of a predictions file: of answers, of failures, and of unreadable questions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turngraph.configs.user_error import UserError
from turngraph.data.examples import Example
from turngraph.data.json_fields import Json, well_formed
from turngraph.data.jsonlines import BadLine, unique_ids
from turngraph.data.scoring.metrics import guess_hit, hit, nearest_entities
from turngraph.data.scoring.proposals import Proposal
from turngraph.data.types import Answer, Entity


def prediction_record(
    example: Example,
    answer: str,
    logprob: float,
    milliseconds: float,
    proposals: Sequence[Proposal] | None = None,
    margin: float | None = None,
    held: float | None = None,
) -> Json:
    """Return one line of a predictions file; its candidates do not depend on the gold answer.

    Args:
        example: the question.
        answer: text of the answer.
        logprob: log-probability of the answer.
        milliseconds: duration.
        proposals: the entities from which the answer was chosen, best first; None: the answer was
            generated, and its candidates are the entities nearest to its text.
        margin: smallest lead of a token over the next likely one, in log-probability; None: the
            lead of the first proposal over the second.
        held: probability that the passages hold the answer; None: the model does not estimate it.

    Raises:
        UserError: the answer has no finite log-probability, as the model's numbers overflow.
    """
    numbers = [logprob, *(one.logprob for one in proposals or ())]
    if not all(map(math.isfinite, numbers)):
        raise UserError(
            "conversation {}, turn {}: the model's answer has no finite probability: the weights "
            "of the checkpoint or of its base model are too large".format(*example.key)
        )
    turn = example.conversation.turns[example.turn]
    scored_entities = _proposed(proposals) if proposals is not None else _nearest(answer, example)
    candidates = [entity for entity, _ in scored_entities]
    record: Json = _question(example) | {
        "answer": answer,
        "candidates": [{"id": e.id, "label": e.label} | numbers for e, numbers in scored_entities],
        "logprob": round(logprob, 4),
        "margin": round(_lead(proposals) if margin is None else margin, 4),
        "confidence": None,  # a calibration sets it
        "evidence": [
            {
                "id": item.evidence.id,
                "source": item.evidence.source,
                "score": round(item.score, 4),
                "from_turn": item.from_turn,
            }
            for item in example.evidence
        ],
        "num_tokens": example.num_tokens - len(example.target_ids),
        "milliseconds": round(milliseconds, 2),
    }
    if held is not None:
        record["held"] = round(held, 4)
    if turn.source is not None:
        record["source"] = turn.source
    if turn.answers:
        record["gold"] = _gold(turn.answers)
        record["answer_in_evidence"] = example.answer_sources
        is_entity = proposals is not None
        record["hit_at_1"] = hit(answer, candidates, turn.answers, 1, is_entity)
        record["hit_at_5"] = hit(answer, candidates, turn.answers, 5, is_entity)
        passages = [item.evidence for item in example.evidence]
        record["guess_at_1"] = round(guess_hit(turn.answers, passages, 1), 4)
        record["guess_at_5"] = round(guess_hit(turn.answers, passages, 5), 4)
    return record


def _lead(proposals: Sequence[Proposal] | None) -> float:
    """Return the lead of the first proposal over the second, 0 if there are no two."""
    best = [proposal.logprob for proposal in (proposals or ())[:2]]
    return best[0] - best[1] if len(best) == 2 else 0.0


def _nearest(answer: str, example: Example) -> list[tuple[Entity, Json]]:
    passages = [item.evidence for item in example.evidence]
    return [(entity, {}) for entity in nearest_entities(answer, passages)]


def _proposed(proposals: Sequence[Proposal]) -> list[tuple[Entity, Json]]:
    return [
        (proposal.entity, {name: round(value, 4) for name, value in proposal.numbers.items()})
        for proposal in proposals
    ]


def error_record(example: Example, error: str) -> Json:
    """Return the line of a question without an answer; ``score`` counts it as wrong."""
    turn = example.conversation.turns[example.turn]
    record = _question(example) | {"error": error}
    record |= {} if turn.source is None else {"source": turn.source}
    return record | ({"gold": _gold(turn.answers)} if turn.answers else {})


def bad_line_records(bad: BadLine, taken: set[str]) -> list[Json]:
    """Return a line for every turn that an unreadable line of the input seems to hold.

    Args:
        bad: the line of the input.
        taken: ids of other conversations; the id of this one is made different and added.
    """
    record = bad.record or {}
    turns = record.get("turns")
    id_ = _text(record.get("id")) or f"line {bad.error['line']}"
    id_ = f"{id_}#{bad.error['line']}" if id_ in taken else id_
    while id_ in taken:
        id_ += "'"
    taken.add(id_)
    turn_records = [
        _readable(turn if isinstance(turn, dict) else {}, index)
        for index, turn in enumerate(turns if isinstance(turns, list) else ())
    ]
    ids = unique_ids([record["turn"] for record in turn_records], f"line {bad.error['line']}: turn")
    turn_records = [record | {"turn": turn} for record, turn in zip(turn_records, ids, strict=True)]
    return [{"conversation": id_} | record | bad.error for record in turn_records or [{}]]


def _readable(turn: Json, index: int) -> Json:
    question, answers = turn.get("question"), turn.get("answers")
    record: Json = {"turn": _text(turn.get("id")) or str(index), "turn_index": index}
    record |= {"question": well_formed(question)} if isinstance(question, str) else {}
    known = [a for a in answers if isinstance(a, dict)] if isinstance(answers, list) else []
    labels = [(_text(a.get("label")), _text(a.get("id")) or None) for a in known]
    gold = [Answer(label, id_) for label, id_ in labels if label.strip()]
    return record | ({"gold": _gold(gold)} if gold else {})


def _text(value: object) -> str:
    """Return a string or a whole number as ``field`` reads it, else ""."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return well_formed(str(value)) if isinstance(value, str) or is_number else ""


def _question(example: Example) -> Json:
    turn = example.conversation.turns[example.turn]
    return {
        "conversation": example.conversation.id,
        "turn": turn.id,
        "turn_index": example.turn,
        "domain": example.conversation.domain,
        "question": turn.question,
    }


def _gold(answers: Sequence[Answer]) -> list[Json]:
    return [{"label": a.label} | ({"id": a.id} if a.id is not None else {}) for a in answers]
