"""Measures how many small faults the tests detect, by mutation testing on a random sample.

    python -m turngraph.benchmarks.quality.mutations --num_faults 60 --seed 0

A fault is one changed operator, condition or number, or one call left out, in any function of the
product. Each is made in a copy of the last commit. The nearest four test files run first, whole:
those called like the fault's file, then those that name its function, then by imports. Where none
fails, the tests of further files follow that reach the fault, file after file. A test that fails
without the fault too, as a busy machine makes some, tells nothing; one that takes three times as
long and does not end fails. Time is CPU time. Prints two lines per fault and the share that no test
detects. ``--kept`` holds what came of each run, so that the same command resumes, and runs only the
rest once tests were added.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from turngraph.benchmarks.quality.faults import Fault, draw
from turngraph.benchmarks.quality.forked_pytest import ForkedPytest
from turngraph.benchmarks.quality.reaching_tests import NO_TESTS, ReachingTests
from turngraph.data.cli import run_cli

ROOT = Path(__file__).resolve().parents[2]
NUM_NEAR = 4
"""Test files that run whole on a fault first; for most, one of them fails."""
NEAR_LIMIT = 15.0
"""CPU seconds for each of these; of a longer file, the tests that reach the fault run later."""
RUN_LIMIT = 60.0
"""CPU seconds for one run; after that the tests run without the fault, to compare."""
ENDLESS = 3
"""Times that a run takes longer with an endless fault than without it, at least."""

FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/[^\s\[]+)", re.MULTILINE)
"""A test in pytest's summary, without parameters, which may have any characters."""


class Outcome(NamedTuple):
    """What the tests say of a fault: whether one fails, and which, or why none does."""

    seen: bool
    reason: str


def main(argv: Sequence[str] | None = None) -> None:
    """Draw faults, run the tests on each and print which survive."""
    args = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the children
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "turngraph"
        commit = checkout(copy)
        drawn = draw(copy, args.num_faults, args.seed, args.under)
        with ForkedPytest(copy) as pytest:
            judge = Judge(pytest, drawn, Path(args.kept))
            for fault, outcome in tqdm(judge.outcomes(args.limit), total=len(drawn), unit="fault"):
                survivors += not outcome.seen
                tqdm.write(described(fault, outcome), file=sys.stdout)
                sys.stdout.flush()
    share = survivors / max(1, len(drawn))
    print(
        f"{survivors} of {len(drawn)} faults survive ({share:.0%}), seed {args.seed}, {commit[:7]}"
    )


def described(fault: Fault, outcome: Outcome) -> str:
    """Return two lines: a fault with what came of it, and the reason."""
    state = "seen    " if outcome.seen else "SURVIVED"
    change = f"{_short(fault.old)}  ->  {_short(fault.new)}"
    return f"{state}  {fault.path}:{fault.line}  {change}\n          {outcome.reason}"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--num_faults", type=int, default=60)
    add("--seed", type=int, default=0, help="random seed of the draw")
    add("--under", default="", help="draw from this folder or file alone")
    add("--kept", default=str(ROOT / "build" / "mutations"), help="folder for what is measured")
    add(
        "--limit",
        type=float,
        default=600,
        help="CPU seconds for the tests of a fault; if they do not decide, it counts as a survivor",
    )
    return parser.parse_args(argv)


