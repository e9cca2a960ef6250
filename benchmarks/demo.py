"""The demo: on the sample benchmark, untrained, text, the paper's graph, the reader; ``make demo``.

Each row is trained and answers by the commands that users have, in a process of its own, on
conversations about countries that training never saw. Two rows run at once on two cores. A demo
that was stopped resumes; one that is complete starts over.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

import turngraph
from turngraph.configs.parse import read_config, write_config
from turngraph.configs.schema import Config
from turngraph.configs.shipped import find_config
from turngraph.configs.user_error import UserError
from turngraph.data.cli import EXIT_GO_ON, run_cli
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.jsonlines import read_conversations, write_pool
from turngraph.data.scoring.predictions import unfinished
from turngraph.data.sources import worldfacts
from turngraph.data.types import gold_interaction
from turngraph.inference.display import show_answer
from turngraph.model.checkpoint import MANIFEST, save_checkpoint
from turngraph.model.make_model import make_model
from turngraph.training.run_folder import start_afresh
from turngraph.training.run_log import LOG

MAX_NEW_TOKENS = 16
STARTED = "demo.started"
"""File with the settings of a demo, as long as it is not complete."""
SETTING = "INFO     "
"""A line of a training's settings begins so; its log and its checkpoint have them, too."""
ADVICE = "INFO answer with:"
"""The last line of a training; the demo answers by itself."""
RUNNING: list[subprocess.Popen[str]] = []
"""Commands that run now."""


