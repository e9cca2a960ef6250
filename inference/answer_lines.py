"""Answers the questions of conversations, window by window and batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.data.scoring.confidence import Confidence
from turngraph.data.types import Interaction
from turngraph.inference.answer_batches import Batching, answer_batches
from turngraph.inference.options import MAX_NEW_TOKENS, AnswerOptions
from turngraph.inference.questions import Questions
from turngraph.model.evidence_model import EvidenceModel

WINDOW = 256
"""Number of questions that are batched by length together. Windows are answered in order. The
number is fixed, so that batches do not depend on where a run was stopped."""
WINDOW_CONVERSATIONS = 128
"""Number of conversations in a window with predicted history: their first turns are answered
together, then their second turns, and so on."""


def window_size(is_gold: bool) -> int:
    """Return the number of questions in a window, of conversations with predicted history."""
    return WINDOW if is_gold else WINDOW_CONVERSATIONS


def answer_lines(
    model: EvidenceModel,
    builder: ExampleBuilder,
    questions: Questions,
    options: AnswerOptions,
    known: dict[int, Json] | None,
    confidence: Confidence | None,
) -> Iterator[dict[int, Json]]:
    """Answer questions and yield prediction records by line, one batch at a time.

    All processes must iterate; each gets all records.

    Args:
        model: model in evaluation mode.
        builder: builds the model's examples.
        questions: the questions to answer.
        options: options of answering.
        known: existing records, by line; None: there are none.
        confidence: calibration and threshold of answers; None: answers have no confidence.

    Raises:
        UserError: a question cannot be answered, and ``keep_going`` is not set.
    """
    batching = Batching(
        max_new_tokens=options.max_new_tokens or MAX_NEW_TOKENS,
        batch_tokens=options.batch_tokens,
        batch_size=options.batch_size,
        keep_going=options.keep_going,
        confidence=confidence,
    )
    answered = gold_history if options.history == "gold" else predicted_history
    return answered(model, builder, questions, batching, known or {})


def gold_history(
    model: EvidenceModel,
    builder: ExampleBuilder,
    questions: Questions,
    batching: Batching,
    known: dict[int, Json],
) -> Iterator[dict[int, Json]]:
    """Yield prediction records by line; each turn reads the gold answers of the turns before it.

    Examples are built one window ahead.
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
    windows = list(questions.windows(window_size(True), True, known))
    with ThreadPoolExecutor(1) as ahead, ExitStack() as stack:
        stack.callback(closing.set)  # stop building a window that nobody needs
        built = [ahead.submit(build, window) for window in windows[:1]]
        for index, window in enumerate(windows):
            examples = built.pop().result()
            built += [ahead.submit(build, next_) for next_ in windows[index + 1 : index + 2]]
            lines = [questions.lines[n, t] for n in window for t in questions.chosen[n]]
            done = {index for index, line in enumerate(lines) if line in known}
            for batch_records in answer_batches(model, builder.prompt, examples, batching, done):
                yield {lines[index]: record for index, record in batch_records.items()}


def predicted_history(
    model: EvidenceModel,
    builder: ExampleBuilder,
    questions: Questions,
    batching: Batching,
    known: dict[int, Json],
) -> Iterator[dict[int, Json]]:
    """Yield prediction records by line; each turn reads the model's own earlier answers.

    The first turns of a window's conversations are answered together, then the second turns, and so
    on. The answer of a turn that failed is empty.
    """
    for window in questions.windows(window_size(False), False, known):
        conversations = {n: questions.conversations[n] for n in window}
        turns = TurnBuilder(builder, questions, window)
        interactions: dict[int, list[tuple[str, str]]] = {n: [] for n in window}
        for turn in range(max(len(c.turns) for c in conversations.values())):
            active = [n for n in window if turn < len(conversations[n].turns)]
            examples = turns.examples(active, turn, interactions)
            lines = [questions.lines[n, turn] for n in active]
            records = {line: known[line] for line in lines if line in known}
            done = {index for index, line in enumerate(lines) if line in known}
            for batch_records in answer_batches(model, builder.prompt, examples, batching, done):
                new = {lines[index]: record for index, record in batch_records.items()}
                records |= new
                yield new
            for n, line in zip(active, lines, strict=True):
                question = conversations[n].turns[turn].question
                interactions[n].append((question, records[line].get("answer", "")))


class TurnBuilder:
    """Builds the examples of a window's conversations, turn by turn.

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
