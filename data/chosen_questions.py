"""Chooses the questions to train or to evaluate on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from turngraph.configs.user_error import UserError
from turngraph.data.types import Conversation


def choose_questions(
    conversations: Sequence[Conversation], num: int | None, single_only: bool, seed: int
) -> dict[int, list[int]]:
    """Choose questions to train or evaluate on.

    Args:
        conversations: conversations; questions without gold answers are left out.
        num: number of questions to draw; None: all.
        single_only: leave out questions with several gold answers.
        seed: random seed; a smaller draw is a subset of a larger one.

    Returns:
        Index of each chosen conversation -> indices of its chosen turns.

    Raises:
        UserError: there is no question to choose.
    """
    questions = [
        (c, t)
        for c, conversation in enumerate(conversations)
        for t, turn in enumerate(conversation.turns)
        if turn.answers and not (single_only and len(turn.answers) > 1)
    ]
    if not questions:
        raise UserError("no question with a gold answer" + " that is not a list" * single_only)
    random.Random(f"questions {seed}").shuffle(questions)
    chosen: dict[int, list[int]] = {}
    for c, t in sorted(questions[:num]):
        chosen.setdefault(c, []).append(t)
    return chosen
