"""Answers questions in batches of similar length, shared among the processes."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import Batch, collate
from turngraph.data.examples import Example
from turngraph.data.json_fields import Json
from turngraph.data.prediction_records import error_record, prediction_record
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.confidence import Confidence
from turngraph.data.scoring.proposals import Proposal
from turngraph.data.types import NOT_IN_EVIDENCE, Conversation
from turngraph.inference.candidates import decided, ranked
from turngraph.inference.options import ANSWER_TOKENS, too_long
from turngraph.model.device_memory import (
    RELEASE_EVERY,
    is_out_of_memory,
    release_freed_memory,
)
from turngraph.model.distributed import is_sharded
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import Generated, Past
from turngraph.model.node_ranker import NodeRanker
from turngraph.model.reader import Reader

logger = logging.getLogger("infer")


SHORTER = "a smaller evidence.max_nodes or evidence.top_k"
ALONE_SURE = 0.4
"""Least confidence at which an answer read without the dialogue is chosen. Without this limit,
fewer wrong answers to questions that follow up are withheld."""
GRAPH_WEIGHT = 1.0
"""Weight of the graph's log-probability of an answer, relative to the LM's."""
NO_ENTITY = -100.0
"""Log-probability of an answer without any candidate in the passages; JSON has no infinity."""


@dataclass(frozen=True)
class Batching:
    """Settings of the batches of questions.

    Args:
        max_new_tokens: length of the longest answer, in tokens.
        batch_tokens: tokens in one batch, of padded prompts and longest answers; a longer question
            is answered alone. None: no limit.
        batch_size: largest number of questions in one batch; None: no limit.
        keep_going: write an error record for a question that cannot be answered; False: raise.
        confidence: calibration and threshold of answers; None: answers have no confidence.
    """

    max_new_tokens: int
    batch_tokens: int | None
    batch_size: int | None
    keep_going: bool = False
    confidence: Confidence | None = None

    def pack(self, lengths: Sequence[int]) -> list[list[int]]:
        """Return batches of prompts of similar length; the batch of the first question comes first.

        Args:
            lengths: lengths of the prompts, in tokens.

        Returns:
            Indices of the prompts, the longest of a batch first; each one once.
        """
        batches: list[list[int]] = []
        for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            if not batches or not self._has_room(lengths[batches[-1][0]], len(batches[-1])):
                batches.append([])
            batches[-1].append(index)
        return sorted(batches, key=min)

    def _has_room(self, longest: int, size: int) -> bool:
        tokens = (size + 1) * (longest + self.max_new_tokens)
        fits = self.batch_tokens is None or tokens <= self.batch_tokens
        return fits and (self.batch_size is None or size < self.batch_size)


def prompt_length(example: Example) -> int:
    """Return the number of tokens of an example without its target."""
    return example.num_tokens - len(example.target_ids)


def answer_together(
    model: EvidenceModel,
    prompt: Prompt,
    examples: Sequence[Example],
    max_new_tokens: int,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    desc: str = "",
    after_batch: Callable[[], None] | None = None,
) -> list[Json]:
    """Return the prediction records of examples, in their order; the processes share the work.

    All processes must call it with the same examples; each gets all records. ``desc`` names a
    progress bar; without one there is none. All processes call ``after_batch`` after every batch.

    Raises:
        UserError: a prompt is too long for the model, or a batch too large for the memory.
    """
    if batch_size is None and batch_tokens is None:
        batch_tokens = ANSWER_TOKENS
    batching = Batching(max_new_tokens, batch_tokens, batch_size)
    records: dict[int, Json] = {}
    shown = bool(desc) and PartialState().is_local_main_process
    with progress(len(examples), desc, "questions", shown=shown) as bar:
        for batch_records in answer_batches(model, prompt, examples, batching):
            records |= batch_records
            bar.update(len(batch_records))
            if after_batch is not None:
                after_batch()
    return [records[index] for index in range(len(examples))]


def answer_batches(
    model: EvidenceModel,
    prompt: Prompt,
    examples: Sequence[Example],
    batching: Batching,
    known: Collection[int] = (),
) -> Iterator[dict[int, Json]]:
    """Yield prediction records by the index of their example, one batch per process at a time.

    The batches depend only on the examples and ``batching``. The answers are therefore the same
    with any number of processes, and after a run that was interrupted.

    Args:
        model: the same in all processes.
        prompt: prompt assembly for the model's tokenizer.
        examples: the same in all processes.
        batching: sizes of the batches.
        known: indices of examples that need no answer; a batch of such examples is skipped.

    Raises:
        UserError: a prompt is too long for the model or a batch too large for the memory, and
            ``batching.keep_going`` is not set.
    """
    refused = unanswerable(model, examples, batching)
    if refused:
        yield {index: record for index, record in refused.items() if index not in known}
    fitting = [index for index in range(len(examples)) if index not in refused]
    packed = batching.pack([prompt_length(examples[index]) for index in fitting])
    batches = [[fitting[index] for index in batch] for batch in packed]
    batches = [batch for batch in batches if not all(index in known for index in batch)]
    state = PartialState()
    rank, world = state.process_index, state.num_processes
    for start in range(0, len(batches), world):
        share = batches[start : start + world]
        # a sharded model needs all processes in every batch: idle ones repeat the first
        mine = share[rank] if rank < len(share) else share[0] if is_sharded(model) else []
        records = answer_safely(model, prompt, [examples[i] for i in mine], batching)
        if start // world % RELEASE_EVERY == 0:
            release_freed_memory(model.device)
        gathered = gather_object(list(zip(mine, records, strict=True)))
        yield {index: record for index, record in gathered if index not in known}


def unanswerable(
    model: EvidenceModel, examples: Sequence[Example], batching: Batching
) -> dict[int, Json]:
    """Return error records of examples whose questions or prompts are too long.

    Raises:
        UserError: there is such an example, and ``batching.keep_going`` is not set.
    """
    refused = {}
    for index, example in enumerate(examples):
        message = too_long(example.question)
        if not message and (lengths := lengths_beyond(model, example, batching.max_new_tokens)):
            shorter = ", or give a smaller --max_new_tokens" if model.writes else ""
            message = f"{lengths}: train with {SHORTER}{shorter}"
        if message:
            refused[index] = _failed(example, message, batching)
    return refused


def lengths_beyond(model: EvidenceModel, example: Example, max_new_tokens: int) -> str:
    """Return why a prompt exceeds the model's positions, in words; "" if it fits.

    A reader's limit applies to the prefix with the longest passage and, above the graph, to the
    prompt with the nodes that the graph keeps.
    """
    limit, length = model.max_tokens, prompt_length(example)
    if limit is None:
        return ""
    if example.dialogue_start is not None:
        assert example.graph.mentions is not None, "built without mentions"
        longest = max(example.graph.mentions.sizes[:-1].tolist(), default=0)
        other = len(example.prefix_ids) + longest
        kept_nodes = model.config.scorer.kept_nodes
        num_nodes = len(example.graph.prompt_ids)
        length += (num_nodes if kept_nodes is None else min(kept_nodes, num_nodes)) - num_nodes
        if other > max(length + max_new_tokens, limit):
            return f"prefix and a passage of {other} tokens, the model has {limit} positions"
    if length + max_new_tokens <= limit:
        return ""
    return (
        f"a prompt of {length} tokens and up to {max_new_tokens} new ones, the model has "
        f"{limit} positions"
    )


def check_lengths(
    model: EvidenceModel, examples: Sequence[Example], max_new_tokens: int | None
) -> None:
    """Check that examples fit into the model's positions, before anything is computed.

    Args:
        model: the model that reads the examples.
        examples: the examples to train or evaluate on.
        max_new_tokens: length of the longest answer; None: each example's target.

    Raises:
        UserError: one does not fit; the message names its conversation and turn.
    """
    for example in examples:
        new, message = len(example.target_ids), ""
        if max_new_tokens is not None:  # it will be answered
            new, message = max_new_tokens, too_long(example.question)
        if not message and (lengths := lengths_beyond(model, example, new)):
            message = f"{lengths}; {SHORTER}"
        if message:
            raise UserError("conversation {}, turn {}: {}".format(*example.key, message))


def _failed(example: Example, message: str, batching: Batching) -> Json:
    """Return an error record, or raise the error."""
    if not batching.keep_going:
        raise UserError(unanswered(example.conversation, example.turn, message))
    logger.warning("conversation %s, turn %s: %s", *example.key, message)
    return error_record(example, message)


def unanswered(conversation: Conversation, turn: int, message: str) -> str:
    """Return the error message of a turn that cannot be answered."""
    location = f"conversation {conversation.id}, turn {conversation.turns[turn].id}"
    return f"{location}: {message}; --keep_going skips such questions"


def answer_safely(
    model: EvidenceModel, prompt: Prompt, examples: Sequence[Example], batching: Batching
) -> list[Json]:
    """Return the prediction records of one batch; if it exceeds the memory, one by one.

    Raises:
        UserError: out of memory, and ``batching.keep_going`` is not set.
    """
    if not examples:
        return []
    try:
        return answer_batch(
            model,
            prompt,
            examples,
            batching.max_new_tokens,
            confidence=batching.confidence,
        )
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error).strip().split("\n")[0]
    shape = f"{len(examples)} x {max(map(prompt_length, examples))} tokens"
    message = f"out of memory: a batch of {shape} did not fit ({reason})"
    if len(examples) == 1:
        return [_failed(examples[0], message, batching)]
    if not batching.keep_going or is_sharded(model):  # the others would wait for this process
        raise UserError(f"{message}; give a smaller --batch_tokens")
    logger.warning("%s; its questions are answered one by one", message)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    return [r for example in examples for r in answer_safely(model, prompt, [example], batching)]


class Generate(Protocol):
    """Function that writes answers: ``EvidenceModel.generate``, or the ``generate`` of a server."""

    def __call__(
        self,
        batch: Batch,
        max_new_tokens: int,
        end_id: int,
        on_token: Callable[[Tensor], None] | None,
        past: Past | None,
    ) -> Generated:
        """Generate the answers of a batch, as ``EvidenceModel.generate`` does."""


def answer_batch(
    model: EvidenceModel,
    prompt: Prompt,
    examples: Sequence[Example],
    max_new_tokens: int,
    on_token: Callable[[Tensor], None] | None = None,
    past: Past | None = None,
    generate: Generate | None = None,
    confidence: Confidence | None = None,
) -> list[Json]:
    """Return the prediction records of one batch; each gets an equal share of its time.

    An example with ``alone`` is read twice, and ``surer`` chooses an answer.

    Args:
        model, prompt, examples, max_new_tokens: as in ``answer_together``.
        on_token, past: as in ``EvidenceModel.generate``.
        confidence: as in ``Batching``.
        generate: function that writes the answers; None: ``model.generate``.
    """
    began = time.monotonic()
    batch = collate(examples, "left", with_target=False).to(model.device)
    proposals: list[list[Proposal]] | None = None
    held: list[float | None] = [None] * len(examples)
    if isinstance(model, Reader):
        with torch.no_grad(), model.decoding():
            read = model.read(batch, record=model.writes)
        held = read.scores.held.tolist()
        proposals = ranked(model, prompt, batch, examples, read.scores)
        if model.writes:
            generated = model.generate(batch, max_new_tokens, prompt.end_id, read=read)
            proposals = decided(model, prompt, batch, proposals, read, generated, GRAPH_WEIGHT)
    elif isinstance(model, NodeRanker):
        with torch.no_grad():
            proposals = ranked(model, prompt, batch, examples, model.node_scores(batch))
    else:
        generated = (generate or model.generate)(
            batch, max_new_tokens, prompt.end_id, on_token, past
        )
        answers = list(zip(*(values.tolist() for values in generated), strict=True))
    milliseconds = 1000 * (time.monotonic() - began) / len(examples)
    nothing = NOT_IN_EVIDENCE if isinstance(model, Reader) else ""
    if proposals is not None:
        records = [
            prediction_record(
                example,
                best[0].entity.label if best else nothing,
                best[0].logprob if best else NO_ENTITY,
                milliseconds,
                best,
                held=chance,
            )
            for example, best, chance in zip(examples, proposals, held, strict=True)
        ]
    else:
        records = [
            prediction_record(
                example, prompt.answer_text(ids), logprob, milliseconds, margin=margin
            )
            for example, (ids, logprob, margin) in zip(examples, answers, strict=True)
        ]
    if confidence is not None:
        records = [confidence.applied(record) for record in records]
    alone = [one.alone for one in examples if one.alone is not None]
    if not alone:
        return records
    others = iter(answer_batch(model, prompt, alone, max_new_tokens, confidence=confidence))
    pairs = zip(records, examples, strict=True)
    return [surer(one, next(others)) if example.alone else one for one, example in pairs]


def surer(record: Json, alone: Json) -> Json:
    """Return the surer of a question's records, read with its dialogue and without (``alone``).

    Where earlier turns are about something else, the model is surer of its answer without them:
    that answer is chosen if its confidence (without a calibration, its probability) is larger, and
    at least ``ALONE_SURE``.
    """

    def sure(one: Json) -> float:
        confidence = one["confidence"]
        return math.exp(one["logprob"]) if confidence is None else float(confidence)

    is_alone = sure(alone) >= ALONE_SURE and sure(alone) > sure(record)
    milliseconds = round(record["milliseconds"] + alone["milliseconds"], 2)
    chosen = alone | {"alone": True} if is_alone else record
    return chosen | {"milliseconds": milliseconds}
