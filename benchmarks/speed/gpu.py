"""Measures what one visit to a GPU can tell: training, peers, inference, precision.

    python -m turngraph.benchmarks.speed.gpu --minutes 11 --output FOLDER

Rows are measured most important first, each within its own time limit, and each is printed and
written to FOLDER/rows.jsonl as soon as it is there. The same command goes on after a stop; rows
that failed are tried again after those that were not yet tried. A second process measures, so that
one that hangs or dies costs its row alone. Models are random, of the shape of the named ones, and
are made on the device; examples are synthetic. Without a GPU, --tiny runs every row on a CPU with a
tiny model, to see that it can be run.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import distributions
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import torch

from turngraph.benchmarks.quality.records import keep_complete_lines
from turngraph.benchmarks.speed.gpu_bench import Bench, RowError, Values
from turngraph.benchmarks.speed.gpu_rows import RATIOS, ROWS, Aim, Row
from turngraph.benchmarks.tables import parser_of, table
from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.model.checkpoint import commit

logger = logging.getLogger("gpu")
LIBRARIES = ("torch", "transformers", "peft", "accelerate", "torch-geometric", "trl")
START = 300
"""Seconds in which the process that measures must be ready: it imports libraries. Four times that
with --tiny."""
LEAST = 15
"""Seconds that must be left to begin a row."""
BY_NAME = {row.name: row for row in ROWS}
Begin = Callable[[argparse.Namespace], "Worker"]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the rows that are missing, and write the report."""
    args = parse(sys.argv[1:] if argv is None else argv)
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    rows = Rows(folder / "rows.jsonl")
    try:
        measure(args, rows)
    finally:
        report = markdown(rows.found, facts(args))
        (folder / "report.md").write_text(report, encoding="utf-8")
        print(report)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options.

    Raises:
        UserError: there is no GPU and no --tiny, or no row has such a name.
    """
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=11.0, help="end after this time")
    add("--output", required=True, help="folder of rows.jsonl and report.md")
    add("--rows", nargs="+", help="only rows that begin so, such as a b")
    add("--tiny", action="store_true", help="a tiny model, on a CPU where there is no GPU")
    add("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    args.device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.device == "cpu" and not args.tiny:
        raise UserError("torch finds no GPU; --tiny runs the rows with a tiny model on a CPU")
    args.names = [
        row.name for row in ROWS if args.rows is None or row.name.startswith(tuple(args.rows))
    ]
    if not args.names:
        known = ", ".join(row.name for row in ROWS)
        raise UserError(f"option --rows: {args.rows} given, there are {known}")
    return args


class Rows:
    """The rows measured so far, in a file that is complete after every one.

    Args:
        path: JSON Lines; a last line that was cut off is removed.

    Attributes:
        found: values by the row's name, the latest of each.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.found = path, dict[str, Values]()
        if keep_complete_lines(path):
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.found[row.pop("row")] = row

    def add(self, name: str, values: Values) -> None:
        """Write and print a row."""
        self.found[name] = values
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"row": name} | values) + "\n")
        print(row_line(name, values), flush=True)

    def order(self, names: Iterable[str]) -> list[str]:
        """Return the rows to measure: those not tried, then those without values."""
        names = [name for name in names if name not in self.measured]
        return sorted(names, key=lambda name: name in self.found)

    @property
    def measured(self) -> dict[str, Values]:
        """The rows that have values."""
        failed = {"error", "skipped"}
        return {name: values for name, values in self.found.items() if not failed & values.keys()}


