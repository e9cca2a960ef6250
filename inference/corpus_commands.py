"""Commands of ``turngraph corpus``: build, add, remove, search, show, check and switch."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import EXIT_GO_ON, CommandParser, StopRequest, visible
from turngraph.data.corpus.build import Changes, CorpusBuilder, OnRay
from turngraph.data.corpus.corpus import Corpus
from turngraph.data.corpus.files import only_writer
from turngraph.data.corpus.segment_writer import Encoder, Stopped
from turngraph.data.corpus.source_files import find_sources
from turngraph.data.corpus.version import CURRENT, read_version, switch, version_numbers
from turngraph.data.embedding import Embed
from turngraph.inference.model_options import EMBEDDER

logger = logging.getLogger(__name__)

WORD_VECTORS = "words"
"""Name of hashed words and subwords as a sentence encoder, which needs no model."""


def main(argv: Sequence[str] | None = None) -> None:
    """Keep a corpus of passages on disk, which questions search without reading it into memory.

    Raises:
        UserError: an input, the corpus or an option is wrong; the message names it.
    """
    args = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], None] = args.run
    command(args)


def _parser() -> CommandParser:
    description = (main.__doc__ or "").partition("\n")[0]
    parser = CommandParser(prog="turngraph corpus", description=description)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        purpose = (run.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(name, help=purpose, description=purpose)
        command.set_defaults(run=run)
        return command

    for name, run, option in (("build", build, "--output"), ("add", add_sources, "--corpus")):
        command = add(name, run)
        command.add_argument("--input", nargs="+", required=True, metavar="FILE_OR_FOLDER")
        command.add_argument(option, dest="corpus", required=True, metavar="DIR")
        if name == "build":
            command.add_argument(
                "--vectors",
                nargs="?",
                const=EMBEDDER,
                metavar="ENCODER",
                help=f"also make sentence vectors, by {EMBEDDER}, a model of yours, or words (no "
                "model); for evidence.retriever dense and rrf",
            )
        command.add_argument("--strict", action="store_true", help="stop at an unreadable document")
        command.add_argument("--max_minutes", type=float, metavar="N", help="stop after N minutes")
        command.add_argument(
            "--ray",
            metavar="ADDRESS",
            help="read sources in parallel on a Ray cluster whose nodes see the same folders; "
            "local: on the cores of this machine",
        )
        _add_keep(command)
    command = add("remove", remove)
    _add_corpus(command)
    command.add_argument("--source", nargs="+", required=True, metavar="NAME")
    _add_keep(command)
    command = add("search", search)
    _add_corpus(command)
    command.add_argument("question")
    command.add_argument("--top_k", type=int, default=5, metavar="N")
    command.add_argument("--retriever", choices=("bm25", "dense", "rrf"), default="bm25")
    command.add_argument("--version", type=int, metavar="N")
    command = add("show", show)
    _add_corpus(command)
    command.add_argument("--sources", action="store_true", help="list every source")
    _add_corpus(add("check", check))
    command = add("switch", switch_version)
    _add_corpus(command)
    command.add_argument("--version", type=int, required=True, metavar="N")
    return parser


def _add_corpus(command: argparse.ArgumentParser) -> None:
    command.add_argument("--corpus", required=True, metavar="DIR")


def _add_keep(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--keep", type=int, default=1, metavar="N", help="older versions to keep (default 1)"
    )


def encoder_of(name: str | None) -> Encoder | None:
    """Return the sentence encoder of a corpus by its name; None for no vectors.

    Raises:
        UserError: there is no such model.
    """
    if name is None:
        return None
    return Encoder(name, embed_of(name))


def embed_of(name: str) -> Embed:
    """Return a sentence encoder by its name; ``words`` needs no model."""
    if name == WORD_VECTORS:
        from turngraph.data.memory_graph.recall.word_vectors import word_vectors

        return word_vectors
    from turngraph.configs.models import sentence_encoder

    return sentence_encoder(name)


def build(args: argparse.Namespace) -> None:
    """Make a corpus of files, or bring it up to date with them."""
    folder = Path(args.corpus)
    is_there = (folder / CURRENT).is_file()
    name = args.vectors or (read_version(folder).embedder if is_there else None)
    _update(args, name, mirror=True)


def add_sources(args: argparse.Namespace) -> None:
    """Add files to a corpus, or replace those that changed."""
    _update(args, read_version(Path(args.corpus)).embedder, mirror=False)


def _update(args: argparse.Namespace, embedder: str | None, mirror: bool) -> None:
    """Read the inputs, make a version of them, and print what was done."""
    began = time.monotonic()
    sources, skipped = find_sources(args.input, args.strict)
    for error in skipped:
        logger.warning("skipped %s", error)
    with StopRequest(args.max_minutes, "after the passages at hand") as stop:
        on_ray = None if args.ray is None else OnRay(args.ray, partial(encoder_of, embedder))
        builder = CorpusBuilder(
            Path(args.corpus), encoder_of(embedder), keep=args.keep, stop=stop, ray=on_ray
        )
        try:
            changes = builder.build(sources, mirror, args.strict)
        except Stopped:
            logger.info("stopped (%s); the same command goes on", stop.reason)
            raise SystemExit(EXIT_GO_ON) from None
    print(_said(changes))
    logger.info("done in %.1f s", time.monotonic() - began)


def remove(args: argparse.Namespace) -> None:
    """Remove sources from a corpus."""
    folder = Path(args.corpus)
    encoder = encoder_of(read_version(folder).embedder)
    print(_said(CorpusBuilder(folder, encoder, keep=args.keep).remove(args.source)))


def _said(changes: Changes) -> str:
    version = changes.version
    counts = {
        "added": changes.added,
        "replaced": changes.replaced,
        "removed": changes.removed,
        "unchanged": changes.kept,
        "skipped": changes.skipped,
    }
    done = ", ".join(f"{len(names)} {what}" for what, names in counts.items() if names)
    total = f"{plural(version.num_passages, 'passage')} of {plural(len(version.sources), 'source')}"
    return f"{version.folder.parents[1]}: {done}; version {version.number}: {total}"


def search(args: argparse.Namespace) -> None:
    """Find the best passages for a question."""
    if args.top_k < 1:
        raise UserError(f"--top_k {args.top_k}: must be at least 1")
    corpus = Corpus(args.corpus, args.version)
    embedder = None if args.retriever == "bm25" else corpus.version.embedder
    index = corpus.index(args.retriever, embed_of(embedder) if embedder else None)
    retrieved = index.rank(args.question, args.top_k)
    if not retrieved:
        print("no passage has a word of the question")
    for rank, passage in enumerate(retrieved, 1):
        id_, text = visible(passage.evidence.id), visible(passage.evidence.text)
        print(f"{rank:>3}  {passage.score:8.3f}  {id_}\n     {text}")


def show(args: argparse.Namespace) -> None:
    """Show versions, counts and sources of a corpus."""
    folder = Path(args.corpus)
    current = read_version(folder)
    for number in version_numbers(folder):
        version = read_version(folder, number)
        mark = "*" if number == current.number else " "
        passages = plural(version.num_passages, "passage")
        sources = plural(len(version.sources), "source")
        vectors = f", vectors by {version.embedder}" if version.embedder else ""
        print(f"{mark} version {number}: {passages} of {sources}{vectors}")
    if args.sources:
        for name, of in sorted(current.sources.items()):
            print(f"{of['passages']:>9}  {of['sha256'][:12]}  {name}")


def check(args: argparse.Namespace) -> None:
    """Check the hashes of all files of the current version."""
    corpus = Corpus(args.corpus, hashes=True)
    count = plural(len(corpus), "passage")
    print(f"{args.corpus}: version {corpus.version.number} is whole, {count}")


def switch_version(args: argparse.Namespace) -> None:
    """Make another version the current one."""
    folder = Path(args.corpus)
    read_version(folder)
    with only_writer(folder):
        switch(folder, args.version)
    print(f"{args.corpus}: version {args.version} is the current one")
