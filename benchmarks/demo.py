"""The demo: from the sample benchmark to a trained checkpoint that answers; ``make demo``.

Scores the untrained LM, the trained checkpoint, and the trained checkpoint with wrong evidence on
conversations about countries that training never saw. A demo that was stopped resumes; one that is
complete starts over.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

import turngraph
from turngraph import infer, train
from turngraph.configs.parse import read_config, write_config
from turngraph.configs.schema import Config
from turngraph.configs.shipped import find_config
from turngraph.data.cli import run_cli
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.jsonlines import read_conversations, write_pool
from turngraph.data.scoring.predictions import unfinished
from turngraph.data.sources import worldfacts
from turngraph.data.types import gold_interaction
from turngraph.inference.display import show_answer
from turngraph.model.checkpoint import MANIFEST, save_checkpoint
from turngraph.model.graph_lm import make_model
from turngraph.training.run_folder import start_afresh

MAX_NEW_TOKENS = 16
ANSWERS = ("untrained.jsonl", "trained.jsonl", "wrong_evidence.jsonl")
STARTED = "demo.started"
"""File with the settings of a demo, as long as it is not complete."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo: make data, train, answer, and print the table."""
    args = parse(argv)
    console, began = Console(), time.monotonic()
    output = Path(args.output)
    data, trained = output / "data", output / "last"
    options = training_options(output, args.seed)
    start(output, options, args.num_questions)
    answered = partial(answer_and_score, data=data, num_questions=args.num_questions)
    rows: dict[str, Json] = {}

    console.rule("1. The sample benchmark")
    worldfacts.main(["--output", str(data), "--seed", str(args.seed)])

    console.rule("2. The untrained language model, evidence as text")
    untrained = output / "untrained"
    if not (untrained / MANIFEST).is_file():
        write_untrained(untrained, options)
    rows["untrained"] = answered(untrained, output=output / ANSWERS[0])

    console.rule("3. Fine-tuning: graph + evidence memory")
    train.main(["--config", "demo", *options])
    rows["trained"] = answered(trained, output=output / ANSWERS[1])

    console.rule("4. The trained model with another conversation's evidence")
    rows["trained, wrong evidence"] = answered(
        trained, output=output / ANSWERS[2], evidence_of="other"
    )

    console.rule("5. One conversation, turn by turn")
    pool = data / "pool.jsonl"
    show_conversation(trained, data / "test.jsonl", pool, console)
    show_table(rows, args.seed, console)
    if args.output_json:
        Path(args.output_json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    (output / STARTED).unlink()
    console.print(f"\n{time.monotonic() - began:.0f} seconds. Ask it yourself:", highlight=False)
    ways = {"chat": "here", "serve": "in a browser, at http://127.0.0.1:8080"}
    for name, where in ways.items():
        command = [turngraph_command(), name, "--checkpoint", str(trained), "--evidence", str(pool)]
        console.print(f"  {shlex.join(command)}  # {where}", highlight=False, soft_wrap=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=0, help="random seed of data and training")
    parser.add_argument("--output", default="runs/demo", help="folder for data and checkpoints")
    parser.add_argument("--num_questions", type=int, default=100, help="test questions to answer")
    parser.add_argument("--output_json", help="file for the table's numbers")
    return parser.parse_args(argv)


def training_options(output: Path, seed: int) -> list[str]:
    """Return the options of ``turngraph train`` that set the demo's files and random seed."""
    return [
        f"--data.train={output / 'data' / 'train.jsonl'}",
        f"--data.tune={output / 'data' / 'tune.jsonl'}",
        f"--training.output={output}",
        f"--training.seed={seed}",
    ]


def start(output: Path, options: Sequence[str], num_questions: int) -> None:
    """Discard an earlier demo, unless it has the same settings and was stopped: it resumes."""
    started = output / STARTED
    config = write_config(read_config(find_config("demo"), *options))
    settings = json.dumps({"num_questions": num_questions, "config": config})
    if started.is_file() and started.read_text(encoding="utf-8") == settings:
        return
    output.mkdir(parents=True, exist_ok=True)
    start_afresh(output)
    if (output / "untrained" / MANIFEST).is_file():
        shutil.rmtree(output / "untrained")
    for name in ANSWERS:
        for path in (output / name, unfinished(output / name)):
            path.unlink(missing_ok=True)
    started.write_text(settings, encoding="utf-8")


def write_untrained(folder: Path, options: Sequence[str]) -> None:
    """Write a checkpoint of the untrained LM: the same prompt and passages as text, no graph."""
    config = read_config(find_config("demo"), *options)
    training = dataclasses.replace(config.training, max_new_tokens=MAX_NEW_TOKENS)
    save_untrained(dataclasses.replace(config, training=training), folder)


def save_untrained(config: Config, folder: Path, base_model: str | None = None) -> None:
    """Write a checkpoint of a config's untrained LM, which reads the evidence as text.

    Args:
        config: its base model, its retrieval and its answers' length are kept.
        folder: to write to.
        base_model: where the base model is now; None: where the config says.
    """
    text = dataclasses.replace(config.model, evidence="text", answers="text", layer=0, lora=None)
    training = dataclasses.replace(config.training, max_steps=0)
    config = dataclasses.replace(config, model=text, memory_graph=None, training=training)
    loaded = dataclasses.replace(text, base_model=base_model or text.base_model)
    save_checkpoint(make_model(loaded), config, {}, folder)


def answer_and_score(
    checkpoint: Path,
    data: Path,
    output: Path,
    *,
    num_questions: int,
    evidence_of: str = "own",
) -> Json:
    """Answer test questions with ``turngraph answer``, and return a row of the table."""
    options = {
        "--checkpoint": checkpoint,
        "--input": data / "test.jsonl",
        "--output": output,
        "--max_questions": num_questions,
        "--evidence_of": evidence_of,
        "--batch_size": 4,
    }
    infer.main(["answer", *(f"{name}={value}" for name, value in options.items())])
    records = [record for _, record in iter_lines(output)]
    count = len(records)
    return {
        "questions": count,
        "hit_at_1": sum(record["hit_at_1"] for record in records) / count,
        "hit_at_5": sum(record["hit_at_5"] for record in records) / count,
        "tokens": sum(record["num_tokens"] for record in records) / count,
        "seconds": sum(record["milliseconds"] for record in records) / 1000,
    }


def show_table(rows: dict[str, Json], seed: int, console: Console) -> None:
    """Print the rows as one table."""
    table = Table(title=f"Conversations about countries never trained on (seed {seed})")
    for name in ("", "questions", "H@1", "H@5", "tokens", "seconds"):
        table.add_column(name, justify="left" if not name else "right")
    for name, row in rows.items():
        hits = (f"{row[key]:.2f}" for key in ("hit_at_1", "hit_at_5"))
        rest = (f"{row['tokens']:.0f}", f"{row['seconds']:.0f}")
        table.add_row(name, str(row["questions"]), *hits, *rest)
    console.print(table)


def show_conversation(checkpoint: Path, test: Path, pool: Path, console: Console) -> None:
    """Ask the questions of the first test conversation; write its evidence as a pool for chats."""
    conversation = read_conversations(test)[0]
    write_pool(pool, conversation.evidence)
    qa = turngraph.load(checkpoint)
    chat = qa.chat(evidence=[pool])
    for index, turn in enumerate(conversation.turns):
        answer = chat.ask(turn.question)
        show_answer(console, qa.builder.prompt, answer.record, answer.example)
        gold = gold_interaction(conversation, index + 1)[-1][1]
        console.print(f"  [dim]gold: {gold}[/]", highlight=False)


def turngraph_command() -> str:
    """Return the command that starts this environment's ``turngraph`` in the working folder."""
    installed = Path(sys.executable).with_name("turngraph")
    if not installed.is_file() or os.environ.get("VIRTUAL_ENV") == str(installed.parent.parent):
        return "turngraph"
    is_below = installed.is_relative_to(Path.cwd())
    return str(installed.relative_to(Path.cwd()) if is_below else installed)


if __name__ == "__main__":
    run_cli(main)
