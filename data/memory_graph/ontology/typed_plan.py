"""Plans (an operation over selections of facts), and the SPARQL query of a selection.

A plan contains terms of the ontology and ids of objects; no word of a question enters a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.ontology.ontology import TG, Ontology

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import NamedNode

Operation = OneOf[
    "value", "latest", "first", "list", "exists", "count", "duration", "since", "before", "after",
    "order", "age", "difference", "sum", "min", "max", "mean", "most", "rate",
]  # fmt: skip
Window = tuple[int | None, int | None]
"""Seconds from 1970, [from, to); None: open."""


class NoPlan(UserError):
    """A question has no plan or no computed answer; the message quotes only names of objects."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Facts of one property or of one class of events.

    Args:
        term: IRI of the property or the class.
        is_event: whether the term is a class of events.
        subject: id of the object that has the property or is the agent of the events; None: any.
        value: id of another object in the facts; None: any.
        text: words of the question that select the facts.
        measures: IRIs of the properties whose numbers are wanted; (): none.
        fills: whether ``value`` is the object of the events and not another role.
    """

    term: str
    is_event: bool
    subject: int | None = None
    value: int | None = None
    text: str = ""
    measures: tuple[str, ...] = ()
    fills: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Operation over selections of facts.

    Args:
        operation: operation to compute.
        selections: one; for before, after and difference two, for order two or more.
        window: time of the facts; None: any.
        unit: wanted unit of a duration, or of the time of a rate; None: a fitting one.
        wants_date: whether the answer of first and latest is a date and not a name.
        wants_name: whether the answer of min and max is a name and not an amount.
        distinct: whether distinct names are counted and not events.
        rank: rank among the readings of a question; the lowest rank that selects facts is used.
    """

    operation: Operation
    selections: tuple[Selection, ...]
    window: Window | None = None
    unit: str | None = None
    wants_date: bool = False
    wants_name: bool = False
    distinct: bool = False
    rank: int = 0


def sparql_of(
    selection: Selection,
    ontology: Ontology,
    moment: int,
    base: str = TG,
    record: str | None = None,
) -> str:
    """Return the query of a selection: fact ``?f``, its subject ``?s`` and other end ``?o``.

    With measures, ``?n`` is a number and ``?a`` the fact that states it; both are unbound if there
    is none. The query leaves out hypotheses, facts that begin after ``moment``, and corrected
    facts, which end when they begin.

    Args:
        selection: selection of a plan.
        ontology: the ontology.
        moment: second, from 1970.
        base: beginning of the IRIs of objects.
        record: IRI of the graph with types and times; None: the default graph has them.
    """
    lines = [f"SELECT DISTINCT ?f ?s ?o{' ?a ?n' if selection.measures else ''} WHERE {{"]
    for name, node in (("?s", selection.subject), ("?v", selection.value)):
        if node is not None:
            lines.append(f"  VALUES {name} {{ {NamedNode(f'{base}o{node}')} }}")
    lines += (
        _of_events(selection, record) if selection.is_event else _of_property(selection, ontology)
    )
    lines += _told("?f", moment, record)
    if selection.measures:
        terms = " ".join(str(NamedNode(iri)) for iri in selection.measures)
        owner = "?e" if selection.is_event else "?s"
        lines.append(f"  OPTIONAL {{ VALUES ?q {{ {terms} }}")
        lines.append(f"    GRAPH ?a {{ {owner} ?q ?n }} FILTER(isNumeric(?n))")
        lines += ["    FILTER(?a = ?f)"] if not selection.is_event else _told("?a", moment, record)
        lines.append("  }")
    return "\n".join([*lines, "} ORDER BY ?f ?o"])


def _of_events(selection: Selection, record: str | None) -> list[str]:
    agent = NamedNode(TG + "agent")
    lines = [f"  GRAPH ?f {{ ?e {agent} ?s ; ?p ?o }}", f"  FILTER(?p != {agent})"]
    is_a = f"?e a/rdfs:subClassOf* {NamedNode(selection.term)}"
    lines.append(f"  {_inside(is_a, record)} .")
    if selection.value is not None:
        lines += ["  GRAPH ?g { ?e ?role ?v }", f"  FILTER(?role != {agent})"]
    return lines


def _of_property(selection: Selection, ontology: Ontology) -> list[str]:
    terms = " ".join(str(NamedNode(iri)) for iri in sorted(ontology.below(selection.term)))
    lines = [f"  VALUES ?p {{ {terms} }}", "  GRAPH ?f { ?s ?p ?o }"]
    return [*lines, "  FILTER(?o = ?v)"] if selection.value is not None else lines


def _inside(pattern: str, record: str | None) -> str:
    return pattern if record is None else f"GRAPH {NamedNode(record)} {{ {pattern} }}"


def _told(fact: str, moment: int, record: str | None) -> list[str]:
    """Return the query lines that leave out hypotheses, corrected facts and future facts."""
    begins, ends = f"{fact}begins", f"{fact}ends"
    return [
        f"  OPTIONAL {{ {_inside(f'{fact} tg:begins {begins}', record)} }}",
        f"  OPTIONAL {{ {_inside(f'{fact} tg:ends {ends}', record)} }}",
        f"  FILTER NOT EXISTS {{ {_inside(f'{fact} tg:hypothesis true', record)} }}",
        f"  FILTER(!BOUND({begins}) || {begins} <= {moment})",
        f"  FILTER(!BOUND({begins}) || !BOUND({ends}) || {begins} < {ends})",
    ]
