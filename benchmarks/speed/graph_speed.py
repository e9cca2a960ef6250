"""Measures how many evidence graphs one core builds per second, tokenisation included.

    python -m turngraph.benchmarks.speed.graph_speed [--graphs 200] [--model NAME]

Every passage is new, so that no cache of tokens or folded text helps.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Sequence

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core; set before tokenizers starts threads

from tqdm import tqdm
from transformers import AutoTokenizer

from turngraph.configs.models import resolve_model
from turngraph.configs.schema import EvidenceConfig
from turngraph.data.cli import run_cli
from turngraph.data.examples import ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.data.types import Entity, Evidence

WORDS = (
    "was released in the of and by as first album band recorded at with for its from record label "
    "song writer year member state city river population capital founded team season won award"
).split()
SYLLABLES = "ba ken lo ri mas ter vel don na shi to ra mi gor el win sta ber lin há dé".split()


def main(argv: Sequence[str] | None = None) -> None:
    """Build graphs of about 1,000 nodes, and print their number per second."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=200, help="number of graphs")
    parser.add_argument("--passages", type=int, default=30, help="passages per graph")
    parser.add_argument("--entities", type=int, default=5, help="entities per passage")
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    prompt = Prompt(
        AutoTokenizer.from_pretrained(resolve_model(args.model), trust_remote_code=False)
    )
    builder = ExampleBuilder(prompt, EvidenceConfig(memory="none"))
    rng = random.Random(args.seed)
    pools = [make_passages(rng, args.passages, args.entities) for _ in range(args.graphs + 1)]
    builder.graph(pools.pop())  # warms up
    builder.counts.clear()
    seconds, busy = [], time.process_time()
    for pool in tqdm(pools, desc="graphs"):
        began = time.perf_counter()
        builder.graph(pool)
        seconds.append(time.perf_counter() - began)
    report(builder, seconds, time.process_time() - busy)


def report(builder: ExampleBuilder, seconds: Sequence[float], busy: float) -> None:
    """Print sizes and speed; CPU time leaves out other processes on the core."""
    num = len(seconds)
    print(
        f"{num} graphs of {builder.counts['nodes'] / num:.0f} nodes and "
        f"{builder.counts['entity edges'] / num:.0f} entity edges on one core: "
        f"{num / sum(seconds):.0f} a second, {num / busy:.0f} a second of CPU time "
        f"(median {1000 * statistics.median(seconds):.2f} ms, "
        f"fastest {1000 * min(seconds):.2f} ms)"
    )


def make_name(rng: random.Random) -> str:
    """Generate a name of one or two capitalised words."""
    parts = ["".join(rng.choices(SYLLABLES, k=2)).capitalize() for _ in range(rng.randint(1, 2))]
    return " ".join(parts)


def make_passages(rng: random.Random, num_passages: int, num_entities: int) -> list[Evidence]:
    """Make passages of about 33 tokens that share entities, as the passages of one page do."""
    names = list({make_name(rng): None for _ in range(num_passages * num_entities // 2)})
    passages = []
    for index in range(num_passages):
        chosen = [*rng.sample(names, num_entities - 1), str(rng.randint(1200, 2030))]
        parts = [f"{name} {rng.choice(WORDS)}" for name in chosen]
        entities = tuple(Entity(name, name) for name in chosen)
        passages.append(Evidence(str(index), f"{', '.join(parts)}.", "text", entities))
    return passages


if __name__ == "__main__":
    run_cli(main)
