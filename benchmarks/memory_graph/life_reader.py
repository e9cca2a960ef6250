"""The life's questions answered by an LM, from facts with and without what is computed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from turngraph.benchmarks.memory_graph.life_questions import Question, whole_units
from turngraph.data.json_fields import Json
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.ontology.compute import compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.statement import statement
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan
from turngraph.data.memory_graph.times import parse_time
from turngraph.data.normalise import MONTHS

Generate = Callable[[Sequence[str], dict[str, Any]], Sequence[tuple[str, bool]]]
NUM_FACTS = 10
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 120}},
    "required": ["answer"],
    "additionalProperties": False,
}


def measure_reader(graph: MemoryGraph, asked: Sequence[Question], generate: Generate) -> Json:
    """Print and return how many answers of an LM name what is right, with and without it.

    Args:
        graph: of the life, which can be asked.
        asked: questions.
        generate: JSON of a schema for each prompt, as ``ConstrainedLM.generate``.
    """
    lens = Lens(graph.store, load_ontology())
    plain, computed = [], []
    for one in asked:
        facts = [fact.text for fact in graph.ask(one.text, one.as_of).facts[:NUM_FACTS]]
        try:
            lines = [statement(one.text, compute(lens, one.text, one.as_of)), *facts]
        except NoPlan:
            lines = facts
        plain.append(_prompt(one, facts))
        computed.append(_prompt(one, lines))
    found: Json = {"asked": len(asked)}
    for name, prompts in (("facts", plain), ("facts and computed", computed)):
        answers = [_answer(text) for text, _ in generate(prompts, SCHEMA)]
        found[name] = sum(named(one, answer) for one, answer in zip(asked, answers, strict=True))
        print(f"LM from {name}: {found[name]} of {len(asked)} right", flush=True)
    return found


def _prompt(question: Question, lines: Sequence[str]) -> str:
    facts = "\n".join(lines) or "nothing"
    return (
        f"Facts remembered on {question.as_of}:\n{facts}\n\nAnswer the question by the facts, in a "
        f"few words.\nQuestion: {question.text}"
    )


def _answer(reply: str) -> str:
    try:
        return str(json.loads(reply)["answer"])
    except (ValueError, KeyError):  # cut off at the limit of tokens
        return reply


def named(question: Question, answer: str) -> bool:
    """Return whether a free answer names all that is right: names, in order, or the number."""
    gold = question.gold
    if question.kind == "yes":
        return re.match(rf"\W*{gold}\b", answer, re.IGNORECASE) is not None
    if question.kind == "order":
        places = [answer.find(name) for name in gold]
        return -1 not in places and places == sorted(places)
    if question.kind == "names":
        return all(name.lower() in answer.lower() for name in gold)
    if question.kind == "dates":
        return all(any(form in answer.lower() for form in _forms(one)) for one in gold)
    if question.kind == "number":
        numbers = map(float, re.findall(r"\d+(?:\.\d+)?", answer.replace(",", "")))
        return any(abs(one - gold[0]) <= max(0.0051, gold[0] * 0.001) for one in numbers)
    return _is_span(question, answer)


def _forms(iso: str) -> tuple[str, str]:
    year, month, *day = parse_time(iso).split("-")
    return iso, " ".join([*(str(int(one)) for one in day), MONTHS[int(month) - 1], year])


def _is_span(question: Question, answer: str) -> bool:
    found = re.findall(r"(\d+) (day|week|month|year)", answer)
    first, last = question.gold
    return any(int(number) == whole_units(first, last, unit) for number, unit in found)
