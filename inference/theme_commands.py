"""The command that makes the themes of a memory graph and lists them."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.inference.memory_printing import (
    print_json,
    print_line,
    print_themes,
    theme_json,
)

if TYPE_CHECKING:
    from turngraph.data.embedding import Embed
    from turngraph.data.memory_graph.recall.theme_search import AskThemes
    from turngraph.data.memory_graph.upkeep.make_themes import ThemesMade
    from turngraph.data.memory_graph.upkeep.theme_questions import Lm

logger = logging.getLogger(__name__)

SUMMARY = {
    "type": "object",
    "properties": {"summary": {"type": "string", "minLength": 1, "maxLength": 600}},
    "required": ["summary"],
    "additionalProperties": False,
}
"""Schema of an LM's reply with a summary."""
Generate = Callable[[Sequence[str], dict[str, Any]], Sequence[tuple[str, bool]]]


def settings(min_similarity: float, num_facts: int) -> AskThemes:
    """Return settings of asking by themes, for so many statements at most; imports scipy."""
    from turngraph.data.memory_graph.recall.theme_search import AskThemes

    return AskThemes(min_similarity=min_similarity, max_facts=num_facts)


def add_options(parser: argparse.ArgumentParser, embedder: str, model: str) -> None:
    """Add the options of ``themes``.

    Args:
        parser: parser of the command.
        embedder, model: names of the default sentence encoder and LM.
    """
    parser.add_argument(
        "--questions",
        choices=("none", "lm"),
        help="have an LM make questions that a passage answers; default: as before, at first none",
    )
    parser.add_argument(
        "--summaries", choices=("lm",), help="have an LM summarise each theme's quotations, too"
    )
    parser.add_argument("--model", help=f"the LM (default {model})")
    parser.add_argument("--device", default="cpu", help="device of the LM")
    parser.add_argument(
        "--max_minutes", type=float, help="stop after so many minutes; the same command resumes"
    )
    parser.add_argument("--embedder", default=embedder, help="sentence encoder")
    parser.add_argument("--no_embed", action="store_true", help="no model: compare words")
    parser.add_argument("--json", dest="as_json", action="store_true")


def themes(
    *,
    db: str,
    embed: Embed,
    language_model: Callable[[str], Generate],
    questions: str | None,
    summaries: str | None,
    model: str | None,
    default_model: str,
    max_minutes: float | None,
    as_json: bool,
) -> None:
    """Make the themes that are out of date, and print all of them.

    Args:
        db: path of the graph.
        embed: texts to unit vectors.
        language_model: loads an LM by name, which makes JSON of a schema.
        questions: ``none`` or ``lm``; None: as before.
        summaries: ``lm``, or None.
        model: name of the LM; None: the LM that made the questions before.
        default_model: name of the LM if none made questions before.
        max_minutes: stop after so many minutes; None: no limit.
        as_json: print the themes as one JSON object.

    Raises:
        UserError: summaries are wanted without questions.
        SystemExit: stopped early, with ``EXIT_GO_ON``.
    """
    with StopRequest(max_minutes) as stop, MemoryGraph.open(db, embed) as graph:
        maker = _maker(graph, questions, model, default_model)
        if maker == "none" and summaries is not None:
            raise UserError("--summaries lm: given without --questions lm")
        lm = None if maker == "none" else _lm(maker, language_model, summaries is not None)
        made = graph.make_themes(lm, lambda: bool(stop))
        shown = graph.themes()
    if as_json:
        print_json({"themes": [theme_json(theme) for theme in shown]})
    elif shown:
        print_themes(shown)
    line = made_line(made)
    if as_json:
        logger.info("%s", line)
    else:
        print_line(line)
    for name, count in made.counts.items():
        if count:
            logger.info("questions by the LM, %s: %d", name.replace("_", " "), count)
    if not made.complete:
        logger.info("stopped (%s); the same command resumes", stop.reason)
        raise SystemExit(EXIT_GO_ON)


def _maker(graph: MemoryGraph, questions: str | None, model: str | None, default_model: str) -> str:
    """Return who makes the questions: ``none``, or ``lm:`` and a name."""
    from turngraph.data.memory_graph.record.theme_rows import maker_of_questions

    with graph.store.reading():
        before = maker_of_questions(graph.store.db) or "none"
    if questions == "none" or (questions is None and before == "none"):
        return "none"
    if model is None and before != "none":
        return before
    return f"lm:{model or default_model}"


def _lm(maker: str, language_model: Callable[[str], Generate], summaries: bool) -> Lm:
    from turngraph.data.memory_graph.upkeep.theme_questions import Lm

    name = maker.removeprefix("lm:")
    generate = language_model(name)

    def write(prompts: Sequence[str]) -> list[str]:
        return [str(json.loads(reply)["summary"]) for reply, _ in generate(prompts, SUMMARY)]

    return Lm(
        name,
        lambda prompts, schema: generate(prompts, dict(schema)),
        write if summaries else None,
    )


def made_line(made: ThemesMade) -> str:
    """Describe the themes of a graph in one line."""
    from turngraph.data.eigen.themes import MIN_CHUNKS  # needs scipy, which takes long to import

    first, second = made.themes
    passages, sources = plural(made.chunks, "passage"), plural(made.sources, "source")
    questions = f", {plural(made.questions, 'question')} ({made.maker})" if made.questions else ""
    blank = f", {plural(made.blank, 'text')} without words left out" if made.blank else ""
    none = f"no themes (a source needs {MIN_CHUNKS} passages)"
    counts = plural(first, "theme") if first else none
    above = f", {plural(second, 'theme')} of themes" if second else ""
    return f"{passages}, {sources}, {counts}{above}{questions}{blank}, {made.seconds:.1f} s"
