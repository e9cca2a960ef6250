"""Measures how often the answer is in the top passages of a pool, and in a prompt of them.

python -m turngraph.benchmarks.quality.evidence_recall --input runs/data/sqa/tune.jsonl \
    --depths 5 10 20 --history_weights 1 0.5 0.4 \
    --retrievers bm25 bm25_stem dense rrf rrf_stem

The first table has a row for each retriever and ``evidence.history_weight``: the share of the
single-answer questions whose answer is in the top passages, and in the prompt, which holds the
first passages of the top ``--top_k`` within ``--max_nodes`` tokens. Differences are to the first
retriever with the same weight, with 95 % bootstrap intervals over conversations. ``bm25_stem``
is BM25+ over Snowball's English stems, ``rrf`` reciprocal-rank fusion with the sentence encoder,
``links`` BM25+ whose passages bring those that share an entity with them. Vectors stay in the
user's cache folder, for other runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm
from transformers import AutoTokenizer

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.benchmarks.quality.pool_rankings import RETRIEVERS, PoolRankings
from turngraph.benchmarks.tables import parser_of, table
from turngraph.configs.models import resolve_model
from turngraph.configs.schema import EvidenceConfig
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import run_cli
from turngraph.data.embedding import cached
from turngraph.data.entities import complete_entities
from turngraph.data.examples import ExampleBuilder
from turngraph.data.jsonlines import join_pools, read_conversations
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.score import bootstrap
from turngraph.data.turn_retrieval import turn_query
from turngraph.data.types import (
    Answer,
    Conversation,
    Evidence,
    Query,
    gold_interaction,
)


@dataclass(frozen=True)
class Asked:
    """One question: what it may retrieve, by which query, and what it should find."""

    pool: tuple[Evidence, ...]
    q_t: Query
    answers: tuple[Answer, ...]


def main(argv: Sequence[str] | None = None) -> None:
    """Rank the pool of every single-answer question, and print the tables."""
    args = _parser().parse_args(argv)
    conversations = complete_entities(read_conversations(args.input))
    chosen = choose_questions(conversations, args.num, single_only=True, seed=0)
    prompt = Prompt(AutoTokenizer.from_pretrained(resolve_model(args.base_model)))
    builder = ExampleBuilder(prompt, EvidenceConfig(max_nodes=args.max_nodes))
    rankings = PoolRankings(
        cached(kept_encoder(args.embedder)), builder, args.top_k, args.max_nodes
    )
    found: dict[tuple[str, float], list[list[float]]] = {}
    for index, turns in tqdm(chosen.items(), desc="conversations"):
        for weight in args.history_weights:
            for turn in turns:
                asked = ask_turn(conversations[index], turn, weight)
                for name in args.retrievers:
                    hits = hits_of(rankings, asked, name, args.depths)
                    found.setdefault((name, weight), []).append(hits)
    clusters = [conversations[c].id for c, turns in chosen.items() for _ in turns]
    print_recall(found, clusters, args)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    parser.add_argument("--input", required=True, help="conversations, JSON Lines")
    parser.add_argument("--num", type=int, help="number of questions; all if it is not given")
    parser.add_argument("--depths", type=int, nargs="+", default=[10, 20, 30, 50])
    parser.add_argument(
        "--history_weights", type=float, nargs="+", default=[1.0], help="evidence.history_weight"
    )
    parser.add_argument("--retrievers", nargs="+", default=["bm25"], choices=list(RETRIEVERS))
    parser.add_argument("--top_k", type=int, default=20, help="passages of E_t")
    parser.add_argument("--max_nodes", type=int, default=448, help="tokens of evidence in a prompt")
    parser.add_argument("--base_model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--embedder", default="sentence-transformers/all-MiniLM-L6-v2")
    return parser


def ask_turn(conversation: Conversation, turn: int, weight: float) -> Asked:
    """Return the question at index ``turn``, with its pool and its Q_t after gold answers."""
    current = conversation.turns[turn]
    interaction = gold_interaction(conversation, turn)
    return Asked(
        pool=join_pools(conversation.evidence, current.evidence),
        q_t=turn_query(interaction, current.question, EvidenceConfig(history_weight=weight)),
        answers=current.answers,
    )


def hits_of(
    rankings: PoolRankings, asked: Asked, retriever: str, depths: Sequence[int]
) -> list[float]:
    """Return whether the answer is in the top passages of each depth, the pool and the prompt."""
    order = rankings.order(retriever, asked.pool, asked.q_t)
    holds = rankings.holds(asked.pool, asked.answers)[order]
    prompt = rankings.num_in_prompt(asked.pool, order)
    return [float(holds[:depth].any()) for depth in (*depths, len(order), prompt)]


def print_recall(
    found: Mapping[tuple[str, float], list[list[float]]],
    clusters: Sequence[str],
    args: argparse.Namespace,
) -> None:
    """Print the recall of each retriever and weight, in percent."""
    names = [*(f"top {depth}" for depth in args.depths), "all", "prompt"]
    print(f"{len(clusters)} single-answer questions; the answer is in the top passages, in percent")
    last = f"top {args.depths[-1]} to {args.retrievers[0]}"
    heads = ["retriever", "history_weight", *names, last, f"prompt to {args.retrievers[0]}"]
    lines = []
    for (name, weight), rows in found.items():
        hits = np.array(rows)
        shares = [f"{100 * share:.1f}" for share in hits.mean(0)]
        gains = ["", ""]
        if name != args.retrievers[0]:
            more = hits - np.array(found[args.retrievers[0], weight])
            estimates = bootstrap(100 * more[:, [-3, -1]], clusters)
            gains = [f"{e.mean:+.1f} [{e.low:+.1f}, {e.high:+.1f}]" for e in estimates]
        lines.append([name, f"{weight:g}", *shares, *gains])
    print(table(heads, lines))


if __name__ == "__main__":
    run_cli(main)
