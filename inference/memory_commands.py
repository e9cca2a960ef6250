"""Commands of a memory graph: each does one thing and prints the result."""

from __future__ import annotations

import dataclasses
import io
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.json_fields import Location, well_formed
from turngraph.data.memory_graph.extract.english_rules import unread_line
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.turns import TurnExtractor
from turngraph.inference.computing_commands import computing as computed_by
from turngraph.inference.computing_commands import print_computed
from turngraph.inference.memory_printing import (
    fact_json,
    print_facts,
    print_json,
    print_line,
    print_recollection,
    print_rows,
    print_step,
    print_turns,
    recollection_json,
    remembered_line,
)
from turngraph.inference.model_options import make_embed
from turngraph.inference.ontology_commands import (
    export_rdf,
    import_rdf,
    typed_page,
)
from turngraph.inference.theme_commands import settings as theme_settings

if TYPE_CHECKING:
    from turngraph.data.memory_graph.memory_types import Episode, Extractor
    from turngraph.data.memory_graph.recall.recollection import Recollection
    from turngraph.data.memory_graph.record.wide_search import Mention
    from turngraph.data.memory_graph.upkeep.forget import Forgotten, Listed
    from turngraph.inference.api import QA
    from turngraph.inference.memory_options import AskOptions
    from turngraph.inference.memory_reader import MemoryReader

logger = logging.getLogger(__name__)

EXIT_PROBLEMS = EXIT_BUDGET = 1
MAX_FORMS = 3
MAX_TEXT_CHARS = 200
"""Longest text in the list of what would be forgotten."""


def remember(
    db: str,
    episodes: Iterable[Episode],
    *,
    extractor: Extractor,
    batch: int,
    max_minutes: float | None = None,
) -> None:
    """Remember episodes; committed batches stay, and the same command resumes after a stop.

    Args:
        db: path of the graph, created if missing.
        episodes: read one batch at a time.
        extractor: finds the statements of an episode.
        batch: episodes in a commit.
        max_minutes: stop after so many minutes; None: no limit.

    Raises:
        SystemExit: stopped early, with ``EXIT_GO_ON``.
    """
    with (
        StopRequest(max_minutes, "after the texts at hand") as stop,
        MemoryGraph.open(db, extractor=extractor) as graph,
    ):
        done = graph.remember_many(_until(stop, episodes), progress=True, batch=batch)
    print(remembered_line(done))
    inner = getattr(extractor, "inner", extractor)  # an ontology wraps the extractor
    if isinstance(inner, TurnExtractor) and inner.unread:
        logger.info("%s; their texts are found by similarity", unread_line(inner.unread))
    if stop:
        logger.info("stopped (%s); the same command resumes", stop.reason)
        raise SystemExit(EXIT_GO_ON)


def _until(stop: StopRequest, episodes: Iterable[Episode]) -> Iterator[Episode]:
    for episode in episodes:
        if stop:
            return
        yield episode


