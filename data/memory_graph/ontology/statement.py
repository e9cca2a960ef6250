"""Converts a computed answer to evidence: a statement of the answer, then the counted facts."""

from __future__ import annotations

from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.ontology.compute import Computed
from turngraph.data.memory_graph.recall.recollection import evidence_of
from turngraph.data.types import COMPUTED_ID, Entity, Evidence

MAX_NAMED = 5


def statement(question: str, computed: Computed) -> str:
    """Return a computed answer as one sentence: "Computed: Where do I live: Oslo (Oslo 2019-03)".

    Args:
        question: the question.
        computed: the computed answer; at most ``MAX_NAMED`` of its facts are named.
    """
    named = [" ".join(filter(None, [item.name, item.fact.valid_from])) for item in computed.items]
    shown = ", ".join(named[:MAX_NAMED])
    if len(named) > MAX_NAMED:
        shown = f"first {MAX_NAMED} of {len(named)}: {shown}"
    asked = " ".join(question.split()).rstrip(" ?!.")
    return f"Computed: {asked}: {computed.answer}" + (f" ({shown})" if shown else "")


def computed_evidence(question: str, computed: Computed) -> list[Evidence]:
    """Return the statement of a computed answer and its facts, as evidence.

    The entities of the statement are the names in the answer and those of its facts. An answer that
    is no name, such as "4", is itself an entity.
    """
    facts = tuple({fact.key: fact for item in computed.items for fact in item.facts}.values())
    passages = evidence_of(facts)
    text = statement(question, computed)
    by_label = {entity.label: entity for passage in passages for entity in passage.entities}
    names = dict.fromkeys([computed.answer, *computed.answer.split(", ")])
    answers = [by_label.get(name) or Entity(alias(name) or name, name) for name in names]
    entities = {entity.id: entity for entity in answers}
    for item in computed.items[:MAX_NAMED]:
        if (entity := by_label.get(item.name)) is not None:
            entities.setdefault(entity.id, entity)
    return [Evidence(COMPUTED_ID, text, "memory", tuple(entities.values())), *passages]
