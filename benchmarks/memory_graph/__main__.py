"""Starts a benchmark of the memory graph: ``retrieval``, ``plan``, ``themes`` and others.

python -m turngraph.benchmarks.memory_graph retrieval --data FOLDER
python -m turngraph.benchmarks.memory_graph answers [--data FOLDER] [--reader CHECKPOINT]
python -m turngraph.benchmarks.memory_graph plan --data FOLDER
python -m turngraph.benchmarks.memory_graph themes --data FOLDER [--pages FILE]
python -m turngraph.benchmarks.memory_graph ontology [--parts life quads locomo]
python -m turngraph.benchmarks.memory_graph speed [--nodes 100000 ...]
python -m turngraph.benchmarks.memory_graph start [--rounds 5]
python -m turngraph.benchmarks.memory_graph extraction --input FILE
python -m turngraph.benchmarks.memory_graph postgres_recall --data FOLDER --url URL
python -m turngraph.benchmarks.memory_graph postgres_speed --url URL [--tenants 1000]
"""

import sys
from importlib import import_module

from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli

MODULES = {
    "retrieval": "memory_retrieval", "answers": "answers",
    "plan": "memory_plan", "themes": "theme_retrieval", "ontology": "memory_ontology",
    "speed": "memory_speed", "start": "asking_start", "extraction": "extraction",
    "postgres_recall": "postgres_recall", "postgres_speed": "postgres_speed",
}  # fmt: skip
"""Module of each command."""


def main() -> None:
    """Run one benchmark, which may need the extra ``memory``.

    Raises:
        UserError: there is no such benchmark, or a library is not installed.
    """
    command, *argv = sys.argv[1:] or ["--help"]
    if command in ("-h", "--help"):
        print(__doc__)
    elif command not in MODULES:
        raise UserError(f"{command!r} given, must be one of {', '.join(MODULES)}")
    else:
        import_module(f"turngraph.benchmarks.memory_graph.{MODULES[command]}").main(argv)


if __name__ == "__main__":
    run_cli(main)
