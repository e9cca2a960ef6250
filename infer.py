"""Answers with a checkpoint: ``python infer.py answer | score | chat | serve | export``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args

from turngraph.configs.schema import Retriever
from turngraph.configs.shipped import READER, find_checkpoint_folder
from turngraph.configs.user_error import UserError
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.scoring.score import GROUPINGS, score_files
from turngraph.inference.options import ANSWER_TOKENS, AnswerOptions, LoadOptions, MemoryOptions

Commands = Any
"""Type that ``add_subparsers`` returns; argparse does not export its type."""


def main(argv: Sequence[str] | None = None, prog: str = "infer.py") -> None:
    """Parse the command line and run one of the commands."""
    parser = CommandParser(prog=prog, description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    add_answer_command(commands)
    add_score_command(commands)

    add_chat_command(commands)
    add_serve_command(commands)
    add_export_command(commands)
    args = parser.parse_args(argv)
    check_paths(args)
    args.run(args)


def check_paths(args: argparse.Namespace) -> None:
    """Check that the named files exist, before the libraries load, which takes seconds.

    Raises:
        UserError: a checkpoint, an input or evidence does not exist.
    """
    if getattr(args, "checkpoint", None) is not None:
        args.checkpoint = str(find_checkpoint_folder(args.checkpoint))
    names = (
        ("checkpoint", "folder"),
        ("input", "file"),
        ("corpus", "folder"),
    )
    for name, kind in names:
        path = getattr(args, name, None)
        if path is not None and not Path(path).exists():
            raise UserError(f"{path}: no such {kind}")
    for path in getattr(args, "evidence", ()):
        if not Path(path).exists():
            raise UserError(f"{path}: no such file or folder")


def add_answer_command(commands: Commands) -> None:
    """Add the options of ``infer.py answer``."""
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
    add_abstain_option(answer)
    add_control_options(answer)
    answer.add_argument(
        "--single_answers_only",
        action="store_true",
        help="leave out questions whose gold answer is a list",
    )
    answer.add_argument(
        "--max_questions", type=positive, help="answer a fixed random draw of this many"
    )
    answer.add_argument(
        "--batch_tokens",
        type=positive,
        default=ANSWER_TOKENS,
        help="tokens in one batch, of padded prompts and longest answers; raise it on a large GPU",
    )
    answer.add_argument(
        "--batch_size", type=positive, help="largest number of questions in one batch"
    )
    answer.add_argument(
        "--keep_going",
        action="store_true",
        help="write an error record for a line or question that cannot be read or answered",
    )
    answer.add_argument("--fresh", action="store_true", help="discard the answers in --output")
    answer.add_argument(
        "--explain",
        metavar="OUT.html",
        help="write a page that explains the answers; of several conversations, OUT-ID.html each",
    )
    answer.add_argument(
        "--max_minutes", type=float, help="stop after this time; run the same command to resume"
    )
    answer.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="answer on a Ray cluster, a process for each GPU (with --device cpu for each core); "
        "local: on this machine",
    )
    answer.set_defaults(run=answer_command)


def add_control_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of controls, which take evidence or edges away from the model."""
    parser.add_argument(
        "--evidence_of",
        choices=("own", "other"),
        default="own",
        help="other: each conversation reads another one's evidence (a control)",
    )
    parser.add_argument(
        "--cut_edges",
        choices=("nothing", "entity", "shuffle", "all"),
        default="nothing",
        help="edges to leave out, or entity edges to rewire at random (an ablation)",
    )


def add_score_command(commands: Commands) -> None:
    """Add the options of ``infer.py score``."""
    score = commands.add_parser("score", help="score predictions against their gold answers")
    score.add_argument("--predictions", nargs="+", required=True, help="files of infer.py answer")
    score.add_argument("--by", nargs="*", default=[], choices=GROUPINGS, help="breakdowns")
    score.add_argument("--output_json", help="JSON file for the numbers")
    score.set_defaults(run=lambda args: score_files(args.predictions, args.by, args.output_json))


