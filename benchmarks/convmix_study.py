"""ConvMix, from downloaded files to the table: ``python benchmarks/convmix_study.py``.

Converts the questions and what CONVINSE or EXPLAIGNN retrieved for them, then runs
``benchmarks/study.py`` with ``benchmarks/studies/convmix.yaml``; other options are the study's.
The same command goes on where it was stopped.

    python benchmarks/convmix_study.py --train_questions train_set_ALL.json \\
        --train_evidence train_evidence.jsonl --test_questions test_set_ALL.json \\
        --test_evidence test_evidence.jsonl --size gpu
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from turngraph.benchmarks import study
from turngraph.data.cli import run_cli
from turngraph.data.sources import convmix

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("train", "test")


def main(argv: Sequence[str] | None = None) -> None:
    """Convert both parts and run the study on them.

    Raises:
        ValueError: a file is missing or malformed, or the study cannot be.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    for part in PARTS:
        parser.add_argument(f"--{part}_questions", required=True, metavar="FILE")
        parser.add_argument(f"--{part}_evidence", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--data", default="runs/data/convmix", help="folder for what is converted")
    parser.add_argument("--config", default=str(ROOT / "benchmarks/studies/convmix.yaml"))
    args, rest = parser.parse_known_args(argv)
    for part in PARTS:
        evidence = getattr(args, f"{part}_evidence")
        options = ["--questions", getattr(args, f"{part}_questions"), "--evidence", *evidence]
        convmix.main([*options, "--output", str(Path(args.data) / f"{part}.jsonl")])
    study.main(["--config", args.config, "--data", args.data, *rest])


if __name__ == "__main__":
    run_cli(main)
