"""Answer with a checkpoint: ``python infer.py answer | score | chat``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from data.cli import run_cli
from data.score import GROUPINGS, score_files
from inference.answer import answer_command
from inference.chat import chat_command


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and run one of the commands."""
    parser = argparse.ArgumentParser(prog="infer.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    answer = commands.add_parser("answer", help="answer every turn of a file of conversations")
    add_model_options(answer)
    answer.add_argument("--input", required=True, help="conversations, JSON Lines")
    answer.add_argument("--output", required=True, help="predictions, JSON Lines")
    answer.add_argument(
        "--history",
        choices=("gold", "predicted"),
        default="gold",
        help="which answers fill the interaction",
    )
    answer.add_argument(
        "--evidence_of",
        choices=("own", "other"),
        default="own",
        help="other: each conversation gets another one's evidence, a control",
    )
    answer.add_argument(
        "--cut_edges",
        choices=("nothing", "entity", "all"),
        default="nothing",
        help="edges to leave out of every graph: what the trained model owes to them",
    )
    answer.add_argument(
        "--single_answers_only",
        action="store_true",
        help="leave out questions whose gold answer is a list",
    )
    answer.add_argument("--max_questions", type=positive, help="answer a fixed draw of so many")
    answer.add_argument("--batch_size", type=positive, default=8, help="examples in one batch")
    answer.set_defaults(run=answer_command)

    score = commands.add_parser("score", help="score predictions against their gold answers")
    score.add_argument("--predictions", nargs="+", required=True, help="files of infer.py answer")
    score.add_argument("--by", nargs="*", default=[], choices=GROUPINGS, help="breakdowns")
    score.add_argument("--output_json", help="write the numbers here, too")
    score.set_defaults(run=lambda args: score_files(args.predictions, args.by, args.output_json))

    chat = commands.add_parser("chat", help="ask about an evidence pool, or what is remembered")
    add_model_options(chat)
    chat.add_argument("--evidence", help="evidence pool, JSON Lines")
    chat.add_argument("--memory", metavar="my.db", help="memory graph; it keeps what is said")
    chat.set_defaults(run=chat_command)

    args = parser.parse_args(argv)
    args.run(args)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that loads a checkpoint."""
    parser.add_argument("--checkpoint", required=True, help="a folder that train.py wrote")
    parser.add_argument("--base_model", help="where the base model is now, if it has moved")
    parser.add_argument("--device", help="cpu, cuda, ...; the first GPU where there is one")
    parser.add_argument(
        "--max_new_tokens", type=positive, default=48, help="longest answer, in tokens"
    )


def positive(text: str) -> int:
    """A whole number from 1, for ``argparse``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number from 1")
    return int(text)


if __name__ == "__main__":
    run_cli(main)
