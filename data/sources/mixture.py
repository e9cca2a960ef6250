"""Mixes files of conversations into one, with questions that their evidence does not answer.

Whole conversations are drawn from each source until it has given as many questions as asked for.
For a share of the questions of a source that has no unanswerable ones, every passage with the gold
answer is removed from the pool, and the gold answer becomes ``NOT_IN_EVIDENCE``. Only questions
that name something which the removed passages name, too, are chosen: "Who has the most points?"
would have another answer, not none, without a row.
"""

from __future__ import annotations

import argparse
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.jsonlines import read_conversations, write_conversations
from turngraph.data.normalise import normalise_text, normalise_value
from turngraph.data.types import NOT_IN_EVIDENCE, Answer, Conversation, Entity, Evidence, Turn

logger = logging.getLogger(__name__)

MOST_REMOVED = 1 / 3
"""Share of a pool that may be removed; an answer that is everywhere leaves nothing to read."""
YES_NO = frozenset(("yes", "no"))
"""Answers that no passage states."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of conversations, and how many questions to draw from it.

    Args:
        name: prefix of its conversations' ids.
        path: path of the file.
        num_questions: number of questions to draw; None: all.
    """

    name: str
    path: str
    num_questions: int | None


@dataclass(slots=True)
class Drawn:
    """Conversations drawn from a source, and their counts."""

    source: Source
    conversations: list[Conversation] = field(default_factory=list)
    num_questions: int = 0
    num_unanswerable: int = 0


def parse_source(text: str) -> Source:
    """Parse ``NAME=FILE:QUESTIONS``; without ``:QUESTIONS`` all are drawn.

    Raises:
        UserError: a part is missing or no number.
    """
    name, _, rest = text.partition("=")
    path, colon, number = rest.rpartition(":")
    if not colon:
        path, number = rest, ""
    if not name or not path or (colon and not (number.isdigit() and int(number))):
        raise UserError(f"--source: must be NAME=FILE:QUESTIONS, not {text!r}")
    return Source(name, path, int(number) if number else None)


def draw(source: Source, unanswerable: float, single_answers: bool, seed: int) -> Drawn:
    """Draw the conversations of a source.

    Args:
        source: the file and how many of its questions.
        unanswerable: share of the questions to make unanswerable, unless the file has such ones.
        single_answers: count only questions with one gold answer, and end a conversation with the
            last of them; list questions before it stay as its history.
        seed: random seed.

    Raises:
        UserError: the file cannot be read, or has too few questions.
    """
    conversations = read_conversations(source.path)
    if any(_is_unanswerable(turn) for c in conversations for turn in c.turns):
        unanswerable = 0.0
    rng = random.Random(f"mixture {seed} {source.name}")
    rng.shuffle(conversations)
    drawn = Drawn(source)
    for conversation in conversations:
        left = None if source.num_questions is None else source.num_questions - drawn.num_questions
        if left == 0:
            break
        cut = _cut(conversation, left, single_answers)
        counted = sum(_counts(turn, single_answers) for turn in cut.turns)
        if not counted:
            continue
        if drawn.num_unanswerable < unanswerable * (drawn.num_questions + counted):
            cut = _without_evidence(cut, rng) or cut
        drawn.conversations.append(replace(cut, id=f"{source.name}/{cut.id}"))
        drawn.num_questions += sum(_counts(turn, single_answers) for turn in cut.turns)
        drawn.num_unanswerable += sum(map(_is_unanswerable, cut.turns))
    if source.num_questions is not None and drawn.num_questions < source.num_questions:
        raise UserError(
            f"{source.path}: has {drawn.num_questions} questions that can be drawn, --source "
            f"{source.name} asks for {source.num_questions}"
        )
    wanted = int(unanswerable * drawn.num_questions)
    if drawn.num_unanswerable < wanted:
        logger.warning(
            "%s: only %d of %d questions could be made unanswerable, %d were wanted",
            source.path,
            drawn.num_unanswerable,
            drawn.num_questions,
            wanted,
        )
    return drawn


def _is_unanswerable(turn: Turn) -> bool:
    return [answer.label for answer in turn.answers] == [NOT_IN_EVIDENCE]


def _counts(turn: Turn, single_answers: bool) -> bool:
    return len(turn.answers) == 1 if single_answers else bool(turn.answers)


def _cut(conversation: Conversation, most: int | None, single_answers: bool) -> Conversation:
    """Return the conversation up to its last turn that counts, or up to the ``most``-th."""
    ends = [i + 1 for i, turn in enumerate(conversation.turns) if _counts(turn, single_answers)]
    end = ends[: most or None][-1] if ends else 0
    return replace(conversation, turns=conversation.turns[:end])


