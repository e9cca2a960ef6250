"""Chooses the questions to answer, and gives each its line in the predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.entities import complete_entities
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import BadLine, join_pools, read_conversations
from turngraph.data.prediction_records import bad_line_records
from turngraph.data.types import Conversation, Evidence
from turngraph.inference.options import AnswerOptions

DRAW_SEED = 1


@dataclass(frozen=True)
class Questions:
    """The questions to answer, and the line of the predictions that each answer has.

    Args:
        conversations: all conversations of the input, with entities.
        pools: evidence that each conversation reads instead of its own; None: its own.
        chosen: indices of the turns to answer, by index of their conversation.
        lines: line of the predictions, from 0, by indices of conversation and turn.
        errors: error records for lines of the input that cannot be read, by line.
    """

    conversations: list[Conversation]
    pools: list[tuple[Evidence, ...]] | None
    chosen: dict[int, list[int]]
    lines: dict[tuple[int, int], int]
    errors: dict[int, Json]

    @classmethod
    def read(cls, path: str | Path, options: AnswerOptions) -> Questions:
        """Read a file of conversations and choose its questions.

        Raises:
            UserError: a line is wrong and ``keep_going`` is not set, no question is left, or the
                options do not go together; the message names file, line and field.
        """
        bad_lines: list[BadLine] | None = [] if options.keep_going else None
        conversations = read_conversations(path, bad_lines)
        try:
            return cls.of(conversations, options, bad_lines or ())
        except NoQuestionsError as error:
            raise UserError(f"{path}: {error}") from None

    @classmethod
    def of(
        cls,
        conversations: Sequence[Conversation],
        options: AnswerOptions,
        bad_lines: Sequence[BadLine] = (),
    ) -> Questions:
        """Choose the questions of conversations.

        Raises:
            NoQuestionsError: no question is left.
            UserError: the conversations do not suit the options.
        """
        completed = complete_entities(conversations)
        chosen = chosen_turns(completed, options) if completed else {}
        pools = None if options.evidence_of == "own" else other_pools(completed)
        lines, errors = lines_of(completed, chosen, bad_lines)
        return cls(completed, pools, chosen, lines, errors)

    def pool(self, index: int) -> tuple[Evidence, ...] | None:
        """Return the evidence that a conversation reads instead of its own; None: its own."""
        return None if self.pools is None else self.pools[index]

    def only(self, conversations: Sequence[int]) -> Questions:
        """Return the questions of some conversations, given by index; their lines stay."""
        return replace(self, chosen={index: self.chosen[index] for index in conversations})

    def windows(self, size: int, turns: bool, known: dict[int, Json]) -> Iterator[list[int]]:
        """Yield the indices of conversations that are answered together, unless all are known.

        Args:
            size: size of a window.
            turns: count turns to answer; False: conversations.
            known: answered lines.
        """
        window: list[int] = []
        left, last = size, max(self.chosen, default=0)
        for index, chosen in self.chosen.items():
            window.append(index)
            left -= len(chosen) if turns else 1
            if left <= 0 or index == last:
                if any(self.lines[n, t] not in known for n in window for t in self.chosen[n]):
                    yield window
                window, left = [], size


def lines_of(
    conversations: Sequence[Conversation],
    chosen: dict[int, list[int]],
    bad_lines: Sequence[BadLine],
) -> tuple[dict[tuple[int, int], int], dict[int, Json]]:
    """Return the lines of the predictions: of each question, and of unreadable input lines."""
    lines: dict[tuple[int, int], int] = {}
    errors: dict[int, Json] = {}
    ids, waiting = {c.id for c in conversations}, list(bad_lines)
    for index in range(len(conversations) + 1):
        while waiting and waiting[0].position == index:
            for record in bad_line_records(waiting.pop(0), ids):
                errors[len(lines) + len(errors)] = record
        for turn in chosen.get(index, ()):
            lines[index, turn] = len(lines) + len(errors)
    return lines, errors


class NoQuestionsError(UserError):
    """No question of the conversations is left to answer."""


def chosen_turns(
    conversations: Sequence[Conversation], options: AnswerOptions
) -> dict[int, list[int]]:
    """Return the indices of the turns to answer, by the index of their conversation.

    Raises:
        NoQuestionsError: no turn is left.
    """
    if not options.max_questions and not options.single_answers_only:
        return {index: list(range(len(c.turns))) for index, c in enumerate(conversations)}
    try:
        return choose_questions(
            conversations, options.max_questions, options.single_answers_only, DRAW_SEED
        )
    except UserError as error:
        raise NoQuestionsError(str(error)) from None


def other_pools(conversations: Sequence[Conversation]) -> list[tuple[Evidence, ...]]:
    """Return for each conversation the evidence of the next one that has another pool.

    Raises:
        UserError: all conversations share one pool.
    """
    pools = [join_pools(c.evidence, *(t.evidence for t in c.turns)) for c in conversations]
    others = []
    for index, pool in enumerate(pools):
        later = pools[index + 1 :] + pools[:index]
        other = next((p for p in later if p is not pool and p != pool), None)
        if other is None:
            raise UserError("--evidence_of other: all conversations have the same evidence")
        others.append(other)
    return others
