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
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import torch

from turngraph.benchmarks.speed.gpu_bench import Bench, RowError, Values
from turngraph.benchmarks.speed.gpu_rows import RATIOS, ROWS, Aim, Row
from turngraph.benchmarks.tables import parser_of, table
from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.model.checkpoint import commit

logger = logging.getLogger("gpu")
LIBRARIES = ("torch", "transformers", "peft", "accelerate", "torch-geometric", "trl")
START = 300
"""Seconds in which the process that measures must begin its first row: it imports libraries. Four
times that with --tiny."""
LEAST = 15
"""Seconds that must be left to begin a row."""
BY_NAME = {row.name: row for row in ROWS}
Begin = Callable[[list[str], argparse.Namespace, dict[str, Values]], "Worker"]


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
        path: JSON Lines; a last line that was cut off is ignored.

    Attributes:
        found: values by the row's name, the latest of each.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.found = path, dict[str, Values]()
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                with suppress(json.JSONDecodeError):
                    row = json.loads(line)
                    self.found[row.pop("row")] = row

    def add(self, name: str, values: Values) -> None:
        """Write and print a row."""
        self.found[name] = values
        was_cut = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        lead = "\n" if was_cut else ""  # it ends the line that was cut off
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{lead}{json.dumps({'row': name} | values)}\n")
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
    """A process that measures rows, and sends what it does over a connection.

    Args:
        names: rows, in their order.
        args: options.
        known: values of earlier rows.
    """

    def __init__(
        self, names: list[str], args: argparse.Namespace, known: dict[str, Values]
    ) -> None:
        context = get_context("spawn")
        self.events, theirs = context.Pipe(duplex=False)
        given = (names, args, known, theirs)
        self._process = context.Process(target=work, args=given, daemon=False)
        self._process.start()
        theirs.close()  # so that the end of the process ends the connection

    def next(self, seconds: float) -> tuple[str, str, Values] | None:
        """Return the next event; None if there is none in that time.

        Raises:
            EOFError: the process has ended.
        """
        if not self.events.poll(max(seconds, 0)):
            return None
        event: tuple[str, str, Values] = self.events.recv()
        return event

    def stop(self) -> int | None:
        """Kill the process and those that it has started; return its exit code."""
        started: list[psutil.Process] = []
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
    end = time.monotonic() + 60 * args.minutes
    left = rows.order(args.names)
    while left and end - time.monotonic() > LEAST:
        args.seconds = end - time.monotonic()
        worker, at_hand = begin(left, args, rows.measured), ""
        limit = time.monotonic() + START * (4 if args.tiny else 1)
        try:
            while left:
                event = worker.next(min(limit, end) - time.monotonic())
                if event is None:
                    _note_late(rows, at_hand, end, args.tiny)
                    break
                kind, name, values = event
                at_hand = name
                if kind == "begin":
                    limit = time.monotonic() + BY_NAME[name].limit(args.tiny)
                    continue
                rows.add(name, values)
                left.remove(name)
                at_hand = ""
        except EOFError:
            code = worker.stop()
            if not at_hand:  # it has not even begun a row
                raise UserError(f"the process that measures ended with code {code}") from None
            rows.add(at_hand, {"error": f"the process ended with code {code}"})
        finally:
            worker.stop()
        left = [name for name in left if name != at_hand]


def _note_late(rows: Rows, name: str, end: float, tiny: bool) -> None:
    """Note a row that took too long; one that the end of the visit stopped was not tried."""
    if name and time.monotonic() < end:
        rows.add(name, {"error": f"stopped after {BY_NAME[name].limit(tiny):g} s"})


def work(
    names: Sequence[str],
    args: argparse.Namespace,
    known: dict[str, Values],
    events: Connection,
) -> None:
    """Measure rows one after the other in this process, and send each.

    Args:
        names: rows, in their order.
        args: options; ``seconds`` is the time that is left.
        known: values of earlier rows.
        events: gets (``begin`` or ``row``, name, values).
    """
    end = time.monotonic() + args.seconds
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        bench = Bench(torch.device(args.device), args.tiny, args.seed, args.output, dict(known))
        for name in names:
            if end - time.monotonic() < LEAST:
                return
            row = BY_NAME[name]
            events.send(("begin", name, {}))
            bench.deadline = min(time.monotonic() + 0.8 * row.limit(args.tiny), end)
            began = time.monotonic()
            values = values_of(row, bench)
            values["seconds"] = time.monotonic() - began
            bench.known[name] = values
            events.send(("row", name, values))
    finally:
        logging.disable(disabled)


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
    cuda = args.device == "cuda"
    return {
        "command": " ".join(["python -m turngraph.benchmarks.speed.gpu", *sys.argv[1:]]),
        "commit": commit(),
        "versions": ", ".join(f"{name} {_version(name)}" for name in LIBRARIES),
        "device": torch.cuda.get_device_name() if cuda else "CPU, tiny model",
        "seed": args.seed,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


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
