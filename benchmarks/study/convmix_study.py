"""Runs the ConvMix study from downloaded files to the report.

    python -m turngraph.benchmarks.study.convmix_study --train_questions train_set_ALL.json \\
        --train_evidence train_evidence.jsonl --test_questions test_set_ALL.json \\
        --test_evidence test_evidence.jsonl --size gpu

Converts the questions and the evidence that CONVINSE or EXPLAIGNN retrieved for them, then runs
``turngraph study --config convmix``; other options are the study's. The same command resumes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from turngraph.benchmarks.study import run_study
from turngraph.data.cli import run_cli
from turngraph.data.sources import convmix

PARTS = ("train", "test")


def main(argv: Sequence[str] | None = None) -> None:
    """Convert both parts, and run the study on them.

    Raises:
        UserError: a file is missing or malformed, or the study is invalid.
    """
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for part in PARTS:
        parser.add_argument(f"--{part}_questions", required=True, metavar="FILE")
        parser.add_argument(f"--{part}_evidence", nargs="+", required=True, metavar="FILE")
    parser.add_argument(
        "--data", default="runs/data/convmix", help="folder for the converted files"
    )
    parser.add_argument("--config", default="convmix")
    args, rest = parser.parse_known_args(argv)
    for part in PARTS:
        evidence = getattr(args, f"{part}_evidence")
        options = ["--questions", getattr(args, f"{part}_questions"), "--evidence", *evidence]
        convmix.main([*options, "--output", str(Path(args.data) / f"{part}.jsonl")])
    run_study.main(["--config", args.config, "--data", args.data, *rest])


if __name__ == "__main__":
    run_cli(main)
