"""Planner without a language model: rules for multi-hop and comparison questions in English."""

from __future__ import annotations

from collections.abc import Sequence

from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.plan.answers import find_answers
from turngraph.data.memory_graph.plan.decompose import coordinated, decompose
from turngraph.data.memory_graph.plan.steps import (
    Digest,
    Match,
    Progress,
    Ready,
    Revision,
    Searched,
    fill,
)
from turngraph.data.memory_graph.recall.plan_trace import Clue, SubTrace, references
from turngraph.data.memory_graph.recall.recall import Recall


class RulesPlanner:
    """Planner that splits comparisons, resolves inner phrases first, and fills references by kind.

    "Who leads the country where Anna was born?" has the steps "country where Anna was born" and
    "Who leads [1]". Names of countries in the facts close to the first step fill the reference. If
    a step has no answer, references to it are removed from the later steps.

    Args:
        recall: the memory graph; its encoder compares names.
    """

    name = "rules"
    calls = 0

    def __init__(self, recall: Recall) -> None:
        self.recall, self._reader = recall, RulesExtractor()

    def split(self, questions: Sequence[str]) -> list[tuple[str, ...]]:
        """Return one question for each of two coordinated names, or the question itself."""
        return [coordinated(question) for question in questions]

    def plan(self, progress: Sequence[Progress]) -> list[tuple[str, ...]]:
        """Return the steps from the innermost phrase with a name outwards."""
        return [decompose(each.question) for each in progress]

    def clues(self, steps: Sequence[Ready], match: Match) -> list[tuple[Clue, ...]]:
        """Return one clue query for each text of a step, which starts at the names in it."""
        return rules_clues(self._reader, steps, match)

    def digest(self, steps: Sequence[Searched]) -> list[Digest]:
        """Return the names in the closest facts that may answer each step, as guesses."""
        return [find_answers(step, self.recall.closeness_of_names) for step in steps]

    def revise(self, progress: Sequence[Progress]) -> list[Revision]:
        """Remove references to a step without an answer from the remaining steps."""
        return [_revision(each) for each in progress]

    def answer(self, progress: Sequence[Progress]) -> list[str | None]:
        """Return the answer of the last step, unless it is a guess of the rules."""
        last = [each.done[-1] if each.done else None for each in progress]
        return [None if trace is None or trace.guessed else trace.answer for trace in last]

    def aggregate(self, questions: Sequence[tuple[str, tuple[SubTrace, ...]]]) -> list[str | None]:
        """Return None for each question: the reader of the facts compares."""
        return [None for _ in questions]


def rules_clues(
    reader: RulesExtractor, steps: Sequence[Ready], match: Match
) -> list[tuple[Clue, ...]]:
    """Return one clue query for each text of a step, which starts at the names in it."""
    texts = list(dict.fromkeys(text for step in steps for text in step.texts))
    named = [[n for n in reader.entities(text) if not n.islower()] for text in texts]
    matched = iter(match([name for names in named for name in names]))
    clues = {}
    for text, names in zip(texts, named, strict=True):
        objects = [linked for _ in names for linked in next(matched)]
        start = tuple(dict.fromkeys(linked.entity for linked in objects if linked.is_exact))
        clues[text] = Clue(text, start or None)
    return [
        tuple(Clue(text) if text == step.progress.root else clues[text] for text in step.texts)
        for step in steps
    ]


def _revision(progress: Progress) -> Revision:
    last = progress.done[-1]
    number = last.step.number
    if last.answers or not any(number in step.references for step in progress.left):
        return Revision()
    return Revision(next=tuple(_without(text, number) for text in progress.left_texts()))


def _without(text: str, number: int) -> str:
    """Return a step's text without a reference; other references stay."""
    answers = {other: (f"[{other}]",) for other in references(text) if other != number}
    return fill(text, answers, most=1)[0]
