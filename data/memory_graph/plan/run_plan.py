"""Runs a plan: in waves, each live sub-question goes through the stages of a planner."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.budget import BudgetSpent
from turngraph.data.memory_graph.plan.merge_facts import merged
from turngraph.data.memory_graph.plan.recall_cache import RecallCache
from turngraph.data.memory_graph.plan.steps import (
    ClueRecall,
    Digest,
    Digester,
    Planner,
    PlanSettings,
    Progress,
    Ready,
    Searched,
    fill,
    number_steps,
)
from turngraph.data.memory_graph.recall.link_entities import Matched
from turngraph.data.memory_graph.recall.plan_trace import (
    Clue,
    PlanTrace,
    Step,
    StepTrace,
    Stopped,
    SubTrace,
)
from turngraph.data.memory_graph.recall.recall import Recall
from turngraph.data.memory_graph.recall.recollection import Recollection

OnStep = Callable[[str, StepTrace], None]
"""Called with the number of a finished step and the step; the number is "2", or "1.2" for step 2 of
the first of several sub-questions."""


@dataclass
class _Sub:
    """A sub-question while it is asked."""

    root: str
    question: str
    left: tuple[Step, ...] = ()
    done: list[StepTrace] = field(default_factory=list)
    step_recalls: list[Sequence[ClueRecall]] = field(default_factory=list)
    dropped: int = 0
    stopped: Stopped | None = None

    def progress(self) -> Progress:
        return Progress(self.root, self.question, tuple(self.done), self.left)

    def set_plan(self, texts: Sequence[str], revised: bool) -> None:
        """Replace the steps that are left."""
        done = [trace.step.number for trace in self.done]
        first = max(done, default=0) + 1
        self.left, dropped = number_steps(texts, done, "revised" if revised else "planned", first)
        self.dropped += dropped

    def next_step(self, settings: PlanSettings) -> Ready:
        """Take the next step off the plan, with its references filled in."""
        step, *rest = self.left
        self.left = tuple(rest)
        answers = {trace.step.number: trace.answers for trace in self.done}
        texts = fill(step.text, answers, settings.num_fillings)
        return Ready(self.progress(), step, tuple(filter(None, texts)) or (step.text,))

    def trace(self, answer: str | None) -> SubTrace:
        assert self.stopped is not None
        steps = tuple(self.done)
        return SubTrace(self.question, steps, answer, self.stopped, self.dropped)


def ask_planned(
    recall: Recall,
    planner: Planner,
    question: str,
    as_of: str | None = None,
    settings: PlanSettings | None = None,
    cache: RecallCache | None = None,
    read: Digester | None = None,
    on_step: OnStep | None = None,
) -> Recollection:
    """Ask a question by a plan, and return the merged facts of all its steps.

    Args:
        recall: the memory graph.
        planner: decides every stage.
        question: text of the question.
        as_of: as in ``Recall.ask``.
        settings: limits; None: the defaults.
        cache: recalls of earlier questions; None: a new cache.
        read: answers steps in place of the planner.
        on_step: called with each finished step.

    Raises:
        UserError: the question is blank, ``as_of`` is not a time, or the planner fails.
    """
    if not question.strip():
        raise UserError("the question is blank")
    run = _Run(recall, planner, as_of, settings or PlanSettings(), cache)
    return run.ask(question, read or planner.digest, on_step)


class _Run:
    """State of one question during the run of its plan."""

    def __init__(
        self,
        recall: Recall,
        planner: Planner,
        as_of: str | None,
        settings: PlanSettings,
        cache: RecallCache | None,
    ) -> None:
        self.recall, self.planner, self.as_of = recall, planner, as_of
        self.settings = settings
        self.cache = RecallCache() if cache is None else cache  # an empty cache is false
        self.milliseconds: dict[str, float] = defaultdict(float)
        self.whole: Sequence[ClueRecall] = ()
        self.hits = self.recalls = 0

    def ask(self, question: str, read: Digester, on_step: OnStep | None) -> Recollection:
        calls = self.planner.calls
        subs = [_Sub(question, question)]
        answers: list[str | None] = []
        answer = None
        try:
            subs = self._split(question)
            while live := [sub for sub in subs if sub.stopped is None]:
                self._wave(live, subs, read, on_step)
                self._revise([sub for sub in live if sub.stopped is None])
            with self._timed("answer"):
                answers = self.planner.answer([sub.progress() for sub in subs])
                answers = [
                    each if any(trace.facts for trace in sub.done) else None
                    for each, sub in zip(answers, subs, strict=True)
                ]
                traces = tuple(sub.trace(a) for sub, a in zip(subs, answers, strict=True))
                if len(traces) > 1:
                    [answer] = self.planner.aggregate([(question, traces)])
                else:
                    answer = answers[0]
            stopped = traces[0].stopped
        except BudgetSpent:
            for sub in subs:
                sub.stopped = sub.stopped or "budget"
            answers = answers or [None] * len(subs)
            traces = tuple(sub.trace(a) for sub, a in zip(subs, answers, strict=True))
            stopped = "budget"
        facts = merged(
            [self.whole, *(step for sub in subs for step in sub.step_recalls)], self.settings
        )
        plan = PlanTrace(
            traces,
            answer if facts else None,
            stopped,
            calls=self.planner.calls - calls,
            hits=self.hits,
            recalls=self.recalls,
        )
        return Recollection(
            question=question,
            entities=(),
            facts=facts,
            revision=self.recall.adjacency.revision,
            milliseconds=dict(self.milliseconds),
            mode="plan",
            plan=plan,
        )

    def _split(self, question: str) -> list[_Sub]:
        """Return the sub-questions with their first plans."""
        with self._timed("split"):
            [parts] = self.planner.split([question])
        subs = [_Sub(question, part) for part in parts or (question,)]
        with self._timed("plan"):
            plans = self.planner.plan([sub.progress() for sub in subs])
        for sub, texts in zip(subs, plans, strict=True):
            sub.set_plan(texts, revised=False)
            sub.left = sub.left or (Step(1, sub.question),)
        return subs

    def _wave(
        self, live: Sequence[_Sub], subs: Sequence[_Sub], read: Digester, on_step: OnStep | None
    ) -> None:
        """Do the next step of every live sub-question."""
        ready = [sub.next_step(self.settings) for sub in live]
        with self._timed("clues"):
            clues = self.planner.clues(ready, self._match)
            clues = [each[: self.settings.max_clues] for each in clues]
        with self._timed("recall"):
            wave = [clue for each in clues for clue in each]
            wave += [Clue(live[0].root)] if not self.recalls else []
            recalled = iter(self.cache.search(self.recall, wave, self.as_of, self.settings))
            searched = [
                Searched(step, tuple(next(recalled) for _ in each))
                for step, each in zip(ready, clues, strict=True)
            ]
            for each in recalled:
                self.whole = (each,)
                self.hits += each.hit
            self.recalls += len(wave)
        spent: BudgetSpent | None = None
        try:
            with self._timed("digest"):
                digests = read(searched)
        except BudgetSpent as error:  # the facts count even without answers
            digests, spent = [Digest()] * len(searched), error
        for sub, step, digest in zip(live, searched, digests, strict=True):
            trace = StepTrace(
                step.ready.step,
                step.ready.texts,
                tuple(each.clue for each in step.recalls),
                merged([step.recalls], self.settings),
                digest.answers,
                sum(each.hit for each in step.recalls),
                digest.guessed,
            )
            self._finish(sub, trace, step.recalls)
            if on_step is not None:
                number = str(trace.step.number)
                on_step(f"{subs.index(sub) + 1}.{number}" if len(subs) > 1 else number, trace)
        if spent is not None:
            raise spent

    def _finish(self, sub: _Sub, trace: StepTrace, recalls: Sequence[ClueRecall]) -> None:
        """Add a finished step to its sub-question, and stop it if the step brings nothing new."""
        known = {fact.key for each in sub.done for fact in each.facts}
        is_new = not known.issuperset(fact.key for fact in trace.facts)
        is_new |= trace.answer is not None and trace.answer not in [t.answer for t in sub.done]
        repeats = bool(sub.done and trace.facts and not is_new)
        sub.done.append(trace)
        sub.step_recalls.append(recalls)
        self.hits += trace.hits
        if repeats:
            sub.stopped = "nothing new"
        elif len(sub.done) >= self.settings.max_steps:
            sub.stopped = "limit" if sub.left else "plan done"

    def _revise(self, live: Sequence[_Sub]) -> None:
        """Revise the plans of the sub-questions that have not stopped."""
        if live:
            with self._timed("revise"):
                revisions = self.planner.revise([sub.progress() for sub in live])
            for sub, revision in zip(live, revisions, strict=True):
                if revision.enough:
                    sub.stopped = "enough"
                elif revision.next is not None:
                    sub.set_plan(revision.next, revised=True)
        for sub in live:
            if sub.stopped is None and not sub.left:
                sub.stopped = "plan done"

    def _match(self, names: Sequence[str]) -> list[tuple[Matched, ...]]:
        settings = self.settings
        return self.recall.candidates(
            names,
            settings.num_candidates,
            min_similarity=settings.recall.min_name_similarity,
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.milliseconds[stage] += 1000 * (time.perf_counter() - began)
