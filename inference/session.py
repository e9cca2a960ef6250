"""One conversation with a checkpoint: questions asked, turns taken back, all of it saved."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from turngraph.configs.models import sentence_encoder
from turngraph.configs.schema import MemoryGraphConfig
from turngraph.data.embedding import cached
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.jsonlines import Json, join_pools, write_conversations
from turngraph.data.memory_graph.conversation import ChatGraph
from turngraph.data.scoring.explanation import ExplainedTurn
from turngraph.data.types import Answer, Conversation, Evidence, Retrieved, Turn
from turngraph.inference.answer_batches import answer_batch, lengths_beyond
from turngraph.inference.propose import Proposer
from turngraph.model.device_memory import is_out_of_memory
from turngraph.model.generation import Past
from turngraph.model.graph_lm import GraphLM


class FinishedTurn(NamedTuple):
    """An answered question.

    Args:
        example: as the model was asked.
        record: as in a predictions file.
        before: states of the evidence memories, which the turn is taken back to.
        proposing: as the model was asked whose proposals the answer was chosen from.
    """

    example: Example
    record: Json
    before: list[Any]
    proposing: Example | None = None

    @property
    def shown(self) -> Example:
        """With all that was read: by the LM, behind it what the model that proposes read more."""
        found: dict[str, Retrieved] = {}
        for example in filter(None, (self.example, self.proposing)):
            for item in example.evidence:
                found.setdefault(item.evidence.text, item)
        return replace(self.example, evidence=list(found.values()))


class Session:
    """A conversation that goes on; a turn is in it whole or not at all.

    Args:
        model: in evaluation mode.
        builder: of the model's examples.
        pool: evidence for all turns; may be empty.
        memory_graph: path of a person's memory graph, which keeps what is said; None: none.
        max_new_tokens: longest answer.
        proposer: the model chooses among what it proposes; None: the model writes.

    Raises:
        ValueError: the memory graph cannot be opened.
    """

    def __init__(
        self,
        model: GraphLM,
        builder: ExampleBuilder,
        pool: tuple[Evidence, ...] = (),
        memory_graph: str | None = None,
        max_new_tokens: int = 48,
        proposer: Proposer | None = None,
    ) -> None:
        self.model, self.builder, self.max_new_tokens = model, builder, max_new_tokens
        self.proposer = proposer
        self.conversation = Conversation("chat", "", (), pool)
        self.turns: list[FinishedTurn] = []
        self.past = Past()
        self.builders = [builder] if proposer is None else [builder, proposer.builder]
        self.memories = [of_one.memory(self.conversation) for of_one in self.builders]
        self.memory = self.memories[0]
        if memory_graph is not None:
            self.close()
            self.memory.graph = open_memory(builder, memory_graph, str(model.device))
            for memory in self.memories:
                memory.graph = self.memory.graph

    @property
    def interaction(self) -> list[tuple[str, str]]:
        """The finished turns."""
        return [(turn.record["question"], turn.record["answer"]) for turn in self.turns]

    def warm_up(self) -> None:
        """Load now what would be loaded in the midst of the first answer: sentence encoders."""
        for memory in self.memories:
            graph = memory.graph
            for embed in (memory.embed, None if graph is None else graph.graph.embed):
                if embed is not None:
                    embed(["loaded"])

    def ask(self, question: str, on_token: Callable[[Tensor], None] | None = None) -> FinishedTurn:
        """Answer a question; Ctrl-C or an error leaves the conversation as it was before.

        Args:
            question: not blank.
            on_token: called with each id of the answer, [1].

        Raises:
            ValueError: the prompt is too long for the model, nothing is proposed to choose from,
                or the memory graph cannot be read.
        """
        number = len(self.turns)
        turns = (*self.conversation.turns, Turn(str(number), question))
        conversation = replace(self.conversation, turns=turns)
        self.remember()
        before = [memory.state() for memory in self.memories]
        try:
            with held_interrupts():
                example, *proposing = [
                    builder.turn(conversation, number, self.interaction, memory)
                    for builder, memory in zip(self.builders, self.memories, strict=True)
                ]
            record = self._answer(example, proposing, on_token)
            with suppress(KeyboardInterrupt), held_interrupts():  # too late: it is answered
                self.conversation = conversation
                self.turns.append(FinishedTurn(example, record, before, *proposing))
        except BaseException:
            self._restore(before)
            raise
        return self.turns[-1]

    def _restore(self, states: Sequence[Any]) -> None:
        for memory, state in zip(self.memories, states, strict=True):
            memory.restore(state)

    def _answer(
        self,
        example: Example,
        proposing: Sequence[Example],
        on_token: Callable[[Tensor], None] | None,
    ) -> Json:
        hint = "/undo takes turns back, a smaller --max_new_tokens leaves more room"
        if lengths := lengths_beyond(self.model, example, self.max_new_tokens):
            raise ValueError(f"{lengths}; {hint}")
        prompt, choice = self.builder.prompt, None
        try:
            if self.proposer is not None:
                self.proposer.propose_alone(*proposing)
                choice = self.proposer.choice
                if missing := choice.missing(example.conversation, example.turn):
                    raise ValueError(missing)
            settings = self.max_new_tokens, on_token, self.past, choice
            return answer_batch(self.model, prompt, [example], *settings)[0]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise ValueError(f"out of memory; {hint}") from error

    def remember(self) -> None:
        """Let the memory graph remember what is finished.

        Raises:
            ValueError: it cannot be written; the next call tries again.
        """
        if self.memory.graph is not None:
            with suppress(KeyboardInterrupt), held_interrupts():
                self.memory.graph.remember(self.interaction)

    def undo(self) -> str:
        """Take the last turn back, from the memory graph too; the question that it asked.

        Raises:
            ValueError: there is none, or the memory graph cannot be written.
        """
        turn = self.last()
        with suppress(KeyboardInterrupt), held_interrupts():
            self._restore(turn.before)
            self.turns.pop()
            turns = self.conversation.turns[:-1]
            self.conversation = replace(self.conversation, turns=turns)
        return turn.record["question"]

    def last(self) -> FinishedTurn:
        """The last turn.

        Raises:
            ValueError: there is none.
        """
        if not self.turns:
            raise ValueError("nothing was answered yet")
        return self.turns[-1]

    def why(self) -> ExplainedTurn:
        """What the last answer owes to its evidence.

        Raises:
            ValueError: there is none, or it takes more memory than there is.
        """
        from turngraph.inference.explain import why  # few ask

        turn = self.last()
        try:
            return why(self.model, self.builder, turn.example, turn.record["answer"])
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise ValueError("out of memory: to explain takes more than to answer") from error

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the conversation as one line of JSON, each turn with the evidence it was given.

        Args:
            path: of the new file; its name without ending becomes the conversation's id.
            overwrite: whether a file may be there.

        Raises:
            ValueError: nothing was answered yet, a file is there, or it cannot be written.
        """
        self.last()
        try:
            path = Path(path).expanduser()
            if not overwrite and path.exists():
                raise ValueError(f"{path} is there already; /save! {path} writes over it")
            turns = tuple(_saved(turn) for turn in self.turns)
            write_conversations(path, [Conversation(path.stem, "", turns)])
        except OSError as error:
            raise ValueError(f"{path}: cannot be written: {error.strerror}") from None
        except RuntimeError as error:  # ~ of nobody
            raise ValueError(f"{path}: {error}") from None
        return path

    def close(self) -> None:
        """Close the memory graphs."""
        for graph in {id(memory.graph): memory.graph for memory in self.memories}.values():
            if graph is not None:
                graph.close()


def _saved(turn: FinishedTurn) -> Turn:
    record = turn.record
    answers = (Answer(record["answer"]),) if record["answer"] else ()
    passages = ((item.evidence,) for item in turn.shown.evidence)
    return Turn(record["turn"], record["question"], answers, None, join_pools(*passages))


def open_memory(builder: ExampleBuilder, path: str, device: str) -> ChatGraph:
    """A person's memory graph, asked as the checkpoint was trained to, where it was.

    Raises:
        ValueError: it cannot be opened.
    """
    config = builder.memory_graph or MemoryGraphConfig()
    embed = builder.embed
    if embed is None and config.vectors == "encoder":
        embed = cached(sentence_encoder(builder.config.embedder, device))
    return ChatGraph(path, config, embed)


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, which must not be left half-way."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
