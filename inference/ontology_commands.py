"""Commands of the typed memory graph: check an ontology; options and output."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from turngraph.inference.memory_printing import plural, print_line

if TYPE_CHECKING:
    from turngraph.data.cli import CommandParser
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
