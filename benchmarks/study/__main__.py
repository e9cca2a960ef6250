"""``python -m turngraph.benchmarks.study``: the same as ``turngraph study``."""

from turngraph.benchmarks.study.run_study import main
from turngraph.data.cli import run_cli

if __name__ == "__main__":
    run_cli(main)
