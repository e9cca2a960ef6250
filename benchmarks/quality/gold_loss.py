"""Measures the loss of the gold answers, which is a finer measure than hits.

    python -m turngraph.benchmarks.quality.gold_loss --input runs/data/sqa/dev.jsonl \
        --checkpoints runs/sqa/text/last runs/sqa/graph/last --records runs/gold_loss.jsonl \
        --single_answers_only

For each question it measures the nats of the gold answer and its end token, after the prompt that
``answer`` builds with gold history. All checkpoints get the same questions; differences to the
first are paired. ``--cut_edges`` also measures each graph without some of its edges. The same
command resumes a stopped measurement, and may name more checkpoints.
"""

from __future__ import annotations

import argparse
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import torch
from tqdm import tqdm

from turngraph.benchmarks.quality.records import open_records
from turngraph.benchmarks.study.row_scores import (
    Key,
    cell,
    over_conversations_and_seeds,
    sign_flip_test,
)
from turngraph.configs.words import plural
from turngraph.data.batches.collate import collate
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli
from turngraph.data.entities import complete_entities
from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import dump, read_conversations
from turngraph.data.types import Conversation
from turngraph.infer import positive
from turngraph.inference.load import device_of, load
from turngraph.inference.options import LoadOptions
from turngraph.inference.questions import DRAW_SEED
from turngraph.model.checkpoint import Checkpoint, file_hash, read_checkpoint

logger = logging.getLogger("gold_loss")
CUTS: tuple[CutEdges, ...] = get_args(CutEdges)
SETTINGS = ("max_questions", "single_answers_only", "base_model")


class Row(NamedTuple):
    """A row of the table: a checkpoint's folder, its hash, and which edges are cut."""

    folder: str
    checkpoint_hash: str
    cut: CutEdges

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the row's measurements, independent of the folder's name."""
        return self.checkpoint_hash, self.cut


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the losses that have no record yet, and print the table of all."""
    args = parse(argv)
    checkpoints = {folder: read_checkpoint(folder) for folder in args.checkpoints}
    for checkpoint in checkpoints.values():  # a loss over entities is not comparable
        checkpoint.check_writes()
    conversations = complete_entities(read_conversations(args.input))
    chosen = choose_questions(
        conversations, args.max_questions, args.single_answers_only, DRAW_SEED
    )
    rows = [
        Row(folder, checkpoint.hash, cut)
        for folder, checkpoint in checkpoints.items()
        for cut in args.cut_edges
    ]
    loading, missing = LoadOptions(args.base_model, args.device), 0
    with (
        StopRequest(args.max_minutes) as stop,
        open_records(args.records, settings_of(args)) as found,
    ):
        done, file = found
        for row in rows:
            known = keys(done, row)
            left = sum(map(len, chosen.values())) - len(known)
            missing += left
            if stop or not left:
                continue
            checkpoint = checkpoints[row.folder]
            for record in measure(conversations, chosen, known, row, checkpoint, loading):
                done.append(record)
                file.write(dump(record) + "\n")
                file.flush()
                missing -= 1
                if stop:
                    break
    print(table(done, rows))
    if missing:
        logger.info("%s left; the same command resumes", plural(missing, "loss", "losses"))
        raise SystemExit(EXIT_GO_ON)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--checkpoints",
        nargs="+",
        required=True,
        help="folders of checkpoints; all are compared with the first",
    )
    parser.add_argument(
        "--cut_edges",
        nargs="+",
        choices=CUTS,
        default=["nothing"],
        help="one row each; shuffle moves entity edges to other tokens",
    )
    parser.add_argument("--input", required=True, help="conversations with gold answers")
    parser.add_argument("--records", required=True, help="JSON Lines file of the measurements")
    parser.add_argument("--max_questions", type=positive, help="size of a fixed draw of questions")
    parser.add_argument(
        "--single_answers_only",
        action="store_true",
        help="leave out questions whose answer is a list",
    )
    parser.add_argument("--base_model", help="folder of the base model on this machine")
    parser.add_argument("--device", help="default: the first GPU, else the CPU")
    parser.add_argument("--max_minutes", type=float, help="stop after this time; exit code 75")
    return parser.parse_args(argv)


def settings_of(args: argparse.Namespace) -> Json:
    """Return the settings that all records of a file share."""
    return {
        "input": file_hash(args.input),
        "device": device_of(args.device).partition(":")[0],
        **{name: getattr(args, name) for name in SETTINGS},
    }


def keys(records: Sequence[Json], row: Row) -> set[Key]:
    """Return conversation and turn of a row's measurements."""
    own = (r for r in records if (r["checkpoint_hash"], r["cut_edges"]) == row.key)
    return {(record["conversation"], record["turn"]) for record in own}


@torch.no_grad()
def measure(
    conversations: Sequence[Conversation],
    chosen: dict[int, list[int]],
    known: set[Key],
    row: Row,
    checkpoint: Checkpoint,
    loading: LoadOptions,
) -> Iterator[Json]:
    """Yield a record for each question without one; batches would round differently."""
    model, builder = load(checkpoint, loading)
    builder.cut = row.cut
    bar = tqdm(total=sum(map(len, chosen.values())), initial=len(known), desc=f"{row.cut} cut")
    for index, turns in chosen.items():
        conversation = conversations[index]
        if all((conversation.id, conversation.turns[turn].id) in known for turn in turns):
            continue
        for example in builder.conversation(conversation, turns):
            if example.key in known:
                continue
            batch = collate([example], "right", with_target=True).to(model.device)
            yield {
                "checkpoint": row.folder,
                "checkpoint_hash": row.checkpoint_hash,
                "cut_edges": row.cut,
                "conversation": example.key[0],
                "turn": example.key[1],
                "nats": model(batch).total.item(),
                "num_tokens": len(example.target_ids),
                "answer_in_evidence": bool(example.answer_sources),
            }
            bar.update()


def table(records: Sequence[Json], rows: Sequence[Row]) -> str:
    """Return a Markdown table of each row's loss and its paired difference to the first row.

    Intervals are 95 % bootstrap intervals over conversations; p comes from flipping their signs.
    """
    losses: dict[tuple[str, str], dict[Key, float]] = defaultdict(dict)
    for r in records:
        losses[r["checkpoint_hash"], r["cut_edges"]][r["conversation"], r["turn"]] = r["nats"]
    lines = [
        "| checkpoint | edges cut | questions | nats a question | minus the first | p |",
        "|---|---|---:|---|---|---:|",
    ]
    first = losses[rows[0].key]
    for row in rows:
        own = losses[row.key]
        pairs = {key: own[key] - first[key] for key in own if key in first}
        compared = ["", ""]
        if row != rows[0] and pairs:
            compared = [
                f"{cell(over_conversations_and_seeds([pairs]), '+')} ({len(pairs)})",
                f"{sign_flip_test([pairs]):.3f}",
            ]
        mean = cell(over_conversations_and_seeds([own]))
        cells = [row.folder, row.cut, str(len(own)), mean, *compared]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run_cli(main)
