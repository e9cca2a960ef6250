"""Prints the numbers of scored predictions as tables that fit into the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turngraph.data.cli import visible
from turngraph.data.json_fields import Json

METRICS = {
    "hit_at_1": "H@1",
    "hit_at_5": "H@5",
    "guess_at_1": "Guess@1",
    "guess_at_5": "Guess@5",
    "exact_match": "EM",
    "f1": "F1",
    "substring": "Substring",
    "answer_in_evidence": "In E_t",
    "num_tokens": "Tokens",
    "seconds": "Seconds",
}
"""Name in JSON and in calls -> heading of the column."""
WITHOUT_INTERVAL = ("guess_at_1", "guess_at_5", "num_tokens", "seconds")
"""Metrics whose interval is not printed; the JSON file has it."""
DIFFERENCES = ("hit_at_1", "hit_at_5")
MIN_NAME = 12
"""Least width of the column of names; longer names are wrapped in tables of limited width."""
Columns = dict[str, list[str]]
"""Heading of a column -> its cells."""


def print_tables(report: Json, console: Console) -> None:
    """Print the tables of a report of ``score_files``.

    They fit into the terminal, or into ``COLUMNS`` characters; through a pipe they are whole.
    """
    is_narrow = console.is_terminal or "COLUMNS" in os.environ
    for table in _tables(report, console.width if is_narrow else None):
        console.width = max(console.width, _width(table))
        console.print(table)


def _tables(report: Json, width: int | None) -> Iterator[Table]:
    """Yield the tables of a report, each as wide as ``width`` at most; None: of any width."""
    files = report["files"]
    names = _short_names([file["path"] for file in files])
    totals = {name: file["total"] for name, file in zip(names, files, strict=True)}
    title = "All questions; below each mean its 95 % interval; Guess@k: an entity of E_t at random"
    yield from _fitting(title, "predictions", totals, _metric_columns(totals), width)
    for name, file in zip(names, files, strict=True):
        for by, groups in file["by"].items():
            title = f"By {by}" if len(files) == 1 else f"{name} by {by}"
            yield from _fitting(title, by, groups, _metric_columns(groups), width)
    if differences := report["differences"]:
        title = f"Difference to {names[0]}, paired by question, and its 95 % interval"
        yield from _fitting(title, "predictions", names[1:], _differences(differences), width)


def _short_names(paths: list[str]) -> list[str]:
    """Return file names without folders if they are distinct, else paths."""
    names = [Path(path).stem for path in paths]
    return names if len(set(names)) == len(names) else paths


def _metric_columns(rows: dict[str, Json]) -> Columns:
    counts = {"Questions": "questions", "Errors": "errors"}
    columns = {name: [str(row[key]) for row in rows.values()] for name, key in counts.items()}
    return columns | {
        heading: [
            _cell(metric, row["metrics"][metric], interval=metric not in WITHOUT_INTERVAL)
            for row in rows.values()
        ]
        for metric, heading in METRICS.items()
    }


def _differences(rows: list[Json]) -> Columns:
    counts = {"Common": "common", "Only in baseline": "only_in_baseline", "Only here": "only_here"}
    columns = {name: [str(row[key]) for row in rows] for name, key in counts.items()}
    for metric in DIFFERENCES:
        differences = [row[metric] for row in rows]
        columns[METRICS[metric]] = [
            f"{one['mean']:+.3f}\n{one['low']:+.3f} to {one['high']:+.3f}" for one in differences
        ]
    return columns


def _fitting(
    title: str, first: str, names: Iterable[str], columns: Columns, width: int | None
) -> Iterator[Table]:
    """Yield tables that together have all columns, each as many as fit, one at least."""
    names, block = list(names), Columns()
    for heading, cells in columns.items():
        wider = _table(title, first, names, block | {heading: cells}, width)
        if block and width is not None and _width(wider) > width:
            yield _table(title, first, names, block, width)
            title, block = "", {}
        block[heading] = cells
    yield _table(title, first, names, block, width)


def _table(
    title: str, first: str, names: Sequence[str], columns: Columns, width: int | None
) -> Table:
    table = Table(title=_text(title) if title else None, title_justify="left", box=SIMPLE_HEAD)
    most = None if width is None else max(width // 3, MIN_NAME)
    table.add_column(first, overflow="fold", max_width=most)
    for heading in columns:
        table.add_column(heading, justify="right")
    for name, *cells in zip(names, *columns.values(), strict=True):
        table.add_row(_text(name), *cells)
    return table


def _text(text: str) -> Text:
    """Return a text from outside for a table: no markup, no control characters."""
    return Text(visible(text))


def _cell(metric: str, value: Json, interval: bool) -> str:
    if value["mean"] is None:
        return "-"
    digits = 1 if metric == "num_tokens" else 3
    mean = f"{value['mean']:.{digits}f}"
    return f"{mean}\n{value['low']:.3f}-{value['high']:.3f}" if interval else mean


def _width(table: Table) -> int:
    """Return the width of a table's columns; its title wraps."""
    console = Console(width=10_000)
    return console.measure(table, options=console.options).maximum
