"""Batch inference: ``infer.py answer``."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from threading import Event
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from tqdm import tqdm

from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.jsonlines import Json, iter_lines
from turngraph.data.types import Interaction
from turngraph.inference.answer_batches import Batching, answer_batches, unanswered
from turngraph.inference.choose import Choice
from turngraph.inference.explain import explain_answers
from turngraph.inference.load import device_of, load
from turngraph.inference.output import AnswerFile
from turngraph.inference.propose import Proposer, load_proposer, read_choice
from turngraph.inference.questions import Questions
from turngraph.model.checkpoint import check_manifest, checkpoint_hash, file_hash
from turngraph.model.distributed import process_group_ended, sharding_wanted
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger("infer")
WINDOW = 256
"""Questions that are batched by length together; none is answered before those of the windows
before it. A fixed number: batches must not depend on where a run was stopped."""
WINDOW_CONVERSATIONS = 128
"""With predicted history a window is so many conversations: their first turns are answered
together, then their second turns, and so on."""
EXIT_ERRORS = 1
NO_SETTING = {"command", "run", "input", "output", "checkpoint", "base_model", "device"}
NO_SETTING |= {"keep_going", "fresh", "max_minutes", "explain", "proposals"}
"""Options that shape no answer, or that ``settings_of`` looks behind."""


def answer_command(args: argparse.Namespace) -> None:
    """``infer.py answer``: predictions for a file of conversations, in its order.

    Raises:
        ValueError: input, output, checkpoint or device cannot be used.
        SystemExit: with ``EXIT_GO_ON`` where it was asked to stop, with ``EXIT_ERRORS`` where
            some lines of the predictions are errors.
    """
    state = PartialState(cpu=device_of(args) == "cpu")
    with process_group_ended():
        answer(args, state.is_main_process)


def answer(args: argparse.Namespace, main: bool) -> None:
    """``infer.py answer`` in one of its processes, the main one or another."""
    if not main:
        logging.disable(logging.INFO)
    check_manifest(Path(args.checkpoint))
    questions, choice = read_input(args)
    file = None
    if main:
        size = len(questions.lines) + len(questions.errors)
        file = AnswerFile(args.output, settings_of(args), size, args.fresh)
    loaded = None
    with StopRequest(args.max_minutes) as stop:
        if not everywhere(file and file.whole):
            loaded = answer_all(args, questions, choice, file, stop)
        if file and args.explain:
            model, builder = loaded or load(args)
            explain_answers(args, model, builder, questions.conversations, questions.pools, stop)
    say_how_it_ended(file, args)


def answer_all(
    args: argparse.Namespace,
    questions: Questions,
    choice: Choice | None,
    file: AnswerFile | None,
    stop: StopRequest,
) -> tuple[GraphLM, ExampleBuilder]:
    """Answer what is not answered yet.

    Args:
        args: the options.
        questions: to answer.
        choice: what the answers are chosen from.
        file: the main process's.
        stop: asked after every batch.

    Returns:
        The model that has answered, and its builder.

    Raises:
        SystemExit: it was asked to stop.
    """
    main = file is not None
    with file or nullcontext():
        model, builder = load(args)
        builder.cut = args.cut_edges
        proposer = load_proposer(args, choice, args.cut_edges)
        if file is not None:
            file.begin()
            file.place(questions.errors)
        known = everywhere(file and dict(file.known))
        batching = Batching(
            args.max_new_tokens, args.batch_tokens, args.batch_size, args.keep_going, choice
        )
        history = gold_history if args.history == "gold" else predicted_history
        bar = tqdm(total=len(questions.lines), initial=len(known), desc="answers", disable=not main)
        with bar:
            for records in history(model, builder, questions, batching, known, proposer):
                if file is not None:
                    file.add(records)
                bar.update(len(records))
                if any(gather_object([bool(stop)])):
                    logger.info("stopped: %s; the same command goes on", stop.reason)
                    raise SystemExit(EXIT_GO_ON)
        builder.log_counts()
        if file is not None:
            file.finish()
    return model, builder


def read_input(args: argparse.Namespace) -> tuple[Questions, Choice | None]:
    """What is to be answered, and what the answers are chosen from.

    Raises:
        ValueError: a file is wrong or is the output as well, or options do not go together.
    """
    for read in filter(None, (args.input, args.proposals)):
        if Path(args.output).resolve() == Path(read).resolve():
            raise ValueError(f"--output: {args.output} is the input, too")
    changed = {
        "--history predicted": args.history == "predicted",
        "--evidence_of other": args.evidence_of == "other",
        "--cut_edges": args.cut_edges != "nothing",
    }
    if args.explain and sharding_wanted():
        raise ValueError("--explain: not under FSDP; start one process, or without shards")
    questions = Questions.read(args)
    choice = read_choice(args, next((name for name, given in changed.items() if given), None))
    if choice is not None and not choice.is_asked and not args.keep_going:
        for conversation, turn in questions.lines:
            asked = questions.conversations[conversation]
            if missing := choice.missing(asked, turn):
                raise ValueError(unanswered(asked, turn, missing))
    return questions, choice


def everywhere(value: Any) -> Any:
    """The main process's value, in all processes."""
    return broadcast_object_list([value])[0]


