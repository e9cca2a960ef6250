"""Types of options of the memory commands."""

from __future__ import annotations

import argparse

from turngraph.data.memory_graph.times import parse_time

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
