"""What the commands of the benchmarks share: parsers of options, and tables in Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from turngraph.data.cli import CommandParser
from turngraph.data.scoring.score import Estimate


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a module's documentation as it is, without options yet."""
    raw = argparse.RawDescriptionHelpFormatter
    return CommandParser(description=description, formatter_class=raw)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; each row has a cell for each head."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def cell(value: Estimate, sign: str = "") -> str:
    """Format a mean with its interval for a table; ``sign="+"`` is for differences."""
    return f"{value.mean:{sign}.3f} [{value.low:{sign}.3f}, {value.high:{sign}.3f}]"
