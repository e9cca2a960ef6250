"""Questions in batches of like length, shared among the processes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor

from turngraph.data.batches.collate import Batch, candidate_entities, collate
from turngraph.data.examples import Example
from turngraph.data.json_fields import Json
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.predictions import error_record, prediction_record
from turngraph.data.scoring.proposals import NUM_PROPOSALS, Proposal
from turngraph.data.types import Conversation
from turngraph.inference.choose import Choice
from turngraph.inference.options import ANSWER_TOKENS
from turngraph.model.device_memory import is_out_of_memory
from turngraph.model.distributed import is_sharded
from turngraph.model.generation import Past
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger("infer")


SHORTER = "a smaller evidence.max_nodes or evidence.top_k"


@dataclass(frozen=True)
class Batching:
    """How questions are put together.

    Args:
        max_new_tokens: longest answer.
        batch_tokens: in one batch, of padded prompts and longest answers; a longer question is
            answered alone.
        batch_size: most questions in one batch; None: as many as ``batch_tokens`` lets in.
        keep_going: whether a question that cannot be answered gets an error record; else it ends
            the run.
        choice: what the LM chooses its answers from; None: it writes them.
    """

    max_new_tokens: int
    batch_tokens: int | None = ANSWER_TOKENS
    batch_size: int | None = None
    keep_going: bool = False
    choice: Choice | None = None

    def pack(self, lengths: Sequence[int]) -> list[list[int]]:
        """Prompts of like length in batches; the batch of the first question comes first.

        Args:
            lengths: of the prompts, in tokens.

        Returns:
            Numbers of the prompts, the longest of a batch first; each one once.
        """
        batches: list[list[int]] = []
        for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            if not batches or not self._has_room(lengths[batches[-1][0]], len(batches[-1])):
                batches.append([])
            batches[-1].append(number)
        return sorted(batches, key=min)

    def _has_room(self, longest: int, size: int) -> bool:
        tokens = (size + 1) * (longest + self.max_new_tokens)
        fits = self.batch_tokens is None or tokens <= self.batch_tokens
        return fits and (self.batch_size is None or size < self.batch_size)


def prompt_length(example: Example) -> int:
    """Tokens of an example without its target."""
    return example.num_tokens - len(example.target_ids)


def answer_together(
    model: GraphLM,
    prompt: Prompt,
    examples: Sequence[Example],
    batch_size: int | None = None,
    max_new_tokens: int = 48,
    batch_tokens: int | None = None,
) -> list[Json]:
    """Prediction records of examples, in their order; every process answers a share of them.

    All processes must call it, with the same examples, and all get all records.

    Raises:
        ValueError: a prompt is too long for the model, or a batch for the memory.
    """
    if batch_size is None and batch_tokens is None:
        batch_tokens = ANSWER_TOKENS
    batching = Batching(max_new_tokens, batch_tokens, batch_size)
    records: dict[int, Json] = {}
    for found in answer_batches(model, prompt, examples, batching):
        records |= found
    return [records[number] for number in range(len(examples))]


def answer_batches(
    model: GraphLM,
    prompt: Prompt,
    examples: Sequence[Example],
    batching: Batching,
    known: Collection[int] = (),
) -> Iterator[dict[int, Json]]:
    """Prediction records by their examples' numbers, as soon as each process has done a batch.

    Which examples make a batch depends on nothing but the examples and ``batching``, so that the
    answers are the same with any number of processes, and where some are known already.

    Args:
        model: the same in all processes.
        prompt: of the model's tokenizer.
        examples: the same in all processes.
        batching: sizes.
        known: numbers of examples that need no answer; a batch of others only is left out.

    Raises:
        ValueError: a prompt is too long for the model, a batch for the memory, or nothing is
            proposed to a question, and ``batching.keep_going`` is not set.
    """
    refused = unanswerable(model, examples, batching)
    if refused:
        yield {number: record for number, record in refused.items() if number not in known}
    fitting = [number for number in range(len(examples)) if number not in refused]
    packed = batching.pack([prompt_length(examples[number]) for number in fitting])
    batches = [[fitting[index] for index in batch] for batch in packed]
    batches = [batch for batch in batches if not all(number in known for number in batch)]
    state = PartialState()
    rank, world = state.process_index, state.num_processes
    for start in range(0, len(batches), world):
        share = batches[start : start + world]
        # a sharded model needs all processes in every batch: those without one repeat the first
        mine = share[rank] if rank < len(share) else share[0] if is_sharded(model) else []
        records = answer_safely(model, prompt, [examples[i] for i in mine], batching)
        found = gather_object(list(zip(mine, records, strict=True)))
        yield {number: record for number, record in found if number not in known}


def unanswerable(
    model: GraphLM, examples: Sequence[Example], batching: Batching
) -> dict[int, Json]:
    """Error records of examples that no answer can be had to, by number.

    The model has not enough positions for them, or nothing is proposed to choose from.

    Raises:
        ValueError: there is one, and ``batching.keep_going`` is not set.
    """
    refused = {}
    for number, example in enumerate(examples):
        message = ""
        if lengths := lengths_beyond(model, example, batching.max_new_tokens):
            message = f"{lengths}: train with {SHORTER}, or give a smaller --max_new_tokens"
        elif batching.choice is not None:
            message = batching.choice.missing(example.conversation, example.turn)
        if message:
            refused[number] = _failed(example, message, batching)
    return refused


def lengths_beyond(model: GraphLM, example: Example, max_new_tokens: int) -> str:
    """What is longer than the model's positions, in words; "" where nothing is."""
    limit, length = model.max_tokens, prompt_length(example)
    if limit is None or length + max_new_tokens <= limit:
        return ""
    return (
        f"a prompt of {length} tokens and up to {max_new_tokens} new ones, the model has "
        f"{limit} positions"
    )


