"""Command line of a memory graph: remember, ask, inspect, edit, forget, back up, export.

    turngraph memory remember --db my.db --input notes.txt
    turngraph memory ask --db my.db "Where does Anna live?"

Here and in what it calls the memory graph meets models: LMs that extract, encoders that rank.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turngraph.configs.shipped import READER
from turngraph.configs.user_error import UserError
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.memory_graph.record.place import is_url, of_tenant
from turngraph.inference import (
    computing_commands,
    memory_commands,
    ontology_commands,
    postgres_commands,
    theme_commands,
)
from turngraph.inference.memory_options import (
    MIXTURE,
    AskOptions,
    add_db,
    positive,
    row_id,
    time_option,
)
from turngraph.inference.model_options import (
    EMBEDDER,
    LANGUAGE_MODEL,
    add_plan_options,
    make_embed,
)
from turngraph.inference.remember_commands import (
    add_model_options,
    add_remember_options,
    remember,
    remember_all,
)

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[CommandParser]

CREATING = ("remember", "import")
"""Commands that create a graph where there is none."""


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and run one command."""
    description = (__doc__ or "").partition("\n")[0]
    parser = CommandParser(prog="turngraph memory", description=description)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    added = add_command(commands, "remember", "remember the texts of files", remember)
    added.add_argument(
        "--max_minutes", type=float, help="stop after so many minutes; the same command resumes"
    )
    add_remember_options(added)
    add_remember_all(commands)
    add_ask(commands)
    add_themes(commands)
    add_inspection(commands)
    add_edits(commands)
    add_files(commands)
    ontology_commands.add_ontology(commands)
    added = add_command(commands, "sparql", "ask in SPARQL", ontology_commands.sparql)
    ontology_commands.add_sparql(added, time_option, positive)
    added = add_command(commands, "push", "copy typed facts to a server", ontology_commands.push)
    ontology_commands.add_push(added)
    help = "make the schema of a PostgreSQL database, grant it to a role or delete it"
    postgres_commands.add_schema(commands.add_parser("schema", help=help, description=help))
    help = "list the tenants of a PostgreSQL database, make or delete one"
    postgres_commands.add_tenants(commands.add_parser("tenants", help=help, description=help))
    options = vars(parser.parse_args(argv))
    command, run = options.pop("command"), options.pop("run")
    check_paths(command, options)
    run(**options)


def check_paths(command: str, options: dict[str, Any]) -> None:
    """Check that the graph exists and that no output overwrites it; put its tenant into its URL.

    Raises:
        UserError: a command that creates no graph names a missing one, or an output is the graph.
    """
    if "db" not in options:  # a command about a file, not about a graph
        return
    options["db"] = str(of_tenant(options["db"], options.pop("tenant")))
    if is_url(options["db"]):
        if command not in CREATING:
            from turngraph.data.memory_graph.record.open_store import open_store

            open_store(options["db"], read_only=True).close()
        return
    graph = Path(options["db"])
    if command not in CREATING and not graph.exists():
        raise UserError(f"{graph}: no such memory graph")
    for name in ("output", "jsonl", "graphml", "html", "themes", "trig", "shacl"):
        path = options.get(name)
        if isinstance(path, str) and os.path.realpath(path) == os.path.realpath(graph):
            raise UserError(f"--{name}: {path} is the memory graph itself")


def add_command(
    commands: Subparsers, name: str, help: str, run: Callable[..., None]
) -> CommandParser:
    """Add a command; ``run`` gets its options as keyword arguments."""
    added = commands.add_parser(name, help=help, description=help)
    add_db(added)
    added.set_defaults(run=run)
    return added


def add_remember_all(commands: Subparsers) -> None:
    """Add ``remember_all``."""
    purpose = "remember files, each in a memory graph of its own"
    added = commands.add_parser("remember_all", help=purpose, description=purpose)
    added.set_defaults(run=remember_all)
    added.add_argument(
        "--db_dir",
        required=True,
        metavar="DIR",
        help="folder of the graphs: anna.jsonl in anna.db; or URL of PostgreSQL: in tenant anna",
    )
    added.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="work on a Ray cluster whose nodes see the same folders; local: on this machine",
    )
    added.add_argument(
        "--max_minutes", type=float, help="stop after so many minutes; the same command resumes"
    )
    add_remember_options(added)


# Asking


def add_ask(commands: Subparsers) -> None:
    """Add ``ask`` and the settings of recall."""
    added = add_command(commands, "ask", "answer a question, and print the facts found for it", ask)
    added.add_argument("question", nargs="?", help="default: one a line from standard input")
    added.add_argument(
        "--as_of", type=time_option, metavar="TIME", help="facts that held then: 2019, 2019-05-03"
    )
    added.add_argument("--num_facts", type=positive, default=10, help="maximum number of facts")
    added.add_argument(
        "--mixture",
        default=MIXTURE,
        help="one or more of BeamSearch, A*, WaterCircles, flat, ppr and eigen, joined by +",
    )
    added.add_argument(
        "--forbidden",
        action="append",
        default=[],
        choices=("E", "T", "O"),
        help="do not walk to episodes, theses or objects; may be repeated",
    )
    added.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME.NUMBER=VALUE",
        help="a number of a traversal, such as BeamSearch.max_depth=3; may be repeated",
    )
    added.add_argument("--min_similarity", type=float, default=0.0, help="least cosine of a fact")
    add_plan_options(added, positive)
    added.add_argument("--embedder", default=EMBEDDER, help="sentence encoder")
    added.add_argument("--no_embed", action="store_true", help="no model: compare words")
    added.add_argument(
        "--json", dest="as_json", action="store_true", help="print one JSON object a question"
    )
    added.add_argument(
        "--themes", action="store_true",
        help="ask by themes, for broad questions; `themes` makes them first",
    )  # fmt: skip
    computing_commands.add_computing(added)
    add_model_options(added)


