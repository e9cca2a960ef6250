"""Planner for a small local language model: few calls, all else by rules."""

from __future__ import annotations

from collections.abc import Sequence

from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.plan import stages
from turngraph.data.memory_graph.plan.model_planner import ModelPlanner
from turngraph.data.memory_graph.plan.model_replies import ModelReplies
from turngraph.data.memory_graph.plan.rules_planner import rules_clues
from turngraph.data.memory_graph.plan.steps import (
    Digest,
    Match,
    PlanSettings,
    Progress,
    Ready,
    Revision,
    Searched,
)
from turngraph.data.memory_graph.recall.plan_trace import Clue

MAX_CALLS = 10
"""Maximum number of calls for a question."""
NUM_READ = 8
"""Maximum number of facts in a prompt."""


class LocalPlanner(ModelPlanner):
    """Planner for a small local model, with at most ``MAX_CALLS`` calls for a question.

    The model makes the plan (one call), answers each step and revises the plan after it (two calls
    for each step). Rules find names and clue queries. A question is never split into sub-questions,
    and its answer is the answer of the last step that has one.

    Args:
        replies: the language model; its ``max_calls`` should be ``MAX_CALLS``.
        limits: as in ``ModelPlanner``; four steps take at most eight calls.
    """

    def __init__(self, replies: ModelReplies, limits: PlanSettings | None = None) -> None:
        super().__init__(replies, limits, "lm", NUM_READ)
        self._reader = RulesExtractor()

    def split(self, questions: Sequence[str]) -> list[tuple[str, ...]]:
        """Return each question alone."""
        self.replies.begin()
        return [(question,) for question in questions]

    def clues(self, steps: Sequence[Ready], match: Match) -> list[tuple[Clue, ...]]:
        """Return the clue queries of the rules."""
        return rules_clues(self._reader, steps, match)

    def digest(self, steps: Sequence[Searched]) -> list[Digest]:
        """Return the answer of each step from the closest facts of all its clue queries."""
        read = [self.closest(step.recalls) for step in steps]
        replies = self.replies.some(
            stages.summarise_prompt(step.ready, step.ready.texts[0], facts) if facts else None
            for step, facts in zip(steps, read, strict=True)
        )
        findings = [self.answered(reply, facts) for reply, facts in zip(replies, read, strict=True)]
        return [Digest((answer,), keys) if answer else Digest() for answer, keys in findings]

    def revise(self, progress: Sequence[Progress]) -> list[Revision]:
        """Return whether the steps suffice and which remain, by one call for each sub-question."""
        replies = self.replies([stages.next_prompt(each, self.room(each)) for each in progress])
        return [
            Revision(enough=True)
            if reply["enough"] and any(trace.answers for trace in each.done)
            else self.revision(each, reply)
            for each, reply in zip(progress, replies, strict=True)
        ]

    def answer(self, progress: Sequence[Progress]) -> list[str | None]:
        """Return the answer of the last step that has one."""
        return [
            next((trace.answer for trace in reversed(each.done) if trace.answer), None)
            for each in progress
        ]
