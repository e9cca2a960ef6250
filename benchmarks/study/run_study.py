"""Runs a study from its rows to its report: ``turngraph study --config sqa``.

Trains and answers every row with its random seeds, one run after the other, or several side by
side (``--at_once``). The same command resumes after a stop (``--max_minutes``, SIGTERM, a kill);
finished runs are never repeated.
``--plan`` prints what is left. Options such as ``--model.base_model`` override a config field of
all rows.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from turngraph.benchmarks.study.config import Size, Study, read_study
from turngraph.benchmarks.study.plan import minutes_left, print_plan
from turngraph.benchmarks.study.report import TITLES, write_report
from turngraph.benchmarks.study.runs import (
    Outcome,
    Run,
    check_finished,
    chosen_runs,
    execute,
    missing_files,
    study_runs,
)
from turngraph.benchmarks.tables import parser_of
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli

logger = logging.getLogger("study")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the unfinished runs of a study, and write its report."""
    args, more = parse(argv)
    with StopRequest(args.max_minutes) as stop:
        study, size = study_and_size(args)
        output = Path(args.output or f"runs/study/{Path(args.config).stem}_{args.size}")
        if missing := missing_files(study):
            raise UserError("missing data; each file with its command: " + "; ".join(missing))
        all_runs = study_runs(study, size, output, more)
        check_finished(all_runs)
        runs = chosen_runs(all_runs, args.rows, args.seeds)
        if args.plan:
            return print_plan(study, size, runs, all_runs)
        with locked(output):
            command = command_line(args, more)
            report = partial(write_report, study, size, all_runs, output=output, command=command)
            failed, stopped = run_all(
                size, runs, all_runs, stop=stop, write=report, at_once=args.at_once
            )
    if failed:
        raise UserError(f"{plural(len(failed), 'run')} failed: " + "; ".join(failed))
    if stopped:
        raise SystemExit(EXIT_GO_ON)


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the overrides of config fields."""
    parser = parser_of(__doc__)
    parser.prog = "turngraph study"
    parser.add_argument(
        "--config",
        required=True,
        help="a shipped study (convmix, hybridqa, sqa, worldfacts) or a YAML file",
    )
    parser.add_argument("--size", default="cpu", help="a size of the study")
    parser.add_argument("--output", help="folder for all runs and the report")
    parser.add_argument("--data", help="folder of the data, instead of the study's")
    parser.add_argument(
        "--max_minutes", type=float, help="stop after this time; the same command resumes"
    )
    parser.add_argument(
        "--plan", action="store_true", help="print the runs that are left; run nothing"
    )
    parser.add_argument(
        "--at_once",
        type=int,
        default=1,
        metavar="N",
        help="runs side by side, where each leaves "
        "most of a GPU or of the cores idle; the report's durations are then those of shared ones",
    )
    parser.add_argument("--rows", nargs="+", default=[], help="only these rows")
    parser.add_argument("--seeds", nargs="+", type=int, default=[], help="only these seeds")
    args, more = parser.parse_known_args(argv)
    if args.at_once < 1:
        raise UserError(f"--at_once: {args.at_once} given, must be at least 1")
    return args, more


def command_line(args: argparse.Namespace, more: Sequence[str]) -> str:
    """Return the command line that makes the whole study."""
    given = {name: getattr(args, name) for name in ("config", "size", "data", "output")}
    options = [part for name, value in given.items() if value for part in (f"--{name}", value)]
    return shlex.join(["turngraph", "study", *options, *more])


def study_and_size(args: argparse.Namespace) -> tuple[Study, Size]:
    """Return the study and the size that the options name."""
    study = read_study(args.config)
    if args.data is not None:
        study = replace(study, data=args.data)
    if args.size not in study.sizes:
        known = ", ".join(study.sizes)
        raise UserError(f"--size: {args.size!r} given, must be one of {known}")
    if unknown := [name for name in study.by if name not in TITLES]:
        known = ", ".join(TITLES)
        raise UserError(f"study {args.config}, field by: {unknown[0]!r}, must be of {known}")
    return study, study.sizes[args.size]


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Lock a folder against other studies."""
    output.mkdir(parents=True, exist_ok=True)
    with open(output / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"--output: {output} is in use by another study") from None
        yield


def run_all(
    size: Size,
    runs: Sequence[Run],
    all_runs: Sequence[Run],
    *,
    stop: StopRequest,
    write: Callable[[], None],
    at_once: int = 1,
) -> tuple[list[str], bool]:
    """Run the unfinished runs, each one once what it needs is done.

    Args:
        size: launcher and estimated durations.
        runs: the runs to make, in order.
        all_runs: all runs of the study; the durations of others are estimated from finished ones.
        stop: checked during each run.
        write: writes the report.
        at_once: number of runs side by side.

    Returns:
        A line for each failed run, and whether runs are left because of the stop.
    """
    failed: dict[Path, str] = {}
    stopped = False
    waiting = [run for run in runs if not run.state["done"]]
    running: dict[Future[Outcome], Run] = {}
    bar = tqdm(total=len(runs), initial=len(runs) - len(waiting), desc="study", unit="run")
    with logging_redirect_tqdm(), bar, ThreadPoolExecutor(at_once) as pool:
        start = _now if at_once == 1 else pool.submit
        while True:
            # a run whose training failed or is unfinished stays
            for run in [run for run in waiting if run.is_ready]:
                if len(running) == at_once:
                    break
                waiting.remove(run)
                minutes = minutes_left(run, size, all_runs)
                if run.uninterruptible and minutes > (stop.max_minutes or math.inf):
                    failed[run.folder] = f"{run.name}: needs --max_minutes {minutes:.0f} or more"
                elif stop or (run.uninterruptible and minutes > minutes_to(stop)):
                    stopped = True
                else:
                    logger.info("%s, about %.0f min; log in %s", run.name, minutes, run.folder)
                    running[start(execute, run, size, stop)] = run
            if not running:
                break
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                run = running.pop(future)
                try:
                    outcome = future.result()
                except UserError as error:
                    failed[run.folder] = f"{run.name}: {error}"
                    continue
                spent = run.state["seconds"] / 60
                logger.info("%s: %s after %.1f min", run.name, outcome, spent)
                if outcome == "failed":
                    failed[run.folder] = f"{run.name}: see {run.folder / 'log.txt'}"
                stopped = stopped or outcome == "stopped"
                bar.update(outcome == "done")
                if run.kind == "answer" and outcome == "done":
                    write()
    write()
    return list(failed.values()), stopped


def _now(run_one: Callable[[Run, Size, StopRequest], Outcome], *given: Any) -> Future[Outcome]:
    """Run in this thread, and return the outcome as a pool does."""
    future: Future[Outcome] = Future()
    try:
        future.set_result(run_one(*given))
    except UserError as error:
        future.set_exception(error)
    return future


def minutes_to(stop: StopRequest) -> float:
    """Return the minutes that are left of --max_minutes."""
    if stop.max_minutes is None:
        return math.inf
    return stop.max_minutes - (time.monotonic() - stop.started) / 60


if __name__ == "__main__":
    run_cli(main)
