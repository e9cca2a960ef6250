"""Counts on paper what the rows of ``gpu.py`` compute and move: the table of docs/gpu.md.

python -m turngraph.benchmarks.speed.gpu_paper [--chip h200]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turngraph.configs.parse import read_config
from turngraph.configs.schema import ModelConfig
from turngraph.configs.shipped import find_config
from turngraph.data.cli import run_cli
from turngraph.model.known_shapes import SHAPES
from turngraph.training.cluster_cost import CHIPS, Chip, Cost, Sizes, cost_of
from turngraph.training.operations import useful

CONVMIX, SQA = Sizes(1500), Sizes(500, 74)
BATCHES = 4
EDGES_PER_NODE = 2.3
"""Edges and self-loops of a synthetic question of ConvMix, for each node."""
EDGE_PASSES = 36
"""Times that the rows of all edges are read or written for one head of a layer, forward and back:
10 for scores and sums, 26 for the gradients (``model/gatv2.py``)."""
LAUNCH_SECONDS = 5e-6
"""Between two kernels that Python launches: an assumption until it is measured."""


@dataclass(frozen=True)
class Paper:
    """What a row needs.

    Args:
        name: the row.
        flops: operations.
        num_bytes: bytes between memory and cores, at least.
        launches: kernels that are launched one by one.
        unit: what the numbers are for.
    """

    name: str
    flops: float
    num_bytes: float
    launches: int = 0
    unit: str = "an example"

    def line(self, chip: Chip) -> str:
        """Return a row of the table: work, and the least time that each part of it takes."""
        by_flops, by_bytes = self.flops / chip.flops, self.num_bytes / chip.bandwidth
        launches = f"{self.launches:,} | {1e3 * LAUNCH_SECONDS * self.launches:.1f}"
        return (
            f"| {self.name}, {self.unit} | {self.flops / 1e12:.2f} | {1e3 * by_flops:.1f} | "
            f"{self.num_bytes / 1e9:.1f} | {1e3 * by_bytes:.1f} | "
            f"{launches if self.launches else '- | -'} |"
        )


def training(name: str, cost: Cost, sizes: Sizes, recomputed: bool) -> Paper:
    """Count one example of a step of four: weights once a pass, activations written and read."""
    passes = 3 if recomputed else 2
    activations = 2 * cost.activations(1, sizes)
    optimizer = 28 * cost.trained / BATCHES  # gradient, weight and two moments; three written
    moved = passes * cost.frozen + activations + optimizer + encoder_bytes(cost, sizes)
    return Paper(name, cost.flops(sizes, recomputed), moved, cost.launches)


def encoder_bytes(cost: Cost, sizes: Sizes) -> float:
    """Return the bytes of the rows of edges, in float32, and of the weights in both types."""
    if not cost.encoder:
        return 0.0
    heads, layers = 2, 2
    rows = EDGES_PER_NODE * sizes.nodes * cost.lm.width * 4 * heads * layers
    return EDGE_PASSES * rows + 3 * 6 * cost.encoder


def decoding(name: str, cost: Cost, model: ModelConfig, rows: int, sizes: Sizes) -> list[Paper]:
    """Count reading prompts, and one further token of each."""
    shape, config = cost.lm, SHAPES[model.base_model]
    tokens, kinds = sizes.nodes + sizes.text, 2
    width = config["num_key_value_heads"] * shape.width // config["num_attention_heads"]
    cache = rows * tokens * shape.num_layers * 2 * width * kinds
    each = 2 * (shape.body + shape.lora)
    work = useful([tokens] * rows, 0)
    read = each * work.tokens + 4 * shape.num_layers * shape.width * work.pairs
    weights = kinds * (shape.body + shape.head) + 4 * shape.lora
    one = rows * (each + 2 * shape.head) + 4 * shape.num_layers * shape.width * rows * tokens
    return [
        Paper(f"{name}: prompts", read + 2 * shape.head * rows, weights + cache, 0, f"{rows} rows"),
        Paper(f"{name}: a further token", one, weights + cache, 0, f"{rows} rows"),
    ]


def table(rows: Sequence[Paper], chip: Chip) -> str:
    """Return the Markdown table."""
    head = "| row | TFLOP | ms at the peak | GB | ms at full bandwidth | kernels | ms to launch |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *(row.line(chip) for row in rows)])


def papers() -> list[Paper]:
    """Return the rows of Mistral-7B and SmolLM2 that are counted."""
    config = read_config(find_config("convmix/graph_memory"))
    graph = cost_of(config.model)
    again = cost_of(replace(config.model, gradient_checkpointing=True))
    text = replace(graph, encoder=0, per_node=0)
    small = cost_of(read_config(find_config("sqa/graph")).model)
    return [
        training("b text", text, CONVMIX, False),
        training("b graph", graph, CONVMIX, False),
        training("b graph, recomputed", again, CONVMIX, True),
        *decoding("d", graph, config.model, 64, CONVMIX),
        training("e sqa", small, SQA, False),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chip", choices=list(CHIPS), default="h200")
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    print(table(papers(), CHIPS[args.chip]))


if __name__ == "__main__":
    run_cli(main)
