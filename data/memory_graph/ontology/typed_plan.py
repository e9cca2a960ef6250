"""Plans: an operation over selections of facts, and the SPARQL of a selection.

A plan holds terms of the ontology and ids of objects; no word of a question enters a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

from turngraph.configs.extras import extra
from turngraph.data.memory_graph.ontology.ontology import TG, Ontology

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import NamedNode

Operation = OneOf[
    "value", "latest", "first", "list", "exists", "count", "duration", "since", "before", "after",
    "order", "age", "difference",
]  # fmt: skip
Window = tuple[int | None, int | None]
"""Seconds from 1970, [from, to); None: open."""


class NoPlan(ValueError):
    """Reason why a question has no plan; it holds no remembered text but names of objects."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Facts of one property or of one class of events.

    Args:
        term: IRI of the property or the class.
        is_event: whether it is a class.
        subject: id of the object that has the property or acts in the event; None: any.
        value: id of another object that takes part; None: any.
        text: the words of the question that select.
    """

    term: str
    is_event: bool
    subject: int | None = None
    value: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Operation and what it selects.

    Args:
        operation: what is computed.
        selections: one; two of before, after, difference; two or more of order.
        window: time in which the facts are; None: any.
        unit: wanted unit of a duration; None: one that fits.
        wants_date: whether the answer of first and latest is a date and not a name.
        distinct: whether values are counted and not events.
    """

    operation: Operation
    selections: tuple[Selection, ...]
    window: Window | None = None
    unit: str | None = None
    wants_date: bool = False
    distinct: bool = False


def sparql_of(selection: Selection, ontology: Ontology, moment: int) -> str:
    """Return the query of a selection: ``?f`` the fact, ``?s`` its subject, ``?o`` the other end.

    Facts that begin after a second are left out, and those that another one corrects: it supersedes
    them and begins when they do.

    Args:
        selection: of a plan.
        ontology: its terms.
        moment: seconds from 1970.
    """
    lines = ["SELECT DISTINCT ?f ?s ?o WHERE {"]
    for name, node in (("?s", selection.subject), ("?v", selection.value)):
        if node is not None:
            lines.append(f"  VALUES {name} {{ {NamedNode(f'{TG}o{node}')} }}")
    if selection.is_event:
        lines.append(f"  GRAPH ?f {{ ?e {NamedNode(TG + 'agent')} ?s ; ?p ?o }}")
        lines.append(f"  FILTER(?p != {NamedNode(TG + 'agent')})")
        lines.append(f"  ?e a/rdfs:subClassOf* {NamedNode(selection.term)} .")
        if selection.value is not None:
            lines.append("  GRAPH ?g { ?e ?role ?v }")
            lines.append(f"  FILTER(?role != {NamedNode(TG + 'agent')})")
    else:
        terms = " ".join(str(NamedNode(iri)) for iri in sorted(ontology.below(selection.term)))
        lines.append(f"  VALUES ?p {{ {terms} }}")
        lines.append("  GRAPH ?f { ?s ?p ?o }")
        if selection.value is not None:
            lines.append("  FILTER(?o = ?v)")
    lines += [
        "  OPTIONAL { ?f tg:begins ?begins } OPTIONAL { ?f tg:ends ?ends }",
        "  FILTER NOT EXISTS { ?f tg:hypothesis true }",
        f"  FILTER(!BOUND(?begins) || ?begins <= {moment})",
        "  FILTER(!BOUND(?begins) || !BOUND(?ends) || ?begins < ?ends)",
        "} ORDER BY ?f ?o",
    ]
    return "\n".join(lines)
