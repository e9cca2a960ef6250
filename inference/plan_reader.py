"""The trained model as reader of a plan's steps: a plan is a conversation, a step is a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.plan.steps import ClueRecall, Digest, Ready, Searched
from turngraph.data.memory_graph.recall.recollection import evidence_of
from turngraph.data.scoring.confidence import Confidence
from turngraph.data.types import NOT_IN_EVIDENCE, Conversation, Evidence, Turn
from turngraph.inference.answer_batches import answer_together
from turngraph.inference.options import MAX_NEW_TOKENS
from turngraph.model.evidence_model import EvidenceModel


class PlanReader:
    """Answers the steps of plans with a checkpoint, in place of the planner's ``digest``.

    A sub-question is a conversation: step k is turn k, its finished steps are the interaction, and
    the pool of a turn is the evidence of the step's facts; M_t is filled by the earlier turns. A
    step without facts is not asked; one that the model does not answer, or not surely enough, has
    no answer.

    Args:
        model: in evaluation mode.
        builder: builds the model's examples; its own memory graphs are not used.
        max_new_tokens: length of the longest answer, in tokens.
        confidence: how sure answers have to be; None: nothing says how sure they are.
    """

    def __init__(
        self,
        model: EvidenceModel,
        builder: ExampleBuilder,
        max_new_tokens: int = MAX_NEW_TOKENS,
        confidence: Confidence | None = None,
    ) -> None:
        self.model, self.max_new_tokens, self.confidence = model, max_new_tokens, confidence
        self.builder = replace(builder, memory_graph=None)

    def __call__(self, steps: Sequence[Searched]) -> list[Digest]:
        """Return the answer of each step that has facts, all generated together.

        Raises:
            UserError: a prompt is too long for the model, or a batch too large for the memory.
        """
        read = [_facts(step.recalls) for step in steps]
        asked = [i for i, facts in enumerate(read) if facts]
        if not asked:
            return [Digest()] * len(steps)
        examples = [self._example(steps[i].ready, read[i]) for i in asked]
        records = answer_together(
            self.model, self.builder.prompt, examples, max_new_tokens=self.max_new_tokens
        )
        digests = [Digest()] * len(steps)
        for index, record in zip(asked, records, strict=True):
            if self.confidence is not None:
                record = self.confidence.applied(record)
            digests[index] = _digest(str(record["answer"]), read[index])
        return digests

    def _example(self, ready: Ready, facts: Sequence[Fact]) -> Example:
        """Return a step as the next turn of its plan."""
        done = ready.progress.done
        interaction = [(trace.texts[0], trace.answer or "") for trace in done]
        pools = [trace.facts for trace in done]
        questions = [*(question for question, _ in interaction), ready.texts[0]]
        turns = tuple(
            Turn(str(number), question, evidence=_pool(pool))
            for number, (question, pool) in enumerate(
                zip(questions, [*pools, facts], strict=True), 1
            )
        )
        plan = Conversation("plan", "", turns)
        memory = self.builder.memory(plan)
        for turn in range(len(done)):
            memory.add(self.builder.retrieve(plan, turn, interaction[:turn])[1])
        return self.builder.turn(plan, len(done), interaction, memory)


def _facts(recalls: Sequence[ClueRecall]) -> list[Fact]:
    """Return the facts of clue queries, or their episodes if there are any, each once."""
    facts = (fact for recall in recalls for fact in recall.episodes or recall.facts)
    return list({fact.key: fact for fact in facts}.values())


def _pool(facts: Sequence[Fact]) -> tuple[Evidence, ...]:
    return tuple(evidence_of(facts))


def _digest(answer: str, facts: Sequence[Fact]) -> Digest:
    """Return an answer with the facts that contain it."""
    name = alias(answer)
    if not name or answer == NOT_IN_EVIDENCE:
        return Digest()
    keys = [fact.key for fact in facts if f" {name} " in f" {alias(fact.text)} "]
    return Digest((answer,), tuple(keys))
