"""An answered question of a conversation: text, evidence, confidence, reasons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from turngraph.configs.user_error import UserError
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.data.scoring.explanation import ExplainedTurn
from turngraph.data.types import Entity, Interaction, Retrieved
from turngraph.inference.fitting import fitted
from turngraph.model.device_memory import is_out_of_memory
from turngraph.model.evidence_model import EvidenceModel


@dataclass(frozen=True)
class ChatAnswer:
    """An answered question of a conversation.

    Args:
        example: the turn as the model read it.
        record: the turn as in a predictions file.
        before: states of the evidence memories before the turn, for ``undo``.
        explain: returns the share of each passage and entity in the answer.
        num_left_out: oldest turns for which the prompt had no room in the model's positions.
    """

    example: Example
    record: Json
    before: list[Any]
    explain: Callable[[ChatAnswer], ExplainedTurn]
    num_left_out: int = 0

    @property
    def question(self) -> str:
        """The question."""
        return str(self.record["question"])

    @property
    def text(self) -> str:
        """The answer; "" if the model wrote nothing."""
        return str(self.record["answer"])

    @property
    def probability(self) -> float:
        """The probability that the model gives to its answer, 0 to 1: exp of its log-probability.

        It is not calibrated: it says how sure the model is, not how often it is right.
        """
        return math.exp(self.record["logprob"])

    @property
    def confidence(self) -> float | None:
        """The calibrated probability that the answer is right, 0 to 1.

        None: the checkpoint has no calibration, or was not calibrated for answers of this kind.
        """
        probability = self.record.get("confidence")
        return None if probability is None else float(probability)

    @property
    def candidates(self) -> list[Entity]:
        """The entities of the evidence nearest to the answer, best first, 5 at most."""
        return [
            Entity(candidate["id"], candidate["label"]) for candidate in self.record["candidates"]
        ]

    @property
    def evidence(self) -> list[Retrieved]:
        """The passages that the model read, best first, each with its score and the turn of its
        retrieval."""
        return self.example.evidence

    @property
    def milliseconds(self) -> float:
        """The time that the answer took, in milliseconds."""
        return float(self.record["milliseconds"])

    def why(self) -> ExplainedTurn:
        """Return the share of each passage and entity in the answer, by gradient x input.

        Raises:
            UserError: out of memory.
        """
        return self.explain(self)


def explain(model: EvidenceModel, builder: ExampleBuilder, answer: ChatAnswer) -> ExplainedTurn:
    """Return the share of each passage and entity in an answer of a model.

    Raises:
        UserError: out of memory.
    """
    from turngraph.inference.explain import why  # slow to import, seldom needed

    try:
        written = answer.record.get("withheld", answer.text)
        turn = why(model, builder, answer.example, written)
        return replace(turn, withheld="withheld" in answer.record)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise UserError("out of memory: an explanation takes more than an answer") from error


def explain_fitted(
    model: EvidenceModel,
    builder: ExampleBuilder,
    interaction: Interaction,
    max_new_tokens: int,
    answer: ChatAnswer,
) -> ExplainedTurn:
    """Return what ``explain`` does, for an answer whose example was built without its dialogue.

    Args:
        model, builder, answer: as in ``explain``.
        interaction: the turns before the answer.
        max_new_tokens: length of the longest answer, in tokens.
    """
    if not answer.record.get("alone"):
        whole, _ = fitted(model, builder, answer.example, interaction, max_new_tokens)
        answer = replace(answer, example=whole)
    return explain(model, builder, answer)
