"""Measures how often the answer is in the top passages of a pool, ranked by BM25+ over Q_t.

python -m turngraph.benchmarks.quality.evidence_recall --input runs/data/sqa/dev.jsonl
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import run_cli
from turngraph.data.jsonlines import join_pools, read_conversations
from turngraph.data.retrieval.bm25 import EvidenceIndex, cut_query
from turngraph.data.scoring.metrics import answer_in_evidence
from turngraph.data.types import Conversation, gold_interaction, query, weighted_query


def main(argv: Sequence[str] | None = None) -> None:
    """Rank the pool of every single-answer question, and print the recall at each depth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, help="conversations, JSON Lines")
    parser.add_argument("--depths", type=int, nargs="+", default=[10, 20, 30, 50])
    parser.add_argument("--max_query_words", type=int, default=128)
    parser.add_argument(
        "--history_weights", type=float, nargs="+", default=[1.0], help="evidence.history_weight"
    )
    args = parser.parse_args(argv)
    conversations = read_conversations(args.input)
    chosen = choose_questions(conversations, None, single_only=True, seed=0)
    depths = [*args.depths, max(len(c.evidence) for c in conversations)]
    found = [
        hits_of(conversations[index], turn, depths, args.max_query_words, args.history_weights)
        for index, turns in tqdm(chosen.items(), desc="conversations")
        for turn in turns
    ]
    print(f"{len(found)} single-answer questions; the answer is in the top passages, in percent")
    names = [*(f"top {depth}" for depth in args.depths), "all"]
    print(f"{'history_weight':<16}" + "".join(f"{name:>8}" for name in names))
    for index, weight in enumerate(args.history_weights):
        shares = np.mean([of_one[index] for of_one in found], axis=0)
        print(f"{weight:<16g}" + "".join(f"{100 * share:8.1f}" for share in shares))


def hits_of(
    conversation: Conversation,
    turn: int,
    depths: Sequence[int],
    max_query_words: int,
    history_weights: Sequence[float],
) -> list[list[bool]]:
    """Return whether the answer is in the top passages, for each weight and depth."""
    question = conversation.turns[turn]
    index = EvidenceIndex(join_pools(conversation.evidence, question.evidence))
    interaction, text = gold_interaction(conversation, turn), question.question
    hits = []
    for weight in history_weights:
        q_t: str | list[tuple[str, float]] = weighted_query(interaction, text, weight)
        if weight == 1:
            q_t = cut_query(query(interaction, text), max_query_words)
        ranked = [item.evidence for item in index.rank(q_t, max(depths))]
        hits.append([bool(answer_in_evidence(question.answers, ranked[:d])) for d in depths])
    return hits


if __name__ == "__main__":
    run_cli(main)
