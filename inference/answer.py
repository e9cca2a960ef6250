"""Batch inference: answers a file of conversations, resumable, in any number of processes."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from tqdm import tqdm

from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.types import Interaction
from turngraph.inference.answer_batches import Batching, answer_batches, unanswered
from turngraph.inference.choose import Choice
from turngraph.inference.explain import explain_answers
from turngraph.inference.load import device_of, load
from turngraph.inference.options import AnswerOptions, LoadOptions
from turngraph.inference.output import AnswerFile
from turngraph.inference.propose import Proposer, load_proposer, read_choice
from turngraph.inference.questions import Questions
from turngraph.model.checkpoint import Checkpoint, file_hash
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
PATHS = ("proposals", "keep_going")
"""Options that are no setting of the answers: one is hashed, one changes no answer."""


@dataclass(frozen=True)
class AnswerJob:
    """A file of conversations to answer, and where the answers go.

    Args:
        checkpoint: that answers, read.
        input: conversations, JSON Lines.
        output: predictions, JSON Lines.
        options: which questions, and how they are answered.
        loading: how the checkpoint is loaded.
        fresh: forget what the output holds.
        explain: ``OUT.html``, a page with the reasons of each conversation's answers.
        max_minutes: stop after so long; the same job resumes.
    """

    checkpoint: Checkpoint
    input: str
    output: str
    options: AnswerOptions = AnswerOptions()
    loading: LoadOptions = LoadOptions()
    fresh: bool = False
    explain: str | None = None
    max_minutes: float | None = None

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            ValueError: they do not; the message names the option.
        """
        for read in filter(None, (self.input, self.options.proposals)):
            if Path(self.output).resolve() == Path(read).resolve():
                raise ValueError(f"--output: {self.output} is the input, too")
        if not self.explain:
            return
        if sharding_wanted():
            raise ValueError("--explain: not under FSDP; start one process, or without shards")
        self.checkpoint.check_writes()
        if self.options.cut_edges == "shuffle":
            raise ValueError("--explain names the entities of edges: take away --cut_edges shuffle")

    def settings(self, choice: Choice | None) -> Json:
        """Return what shapes the answers, with hashes of what is read."""
        shaping = dataclasses.asdict(self.options)
        proposals = None
        if choice is not None:
            read = choice.checkpoint
            proposals = file_hash(choice.path) if read is None else read.hash
        return {
            "checkpoint": self.checkpoint.hash,
            "input": file_hash(self.input),
            "device": device_of(self.loading.device).partition(":")[0],
            "proposals": proposals,
            "quantization": self.loading.quantization,
            **{name: value for name, value in shaping.items() if name not in PATHS},
        }


def answer_file(job: AnswerJob) -> None:
    """Write predictions for a file of conversations, in its order; any number of processes.

    Raises:
        ValueError: input, output, checkpoint or device cannot be used.
        SystemExit: with ``EXIT_GO_ON`` where it was asked to stop, with ``EXIT_ERRORS`` where
            some lines of the predictions are errors.
    """
    state = PartialState(cpu=device_of(job.loading.device) == "cpu")
    with process_group_ended():
        if not state.is_main_process:
            logging.disable(logging.INFO)
        _answer_file(job, state.is_main_process)


def _answer_file(job: AnswerJob, main: bool) -> None:
    """``answer_file`` in one of its processes, the main one or another."""
    job.check()
    options = job.options
    questions = Questions.read(job.input, options)
    choice = read_choice(options, job.checkpoint, _asked_by(options))
    if choice is not None and not choice.is_asked and not options.keep_going:
        check_proposed(questions, choice)
    file = None
    if main:
        num_lines = len(questions.lines) + len(questions.errors)
        file = AnswerFile(job.output, job.settings(choice), num_lines, job.fresh)
    loaded = None
    with StopRequest(job.max_minutes) as stop:
        if not everywhere(file and file.whole):
            loaded = answer_all(job, questions, choice, file, stop)
        if file and job.explain:
            model, builder = loaded or load(job.checkpoint, job.loading)
            builder.cut = options.cut_edges
            explain_answers(
                model=model,
                builder=builder,
                questions=questions,
                predictions=job.output,
                page=job.explain,
                history=options.history,
                checkpoint=job.checkpoint,
                stop=stop,
            )
    log_end(file, job.output)


