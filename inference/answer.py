"""Batch inference: answers a file of conversations, resumable, in any number of processes."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from threading import Event
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from turngraph.configs.progress import progress
from turngraph.configs.words import plural
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.corpus.corpus import Corpus
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.outputs import is_stream
from turngraph.data.scoring.confidence import Confidence
from turngraph.data.types import Interaction
from turngraph.inference.answer_batches import Batching, answer_batches, unanswered
from turngraph.inference.calibrated import read_confidence
from turngraph.inference.choose import Choice
from turngraph.inference.explain import explain_answers
from turngraph.inference.load import device_of, load
from turngraph.inference.options import MAX_NEW_TOKENS, AnswerOptions, LoadOptions
from turngraph.inference.output import AnswerFile
from turngraph.inference.propose import Proposer, load_proposer, read_choice
from turngraph.inference.questions import Questions
from turngraph.model.checkpoint import Checkpoint, file_hash
from turngraph.model.distributed import process_group_ended, sharding_wanted
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger("infer")
WINDOW = 256
"""Number of questions that are batched by length together. Windows are answered in order. The
number is fixed, so that batches do not depend on where a run was stopped."""
WINDOW_CONVERSATIONS = 128
"""Number of conversations in a window with predicted history: their first turns are answered
together, then their second turns, and so on."""
EXIT_ERRORS = 1
PATHS = ("proposals", "keep_going")
"""Options that are not compared as settings: one is hashed, one changes no answer."""


@dataclass(frozen=True)
class AnswerJob:
    """Batch inference over one file: checkpoint, input, output and options.

    Args:
        checkpoint: the checkpoint that answers, read.
        input: conversations, JSON Lines.
        output: predictions, JSON Lines.
        options: which questions, and how they are answered.
        loading: how the checkpoint is loaded.
        fresh: discard the answers in the output.
        explain: path ``OUT.html`` of the page that explains each conversation's answers.
        max_minutes: stop after this time; the same job resumes.
    """

    checkpoint: Checkpoint
    input: str
    output: str
    options: AnswerOptions = AnswerOptions()
    loading: LoadOptions = LoadOptions()
    fresh: bool = False
    explain: str | None = None
    max_minutes: float | None = None

    def __post_init__(self) -> None:
        resolved = self.options.resolved(self.checkpoint.config)
        object.__setattr__(self, "options", resolved)

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            ValueError: they do not; the message names the option.
        """
        for read in filter(None, (self.input, self.options.proposals)):
            if os.path.realpath(self.output) == os.path.realpath(read):
                raise ValueError(f"--output: {self.output} is also the input")
        evidence = self.loading.applied(self.checkpoint.config.evidence)
        if self.options.evidence_of == "other" and evidence.corpus is not None:
            raise ValueError("--evidence_of other: all conversations search the same corpus")
        if not self.explain:
            return
        if is_stream(self.output):
            raise ValueError(f"--explain reads the answers again, and {self.output} is no file")
        if sharding_wanted():
            raise ValueError(
                "--explain: not possible under FSDP; start one process, or do not shard"
            )
        self.checkpoint.check_writes()
        if self.options.abstain_below is not None:
            raise ValueError("--explain explains what the model wrote: remove --abstain_below")
        if self.options.cut_edges == "shuffle":
            raise ValueError("--explain names the entities of edges: remove --cut_edges shuffle")

    def settings(self, choice: Choice | None) -> Json:
        """Return everything that determines the answers, with hashes of the files read."""
        shaping = dataclasses.asdict(self.options)
        corpus = self.loading.applied(self.checkpoint.config.evidence).corpus
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
            **({} if corpus is None else {"corpus": Corpus(corpus).fingerprint}),
            **{name: value for name, value in shaping.items() if name not in PATHS},
        }


