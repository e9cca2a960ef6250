"""Reads the texts, numbers and steps of a language model's replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from turngraph.data.memory_graph.extract.replies import EXAMPLE_NAMES, one_line
from turngraph.data.memory_graph.names import well_formed
from turngraph.data.memory_graph.plan.steps import Progress, renumbered
from turngraph.data.memory_graph.recall.plan_trace import StepTrace
from turngraph.data.normalise import fold

NO_ANSWERS = frozenset({"", "unknown", "not known", "not stated", "not mentioned", "no answer"})
"""Answers that mean "no answer", folded and without a full stop."""


def read_text(text: str) -> str:
    """Return a text of a reply on one line, in valid Unicode."""
    return well_formed(one_line(text))


def read_answer(reply: Any) -> str:
    """Return the answer of a reply; "" for one of ``NO_ANSWERS``."""
    answer = read_text(reply["answer"])
    return "" if fold(answer).rstrip(".") in NO_ANSWERS else answer


def read_numbers(numbers: Sequence[int]) -> list[int]:
    """Return numbers sorted, each once."""
    return sorted(set(numbers))


def read_parts(question: str, reply: Any, most: int) -> tuple[str, ...]:
    """Return the independent parts of a question, or (question,) if there are fewer than two."""
    texts = [read_text(text) for text in reply["questions"][:most]]
    parts = tuple({fold(text): text for text in texts if text}.values())
    return parts if reply["independent"] and len(parts) > 1 else (question,)


def copies_example(steps: Sequence[str], progress: Progress) -> bool:
    """Return whether steps contain a name that occurs only in the example of a prompt."""
    answers = (answer for trace in progress.done for answer in trace.answers)
    shown = fold(" ".join((progress.question, *answers)))
    return any(
        name not in shown and re.search(rf"\b{name}\b", fold(step))
        for step in steps
        for name in EXAMPLE_NAMES
    )


def without_repeats(texts: Sequence[str], done: Sequence[StepTrace], first: int) -> tuple[str, ...]:
    """Leave out steps that repeat finished or earlier steps, and redirect references to these.

    Args:
        texts: texts of steps, numbered from ``first``.
        done: the finished steps.
        first: number of the first text.
    """
    known = {fold(text): t.step.number for t in done for text in (t.step.text, *t.texts)}
    numbers: dict[int, int] = {}
    kept: list[str] = []
    for number, text in enumerate(texts, first):
        new = renumbered(text, numbers)
        if fold(new) in known:
            numbers[number] = known[fold(new)]
        else:
            numbers[number] = known[fold(new)] = first + len(kept)
            kept.append(new)
    return tuple(kept)