def ask(db: str, questions: Iterable[str], options: AskOptions) -> None:
    """Print the facts that answer each question, best first, with provenance, or "no answer".

    Each statement is printed once; JSON has each of its forms. The steps of a plan are printed as
    they finish. If ``--compute`` is given and no answer can be computed, the recalled facts are
    printed instead, marked as not computed.

    Args:
        db: path of the graph.
        questions: the questions, which may arrive one by one.
        options: options of the command.

    Raises:
        SystemExit: the token budget was spent, with ``EXIT_BUDGET``; the facts found so far are
            printed.
    """
    as_of, as_json = options.as_of, options.as_json
    settings, computing = options.recall(), computed_by(options)
    qa = None if options.reader is None else load_reader(options.reader)
    reader = None if qa is None else qa.reader(abstain_below=options.abstain_below)
    # one statement may be several facts: a triplet, a thesis, an episode
    wider = dataclasses.replace(settings, num_facts=MAX_FORMS * settings.num_facts)
    ask_plan = None if options.plan is None else plan_asker(options, qa, reader)
    embed = make_embed(None if options.no_embed else options.embedder)
    # vectors of words must not replace the encoder's on disk
    with MemoryGraph.open(db, embed, TurnExtractor(), read_only=options.no_embed) as graph:
        planned = None if ask_plan is None else ask_plan(graph)
        plans_by = None if computing is None else computing.make_planner
        plans = None if plans_by is None else plans_by(graph)
        for question in questions:
            if computing is not None and print_computed(
                graph, question, computing, plans, as_of=as_of, as_json=as_json
            ):
                continue
            if planned is not None:
                recalled = planned(question)
            elif options.mode == "themes":
                themed = theme_settings(options.min_similarity, options.num_facts)
                recalled = graph.ask_themes(question, as_of, themed, reader)
            elif options.mode == "both":
                recalled = graph.ask_both(question, as_of, settings if as_json else wider, reader)
            elif options.mode == "episodes":
                recalled = graph.ask_episodes(question, as_of, settings, reader)
            else:
                recalled = graph.ask(question, as_of, settings if as_json else wider, reader)
            if as_json:
                marked = {"computed": None} if computing is not None else {}
                print_json(recollection_json(recalled, as_of) | marked)
            else:
                print_recollection(recalled, settings.num_facts)
            if recalled.plan is not None and recalled.plan.stopped == "budget":
                logger.warning("stopped: budget")
                raise SystemExit(EXIT_BUDGET)


def load_reader(checkpoint: str) -> QA:
    """Load a trained checkpoint that answers; imports torch.

    Raises:
        UserError: it cannot be loaded.
    """
    from turngraph.inference.api import load

    return load(checkpoint)


def plan_asker(
    options: AskOptions, qa: QA | None, reader: MemoryReader | None
) -> Callable[[MemoryGraph], Callable[[str], Recollection]]:
    """Load a planner; return a function from an open graph to one that asks it by plans.

    Args:
        options: options of the command.
        qa: a checkpoint that answers the steps; None: the planner does.
        reader: answers the question from the facts of all steps; None: nothing does.

    Raises:
        UserError: an option of a model is missing or wrong.
    """
    settings = options.planning()
    make_planner, read = None, None
    if options.plan is not None and options.plan != "rules":
        from turngraph.inference.plan_models import planner_maker

        make_planner = planner_maker(options.plan, settings, options.models)
    if qa is not None:
        from turngraph.inference.plan_reader import PlanReader

        confidence = None if reader is None else reader.confidence
        read = PlanReader(qa.model, qa.builder, confidence=confidence)

    def opened(graph: MemoryGraph) -> Callable[[str], Recollection]:
        planner = None if make_planner is None else make_planner(graph)
        on_step = None if options.as_json else print_step
        return lambda question: graph.ask_planned(
            question, options.as_of, settings, planner, read, on_step, reader
        )

    return opened


def read_questions() -> Iterator[str]:
    """Yield the lines of standard input that are not blank.

    Raises:
        UserError: a line is not UTF-8.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    for number, line in enumerate(sys.stdin, 1):
        if line != well_formed(line):
            raise Location("standard input", number).error("not UTF-8")
        if line.strip():
            yield line.strip()


def show(*, db: str, entity: str, as_json: bool) -> None:
    """Print one object's names and the facts that hold now."""
    with MemoryGraph.open(db, read_only=True) as graph:
        shown = graph.show(entity)
    if as_json:
        facts = [fact_json(fact) for fact in shown.facts]
        print_json(dataclasses.asdict(shown) | {"facts": facts})
        return
    names = "; ".join(f"{name} (in {plural(n, 'episode')})" for name, n in shown.aliases)
    rows = [("object", f"#{shown.node} {shown.name}"), ("names", names)]
    print_rows(("", ""), [*rows, ("episodes", shown.num_episodes)])
    print_facts(shown.facts)


