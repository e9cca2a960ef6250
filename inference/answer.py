"""Batch inference: ``infer.py answer``."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from tqdm import tqdm

from data.cli import EXIT_GO_ON, StopRequest
from data.entities import complete_entities
from data.examples import Example, ExampleBuilder, choose_questions
from data.jsonlines import BadLine, Json, iter_lines, join_pools, read_conversations
from data.predictions import bad_line_records
from data.types import Conversation, Evidence
from inference.batches import Batching, answer_batches
from inference.choose import Choice
from inference.explain import explain_answers
from inference.load import check_writes, device_of, load
from inference.output import AnswerFile
from model.checkpoint import check_manifest, checkpoint_hash, file_hash
from model.graph_lm import GraphLM

logger = logging.getLogger("infer")
DRAW_SEED = 1
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
    if not (main := state.is_main_process):
        logging.disable(logging.INFO)
    for read in filter(None, (args.input, args.proposals)):
        if Path(args.output).resolve() == Path(read).resolve():
            raise ValueError(f"--output: {args.output} is the input, too")
    check_manifest(Path(args.checkpoint))
    questions, choice = Questions.read(args), read_choice(args)
    file = None
    if main:
        size = len(questions.lines) + len(questions.errors)
        file = AnswerFile(args.output, settings_of(args), size, args.fresh)
    if everywhere(file and file.whole):
        if file and args.explain:
            explain_answers(args, *load(args), questions.conversations, questions.pools)
        return say_how_it_ended(file, args)
    with StopRequest(args.max_minutes) as stop, file or nullcontext():
        model, builder = load(args)
        builder.cut = args.cut_edges
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
            for records in history(model, builder, questions, batching, known):
                if file is not None:
                    file.add(records)
                bar.update(len(records))
                if any(gather_object([bool(stop)])):
                    logger.info("stopped: %s; the same command goes on", stop.reason)
                    raise SystemExit(EXIT_GO_ON)
        builder.log_counts()
        if file is not None:
            file.finish()
            if args.explain:
                explain_answers(args, model, builder, questions.conversations, questions.pools)
    say_how_it_ended(file, args)


def everywhere(value: Any) -> Any:
    """The main process's value, in all processes."""
    return broadcast_object_list([value])[0]


def say_how_it_ended(file: AnswerFile | None, args: argparse.Namespace) -> None:
    """Log how many lines there are and how many are errors, and end with the code for it."""
    if file is None:
        return
    if file.whole:
        file.num_errors = sum("error" in record for _, record in iter_lines(file.path))
        logger.info("%s is whole already; --fresh answers anew", args.output)
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
        "proposals": args.proposals and file_hash(args.proposals),
        **{name: value for name, value in vars(args).items() if name not in NO_SETTING},
    }


def read_choice(args: argparse.Namespace) -> Choice | None:
    """What the answers are chosen from; None where they are written.

    Raises:
        ValueError: the file is wrong, or the options do not go together.
    """
    if args.proposals is None:
        return None
    if args.history == "predicted":
        raise ValueError("--proposals were made with gold history: take away --history predicted")
    check_writes(args.checkpoint)
    return Choice.read(args.proposals, args.proposal_weight, args.num_proposals)


@dataclass(frozen=True)
class Questions:
    """What is to be answered, and where the answers stand.

    Args:
        conversations: of the input, with entities.
        pools: what each conversation reads instead of its own evidence; None: its own.
        chosen: number of the conversation -> numbers of its turns to answer.
        lines: conversation and turn -> line of the predictions, from 0.
        errors: lines of the predictions that say what could not be read.
    """

    conversations: list[Conversation]
    pools: list[tuple[Evidence, ...]] | None
    chosen: dict[int, list[int]]
    lines: dict[tuple[int, int], int]
    errors: dict[int, Json]

    @classmethod
    def read(cls, args: argparse.Namespace) -> Questions:
        """The questions that the options choose from the input.

        Raises:
            ValueError: a line is wrong and ``--keep_going`` is not given, no question is left, or
                the options do not go together.
        """
        if args.explain:
            check_writes(args.checkpoint)
        if args.explain and args.cut_edges == "shuffle":
            raise ValueError("--explain names the entities of edges: take away --cut_edges shuffle")
        bad_lines: list[BadLine] | None = [] if args.keep_going else None
        conversations = complete_entities(read_conversations(args.input, bad_lines))
        chosen = chosen_turns(conversations, args) if conversations else {}
        pools = None if args.evidence_of == "own" else other_pools(conversations)
        lines, errors = lines_of(conversations, chosen, bad_lines or ())
        return cls(conversations, pools, chosen, lines, errors)

    def pool(self, number: int) -> tuple[Evidence, ...] | None:
        """What a conversation reads instead of its own evidence."""
        return None if self.pools is None else self.pools[number]

    def windows(self, size: int, turns: bool, known: dict[int, Json]) -> Iterator[list[int]]:
        """Conversations that are answered together, those windows left out that are known.

        Args:
            size: of a window.
            turns: whether it counts turns to answer, else conversations.
            known: lines that are answered already.
        """
        window: list[int] = []
        left = size
        for number, chosen in self.chosen.items():
            window.append(number)
            left -= len(chosen) if turns else 1
            if left <= 0 or number == max(self.chosen):
                if any(self.lines[n, t] not in known for n in window for t in self.chosen[n]):
                    yield window
                window, left = [], size


