"""Planned asking: waves, references, stops, the cache of recalls, privacy, kills."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.plan import recall_cache
from turngraph.data.memory_graph.plan.steps import (
    Digest,
    Match,
    PlanSettings,
    Progress,
    Ready,
    Revision,
    Searched,
    fill,
    number_steps,
)
from turngraph.data.memory_graph.recall.plan_trace import Clue, StepTrace, SubTrace
from turngraph.data.memory_graph.recall.recollection import Recollection
from turngraph.data.memory_graph.recall.word_vectors import word_vectors

TEXTS = (
    "Anna was born in Norway.",
    "Jonas Store leads Norway.",
    "Anna lives in Paris.",
    "Pierre Dubois leads France.",
    "Berta was born in Chile.",
    "Gabriel Boric leads Chile.",
)
QUESTION = "Who leads the country where Anna was born?"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with MemoryGraph.open(tmp_path / "my.db", word_vectors) as found:
        for text in TEXTS:
            found.remember(text, source=text.split()[0])
        yield found


class Script:
    """Planner double: fixed plans and revisions; it records how many inputs each stage gets."""

    name = "script"
    calls = 0

    def __init__(
        self, *plans: Sequence[str], revisions: Sequence[Revision] = (), answers: Sequence[str] = ()
    ) -> None:
        self.plans, self.revisions, self.answers = plans, list(revisions), tuple(answers)
        self.seen: list[tuple[str, int]] = []

    def split(self, questions: Sequence[str]) -> list[tuple[str, ...]]:
        self.seen.append(("split", len(questions)))
        return [tuple(plan[0] for plan in self.plans)]

    def plan(self, progress: Sequence[Progress]) -> list[tuple[str, ...]]:
        self.seen.append(("plan", len(progress)))
        return [tuple(plan) for plan in self.plans]

    def clues(self, steps: Sequence[Ready], match: Match) -> list[tuple[Clue, ...]]:
        self.seen.append(("clues", len(steps)))
        match([text for step in steps for text in step.texts])
        return [tuple(Clue(text) for text in step.texts) for step in steps]

    def digest(self, steps: Sequence[Searched]) -> list[Digest]:
        self.seen.append(("digest", len(steps)))
        return [Digest(self.answers) for _ in steps]

    def revise(self, progress: Sequence[Progress]) -> list[Revision]:
        self.seen.append(("revise", len(progress)))
        return [self.revisions.pop(0) if self.revisions else Revision() for _ in progress]

    def answer(self, progress: Sequence[Progress]) -> list[str | None]:
        self.seen.append(("answer", len(progress)))
        return [each.done[-1].answer for each in progress]

    def aggregate(self, questions: Sequence[tuple[str, tuple[SubTrace, ...]]]) -> list[str | None]:
        self.seen.append(("aggregate", len(questions)))
        return [f"{len(subs)} parts" for _, subs in questions]


def without_times(planned: Recollection) -> Recollection:
    plan = replace(planned.plan, hits=0, subs=tuple(map(_plain, planned.plan.subs)))
    return replace(planned, milliseconds={}, plan=plan)


def _plain(sub: SubTrace) -> SubTrace:
    return replace(sub, steps=tuple(replace(trace, hits=0) for trace in sub.steps))


def test_a_step_is_filled_with_the_answer_of_an_earlier_one(graph: MemoryGraph) -> None:
    finished: list[tuple[str, StepTrace]] = []
    planned = graph.ask_planned(QUESTION, on_step=lambda *step: finished.append(step))
    first, second = planned.plan.subs[0].steps
    assert (first.texts, first.answer) == (("country where Anna was born",), "Norway")
    assert [entity.name for entity in first.clues[0].start or ()] == ["Anna"]
    assert second.step.text == "Who leads [1]"
    assert second.texts[0] == "Who leads Norway"
    assert second.answer == "Jonas Store"
    assert first.guessed
    assert second.guessed
    assert planned.plan.answer is None
    assert {"Anna was born in Norway", "Jonas Store leads Norway"} <= {
        fact.text for fact in planned.facts[:3]
    }
    assert finished == [("1", first), ("2", second)]
    assert planned.plan.stopped == "plan done"
    assert planned.plan.calls == 0
    assert planned.revision == graph.store.revision
    texts = [evidence.text for evidence in planned.evidence()]
    assert texts == [fact.text for fact in planned.facts]


def test_over_episodes_whole_texts_are_ranked(graph: MemoryGraph) -> None:
    planned = graph.ask_planned(QUESTION, settings=PlanSettings(over="episodes"))
    assert {fact.type for fact in planned.facts} == {"episodic"}
    assert set(TEXTS[:2]) <= {fact.text for fact in planned.facts[:3]}
    assert len({fact.key for fact in planned.facts}) == len(planned.facts)
    assert planned.plan.subs[0].steps[0].answer == "Norway"


def test_the_same_question_again_is_all_hits_until_something_is_remembered(
    graph: MemoryGraph,
) -> None:
    first = graph.ask_planned(QUESTION)
    assert first.plan.hits == 0
    assert first.plan.recalls > 2
    again = graph.ask_planned(QUESTION)
    assert again.plan.hits == again.plan.recalls == first.plan.recalls
    assert without_times(again) == without_times(first)
    graph.remember("Anna was born in Chile.")
    changed = graph.ask_planned(QUESTION)
    assert changed.plan.hits == 0
    assert changed.revision > first.revision
    assert any("Chile" in text for text in changed.plan.subs[0].steps[1].texts)


def test_a_recall_without_time_is_true_until_the_next_fact_begins(
    graph: MemoryGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.remember("Carl lives in Rome.", time="2020")
    graph.remember("Carl lives in Oslo.", time="2030-01-01")
    clock = ["2029-12-31T23:59:58"]
    monkeypatch.setattr(recall_cache, "now", lambda: clock[0])
    assert graph.ask_planned("Where is Carl?").plan.hits == 0
    clock[0] = "2029-12-31T23:59:59"
    still = graph.ask_planned("Where is Carl?")
    assert still.plan.hits == still.plan.recalls
    clock[0] = "2030-01-01T00:00:00"
    assert graph.ask_planned("Where is Carl?").plan.hits == 0
    past = graph.ask_planned("Where is Carl?", as_of="2020")
    assert past.plan.hits == 0
    assert graph.ask_planned("Where is Carl?", as_of="2020").plan.hits == past.plan.recalls


def test_nothing_of_a_forgotten_text_is_left(graph: MemoryGraph, tmp_path: Path) -> None:
    graph.remember("Zebulon leads Norway.", source="secret")
    assert "Zebulon" in str(graph.ask_planned(QUESTION).facts)
    graph.forget(source="secret")
    found = graph.ask_planned(QUESTION)
    assert found.plan.hits == 0
    assert "Zebulon" not in str(found.facts)
    graph.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"ebulon" in path.read_bytes() for path in files)


def test_all_live_sub_questions_advance_together(graph: MemoryGraph) -> None:
    script = Script(["Anna was born"], ["Berta was born", "Gabriel Boric"], ["Paris"])
    few = PlanSettings(num_facts=2)
    planned = graph.ask_planned("Anna, Berta or Paris?", planner=script, settings=few)
    waves = [("clues", 3), ("digest", 3), ("revise", 3)], [("clues", 1), ("digest", 1)]
    ends = [("revise", 1), ("answer", 3), ("aggregate", 1)]
    assert script.seen == [("split", 1), ("plan", 3), *waves[0], *waves[1], *ends]
    assert planned.plan.answer == "3 parts"
    assert [len(sub.steps) for sub in planned.plan.subs] == [1, 2, 1]


def test_queries_of_a_wave_are_embedded_together(tmp_path: Path) -> None:
    batches: list[list[str]] = []

    def embed(texts: Sequence[str]) -> Any:
        batches.append(list(texts))
        return word_vectors(texts)

    with MemoryGraph.open(tmp_path / "my.db", embed) as graph:
        graph.remember("Anna was born in Norway.")
        graph.ask("warm up")
        batches.clear()
        graph.ask_planned("Anna?", planner=Script(["first text"], ["second text"]))
    assert {"first text", "second text"} <= set(batches[0])
    assert len(batches) == 2  # the names of the steps, then what the clue queries add
    assert len({text for batch in batches for text in batch}) == sum(map(len, batches))


def test_a_planner_that_always_wants_more_stops_at_the_limit(graph: MemoryGraph) -> None:
    texts = ["Anna", "Jonas Store", "Berta", "Gabriel Boric", "France"]
    more = [Revision(next=(text, "Norway")) for text in texts[1:]]
    planned = graph.ask_planned(
        "q",
        planner=Script(texts[:1], revisions=more),
        settings=PlanSettings(max_steps=3, num_facts=2),
    )
    assert planned.plan.stopped == "limit"
    steps = planned.plan.subs[0].steps
    assert [trace.step.text for trace in steps] == texts[:3]
    assert [trace.step.number for trace in steps] == [1, 2, 3]
    assert [trace.step.why for trace in steps] == ["planned", "revised", "revised"]


def test_a_repeated_step_brings_nothing_new(graph: MemoryGraph) -> None:
    planned = graph.ask_planned("q", planner=Script(["Anna", "Anna", "Berta"]))
    assert planned.plan.stopped == "nothing new"
    assert len(planned.plan.subs[0].steps) == 2


def test_enough_ends_a_sub_question(graph: MemoryGraph) -> None:
    script = Script(["Anna", "Berta"], revisions=[Revision(enough=True)], answers=["Norway"])
    planned = graph.ask_planned("q", planner=script)
    assert (planned.plan.stopped, planned.plan.answer) == ("enough", "Norway")
    assert len(planned.plan.subs[0].steps) == 1


def test_a_reference_to_no_step_drops_the_step(graph: MemoryGraph) -> None:
    planned = graph.ask_planned("q", planner=Script(["Anna", "leads [9]", "Berta"]))
    assert [trace.step.text for trace in planned.plan.subs[0].steps] == ["Anna", "Berta"]
    assert planned.plan.subs[0].dropped == 1


def test_other_errors_of_a_planner_are_not_swallowed(graph: MemoryGraph) -> None:
    class Broken(Script):
        def revise(self, progress: Sequence[Progress]) -> list[Revision]:
            raise ValueError("stage revise: broken")

    with pytest.raises(ValueError, match="stage revise"):
        graph.ask_planned("q", planner=Broken(["Anna", "Berta"]))


def test_clues_beyond_the_limit_are_ignored_and_none_is_a_fruitless_step(
    graph: MemoryGraph,
) -> None:
    class Clues(Script):
        def clues(self, steps: Sequence[Ready], match: Match) -> list[tuple[Clue, ...]]:
            return [(Clue("Anna"), Clue("Berta")) if step.step.number > 1 else () for step in steps]

    planned = graph.ask_planned("q", planner=Clues(["a", "b"]), settings=PlanSettings(max_clues=1))
    first, second = planned.plan.subs[0].steps
    assert (first.clues, first.facts) == ((), ())
    assert [clue.query for clue in second.clues] == ["Anna"]


@pytest.mark.parametrize(
    ("answers", "text", "why"),
    [(("Chile",), "Who leads Chile", "planned"), ((), "Who leads", "revised")],
)
def test_a_reader_answers_in_place_of_the_planner(
    graph: MemoryGraph, answers: tuple[str, ...], text: str, why: str
) -> None:
    """The rules revise a step without an answer."""
    planned = graph.ask_planned(QUESTION, read=lambda steps: [Digest(answers) for _ in steps])
    second = planned.plan.subs[0].steps[1]
    assert (second.texts, second.step.why) == ((text,), why)


@pytest.mark.parametrize("question", ["", " \n"])
def test_a_blank_question_is_refused(graph: MemoryGraph, question: str) -> None:
    with pytest.raises(ValueError, match="blank"):
        graph.ask_planned(question)


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_steps", 0), ("max_clues", 0), ("num_candidates", 0), ("num_facts", 0), ("over", "all")],
)
def test_settings_name_a_wrong_field(field: str, value: Any) -> None:
    wrong: Any = {field: value}
    with pytest.raises(ValueError, match=f"{field}: {value!r} given"):
        PlanSettings(**wrong)


def test_references_are_filled_by_rank() -> None:
    answers = {1: ["a", "b"], 2: ["x", "y"]}
    assert fill("[1] or [2]", answers, 3) == ("a or x", "a or y", "b or x")
    assert fill("who leads [1]", {}, 2) == ("who leads",)
    assert fill("[1] and [2]", {1: ["a", "b"], 2: ["x", "x"]}, 3) == ("a and x", "b and x")
    steps, dropped = number_steps(["a", "", "b [2]", "c [1]"], [], "planned")
    assert [step.number for step in steps] == [1, 4]
    assert dropped == 2


def test_many_references_are_filled_without_trying_all_answers() -> None:
    numbers = range(1, 201)
    text = " ".join(f"[{number}]" for number in numbers)
    first, second, third = fill(text, dict.fromkeys(numbers, ("a", "b", "c")), 3)
    assert first.split() == ["a"] * 200
    assert second.split() == ["a"] * 199 + ["b"]
    assert third.split() == ["a"] * 198 + ["b", "a"]


KILLED = """
import os, signal, sys
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
with MemoryGraph.open(sys.argv[1], word_vectors) as graph:
    graph.ask_planned(sys.argv[2], on_step=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_kill_in_the_middle_of_a_plan_leaves_the_graph_as_it_was(
    graph: MemoryGraph, tmp_path: Path
) -> None:
    before, planned = graph.store.revision, graph.ask_planned(QUESTION)
    graph.close()
    path = tmp_path / "my.db"
    done = subprocess.run([sys.executable, "-c", KILLED, path, QUESTION], check=False)
    assert done.returncode == -signal.SIGKILL
    with MemoryGraph.open(path, word_vectors) as again:
        assert again.store.revision == before
        assert again.check() == []
        assert without_times(again.ask_planned(QUESTION)) == without_times(planned)