def add_chat_command(commands: Commands) -> None:
    """Add the options of ``infer.py chat``."""
    chat = commands.add_parser(
        "chat", help="ask questions about evidence, a memory graph, or neither"
    )
    add_model_options(chat)
    add_abstain_option(chat)
    chat.add_argument(
        "--evidence",
        nargs="+",
        metavar="PATH",
        default=[],
        help="evidence pools (.jsonl), documents, or folders of documents",
    )
    chat.add_argument(
        "--memory",
        metavar="my.db",
        help="memory graph that keeps the conversation: a file, or postgresql://HOST/DATABASE",
    )
    chat.add_argument(
        "--tenant", metavar="NAME", help="whose memory graph it is, in a PostgreSQL database"
    )
    chat.add_argument(
        "--memory_read_only", action="store_true", help="recall from --memory, remember nothing"
    )
    chat.add_argument(
        "--plan",
        choices=("none", "rules", "lm"),
        help="ask --memory by a plan of steps, found by rules or a local LM; default: as trained; "
        "/plan shows it",
    )
    chat.add_argument("--plan_model", metavar="NAME", help="the LM of --plan lm and --compute lm")
    chat.add_argument(
        "--plan_reader", action="store_true", help="have the checkpoint answer the steps of --plan"
    )
    chat.add_argument(
        "--compute",
        choices=("none", "rules", "lm"),
        help="counts and times computed from --memory come first; lm: a local LM plans what the "
        "rules cannot; default: as trained",
    )
    chat.add_argument(
        "--passages",
        type=whole,
        default=3,
        metavar="N",
        help="passages printed below an answer (3)",
    )
    chat.set_defaults(run=chat_command)


def add_serve_command(commands: Commands) -> None:
    """Add the options of ``infer.py serve``."""
    serve = commands.add_parser("serve", help="answer many people over HTTP and in a browser")
    add_model_options(serve)
    add_abstain_option(serve)
    serve.add_argument(
        "--evidence",
        nargs="+",
        metavar="PATH",
        default=[],
        help="what all users may ask about: evidence pools (.jsonl), documents, folders",
    )
    serve.add_argument(
        "--memory_dir",
        metavar="DIR",
        help="keeps conversations, documents and a memory graph for each user; default: "
        "conversations last until the server stops",
    )
    serve.add_argument(
        "--memory",
        metavar="postgresql://HOST/DATABASE",
        help="keeps conversations and a memory graph for each user, shared by several servers",
    )
    serve.add_argument(
        "--tokens", metavar="FILE", help="users and their tokens; default: one user, this machine"
    )
    serve.add_argument(
        "--add_user", metavar="NAME", help="print a new token for a user of --tokens, and end"
    )
    serve.add_argument("--host", help="name or address to listen at (127.0.0.1)")
    serve.add_argument("--port", type=positive, metavar="N", help="to listen at (8080)")
    serve.add_argument("--address", metavar="HOST:PORT", help="both in one")
    serve.add_argument("--plan", choices=("none", "rules"), help="how memory graphs are asked")
    for name, default, help_ in (
        ("batch_tokens", 2**14, "tokens that are decoded together, prompts and longest answers"),
        ("max_batch", 32, "most answers that are decoded together"),
        ("prefix_tokens", 2**15, "tokens of prompts whose keys and values conversations keep"),
        ("max_waiting", 128, "most questions that wait; more are refused with 429"),
    ):
        serve.add_argument(
            f"--{name}", type=positive, default=default, metavar="N", help=f"{help_} ({default})"
        )
    serve.add_argument(
        "--deadline", type=weight, default=120.0, metavar="SECONDS", help="for an answer (120)"
    )
    serve.set_defaults(run=serve_command)


def add_export_command(commands: Commands) -> None:
    """Add the options of ``infer.py export``."""
    export = commands.add_parser("export", help="write model and prompts for servers such as vLLM")
    add_checkpoint_options(export)
    export.add_argument(
        "--output", help="new folder for the LM with LoRA merged, in transformers' format"
    )
    export.add_argument(
        "--prompts", help="new folder for the prompts of --input, as the LM reads them"
    )
    export.add_argument("--input", help="conversations, JSON Lines")
    export.add_argument(
        "--dtype",
        choices=("bfloat16", "float32"),
        help="data type of the written tensors (the checkpoint's)",
    )
    export.set_defaults(run=export_command, quantization="none")