@dataclass(frozen=True)
class Row:
    """Row of the table.

    Args:
        name: as shown.
        config: name of the shipped config that it is trained with; None: it answers with the
            checkpoint of ``like``.
        like: name of another row.
        options: of ``turngraph train``, or of ``turngraph answer`` for the checkpoint of ``like``.
    """

    name: str
    config: str | None = None
    like: str | None = None
    options: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The name as part of file names."""
        return self.name.replace(",", "").replace("'", "").replace(" ", "_")


READER = Row("reader", "demo")
LM_OPTIONS = ("--data.max_train_questions=56", "--training.batches_per_step=2")
"""As many questions as take the time of the reader's 80 on a CPU with bf16 instructions; without
them they take longer."""
LATER = Row("reader, wrong evidence", like="reader", options=("--evidence_of=other",))
TRAINED = (
    Row("text", "worldfacts/text", options=LM_OPTIONS),
    Row("paper's graph", "worldfacts/graph", options=LM_OPTIONS),
    READER,
    Row("reader, no entity edges", "demo", options=("--evidence.edges=no_entity",)),
)
"""Rows that are trained, for about the same time."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo: make data, train and answer the rows, and print the table."""
    args = parse(argv)
    console, began = Console(), time.monotonic()
    output = Path(args.output)
    data = output / "data"
    start(output, args)
    console.rule("1. The sample benchmark")
    worldfacts.main(["--output", str(data), "--seed", str(args.seed)])

    console.rule("2. Untrained, and trained in four ways")
    untrained = Row("untrained")
    if not (folder_of(output, untrained) / MANIFEST).is_file():
        write_untrained(
            folder_of(output, untrained), training_options(output, untrained, args.seed)
        )
    rows = {row.name: row for row in (untrained, *TRAINED, LATER)}
    found = run_rows(rows, output, args, console)

    console.rule("3. One conversation with the reader, turn by turn")
    pool = data / "pool.jsonl"
    trained = folder_of(output, READER)
    show_conversation(trained, data / "test.jsonl", pool, console)
    show_table(found, args.seed, console)
    if args.output_json:
        Path(args.output_json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    (output / STARTED).unlink()
    console.print(f"\n{time.monotonic() - began:.0f} seconds. Ask it yourself:", highlight=False)
    ways = {"chat": "here", "serve": "in a browser, at http://127.0.0.1:8080"}
    for name, where in ways.items():
        command = [turngraph_command(), name, "--checkpoint", str(trained), "--evidence", str(pool)]
        console.print(f"  {shlex.join(command)}  # {where}", highlight=False, soft_wrap=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of data and training; the packaged reader has met test countries of others than 0",
    )
    parser.add_argument("--output", default="runs/demo", help="folder for data and checkpoints")
    parser.add_argument("--num_questions", type=int, default=40, help="test questions to answer")
    parser.add_argument("--at_once", type=int, help="rows that run at once (default: one a core)")
    parser.add_argument("--output_json", help="file for the table's numbers")
    return parser.parse_args(argv)


def run_folder(output: Path, row: Row) -> Path:
    """Return the folder of a row's run; the reader's is the demo's."""
    return output if row == READER else output / row.file


def folder_of(output: Path, row: Row) -> Path:
    """Return the folder of a row's checkpoint."""
    return run_folder(output, row) / ("last" if row.config else "")


def training_options(output: Path, row: Row, seed: int) -> list[str]:
    """Return the options of ``turngraph train`` for a row."""
    return [
        f"--data.train={output / 'data' / 'train.jsonl'}",
        f"--data.tune={output / 'data' / 'tune.jsonl' if row == READER else 'null'}",
        f"--training.output={run_folder(output, row)}",
        f"--training.seed={seed}",
        *row.options,
    ]


def start(output: Path, args: argparse.Namespace) -> None:
    """Discard an earlier demo, unless it has the same settings and was stopped: it resumes."""
    started = output / STARTED
    configs = [
        write_config(
            read_config(find_config(row.config), *training_options(output, row, args.seed))
        )
        for row in TRAINED
        if row.config
    ]
    settings = json.dumps({"num_questions": args.num_questions, "configs": configs})
    if started.is_file() and started.read_text(encoding="utf-8") == settings:
        return
    output.mkdir(parents=True, exist_ok=True)
    for row in TRAINED:
        start_afresh(run_folder(output, row))
    untrained = folder_of(output, Row("untrained"))
    if (untrained / MANIFEST).is_file():
        shutil.rmtree(untrained)
    for row in (Row("untrained"), *TRAINED, LATER):
        for path in (answers_of(output, row), unfinished(answers_of(output, row))):
            path.unlink(missing_ok=True)
    started.write_text(settings, encoding="utf-8")


def answers_of(output: Path, row: Row) -> Path:
    """Return the file of a row's predictions."""
    return output / "answers" / f"{row.file}.jsonl"


def write_untrained(folder: Path, options: Sequence[str]) -> None:
    """Write a checkpoint of the untrained LM: the same prompt and passages as text, no graph."""
    config = read_config(find_config("worldfacts/text"), *options)
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


def run_rows(
    rows: dict[str, Row], output: Path, args: argparse.Namespace, console: Console
) -> dict[str, Json]:
    """Train and answer all rows, several at once; return their numbers by name."""
    cores = os.cpu_count() or 1
    at_once = args.at_once or min(len(rows), cores)
    threads = str(max(1, cores // at_once))
    futures: dict[str, Future[Json]] = {}

    def run(row: Row) -> Json:
        if row.like:
            futures[row.like].result()  # was started before
        for command in commands(row, rows, output, args):
            call(row, command, threads, console)
        found = numbers(answers_of(output, row))
        log = run_folder(output, row) / LOG
        if row.config:
            steps = [record for _, record in iter_lines(log) if "loss" in record]
            found["training_seconds"] = max(float(record["seconds"]) for record in steps)
            options = training_options(output, row, args.seed)
            config = read_config(find_config(row.config), *options)
            found["training_questions"] = config.data.max_train_questions or 0
        line = f"H@1 {found['hit_at_1']:.2f}, H@5 {found['hit_at_5']:.2f}"
        console.print(f"{row.name}: {line}", style="bold", highlight=False)
        return found

    with ThreadPoolExecutor(at_once) as pool:
        try:
            for row in rows.values():
                futures[row.name] = pool.submit(run, row)
            for done in as_completed(futures.values()):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in RUNNING:  # it saves what it has
                process.terminate()
            raise
    return {name: future.result() for name, future in futures.items()}


def commands(
    row: Row, rows: dict[str, Row], output: Path, args: argparse.Namespace
) -> Iterator[list[str]]:
    """Yield the words after ``turngraph`` of the commands that make a row."""
    if row.config:
        yield ["train", "--config", row.config, *training_options(output, row, args.seed)]
    checkpoint = folder_of(output, rows[row.like] if row.like else row)
    given = {
        "--checkpoint": checkpoint,
        "--input": output / "data" / "test.jsonl",
        "--output": answers_of(output, row),
        "--max_questions": args.num_questions,
        "--batch_size": 4,
    }
    more = row.options if row.like else ()
    yield ["answer", *(f"{name}={value}" for name, value in given.items()), *more]


def call(row: Row, words: Sequence[str], threads: str, console: Console) -> None:
    """Run one command in a process of its own, and print its lines after the row's name.

    Raises:
        SystemExit: it was stopped.
        UserError: it failed.
    """
    command = [sys.executable, "-m", "turngraph", *words]
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        RUNNING.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith((SETTING, ADVICE)):
                continue
            console.print(Text(f"{row.name}: ", style="dim") + Text(line.rstrip()))
    RUNNING.remove(process)
    if process.returncode == EXIT_GO_ON:
        raise SystemExit(EXIT_GO_ON)
    if process.returncode:
        raise UserError(f"{row.name}: {shlex.join(words)} ended with {process.returncode}")


def numbers(answers: Path) -> Json:
    """Return a row of the table from its predictions."""
    records = [record for _, record in iter_lines(answers)]
    count = len(records)
    return {
        "questions": count,
        "hit_at_1": sum(record["hit_at_1"] for record in records) / count,
        "hit_at_5": sum(record["hit_at_5"] for record in records) / count,
        "seconds": sum(record["milliseconds"] for record in records) / 1000,
    }


def show_table(rows: dict[str, Json], seed: int, console: Console) -> None:
    """Print the rows as one table."""
    count = max(row["questions"] for row in rows.values())
    title = f"{count} questions about countries never trained on (seed {seed})"
    table = Table(title=title)
    names = ("", "trained on", "seconds", "H@1", "H@5", "answering")
    for name in names:
        table.add_column(name, justify="left" if not name else "right")
    for name, row in rows.items():
        trained = ("training_questions", "training_seconds")
        given = (f"{row[key]:.0f}" if key in row else "" for key in trained)
        hits = (f"{row[key]:.2f}" for key in ("hit_at_1", "hit_at_5"))
        table.add_row(name, *given, *hits, f"{row['seconds']:.0f} s")
    console.print(table)
    share = 1 / count**0.5
    console.print(
        f"Differences below {share:.2f} or so are chance with {count} questions.", style="dim"
    )


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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_GO_ON))  # stops what runs now, too
    run_cli(main)
