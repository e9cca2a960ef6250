"""Makes the reader that comes with the package from a checkpoint of ``configs/mixture/reader``.

The threshold below which answers are withheld comes from the predictions on tune questions: the
largest one that keeps a share of the right answers. Answers from a memory graph have a calibration
of their own, fitted on questions about diaries and chats, and as threshold the smallest confidence
from which on a share is right. Run in a clone.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence

from turngraph.configs.shipped import READER_FOLDER
from turngraph.configs.user_error import UserError
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.scoring.confidence import Confidence
from turngraph.data.types import NOT_IN_EVIDENCE
from turngraph.inference.calibrated import FROM_MEMORY, THRESHOLD
from turngraph.inference.hub import save_checkpoint_files
from turngraph.model.checkpoint import CARD, MANIFEST, METRICS, hashes, read_checkpoint
from turngraph.training.calibrate import calibrate


def main(argv: Sequence[str] | None = None) -> None:
    """Write the packaged reader's folder."""
    args = parse(argv)
    checkpoint = read_checkpoint(args.checkpoint)
    card = READER_FOLDER / CARD
    words = card.read_text(encoding="utf-8") if card.is_file() else None
    if READER_FOLDER.exists():
        shutil.rmtree(READER_FOLDER)
    save_checkpoint_files(checkpoint, READER_FOLDER)
    if words is not None:  # the card is written by hand
        card.write_text(words, encoding="utf-8")
    metrics = dict(checkpoint.metrics)
    if args.predictions is not None:
        records = predictions(args.predictions)
        level = metrics[THRESHOLD] = round(threshold(records, args.keep), 4)
        withheld = [r for r in records if r["confidence"] < level]
        nothing = sum(map(is_unanswerable, records))
        print(f"answers below {level} are withheld: {len(withheld)} of {len(records)},")
        print(f"{sum(map(is_unanswerable, withheld))} of {nothing} that no passage answers")
    if args.memories is not None:
        calibration, recalled = calibrated(predictions(args.memories))
        level = sure_from(recalled, args.right)
        metrics[FROM_MEMORY] = {"confidence": calibration, THRESHOLD: level}
        right = [record["hit_at_1"] for record in recalled if given(record, level)]
        print(f"from a memory {len(right)} of {len(recalled)} are answered, {sum(right)} right")
    (READER_FOLDER / METRICS).write_text(json.dumps(metrics, indent=1), encoding="utf-8")
    manifest = checkpoint.manifest | {"files": hashes(READER_FOLDER)}
    (READER_FOLDER / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    size = sum(path.stat().st_size for path in READER_FOLDER.rglob("*")) / 2**20
    print(f"{READER_FOLDER}: {size:.1f} MiB")


def predictions(path: str) -> list[Json]:
    """Return the records of a file of predictions."""
    return [record for _, record in iter_lines(path)]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    add = parser.add_argument
    add("--predictions", help="its answers to tune questions; without, the threshold stays")
    add("--memories", help="its answers to questions about memories, from what is recalled")
    parser.add_argument("--keep", type=float, default=0.9, help="share of right answers kept")
    parser.add_argument("--right", type=float, default=0.75, help="share right from a memory graph")
    args: argparse.Namespace = parser.parse_args(argv)
    return args


def calibrated(records: Sequence[Json]) -> tuple[Json, list[Json]]:
    """Return the calibration that fits predictions, and the predictions with its confidence.

    Raises:
        UserError: too few are right, or wrong.
    """
    calibration = calibrate(records)
    if calibration is None:
        raise UserError("these predictions cannot be calibrated")
    confidence = Confidence(calibration, None)
    return calibration.to_json(), [confidence.applied(record) for record in records]


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


def given(record: Json, level: float) -> bool:
    """Tell whether a question gets an answer of at least a confidence."""
    return bool(record["answer"] != NOT_IN_EVIDENCE and record["confidence"] >= level)


def sure_from(records: Sequence[Json], share: float) -> float:
    """Return the smallest confidence from which on a share of the answers given is right; else 1.

    Args:
        records: predictions, none of them withheld.
        share: smallest share.
    """
    answers = [(r["confidence"], r["hit_at_1"]) for r in records if given(r, 0)]
    for level in sorted({confidence for confidence, _ in answers}):
        right = [is_right for confidence, is_right in answers if confidence >= level]
        if sum(right) >= share * len(right):
            return float(level)
    return 1.0


def is_unanswerable(record: Json) -> bool:
    """Tell whether a question's gold answer is that no passage has it."""
    return [one["label"] for one in record["gold"]] == [NOT_IN_EVIDENCE]


if __name__ == "__main__":
    run_cli(main)
