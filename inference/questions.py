"""What ``infer.py answer`` is asked, and where the answers stand."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turngraph.data.examples import choose_questions
from turngraph.data.graph.entities import complete_entities
from turngraph.data.jsonlines import BadLine, Json, join_pools, read_conversations
from turngraph.data.scoring.predictions import bad_line_records
from turngraph.data.types import Conversation, Evidence
from turngraph.inference.load import check_writes

DRAW_SEED = 1


@dataclass(frozen=True)
class Questions:
    """What is to be answered, and where the answers stand.

    Args:
        conversations: of the input, with entities.
        pools: what each conversation reads instead of its own evidence; None: its own.
        chosen: number of the conversation -> numbers of its turns to answer.
        lines: conversation and turn -> line of the predictions, from 0.
        errors: lines of the predictions that say what could not be read.
    """

    conversations: list[Conversation]
    pools: list[tuple[Evidence, ...]] | None
    chosen: dict[int, list[int]]
    lines: dict[tuple[int, int], int]
    errors: dict[int, Json]

    @classmethod
    def read(cls, args: argparse.Namespace) -> Questions:
        """The questions that the options choose from the input.

        Raises:
            ValueError: a line is wrong and ``--keep_going`` is not given, no question is left, or
                the options do not go together.
        """
        if args.explain:
            check_writes(args.checkpoint)
        if args.explain and args.cut_edges == "shuffle":
            raise ValueError("--explain names the entities of edges: take away --cut_edges shuffle")
        bad_lines: list[BadLine] | None = [] if args.keep_going else None
        conversations = complete_entities(read_conversations(args.input, bad_lines))
        chosen = chosen_turns(conversations, args) if conversations else {}
        pools = None if args.evidence_of == "own" else other_pools(conversations)
        lines, errors = lines_of(conversations, chosen, bad_lines or ())
        return cls(conversations, pools, chosen, lines, errors)

    def pool(self, number: int) -> tuple[Evidence, ...] | None:
        """What a conversation reads instead of its own evidence."""
        return None if self.pools is None else self.pools[number]

    def windows(self, size: int, turns: bool, known: dict[int, Json]) -> Iterator[list[int]]:
        """Conversations that are answered together, those windows left out that are known.

        Args:
            size: of a window.
            turns: whether it counts turns to answer, else conversations.
            known: lines that are answered already.
        """
        window: list[int] = []
        left, last = size, max(self.chosen)
        for number, chosen in self.chosen.items():
            window.append(number)
            left -= len(chosen) if turns else 1
            if left <= 0 or number == last:
                if any(self.lines[n, t] not in known for n in window for t in self.chosen[n]):
                    yield window
                window, left = [], size


def lines_of(
    conversations: Sequence[Conversation],
    chosen: dict[int, list[int]],
    bad_lines: Sequence[BadLine],
) -> tuple[dict[tuple[int, int], int], dict[int, Json]]:
    """The lines of the predictions: of each question, and of what could not be read."""
    lines: dict[tuple[int, int], int] = {}
    errors: dict[int, Json] = {}
    ids, waiting = {c.id for c in conversations}, list(bad_lines)
    for number in range(len(conversations) + 1):
        while waiting and waiting[0].position == number:
            for record in bad_line_records(waiting.pop(0), ids):
                errors[len(lines) + len(errors)] = record
        for turn in chosen.get(number, ()):
            lines[number, turn] = len(lines) + len(errors)
    return lines, errors


def chosen_turns(
    conversations: Sequence[Conversation], args: argparse.Namespace
) -> dict[int, list[int]]:
    """Number of the conversation -> numbers of the turns to answer, as the options say.

    Raises:
        ValueError: no turn is left, or turns are left out where later ones need their answers.
    """
    if not args.max_questions and not args.single_answers_only:
        return {number: list(range(len(c.turns))) for number, c in enumerate(conversations)}
    if args.history == "predicted":
        raise ValueError(
            "--history predicted answers every turn: take away --max_questions "
            "and --single_answers_only"
        )
    try:
        return choose_questions(
            conversations, args.max_questions, args.single_answers_only, DRAW_SEED
        )
    except ValueError as error:
        raise ValueError(f"{args.input}: {error}") from None


def other_pools(conversations: Sequence[Conversation]) -> list[tuple[Evidence, ...]]:
    """For each conversation the evidence of the next one that has another pool.

    Raises:
        ValueError: all conversations share one pool.
    """
    own = [join_pools(c.evidence, *(t.evidence for t in c.turns)) for c in conversations]
    found = []
    for number, pool in enumerate(own):
        later = own[number + 1 :] + own[:number]
        other = next((p for p in later if p is not pool and p != pool), None)
        if other is None:
            raise ValueError("--evidence_of other: all conversations have the same evidence")
        found.append(other)
    return found