def history(*, db: str, entity: str | None, as_json: bool) -> None:
    """Print every fact of one object in order of time; without one, the turns of chats."""
    with MemoryGraph.open(db, read_only=True) as graph:
        if entity is None:
            print_turns(graph.turns(), as_json)
            return
        facts = graph.history(entity)
    if as_json:
        print_json([fact_json(fact) for fact in facts])
    else:
        print_facts(facts)


def stats(*, db: str, as_json: bool) -> None:
    """Print counts and file sizes."""
    with MemoryGraph.open(db, read_only=True) as graph:
        counts = dataclasses.asdict(graph.stats())
    if as_json:
        print_json(counts)
        return
    rows: list[tuple[str, object]] = []
    for name, value in counts.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        rows += [(f"{name} {part}".strip(), count) for part, count in parts]
    print_rows(("", ""), rows)


def merge(*, db: str, keep: str, other: str) -> None:
    """Make one object of two."""
    with MemoryGraph.open(db) as graph:
        print(f"merged into #{graph.merge(keep, other)}")


def split(
    *, db: str, entity: str, name: str, episodes: Sequence[int], facts: Sequence[int]
) -> None:
    """Make two objects of one."""
    with MemoryGraph.open(db) as graph:
        print(f"the new object is #{graph.split(entity, name, episodes, facts)}")


def rename(*, db: str, entity: str, name: str) -> None:
    """Give an object a new name."""
    with MemoryGraph.open(db) as graph:
        print(f"renamed #{graph.rename(entity, name)}")


def undo(*, db: str) -> None:
    """Undo the last edit."""
    with MemoryGraph.open(db) as graph:
        print_line(f"undone: {graph.undo()}")


def forget(
    *,
    db: str,
    episode: Sequence[int] | None,
    entity: str | None,
    source: str | None,
    wide: bool,
    yes: bool,
) -> None:
    """List what would be deleted and what would be left, ask for confirmation, delete it.

    Raises:
        UserError: nobody can be asked and ``yes`` is not given, or ``wide`` without an entity.
    """
    if wide and entity is None:
        raise UserError("--wide: given without --entity")
    with MemoryGraph.open(db) as graph:
        chosen = partial(graph.forget, episode=episode, entity=entity, source=source, wide=wide)
        _print_mentions([] if entity is None else graph.other_mentions(entity), wide)
        if not yes:
            listed = graph.to_forget(episode=episode, entity=entity, source=source, wide=wide)
            counts = chosen(dry_run=True)
            _print_listed(listed, counts.episodes)
            print_rows(("to forget", ""), _counts(counts))
            if not sys.stdin.isatty():
                raise UserError("nothing was forgotten: only a terminal can be asked; give --yes")
            if input("Forget this permanently? [y/N] ").strip().lower() not in ("y", "yes"):
                print("nothing was forgotten")
                return
        print_rows(("forgotten", ""), _counts(chosen()))


def _print_mentions(mentions: Sequence[Mention], wide: bool) -> None:
    """Print the episodes that may mention an entity in another spelling."""
    if not mentions:
        return
    does = "--wide also forgets" if wide else "only --wide would also forget"
    print(f"{does} {plural(len(mentions), 'episode')} with other spellings, or words like it:")
    rows = [(f"#{m.episode}", m.source, "; ".join(m.spans)) for m in mentions]
    print_rows(("episode", "source", "written"), rows)


def _print_listed(listed: Sequence[Listed], total: int) -> None:
    """Print the first episodes that would be deleted, and how many more there are."""
    rows = [(f"#{one.episode}", one.said, one.source, _cut(one.text)) for one in listed]
    print_rows(("episode", "said", "source", "text"), rows)
    if total > len(listed):
        print(f"and {plural(total - len(listed), 'more episode')}")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS - 3].rstrip()}..."