def lines_of(
    conversations: Sequence[Conversation],
    chosen: dict[int, list[int]],
    bad_lines: Sequence[BadLine],
) -> tuple[dict[tuple[int, int], int], dict[int, Json]]:
    """The lines of the predictions: of each question, and of what could not be read."""
    lines: dict[tuple[int, int], int] = {}
    errors: dict[int, Json] = {}
    ids, waiting = {c.id for c in conversations}, list(bad_lines)
    for number in range(len(conversations) + 1):
        while waiting and waiting[0].position == number:
            for record in bad_line_records(waiting.pop(0), ids):
                errors[len(lines) + len(errors)] = record
        for turn in chosen.get(number, ()):
            lines[number, turn] = len(lines) + len(errors)
    return lines, errors


def chosen_turns(
    conversations: Sequence[Conversation], args: argparse.Namespace
) -> dict[int, list[int]]:
    """Number of the conversation -> numbers of the turns to answer, as the options say.

    Raises:
        ValueError: no turn is left, or turns are left out where later ones need their answers.
    """
    if not args.max_questions and not args.single_answers_only:
        return {number: list(range(len(c.turns))) for number, c in enumerate(conversations)}
    if args.history == "predicted":
        raise ValueError(
            "--history predicted answers every turn: take away --max_questions "
            "and --single_answers_only"
        )
    try:
        return choose_questions(
            conversations, args.max_questions, args.single_answers_only, DRAW_SEED
        )
    except ValueError as error:
        raise ValueError(f"{args.input}: {error}") from None


def other_pools(conversations: Sequence[Conversation]) -> list[tuple[Evidence, ...]]:
    """For each conversation the evidence of the next one that has another pool.

    Raises:
        ValueError: all conversations share one pool.
    """
    own = [join_pools(c.evidence, *(t.evidence for t in c.turns)) for c in conversations]
    found = []
    for number, pool in enumerate(own):
        later = own[number + 1 :] + own[:number]
        other = next((p for p in later if p is not pool and p != pool), None)
        if other is None:
            raise ValueError("--evidence_of other: all conversations have the same evidence")
        found.append(other)
    return found


def gold_history(
    model: GraphLM,
    builder: ExampleBuilder,
    questions: Questions,
    batching: Batching,
    known: dict[int, Json],
) -> Iterator[dict[int, Json]]:
    """Prediction records by their lines, where each turn sees the gold answers before it.

    Graphs are built one window ahead.
    """

    def build(window: list[int]) -> list[Example]:
        return [
            example
            for n in window
            if not closing.is_set()
            for example in builder.conversation(
                questions.conversations[n], questions.chosen[n], questions.pool(n)
            )
        ]

    closing = Event()
    windows = list(questions.windows(WINDOW, True, known))
    with ThreadPoolExecutor(1) as ahead, ExitStack() as stack:
        stack.callback(closing.set)  # nobody waits for a window that is not needed
        built = [ahead.submit(build, window) for window in windows[:1]]
        for place, window in enumerate(windows):
            examples = built.pop().result()
            built += [ahead.submit(build, next_) for next_ in windows[place + 1 : place + 2]]
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
) -> Iterator[dict[int, Json]]:
    """Prediction records by their lines, where each turn sees the model's own earlier answers.

    The first turns of a window's conversations are answered together, then the second ones, and so
    on. A turn without an answer counts as one that was answered by nothing.
    """
    for window in questions.windows(WINDOW_CONVERSATIONS, False, known):
        conversations = {n: questions.conversations[n] for n in window}
        memories = {n: builder.memory(c) for n, c in conversations.items()}
        interactions: dict[int, list[tuple[str, str]]] = {n: [] for n in window}
        for turn in range(max(len(c.turns) for c in conversations.values())):
            asked = [n for n in window if turn < len(conversations[n].turns)]
            examples = [
                builder.turn(
                    conversations[n], turn, interactions[n], memories[n], questions.pool(n)
                )
                for n in asked
            ]
            lines = [questions.lines[n, turn] for n in asked]
            records = {line: known[line] for line in lines if line in known}
            done = {number for number, line in enumerate(lines) if line in known}
            for found in answer_batches(model, builder.prompt, examples, batching, done):
                new = {lines[number]: record for number, record in found.items()}
                records |= new
                yield new
            for n, line in zip(asked, lines, strict=True):
                question = conversations[n].turns[turn].question
                interactions[n].append((question, records[line].get("answer", "")))
        for memory in memories.values():
            if memory.graph is not None:
                memory.graph.close()
