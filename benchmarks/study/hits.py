"""Writes which questions each row of a study answered correctly, and compares rows by them.

    python -m turngraph.benchmarks.study.hits docs/study/sqa_cpu/hits.csv \\
        runs/study/sqa_cpu/hits.csv --than text

A study writes ``hits.csv`` beside its report. The file holds no question and no answer, so that it
can be shared, and rows are compared question by question without their predictions.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from turngraph.benchmarks.study.row_scores import (
    Key,
    RowScores,
    minus,
    over_conversations_and_seeds,
    sign_flip_test,
    values_of,
)
from turngraph.benchmarks.tables import cell, table
from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.data.outputs import whole_file
from turngraph.data.scoring.score import Estimate

QUESTION = ("conversation", "turn")
H_AT_1_AND_5 = {"1": (1.0, 1.0), "5": (0.0, 1.0), "0": (0.0, 0.0)}
"""Entry of a question -> H@1 and H@5: correct, correct among the first five, wrong."""
ANY = "any"
"""Seed of an untrained row, whose answers are used for every seed."""
Hits = dict[Key, str]
Rows = dict[str, dict[str, Hits]]
"""Row -> seed -> question -> entry."""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the rows of some files, and their differences to one row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument(
        "files", nargs="+", help="hits.csv; for a seed in several files, the first one counts"
    )
    parser.add_argument("--than", default="text", help="the row that others are compared with")
    parser.add_argument("--rows", nargs="+", help="only these rows")
    args = parser.parse_args(argv)
    rows = read_hits(args.files)
    for name in (args.than, *(args.rows or ())):
        if name not in rows:
            raise UserError(f"{name!r} is not a row of {', '.join(args.files)}: {', '.join(rows)}")
    chosen = {name: rows[name] for name in args.rows or rows}
    heads = ["row", "seeds", "H@1", "H@5", "compared", f"H@1 minus {args.than}", "p"]
    heads += ["H@5 minus it", "p"]
    print(table(heads, ([name, *cells(row, rows[args.than])] for name, row in chosen.items())))


def estimate(row: Mapping[str, Hits], column: int) -> Estimate:
    """Return the mean of H@1 (column 0) or H@5 (column 1) with its interval."""
    return over_conversations_and_seeds([values(hits, column) for hits in row.values()])


def cells(row: Mapping[str, Hits], than: Mapping[str, Hits]) -> list[str]:
    """Return a row's number of seeds, H@1 and H@5, and its differences to another row.

    The number of compared questions, those that both rows have, comes before the differences. These
    cells are empty if there are no such questions.
    """
    found = [cell(estimate(row, column)) for column in (0, 1)]
    seeds = pairs(row, than)
    common = next((row[a].keys() & than[b].keys() for a, b in seeds), set())
    if row is than or not common:
        return [str(len(row)), *found, *[""] * 5]
    found.append(str(len(common)))
    for column in (0, 1):
        more = [minus(values(row[a], column), values(than[b], column)) for a, b in seeds]
        p = sign_flip_test(more)
        found += [
            cell(over_conversations_and_seeds(more), "+"),
            f"{p:.3f}" if p >= 0.001 else "< 0.001",
        ]
    return [str(len(row)), *found]


def pairs(row: Mapping[str, Hits], than: Mapping[str, Hits]) -> list[tuple[str, str]]:
    """Return the pairs of seeds to compare, the row's first."""
    if ANY in row:
        return [(ANY, seed) for seed in than]
    return [(seed, ANY if ANY in than else seed) for seed in row if {seed, ANY} & than.keys()]


def values(hits: Hits, column: int) -> dict[Key, float]:
    """Return H@1 (column 0) or H@5 (column 1) of every question."""
    return {key: H_AT_1_AND_5[entry][column] for key, entry in hits.items()}


def write_hits(rows: Mapping[str, RowScores], path: Path) -> None:
    """Write hits as CSV: a line per question, a column per row and seed, entries 1, 5 or 0."""
    columns: dict[str, Hits] = {}
    for name, row in rows.items():
        for seed, scores in row.by_seed.items():
            first, fifth = (values_of(scores, metric) for metric in ("hit_at_1", "hit_at_5"))
            columns[f"{name}/{ANY if row.untrained else seed}"] = {
                key: "1" if value else "5" if fifth[key] else "0" for key, value in first.items()
            }
    keys = dict.fromkeys(key for hits in columns.values() for key in hits)
    with whole_file(path) as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([*QUESTION, *columns])
        for key in keys:
            lines.writerow([*key, *(hits.get(key, "") for hits in columns.values())])


def read_hits(paths: Sequence[str]) -> Rows:
    """Read the rows of some files, by name and seed.

    Raises:
        UserError: a file is missing, a line is malformed, or two seeds of a row answer different
            questions; the message names the file.
    """
    rows: Rows = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                lines = list(csv.reader(file))
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 at byte {error.start + 1}") from None
        for name, seed, hits in _columns(path, lines):
            seeds = rows.setdefault(name, {})
            for other, known in seeds.items():
                if known.keys() != hits.keys():
                    raise UserError(
                        f"{path}: {name}/{seed} has answered other questions ({len(hits)}) than "
                        f"{name}/{other} ({len(known)})"
                    )
            seeds.setdefault(seed, hits)
    return rows


def _columns(path: str, lines: Sequence[Sequence[str]]) -> list[tuple[str, str, Hits]]:
    head = lines[0] if lines else []
    names = [column.rpartition("/") for column in head[2:]]
    are_rows = all(name and (seed == ANY or seed.isdigit()) for name, _, seed in names)
    if tuple(head[:2]) != QUESTION or not are_rows:
        raise UserError(f"{path}, line 1: must be {','.join(QUESTION)},ROW/SEED,...")
    columns: list[tuple[str, str, Hits]] = [(name, seed, {}) for name, _, seed in names]
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(head) or not set(line[2:]) <= {*H_AT_1_AND_5, ""}:
            raise UserError(f"{path}, line {number}: must be {len(head)} fields, entries 1, 5, 0")
        for entry, (_, _, hits) in zip(line[2:], columns, strict=True):
            if entry:
                hits[line[0], line[1]] = entry
    return columns


if __name__ == "__main__":
    run_cli(main)
