"""Makes the reader that comes with the package from a checkpoint of ``configs/mixture/reader``.

The threshold below which answers are withheld comes from the predictions on tune questions: the
largest one that keeps a share of the right answers. Run in a clone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from collections.abc import Sequence

from turngraph.configs.parse import write_config
from turngraph.configs.shipped import READER_FOLDER
from turngraph.configs.user_error import UserError
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.types import NOT_IN_EVIDENCE
from turngraph.inference.calibrated import THRESHOLD
from turngraph.inference.hub import save_checkpoint_files
from turngraph.model.checkpoint import CARD, CONFIG, MANIFEST, METRICS, hashes, read_checkpoint


def main(argv: Sequence[str] | None = None) -> None:
    """Write the packaged reader's folder."""
    args = parse(argv)
    records = [record for _, record in iter_lines(args.predictions)]
    level = threshold(records, args.keep)
    checkpoint = read_checkpoint(args.checkpoint)
    card = READER_FOLDER / CARD
    words = card.read_text(encoding="utf-8") if card.is_file() else None
    if READER_FOLDER.exists():
        shutil.rmtree(READER_FOLDER)
    save_checkpoint_files(checkpoint, READER_FOLDER)
    if words is not None:  # the card is written by hand
        card.write_text(words, encoding="utf-8")
    data = dataclasses.replace(checkpoint.config.data, train=args.train, tune=args.tune)
    training = dataclasses.replace(
        checkpoint.config.training, output="runs/mixture/reader", start_from=None
    )
    config = dataclasses.replace(checkpoint.config, data=data, training=training)
    (READER_FOLDER / CONFIG).write_text(write_config(config), encoding="utf-8")
    metrics = checkpoint.metrics | {THRESHOLD: round(level, 4)}
    (READER_FOLDER / METRICS).write_text(json.dumps(metrics, indent=1), encoding="utf-8")
    manifest = checkpoint.manifest | {"files": hashes(READER_FOLDER)}
    (READER_FOLDER / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    withheld = [r for r in records if r["confidence"] < level]
    nothing = [r for r in records if is_unanswerable(r)]
    both = sum(is_unanswerable(r) for r in withheld)
    size = sum(path.stat().st_size for path in READER_FOLDER.rglob("*")) / 2**20
    print(
        f"{READER_FOLDER}: {size:.1f} MiB; answers below {level:.3f} are withheld: {len(withheld)}"
    )
    print(f"of {len(records)}, among them {both} of {len(nothing)} that no passage answers")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--predictions", required=True, help="its answers to tune questions")
    parser.add_argument("--keep", type=float, default=0.9, help="share of right answers kept")
    parser.add_argument("--train", default="runs/data/mixture/train.jsonl", help="in its config")
    parser.add_argument("--tune", default="runs/data/mixture/tune.jsonl", help="likewise")
    args: argparse.Namespace = parser.parse_args(argv)
    return args


def threshold(records: Sequence[Json], keep: float) -> float:
    """Return the largest confidence at which the share of right answers is kept.

    Raises:
        UserError: the records have no confidence, or none is right.
    """
    right = sorted(
        (r["confidence"] for r in records if r["hit_at_1"] and r["confidence"] is not None),
        reverse=True,
    )
    if not right:
        raise UserError("no right answer with a confidence")
    return float(right[min(len(right), max(1, round(keep * len(right)))) - 1])


def is_unanswerable(record: Json) -> bool:
    """Tell whether a question's gold answer is that no passage has it."""
    return [one["label"] for one in record["gold"]] == [NOT_IN_EVIDENCE]


if __name__ == "__main__":
    run_cli(main)
