"""Measures checkpoints on documents of kinds that they were not trained on.

    python -m turngraph.benchmarks.quality.unseen --checkpoint runs/reader/last \
        --zero_shot runs/zero_shot --questions read --output runs/unseen.jsonl

Every checkpoint answers the same questions from the same passages: retrieval is that of the first
one. The table shows H@1 and F1 of the words on questions that the evidence answers; the share of
the others that is withheld at the confidence that keeps 0.9 of the right answers; of all questions
the expected calibration error and the share of wrong answers among the surest half; seconds a
question, without reading the documents; and the error that a perfect calibration would have, as the
bins of a hundred answers are seldom filled as they say. A question that has no answer is right if
"not in the evidence" is answered. Intervals are 95 % bootstrap intervals over conversations.

Prediction records go to the output file; the same command resumes, and may name more checkpoints.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from turngraph.benchmarks.demo import save_untrained
from turngraph.benchmarks.quality.records import open_records
from turngraph.benchmarks.quality.unseen.measures import score, table
from turngraph.benchmarks.quality.unseen.questions import Asked, read_asked
from turngraph.benchmarks.tables import parser_of
from turngraph.configs.schema import EvidenceConfig
from turngraph.configs.shipped import find_checkpoint_folder
from turngraph.data.cli import run_cli
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import dump
from turngraph.infer import positive
from turngraph.inference.answer_lines import answer_lines
from turngraph.inference.calibrated import read_confidence
from turngraph.inference.load import device_of, load
from turngraph.inference.options import AnswerOptions, LoadOptions
from turngraph.inference.questions import Questions
from turngraph.model.checkpoint import MANIFEST, Checkpoint, read_checkpoint

logger = logging.getLogger("unseen")
RETRIEVAL = (
    *("retriever", "ranker", "stemmer", "top_k"),
    *("history_weight", "memory", "embedder", "max_nodes"),
)
"""Fields of ``EvidenceConfig`` that say which passages a question gets."""
OPTIONS = ("max_questions", "single_answers_only", "max_new_tokens", "batch_size")
"""Fields of ``AnswerOptions`` that are options here, too."""


def main(argv: Sequence[str] | None = None) -> None:
    """Answer what has no answer yet with each checkpoint, and print the table."""
    args = parse(argv)
    checkpoints = {
        folder: read_checkpoint(find_checkpoint_folder(folder)) for folder in args.checkpoint
    }
    first = next(iter(checkpoints.values())).config
    if args.zero_shot is not None:
        folder = Path(args.zero_shot)
        if not (folder / MANIFEST).is_file():
            save_untrained(first, folder, args.base_model)
        checkpoints[args.zero_shot] = read_checkpoint(folder)
    asked = read_asked(args.questions)
    retrieval = {name: getattr(first.evidence, name) for name in RETRIEVAL}
    settings = {
        "questions": asked.hash,
        "retrieval": retrieval,
        "device": device_of(args.device).partition(":")[0],
        **{name: getattr(args, name) for name in OPTIONS},
    }
    options = AnswerOptions(**{name: getattr(args, name) for name in OPTIONS})
    loading, rows = LoadOptions(args.base_model, args.device), {}
    with open_records(args.output, settings) as (done, file):
        for name, checkpoint in checkpoints.items():
            own = {key(r): r for r in done if r["checkpoint_hash"] == checkpoint.hash}
            evidence = replace(checkpoint.config.evidence, corpus=None, **retrieval)
            for record in answers(checkpoint, asked, own, evidence, options, loading):
                record = {"checkpoint_hash": checkpoint.hash, "checkpoint": name, **record}
                own[key(record)] = record
                file.write(dump(record) + "\n")
                file.flush()
            rows[name] = [own[one] for one in sorted(own) if one in asked.accepted]
    warn_of_other_passages(rows)
    print(table({name: score(asked, records) for name, records in rows.items()}))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--checkpoint", nargs="+", required=True, help="folders; all are compared with the first")
    add("--zero_shot", help="folder: a row of the untrained LM, whose checkpoint is written there")
    add(
        "--questions",
        required=True,
        help="read, unread, both, second, third or all: of documents; diaries; or a file",
    )
    add("--output", required=True, help="JSON Lines file of the prediction records")
    add("--max_questions", type=positive, help="size of a fixed draw of questions")
    add("--single_answers_only", action="store_true", help="only questions with one gold answer")
    add("--max_new_tokens", type=positive, help="longest answer; default: as trained")
    add("--batch_size", type=positive, default=1, help="questions answered together (default: 1)")
    add("--base_model", help="folder of the base model on this machine")
    add("--device", help="default: the first GPU, else the CPU")
    return parser.parse_args(argv)


def key(record: Json) -> tuple[str, str]:
    """Return a record's conversation and turn."""
    return record["conversation"], record["turn"]


def answers(
    checkpoint: Checkpoint,
    asked: Asked,
    known: dict[tuple[str, str], Json],
    evidence: EvidenceConfig,
    options: AnswerOptions,
    loading: LoadOptions,
) -> Iterator[Json]:
    """Yield the records of the questions that are not answered yet, with gold history.

    Args:
        checkpoint: answers.
        asked: the questions.
        known: records by conversation and turn.
        evidence: which passages a question gets; edges and nodes are the checkpoint's.
        options: how the questions are answered.
        loading: where the model lies and where it computes.
    """
    questions = Questions.of(asked.conversations, options)
    keys = {
        line: (conversation.id, conversation.turns[turn].id)
        for (index, turn), line in questions.lines.items()
        for conversation in (questions.conversations[index],)
    }
    lines = {line: known[one] for line, one in keys.items() if one in known}
    if len(lines) == len(keys):
        return
    config = replace(checkpoint.config, evidence=evidence, memory_graph=None)
    model, builder = load(replace(checkpoint, config=config), loading)
    confidence = read_confidence(checkpoint)
    if confidence is not None:  # the table finds the threshold
        confidence = replace(confidence, abstain_below=None)
    options = options.resolved(config)
    with tqdm(total=len(keys), initial=len(lines), desc=checkpoint.folder.name) as bar:
        for found in answer_lines(model, builder, questions, options, lines, confidence):
            yield from found.values()
            bar.update(len(found))


def warn_of_other_passages(rows: dict[str, list[Json]]) -> None:
    """Warn if a checkpoint read other passages: its tokenizer may make them longer."""
    first = next(iter(rows))
    read = {key(r): [one["id"] for one in r["evidence"]] for r in rows[first]}
    for name, records in rows.items():
        others = sum(read[key(r)] != [one["id"] for one in r["evidence"]] for r in records)
        if others:
            logger.warning("%s read other passages than %s for %d questions", name, first, others)


if __name__ == "__main__":
    run_cli(main)
