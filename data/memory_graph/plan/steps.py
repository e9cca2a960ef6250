"""Settings of planned asking, the protocol of planners, and the data between their stages.

After PersonalAI 2.0 (arXiv 2605.13481): a question is split into sub-questions, each of which gets
a plan of search steps. A step asks the memory graph several clue queries; their facts answer the
step and may change the rest of the plan. ``run_plan.py`` runs the stages; a ``Planner`` decides
them.

A step's text may refer to the answers of earlier steps by number: "who leads [1]". Such a reference
is filled with these answers before the step is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Literal, Protocol

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.recall.link_entities import Matched
from turngraph.data.memory_graph.recall.plan_trace import (
    REFERENCE,
    Clue,
    Step,
    StepTrace,
    SubTrace,
    Why,
    references,
)
from turngraph.data.memory_graph.recall.recall import RecallSettings

MAX_ROWS = 1000
"""Maximum number of combinations of answers that are tried to fill a step's references."""

# Settings


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Settings of planned asking, with the paper's names for limits in parentheses."""

    over: Literal["facts", "episodes"] = "facts"
    """facts: a clue query returns facts, as ``MemoryGraph.ask`` does; episodes: it returns
    episodes, as ``ask_episodes`` does, and facts are used only to answer steps."""
    max_steps: int = 4
    """Most steps of a sub-question (S_m); the paper's runs have 8."""
    max_clues: int = 4
    """Most clue queries of a step (C_m); the paper tries 1 to 8."""
    num_candidates: int = 2
    """Most objects that a name of a step may mean (V_m)."""
    num_facts: int = 50
    """Most facts of a clue query (F_m)."""
    num_fillings: int = 1
    """Maximum number of answers of a step that fill a reference to it; each makes another text."""
    recall: RecallSettings = field(default_factory=RecallSettings)
    """Settings of each recall, except ``num_facts``, which the plan's field replaces."""

    def __post_init__(self) -> None:
        if self.over not in ("facts", "episodes"):
            raise UserError(f"over: {self.over!r} given, must be facts or episodes")
        for name in ("max_steps", "max_clues", "num_candidates", "num_facts", "num_fillings"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: {getattr(self, name)!r} given, must be at least 1")


# Inputs and results of planners


Match = Callable[[Sequence[str]], list[tuple[Matched, ...]]]
"""Returns for each name at most ``num_candidates`` objects that it may mean, best first; () for a
name without a similar object. All names are embedded in one batch."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A live sub-question between two steps.

    Args:
        root: the whole question, as the user wrote it.
        question: the sub-question.
        done: its finished steps.
        left: its remaining steps.
    """

    root: str
    question: str
    done: tuple[StepTrace, ...] = ()
    left: tuple[Step, ...] = ()

    @property
    def next_number(self) -> int:
        """Number of the first step of a revision: one more than the highest of finished steps."""
        return max((trace.step.number for trace in self.done), default=0) + 1

    def left_texts(self) -> tuple[str, ...]:
        """Return the texts of the remaining steps, with references renumbered for a revision."""
        numbers = {step.number: self.next_number + i for i, step in enumerate(self.left)}
        return tuple(renumbered(step.text, numbers) for step in self.left)


@dataclass(frozen=True, slots=True)
class Ready:
    """The next step of a sub-question.

    Args:
        progress: the sub-question, without this step.
        step: the step.
        texts: the step's text with references filled in, as in ``StepTrace``.
    """

    progress: Progress
    step: Step
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClueRecall:
    """A clue query and its recall from the memory graph.

    Args:
        clue: the query.
        facts: at most ``PlanSettings.num_facts`` facts, best first.
        episodes: episodes, best first, if ``PlanSettings.over`` is "episodes"; else ().
        hit: whether the recall was in the cache.
    """

    clue: Clue
    facts: tuple[Fact, ...] = ()
    episodes: tuple[Fact, ...] = ()
    hit: bool = False


@dataclass(frozen=True, slots=True)
class Searched:
    """A step whose clue queries have been asked.

    Args:
        ready: the step.
        recalls: one for each of its clue queries, in order; (): it has none.
    """

    ready: Ready
    recalls: tuple[ClueRecall, ...]


@dataclass(frozen=True, slots=True)
class Digest:
    """Answers of a step from its facts.

    Args:
        answers: answers of the step, best first, each once; (): the facts contain none.
        keys: keys of the facts that the answers come from.
        guessed: whether the answers are only likely names, for use in later steps.
    """

    answers: tuple[str, ...] = ()
    keys: tuple[int, ...] = ()
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Revision:
    """Decision after a step.

    Args:
        enough: whether the finished steps suffice; the sub-question then stops.
        next: texts of the steps that remain; None: the plan is unchanged.
    """

    enough: bool = False
    next: tuple[str, ...] | None = None


class Planner(Protocol):
    """Decides every stage of planned asking.

    Each method takes the inputs of all live sub-questions at once and returns one result for each,
    in order; it is not called without inputs. A planner that asks a language model thus sends all
    prompts of a stage as one list. An exception from a method ends the question, except
    ``BudgetSpent``: then the facts recalled so far are the result.

    Args:
        name: name of the planner.
        calls: number of LM calls so far.
    """

    name: str

    @property
    def calls(self) -> int:
        """Number of LM calls so far."""

    def split(self, questions: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the independent sub-questions of each question, or (question,)."""

    def plan(self, progress: Sequence[Progress]) -> list[tuple[str, ...]]:
        """Return the texts of each sub-question's steps; the steps are numbered from 1."""

    def clues(self, steps: Sequence[Ready], match: Match) -> list[tuple[Clue, ...]]:
        """Return the clue queries of each step, best first; those beyond ``max_clues`` are ignored.

        Args:
            steps: steps, at most one of each sub-question.
            match: returns the objects that names may mean; call it once, with the names of all
                steps.
        """

    def digest(self, steps: Sequence[Searched]) -> list[Digest]:
        """Return the answers of each step; a ``Digester`` may be used in place of this method."""

    def revise(self, progress: Sequence[Progress]) -> list[Revision]:
        """Return what to do after the last finished step of each sub-question.

        New steps are numbered from ``Progress.next_number``.
        """

    def answer(self, progress: Sequence[Progress]) -> list[str | None]:
        """Return the answer of each sub-question, whose steps are all done, or None."""

    def aggregate(self, questions: Sequence[tuple[str, tuple[SubTrace, ...]]]) -> list[str | None]:
        """Return the answer of each question from two or more sub-questions, or None."""


Digester = Callable[[Sequence[Searched]], Sequence[Digest]]
"""Answers steps in place of ``Planner.digest``."""


# References between steps


def renumbered(text: str, numbers: Mapping[int, int]) -> str:
    """Return a text with other numbers in its references; numbers without a new one stay."""
    return REFERENCE.sub(lambda m: f"[{numbers.get(int(m[1]), int(m[1]))}]", text)


def fill(text: str, answers: Mapping[int, Sequence[str]], most: int) -> tuple[str, ...]:
    """Return the fillings of a text's references with answers, the likeliest first.

    With several references, fillings are ranked by the sum of their answers' ranks, and then by
    the answers. A reference to a step without answers is left out.

    Args:
        text: text of a step.
        answers: answers by number of the step, best first.
        most: maximum number of texts, and of answers that fill one reference.
    """
    choices = {number: answers.get(number, ())[:most] or ("",) for number in references(text)}
    rows = _by_rank([len(options) for options in choices.values()])
    texts: dict[str, None] = {}
    for row in islice(rows, MAX_ROWS):
        chosen = zip(choices.items(), row, strict=True)
        texts[_filled(text, {number: options[rank] for (number, options), rank in chosen})] = None
        if len(texts) == most:
            break
    return tuple(texts)


def _by_rank(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all rows of one rank below each size, each once, by rising sum."""
    heap = [(0, (0,) * len(sizes), 0)]
    while heap:
        total, row, changed = heappop(heap)
        yield row
        # ranks before the last raised one stay, so that each row is reached in one way only
        for index in range(changed, len(sizes)):
            if row[index] + 1 < sizes[index]:
                raised = (*row[:index], row[index] + 1, *row[index + 1 :])
                heappush(heap, (total + 1, raised, index))


def _filled(text: str, answers: Mapping[int, str]) -> str:
    filled = REFERENCE.sub(lambda match: answers[int(match[1])], text)
    return " ".join(filled.split())


def number_steps(
    texts: Sequence[str], done: Sequence[int], why: Why, first: int = 1
) -> tuple[tuple[Step, ...], int]:
    """Return texts as numbered steps, and how many were dropped.

    A step is dropped if it is blank, or if it refers to a step that is dropped or not earlier.

    Args:
        texts: texts of steps, in order.
        done: numbers of the finished steps.
        why: whether the steps are planned or revised.
        first: number of the first text.
    """
    known = set(done)
    steps = []
    for number, text in enumerate(texts, first):
        step = Step(number, " ".join(text.split()), why)
        if step.text and known.issuperset(step.references):
            steps.append(step)
            known.add(number)
    return tuple(steps), len(texts) - len(steps)
