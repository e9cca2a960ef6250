"""Computed answers of the memory graph on the command line: options and output."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from turngraph.inference.memory_printing import (
    fact_json,
    print_facts,
    print_json,
    print_line,
)
from turngraph.inference.model_options import PLANNERS
from turngraph.inference.ontology_commands import (
    add_endpoint,
    add_ontology_options,
    chosen_ontology,
    pushed_graph,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from turngraph.data.memory_graph.graph import MemoryGraph
    from turngraph.data.memory_graph.ontology.compute import Planner
    from turngraph.data.memory_graph.ontology.endpoint_query import PushedGraph
    from turngraph.data.memory_graph.ontology.ontology import Ontology
    from turngraph.inference.memory_options import AskOptions


@dataclasses.dataclass(frozen=True)
class Computing:
    """Options of computed answers.

    Args:
        ontology: ontology with the terms of plans.
        show_sparql: print also the queries that selected the facts.
        make_planner: makes a planner for questions that the rules cannot plan; None: only the rules
            plan.
        pushed: copy on a server, which is queried in place of the graph; None: the graph is
            queried.
    """

    ontology: Ontology
    show_sparql: bool
    make_planner: Callable[[MemoryGraph], Planner] | None
    pushed: PushedGraph | None


def computing(options: AskOptions) -> Computing | None:
    """Return the options of computed answers; None: nothing is computed.

    Raises:
        UserError: an option lacks another that it needs, or is wrong.
    """
    if not options.compute:
        return None
    make = None
    if options.compute_by in ("lm", "endpoint"):
        from turngraph.inference.plan_models import plans_maker

        make = plans_maker(options.compute_by, options.models)
    return Computing(
        chosen_ontology(options.ontology, options.alone),
        options.show_sparql,
        make,
        pushed_graph(options.endpoint, options.base),
    )


def add_computing(added: argparse.ArgumentParser) -> None:
    """Add the options of ``ask`` that compute."""
    added.add_argument(
        "--compute", action="store_true", help="compute the answer where a plan can: counts, times"
    )
    added.add_argument("--show_sparql", action="store_true", help="with --compute: also the SPARQL")
    added.add_argument(
        "--compute_by",
        choices=PLANNERS,
        help="with --compute: what plans questions that the rules cannot plan; default: nothing",
    )
    add_endpoint(added)
    add_ontology_options(added)


def print_computed(
    graph: MemoryGraph,
    question: str,
    options: Computing,
    planner: Planner | None,
    *,
    as_of: str | None,
    as_json: bool,
) -> bool:
    """Print the computed answer of a question; without one, print the reason and return False.

    Args:
        graph: an open memory graph.
        question: text of the question.
        options: the ontology, and what else is printed.
        planner: plans questions that the rules cannot plan; None: only the rules plan.
        as_of: ISO time; None: now.
        as_json: print one JSON object.
    """
    from turngraph.data.memory_graph.ontology.compute import compute
    from turngraph.data.memory_graph.ontology.lens import Lens
    from turngraph.data.memory_graph.ontology.typed_plan import NoPlan

    lens = Lens(graph.store, options.ontology)
    try:
        computed = compute(lens, question, as_of, planner, options.pushed, graph.marked)
    except NoPlan as reason:
        if not as_json:
            print_line(f"not computed: {reason}; found without computing:")
        return False
    if as_json:
        facts = [
            fact_json(fact) | {"name": item.name} for item in computed.items for fact in item.facts
        ]
        answer = {"answer": computed.answer, "operation": computed.operation, "note": computed.note}
        queries = {"plan": computed.plan, "sparql": computed.queries} if options.show_sparql else {}
        asked = {"question": question, "as_of": as_of, "revision": computed.revision}
        print_json(asked | {"computed": answer | queries, "facts": facts})
        return True
    print_line(f"computed: {computed.answer} ({computed.operation})")
    if computed.note:
        print_line(f"note: {computed.note}")
    for query in computed.queries if options.show_sparql else ():
        for line in query.splitlines():
            print_line(line)
    print_facts([fact for item in computed.items for fact in item.facts])
    return True