def ask(*, db: str, question: str | None, **given: Any) -> None:
    """Answer the question of the command line, or those of standard input.

    In ``--reader "Who came?"`` the words are the question, unless a folder has such a name.

    Raises:
        UserError: options exclude each other, or the question is blank.
    """
    reader = given["reader"] or ""
    if question is None and len(reader.split()) > 1 and not Path(reader).exists():
        question, given["reader"] = reader, READER
    if question is not None and not question.strip():
        raise UserError("the question is blank")
    asked = memory_commands.read_questions() if question is None else [question]
    memory_commands.ask(db, asked, AskOptions.of(given))


def add_themes(commands: Subparsers) -> None:
    """Add ``themes``."""
    added = add_command(commands, "themes", "group what was remembered into themes", make_themes)
    theme_commands.add_options(added, EMBEDDER, LANGUAGE_MODEL)


def make_themes(
    *, embedder: str, no_embed: bool, device: str, model: str | None, **options: Any
) -> None:
    """Make the themes, with a local LM if one is asked for; imports torch then."""

    def language_model(name: str) -> theme_commands.Generate:
        from turngraph.model.constrained import ConstrainedLM

        return ConstrainedLM(name, device=device).generate

    theme_commands.themes(
        embed=make_embed(None if no_embed else embedder),
        language_model=language_model,
        model=model,
        default_model=LANGUAGE_MODEL,
        **options,
    )


# Commands without a model


def add_inspection(commands: Subparsers) -> None:
    """Add ``show``, ``history`` and ``stats``."""
    added = add_command(
        commands, "show", "print an object's names and the facts that hold now",
        memory_commands.show,
    )  # fmt: skip
    added.add_argument("entity", metavar="ENTITY", help='a name, or an id: "#12"')
    added.add_argument("--json", dest="as_json", action="store_true")
    added = add_command(
        commands, "history",
        "print every fact of an object in order of time; without ENTITY, the turns of chats, with "
        "speaker, kind and time",
        memory_commands.history,
    )  # fmt: skip
    added.add_argument("entity", nargs="?", metavar="ENTITY", help='a name, or an id: "#12"')
    added.add_argument("--json", dest="as_json", action="store_true")
    added = add_command(commands, "stats", "print counts and file sizes", memory_commands.stats)
    added.add_argument("--json", dest="as_json", action="store_true")


def add_edits(commands: Subparsers) -> None:
    """Add ``merge``, ``split``, ``rename``, ``undo`` and ``forget``."""
    added = add_command(commands, "merge", "make one object of two", memory_commands.merge)
    added.add_argument("keep", metavar="KEEP")
    added.add_argument("other", metavar="OTHER", help="becomes part of KEEP")
    added = add_command(commands, "split", "make two objects of one", memory_commands.split)
    added.add_argument("entity", metavar="ENTITY")
    added.add_argument("--name", required=True, help="name of the new object")
    added.add_argument(
        "--episode", dest="episodes", nargs="+", type=row_id, default=[],
        help="episodes that mean the new object",
    )  # fmt: skip
    added.add_argument(
        "--fact", dest="facts", nargs="+", type=row_id, default=[],
        help="facts about the new object",
    )  # fmt: skip
    added = add_command(
        commands, "rename", "rename an object; the old name stays an alias", memory_commands.rename
    )
    added.add_argument("entity", metavar="ENTITY")
    added.add_argument("name", metavar="NAME")
    add_command(commands, "undo", "undo the last merge, split or rename", memory_commands.undo)
    added = add_command(commands, "forget", "delete without a trace", memory_commands.forget)
    chosen = added.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--episode", nargs="+", type=row_id, help="ids, as show prints them")
    chosen.add_argument("--entity", help="an object, and every episode that mentions it")
    chosen.add_argument("--source", help="every episode of a source")
    added.add_argument(
        "--wide", action="store_true",
        help="with --entity: also what is listed as written otherwise (@name, e-mail, other case)",
    )  # fmt: skip
    added.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def add_files(commands: Subparsers) -> None:
    """Add ``check``, ``backup``, ``restore``, ``import`` and ``export``."""
    added = add_command(
        commands, "check", "check the graph; exit code 1: problems", memory_commands.check
    )
    added.add_argument("--rebuild", action="store_true", help="rebuild derived data first")
    added = add_command(
        commands, "backup", "copy the graph, also while it is in use", memory_commands.backup
    )
    added.add_argument("--output", required=True, metavar="FILE")
    added = add_command(
        commands, "restore", "replace the graph by a backup", memory_commands.restore
    )
    added.add_argument("--backup", required=True, metavar="FILE")
    added = add_command(
        commands, "import", "fill a new graph from an export", memory_commands.import_file
    )
    ontology_commands.add_import(added)
    added = add_command(
        commands, "export", "write the whole graph to a file", memory_commands.export
    )
    kinds = added.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--jsonl", metavar="FILE", help="for import")
    kinds.add_argument("--graphml", metavar="FILE", help="for networkx, Gephi and others")
    kinds.add_argument("--html", metavar="FILE", help="one page to look at and search")
    kinds.add_argument("--themes", metavar="FILE", help="one page of the themes to walk through")
    ontology_commands.add_export(added, kinds)
    added.add_argument("--max_nodes", type=positive, default=5000, help="limit for HTML pages")


if __name__ == "__main__":
    run_cli(main)
