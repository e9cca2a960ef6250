"""Measures how often the answer is in the top passages of a pool, ranked by BM25+ over Q_t.

python -m turngraph.benchmarks.quality.evidence_recall --input runs/data/sqa/dev.jsonl
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tqdm import tqdm

from turngraph.data.cli import run_cli
from turngraph.data.examples import choose_questions
from turngraph.data.jsonlines import join_pools, read_conversations
from turngraph.data.retrieval.bm25 import EvidenceIndex, cut_query
from turngraph.data.scoring.metrics import answer_in_evidence
from turngraph.data.types import Conversation, gold_interaction, query


def main(argv: Sequence[str] | None = None) -> None:
    """Rank the pool of every single-answer question, and print the recall at each depth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, help="conversations, JSON Lines")
    parser.add_argument("--depths", type=int, nargs="+", default=[10, 20, 30, 50])
    parser.add_argument("--max_query_words", type=int, default=128)
    args = parser.parse_args(argv)
    conversations = read_conversations(args.input)
    chosen = choose_questions(conversations, None, single_only=True, seed=0)
    depths = [*args.depths, max(len(c.evidence) for c in conversations)]
    found = [
        holding(conversations[number], turn, depths, args.max_query_words)
        for number, turns in tqdm(chosen.items(), desc="conversations")
        for turn in turns
    ]
    print(f"{len(found)} single-answer questions; the answer is in")
    for depth, hits in zip(depths, zip(*found, strict=True), strict=True):
        name = "the whole pool" if depth == depths[-1] else f"the top {depth}"
        print(f"{name:<16}{100 * sum(hits) / len(hits):.1f} %")


def holding(
    conversation: Conversation, turn: int, depths: Sequence[int], max_query_words: int
) -> list[bool]:
    """Return whether the answer is in the top passages, for each depth."""
    question = conversation.turns[turn]
    pool = join_pools(conversation.evidence, question.evidence)
    q_t = cut_query(query(gold_interaction(conversation, turn), question.question), max_query_words)
    ranked = [item.evidence for item in EvidenceIndex(pool).rank(q_t, len(pool))]
    return [bool(answer_in_evidence(question.answers, ranked[:depth])) for depth in depths]


if __name__ == "__main__":
    run_cli(main)
