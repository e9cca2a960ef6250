"""A trained model that answers from what a memory graph has recalled."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.user_error import UserError
from turngraph.data.embedding import Embed
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.recall.recollection import (
    ReadAnswer,
    Recollection,
    dated_text,
    each_once,
    evidence_of,
)
from turngraph.data.retrieval.evidence_memory import EvidenceMemory
from turngraph.data.scoring.confidence import Confidence
from turngraph.data.types import Conversation, Interaction, Retrieved, Turn
from turngraph.inference.answer_batches import Generate, answer_batch, lengths_beyond
from turngraph.model.device_memory import is_out_of_memory
from turngraph.model.evidence_model import EvidenceModel


class Recalled:
    """The memory of a conversation of one question, for which everything is recalled already.

    Args:
        facts: best first.
    """

    config = MemoryGraphConfig()
    embed: Embed | None = None

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = facts

    def recall(self, question: str, interaction: Interaction, turn: int) -> list[Retrieved]:
        """Return the facts as evidence."""
        return [
            Retrieved(passage, fact.score, turn)
            for fact, passage in zip(self.facts, evidence_of(self.facts, dated_text), strict=True)
        ]

    def note(self, turn: int, retrieved: Sequence[Retrieved]) -> None:
        """Keep nothing: the conversation ends with its question."""

    def remember(self, interaction: Interaction) -> None:
        """Keep nothing."""

    def state(self) -> Any:
        """Return nothing: there is none."""

    def restore(self, state: Any) -> None:
        """Change nothing."""

    def close(self) -> None:
        """Close nothing."""


class MemoryReader:
    """Answers questions from what was recalled for them, as a chat does from its memory graph.

    Args:
        model: in evaluation mode.
        builder: builds the model's examples; neither its memory graphs nor its corpus are used.
        max_new_tokens: length of the longest answer, in tokens.
        confidence: how sure answers have to be; None: nothing says how sure they are.
        generate: writes the answers; None: the model.
        building: lock around the builder, which several threads share.
        answering: lock around a model that answers one question at a time.
    """

    def __init__(
        self,
        model: EvidenceModel,
        builder: ExampleBuilder,
        max_new_tokens: int,
        confidence: Confidence | None,
        generate: Generate | None = None,
        building: Callable[[], AbstractContextManager[Any]] = nullcontext,
        answering: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.model, self.max_new_tokens, self.confidence = model, max_new_tokens, confidence
        config = replace(builder.config, corpus=None)
        self.builder = replace(builder, config=config, memory_graph=None)
        self.generate, self.building, self.answering = generate, building, answering

    def read(self, recollection: Recollection) -> ReadAnswer | None:
        """Answer a question from what was recalled for it, each statement read once.

        Args:
            recollection: the question, and the facts; only the first ``evidence.top_k`` statements,
                and of these only as many as have ``evidence.max_nodes`` tokens, are read.

        Returns:
            The answer; None: nothing was recalled.

        Raises:
            UserError: the prompt is too long for the model, or out of memory.
        """
        if recollection.no_answer:
            return None
        facts = each_once(recollection.facts)
        with self.building():
            example = self._example(recollection.question, facts)
        if lengths := lengths_beyond(self.model, example, self.max_new_tokens):
            raise UserError(f"the question cannot be answered: {lengths}")
        try:
            with self.answering():
                [record] = answer_batch(
                    self.model,
                    self.builder.prompt,
                    [example],
                    self.max_new_tokens,
                    generate=self.generate,
                    confidence=self.confidence,
                )
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise UserError("out of memory: fewer facts (--num_facts) need less") from error
        withheld = record.get("withheld")
        answer = str(record["answer"] if withheld is None else withheld)
        read = {item.evidence.text for item in example.evidence}
        fact, span = place_of(answer, [fact for fact in facts if dated_text(fact) in read])
        return ReadAnswer(
            text=str(record["answer"]),
            probability=math.exp(float(record["logprob"])),
            confidence=record["confidence"],
            fact=fact,
            span=span,
            withheld=None if withheld is None else answer,
        )

    def _example(self, question: str, facts: Sequence[Fact]) -> Example:
        """Return the question as the only turn of a conversation."""
        asked = Conversation("memory", "", (Turn("0", question),))
        memory = EvidenceMemory("none", graph=Recalled(facts))
        return self.builder.turn(asked, 0, [], memory)


def place_of(answer: str, facts: Sequence[Fact]) -> tuple[int | None, tuple[int, int] | None]:
    """Return the first fact whose text has an answer as whole words, in any case, and where.

    A day on which a fact was said is no part of its text: the fact is then found without a span.

    Args:
        answer: text of the answer.
        facts: best first.

    Returns:
        Key of the fact, and the answer's span in the fact's text; None and None: no fact has it.
    """
    words = r"\s+".join(map(re.escape, answer.split()))
    if not words:
        return None, None
    pattern = re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
    for fact in facts:
        if match := pattern.search(fact.text):
            return fact.key, match.span()
    said = (fact.key for fact in facts if pattern.search(dated_text(fact)))
    return next(said, None), None
