"""A process that makes the themes of a graph, and tells its parent how far it is.

It writes "begin" just before each commit and "done" after it. Arguments: the database; "ask" to
wait for a line before every commit; "forget" and a source to forget that instead.
"""

from __future__ import annotations

import sys

from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.upkeep import purge
from turngraph.data.memory_graph.upkeep.forget import forget
from turngraph.data.memory_graph.upkeep.make_themes import make_themes
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.talks import Script
from turngraph.tests.waiting import PATIENCE


def tell(line: str) -> None:
    print(line, flush=True)
    if sys.argv[2:3] == ["ask"]:
        sys.stdin.readline()


def main() -> None:
    """Do what the command line says."""

    def traced(sql: str) -> None:
        if sql in ("COMMIT", "VACUUM") or sql.startswith("PRAGMA wal_checkpoint"):
            tell("begin")

    with Store(sys.argv[1], wait=PATIENCE) as store:
        store.db.set_trace_callback(traced)
        if sys.argv[3:4] == ["forget"]:
            forget(store, source=sys.argv[4])
            purge.finish(store)
        else:
            make_themes(store, Hashing(), Script().lm() if sys.argv[3:4] == ["lm"] else None)
    print("end", flush=True)


if __name__ == "__main__":
    main()
