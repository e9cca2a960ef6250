"""A conversation with a checkpoint: asks questions, undoes turns, explains and saves."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Event
from typing import TYPE_CHECKING, Any

from torch import Tensor

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import join_pools, write_conversations
from turngraph.data.retrieval.evidence_memory import EvidenceMemory
from turngraph.data.scoring.confidence import Confidence
from turngraph.data.scoring.explanation import ExplainedTurn
from turngraph.data.types import Answer, Conversation, Evidence, Retrieved, Turn
from turngraph.inference.answer_batches import Generate, answer_batch, lengths_beyond
from turngraph.inference.chat_answer import ChatAnswer, explain, explain_fitted
from turngraph.inference.chat_memory import open_memory
from turngraph.inference.fitting import fitted
from turngraph.inference.options import MemoryOptions, too_long
from turngraph.inference.text_stream import TextStream
from turngraph.model.device_memory import is_out_of_memory
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import Past

if TYPE_CHECKING:
    from turngraph.data.memory_graph.conversation import ChatGraph

logger = logging.getLogger("infer")


class _Stopped(Exception):
    """The reader of a stream has stopped reading."""


class Session:
    """A running conversation; a turn is part of it completely or not at all.

    Where the dialogue outgrows the model's positions, its oldest turns are left out of the prompt,
    with a warning; retrieval, ``undo`` and ``save`` still know them.

    Args:
        model: in evaluation mode.
        builder: builds the model's examples.
        pool: evidence for all turns; may be empty.
        memory: a person's memory graph, which keeps the conversation; None: none.
        max_new_tokens: length of the longest answer, in tokens.
        confidence: turns an answer into the probability that it is right, and says below which
            probability the answer is withheld; None: answers have no confidence.
        building: lock around the builder, which conversations in several threads share.
        answering: lock around a model that answers one conversation at a time.

    Attributes:
        generate: function that writes answers; None: the model's own.
        check: called between the steps before an answer; what it raises ends the question.

    Raises:
        UserError: the memory graph cannot be opened, or the LM cannot be loaded.
    """

    def __init__(
        self,
        model: EvidenceModel,
        builder: ExampleBuilder,
        pool: tuple[Evidence, ...],
        memory: MemoryOptions | None,
        max_new_tokens: int,
        confidence: Confidence | None = None,
        building: Callable[[], AbstractContextManager[Any]] = nullcontext,
        answering: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.model, self.builder = model, builder
        self.generate: Generate | None = None
        self.confidence, self.building, self.answering = confidence, building, answering
        self.max_new_tokens = max_new_tokens
        self.check: Callable[[], None] = lambda: None
        # not a method: an answer that refers to its session would be freed with it by gc alone
        self._explain = partial(explain, model, builder)
        self.pool = pool
        self._held: EvidenceMemory | None = None
        self.persistent: ChatGraph | None = None
        if memory is not None:
            self.persistent = open_memory(builder, memory, str(model.device))
            if memory.plan_reader:
                from turngraph.inference.plan_reader import PlanReader

                self.persistent.read = PlanReader(model, builder, self.max_new_tokens, confidence)
        self.begin()

    def begin(self) -> None:
        """Begin a new conversation over the same evidence and persistent memory graph.

        Raises:
            UserError: the last turn cannot be stored in the memory graph yet.
        """
        if self.persistent is not None:
            if self._held is not None:
                self.remember()
            self.persistent.begin()
        self.conversation = Conversation("chat", "", (), self.pool)
        self.turns: list[ChatAnswer] = []
        self.past = Past()
        self._held = self.builder.memory(self.conversation)
        if self.persistent is not None:
            self.memory.graph = self.persistent

    @property
    def interaction(self) -> list[tuple[str, str]]:
        """The finished turns."""
        return [(turn.record["question"], turn.record["answer"]) for turn in self.turns]

    @property
    def may_withhold(self) -> bool:
        """Whether an answer may be withheld, so that none is shown before it is complete."""
        return self.confidence is not None and self.confidence.abstain_below is not None

    def release(self) -> None:
        """Free what the memory graph reads again at the next question."""
        if self.persistent is not None:
            self.persistent.release()

    def warm_up(self) -> None:
        """Load the sentence encoders now, not during the first answer."""
        graph = self.memory.graph
        for embed in (self.memory.embed, None if graph is None else graph.embed):
            if embed is not None:
                embed(["loaded"])

    def ask(self, question: str, on_token: Callable[[Tensor], None] | None = None) -> ChatAnswer:
        """Answer a question; Ctrl-C or an error leaves the conversation unchanged.

        Args:
            question: not blank, at most ``MAX_QUESTION`` characters.
            on_token: called with each id of the answer, [1].

        Raises:
            UserError: question or prompt is too long, or the memory graph cannot be read.
        """
        with self._turn(question) as (example, finish):
            finish(self._answer(example, on_token))
        return self.turns[-1]

    def stream(self, question: str) -> Iterator[str]:
        """Answer a question and yield the answer's text as it is generated; then it is ``last()``.

        A caller that stops iterating undoes the question.

        Args:
            question: not blank, at most ``MAX_QUESTION`` characters.

        Raises:
            UserError: as ``ask``.
        """
        text = TextStream(self.builder.prompt, self.may_withhold)
        arrived: Queue[str | None] = Queue()
        stopped = Event()

        def on_token(ids: Tensor) -> None:
            if stopped.is_set():
                raise _Stopped
            arrived.put(text.add(ids))

        def answer() -> Json:
            try:
                return self._answer(example, on_token)
            finally:
                arrived.put(None)

        with self._turn(question) as (example, finish), ThreadPoolExecutor(1) as pool:
            try:
                answered = pool.submit(answer)
                while (new := arrived.get()) is not None:
                    if new:
                        yield new
                record = answered.result()
                if rest := text.end(record["answer"]):
                    yield rest
                finish(record)
            finally:
                stopped.set()

    def resume(self, turns: Sequence[tuple[Json, Sequence[Retrieved] | None]]) -> None:
        """Go on after turns that were answered before, by another process perhaps.

        Retrieval is repeated for them, and nothing is generated or remembered.

        Args:
            turns: the record of each turn, with the passages that its answer was written from;
                None: those that are retrieved now.
        """
        assert not self.turns, "the conversation has begun"
        for index, (record, passages) in enumerate(turns):
            if self.persistent is not None:
                self.persistent.num_turns = index
            before = self.memory.state()
            asked = Turn(str(index), record["question"])
            self.conversation = replace(self.conversation, turns=(*self.conversation.turns, asked))
            with self._wanted(self.building()):
                example = self._rebuilt(index, passages)
            arguments = self.model, self.builder, self.interaction, self.max_new_tokens
            whole = partial(explain_fitted, *arguments)
            self.turns.append(ChatAnswer(example, record, before, whole))
        if self.persistent is not None:
            self.persistent.num_turns = len(turns)

    def _rebuilt(self, index: int, passages: Sequence[Retrieved] | None) -> Example:
        """Build the example of an answered turn, without its dialogue, from its passages."""
        finished, memory = self.interaction, self.memory
        graph = memory.graph
        if self.persistent is not None:  # what it holds now is not what was recalled then
            memory.graph = None
        example = self.builder.turn(self.conversation, index, finished, memory, None, index)
        memory.graph = graph
        if passages is not None:
            question = self.conversation.turns[index].question
            encoded = self.builder.encoded_question(question, finished)
            known = self.builder.graph([item.evidence for item in passages], encoded)
            example = replace(example, evidence=list(passages), graph=known)
        return example

    @contextmanager
    def _turn(self, question: str) -> Iterator[tuple[Example, Callable[[Json], None]]]:
        """Begin a turn that becomes part of the conversation completely or not at all.

        Yields:
            The example, and a function that takes the answer's record.
        """
        if not question.strip():
            raise UserError("a question must not be blank")
        if long := too_long(question):
            raise UserError(long)
        index = len(self.turns)
        turns = (*self.conversation.turns, Turn(str(index), question))
        conversation = replace(self.conversation, turns=turns)
        self.remember()
        before = self.memory.state()

        def finish(record: Json) -> None:
            with suppress(KeyboardInterrupt), held_interrupts():  # too late to stop: it is answered
                self.conversation = conversation
                read = (example.alone if record.get("alone") else None) or example
                self.turns.append(ChatAnswer(read, record, before, self._explain, left_out))

        try:
            finished = self.interaction
            with held_interrupts(), self._wanted(self.building()):
                built = self.builder.turn(  # its dialogue comes below
                    conversation, index, finished, self.memory, None, index
                )
            example, left_out = self._fitted(built)
            yield example, finish
        except BaseException:
            if len(self.turns) == index:
                self.memory.restore(before)
            raise

    @contextmanager
    def _wanted(self, shared: AbstractContextManager[Any]) -> Iterator[None]:
        """Enter a shared lock, then check that the answer is still wanted."""
        with shared:
            self.check()
            yield

    def _fitted(self, example: Example) -> tuple[Example, int]:
        """Complete an example with the dialogue; return how many of its turns are left out."""
        before = self.turns[-1].num_left_out if self.turns else 0
        completed, num = fitted(
            *(self.model, self.builder, example, self.interaction),
            *(self.max_new_tokens, before, self.check),
        )
        if num > before:
            logger.warning(
                "the chat is longer than the model's %s positions: from this question on the "
                "prompt leaves out the first %d of %s",
                *(self.model.max_tokens, num, plural(len(self.turns), "turn")),
            )
        if self.builder.alone and num < len(self.turns):
            completed = replace(completed, alone=example)
        return completed, num

    @property
    def memory(self) -> EvidenceMemory:
        """The evidence memory of the conversation that has begun."""
        assert self._held is not None, "no conversation has begun"
        return self._held

    def _answer(self, example: Example, on_token: Callable[[Tensor], None] | None) -> Json:
        """Return the record of an example."""
        hint = "a smaller --max_new_tokens" if self.model.writes else "a shorter question"
        if lengths := lengths_beyond(self.model, example, self.max_new_tokens):
            raise UserError(f"{lengths}; {hint} leaves more room")
        try:
            with self._wanted(self.answering()):
                return answer_batch(
                    *(self.model, self.builder.prompt, [example], self.max_new_tokens, on_token),
                    *(self.past, self.generate, self.confidence),
                )[0]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(f"out of memory; /undo removes turns, {hint} helps") from error

    def remember(self) -> None:
        """Store the finished turns in the memory graph.

        Raises:
            UserError: it cannot be written; the next call tries again.
        """
        if self.memory.graph is not None:
            with suppress(KeyboardInterrupt), held_interrupts():
                self.memory.graph.remember(self.interaction)

    def undo(self, num: int = 1) -> str:
        """Remove the last turns, also from the memory graph; return the first one's question.

        Raises:
            UserError: there is none, or the memory graph cannot be written.
        """
        if num < 1:
            raise UserError(f"{num} turns to undo, at least 1 is needed")
        first, *_ = self.turns[-num:] or [self.last()]  # which raises the error
        with suppress(KeyboardInterrupt), held_interrupts():
            self.memory.restore(first.before)
            del self.turns[-num:]
            turns = self.conversation.turns[: len(self.turns)]
            self.conversation = replace(self.conversation, turns=turns)
        return first.question

    def last(self) -> ChatAnswer:
        """Return the last turn.

        Raises:
            UserError: there is none.
        """
        if not self.turns:
            raise UserError("no question was answered yet")
        return self.turns[-1]

    def why(self) -> ExplainedTurn:
        """Return the share of each passage and entity in the last answer.

        Raises:
            UserError: there is no answer, or out of memory.
        """
        return self.last().why()

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the conversation as one line of JSON, each turn with its evidence.

        With a memory graph a new file is its owner's alone.

        Args:
            path: of the new file; its name without ending becomes the conversation's id.
            overwrite: replace an existing file.

        Raises:
            UserError: no question was answered yet, or the file exists or cannot be written.
        """
        self.last()
        try:
            path = Path(path).expanduser()
            if not overwrite and path.exists():
                raise UserError(f"{path} exists already; /save! {path} replaces it")
            turns = tuple(_saved(turn) for turn in self.turns)
            private = self.persistent is not None  # its passages are what a person has said
            write_conversations(path, [Conversation(path.stem, "", turns)], private)
        except OSError as error:  # a name too long to look for
            raise UserError(f"{path}: {error.strerror}") from None
        except RuntimeError as error:  # ~ of an unknown user
            raise UserError(f"{path}: {error}") from None
        return path

    def close(self) -> None:
        """Store the finished turns in the persistent memory graph and close it.

        Raises:
            UserError: it cannot be written; it is closed all the same.
        """
        if self.persistent is not None:
            try:
                self.remember()
            finally:
                self.persistent.close()


def _saved(turn: ChatAnswer) -> Turn:
    record = turn.record
    answers = (Answer(record["answer"]),) if record["answer"] else ()
    passages = ((item.evidence,) for item in turn.evidence)
    return Turn(record["turn"], record["question"], answers, None, join_pools(*passages))


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block, which must not stop half-way."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