def check_lengths(model: GraphLM, examples: Sequence[Example], max_new_tokens: int | None) -> None:
    """Whether examples fit into the model's positions, before anything is computed.

    Args:
        model: of these examples.
        examples: to train or evaluate on.
        max_new_tokens: of an answer; None: as many as its target has.

    Raises:
        ValueError: one does not; names its conversation and turn.
    """
    for example in examples:
        new = len(example.target_ids) if max_new_tokens is None else max_new_tokens
        if lengths := lengths_beyond(model, example, new):
            location = "conversation {}, turn {}".format(*example.key)
            raise ValueError(f"{location}: {lengths}; {SHORTER}")


def _failed(example: Example, message: str, batching: Batching) -> Json:
    """An error record, or the error."""
    if not batching.keep_going:
        raise ValueError(unanswered(example.conversation, example.turn, message))
    logger.warning("conversation %s, turn %s: %s", *example.key, message)
    return error_record(example, message)


def unanswered(conversation: Conversation, number: int, message: str) -> str:
    """The error of a turn that cannot be answered."""
    location = f"conversation {conversation.id}, turn {conversation.turns[number].id}"
    return f"{location}: {message}; --keep_going passes over such questions"


def answer_safely(
    model: GraphLM, prompt: Prompt, examples: Sequence[Example], batching: Batching
) -> list[Json]:
    """Prediction records of one batch; where it does not fit into memory, one by one.

    Raises:
        ValueError: out of memory, and ``batching.keep_going`` is not set.
    """
    if not examples:
        return []
    try:
        return answer_batch(
            model, prompt, examples, batching.max_new_tokens, choice=batching.choice
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
        raise ValueError(f"{message}; give a smaller --batch_tokens")
    logger.warning("%s; its questions are answered one by one", message)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    return [r for one in examples for r in answer_safely(model, prompt, [one], batching)]


def answer_batch(
    model: GraphLM,
    prompt: Prompt,
    examples: Sequence[Example],
    max_new_tokens: int,
    on_token: Callable[[Tensor], None] | None = None,
    past: Past | None = None,
    choice: Choice | None = None,
) -> list[Json]:
    """Prediction records of one batch; each question has an equal share of its time.

    Args:
        model, prompt, examples, max_new_tokens: as of ``answer_together``.
        on_token, past: as of ``GraphLM.generate``.
        choice: as of ``Batching``.
    """
    began = time.monotonic()
    batch = collate(examples, "left", with_target=False).to(model.device)
    if model.scorer is not None:
        ranked = ranked_entities(model, batch, examples)
    elif choice is not None:
        ranked = choice.ranked(model, prompt, batch, examples, max_new_tokens)
    else:
        ranked = None
    if ranked is not None:
        milliseconds = 1000 * (time.monotonic() - began) / len(examples)
        return [
            prediction_record(
                example,
                found[0].entity.label if found else "",
                found[0].logprob if found else 0.0,
                milliseconds,
                found,
            )
            for example, found in zip(examples, ranked, strict=True)
        ]
    generated = model.generate(batch, max_new_tokens, prompt.end_id, on_token, past)
    answers = list(zip(generated.ids.tolist(), generated.logprobs.tolist(), strict=True))
    milliseconds = 1000 * (time.monotonic() - began) / len(examples)
    return [
        prediction_record(example, prompt.answer_text(ids), logprob, milliseconds)
        for example, (ids, logprob) in zip(examples, answers, strict=True)
    ]


@torch.no_grad()
def ranked_entities(
    model: GraphLM, batch: Batch, examples: Sequence[Example]
) -> list[list[Proposal]]:
    """Of each example the entities that are its likeliest answers; none where E_t names none."""
    assert batch.candidates is not None, "built without mentions"
    sizes = batch.candidates.num_candidates.tolist()
    found = []
    parts = model.entity_logprobs(batch).float().cpu().split(sizes)
    for example, logprobs in zip(examples, parts, strict=True):
        entities = candidate_entities(example)
        best = logprobs.argsort(descending=True, stable=True)[:NUM_PROPOSALS].tolist()
        found.append([Proposal(entities[number], float(logprobs[number])) for number in best])
    return found