def answer_file(job: AnswerJob) -> None:
    """Write predictions for a file of conversations, in its order, with any number of processes.

    Raises:
        ValueError: input, output, checkpoint or device cannot be used.
        SystemExit: with ``EXIT_GO_ON`` after a request to stop, with ``EXIT_ERRORS`` if some
            lines of the predictions are errors.
    """
    state = PartialState(cpu=device_of(job.loading.device) == "cpu")
    with process_group_ended():
        if not state.is_main_process:
            logging.disable(logging.INFO)
        _answer_file(job, state.is_main_process)


def _answer_file(job: AnswerJob, main: bool) -> None:
    """Run ``answer_file`` in one process, the main one or another."""
    job.check()
    options = job.options
    questions = Questions.read(job.input, options)
    choice = read_choice(options, job.checkpoint, _needs_proposer(options))
    if choice is not None and not choice.has_proposer and not options.keep_going:
        check_proposed(questions, choice)
    file = None
    if main:
        num_lines = len(questions.lines) + len(questions.errors)
        file = AnswerFile(job.output, job.settings(choice), num_lines, job.fresh)
    loaded = None
    with StopRequest(job.max_minutes) as stop:
        if not everywhere(file and file.is_complete):
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


def _needs_proposer(options: AnswerOptions) -> str | None:
    """Return the option that makes recorded proposals unusable, if one is given."""
    changed = {
        "--history predicted": options.history == "predicted",
        "--evidence_of other": options.evidence_of == "other",
        "--cut_edges": options.cut_edges != "nothing",
    }
    return next((name for name, given in changed.items() if given), None)


def check_proposed(questions: Questions, choice: Choice) -> None:
    """Check that every question has a proposal.

    Raises:
        ValueError: a question has none; the message names conversation and turn.
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
    """Answer the questions that have no answer yet.

    Args:
        job: the job.
        questions: the questions to answer.
        choice: what the answers are chosen from.
        file: the predictions file; None in all processes but the main one.
        stop: checked after every batch.

    Returns:
        The model and its example builder.

    Raises:
        SystemExit: a stop was requested.
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
        confidence = read_confidence(job.checkpoint, options.abstain_below, choice)
        found = answer_lines(
            model, builder, questions, options, choice, proposer, known, confidence
        )
        total = len(questions.lines)
        with progress(total, "answers", "questions", initial=len(known), shown=main) as bar:
            for records in found:
                if file is not None:
                    file.add(records)
                bar.update(len(records))
                if any(gather_object([bool(stop)])):
                    logger.info("stopped: %s; run the same command to resume", stop.reason)
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
    confidence: Confidence | None = None,
) -> Iterator[dict[int, Json]]:
    """Answer questions and yield prediction records by line, one batch at a time.

    All processes must iterate; each gets all records.

    Args:
        model: in evaluation mode.
        builder: builds the model's examples.
        questions: the questions to answer.
        options: how they are answered.
        choice: what the answers are chosen from; None: the LM writes them.
        proposer: makes the proposals; None: ``choice`` holds them, or there are none.
        known: existing records, by line.
        confidence: how sure answers have to be; None: nothing says how sure they are.

    Raises:
        ValueError: a question cannot be answered, and ``keep_going`` is not set.
    """
    batching = Batching(
        max_new_tokens=options.max_new_tokens or MAX_NEW_TOKENS,
        batch_tokens=options.batch_tokens,
        batch_size=options.batch_size,
        keep_going=options.keep_going,
        choice=choice,
        confidence=confidence,
    )
    answered = gold_history if options.history == "gold" else predicted_history
    return answered(model, builder, questions, batching, known or {}, proposer)


def everywhere(value: Any) -> Any:
    """Return the main process's value in all processes."""
    return broadcast_object_list([value])[0]


