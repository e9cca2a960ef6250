"""A memory graph on the command line: remember, ask, look at, put right, forget, keep safe."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from turngraph.data.cli import EXIT_GO_ON, CommandParser, StopRequest, run_cli
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extractor
from turngraph.inference.memory_commands import (
    Args,
    add_edits,
    add_keeping,
    add_looking,
    command,
    moment,
    positive,
)
from turngraph.inference.memory_printing import (
    print_facts,
    print_json,
    recollection_json,
    remembered_line,
)

logger = logging.getLogger("memory_graph")

MAKING = ("remember", "import")
"""Commands that make a graph where there is none."""
EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
LANGUAGE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SERVER = {
    "base_url": "the server, up to the version: http://localhost:8000/v1",
    "api_key_variable": "environment variable with the key",
    "max_tokens": "longest reply",
    "token_limit": "the field that carries it: max_tokens or max_completion_tokens",
    "response_format": "json_schema, json_object or none",
    "concurrency": "requests under way at once",
    "retries": "further attempts after a failed one",
    "timeout": "of one request, in seconds",
    "budget": "tokens of prompts and replies together; never exceeded",
    "prompt_price": "per million tokens",
    "completion_price": "per million tokens",
}
"""Options of ``--extractor endpoint``: fields of ``endpoint.EndpointSettings``."""


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and run one of the commands."""
    parser = CommandParser(prog="turngraph memory", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_remember(commands)
    add_ask(commands)
    add_looking(commands)
    add_edits(commands)
    add_keeping(commands)
    args = parser.parse_args(argv)
    check_files(args)
    args.run(args)


def check_files(args: Args) -> None:
    """Whether there is a graph to work on, which no output takes the place of.

    Raises:
        ValueError: a command that makes none names one that is not there, or writes over it.
    """
    graph = Path(args.db)
    if args.command not in MAKING and not graph.exists():
        raise ValueError(f"{graph}: no such memory graph")
    for name in ("output", "jsonl", "graphml", "html", "damaged"):
        path = getattr(args, name, None)
        if path is not None and Path(path).resolve() == graph.resolve():
            raise ValueError(f"--{name}: {path} is the memory graph itself")


# Remembering


def add_remember(commands: Any) -> None:
    """``remember`` and what each extractor wants to know."""
    added = command(commands, "remember", "remember what files say", remember_command)
    added.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="FILE",
        help="plain text, whose paragraphs become episodes; or .jsonl: texts or conversations",
    )
    added.add_argument(
        "--extractor", choices=("rules", "lm", "endpoint", "given"), default="rules",
        help="rules: no model; lm: a local model; endpoint: a server; given: .jsonl with triplets",
    )  # fmt: skip
    added.add_argument("--source", help="what the texts belong to; else their file's name")
    added.add_argument("--time", type=moment, help="when the texts without a time were said")
    added.add_argument("--speaker", help="who said the texts that name nobody")
    added.add_argument("--batch", type=positive, help="episodes in one commit; 200, with models 8")
    added.add_argument("--max_minutes", type=float, help="stop after so long; run again to go on")
    added.add_argument("--model", help=f"of lm and endpoint; lm: {LANGUAGE_MODEL}")
    added.add_argument("--device", default="cpu", help="of lm")
    for name, help in SERVER.items():
        added.add_argument(f"--{name}", help=f"of endpoint: {help}", type=server_type(name))


def server_type(name: str) -> Callable[[str], Any]:
    """What turns an option of a server into its value."""
    if name in ("max_tokens", "concurrency", "retries", "budget"):
        return int
    return float if name in ("timeout", "prompt_price", "completion_price") else str


def remember_command(args: Args) -> None:
    """``remember``: what is committed stays; the same command goes on where it stopped."""
    extractor, read = make_extractor(args)
    batch = args.batch or (200 if args.extractor in ("rules", "given") else 8)
    with StopRequest(args.max_minutes) as stop:
        episodes = until(stop, (episode for path in args.input for episode in read(path)))
        with MemoryGraph.open(args.db, extractor=extractor) as graph:
            named = (with_defaults(episode, args) for episode in episodes)
            done = graph.remember_many(named, progress=True, batch=batch)
    print(remembered_line(done))
    if stop:
        logger.info("stopped (%s); the same command goes on", stop.reason)
        raise SystemExit(EXIT_GO_ON)


def until(stop: StopRequest, episodes: Iterable[Episode]) -> Iterator[Episode]:
    """The episodes up to a request to stop."""
    for episode in episodes:
        if stop:
            return
        yield episode


