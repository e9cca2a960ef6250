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
from typing import Any

import numpy as np
from tqdm import tqdm
from transformers import AutoTokenizer

from turngraph.benchmarks.embedding_cache import kept_encoder
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
from turngraph.data.scoring.metrics import answer_in_evidence
from turngraph.data.scoring.score import bootstrap
from turngraph.data.types import Conversation, gold_interaction

RETRIEVERS = ("bm25", "bm25_stem", "links", "dense", "rrf", "rrf_stem")
"""``evidence.retriever``, and after it the stemmer."""


def main(argv: Sequence[str] | None = None) -> None:
    """Rank the pool of every single-answer question, and print the tables."""
    args = _parser().parse_args(argv)
    conversations = complete_entities(read_conversations(args.input))
    chosen = choose_questions(conversations, args.num, single_only=True, seed=0)
    prompt = Prompt(AutoTokenizer.from_pretrained(resolve_model(args.base_model)))
    embed, deepest = cached(kept_encoder(args.embedder)), max(*args.depths, args.top_k)
    builders = {
        (name, weight): ExampleBuilder(prompt, config_of(name, weight, deepest, args), embed)
        for weight in args.history_weights
        for name in args.retrievers
    }
    found: dict[tuple[str, float], list[list[float]]] = {key: [] for key in builders}
    for index, turns in tqdm(chosen.items(), desc="conversations"):
        for turn in turns:
            for key, builder in builders.items():
                hits = hits_of(builder, conversations[index], turn, args.depths, args.top_k)
                found[key].append(hits)
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
    parser.add_argument("--retrievers", nargs="+", default=["bm25"], choices=RETRIEVERS)
    parser.add_argument("--top_k", type=int, default=20, help="passages of E_t")
    parser.add_argument("--max_nodes", type=int, default=448, help="tokens of evidence in a prompt")
    parser.add_argument("--base_model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--embedder", default="sentence-transformers/all-MiniLM-L6-v2")
    return parser


def config_of(name: str, weight: float, top_k: int, args: argparse.Namespace) -> EvidenceConfig:
    """Return the settings of one of ``RETRIEVERS`` that finds ``top_k`` passages."""
    retriever: Any
    retriever, _, stemmer = name.partition("_")
    return EvidenceConfig(
        retriever=retriever,
        stemmer="english" if stemmer else "none",
        memory="none",
        top_k=top_k,
        max_nodes=args.max_nodes,
        history_weight=weight,
    )


def hits_of(
    builder: ExampleBuilder,
    conversation: Conversation,
    turn: int,
    depths: Sequence[int],
    top_k: int,
) -> list[float]:
    """Return whether the answer is in the top passages of each depth, the pool and the prompt."""
    current, interaction = conversation.turns[turn], gold_interaction(conversation, turn)
    _, found = builder.retrieve(conversation, turn, interaction)
    holds = [bool(answer_in_evidence(current.answers, [item.evidence])) for item in found]
    pool = join_pools(conversation.evidence, current.evidence)
    somewhere = any(holds) or bool(answer_in_evidence(current.answers, pool))
    sizes = np.cumsum(builder.sizes(found[:top_k]))
    num_in_prompt = int(np.searchsorted(sizes, builder.config.max_nodes or np.inf, side="right"))
    return [
        *(float(any(holds[:depth])) for depth in depths),
        float(somewhere),
        float(any(holds[:num_in_prompt])),
    ]


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