def _asked_by(options: AnswerOptions) -> str | None:
    """Return the option for which proposals must be made again, if there is one."""
    changed = {
        "--history predicted": options.history == "predicted",
        "--evidence_of other": options.evidence_of == "other",
        "--cut_edges": options.cut_edges != "nothing",
    }
    return next((name for name, given in changed.items() if given), None)


def check_proposed(questions: Questions, choice: Choice) -> None:
    """Check that something is proposed to every question.

    Raises:
        ValueError: nothing is; names conversation and turn.
    """
    for index, turn in questions.lines:
        conversation = questions.conversations[index]
        if missing := choice.missing(conversation, turn):
            raise ValueError(unanswered(conversation, turn, missing))


def answer_all(
    job: AnswerJob,
    questions: Questions,
    choice: Choice | None,
    file: AnswerFile | None,
    stop: StopRequest,
) -> tuple[GraphLM, ExampleBuilder]:
    """Answer what is not answered yet.

    Args:
        job: its options.
        questions: to answer.
        choice: what the answers are chosen from.
        file: the main process's.
        stop: asked after every batch.

    Returns:
        The model that has answered, and its builder.

    Raises:
        SystemExit: it was asked to stop.
    """
    main, options = file is not None, job.options
    with file or nullcontext():
        model, builder = load(job.checkpoint, job.loading)
        builder.cut = options.cut_edges
        proposer = load_proposer(choice, job.checkpoint, job.loading, options.cut_edges)
        if file is not None:
            file.begin()
            file.write_in_order(questions.errors)
        known: dict[int, Json] = everywhere(file and dict(file.known))
        found = answer_lines(model, builder, questions, options, choice, proposer, known)
        with tqdm(
            total=len(questions.lines), initial=len(known), desc="answers", disable=not main
        ) as bar:
            for records in found:
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


def answer_lines(
    model: GraphLM,
    builder: ExampleBuilder,
    questions: Questions,
    options: AnswerOptions,
    choice: Choice | None = None,
    proposer: Proposer | None = None,
    known: dict[int, Json] | None = None,
) -> Iterator[dict[int, Json]]:
    """Answer questions, and yield prediction records by their lines, a batch at a time.

    All processes must iterate; all get all records.

    Args:
        model: in evaluation mode.
        builder: of the model's examples.
        questions: to answer.
        options: how.
        choice: what the answers are chosen from; None: the LM writes them.
        proposer: makes the proposals; None: ``choice`` holds them, or there are none.
        known: records that are there already, by their lines.

    Raises:
        ValueError: a question cannot be answered, and ``keep_going`` is not set.
    """
    batching = Batching(
        max_new_tokens=options.max_new_tokens,
        batch_tokens=options.batch_tokens,
        batch_size=options.batch_size,
        keep_going=options.keep_going,
        choice=choice,
    )
    answered = gold_history if options.history == "gold" else predicted_history
    return answered(model, builder, questions, batching, known or {}, proposer)


def everywhere(value: Any) -> Any:
    """The main process's value, in all processes."""
    return broadcast_object_list([value])[0]


def log_end(file: AnswerFile | None, output: str) -> None:
    """Log how many lines there are and how many are errors.

    Raises:
        SystemExit: with ``EXIT_ERRORS`` where there are errors.
    """
    if file is None:
        return
    if file.whole:
        file.num_errors = sum("error" in record for _, record in iter_lines(file.path))
        logger.info("%s is already complete; --fresh recomputes it", output)
    answered = file.num_lines - file.num_errors
    logger.info("wrote %s: %d answers, %d errors", output, answered, file.num_errors)
    if file.num_errors:
        raise SystemExit(EXIT_ERRORS)


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
        for index, window in enumerate(windows):
            examples, *to_propose = built.pop().result()
            built += [ahead.submit(build, next_) for next_ in windows[index + 1 : index + 2]]
            if proposer is not None:
                [of_window] = to_propose
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
            if proposer is not None and proposing is not None:
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
