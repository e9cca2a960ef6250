"""Reads the tables of the results, and makes a page of each, for ``make docs``.

A table is ``benchmarks/results/NAME.csv``; ``tables.yaml`` beside it says what the table is, which
command made it, at which commit, and what to know when reading it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from turngraph.benchmarks.tables import table as markdown
from turngraph.configs.user_error import UserError

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Table:
    """One table of the results, with what made it."""

    title: str
    command: list[str]
    """Each command that made the table, as it was given at its commit."""
    at: str
    """Commit, seed and machine."""
    notes: list[str] = field(default_factory=list)
    """What to know when reading the table, and numbers of the same runs that it has no row for."""
    rows: list[list[str]] = field(default_factory=list)
    """The head and the rows; all have as many cells."""


def read_tables(folder: Path = RESULTS) -> dict[str, Table]:
    """The tables of a folder by name, in the order of its ``tables.yaml``.

    Raises:
        UserError: A table without its CSV file or the reverse, or a row that is longer or shorter
            than the head.
    """
    listed = folder / "tables.yaml"
    described = yaml.safe_load(listed.read_text("utf-8"))
    files = {path.stem for path in folder.glob("*.csv")}
    if odd := sorted(files ^ set(described)):
        raise UserError(f"{listed}: a table without its CSV file, or the reverse: {', '.join(odd)}")
    tables = {}
    for name, fields in described.items():
        path = folder / f"{name}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        for number, row in enumerate(rows, 1):
            if len(row) != len(rows[0]):
                raise UserError(
                    f"{path}: row {number} has {len(row)} cells, the head {len(rows[0])}"
                )
        tables[name] = Table(**fields, rows=rows)
    return tables


def table_page(name: str, table: Table) -> str:
    """A table as a page in Markdown."""
    return "\n".join(
        [
            f"# {table.title}",
            "",
            markdown(table.rows[0], table.rows[1:]),
            "",
            *(f"- {note}" for note in table.notes),
            "",
            f"Made at {table.at}, by",
            "",
            *("```", *table.command, "```"),
            "",
            f"The rows are `benchmarks/results/{name}.csv`.",
            "",
        ]
    )
