"""Trace of a question asked by a plan: sub-questions, steps, clue queries, answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.recall.view import QuestionEntity

Why = Literal["planned", "revised"]
Stopped = Literal["enough", "plan done", "limit", "nothing new", "budget"]
"""Why asking stopped: the planner has enough; no step is left; ``max_steps`` are done; a step found
no new fact and no new answer; the LM's token budget is spent."""

REFERENCE = re.compile(r"\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan.

    Args:
        number: number by which later steps refer to it, from 1, unique in its sub-question.
        text: what to find out; "[2]" stands for the answer of step 2.
        why: whether the step is from the first plan or from a revision.
    """

    number: int
    text: str
    why: Why = "planned"

    @property
    def references(self) -> tuple[int, ...]:
        """Numbers of the steps that the text refers to, each once, in order."""
        return references(self.text)


@dataclass(frozen=True, slots=True)
class Clue:
    """A query to the memory graph.

    Args:
        query: text of the query.
        start: objects at which the search starts; (): none, so all facts are searched by
            similarity; None: the objects to which recall links the query's names.
    """

    query: str
    start: tuple[QuestionEntity, ...] | None = None


@dataclass(frozen=True, slots=True)
class StepTrace:
    """A finished step.

    Args:
        step: the step as planned.
        texts: its text with references filled in, the likeliest filling first; the text itself if
            it has none.
        clues: its clue queries, in order.
        facts: facts, or episodes, that they found, best first, each once.
        answers: its answers, best first; (): no answer.
        hits: number of clues whose recall was in the cache.
        guessed: whether the answers are only likely names: the next steps use them, but they are
            not shown as answers.
    """

    step: Step
    texts: tuple[str, ...]
    clues: tuple[Clue, ...] = ()
    facts: tuple[Fact, ...] = ()
    answers: tuple[str, ...] = ()
    hits: int = 0
    guessed: bool = False

    @property
    def answer(self) -> str | None:
        """The best answer; None if there is none."""
        return self.answers[0] if self.answers else None


@dataclass(frozen=True, slots=True)
class SubTrace:
    """A finished sub-question.

    Args:
        question: the sub-question.
        steps: its steps, in the order in which they were done.
        answer: its answer; None: none.
        stopped: why no more steps were done.
        dropped: number of steps left out because they refer to a step that does not come before
            them.
    """

    question: str
    steps: tuple[StepTrace, ...]
    answer: str | None
    stopped: Stopped
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class PlanTrace:
    """A finished plan.

    Args:
        subs: the sub-questions, in order.
        answer: the planner's answer in words; None: it gives none, or nothing was recalled.
        stopped: why asking stopped: "budget" if any sub-question stopped for it, else the first
            sub-question's reason.
        calls: number of LM calls.
        hits: number of recalls that were in the cache.
        recalls: number of recalls, from the cache or not.
    """

    subs: tuple[SubTrace, ...]
    answer: str | None
    stopped: Stopped
    calls: int = 0
    hits: int = 0
    recalls: int = 0


def references(text: str) -> tuple[int, ...]:
    """Return the numbers of the steps that a text refers to, each once, in order."""
    return tuple(dict.fromkeys(int(number) for number in REFERENCE.findall(text)))
