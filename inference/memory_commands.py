"""Commands that look at a memory graph, put it right, forget and keep it safe."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.times import parse_time
from turngraph.inference.memory_printing import (
    amount,
    fact_json,
    print_facts,
    print_json,
    print_rows,
)

EXIT_PROBLEMS = 1
Args = argparse.Namespace


def command(commands: Any, name: str, help: str, run: Callable[[Args], None]) -> Any:
    """A command of the parser, with the option that all have."""
    added = commands.add_parser(name, help=help, description=help)
    added.add_argument("--db", required=True, metavar="my.db", help="the memory graph")
    added.set_defaults(run=run)
    return added


def positive(text: str) -> int:
    """A whole number from 1, for ``argparse``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number from 1")
    return int(text)


def number(text: str) -> int:
    """The number of an episode or a fact, also as it is printed: "#8"."""
    found = int(text.removeprefix("#"))
    if not 0 <= found < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} given, nothing has such a number")
    return found


def moment(text: str) -> str:
    """A time, for ``argparse``."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} given: {error}") from None


# Looking


def add_looking(commands: Any) -> None:
    """``show``, ``history``, ``stats``."""
    for name, help, run in (
        ("show", "an object: its names, and what holds of it now", show_command),
        ("history", "all that ever held of an object, in order of time", history_command),
    ):
        added = command(commands, name, help, run)
        added.add_argument("entity", metavar="ENTITY", help='a name, or a number: "#12"')
        added.add_argument("--json", action="store_true")
    added = command(commands, "stats", "how much is in it", stats_command)
    added.add_argument("--json", action="store_true")


def show_command(args: Args) -> None:
    """``show``: one object."""
    with MemoryGraph.open(args.db, read_only=True) as graph:
        shown = graph.show(args.entity)
    if args.json:
        facts = [fact_json(fact) for fact in shown.facts]
        print_json(dataclasses.asdict(shown) | {"facts": facts})
        return
    names = "; ".join(f"{name} ({count})" for name, count in shown.aliases)
    rows = [("object", f"#{shown.node} {shown.name}"), ("names", names)]
    print_rows(("", ""), [*rows, ("episodes", shown.num_episodes)])
    print_facts(shown.facts)


def history_command(args: Args) -> None:
    """``history``: one object over time."""
    with MemoryGraph.open(args.db, read_only=True) as graph:
        facts = graph.history(args.entity)
    if args.json:
        print_json([fact_json(fact) for fact in facts])
    else:
        print_facts(facts)


def stats_command(args: Args) -> None:
    """``stats``: counts and sizes."""
    with MemoryGraph.open(args.db, read_only=True) as graph:
        found = dataclasses.asdict(graph.stats())
    if args.json:
        print_json(found)
        return
    rows = []
    for name, value in found.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        rows += [(f"{name} {part}".strip(), number) for part, number in parts]
    print_rows(("", ""), rows)


# Putting right, forgetting


def add_edits(commands: Any) -> None:
    """``merge``, ``split``, ``rename``, ``undo``, ``forget``."""
    added = command(commands, "merge", "one thing under two names", merge_command)
    added.add_argument("entity", metavar="KEEP")
    added.add_argument("other", metavar="OTHER", help="becomes part of KEEP")
    added = command(commands, "split", "two things under one name", split_command)
    added.add_argument("entity", metavar="ENTITY")
    added.add_argument("--name", required=True, help="of the new object")
    added.add_argument(
        "--episode", nargs="+", type=number, default=[], help="they speak of the new"
    )
    added.add_argument("--fact", nargs="+", type=number, default=[], help="they are about the new")
    added = command(commands, "rename", "another name; the old one stays an alias", rename_command)
    added.add_argument("entity", metavar="ENTITY")
    added.add_argument("name", metavar="NAME")
    command(commands, "undo", "take back the last merge, split or rename", undo_command)
    added = command(commands, "forget", "forget without a trace", forget_command)
    chosen = added.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--episode", nargs="+", type=number, help="numbers, as show prints them")
    chosen.add_argument("--entity", help="with every text that mentions it")
    chosen.add_argument("--source", help="all that came from it")
    added.add_argument("--yes", action="store_true", help="do not ask")


def merge_command(args: Args) -> None:
    """``merge``."""
    with MemoryGraph.open(args.db) as graph:
        print(f"merged into #{graph.merge(args.entity, args.other)}")


def split_command(args: Args) -> None:
    """``split``."""
    with MemoryGraph.open(args.db) as graph:
        new = graph.split(args.entity, args.name, args.episode, args.fact)
    print(f"the new object is #{new}")


def rename_command(args: Args) -> None:
    """``rename``."""
    with MemoryGraph.open(args.db) as graph:
        print(f"renamed #{graph.rename(args.entity, args.name)}")


def undo_command(args: Args) -> None:
    """``undo``."""
    with MemoryGraph.open(args.db) as graph:
        print(f"undone: {graph.undo()}")


def forget_command(args: Args) -> None:
    """``forget``: says what goes, and asks a person before it goes."""
    chosen = {name: getattr(args, name) for name in ("episode", "entity", "source")}
    with MemoryGraph.open(args.db) as graph:
        if not args.yes:
            print_rows(("to forget", ""), counted(graph.forget(**chosen, dry_run=True)))
            if not sys.stdin.isatty():
                raise ValueError("nothing was forgotten: give --yes where nobody can be asked")
            if input("Forget this for good? [y/N] ").strip().lower() not in ("y", "yes"):
                print("nothing was forgotten")
                return
        print_rows(("forgotten", ""), counted(graph.forget(**chosen)))


def counted(found: Any) -> list[tuple[str, int]]:
    """The numbers of a dataclass, by their names."""
    return list(dataclasses.asdict(found).items())


# Keeping


def add_keeping(commands: Any) -> None:
    """``check``, ``backup``, ``import``, ``export``."""
    added = command(commands, "check", "does it hold together? 1: no", check_command)
    added.add_argument("--rebuild", action="store_true", help="make again what is derived, first")
    added = command(commands, "backup", "a copy, also while it is in use", backup_command)
    added.add_argument("--output", required=True, metavar="FILE")
    added = command(commands, "import", "fill a new graph from an export", import_command)
    added.add_argument("--input", required=True, metavar="FILE.jsonl")
    added = command(commands, "export", "all of it, as a file", export_command)
    kinds = added.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--jsonl", metavar="FILE", help="what import reads")
    kinds.add_argument("--graphml", metavar="FILE", help="for graph programs")
    kinds.add_argument("--html", metavar="FILE", help="one page to look at and search")
    kinds.add_argument("--damaged", metavar="FILE", help="what can be read of a damaged graph")
    added.add_argument("--max_nodes", type=positive, default=5000, help="on the HTML page")


def check_command(args: Args) -> None:
    """``check``: every problem in a line."""
    from turngraph.data.memory_graph.upkeep.check import check_file

    if args.rebuild:
        from turngraph.data.memory_graph.record.store import Store
        from turngraph.data.memory_graph.upkeep.check import rebuild

        with Store(args.db) as store:
            rebuild(store)
    problems = check_file(args.db)
    for problem in problems:
        print(problem)
    if problems:
        raise SystemExit(EXIT_PROBLEMS)
    print("sound")


def backup_command(args: Args) -> None:
    """``backup``."""
    with MemoryGraph.open(args.db, read_only=True) as graph:
        graph.backup(args.output)
    print(f"written to {args.output}")


def import_command(args: Args) -> None:
    """``import``."""
    from turngraph.data.memory_graph.upkeep.transfer import import_jsonl

    with MemoryGraph.open(args.db) as graph:
        print(f"{import_jsonl(graph.store, args.input)} lines read")


def export_command(args: Args) -> None:
    """``export`` in one of its forms."""
    if args.damaged:
        from turngraph.data.memory_graph.upkeep.salvage import salvage

        saved = salvage(args.db, args.damaged)
        print(f"{amount(saved.episodes, 'episode')} written to {args.damaged}")
        return
    from turngraph.data.memory_graph.upkeep.graphml import export_graphml
    from turngraph.data.memory_graph.upkeep.transfer import export_jsonl

    with MemoryGraph.open(args.db, read_only=True) as graph:
        if args.html:
            from turngraph.data.memory_graph.upkeep.html_page import export_html

            shown, total = export_html(graph.store, args.html, args.max_nodes)
            print(f"{shown} of {total} nodes written to {args.html}")
        elif args.jsonl:
            print(f"{export_jsonl(graph.store, args.jsonl)} lines written to {args.jsonl}")
        else:
            count = export_graphml(graph.store, args.graphml)
            print(f"{count} elements written to {args.graphml}")