def log_end(file: AnswerFile | None, output: str) -> None:
    """Log how many lines there are and how many are errors.

    Raises:
        SystemExit: with ``EXIT_ERRORS`` if there are errors.
    """
    if file is None:
        return
    if file.is_complete:
        file.num_errors = sum("error" in record for _, record in iter_lines(file.path))
        logger.info("%s is already complete; --fresh recomputes it", output)
    answered = file.num_lines - file.num_errors
    counts = (plural(answered, "answer"), plural(file.num_errors, "error"))
    logger.info("wrote %s: %s, %s", output, *counts)
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
    """Yield prediction records by line; each turn reads the gold answers of the turns before it.

    Examples are built one window ahead.
    """
    builders = [builder] if proposer is None else [builder, proposer.builder]

    def build(window: list[int]) -> list[list[Example]]:
        """Return the examples of each builder."""
        return [
            [
                example
                for n in window
                if not closing.is_set()
                for example in each.conversation(
                    questions.conversations[n], questions.chosen[n], questions.pool(n)
                )
            ]
            for each in builders
        ]

    closing = Event()
    windows = list(questions.windows(WINDOW, True, known))
    with ThreadPoolExecutor(1) as ahead, ExitStack() as stack:
        stack.callback(closing.set)  # stop building a window that nobody needs
        built = [ahead.submit(build, window) for window in windows[:1]]
        for index, window in enumerate(windows):
            examples, *to_propose = built.pop().result()
            built += [ahead.submit(build, next_) for next_ in windows[index + 1 : index + 2]]
            if proposer is not None:
                [of_window] = to_propose
                proposer.propose(of_window, batching)
            lines = [questions.lines[n, t] for n in window for t in questions.chosen[n]]
            done = {index for index, line in enumerate(lines) if line in known}
            for found in answer_batches(model, builder.prompt, examples, batching, done):
                yield {lines[index]: record for index, record in found.items()}


def predicted_history(
    model: GraphLM,
    builder: ExampleBuilder,
    questions: Questions,
    batching: Batching,
    known: dict[int, Json],
    proposer: Proposer | None = None,
) -> Iterator[dict[int, Json]]:
    """Yield prediction records by line; each turn reads the model's own earlier answers.

    The first turns of a window's conversations are answered together, then the second turns, and so
    on. The answer of a turn that failed is empty.
    """
    for window in questions.windows(WINDOW_CONVERSATIONS, False, known):
        conversations = {n: questions.conversations[n] for n in window}
        reader = Reader(builder, questions, window)
        proposing = None if proposer is None else Reader(proposer.builder, questions, window)
        interactions: dict[int, list[tuple[str, str]]] = {n: [] for n in window}
        for turn in range(max(len(c.turns) for c in conversations.values())):
            active = [n for n in window if turn < len(conversations[n].turns)]
            examples = reader.examples(active, turn, interactions)
            lines = [questions.lines[n, turn] for n in active]
            if proposer is not None and proposing is not None:
                to_propose = proposing.examples(active, turn, interactions)
                if any(line not in known for line in lines):
                    proposer.propose(to_propose, batching)
            records = {line: known[line] for line in lines if line in known}
            done = {index for index, line in enumerate(lines) if line in known}
            for found in answer_batches(model, builder.prompt, examples, batching, done):
                new = {lines[index]: record for index, record in found.items()}
                records |= new
                yield new
            for n, line in zip(active, lines, strict=True):
                question = conversations[n].turns[turn].question
                interactions[n].append((question, records[line].get("answer", "")))
        for each in filter(None, (reader, proposing)):
            each.close()


class Reader:
    """Builds the examples of a window's conversations for one model, turn by turn.

    Args:
        builder: builds the model's examples.
        questions: holds the conversations.
        window: indices of the conversations.
    """

    def __init__(
        self, builder: ExampleBuilder, questions: Questions, window: Sequence[int]
    ) -> None:
        self.builder, self.questions = builder, questions
        self.memories = {n: builder.memory(questions.conversations[n]) for n in window}

    def examples(
        self, conversations: Sequence[int], turn: int, interactions: Mapping[int, Interaction]
    ) -> list[Example]:
        """Return the examples of one turn of some conversations, given by index."""
        all_, pool = self.questions.conversations, self.questions.pool
        return [
            self.builder.turn(all_[n], turn, interactions[n], self.memories[n], pool(n))
            for n in conversations
        ]

    def close(self) -> None:
        """Close the conversations' memory graphs."""
        for memory in self.memories.values():
            if memory.graph is not None:
                memory.graph.close()
