"""A process that uses a memory graph beside others, and tells its parent what failed.

Arguments: the role, the database, how often, a random seed. It prints a line for every turn:
"done", or "failed" with the error. The roles: "forget" remembers and forgets, "open" opens the
graph for writing, "ask" opens it and asks, "check" checks it, "foul" tears derived files as a
crash may.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.tests.data.memory_graph.hashing import Hashing

PEOPLE = ("Anna", "Bob", "Carl", "Dora")


def forget(path: Path, number: int, seed: int) -> None:
    """Remember some texts under a source of this turn, and forget them."""
    source = f"talk {seed} {number}"
    texts = [f"{person} met Guest {seed} {number} in Rome." for person in PEOPLE]
    with MemoryGraph.open(path) as graph:
        graph.remember_many([Episode(text, "2021", source) for text in texts])
        graph.forget(source=source)


def open_it(path: Path, number: int, seed: int) -> None:
    """Open the graph for writing, as every edit does."""
    with MemoryGraph.open(path) as graph:
        assert graph.stats().nodes["episodic"] >= len(PEOPLE)


def ask(path: Path, number: int, seed: int) -> None:
    """Ask for what nobody forgets."""
    with MemoryGraph.open(path, Hashing(), read_only=number % 2 == 0) as graph:
        for _ in range(3):
            found = graph.ask("Where does Anna live?").facts
            assert any("Paris" in fact.text for fact in found), found


def check(path: Path, number: int, seed: int) -> None:
    """Check the graph, in which nothing is wrong."""
    with MemoryGraph.open(path, read_only=True) as graph:
        problems = graph.check()
        assert not problems, problems


def foul(path: Path, number: int, seed: int) -> None:
    """Leave derived files that are torn, or of something else."""
    draw = random.Random(f"{seed} {number}")
    time.sleep(0.05)
    derived = path.with_name(f"{path.name}.derived")
    files = [file for file in derived.rglob("*") if file.is_file() and file.name != "lock"]
    for file in draw.sample(files, min(2, len(files))):
        torn = derived / f".torn{seed}"
        try:
            torn.write_bytes(file.read_bytes()[: draw.randrange(200)])
            os.replace(torn, file)  # whoever has the old one mapped keeps it
        except OSError:  # just deleted by others
            continue


ROLES: dict[str, Callable[[Path, int, int], None]] = {
    "forget": forget,
    "open": open_it,
    "ask": ask,
    "check": check,
    "foul": foul,
}


def main() -> None:
    """Play one role as often as the command line says."""
    role, path, times, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    for number in range(times):
        try:
            ROLES[role](path, number, seed)
        except Exception as error:  # whatever it is, the parent shows it
            print(f"failed {role} {type(error).__name__}: {error}", flush=True)
        else:
            print("done", flush=True)


if __name__ == "__main__":
    main()