def add_abstain_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--abstain_below``."""
    parser.add_argument(
        "--abstain_below",
        type=weight,
        metavar="P",
        help='answer "not in the evidence" where the calibrated confidence is below P (the '
        "packaged reader has a threshold of its own; 0: answer always)",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that answers with a checkpoint."""
    add_checkpoint_options(parser)
    parser.add_argument(
        "--quantization",
        choices=("none", "4bit"),
        help="quantization of the base model, if it differs from training",
    )
    parser.add_argument(
        "--max_new_tokens", type=positive, help="longest answer, in tokens (set by training)"
    )


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that loads a checkpoint."""
    parser.add_argument(
        "--checkpoint",
        default=READER,
        help="folder that training wrote (the reader that comes with the package)",
    )
    parser.add_argument(
        "--corpus",
        metavar="DIR",
        help="corpus (turngraph corpus build) that every question searches; default: as trained",
    )
    parser.add_argument(
        "--retriever",
        choices=get_args(Retriever),
        help="how passages are retrieved (as trained); bm25 needs no sentence encoder",
    )
    parser.add_argument("--base_model", help="new folder of the base model, if it has moved")
    parser.add_argument(
        "--trust_remote_code",
        nargs="+",
        default=(),
        metavar="NAME",
        help="models whose own Python code may run",
    )
    parser.add_argument("--device", help="cpu, cuda, ... (the first GPU if there is one)")


def positive(text: str) -> int:
    """Return a whole number from 1, for ``argparse``."""
    return whole(text, 1)


def whole(text: str, least: int = 0) -> int:
    """Return a whole number from 0, for ``argparse``."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number from {least}")
    return int(text)


def weight(text: str) -> float:
    """Return a finite number from 0, for ``argparse``."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a number from 0")
    return value


def loading(args: argparse.Namespace) -> LoadOptions:
    """Return the options that say how a checkpoint is loaded."""
    return LoadOptions(
        base_model=args.base_model,
        device=args.device,
        quantization=args.quantization,
        trust_remote_code=tuple(args.trust_remote_code),
        corpus=args.corpus,
        retriever=args.retriever,
    )


def answer_command(args: argparse.Namespace) -> None:
    """Answer a file of conversations."""
    options = AnswerOptions(**{f.name: getattr(args, f.name) for f in fields(AnswerOptions)})
    from turngraph.inference.answer import answer_file  # torch, which takes seconds
    from turngraph.inference.answer_job import AnswerJob
    from turngraph.model.checkpoint import read_checkpoint

    job = AnswerJob(
        checkpoint=read_checkpoint(args.checkpoint),
        input=args.input,
        output=args.output,
        options=options,
        loading=loading(args),
        fresh=args.fresh,
        explain=args.explain,
        max_minutes=args.max_minutes,
        ray=args.ray,
    )
    answer_file(job)


def chat_command(args: argparse.Namespace) -> None:
    """Chat about evidence."""
    from turngraph.data.memory_graph.record.place import of_tenant, shown
    from turngraph.inference.api import load
    from turngraph.inference.chat import chat
    from turngraph.inference.evidence import read_evidence
    from turngraph.inference.load import device_of

    memory = None
    if args.memory is not None:
        memory = MemoryOptions(
            str(of_tenant(args.memory, args.tenant)),
            read_only=args.memory_read_only,
            plan=args.plan,
            plan_model=args.plan_model,
            plan_reader=args.plan_reader,
            compute=args.compute,
        )
    for name in ("tenant", "memory_read_only", "plan", "plan_model", "plan_reader", "compute"):
        if memory is None and getattr(args, name):
            raise UserError(f"--{name} needs --memory")
    device_of(args.device)
    evidence = read_evidence(map(Path, args.evidence))  # before the model: a file may be bad
    session = load(args.checkpoint, **asdict(loading(args))).chat(
        evidence,
        memory,
        max_new_tokens=args.max_new_tokens,
        abstain_below=args.abstain_below,
    )
    chat(session, args.evidence, None if memory is None else shown(str(memory.path)), args.passages)


def serve_command(args: argparse.Namespace) -> None:
    """Serve a checkpoint, or make a user's token."""
    from turngraph.inference.serve.run_server import new_token, read_address, serve
    from turngraph.inference.serve.serve_options import ServeOptions

    if args.add_user is not None:
        if args.tokens is None:
            raise UserError("--add_user needs --tokens")
        new_token(args.tokens, args.add_user)
        return
    values = {f.name: getattr(args, f.name) for f in fields(ServeOptions)}
    options = ServeOptions(**values | {"evidence": tuple(args.evidence)})
    host, port = read_address(args.host, args.port, args.address)
    serve(args.checkpoint, loading(args), options, args.tokens, host, port)


def export_command(args: argparse.Namespace) -> None:
    """Export a checkpoint."""
    from turngraph.inference.export import ExportJob, export
    from turngraph.model.checkpoint import read_checkpoint

    job = ExportJob(
        checkpoint=read_checkpoint(args.checkpoint),
        output=args.output,
        prompts=args.prompts,
        input=args.input,
        dtype=args.dtype,
        loading=loading(args),
    )
    export(job)


if __name__ == "__main__":
    run_cli(main)
