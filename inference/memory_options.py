"""Types of options of the memory commands, and which of them go together."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from turngraph.data.memory_graph.times import parse_time

if TYPE_CHECKING:  # needs an extra
    from turngraph.data.memory_graph.recall.recollection import Mode

EXTRACTORS = ("rules", "lm", "endpoint", "given")


def positive(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number from 1")
    return int(text)


def row_id(text: str) -> int:
    """Parse the id of an episode or the key of a fact, also in its printed form: "#8"."""
    found = int(text.removeprefix("#"))
    if not 0 <= found < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} given, nothing has such a number")
    return found


def time_option(text: str) -> str:
    """Parse a time."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} given: {error}") from None


def extractor_option(text: str) -> str:
    """Check the name of an extractor; of spaCy's pipelines only that one is named."""
    is_spacy = text.startswith("spacy:") and text != "spacy:"
    if text not in EXTRACTORS and not is_spacy:
        known = ", ".join(EXTRACTORS)
        raise argparse.ArgumentTypeError(
            f"{text!r} given, must be one of {known} or spacy:PIPELINE"
        )
    return text


def asked_mode(
    *,
    plan: str | None,
    over: str | None,
    themes: bool,
    compute: bool,
    limits: Mapping[str, int],
    walks: bool,
    forbids: bool,
    min_similarity: float,
) -> Mode:
    """Return how a question is to be asked, by the options of ``ask`` that are given.

    Args:
        plan, over, themes, compute, min_similarity: the options.
        limits: limits of a plan that are given.
        walks: whether another mixture than the default is given.
        forbids: whether node types are forbidden.

    Raises:
        ValueError: options exclude each other.
    """
    if sum((themes, compute, plan is not None)) > 1:
        raise ValueError("--plan, --themes and --compute: give one of them")
    if over is not None and (themes or compute):
        raise ValueError("--over is not for --themes and --compute")
    if plan is None and limits:
        raise ValueError("--steps and --clues need --plan")
    if themes and (forbids or walks):
        raise ValueError("--themes: walks no triplets, so --mixture and --forbidden are not for it")
    if over == "episodes" and walks:
        raise ValueError("--over episodes: ranks by ppr, so --mixture is not for it")
    if plan is not None:
        return "plan"
    if themes:
        return "themes"
    if over == "episodes" and min_similarity:
        raise ValueError("--over episodes: ranks by no cosine, so --min_similarity is not for it")
    return "episodes" if over == "episodes" else "facts"


def add_db(added: argparse.ArgumentParser) -> None:
    """Add ``--db`` and ``--tenant``, which say where a memory graph is."""
    added.add_argument(
        "--db",
        required=True,
        metavar="my.db",
        help="the memory graph: a file, or a PostgreSQL database as postgresql://HOST/DATABASE",
    )
    added.add_argument(
        "--tenant", metavar="NAME", help="whose memory graph it is, in a PostgreSQL database"
    )
