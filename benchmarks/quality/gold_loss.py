"""Measures the loss of the gold answers, a finer measure than whether a checkpoint hits them.

    python -m turngraph.benchmarks.quality.gold_loss --input runs/data/sqa/dev.jsonl \
        --checkpoints runs/sqa/text/last runs/sqa/graph/last --records runs/gold_loss.jsonl \
        --single_answers_only

For each question: the nats of the gold answer and its end, after the prompt that ``answer`` builds
with gold history. All checkpoints get the same questions; differences to the first are paired.
``--cut_edges`` measures each graph again without some of its edges. The same command resumes a
stopped measurement, and may name more checkpoints.
"""

from __future__ import annotations

import argparse
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from tqdm import tqdm

from turngraph.benchmarks.quality.records import open_records
from turngraph.benchmarks.study.row_scores import (
    Key,
    cell,
    over_conversations_and_seeds,
    sign_flip_test,
)
from turngraph.data.batches.collate import collate
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli
from turngraph.data.examples import choose_questions
from turngraph.data.graph.entities import complete_entities
from turngraph.data.jsonlines import Json, dump, read_conversations
from turngraph.data.types import Conversation
from turngraph.infer import positive
from turngraph.inference.load import device_of, load
from turngraph.inference.options import LoadOptions
from turngraph.inference.questions import DRAW_SEED
from turngraph.model.checkpoint import file_hash, read_checkpoint

logger = logging.getLogger("gold_loss")
CUTS = ("nothing", "entity", "shuffle", "all")
SETTINGS = ("max_questions", "single_answers_only", "base_model")
Row = tuple[str, str, str]
"""A checkpoint as it was named, its hash, and which edges are cut."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and print the table of all."""
    args = parse(argv)
    for checkpoint in args.checkpoints:  # the loss of an entity among others is another number
        read_checkpoint(checkpoint).check_writes()
    conversations = complete_entities(read_conversations(args.input))
    chosen = choose_questions(
        conversations, args.max_questions, args.single_answers_only, DRAW_SEED
    )
    hashes = [(checkpoint, read_checkpoint(checkpoint).hash) for checkpoint in args.checkpoints]
    rows = [(*checkpoint, cut) for checkpoint in hashes for cut in args.cut_edges]
    missing = 0
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
            for record in measure(conversations, chosen, known, row, args):
                done.append(record)
                file.write(dump(record) + "\n")
                file.flush()
                missing -= 1
                if stop:
                    break
    print(table(done, rows))
    if missing:
        logger.info("%d losses are left; the same command goes on", missing)
        raise SystemExit(EXIT_GO_ON)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--checkpoints",
        nargs="+",
        required=True,
        help="folders that train.py wrote; the others are compared with the first",
    )
    parser.add_argument(
        "--cut_edges",
        nargs="+",
        choices=CUTS,
        default=["nothing"],
        help="a row of the table each; shuffle moves entity edges to other tokens",
    )
    parser.add_argument("--input", required=True, help="conversations with gold answers")
    parser.add_argument("--records", required=True, help="what is measured, JSON Lines")
    parser.add_argument("--max_questions", type=positive, help="a fixed draw of so many")
    parser.add_argument(
        "--single_answers_only",
        action="store_true",
        help="leave out questions whose answer is a list",
    )
    parser.add_argument("--base_model", help="where it lies here")
    parser.add_argument("--device", help="the first GPU, or the CPU, where it is not given")
    parser.add_argument("--max_minutes", type=float, help="stop after so long; exit code 75")
    return parser.parse_args(argv)


def settings_of(args: argparse.Namespace) -> Json:
    """What must stay the same from one start to the next."""
    return {
        "input": file_hash(args.input),
        "device": device_of(args.device).partition(":")[0],
        **{name: getattr(args, name) for name in SETTINGS},
    }


def keys(records: Sequence[Json], row: Row) -> set[Key]:
    """Conversation and turn of what is measured of a row, under whatever path."""
    own = (r for r in records if (r["checkpoint_hash"], r["cut_edges"]) == row[1:])
    return {(record["conversation"], record["turn"]) for record in own}


@torch.no_grad()
def measure(
    conversations: Sequence[Conversation],
    chosen: dict[int, list[int]],
    known: set[Key],
    row: Row,
    args: argparse.Namespace,
) -> Iterator[Json]:
    """A record for each chosen question that is not known, one by one: batches round otherwise."""
    folder, hash_, cut = row
    model, builder = load(read_checkpoint(folder), LoadOptions(args.base_model, args.device))
    model.eval()
    builder.cut = cut
    bar = tqdm(total=sum(map(len, chosen.values())), initial=len(known), desc=f"{cut} cut")
    for number, turns in chosen.items():
        if all(
            (conversations[number].id, conversations[number].turns[t].id) in known for t in turns
        ):
            continue
        for example in builder.conversation(conversations[number], turns):
            if example.key in known:
                continue
            batch = collate([example], "right", with_target=True).to(model.device)
            yield {
                "checkpoint": folder,
                "checkpoint_hash": hash_,
                "cut_edges": cut,
                "conversation": example.key[0],
                "turn": example.key[1],
                "nats": model(batch).total.item(),
                "num_tokens": len(example.target_ids),
                "answer_in_evidence": bool(example.answer_sources),
            }
            bar.update()


def table(records: Sequence[Json], rows: Sequence[Row]) -> str:
    """Each row's loss and its paired difference to the first, in Markdown.

    Intervals are 95 % bootstrap intervals over conversations, p of flipping their signs.
    """
    losses = defaultdict(dict)
    for r in records:
        losses[r["checkpoint_hash"], r["cut_edges"]][r["conversation"], r["turn"]] = r["nats"]
    lines = [
        "| checkpoint | edges cut | questions | nats a question | minus the first | p |",
        "|---|---|---:|---|---|---:|",
    ]
    first = losses[rows[0][1:]]
    for row in rows:
        own = losses[row[1:]]
        pairs = {key: own[key] - first[key] for key in own if key in first}
        compared = ["", ""]
        if row != rows[0] and pairs:
            compared = [
                f"{cell(over_conversations_and_seeds([pairs]), '+')} ({len(pairs)})",
                f"{sign_flip_test([pairs]):.3f}",
            ]
        mean = cell(over_conversations_and_seeds([own]))
        cells = [row[0], row[2], str(len(own)), mean, *compared]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run_cli(main)
