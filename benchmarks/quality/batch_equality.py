"""Checks whether answering in batches gives the same answers as one question at a time.

    python -m turngraph.benchmarks.quality.batch_equality --checkpoint FOLDER --input FILE

In float32 no answer differs. In bfloat16 some do, because sums are rounded in another order. Each
difference is printed with the first two tokens that differ and the gap between their logits: in
bfloat16 steps of the larger logit, and relative to the spread of all logits at that position.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import run_cli
from turngraph.data.entities import complete_entities
from turngraph.data.examples import Example
from turngraph.data.jsonlines import read_conversations
from turngraph.infer import positive
from turngraph.inference.answer_batches import Batching, prompt_length
from turngraph.inference.load import load
from turngraph.inference.options import LoadOptions
from turngraph.inference.questions import DRAW_SEED
from turngraph.model.checkpoint import read_checkpoint
from turngraph.model.graph_lm import TextLM


@dataclass(frozen=True)
class Difference:
    """The first position at which two answers to one question differ.

    Args:
        key: conversation and turn.
        position: index of the first token that differs.
        tokens: the two ids, alone and in a batch.
        gap: difference of their logits, computed alone.
        bf16_steps: the gap in bfloat16 steps at the larger logit.
        spread: standard deviation of all logits at that position.
    """

    key: tuple[str, str]
    position: int
    tokens: tuple[int, int]
    gap: float
    bf16_steps: float
    spread: float


def generate(
    model: TextLM,
    examples: Sequence[Example],
    *,
    batch_size: int,
    max_new_tokens: int,
    end_id: int,
) -> list[list[int]]:
    """Generate in batches of similar length; return the ids of each example up to its end token."""
    ends, answers = set(model.end_ids(end_id)), {}
    batches = Batching(max_new_tokens, None, batch_size).pack(list(map(prompt_length, examples)))
    for indices in tqdm(batches, desc=f"in batches of {batch_size}"):
        batch = collate([examples[i] for i in indices], "left", with_target=False)
        found = model.generate(batch.to(model.device), max_new_tokens, end_id).ids.tolist()
        for index, ids in zip(indices, found, strict=True):
            stop = next((i for i, token in enumerate(ids) if token in ends), len(ids))
            answers[index] = ids[: stop + 1]
    return [answers[index] for index in range(len(examples))]


def differences(
    model: TextLM,
    examples: Sequence[Example],
    alone: Sequence[list[int]],
    together: Sequence[list[int]],
) -> Iterator[Difference]:
    """Yield each question whose answers differ, with the logits at the first difference."""
    for example, one, other in zip(examples, alone, together, strict=True):
        if one == other:
            continue
        pairs = enumerate(zip(one, other, strict=False))
        position = next(index for index, (a, b) in pairs if a != b)
        yield difference(model, example, one[:position], (one[position], other[position]))


@torch.no_grad()
def difference(
    model: TextLM, example: Example, before: list[int], tokens: tuple[int, int]
) -> Difference:
    """Compute the difference of two tokens' logits after the first tokens of an answer."""
    longer = replace(example, suffix_ids=[*example.suffix_ids, *before], target_ids=[])
    batch = collate([longer], "left", with_target=False).to(model.device)
    logits = model.logits(batch, 1)[0, -1].float()
    a, b = (logits[token].item() for token in tokens)
    step = 2.0 ** (math.floor(math.log2(max(abs(a), abs(b), 1e-30))) - 7)  # 8 bits of precision
    return Difference(
        example.key, len(before), tokens, abs(a - b), abs(a - b) / step, logits.std().item()
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Answer some questions one by one and in batches, and print every difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--input", required=True, help="conversations, JSON Lines")
    parser.add_argument("--max_questions", type=positive, default=100)
    parser.add_argument("--batch_sizes", type=positive, nargs="+", default=[3, 16])
    parser.add_argument("--max_new_tokens", type=positive, default=24)
    parser.add_argument("--base_model")
    parser.add_argument("--device")
    args = parser.parse_args(argv)
    checkpoint = read_checkpoint(args.checkpoint)
    checkpoint.check_writes()
    conversations = complete_entities(read_conversations(args.input))
    chosen = choose_questions(conversations, args.max_questions, False, DRAW_SEED)
    model, builder = load(checkpoint, LoadOptions(args.base_model, args.device))
    if not isinstance(model, TextLM):
        raise UserError(f"{checkpoint.folder}: of a text or graph model alone")
    examples = [
        e for n, turns in chosen.items() for e in builder.conversation(conversations[n], turns)
    ]
    console, decode = Console(), builder.prompt.tokenizer.decode
    in_batches = partial(
        generate,
        model,
        examples,
        max_new_tokens=args.max_new_tokens,
        end_id=builder.prompt.end_id,
    )
    alone = in_batches(batch_size=1)
    table = Table(title=f"{len(examples)} questions, {model.config.dtype}")
    for name in ("batch size", "differ", "largest gap", "in bf16 steps", "in spreads"):
        table.add_column(name, justify="right")
    for batch_size in args.batch_sizes:
        together = in_batches(batch_size=batch_size)
        found = list(differences(model, examples, alone, together))
        for one in found:
            words = " or ".join(repr(decode([token])) for token in one.tokens)
            console.print(f"batch of {batch_size}: {one}: {words}", highlight=False)
        largest = [
            max((one.gap for one in found), default=0.0),
            max((one.bf16_steps for one in found), default=0.0),
            max((one.gap / one.spread for one in found), default=0.0),
        ]
        table.add_row(str(batch_size), str(len(found)), *(f"{value:.3f}" for value in largest))
    console.print(table)


if __name__ == "__main__":
    run_cli(main)