def _counts(forgotten: Forgotten) -> list[tuple[str, int]]:
    counts = dataclasses.asdict(forgotten)
    return [(name.replace("reopened", "hold again"), count) for name, count in counts.items()]


def check(*, db: str, rebuild: bool) -> None:
    """Print every problem on a line.

    Raises:
        SystemExit: there are problems, with ``EXIT_PROBLEMS``.
    """
    from turngraph.data.memory_graph.upkeep.check import check_file

    if rebuild:
        from turngraph.data.memory_graph.record.open_store import open_store
        from turngraph.data.memory_graph.upkeep.check import rebuild as rebuild_derived

        with open_store(db) as store:
            rebuild_derived(store)
    problems = check_file(db)
    for problem in problems:
        print_line(str(problem))
    if problems:
        raise SystemExit(EXIT_PROBLEMS)
    print("sound")


def restore(*, db: str, backup: str) -> None:
    """Replace a graph by a backup."""
    from turngraph.data.memory_graph.upkeep.backup import restore

    restore(backup, db)
    with MemoryGraph.open(db, read_only=True) as graph:
        counts = graph.stats()
    print_line(f"restored {db} from {backup}: {plural(counts.nodes['episodic'], 'episode')}")


def backup(*, db: str, output: str) -> None:
    """Copy the last committed state to a new file."""
    with MemoryGraph.open(db, read_only=True) as graph:
        graph.backup(output)
    print_line(f"written to {output}")


def import_file(
    *, db: str, path: str | None, rdf: str | None, ontology: str | None, alone: bool
) -> None:
    """Fill a new graph from a JSON Lines export, or remember the facts of a file of RDF."""
    if path is None:
        assert rdf is not None, "one of both is required"
        import_rdf(db=db, path=rdf, ontology=ontology, alone=alone)
        return
    if ontology is not None or alone:
        raise UserError("--ontology and --alone need --rdf")
    from turngraph.data.memory_graph.upkeep.transfer import import_jsonl

    with MemoryGraph.open(db) as graph:
        print(f"{plural(import_jsonl(graph.store, path), 'line')} read")


def export(
    *,
    db: str,
    jsonl: str | None,
    graphml: str | None,
    html: str | None,
    themes: str | None,
    trig: str | None,
    shacl: str | None,
    base: str | None,
    classes: bool,
    question: str | None,
    ontology: str | None,
    alone: bool,
    max_nodes: int,
) -> None:
    """Write the graph in the one form whose path is given; ``max_nodes`` limits the HTML pages."""
    if trig is not None or shacl is not None:
        export_rdf(db=db, trig=trig, shacl=shacl, base=base, ontology=ontology, alone=alone)
        return
    typed = classes or question is not None
    if base is not None or (not typed and (ontology is not None or alone)):
        raise UserError("--base, --ontology and --alone need --trig or --shacl")
    if typed and html is None:
        raise UserError("--classes and --question need --html")
    with MemoryGraph.open(db, read_only=True) as graph:
        if html is not None:
            from turngraph.data.memory_graph.upkeep.html_page import export_html

            added = typed_page(graph.store, classes, question, ontology, alone)
            shown, total = export_html(graph.store, html, max_nodes, **added)
            print_line(f"{shown} of {plural(total, 'node')} written to {html}", html)
        elif themes is not None:
            from turngraph.data.memory_graph.upkeep.themes_page import export_themes_html

            shown, total = export_themes_html(graph.store, themes, max_nodes)
            print_line(f"{shown} of {total} themes and passages written to {themes}", themes)
        elif jsonl is not None:
            from turngraph.data.memory_graph.upkeep.transfer import export_jsonl

            count = plural(export_jsonl(graph.store, jsonl), "line")
            print_line(f"{count} written to {jsonl}", jsonl)
        elif graphml is not None:
            from turngraph.data.memory_graph.upkeep.graphml import export_graphml

            count = plural(export_graphml(graph.store, graphml), "element")
            print_line(f"{count} written to {graphml}", graphml)
