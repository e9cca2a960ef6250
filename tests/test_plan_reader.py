"""The trained model as reader of a plan's steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.data.examples import Example
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.plan.steps import (
    ClueRecall,
    Digest,
    Progress,
    Ready,
    Searched,
)
from turngraph.data.memory_graph.recall.plan_trace import Clue, Step, StepTrace
from turngraph.data.memory_graph.recall.recollection import evidence_of
from turngraph.data.scoring.confidence import FEATURES, Calibration, Confidence
from turngraph.data.types import NOT_IN_EVIDENCE, Conversation, Turn
from turngraph.inference import plan_reader
from turngraph.inference.answer_batches import answer_batch
from turngraph.inference.plan_reader import PlanReader
from turngraph.tests.chatting import Loaded
from turngraph.tests.data.memory_graph.plan_model import QUESTION

BORN = Fact(2, "thesis", "Anna was born in Norway.", entities=((1, "Anna"), (3, "Norway")))
LEADS = Fact(4, "thesis", "Olav leads Norway.", entities=((5, "Olav"), (3, "Norway")))
EARLIER = Fact(8, "thesis", "Anna was born near Oslo.", entities=((1, "Anna"), (7, "Oslo")))
ASIDE = Fact(6, "episodic", "It rains in Norway. Olav sings.")


def searched(*found: ClueRecall, done: tuple[StepTrace, ...] = ()) -> Searched:
    number = len(done) + 1
    step = Step(number, "Who leads Norway")
    return Searched(Ready(Progress(QUESTION, QUESTION, done), step, ("Who leads Norway",)), found)


def test_a_step_is_the_next_turn_of_its_plan(
    graph_model: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its evidence is what it found and, by the evidence memory, what an earlier step found."""
    model, builder = graph_model
    read: list[Example] = []
    answer = plan_reader.answer_together

    def answered(model_: Any, prompt: Any, examples: Any, **options: Any) -> Any:
        read.extend(examples)
        return answer(model_, prompt, examples, **options)

    monkeypatch.setattr(plan_reader, "answer_together", answered)
    done = StepTrace(
        Step(1, "Where was Anna born"),
        ("Where was Anna born",),
        facts=(EARLIER,),
        answers=("Oslo",),
    )
    step = searched(
        ClueRecall(Clue("q"), (LEADS, BORN)), ClueRecall(Clue("r"), (LEADS, ASIDE)), done=(done,)
    )
    remembering = replace(builder, memory_graph=MemoryGraphConfig(vectors="words"))
    reader = PlanReader(model, remembering, max_new_tokens=8)
    assert reader.builder.memory_graph is None
    [digest] = reader([step])
    turns = (
        Turn("1", "Where was Anna born", evidence=tuple(evidence_of([EARLIER]))),
        Turn("2", "Who leads Norway", evidence=tuple(evidence_of([LEADS, BORN, ASIDE]))),
    )
    plan = Conversation("plan", "", turns)
    memory = builder.memory(plan)
    memory.add(builder.retrieve(plan, 0, [])[1])
    example = builder.turn(plan, 1, [("Where was Anna born", "Oslo")], memory)
    [record] = answer_batch(model, builder.prompt, [example], 8)
    assert digest.answers == ((record["answer"],) if record["answer"] else ())
    assert read[0].conversation == plan
    assert [(item.evidence.text, item.from_turn) for item in read[0].evidence] == [
        (item.evidence.text, item.from_turn) for item in example.evidence
    ]
    assert (EARLIER.text, 0) in [(i.evidence.text, i.from_turn) for i in example.evidence]
    assert read[0].suffix_ids == example.suffix_ids


def test_the_steps_of_a_wave_are_read_together_and_those_without_facts_not(
    graph_model: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, builder = graph_model
    read: list[list[list[str]]] = []

    def answered(_: Any, __: Any, examples: Any, **options: Any) -> list[Any]:
        read.append([[item.evidence.text for item in example.evidence] for example in examples])
        found = ("Olav", " ", "nobody", NOT_IN_EVIDENCE)
        return [{"answer": found[i]} for i, _ in enumerate(examples)]

    monkeypatch.setattr(plan_reader, "answer_together", answered)
    steps = [
        searched(ClueRecall(Clue("q"), (LEADS, BORN))),
        searched(ClueRecall(Clue("q"))),
        searched(ClueRecall(Clue("q"), (BORN,))),
        searched(ClueRecall(Clue("q"), (LEADS,), (ASIDE,))),
        searched(ClueRecall(Clue("r"), (BORN,))),
    ]
    assert PlanReader(model, builder)(steps) == [
        Digest(("Olav",), (4,)), Digest(), Digest(), Digest(("nobody",)), Digest(),
    ]  # fmt: skip
    assert [list(map(set, wave)) for wave in read] == [
        [{LEADS.text, BORN.text}, {BORN.text}, {ASIDE.text}, {BORN.text}]
    ]
    assert PlanReader(model, builder)([searched()]) == [Digest()]
    assert len(read) == 1


def test_a_step_whose_answer_is_not_sure_enough_has_none(graph_model: Loaded) -> None:
    model, builder = graph_model
    step = searched(ClueRecall(Clue("q"), (LEADS, BORN)))
    assert PlanReader(model, builder)([step]) != [Digest()]
    unsure = Confidence(Calibration((0.0,) * len(FEATURES), 0.0, 20, 0.0), 0.6)
    assert PlanReader(model, builder, confidence=unsure)([step]) == [Digest()]
