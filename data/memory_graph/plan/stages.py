"""Prompts and reply schemas of the stages that a language model decides.

Every value is put into a prompt on one line, so that no remembered text can look like a part of the
prompt. In the schema of a verdict the reason comes first, so that the model writes the reason
before it decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template

from turngraph.data.memory_graph.extract.model_extractor import Prompt, known_line
from turngraph.data.memory_graph.extract.replies import (
    ENTITIES,
    Schema,
    list_schema,
    numbers_schema,
    object_schema,
    one_line,
    text_schema,
)
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.plan.steps import Progress, Ready
from turngraph.data.memory_graph.recall.plan_trace import SubTrace

MAX_QUESTION, MAX_REASON, MAX_ANSWER, MAX_STEP = 500, 200, 200, 200
"""Maximum lengths of texts in a reply, in characters."""
MAX_FACT = 400
"""Maximum length of a statement in a prompt, in characters; a longer one is cut."""
MAX_PARTS = 4
"""Maximum number of sub-questions of a question."""

_REASON = text_schema(MAX_REASON)
_VERDICT: Schema = {"type": "boolean"}
QUESTION = object_schema(question=text_schema(MAX_QUESTION))
PARTS = object_schema(
    because=_REASON,
    independent=_VERDICT,
    questions=list_schema(text_schema(MAX_QUESTION), MAX_PARTS),
)
ENOUGH = object_schema(because=_REASON, enough=_VERDICT)
ANSWER = object_schema(answer=text_schema(MAX_ANSWER))


def steps_schema(most: int) -> Schema:
    """Return the schema of a plan of at most ``most`` steps."""
    return object_schema(steps=_texts(most))


def revision_schema(most: int) -> Schema:
    """Return the schema of a revision: whether the plan changes, and the remaining steps."""
    return object_schema(because=_REASON, revise=_VERDICT, next=_texts(most))


def next_schema(most: int) -> Schema:
    """Return the schema that joins the verdicts of ``ENOUGH`` and ``revision_schema``."""
    verdicts = {"enough": _VERDICT, "revise": _VERDICT}
    return object_schema(because=_REASON, **verdicts, next=_texts(most))


def digest_schema(count: int) -> Schema:
    """Return the schema of an answer and the numbers, up to ``count``, of its statements."""
    return object_schema(facts=numbers_schema(count), answer=text_schema(MAX_ANSWER))


def aggregate_schema(count: int) -> Schema:
    """Return the schema of an answer and the numbers, up to ``count``, of its parts."""
    return object_schema(**{"answer": text_schema(MAX_ANSWER), "from": numbers_schema(count)})


def _texts(most: int) -> Schema:
    return list_schema(text_schema(MAX_STEP), most)


# Prompts


@cache
def _template(name: str) -> Template:
    path = files("turngraph.data.memory_graph.plan") / "prompts" / f"{name}.txt"
    return Template(path.read_text(encoding="utf-8"))


def _prompt(stage: str, schema: Schema, subject: str, values: Mapping[str, object]) -> Prompt:
    text = _template(stage).substitute(values)
    return Prompt(text, schema, f"stage {stage}, {subject}")


def decompose_prompt(question: str) -> Prompt:
    """Return the prompt that splits a question into independent parts."""
    return _prompt("decompose", PARTS, "the question", {"question": one_line(question)})


def plan_prompt(progress: Progress, most: int) -> Prompt:
    """Return the prompt for the first plan of a sub-question."""
    values = {"question": one_line(progress.question), "most": most}
    return _prompt("plan", steps_schema(most), "the sub-question", values)


def names_prompt(ready: Ready, text: str) -> Prompt:
    """Return the prompt for the names in a text of a step."""
    return _prompt("names", ENTITIES, _step(ready), {"question": one_line(text)})


def clue_prompt(ready: Ready, text: str, things: Sequence[str]) -> Prompt:
    """Return the prompt that rewords a step's text with the names in the memory graph."""
    values = {"question": one_line(text), "things": _lines(things)}
    return _prompt("clue", QUESTION, _step(ready), values)


def summarise_prompt(ready: Ready, query: str, facts: Sequence[Fact]) -> Prompt:
    """Return the prompt that answers a query from facts."""
    values = {"question": one_line(query), "facts": _lines([_fact(fact) for fact in facts])}
    return _prompt("summarise", digest_schema(len(facts)), _step(ready), values)


def join_prompt(ready: Ready, findings: Sequence[tuple[str, str]]) -> Prompt:
    """Return the prompt for a step's answer from the answers of its clue queries.

    Args:
        ready: the step.
        findings: clue queries, each with its answer.
    """
    lines = [f"{one_line(query)}: {one_line(answer)}" for query, answer in findings]
    values = {"question": one_line(ready.texts[0]), "findings": _lines(lines)}
    return _prompt("join", digest_schema(len(findings)), _step(ready), values)


def enough_prompt(progress: Progress) -> Prompt:
    """Return the prompt that asks whether the finished steps suffice."""
    return _prompt("enough", ENOUGH, _after(progress), _done(progress))


def revise_prompt(progress: Progress, most: int) -> Prompt:
    """Return the prompt that revises the remaining steps, at most ``most``."""
    values = _done(progress) | _left(progress, most)
    return _prompt("revise", revision_schema(most), _after(progress), values)


def next_prompt(progress: Progress, most: int) -> Prompt:
    """Return the prompt that asks whether the steps suffice and which steps remain."""
    values = _done(progress) | _left(progress, most)
    return _prompt("next", next_schema(most), _after(progress), values)


def answer_prompt(progress: Progress) -> Prompt:
    """Return the prompt for a sub-question's answer, which may be that there is none."""
    return _prompt("strict", ANSWER, "the sub-question", _done(progress))


def aggregate_prompt(question: str, subs: Sequence[SubTrace]) -> Prompt:
    """Return the prompt for a question's answer from the answers of its sub-questions."""
    parts = [f"{one_line(sub.question)}: {one_line(sub.answer or 'no answer')}" for sub in subs]
    values = {"question": one_line(question), "parts": _lines(parts)}
    return _prompt("aggregate", aggregate_schema(len(subs)), "the question", values)


# Values of prompts


def _step(ready: Ready) -> str:
    return f"step {ready.step.number}"


def _after(progress: Progress) -> str:
    return f"after step {progress.next_number - 1}"


def _done(progress: Progress) -> dict[str, object]:
    lines = [
        f"[{trace.step.number}] {one_line(trace.texts[0])}: "
        f"{one_line(trace.answer or '') or 'nothing found'}"
        for trace in progress.done
    ]
    return {"question": one_line(progress.question), "done": "\n".join(lines)}


def _left(progress: Progress, most: int) -> dict[str, object]:
    first = progress.next_number
    lines = [f"[{number}] {one_line(t)}" for number, t in enumerate(progress.left_texts(), first)]
    return {"left": "\n".join(lines) or "none", "first": first, "most": most}


def _fact(fact: Fact) -> str:
    text = known_line(fact)
    return text if len(text) <= MAX_FACT else f"{text[:MAX_FACT].rstrip()} ..."


def _lines(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
