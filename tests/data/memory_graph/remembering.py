"""A process that remembers numbered texts, and tells its parent how far it is.

It writes a line for every commit: "begin" just before it and "done N" when N episodes are on disk.
Arguments: the database, the first number, the last, the batch; "ask" to wait for a line before
every commit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.record.ingest import remember_batches
from turngraph.data.memory_graph.record.store import Store
from turngraph.tests.waiting import PATIENCE

PEOPLE, CITIES = ("Anna", "Bob", "Carl", "Dora"), ("Paris", "Rome", "Oslo")


def text(number: int) -> str:
    """What is said at a time: people move about, so that facts close one another."""
    person, city = PEOPLE[number % 4], CITIES[number % 3]
    return f"{person} lives in {city}. {person} met Guest {number} in {city}."


def episodes(first: int, last: int) -> Iterator[Episode]:
    """One text a minute, of three sources."""
    for n in range(first, last):
        time = f"2020-01-01T{n // 60 % 24:02d}:{n % 60:02d}"
        yield Episode(text(n), time, f"source {n % 3}", f"origin {n}")


def tell(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    """Remember what the command line says."""
    path, (first, last, batch) = sys.argv[1], map(int, sys.argv[2:5])

    def traced(sql: str) -> None:
        if sql == "COMMIT":
            tell("begin")
            if sys.argv[5:] == ["ask"]:
                sys.stdin.readline()

    with Store(path, wait=PATIENCE) as store:
        store.db.set_trace_callback(traced)
        count = 0
        for part in remember_batches(store, RulesExtractor(), episodes(first, last), batch):
            count += part.episodes + part.skipped
            tell(f"done {count}")


if __name__ == "__main__":
    main()
