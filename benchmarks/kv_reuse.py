"""What a turn could take over from the turn before it: ``python benchmarks/kv_reuse.py``.

Keys and values of the LM can be reused as far as two prompts begin with the same input embeddings,
bit for bit. Counted for consecutive turns of long conversations, and timed for the first of them:
for the evidence as it stands, best passage first, and in an order made for reuse, where the
passages that the turn before had come first and keep their order.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import torch
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from turngraph.data.batches.collate import collate
from turngraph.data.cli import run_cli
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.entities import complete_entities
from turngraph.data.jsonlines import join_pools, read_conversations
from turngraph.data.types import Conversation, Evidence, gold_interaction
from turngraph.infer import positive
from turngraph.inference.answer_batches import answer_batch
from turngraph.inference.load import check_writes, load
from turngraph.model.generation import Past, common_start
from turngraph.model.graph_lm import GraphLM

ORDERS = ("best first", "kept first")
NEW = 24
"""Longest answer."""


def long_conversations(
    conversations: Sequence[Conversation], num_turns: int
) -> Iterator[Conversation]:
    """Conversations of so many turns, out of those over one pool, or else over several."""
    groups: dict[int, list[Conversation]] = {}
    for conversation in conversations:
        groups.setdefault(id(conversation.evidence), []).append(conversation)
    turns, pools = [], []
    for group in groups.values():
        turns += [turn for conversation in group for turn in conversation.turns]
        pools.append(group[0].evidence)
        if len(turns) >= num_turns:
            ids = [replace(turn, id=str(n)) for n, turn in enumerate(turns[:num_turns])]
            yield Conversation(group[0].id, "", tuple(ids), join_pools(*pools))
            turns, pools = [], []


def kept_first(passages: Sequence[Evidence], before: Sequence[Evidence]) -> list[Evidence]:
    """Passages that were there before in the order that they had, then the others."""
    texts = {passage.text: passage for passage in passages}
    kept = {passage.text for passage in before} & texts.keys()
    first = [texts[passage.text] for passage in before if passage.text in kept]
    return [*first, *(passage for passage in passages if passage.text not in kept)]


def examples_of(
    builder: ExampleBuilder, conversation: Conversation, order: str
) -> Iterator[Example]:
    """A conversation's turns, with gold history and the evidence in some order."""
    before: list[Evidence] = []
    for example in builder.conversation(conversation):
        passages = [item.evidence for item in example.evidence]
        if order == "kept first":
            passages = kept_first(passages, before)
            turn = example.turn
            q_t, _ = builder.retrieve(conversation, turn, gold_interaction(conversation, turn))
            asked = builder.encoded_question(conversation.turns[turn].question, q_t)
            example = replace(example, graph=builder.graph(passages, asked))
        before = passages
        yield example


def seconds(run: Callable[[], object]) -> float:
    """CPU seconds on a CPU, else wall seconds."""
    clock = time.monotonic if torch.cuda.is_available() else time.process_time
    began = clock()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - began


@torch.no_grad()
def measure(
    model: GraphLM,
    builder: ExampleBuilder,
    conversations: Sequence[Conversation],
    order: str,
    num_timed: int,
) -> tuple[list[float], list[float]]:
    """Counts and times of a turn that has one before it, as means.

    Returns:
        Positions of the prompt, equal ones at its start, ones before the evidence; and seconds of
        answering as if there had been no turn before, and of answering behind the equal positions,
        for the first ``num_timed`` conversations.
    """
    counts, times = [], []
    for number, conversation in enumerate(tqdm(conversations, desc=order)):
        before, past = None, Past()
        for example in examples_of(builder, conversation, order):
            batch = collate([example], "left", with_target=False).to(model.device)
            embedded = model.input_embeddings(batch)[0]
            if before is not None:
                equal = common_start(embedded[:-1], before)
                counts.append([len(embedded), equal, len(example.prefix_ids)])
            if number < num_timed:
                ask = partial(answer_batch, model, builder.prompt, [example], NEW)
                pair = [seconds(ask), seconds(partial(ask, past=past))]
                times += [pair] if before is not None else []
            before = embedded
    means = (torch.tensor(rows, dtype=torch.float64).mean(0).tolist() for rows in (counts, times))
    return next(means), next(means)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure both orders with a checkpoint, and print what reuse would save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--input", required=True, help="conversations, JSON Lines")
    parser.add_argument("--num_conversations", type=positive, default=10)
    parser.add_argument("--num_timed", type=positive, default=1, help="the first of them")
    parser.add_argument("--num_turns", type=positive, default=10)
    parser.add_argument("--base_model")
    parser.add_argument("--device")
    args = parser.parse_args(argv, argparse.Namespace(quantization=None))
    check_writes(args.checkpoint)
    found = long_conversations(read_conversations(args.input), args.num_turns)
    conversations = list(islice(found, args.num_conversations))
    if len(conversations) < args.num_conversations:
        raise ValueError(
            f"{args.input}: {len(conversations)} conversations of {args.num_turns} turns can be"
            f" made of it, --num_conversations {args.num_conversations}"
        )
    conversations = complete_entities(conversations)
    model, builder = load(args)
    title = f"{len(conversations)} x {args.num_turns} turns, evidence: {model.config.evidence}"
    table = Table("order", title=title)
    for name in ("positions", "equal", "prefix", "alone s", "reused s", "saved"):
        table.add_column(name, justify="right")
    for order in ORDERS:
        counts, times = measure(model, builder, conversations, order, args.num_timed)
        numbers = [f"{value:.0f}" for value in counts] + [f"{value:.3f}" for value in times]
        table.add_row(order, *numbers, f"{1 - times[1] / times[0]:.1%}")
    Console().print(table)


if __name__ == "__main__":
    run_cli(main)
