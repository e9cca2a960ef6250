"""Measures how often the answer is in a prompt whose passages BM25+ or the node scorer chose.

turngraph answer --checkpoint NODES --input dev.jsonl --output nodes.jsonl --single_answers_only
python -m turngraph.benchmarks.quality.passage_choice --input dev.jsonl --nodes nodes.jsonl \
    --budgets 448 224 112 [--write FOLDER]

The scorer's order of the same 30 passages is by the sum of the probabilities of the entities in a
passage, as far as they are among the candidates of its answer. ``--write`` makes a file of
conversations for each order and budget in which every question has the chosen passages alone, for
``turngraph answer`` with any checkpoint.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm import tqdm
from transformers import AutoTokenizer

from turngraph.configs.models import resolve_model
from turngraph.configs.schema import EvidenceConfig
from turngraph.data.cli import run_cli
from turngraph.data.entities import complete_entities
from turngraph.data.examples import ExampleBuilder
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.jsonlines import read_conversations, write_conversations
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.metrics import answer_in_evidence
from turngraph.data.scoring.proposals import order_passages
from turngraph.data.types import Conversation, Evidence, Retrieved, gold_interaction

ORDERS = ("bm25", "nodes")
RESAMPLES = 2000
Chosen = dict[tuple[str, int], dict[tuple[int, int], list[Retrieved]]]
"""Order and budget -> index of conversation and turn -> passages."""


def main(argv: Sequence[str] | None = None) -> None:
    """Choose the passages of every answered question both ways, and print the recall."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, help="conversations, JSON Lines")
    parser.add_argument("--nodes", required=True, help="predictions of a checkpoint of nodes")
    parser.add_argument("--budgets", type=int, nargs="+", default=[448, 224, 112])
    parser.add_argument("--base_model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--write", help="folder for files of conversations")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the intervals")
    args = parser.parse_args(argv)
    conversations = complete_entities(read_conversations(args.input))
    predictions = {
        (record["conversation"], record["turn"]): record for _, record in iter_lines(args.nodes)
    }
    prompt = Prompt(AutoTokenizer.from_pretrained(resolve_model(args.base_model)))
    config = EvidenceConfig(top_k=30, history_weight=1.0, memory="none")
    builder = ExampleBuilder(prompt, config)
    chosen: Chosen = {(order, budget): {} for order in ORDERS for budget in args.budgets}
    for index, conversation in enumerate(tqdm(conversations, desc="conversations")):
        for turn, asked in enumerate(conversation.turns):
            record = predictions.get((conversation.id, asked.id))
            if record is not None:
                interaction = gold_interaction(conversation, turn)
                ranked = builder.retrieve(conversation, turn, interaction)[1]
                for order, items in zip(ORDERS, (ranked, by_nodes(ranked, record)), strict=True):
                    for budget in args.budgets:
                        chosen[order, budget][index, turn] = within(builder, items, budget)
    print_recall(conversations, chosen, args.budgets, args.seed)
    if args.write:
        for (order, budget), of in chosen.items():
            path = Path(args.write) / f"{order}_{budget}.jsonl"
            write_conversations(path, with_evidence(conversations, of))


def by_nodes(ranked: Sequence[Retrieved], record: Json) -> list[Retrieved]:
    """Order passages by the probability of their entities; ties stay in BM25's order.

    Args:
        ranked: passages, best first by BM25+.
        record: prediction of a checkpoint that answers from nodes.
    """
    return order_passages(ranked, {c["id"]: math.exp(c["logprob"]) for c in record["candidates"]})


def within(builder: ExampleBuilder, items: Sequence[Retrieved], budget: int) -> list[Retrieved]:
    """Return the first passages whose tokens fit into a budget."""
    total = np.cumsum(builder.sizes(items))
    return list(items[: int(np.searchsorted(total, budget, side="right"))])


def print_recall(
    conversations: Sequence[Conversation], chosen: Chosen, budgets: Sequence[int], seed: int
) -> None:
    """Print the share of questions whose answer is in the passages, and the difference."""
    print("| tokens | passages, BM25+ / nodes | answer in them, BM25+ | nodes | difference |")
    print("|---|---|---|---|---|")
    for budget in budgets:
        hits, sizes = [], []
        for order in ORDERS:
            of = chosen[order, budget]
            found = [
                bool(answer_in_evidence(conversations[c].turns[t].answers, passages_of(items)))
                for (c, t), items in of.items()
            ]
            hits.append(np.array(found, float))
            sizes.append(np.mean([len(items) for items in of.values()]))
        groups = np.unique([c for c, _ in chosen[ORDERS[0], budget]], return_inverse=True)[1]
        low, high = interval(hits[1] - hits[0], groups, seed)
        gain = hits[1].mean() - hits[0].mean()
        print(
            f"| {budget} | {sizes[0]:.1f} / {sizes[1]:.1f} | {hits[0].mean():.3f} | "
            f"{hits[1].mean():.3f} | {gain:+.3f} [{low:+.3f}, {high:+.3f}] |"
        )
    print(f"\n{len(chosen[ORDERS[0], budgets[0]])} questions")


def passages_of(items: Sequence[Retrieved]) -> list[Evidence]:
    """Return the passages."""
    return [item.evidence for item in items]


def interval(values: np.ndarray, groups: np.ndarray, seed: int) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean, with conversations drawn."""
    sums = np.bincount(groups, values)
    counts = np.bincount(groups)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(RESAMPLES, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), [0.025, 0.975])
    return float(low), float(high)


def with_evidence(
    conversations: Sequence[Conversation], chosen: Mapping[tuple[int, int], Sequence[Retrieved]]
) -> list[Conversation]:
    """Return the conversations with the chosen passages as the only evidence of each question."""
    return [
        replace(
            conversation,
            evidence=(),
            turns=tuple(
                replace(turn, evidence=tuple(passages_of(chosen.get((c, t), ()))))
                for t, turn in enumerate(conversation.turns)
            ),
        )
        for c, conversation in enumerate(conversations)
    ]


if __name__ == "__main__":
    run_cli(main)
