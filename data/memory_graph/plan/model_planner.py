"""Planner that asks a language model at every stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from turngraph.data.memory_graph.extract.replies import unique
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.plan import stages
from turngraph.data.memory_graph.plan.clue_rows import Row, rows
from turngraph.data.memory_graph.plan.model_replies import ModelReplies
from turngraph.data.memory_graph.plan.reply_texts import (
    copies_example,
    read_answer,
    read_numbers,
    read_parts,
    read_text,
    without_repeats,
)
from turngraph.data.memory_graph.plan.steps import (
    ClueRecall,
    Digest,
    Match,
    PlanSettings,
    Progress,
    Ready,
    Revision,
    Searched,
)
from turngraph.data.memory_graph.recall.link_entities import Matched
from turngraph.data.memory_graph.recall.plan_trace import Clue, SubTrace
from turngraph.data.normalise import fold

NUM_READ = 20
"""Maximum number of facts in a prompt; the closest are taken."""


class _Finding(NamedTuple):
    """An answer and the keys of the facts that it comes from; ("", ()): no answer."""

    answer: str = ""
    keys: tuple[int, ...] = ()


class ModelPlanner:
    """Planner that asks a language model at every stage, after PersonalAI 2.0.

    The prompts of a stage, for all live sub-questions, are sent as one list. An answer counts only
    if the model names the statements that it comes from, so the model's own knowledge is no answer.
    A step that is done or planned already is not planned again.

    Args:
        replies: the language model.
        limits: settings of the plan.
        name: name of the planner.
        num_read: maximum number of facts in a prompt; the closest are taken.

    Attributes:
        counts: numbers of steps and answers of replies that were left out, by reason.
    """

    def __init__(
        self,
        replies: ModelReplies,
        limits: PlanSettings | None = None,
        name: str = "model",
        num_read: int = NUM_READ,
    ) -> None:
        self.replies, self.name, self.num_read = replies, name, num_read
        self.limits = limits or PlanSettings()
        self.counts: Counter[str] = Counter()

    @property
    def calls(self) -> int:
        """Number of LM calls so far."""
        return self.replies.calls

    def split(self, questions: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the independent parts of each question."""
        self.replies.begin()
        replies = self.replies([stages.decompose_prompt(text) for text in questions])
        return [
            read_parts(text, reply, stages.MAX_PARTS)
            for text, reply in zip(questions, replies, strict=True)
        ]

    def plan(self, progress: Sequence[Progress]) -> list[tuple[str, ...]]:
        """Return the first steps of each sub-question; (): the sub-question is its only step."""
        most = self.limits.max_steps
        replies = self.replies([stages.plan_prompt(each, most) for each in progress])
        return [
            self._steps(each, reply["steps"], most) or ()
            for each, reply in zip(progress, replies, strict=True)
        ]

    def clues(self, steps: Sequence[Ready], match: Match) -> list[tuple[Clue, ...]]:
        """Return the clue queries of each step, one for each combination of its names' objects.

        Combinations of the likeliest objects come first. If the objects have other names in the
        memory graph than in the step, the model rewords the query.
        """
        texts = [(step, rank) for step in steps for rank in range(len(step.texts))]
        replies = self.replies([stages.names_prompt(step, step.texts[i]) for step, i in texts])
        names = [unique(map(read_text, reply["entities"])) for reply in replies]
        matched = iter(match([name for each in names for name in each]))
        objects = iter([[o for o in (next(matched) for _ in each) if o] for each in names])
        chosen = [self._rows(step, objects) for step in steps]
        replies = self.replies.some(
            stages.clue_prompt(step, row.text, row.labels) if row.is_foreign else None
            for step, best in zip(steps, chosen, strict=True)
            for row in best
        )
        reworded = iter("" if reply is None else read_text(reply["question"]) for reply in replies)
        return [tuple(row.clue(next(reworded) or row.text) for row in best) for best in chosen]

    def _rows(self, step: Ready, objects: Iterator[list[tuple[Matched, ...]]]) -> list[Row]:
        """Return the best ``max_clues`` rows of all texts of a step."""
        most = self.limits.max_clues
        all_rows = [
            row for i, text in enumerate(step.texts) for row in rows(text, i, next(objects), most)
        ]
        return sorted(all_rows)[:most]

    def digest(self, steps: Sequence[Searched]) -> list[Digest]:
        """Return the answer of each step, joined from the answers to its clue queries."""
        clues = [
            (step, recall, self.closest([recall])) for step in steps for recall in step.recalls
        ]
        replies = self.replies.some(
            stages.summarise_prompt(step.ready, recall.clue.query, facts) if facts else None
            for step, recall, facts in clues
        )
        answers = iter(
            self.answered(reply, facts) for (_, _, facts), reply in zip(clues, replies, strict=True)
        )
        findings = [
            [(recall.clue.query, each) for recall in step.recalls if (each := next(answers)).answer]
            for step in steps
        ]
        replies = self.replies.some(
            stages.join_prompt(step.ready, [(query, each.answer) for query, each in pairs])
            if len({each.answer for _, each in pairs}) > 1
            else None
            for step, pairs in zip(steps, findings, strict=True)
        )
        return [
            _joined([each for _, each in pairs], reply)
            for pairs, reply in zip(findings, replies, strict=True)
        ]

    def closest(self, recalls: Sequence[ClueRecall]) -> list[Fact]:
        """Return the closest facts of clue queries, without repeated statements.

        Episodes are returned only if there are no other facts.
        """
        facts = [fact for recall in recalls for fact in recall.facts]
        short = [fact for fact in facts if fact.type != "episodic"] or facts
        best = sorted(short, key=lambda fact: (-round(fact.score, 6), fact.text))
        different: dict[object, Fact] = {}
        for fact in best:
            text = fold(" ".join(fact.ends or (fact.text,))).rstrip(".")
            different.setdefault((text, fact.valid_from, fact.valid_to), fact)
        return list(different.values())[: self.num_read]

    def answered(self, reply: Any, facts: Sequence[Fact]) -> _Finding:
        """Return the answer of a reply about facts; no answer if the reply names no fact.

        Args:
            reply: the reply; None: nothing was asked.
            facts: the facts of the prompt.
        """
        answer = "" if reply is None else read_answer(reply)
        if not answer:
            return _Finding()
        keys = tuple(facts[number - 1].key for number in read_numbers(reply["facts"]))
        self.counts["answers_without_facts"] += not keys
        return _Finding(answer, keys) if keys else _Finding()

    def revise(self, progress: Sequence[Progress]) -> list[Revision]:
        """Return whether the finished steps suffice and, if not, the steps that remain.

        If no step has an answer, they do not suffice, and the model is not asked about it.
        """
        verdicts = self.replies.some(
            stages.enough_prompt(each) if _has_answer(each) else None for each in progress
        )
        enough = [verdict is not None and verdict["enough"] for verdict in verdicts]
        replies = self.replies.some(
            None if suffices else stages.revise_prompt(each, self.room(each))
            for each, suffices in zip(progress, enough, strict=True)
        )
        return [
            Revision(enough=True) if reply is None else self.revision(each, reply)
            for each, reply in zip(progress, replies, strict=True)
        ]

    def revision(self, progress: Progress, reply: Any) -> Revision:
        """Return the revision of a reply about the steps that remain."""
        if not reply["revise"]:
            return Revision()
        texts = self._steps(progress, reply["next"], self.room(progress))
        same = texts is None or texts == progress.left_texts()
        return Revision() if same else Revision(next=texts)

    def room(self, progress: Progress) -> int:
        """Return the maximum number of further steps, at least 1."""
        return max(self.limits.max_steps - len(progress.done), 1)

    def _steps(self, progress: Progress, texts: Sequence[str], most: int) -> tuple[str, ...] | None:
        """Return the first steps without repeats; None if they copy a prompt's example."""
        steps = [read_text(text) for text in texts]
        if copies_example(steps, progress):
            self.counts["plans_copied_from_example"] += 1
            return None
        kept = without_repeats(steps, progress.done, progress.next_number)
        self.counts["repeated_steps"] += len(steps) - len(kept)
        return kept[:most]

    def answer(self, progress: Sequence[Progress]) -> list[str | None]:
        """Return the answer of each sub-question; None if none of its steps has an answer."""
        replies = self.replies.some(
            stages.answer_prompt(each) if _has_answer(each) else None for each in progress
        )
        return [None if reply is None else read_answer(reply) or None for reply in replies]

    def aggregate(self, questions: Sequence[tuple[str, tuple[SubTrace, ...]]]) -> list[str | None]:
        """Return the answer of each question from its parts; None if no part has an answer."""
        replies = self.replies.some(
            stages.aggregate_prompt(*each) if any(sub.answer for sub in each[1]) else None
            for each in questions
        )
        return [
            read_answer(reply) or None
            if reply is not None and any(subs[n - 1].answer for n in reply["from"])
            else None
            for (_, subs), reply in zip(questions, replies, strict=True)
        ]


def _has_answer(progress: Progress) -> bool:
    return any(trace.answers for trace in progress.done)


def _joined(findings: Sequence[_Finding], reply: Any) -> Digest:
    """Return the answers of a step's clue queries as a digest, the step's answer first.

    Args:
        findings: answers of clue queries.
        reply: the reply that joins them; None: all answers are equal, or there is none.
    """
    if reply is None:
        chosen, answer = list(findings), findings[0].answer if findings else ""
    else:
        chosen = [findings[number - 1] for number in read_numbers(reply["facts"])]
        answer = read_answer(reply)
    if not answer or not chosen:
        return Digest()
    answers = unique((answer, *(each.answer for each in findings)))
    return Digest(answers, tuple(dict.fromkeys(key for each in chosen for key in each.keys)))