def checkout(copy: Path) -> str:
    """Clone the last commit to a new folder and return the commit's hash."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True)
    head = ["git", "rev-parse", "HEAD"]
    return subprocess.run(head, cwd=copy, capture_output=True, text=True, check=True).stdout.strip()


class KeptRuns:
    """What came of each run of a test file on a fault, in a file.

    A failure counts as long as the faulty file and the test file are the same, a run without one as
    long as all that the test file depends on is.

    Args:
        path: JSON Lines file, made if it is missing.
        reaching: has hashes of every file of the commit, and of what each test file depends on.
    """

    def __init__(self, path: Path, reaching: ReachingTests) -> None:
        self.path, self.reaching = path, reaching
        self.failed: dict[str, str] = {}
        self.passed: set[tuple[str, str]] = set()
        blobs, digests = reaching.blobs, {test: reaching.digest(test) for test in reaching.steps}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for record in map(json.loads, lines):
            fault, test_file = record["fault"], record["test_file"]
            if record["failed"] and blobs.get(test_file) == record["test_blob"]:
                self.failed[fault] = record["failed"]
            elif digests.get(test_file) == record["depends_on"]:
                self.passed.add((fault, test_file))

    def add(self, fault: Fault, test_file: str, failed: str | None) -> None:
        """Keep what a test file says of a fault: the test that failed, or None."""
        key = self._key(fault)
        if failed:
            self.failed[key] = failed
        else:
            self.passed.add((key, test_file))
        hashes = (self.reaching.blobs[test_file], self.reaching.digest(test_file))
        record = {"fault": key, "test_file": test_file, "failed": failed}
        record |= dict(zip(("test_blob", "depends_on"), hashes, strict=True))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def failure(self, fault: Fault) -> str | None:
        """Return the test that failed on a fault; None if none is known."""
        return self.failed.get(self._key(fault))

    def has_passed(self, fault: Fault, test_file: str) -> bool:
        """Tell whether a test file is known not to detect a fault."""
        return (self._key(fault), test_file) in self.passed

    def _key(self, fault: Fault) -> str:
        blob = self.reaching.blobs[fault.path]
        return hashlib.sha256(json.dumps([blob, *fault]).encode()).hexdigest()


class Judge:
    """Runs tests on faults until one fails that passes without the fault.

    Args:
        pytest: of a clone of the repository.
        faults: those to judge.
        kept: folder for what was found.
    """

    def __init__(self, pytest: ForkedPytest, faults: Sequence[Fault], kept: Path) -> None:
        self.pytest, self.faults = pytest, faults
        self.reaching = ReachingTests(pytest, faults, kept / "reached")
        self.kept = KeptRuns(kept / "runs.jsonl", self.reaching)
        self.sound: dict[str, float | None] = {}  # CPU seconds of tests without a fault
        self.unsure: dict[Fault, list[str]] = defaultdict(list)
        self.seconds = 0.0  # of the last run on a fault

    def outcomes(self, limit: float) -> Iterator[tuple[Fault, Outcome]]:
        """Yield each fault with its outcome: first those that the nearest test files detect.

        Args:
            limit: CPU seconds for the further tests of a fault.
        """
        waiting = []
        for fault in self.faults:
            near = self.reaching.files(fault)[:NUM_NEAR]
            if any(
                self.detects(test, [test], fault, NEAR_LIMIT)
                for test in near
                if self._is_new(fault, test)
            ):
                yield fault, Outcome(True, self.kept.failure(fault) or "")
            elif failed := self.kept.failure(fault):
                yield fault, Outcome(True, failed)
            else:
                waiting.append(fault)
        for fault in waiting:
            yield fault, self.further(fault, limit)

    def further(self, fault: Fault, limit: float) -> Outcome:
        """Run the tests that reach a fault, file after file, until one fails."""
        used, self.unsure[fault] = 0.0, []
        for test_file in (files := self.reaching.files(fault)):
            if not self._is_new(fault, test_file):
                continue
            if used > limit:
                self.unsure[fault].append(test_file)
            elif not (tests := self.reaching.tests(test_file, fault)):
                self.kept.add(fault, test_file, None)
            elif self.detects(test_file, tests, fault):
                return Outcome(True, self.kept.failure(fault) or "")
            else:
                used += self.seconds
        if unsure := self.unsure[fault]:
            left = f"{len(unsure)} of {len(files)} test files left"
            return Outcome(False, f"not decided in {limit:g} CPU s, {left}: {', '.join(unsure)}")
        return Outcome(False, f"passed: {len(files)} test files" if files else "nothing reaches it")

    def _is_new(self, fault: Fault, test_file: str) -> bool:
        return not (self.kept.failure(fault) or self.kept.has_passed(fault, test_file))

    def detects(
        self, test_file: str, tests: Sequence[str], fault: Fault, limit: float = RUN_LIMIT
    ) -> bool:
        """Tell whether tests of a file detect a fault, and keep what came of it."""
        path = self.pytest.copy / fault.path
        sound = path.read_bytes()
        path.write_bytes(fault.made_in(sound))
        try:
            run = self.pytest.run(tests, "-x", limit=limit)
        finally:
            path.write_bytes(sound)
        self.seconds = run.seconds
        if run.code is None and limit < RUN_LIMIT:
            return False
        if run.code in (0, NO_TESTS):
            self.kept.add(fault, test_file, None)
            return False
        named = FAILED.search(run.printed) if run.code is not None else None
        failed = [named[1]] if named else list(tests)
        seconds = self.seconds_without(failed)
        if seconds is None or (run.code is None and seconds * ENDLESS > RUN_LIMIT):
            self.unsure[fault].append(test_file)  # they fail or take as long without the fault
            return False
        ends = "" if run.code is not None else " does not end"
        self.kept.add(fault, test_file, failed[0] + ends)
        return True

    def seconds_without(self, tests: Sequence[str]) -> float | None:
        """Return the CPU seconds of tests on the product as it is; None if they fail."""
        key = " ".join(tests)
        if key not in self.sound:
            run = self.pytest.run(tests, limit=RUN_LIMIT)
            self.sound[key] = run.seconds if run.code == 0 else None
        return self.sound[key]


def _short(text: str) -> str:
    return " ".join(text.split())[:60]


if __name__ == "__main__":
    run_cli(main)
