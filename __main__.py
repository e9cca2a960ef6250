"""Every command of Turngraph: ``turngraph train | answer | score | chat | export | ...``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from turngraph.configs.user_error import UserError

COMMANDS = {
    "train": "train a checkpoint from a config, or resume a run",
    "answer": "answer every turn of a file of conversations",
    "score": "score predictions against their gold answers",
    "chat": "ask about evidence, what is remembered, or neither",
    "serve": "answer many people over HTTP and in a browser",
    "export": "write model and prompts for servers such as vLLM",
    "pool": "turn documents or folders of them into an evidence pool",
    "corpus": "keep a corpus of passages on disk, larger than memory",
    "memory": "remember texts, ask, look at, correct and forget: the memory graph",
    "study": "in a clone: train and answer the rows of a study, and write its page",
    "configs": "list the configs that come with the package",
}
"""Commands that ``turngraph --help`` lists."""
USAGE = "usage: turngraph COMMAND [OPTIONS]; turngraph COMMAND --help lists a command's options\n"
TRACEBACK_HELP = "--traceback, or TURNGRAPH_TRACEBACK=1, shows where any error arose\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; its module is imported only now, as some take seconds."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--traceback" in words:
        words.remove("--traceback")
        os.environ["TURNGRAPH_TRACEBACK"] = "1"
    command, *rest = words or ["--help"]
    if command in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        listed = "".join(f"  {name:<{width}}  {help_}\n" for name, help_ in COMMANDS.items())
        _print(f"{USAGE}\n{listed}\n{TRACEBACK_HELP}")
        return
    if command == "--version":
        from turngraph import __version__

        _print(f"turngraph {__version__}\n")
        return
    from turngraph.data.cli import run_cli

    run_cli(lambda: run(command, rest))


def _print(text: str) -> None:
    """Print a text; what stops commands is imported only if it cannot be printed."""
    try:
        print(text, end="", flush=True)
    except OSError:
        from turngraph.data.cli import run_cli

        run_cli(lambda: None)  # tries again what is left of the text


def run(command: str, argv: Sequence[str]) -> None:
    """Run a command with its options.

    Raises:
        UserError: there is no such command, or it fails for what the user gave.
    """
    if command not in COMMANDS:
        from turngraph.configs.words import similar

        near = similar(command, COMMANDS)
        hint = f"did you mean {near}?" if near else f"known: {', '.join(COMMANDS)}"
        raise UserError(f"turngraph {command}: no such command; {hint}")
    if command in ("answer", "score", "chat", "serve", "export"):
        from turngraph import infer

        infer.main([command, *argv], prog="turngraph")
    elif command == "configs":
        list_configs(argv)
    else:
        _main_of(command)(argv)


def _main_of(command: str) -> Callable[[Sequence[str]], None]:
    """Return what runs a command that has a module of its own."""
    if command == "train":
        return train
    if command == "memory":
        from turngraph import memory

        return memory.main
    if command == "pool":
        from turngraph.inference import pool_themes

        return pool_themes.main
    if command == "corpus":
        from turngraph.inference import corpus_commands

        return corpus_commands.main
    try:
        from turngraph.benchmarks.study import run_study
    except ModuleNotFoundError as error:
        if error.name != "turngraph.benchmarks":
            raise
        message = "turngraph study: only in a clone of the repository, which has benchmarks/"
        raise UserError(message) from None
    return run_study.main


def train(argv: Sequence[str]) -> None:
    """Train; help and errors of the config come before torch is loaded, which takes seconds.

    Raises:
        UserError: a field of the config is wrong, a file of questions is missing, or training
            fails for what the user gave.
    """
    if {"-h", "--help"} & set(argv):
        from turngraph.configs.help import train_help

        sys.stdout.write(train_help("turngraph train"))
        return
    from turngraph.configs.parse import parse_train_options

    options, config = parse_train_options(argv)
    data, is_trained = config.data, config.training.max_steps != 0
    needed = () if options.for_gpu else (data.train if is_trained else None, data.tune)
    for path in needed:
        if path is not None and not os.path.exists(path):
            raise UserError(f"{path}: no such file")
    from turngraph import train as training

    training.main(argv)


def list_configs(argv: Sequence[str]) -> None:
    """Print the name and the purpose of every config that comes with the package."""
    from turngraph.configs.shipped import FOLDER, shipped_configs
    from turngraph.data.cli import CommandParser

    parser = CommandParser(prog="turngraph configs", description=list_configs.__doc__)
    parser.parse_args(argv)
    configs = list(shipped_configs())
    width = max(len(name) for name, _ in configs)
    for name, purpose in configs:
        print(f"{name:<{width}}  {purpose}")
    print(f"\nin {FOLDER}; train one with: turngraph train --config {configs[0][0]}")


if __name__ == "__main__":
    main()
