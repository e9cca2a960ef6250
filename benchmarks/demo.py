"""The demo: from the sample benchmark to a trained checkpoint that answers; ``make demo``.

Scores the untrained LM, the trained one, and the trained one with wrong evidence on conversations
about countries that were never trained on.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from turngraph import infer, train
from turngraph.configs.parse import read_config
from turngraph.data.cli import run_cli
from turngraph.data.jsonlines import iter_lines, read_conversations, write_pool
from turngraph.data.sources import worldfacts
from turngraph.data.types import gold_interaction
from turngraph.inference.answer_batches import answer_batch
from turngraph.inference.display import show_answer
from turngraph.inference.load import load
from turngraph.model.checkpoint import read_checkpoint, save_checkpoint
from turngraph.model.graph_lm import GraphLM

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "demo.yaml"
Json = dict[str, Any]
logger = logging.getLogger("demo")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo from start to end; ``--seed`` repeats it with other data and weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="runs/demo", help="folder for data and checkpoints")
    parser.add_argument("--num_questions", type=int, default=100, help="questions to score on")
    parser.add_argument("--output_json", help="write the table's numbers here, too")
    args = parser.parse_args(argv)
    console, began = Console(), time.monotonic()
    output = Path(args.output)
    data = output / "data"

    console.rule("1. The sample benchmark")
    worldfacts.main(["--output", str(data), "--seed", str(args.seed)])

    console.rule("2. The untrained language model, evidence as text")
    untrained = write_untrained(args)
    rows = {"untrained": answer(untrained, data, output / "untrained.jsonl", args, "own")}

    console.rule("3. Fine-tuning: graph + evidence memory")
    train.main(["--config", str(CONFIG), "--fresh", *overrides(args)])
    trained = output / "last"
    rows["trained"] = answer(trained, data, output / "trained.jsonl", args, "own")

    console.rule("4. The trained model with another conversation's evidence")
    wrong = output / "wrong_evidence.jsonl"
    rows["trained, wrong evidence"] = answer(trained, data, wrong, args, "other")

    console.rule("5. One conversation, turn by turn")
    show_conversation(trained, data, console)
    show_table(rows, args, console)
    if args.output_json:
        Path(args.output_json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    console.print(f"\n{time.monotonic() - began:.0f} seconds. Ask it yourself:", highlight=False)
    console.print(
        f"  .venv/bin/python infer.py chat --checkpoint {trained} --evidence {data / 'pool.jsonl'}",
        highlight=False,
        soft_wrap=True,
    )


def overrides(args: argparse.Namespace) -> list[str]:
    """Options of train.py that put the demo's files where they were asked for."""
    data = Path(args.output) / "data"
    return [
        f"--data.train={data / 'train.jsonl'}",
        f"--data.tune={data / 'tune.jsonl'}",
        f"--training.output={args.output}",
        f"--training.seed={args.seed}",
    ]


def write_untrained(args: argparse.Namespace) -> Path:
    """A checkpoint of the LM as it is: the same prompt and passages, no graph, nothing trained."""
    config = read_config(CONFIG, *overrides(args))
    plain = dataclasses.replace(config.model, evidence="text", lora=None)
    settings = dataclasses.replace(config.training, max_steps=0)
    config = dataclasses.replace(config, model=plain, training=settings)
    folder = Path(args.output) / "untrained"
    save_checkpoint(GraphLM(config.model), config, {}, folder)
    return folder


def answer(
    checkpoint: Path, data: Path, output: Path, args: argparse.Namespace, evidence_of: str
) -> Json:
    """Answer test questions with ``infer.py answer``; the row of the table."""
    command = ["answer", "--checkpoint", str(checkpoint), "--input", str(data / "test.jsonl")]
    command += ["--output", str(output), "--max_questions", str(args.num_questions)]
    command += [
        "--evidence_of",
        evidence_of,
        "--batch_size",
        "4",
        "--max_new_tokens",
        "16",
        "--fresh",
    ]
    began = time.monotonic()
    infer.main(command)
    records = [record for _, record in iter_lines(output)]
    count = len(records)
    return {
        "questions": count,
        "hit_at_1": sum(record["hit_at_1"] for record in records) / count,
        "hit_at_5": sum(record["hit_at_5"] for record in records) / count,
        "tokens": sum(record["num_tokens"] for record in records) / count,
        "seconds": time.monotonic() - began,
    }


def show_table(rows: dict[str, Json], args: argparse.Namespace, console: Console) -> None:
    """The three rows in one table."""
    table = Table(title=f"Conversations about countries never trained on (seed {args.seed})")
    for name in ("", "questions", "H@1", "H@5", "tokens", "seconds"):
        table.add_column(name, justify="left" if not name else "right")
    for name, row in rows.items():
        hits = (f"{row[key]:.2f}" for key in ("hit_at_1", "hit_at_5"))
        rest = (f"{row['tokens']:.0f}", f"{row['seconds']:.0f}")
        table.add_row(name, str(row["questions"]), *hits, *rest)
    console.print(table)


def show_conversation(checkpoint: Path, data: Path, console: Console) -> None:
    """Answer one test conversation turn by turn; its evidence becomes the pool to chat with."""
    conversation = read_conversations(data / "test.jsonl")[0]
    write_pool(data / "pool.jsonl", conversation.evidence)
    model, builder = load(read_checkpoint(checkpoint))
    memory, interaction = builder.memory(conversation), []
    for number, turn in enumerate(conversation.turns):
        example = builder.turn(conversation, number, interaction, memory)
        record = answer_batch(model, builder.prompt, [example], 16)[0]
        interaction.append((turn.question, record["answer"]))
        show_answer(console, builder.prompt, record, example)
        gold = gold_interaction(conversation, number + 1)[-1][1]
        console.print(f"  [dim]gold: {gold}[/]", highlight=False)


if __name__ == "__main__":
    run_cli(main)