def with_defaults(episode: Episode, args: Args) -> Episode:
    """An episode with what the command line says of all."""
    return dataclasses.replace(
        episode,
        source=args.source or episode.source,
        time=episode.time or args.time,
        speaker=episode.speaker or args.speaker,
    )


def make_extractor(args: Args) -> tuple[Extractor, Callable[[str], Iterable[Episode]]]:
    """The extractor that was chosen, and what reads its files.

    Raises:
        ValueError: an option is missing or wrong, or a model cannot be loaded.
    """
    from turngraph.data.memory_graph.inputs import read_episodes

    if args.extractor == "given":
        from turngraph.data.memory_graph.extract.given import GivenExtractor

        given = GivenExtractor()
        return given, given.read
    if args.extractor == "lm":
        return local_model(args), read_episodes
    if args.extractor == "endpoint":
        return server(args), read_episodes
    from turngraph.data.memory_graph.turns import TurnExtractor

    return TurnExtractor(), read_episodes


def local_model(args: Args) -> Extractor:
    """A local LM; the only way from here to ``model`` and torch."""
    from turngraph.data.memory_graph.extract.lm import LmExtractor
    from turngraph.model.constrained import ConstrainedLM

    name = args.model or LANGUAGE_MODEL
    return LmExtractor(ConstrainedLM(name, device=args.device).generate, f"lm:{name}")


def server(args: Args) -> Extractor:
    """A server that speaks the OpenAI chat API."""
    from turngraph.data.memory_graph.extract.endpoint import EndpointExtractor, EndpointSettings

    for name in ("base_url", "model"):
        if not getattr(args, name):
            raise ValueError(f"--extractor endpoint needs --{name}")
    given = {name: getattr(args, name) for name in SERVER if getattr(args, name) is not None}
    return EndpointExtractor(EndpointSettings(model=args.model, **given))


# Asking


def add_ask(commands: Any) -> None:
    """``ask`` and the settings of recall."""
    added = command(commands, "ask", "the facts that may answer a question", ask_command)
    added.add_argument("question", nargs="?", help="else one a line from standard input")
    added.add_argument(
        "--as_of", type=moment, metavar="TIME", help="what held then: 2019, 2019-05-03"
    )
    added.add_argument("--num_facts", type=positive, default=10, help="facts at most")
    added.add_argument(
        "--mixture",
        default="BeamSearch + WaterCircles",
        help="of BeamSearch, A*, WaterCircles, flat and ppr, joined by +",
    )
    added.add_argument(
        "--forbidden", action="append", default=[], choices=("E", "T", "O"),
        help="not walked to: episodes, theses or objects; may be given more than once",
    )  # fmt: skip
    added.add_argument("--min_similarity", type=float, default=0.0, help="cosine from which on")
    added.add_argument("--embedder", default=EMBEDDER, help="sentence encoder")
    added.add_argument("--no_embed", action="store_true", help="no model: compare by words")
    added.add_argument("--json", action="store_true", help="one JSON object a question")


def ask_command(args: Args) -> None:
    """``ask``: facts with scores and provenance, or "no answer"."""
    from turngraph.data.memory_graph.recall.recall import RecallSettings
    from turngraph.data.memory_graph.recall.traverse import Traversal
    from turngraph.data.memory_graph.turns import TurnExtractor

    settings = RecallSettings(
        Traversal(args.mixture), tuple(args.forbidden), args.num_facts,
        min_similarity=args.min_similarity,
    )  # fmt: skip
    # vectors by words are made in no time, and must not take the place of the encoder's
    with MemoryGraph.open(
        args.db, embedder(args), TurnExtractor(), read_only=args.no_embed
    ) as graph:
        for question in questions(args):
            found = graph.ask(question, args.as_of, settings)
            if args.json:
                print_json(recollection_json(found, args.as_of))
            elif found.no_answer:
                print("no answer")
            else:
                print_facts(found.facts, score=True)


def embedder(args: Args) -> Callable[[Sequence[str]], Any]:
    """What makes vectors of texts."""
    if args.no_embed:
        from turngraph.data.memory_graph.recall.word_vectors import word_vectors

        return word_vectors
    from turngraph.configs.models import sentence_encoder

    return sentence_encoder(args.embedder)


def questions(args: Args) -> Iterator[str]:
    """The question of the command line, or those of standard input."""
    if args.question is not None:
        yield args.question
        return
    yield from filter(None, map(str.strip, sys.stdin))


if __name__ == "__main__":
    run_cli(main)
