"""Commands of the typed memory graph: check an ontology; options and output."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from turngraph.inference.memory_printing import (
    fact_json,
    plural,
    print_facts,
    print_json,
    print_line,
    print_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from turngraph.data.cli import CommandParser
    from turngraph.data.memory_graph.graph import MemoryGraph
    from turngraph.data.memory_graph.ontology.ontology import Ontology

    Subparsers = argparse._SubParsersAction[CommandParser]


def add_ontology(commands: Subparsers) -> None:
    """Add ``ontology check``."""
    help = "check a Turtle file of classes and properties"
    group = commands.add_parser("ontology", help=help, description=help)
    inner = group.add_subparsers(dest="part", required=True, metavar="check")
    added = inner.add_parser("check", help=help, description=help)
    added.add_argument("path", metavar="FILE.ttl")
    added.add_argument(
        "--alone", action="store_true", help="instead of Turngraph's ontology, not beside it"
    )
    added.set_defaults(run=check_ontology)


def add_sparql(
    added: argparse.ArgumentParser, time: Callable[[str], str], number: Callable[[str], int]
) -> None:
    """Add the options of ``sparql``.

    Args:
        added: the command.
        time, number: types of the options, which check a time and a whole number.
    """
    added.add_argument("query", metavar="QUERY", help="SELECT, ASK, CONSTRUCT or DESCRIBE")
    added.add_argument("--as_of", type=time, metavar="TIME", help="what held then; default: now")
    added.add_argument("--seconds", type=number, default=30, help="limit for the query")
    added.add_argument("--json", dest="as_json", action="store_true")
    add_ontology_options(added)


def add_computing(added: argparse.ArgumentParser) -> None:
    """Add the options of ``ask`` that compute."""
    added.add_argument(
        "--compute", action="store_true", help="compute the answer where a plan can: counts, times"
    )
    added.add_argument("--show_sparql", action="store_true", help="with --compute: also the SPARQL")


def add_ontology_options(added: argparse.ArgumentParser) -> None:
    """Add the options that choose the ontology of a command."""
    added.add_argument("--ontology", metavar="FILE.ttl", help="your classes and properties")
    added.add_argument(
        "--alone", action="store_true", help="--ontology instead of Turngraph's, not beside it"
    )


def chosen_ontology(path: str | None, alone: bool) -> Ontology:
    """Read the ontology of a command.

    Raises:
        ValueError: the file is wrong, or ``alone`` is given without one.
    """
    from turngraph.data.memory_graph.ontology.ontology import load_ontology

    if alone and path is None:
        raise ValueError("--alone: given without --ontology")
    return load_ontology(path, alone)


def check_ontology(*, part: str, path: str, alone: bool) -> None:
    """Print what an ontology has; an error names file, line and column."""
    found = chosen_ontology(path, alone)
    classes = plural(len(found.classes), "class", "classes")
    properties = plural(len(found.properties), "property", "properties")
    print_line(f"{path}: {classes}, {properties}, {plural(found.num_words, 'surface word')}")


def sparql(
    *,
    db: str,
    query: str,
    as_of: str | None,
    seconds: int,
    as_json: bool,
    ontology: str | None,
    alone: bool,
) -> None:
    """Print the rows of a SPARQL query, or its answer, or its triples."""
    from turngraph.data.memory_graph.ontology.ontology import short
    from turngraph.data.memory_graph.ontology.rdf import ask_sparql

    chosen_ontology(ontology, alone)  # errors of the file before a process is begun
    found = ask_sparql(db, query, as_of, ontology, alone, seconds)
    if as_json:
        print_json(dataclasses.asdict(found))
    elif found.answer is not None:
        print("yes" if found.answer else "no")
    elif found.columns:
        terms = [
            [term and (short(term["value"]) if term["type"] == "uri" else term["value"])
             for term in row]
            for row in found.rows
        ]  # fmt: skip
        print_rows(found.columns, terms)
    else:
        for line in found.triples.splitlines():
            print_line(line)


def export_rdf(*, db: str, trig: str | None, shacl: str | None) -> None:
    """Write the graph as TriG, or the shapes of its ontology as SHACL."""
    from turngraph.data.memory_graph.ontology.rdf import export_shacl, export_trig
    from turngraph.data.memory_graph.record.store import Store

    if trig is not None:
        with Store(db, read_only=True) as store:
            count = export_trig(store, chosen_ontology(None, False), trig)
        print_line(f"{count} quads written to {trig}", trig)
    if shacl is not None:
        count = export_shacl(chosen_ontology(None, False), shacl)
        print_line(f"{count} lines written to {shacl}", shacl)


def print_computed(
    graph: MemoryGraph, question: str, *, as_of: str | None, show_sparql: bool, as_json: bool
) -> bool:
    """Print the computed answer of a question; return False, and say why, if there is none.

    Args:
        graph: an open memory graph.
        question: text of the question.
        as_of: ISO time; None: now.
        show_sparql: print also the queries.
        as_json: print one JSON object.
    """
    from turngraph.data.memory_graph.ontology.compute import compute
    from turngraph.data.memory_graph.ontology.lens import Lens
    from turngraph.data.memory_graph.ontology.typed_plan import NoPlan

    lens = Lens(graph.store, chosen_ontology(None, False))
    try:
        found = compute(lens, question, as_of)
    except NoPlan as reason:
        if not as_json:
            print_line(f"not computed: {reason}")
        return False
    if as_json:
        facts = [
            fact_json(fact) | {"name": item.name} for item in found.items for fact in item.facts
        ]
        computed = {"answer": found.answer, "operation": found.operation, "note": found.note}
        queries = {"sparql": found.queries} if show_sparql else {}
        asked = {"question": question, "as_of": as_of, "revision": found.revision}
        print_json(asked | {"computed": computed | queries, "facts": facts})
        return True
    print_line(f"computed: {found.answer} ({found.operation})")
    if found.note:
        print_line(f"note: {found.note}")
    for query in found.queries if show_sparql else ():
        for line in query.splitlines():
            print_line(line)
    print_facts([fact for item in found.items for fact in item.facts])
    return True