def say_how_it_ended(file: AnswerFile | None, args: argparse.Namespace) -> None:
    """Log how many lines there are and how many are errors, and end with the code for it."""
    if file is None:
        return
    if file.whole:
        file.num_errors = sum("error" in record for _, record in iter_lines(file.path))
        logger.info("%s is whole already; --fresh answers again", args.output)
    answered = file.num_lines - file.num_errors
    logger.info("wrote %s: %d answers, %d errors", args.output, answered, file.num_errors)
    if file.num_errors:
        raise SystemExit(EXIT_ERRORS)


def settings_of(args: argparse.Namespace) -> Json:
    """What shapes the answers of a run, with hashes of what it reads.

    Raises:
        ValueError: there is no whole checkpoint.
    """
    return {
        "checkpoint": checkpoint_hash(args.checkpoint),
        "input": file_hash(args.input),
        "device": device_of(args).partition(":")[0],
        "proposals": args.proposals and hash_of(args.proposals),
        **{name: value for name, value in vars(args).items() if name not in NO_SETTING},
    }


def hash_of(path: str) -> str:
    """Of a file, or of a checkpoint."""
    return checkpoint_hash(path) if Path(path).is_dir() else file_hash(path)


def gold_history(
    model: GraphLM,
    builder: ExampleBuilder,
    questions: Questions,
    batching: Batching,
    known: dict[int, Json],
    proposer: Proposer | None = None,
) -> Iterator[dict[int, Json]]:
    """Prediction records by their lines, where each turn sees the gold answers before it.

    Graphs are built one window ahead.
    """
    builders = [builder] if proposer is None else [builder, proposer.builder]

    def build(window: list[int]) -> list[list[Example]]:
        """The examples of each builder."""
        return [
            [
                example
                for n in window
                if not closing.is_set()
                for example in of_one.conversation(
                    questions.conversations[n], questions.chosen[n], questions.pool(n)
                )
            ]
            for of_one in builders
        ]

    closing = Event()
    windows = list(questions.windows(WINDOW, True, known))
    with ThreadPoolExecutor(1) as ahead, ExitStack() as stack:
        stack.callback(closing.set)  # nobody waits for a window that is not needed
        built = [ahead.submit(build, window) for window in windows[:1]]
        for place, window in enumerate(windows):
            examples, *to_propose = built.pop().result()
            built += [ahead.submit(build, next_) for next_ in windows[place + 1 : place + 2]]
            for of_window in to_propose:
                proposer.propose(of_window, batching)
            lines = [questions.lines[n, t] for n in window for t in questions.chosen[n]]
            done = {number for number, line in enumerate(lines) if line in known}
            for found in answer_batches(model, builder.prompt, examples, batching, done):
                yield {lines[number]: record for number, record in found.items()}


def predicted_history(
    model: GraphLM,
    builder: ExampleBuilder,
    questions: Questions,
    batching: Batching,
    known: dict[int, Json],
    proposer: Proposer | None = None,
) -> Iterator[dict[int, Json]]:
    """Prediction records by their lines, where each turn sees the model's own earlier answers.

    The first turns of a window's conversations are answered together, then the second ones, and so
    on. A turn without an answer counts as one that was answered by nothing.
    """
    for window in questions.windows(WINDOW_CONVERSATIONS, False, known):
        conversations = {n: questions.conversations[n] for n in window}
        reader = Reader(builder, questions, window)
        proposing = None if proposer is None else Reader(proposer.builder, questions, window)
        interactions: dict[int, list[tuple[str, str]]] = {n: [] for n in window}
        for turn in range(max(len(c.turns) for c in conversations.values())):
            asked = [n for n in window if turn < len(conversations[n].turns)]
            examples = reader.examples(asked, turn, interactions)
            lines = [questions.lines[n, turn] for n in asked]
            if proposing is not None:
                to_propose = proposing.examples(asked, turn, interactions)
                if any(line not in known for line in lines):
                    proposer.propose(to_propose, batching)
            records = {line: known[line] for line in lines if line in known}
            done = {number for number, line in enumerate(lines) if line in known}
            for found in answer_batches(model, builder.prompt, examples, batching, done):
                new = {lines[number]: record for number, record in found.items()}
                records |= new
                yield new
            for n, line in zip(asked, lines, strict=True):
                question = conversations[n].turns[turn].question
                interactions[n].append((question, records[line].get("answer", "")))
        for of_one in filter(None, (reader, proposing)):
            of_one.close()


class Reader:
    """Conversations of a window as one model reads them, turn by turn.

    Args:
        builder: of the model's examples.
        questions: where the conversations are from.
        window: their numbers.
    """

    def __init__(
        self, builder: ExampleBuilder, questions: Questions, window: Sequence[int]
    ) -> None:
        self.builder, self.questions = builder, questions
        self.memories = {n: builder.memory(questions.conversations[n]) for n in window}

    def examples(
        self, asked: Sequence[int], turn: int, interactions: Mapping[int, Interaction]
    ) -> list[Example]:
        """Of some of the conversations a turn, with the turns before it."""
        conversations, pool = self.questions.conversations, self.questions.pool
        return [
            self.builder.turn(conversations[n], turn, interactions[n], self.memories[n], pool(n))
            for n in asked
        ]

    def close(self) -> None:
        """Close the conversations' memory graphs."""
        for memory in self.memories.values():
            if memory.graph is not None:
                memory.graph.close()