def _without_evidence(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """Return the conversation up to a random turn, whose answer is removed from the pool.

    None if no turn is suitable.
    """
    for index in rng.sample(range(len(conversation.turns)), len(conversation.turns)):
        before, turn = conversation.turns[:index], conversation.turns[index]
        if _is_removable(conversation, index):
            last = replace(turn, answers=(Answer(NOT_IN_EVIDENCE),), source=None)
            kept = [
                replace(one, evidence=_without(one.evidence, turn.answers))
                for one in (*before, last)
            ]
            evidence = _without(conversation.evidence, turn.answers)
            return replace(conversation, turns=tuple(kept), evidence=evidence)
    return None


def _is_removable(conversation: Conversation, index: int) -> bool:
    """Return whether a turn has a single answer, whose passages can be removed.

    The passages must be few, name something that this or an earlier question names, and hold no
    answer of an earlier turn.
    """
    before, turn = conversation.turns[:index], conversation.turns[index]
    if len(turn.answers) != 1 or _value(turn.answers[0].label) in YES_NO:
        return False
    pool = (*conversation.evidence, *turn.evidence)
    removed = [passage for passage in pool if holds(passage, turn.answers)]
    earlier = [answer for one in before for answer in one.answers]
    if len(removed) > MOST_REMOVED * len(pool) or any(holds(one, earlier) for one in removed):
        return False
    frequent = Counter(entity.id for passage in pool for entity in passage.entities)
    asked = " ".join(f" {_text(one.question)} " for one in (*before, turn))
    return any(
        f" {_text(entity.label)} " in asked
        for passage in removed
        for entity in passage.entities
        if frequent[entity.id] <= MOST_REMOVED * len(pool)
    )


def _without(pool: Sequence[Evidence], answers: Sequence[Answer]) -> tuple[Evidence, ...]:
    return tuple(passage for passage in pool if not holds(passage, answers))


def holds(passage: Evidence, answers: Sequence[Answer]) -> bool:
    """Return whether a passage has one of the answers, as an entity or in its words."""
    ids = {answer.id for answer in answers if answer.id is not None}
    values = {_value(answer.label) for answer in answers}
    for entity in passage.entities:
        if entity.id in ids or entity.id in values or not values.isdisjoint(_values_of(entity)):
            return True
    words = f" {_text(passage.text)} "
    return any(f" {_text(answer.label)} " in words for answer in answers)


def _values_of(entity: Entity) -> Iterator[str]:
    return map(_value, (entity.label, *entity.mentions))


_value = lru_cache(maxsize=1 << 16)(normalise_value)
_text = lru_cache(maxsize=1 << 16)(normalise_text)


def mix(
    sources: Sequence[Source], unanswerable: float, single_answers: bool = False, seed: int = 0
) -> list[Drawn]:
    """Draw from every source; arguments as of ``draw``.

    Raises:
        UserError: two sources have one name, the share is out of range, or as ``draw``.
    """
    names = [source.name for source in sources]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--source: {repeated} is given twice")
    if not 0 <= unanswerable < 1:
        raise UserError(f"--unanswerable: must be at least 0 and less than 1, not {unanswerable:g}")
    return [draw(source, unanswerable, single_answers, seed) for source in sources]


def main(argv: Sequence[str] | None = None) -> None:
    """Mix files of conversations into one, a share of the questions without their evidence."""
    args = _parser().parse_args(argv)
    sources = [parse_source(text) for text in args.source]
    drawn = mix(sources, args.unanswerable, args.single_answers, args.seed)
    conversations = [conversation for one in drawn for conversation in one.conversations]
    random.Random(f"mixture {args.seed}").shuffle(conversations)
    write_conversations(args.output, conversations)
    _print_table(drawn)


def _print_table(drawn: Sequence[Drawn]) -> None:
    rows = [
        (d.source.name, len(d.conversations), d.num_questions, d.num_unanswerable, d.source.path)
        for d in drawn
    ]
    totals = [sum(numbers) for numbers in list(zip(*rows, strict=True))[1:4]]
    print(f"{'source':<16}{'conversations':>14}{'questions':>11}{'unanswerable':>14}  file")
    for name, *numbers, path in [*rows, ("all", *totals, "")]:
        print(f"{name:<16}{numbers[0]:>14}{numbers[1]:>11}{numbers[2]:>14}  {path}".rstrip())


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m turngraph.data.sources.mixture", description=main.__doc__
    )
    add = parser.add_argument
    add(
        "--source",
        action="append",
        required=True,
        metavar="NAME=FILE:QUESTIONS",
        help="a file and how many of its questions; without :QUESTIONS all; several times",
    )
    add("--output", type=Path, required=True, help="JSON Lines file to write")
    add(
        "--unanswerable",
        type=float,
        default=0.12,
        help="share of questions whose evidence is removed, in sources that have no "
        "unanswerable question (default: 0.12)",
    )
    add(
        "--single_answers",
        action="store_true",
        help="count only questions with one answer; list questions stay as history alone, if "
        "training has data.single_answers_only",
    )
    add("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    run_cli(main)
