"""Batch inference: ``infer.py answer``."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from accelerate import PartialState
from accelerate.utils import gather_object
from tqdm import tqdm

from data.collate import collate
from data.entities import complete_entities
from data.examples import Example, ExampleBuilder, choose_questions
from data.jsonlines import Json, dump, join_pools, read_conversations, whole_file
from data.predictions import prediction_record
from data.prompt import Prompt
from data.types import Conversation, Evidence
from inference.load import device_of, load
from model.graph_lm import GraphLM
from model.sharding import is_sharded

logger = logging.getLogger("infer")
DRAW_SEED = 1


def answer_command(args: argparse.Namespace) -> None:
    """``infer.py answer``: predictions for a file of conversations, in its order."""
    state = PartialState(cpu=device_of(args) == "cpu")
    if not state.is_main_process:
        logging.disable(logging.INFO)
    conversations = complete_entities(read_conversations(args.input))
    chosen = chosen_turns(conversations, args)
    pools = None if args.evidence_of == "own" else other_pools(conversations)
    opened = whole_file(args.output) if state.is_main_process else nullcontext()
    with opened as file:  # opened first: hours of answers need a place
        model, builder = load(args)
        builder.cut = args.cut_edges
        if args.history == "predicted":
            records = answer_with_predicted_history(model, builder, conversations, pools, args)
        else:
            examples = [
                example
                for number, turns in tqdm(chosen.items(), desc="graphs")
                for example in builder.conversation(
                    conversations[number], turns, pools[number] if pools else None
                )
            ]
            records = answer_together(
                model, builder.prompt, examples, args.batch_size, args.max_new_tokens
            )
        if file is not None:
            file.writelines(dump(record) + "\n" for record in records)
    builder.log_counts()
    logger.info("wrote %s", args.output)


def chosen_turns(
    conversations: Sequence[Conversation], args: argparse.Namespace
) -> dict[int, list[int]]:
    """Number of the conversation -> numbers of the turns to answer, as the options say.

    Raises:
        ValueError: no turn is left, or turns are left out where later ones need their answers.
    """
    if not args.max_questions and not args.single_answers_only:
        return {number: list(range(len(c.turns))) for number, c in enumerate(conversations)}
    if args.history == "predicted":
        raise ValueError(
            "--history predicted answers every turn: take away --max_questions "
            "and --single_answers_only"
        )
    try:
        return choose_questions(
            conversations, args.max_questions, args.single_answers_only, DRAW_SEED
        )
    except ValueError as error:
        raise ValueError(f"{args.input}: {error}") from None


def other_pools(conversations: Sequence[Conversation]) -> list[tuple[Evidence, ...]]:
    """For each conversation the evidence of the next one that has another pool.

    Raises:
        ValueError: all conversations share one pool.
    """
    own = [join_pools(c.evidence, *(t.evidence for t in c.turns)) for c in conversations]
    found = []
    for number, pool in enumerate(own):
        later = own[number + 1 :] + own[:number]
        other = next((p for p in later if p is not pool and p != pool), None)
        if other is None:
            raise ValueError("--evidence_of other: all conversations have the same evidence")
        found.append(other)
    return found


def answer_together(
    model: GraphLM,
    prompt: Prompt,
    examples: Sequence[Example],
    batch_size: int,
    max_new_tokens: int,
) -> list[Json]:
    """Prediction records of examples, in their order; every process answers a share of them.

    All processes must call it, with the same examples, and all get all records.
    """
    state = PartialState()
    rank, world = state.process_index, state.num_processes
    mine = list(examples[rank::world])
    # a sharded model needs all processes in every batch: a shorter share is filled up
    missing = -(-len(examples) // world) - len(mine) if is_sharded(model) else 0
    filled = [*mine, *examples[:missing]]
    answered = answer_examples(
        model, prompt, filled, batch_size, max_new_tokens, state.is_local_main_process
    )
    shares = gather_object([list(answered)])
    return [shares[number % world][number // world] for number in range(len(examples))]


def answer_examples(
    model: GraphLM,
    prompt: Prompt,
    examples: Sequence[Example],
    batch_size: int,
    max_new_tokens: int,
    progress: bool = True,
) -> Iterator[Json]:
    """Prediction records of examples, in their order; batches hold examples of like length."""
    by_length = sorted(range(len(examples)), key=lambda i: -examples[i].num_tokens)
    records: dict[int, Json] = {}
    with tqdm(total=len(examples), desc="answers", disable=not progress) as bar:
        for start in range(0, len(by_length), batch_size):
            numbers = by_length[start : start + batch_size]
            batch = [examples[number] for number in numbers]
            answered = answer_batch(model, prompt, batch, max_new_tokens)
            records.update(zip(numbers, answered, strict=True))
            bar.update(len(numbers))
    return (records[number] for number in range(len(examples)))


def answer_batch(
    model: GraphLM, prompt: Prompt, examples: Sequence[Example], max_new_tokens: int
) -> list[Json]:
    """Prediction records of one batch."""
    began = time.monotonic()
    batch = collate(examples, "left", with_target=False).to(model.device)
    generated = model.generate(batch, max_new_tokens, prompt.end_id)
    milliseconds = 1000 * (time.monotonic() - began) / len(examples)
    return [
        prediction_record(example, prompt.answer_text(ids), logprob, milliseconds)
        for example, ids, logprob in zip(
            examples, generated.ids.tolist(), generated.logprobs.tolist(), strict=True
        )
    ]


def answer_with_predicted_history(
    model: GraphLM,
    builder: ExampleBuilder,
    conversations: Sequence[Conversation],
    pools: Sequence[tuple[Evidence, ...]] | None,
    args: argparse.Namespace,
) -> list[Json]:
    """Prediction records where each turn sees the model's own earlier answers.

    The first turns of all conversations are answered together, then the second ones, and so on.
    """
    memories = [builder.memory(conversation) for conversation in conversations]
    interactions: list[list[tuple[str, str]]] = [[] for _ in conversations]
    records: dict[tuple[int, int], Json] = {}
    for turn in range(max(len(c.turns) for c in conversations)):
        numbers = [n for n, c in enumerate(conversations) if turn < len(c.turns)]
        examples = [
            builder.turn(
                conversations[n], turn, interactions[n], memories[n], pools[n] if pools else None
            )
            for n in numbers
        ]
        answered = answer_together(
            model, builder.prompt, examples, args.batch_size, args.max_new_tokens
        )
        for n, record in zip(numbers, answered, strict=True):
            records[n, turn] = record
            interactions[n].append((record["question"], record["answer"]))
    return [records[key] for key in sorted(records)]
