"""Measures how long ``turngraph memory ask`` takes as a command, from its start to its end.

python -m turngraph.benchmarks.memory_graph start [--rounds 5]

Three commands in turn over one small graph whose vectors are on the disk: the sentence encoder by
sentence-transformers, the same encoder as the command loads it, and ``--no_embed``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from turngraph.configs.user_error import UserError
from turngraph.data.cli import CommandParser
from turngraph.data.memory_graph.graph import MemoryGraph

QUESTION = "Where does Anna live?"
TEXTS = (
    "Anna lives in Gdynia. She works at the port.",
    "The bridge was opened by Piotr in 2019.",
    "Ben sells maps in Oslo, and Anna buys them.",
)
SENTENCE_TRANSFORMERS = """
from turngraph import memory
from turngraph.configs.models import sentence_encoder
from turngraph.inference import memory_commands
memory_commands.make_embed = sentence_encoder
memory.main({argv!r})
"""


class Run(NamedTuple):
    """What one command took and printed."""

    wall: float
    cpu: float
    printed: str


def main(argv: Sequence[str]) -> None:
    """Print the median seconds of each command, and the ratio to the first one's."""
    parser = CommandParser(
        prog="memory_graph start", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(argv).rounds
    if rounds < 1:
        raise UserError(f"--rounds: {rounds} given, must be at least 1")
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "my.db"
        with MemoryGraph.open(db) as graph:
            for text in TEXTS:
                graph.remember(text)
        ask = ["ask", "--db", str(db), QUESTION]
        turngraph = [sys.executable, "-m", "turngraph", "memory"]
        commands = {
            "sentence-transformers": [
                sys.executable, "-c", SENTENCE_TRANSFORMERS.format(argv=ask),
            ],
            "as the command loads it": [*turngraph, *ask],
            "--no_embed": [*turngraph, *ask, "--no_embed"],
        }  # fmt: skip
        for command in commands.values():  # the first one writes the vectors
            run(command)
        runs = [{name: run(command) for name, command in commands.items()} for _ in range(rounds)]
    report(runs)


def run(command: Sequence[str]) -> Run:
    """Run a command to its end.

    Raises:
        RuntimeError: it fails.
    """
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, os.times()
    if done.returncode:
        raise RuntimeError(done.stderr)
    cpu = sum(after[2:4]) - sum(before[2:4])  # of children
    return Run(wall, cpu, done.stdout)


def report(runs: Sequence[dict[str, Run]]) -> None:
    """Print a table; ratios are medians of ratios within a round."""
    [first, *_] = runs[0]
    print(f"{'encoder':<26}{'wall s':>8}{'CPU s':>8}{'ratio of wall':>15}{'of CPU':>8}")
    for name in runs[0]:
        wall = statistics.median(r[name].wall for r in runs)
        cpu = statistics.median(r[name].cpu for r in runs)
        by_wall = statistics.median(r[first].wall / r[name].wall for r in runs)
        by_cpu = statistics.median(r[first].cpu / r[name].cpu for r in runs)
        print(f"{name:<26}{wall:8.2f}{cpu:8.2f}{by_wall:15.1f}{by_cpu:8.1f}")
    names = list(runs[0])
    same = all(r[names[0]].printed == r[names[1]].printed for r in runs)
    print(f"the first two print the same: {'yes' if same else 'no'}")
