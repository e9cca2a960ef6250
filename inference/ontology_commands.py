"""Commands of the typed memory graph: ontologies, SPARQL, RDF in and out; options and output."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.inference.memory_options import add_db
from turngraph.inference.memory_printing import (
    print_json,
    print_line,
    print_rows,
    remembered_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from turngraph.data.cli import CommandParser
    from turngraph.data.memory_graph.memory_types import Extractor
    from turngraph.data.memory_graph.ontology.endpoint_query import PushedGraph
    from turngraph.data.memory_graph.ontology.ontology import Ontology
    from turngraph.data.memory_graph.record.store import Store

    Subparsers = argparse._SubParsersAction[CommandParser]

MOST_UNKNOWN = 20
"""Number of unknown relations that ``ontology coverage`` prints."""


@dataclasses.dataclass(frozen=True)
class TypedTerms:
    """The ontology of the statements that a command remembers.

    Args:
        ontology: a new value of one of its functional properties supersedes the old one.
        relations, classes: relations and classes that an LM may use.
    """

    ontology: Ontology
    relations: tuple[str, ...]
    classes: tuple[str, ...]

    def wrap(self, extractor: Extractor) -> Extractor:
        """Return an extractor whose statements of functional properties supersede."""
        from turngraph.data.memory_graph.ontology.typed_extractor import TypedExtractor

        return TypedExtractor(extractor, self.ontology)


def add_typed(added: argparse.ArgumentParser) -> None:
    """Add the options of ``remember`` about an ontology."""
    added.add_argument(
        "--typed",
        action="store_true",
        help="a new value of a functional property ends the old one; lm and endpoint use the "
        "ontology's relations only",
    )
    add_ontology_options(added)


def typed_terms(typed: bool, ontology: str | None, alone: bool) -> TypedTerms | None:
    """Return the ontology of what is remembered; None: none is used.

    Raises:
        UserError: an ontology is chosen and not used, or it is wrong.
    """
    if not typed:
        if ontology is not None or alone:
            raise UserError("--ontology and --alone need --typed")
        return None
    chosen = chosen_ontology(ontology, alone)
    from turngraph.data.memory_graph.ontology.typed_extractor import classes_of, relations_of

    return TypedTerms(chosen, relations_of(chosen), classes_of(chosen))


def add_ontology(commands: Subparsers) -> None:
    """Add ``ontology check`` and ``ontology coverage``."""
    help = "check FILE.ttl: check an ontology; coverage --db my.db: count the facts that it covers"
    group = commands.add_parser("ontology", help=help, description=help)
    inner = group.add_subparsers(dest="part", required=True, metavar="check|coverage")
    help = "count the facts whose relation is known, and those that break a shape"
    added = inner.add_parser("coverage", help=help, description=help)
    add_db(added)
    add_ontology_options(added)
    added.set_defaults(run=coverage)
    help = "check a Turtle file of classes and properties"
    added = inner.add_parser("check", help=help, description=help)
    added.add_argument("path", metavar="FILE.ttl")
    added.add_argument(
        "--alone",
        action="store_true",
        help="use the file instead of Turngraph's ontology, not in addition",
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
    added.add_argument(
        "--as_of", type=time, metavar="TIME", help="time at which facts hold; default: now"
    )
    added.add_argument("--seconds", type=number, default=30, help="limit for the query")
    add_endpoint(added)
    added.add_argument("--json", dest="as_json", action="store_true")
    add_ontology_options(added)


def add_endpoint(added: argparse.ArgumentParser) -> None:
    """Add the options of questions to the copy on a server."""
    added.add_argument("--endpoint", metavar="URL", help="ask the copy that push has written there")
    added.add_argument(
        "--base", metavar="IRI", help="with --endpoint: the base that push was given"
    )


def pushed_graph(
    endpoint: str | None, base: str | None, timeout: float | None = None
) -> PushedGraph | None:
    """Return the copy on a server that is asked; None: no copy is asked.

    Raises:
        UserError: the URL is wrong, or a base is given without one.
    """
    if endpoint is None:
        if base is not None:
            raise UserError("--base needs --endpoint")
        return None
    from turngraph.data.memory_graph.ontology.endpoint_query import PushedGraph
    from turngraph.data.memory_graph.ontology.ontology import TG
    from turngraph.data.memory_graph.ontology.push import TIMEOUT_SECONDS

    return PushedGraph(endpoint, base or TG, timeout or TIMEOUT_SECONDS)


def add_import(added: argparse.ArgumentParser) -> None:
    """Add the options of ``import``."""
    files = added.add_mutually_exclusive_group(required=True)
    files.add_argument("--input", dest="path", metavar="FILE.jsonl", help="file of export --jsonl")
    files.add_argument("--rdf", metavar="FILE", help="file of export --trig, or any Turtle")
    add_ontology_options(added)


def add_export(added: argparse.ArgumentParser, kinds: argparse._MutuallyExclusiveGroup) -> None:
    """Add the options of ``export`` for RDF."""
    kinds.add_argument("--trig", metavar="FILE", help="typed facts, for other RDF tools")
    kinds.add_argument("--shacl", metavar="FILE", help="shapes of the ontology")
    added.add_argument("--classes", action="store_true", help="with --html: colours by class")
    added.add_argument(
        "--question", help="with --html: a computed answer with its facts, plan and SPARQL"
    )
    added.add_argument(
        "--base", metavar="IRI", help="with --trig: beginning of IRIs of this memory"
    )
    add_ontology_options(added)


def add_push(added: argparse.ArgumentParser) -> None:
    """Add the options of ``push``."""
    added.add_argument("--endpoint", required=True, metavar="URL", help="URL of SPARQL 1.1 queries")
    added.add_argument(
        "--update", metavar="URL", help="URL of updates; default: .../update for .../query"
    )
    added.add_argument("--base", metavar="IRI", help="beginning of IRIs of this memory")
    added.add_argument("--timeout", type=float, default=60.0, help="seconds of a request")
    add_ontology_options(added)


def add_ontology_options(added: argparse.ArgumentParser) -> None:
    """Add the options that choose the ontology of a command."""
    added.add_argument("--ontology", metavar="FILE.ttl", help="your classes and properties")
    added.add_argument(
        "--alone",
        action="store_true",
        help="use --ontology instead of Turngraph's, not in addition",
    )


def chosen_ontology(path: str | None, alone: bool) -> Ontology:
    """Read the ontology of a command.

    Raises:
        UserError: the file is wrong, or ``alone`` is given without one.
    """
    from turngraph.data.memory_graph.ontology.ontology import load_ontology

    if alone and path is None:
        raise UserError("--alone: given without --ontology")
    return load_ontology(path, alone)


def check_ontology(*, part: str, path: str, alone: bool) -> None:
    """Print what an ontology has; an error names file, line and column."""
    loaded = chosen_ontology(path, alone)
    classes = plural(len(loaded.classes), "class", "classes")
    properties = plural(len(loaded.properties), "property", "properties")
    print_line(f"{path}: {classes}, {properties}, {plural(loaded.num_words, 'surface word')}")


def sparql(
    *,
    db: str,
    query: str,
    as_of: str | None,
    seconds: int,
    as_json: bool,
    endpoint: str | None,
    base: str | None,
    ontology: str | None,
    alone: bool,
) -> None:
    """Print the rows of a SPARQL query, or its answer, or its triples.

    Raises:
        UserError: an option is wrong or not for an endpoint, or the query is refused.
    """
    from turngraph.data.memory_graph.ontology.ontology import short
    from turngraph.data.memory_graph.ontology.rdf import ask_sparql

    chosen_ontology(ontology, alone)  # raises errors of the file early
    pushed = pushed_graph(endpoint, base, seconds)
    if pushed is None:
        result = ask_sparql(db, query, as_of, ontology, alone, seconds)
    else:
        if as_of is not None or ontology is not None:
            raise UserError(
                "--as_of and --ontology cannot be given with --endpoint, which has a pushed copy"
            )
        from turngraph.data.memory_graph.record.open_store import open_store

        with open_store(db, read_only=True) as store:
            result = pushed.ask(query, store.revision)
    if as_json:
        print_json(dataclasses.asdict(result))
    elif result.answer is not None:
        print("yes" if result.answer else "no")
    elif result.columns:
        terms = [
            [term and (short(term["value"]) if term["type"] == "uri" else term["value"])
             for term in row]
            for row in result.rows
        ]  # fmt: skip
        print_rows(result.columns, terms)
    else:
        for line in result.triples.splitlines():
            print_line(line)


def coverage(*, part: str, db: str, ontology: str | None, alone: bool) -> None:
    """Print how many facts have a known relation, the unknown ones, and broken shapes by kind."""
    from turngraph.data.memory_graph.ontology.lens import Lens
    from turngraph.data.memory_graph.ontology.rdf import moment_of
    from turngraph.data.memory_graph.ontology.shapes import shape_report
    from turngraph.data.memory_graph.record.open_store import open_store

    with open_store(db, read_only=True) as store:
        lens = Lens(store, chosen_ontology(ontology, alone))
        lens.refresh()
        broken = Counter(one.kind for one in shape_report(lens, moment_of(None)))
    unknown, total = lens.unknown, len(lens.facts)
    typed = total - unknown.total()
    share = f" ({typed / total:.1%})" if total else ""
    print_line(f"{typed} of {plural(total, 'fact')} typed{share}")
    for relation, count in unknown.most_common(MOST_UNKNOWN):
        print_line(f"{count} unknown: {relation}")
    if len(unknown) > MOST_UNKNOWN:
        print_line(f"first {MOST_UNKNOWN} of {plural(len(unknown), 'unknown relation')}")
    for kind, count in sorted(broken.items()):
        print_line(f"{plural(count, 'broken shape')}: {kind}")


def export_rdf(
    *,
    db: str,
    trig: str | None,
    shacl: str | None,
    base: str | None,
    ontology: str | None,
    alone: bool,
) -> None:
    """Write the graph as TriG, or the shapes of its ontology as SHACL."""
    from turngraph.data.memory_graph.ontology.ontology import TG
    from turngraph.data.memory_graph.ontology.rdf_export import export_shacl, export_trig
    from turngraph.data.memory_graph.record.open_store import open_store

    chosen = chosen_ontology(ontology, alone)
    if trig is not None:
        with open_store(db, read_only=True) as store:
            count = plural(export_trig(store, chosen, trig, base or TG), "quad")
        print_line(f"{count} written to {trig}", trig)
    if shacl is not None:
        if base is not None:
            raise UserError("--base needs --trig")
        print_line(f"{plural(export_shacl(chosen, shacl), 'line')} written to {shacl}", shacl)


def typed_page(
    store: Store, classes: bool, question: str | None, ontology: str | None, alone: bool
) -> dict[str, Any]:
    """Return what the typed facts add to a page, as arguments of ``export_html``.

    Args:
        store: store of an open graph.
        classes: add the class of each object that has one, by id.
        question: question whose computed answer is added; None: none.
        ontology, alone: as in ``chosen_ontology``.

    Raises:
        UserError: no answer can be computed; the message says why.
    """
    if not classes and question is None:
        return {}
    from turngraph.data.memory_graph.ontology.compute import compute
    from turngraph.data.memory_graph.ontology.lens import Lens
    from turngraph.data.memory_graph.ontology.object_classes import object_classes
    from turngraph.data.memory_graph.ontology.typed_plan import NoPlan
    from turngraph.data.memory_graph.recall.ended_marks import stored_marks

    lens, added = Lens(store, chosen_ontology(ontology, alone)), dict[str, Any]()
    if question is not None:
        try:
            computed = compute(lens, question, mark=stored_marks(store).about)
        except NoPlan as reason:
            raise UserError(f"--question: not computed: {reason}") from None
        added["computed"] = {
            "question": question, "answer": computed.answer, "operation": computed.operation,
            "note": computed.note, "plan": computed.plan, "sparql": computed.queries,
            "facts": [fact.key for fact in computed.facts],
        }  # fmt: skip
    if classes:
        lens.refresh()
        added["classes"] = object_classes(lens)
    return added


def import_rdf(*, db: str, path: str, ontology: str | None, alone: bool) -> None:
    """Remember the facts of a file of RDF."""
    from turngraph.data.memory_graph.extract.given import GivenExtractor
    from turngraph.data.memory_graph.graph import MemoryGraph
    from turngraph.data.memory_graph.ontology.rdf_import import read_rdf

    chosen, extractor = chosen_ontology(ontology, alone), GivenExtractor()
    episodes = list(read_rdf(path, chosen, extractor))  # raises errors before a graph is created
    with MemoryGraph.open(db, extractor=extractor) as graph:
        print_line(remembered_line(graph.remember_many(episodes)))


def push(
    *,
    db: str,
    endpoint: str,
    update: str | None,
    base: str | None,
    timeout: float,
    ontology: str | None,
    alone: bool,
) -> None:
    """Replace the copy of the typed facts on a SPARQL 1.1 server."""
    from turngraph.data.memory_graph.ontology.ontology import TG
    from turngraph.data.memory_graph.ontology.push import push as push_quads
    from turngraph.data.memory_graph.record.open_store import open_store

    if timeout <= 0:
        raise UserError(f"--timeout: {timeout:g} given, must be above 0")
    chosen = chosen_ontology(ontology, alone)
    with open_store(db, read_only=True) as store:
        count, removed = push_quads(store, chosen, endpoint, update, base or TG, timeout)
    print_line(
        f"{plural(count, 'quad')} pushed, {plural(removed, 'graph')} of forgotten facts removed"
    )
    print_line("the server may keep their bytes on its disk")