class Worker:
    """A process that measures rows.

    Args:
        args: options.

    Raises:
        UserError: it is not ready in time.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        context = get_context("spawn")
        self._rows, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(args, theirs), daemon=False)
        self._process.start()
        theirs.close()  # so that the end of the process ends the connection
        try:
            ready = self._rows.poll(START * (4 if args.tiny else 1)) and self._rows.recv()
        except EOFError:
            ready = False
        if not ready:
            raise UserError(f"the process that measures is not ready, its code is {self.stop()}")

    @property
    def has_ended(self) -> bool:
        """Whether the process measures nothing any more."""
        return self._process.exitcode is not None

    def measure(self, name: str, known: dict[str, Values], seconds: float) -> Values:
        """Return the values of a row, or the error that ended the process.

        Args:
            name: of the row.
            known: values of earlier rows.
            seconds: time limit.
        """
        try:
            self._rows.send((name, known, seconds))
            if self._rows.poll(seconds):
                values: Values = self._rows.recv()
                return values
        except (EOFError, OSError):
            return {"error": f"the process ended with code {self.stop()}"}
        self.stop()
        return {"error": f"stopped after {seconds:g} s"}

    def stop(self) -> int | None:
        """Kill the process and those that it has started; return its exit code."""
        started: list[psutil.Process] = []
        if not self.has_ended:
            with suppress(psutil.NoSuchProcess):
                started = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.join()
        return self._process.exitcode


def measure(args: argparse.Namespace, rows: Rows, begin: Begin = Worker) -> None:
    """Measure rows until all are there or the time is over.

    Args:
        args: options.
        rows: those that are there.
        begin: starts a process that measures.
    """
    end, worker = time.monotonic() + 60 * args.minutes, None
    try:
        for name in rows.order(args.names):
            if end - time.monotonic() < LEAST:
                break
            worker = begin(args) if worker is None or worker.has_ended else worker
            seconds = min(BY_NAME[name].limit(args.tiny), end - time.monotonic())
            values = worker.measure(name, rows.measured, max(seconds, 0))
            if worker.has_ended and time.monotonic() >= end:
                break  # the end of the visit stopped the row, which counts as not tried
            rows.add(name, values)
    finally:
        if worker is not None:
            worker.stop()


def work(args: argparse.Namespace, rows: Connection) -> None:
    """Measure in this process the rows that a ``Worker`` asks for, one after the other."""
    logging.disable(logging.WARNING)
    bench = Bench(torch.device(args.device), args.tiny, args.seed, args.output)
    rows.send(True)
    with suppress(EOFError):
        while True:
            name, bench.known, seconds = rows.recv()
            began = time.monotonic()
            bench.deadline = began + 0.8 * seconds
            values = values_of(BY_NAME[name], bench)
            rows.send(values | {"seconds": time.monotonic() - began})


def values_of(row: Row, bench: Bench) -> Values:
    """Return a row's values, or the error that it ended with."""
    if row.missing:
        return {"skipped": f"{row.missing} is not installed"}
    try:
        return row.measure(bench)
    except RowError as error:
        return {"skipped": str(error)}
    except Exception as error:  # the other rows are measured all the same
        logger.exception("%s", row.name)
        first = str(error).strip().partition("\n")[0]
        return {"error": f"{type(error).__name__}: {first}"}
    finally:
        bench.free()


def facts(args: argparse.Namespace) -> Values:
    """Return what the numbers depend on: command, commit, versions, device, seed."""
    cuda, found = args.device == "cuda", (one for one in distributions() if one.name in LIBRARIES)
    return {
        "command": " ".join(["python -m turngraph.benchmarks.speed.gpu", *sys.argv[1:]]),
        "commit": commit(),
        "versions": ", ".join(f"{one.name} {one.version}" for one in found),
        "device": torch.cuda.get_device_name() if cuda else "CPU, tiny model",
        "seed": args.seed,
    }


def markdown(found: dict[str, Values], given: Values) -> str:
    """Return the report: facts, a line for each row with its aims, and the ratios to peers."""
    lines = [f"{name}: {value}  " for name, value in given.items()]
    cells = []
    for row in ROWS:
        values = found.get(row.name, {"skipped": "not measured yet"})
        aims = "; ".join(aim.line(values) for aim in row.aims)
        cells.append((row.name, shown(values), aims))
    for ours, peer, value, least in RATIOS:
        rate, other = (found.get(name, {}).get(value) for name in (ours, peer))
        ratio = rate / other if rate and other else None
        aim = Aim("ratio", least=least).line({"ratio": ratio})
        cells.append((f"{ours} / {peer}", f"{value}, {shown({'ratio': ratio})}", aim))
    return "\n".join([*lines, "", table(["row", "values", "aims"], cells), ""])


def row_line(name: str, values: Values) -> str:
    """Return a row as it is printed, with its aims."""
    aims = [] if {"error", "skipped"} & values.keys() else BY_NAME[name].aims
    return "; ".join([f"{name}: {shown(values)}", *(aim.line(values) for aim in aims)])


def shown(values: Values) -> str:
    """Return values in words, floats with four digits."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "[" + ", ".join(map(_shown, value)) + "]" if isinstance(value, list) else str(value)


if __name__ == "__main__":
    run_cli(main)
