"""Counts on paper what the rows of ``gpu.py`` compute and move: the table of docs/gpu.md.

python -m turngraph.benchmarks.speed.gpu_paper [--chip h200]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turngraph.configs.parse import read_config
from turngraph.configs.schema import LoraConfig, ModelConfig
from turngraph.configs.shipped import find_config
from turngraph.data.cli import run_cli
from turngraph.model.known_shapes import SHAPES
from turngraph.training.cluster_cost import (
    CHIPS,
    LAUNCH_SECONDS,
    Chip,
    Gpus,
    exchange_bytes,
)
from turngraph.training.model_cost import FOUR_BITS, Cost, Sizes, cost_of
from turngraph.training.operations import operations, useful

CONVMIX, SQA, SQA_READER = Sizes(1500), Sizes(500, 74), Sizes(375, 74, passage=25)
BATCHES = 4
PEERS_LORA = LoraConfig(r=8, lora_alpha=16, target_modules=("q_proj", "v_proj"))
"""As GRetriever fixes it."""
EDGES_PER_NODE = 2.3
"""Edges and self-loops of a synthetic question of ConvMix, for each node."""
EDGE_PASSES = 36
"""Times that the rows of all edges are read or written for one head of a layer, forward and back:
10 for scores and sums, 26 for the gradients (``model/gatv2.py``)."""
LOGIT_BYTES = 12
"""Bytes for each logit: written and read in bfloat16, and again as a float32 copy."""


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
    launches: float = 0
    unit: str = "an example"

    def line(self, chip: Chip) -> str:
        """Return a row of the table: work, and the least time that each part of it takes."""
        by_flops, by_bytes = self.flops / chip.flops, self.num_bytes / chip.bandwidth
        launches = f"{self.launches:,.0f} | {1e3 * LAUNCH_SECONDS * self.launches:.1f}"
        return (
            f"| {self.name}, {self.unit} | {self.flops / 1e12:.2f} | {1e3 * by_flops:.1f} | "
            f"{self.num_bytes / 1e9:.1f} | {1e3 * by_bytes:.1f} | "
            f"{launches if self.launches else '- | -'} |"
        )


def ceilings(size: int = 8192, copied: float = 2**32) -> list[Paper]:
    """Count a product of two square matrices in bfloat16, and a copy."""
    product = Paper("a matrix product", 2 * size**3, 3 * 2 * size**2, 1, f"{size} cubed")
    return [product, Paper("a copy", 0, 2 * copied, 1, "4 GiB")]


def training(
    name: str,
    cost: Cost,
    sizes: Sizes,
    recomputed: bool = False,
    together: int = 1,
    optimized: int = BATCHES,
) -> Paper:
    """Count one example: weights once a pass, activations written and read.

    Args:
        name: the row.
        cost: of the model.
        sizes: of the example.
        recomputed: whether layers are computed again in the backward pass.
        together: examples in a batch, which read the weights together.
        optimized: examples in a step.
    """
    passes = 3 if recomputed else 2
    activations = 2 * cost.activations(1, sizes)
    optimizer = 28 * cost.trained / optimized  # gradient, weight and two moments; three written
    moved = passes * cost.frozen / together + activations + optimizer + encoder_bytes(cost, sizes)
    return Paper(name, cost.flops(sizes, recomputed), moved, cost.launches / together)


def encoder_bytes(cost: Cost, sizes: Sizes) -> float:
    """Return the bytes of the rows of edges, in float32, and of the weights in both types."""
    if not cost.encoder or cost.layer:  # a reader's rows are a hundredth of its activations
        return 0.0
    heads, layers = 2, 2
    rows = EDGES_PER_NODE * sizes.nodes * cost.lm.width * 4 * heads * layers
    return EDGE_PASSES * rows + 3 * 6 * cost.encoder


def packed_plainly(cost: Cost, sizes: Sizes, num: int) -> Paper:
    """Count a packed row by ``sdpa``, which computes the pairs of different examples, too."""
    whole = useful([sizes.tokens], sizes.answer)
    all_pairs = whole._replace(pairs=num * sizes.tokens**2)  # of an example with the whole row
    paper = training(f"b graph, packed by {num}, sdpa", cost, sizes, False, num, num)
    flops = operations(cost.lm, all_pairs) + cost.encoder_flops(sizes)
    return replace(paper, flops=flops)


def all_logits(name: str, cost: Cost, sizes: Sizes, vocabulary: int) -> Paper:
    """Count a peer's text row, which computes the logits of all tokens."""
    paper = training(name, cost, sizes)
    more = sizes.tokens - sizes.answer
    logits = LOGIT_BYTES * vocabulary * sizes.tokens
    return replace(
        paper, flops=paper.flops + 4 * cost.lm.head * more, num_bytes=paper.num_bytes + logits
    )


def four_bit(cost: Cost, sizes: Sizes) -> Paper:
    """Count a base in 4 bits, whose weights are written and read in bfloat16 in each pass."""
    small = replace(cost, frozen=cost.frozen - cost.lm.body * (2 - FOUR_BITS))
    paper = training("f 4-bit", small, sizes)
    return replace(paper, num_bytes=paper.num_bytes + 2 * 2 * 2 * cost.lm.body)


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


def exchange_lines(cost: Cost, gpus: Gpus) -> list[str]:
    """Return what a step of part h sends between GPUs, by strategy."""
    speed = gpus.chip.link
    sent = {name: exchange_bytes(cost, gpus, name == "FSDP2", 1, False) for name in PARALLEL}
    return [
        f"h {name}, {gpus.num_gpus} GPUs: {num / 1e9:.1f} GB a step from each, "
        f"{1e3 * num / speed:.1f} ms at {speed / 1e9:.0f} GB/s"
        for name, num in sent.items()
    ]


PARALLEL = ("DDP", "FSDP2")


def table(rows: Sequence[Paper], chip: Chip) -> str:
    """Return the Markdown table."""
    head = "| row | TFLOP | ms at the peak | GB | ms at full bandwidth | kernels | ms to launch |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *(row.line(chip) for row in rows)])


def papers() -> tuple[list[Paper], Cost]:
    """Return the rows of Mistral-7B and SmolLM2 that are counted, and the cost of row b graph."""
    model = read_config(find_config("convmix/graph_memory")).model
    reading = read_config(find_config("convmix/reader")).model
    graph, reader = cost_of(model), cost_of(reading)
    again, reader_again = (
        cost_of(replace(one, gradient_checkpointing=True)) for one in (model, reading)
    )
    peers = cost_of(replace(model, lora=PEERS_LORA))
    text, peers_text = (replace(cost, encoder=0, per_node=0) for cost in (graph, peers))
    small, small_reader = (
        cost_of(read_config(find_config(name)).model) for name in ("sqa/graph", "sqa/reader")
    )
    vocabulary = SHAPES[model.base_model]["vocab_size"]
    return [
        *ceilings(),
        training("b graph", graph, CONVMIX),
        training("b text", text, CONVMIX),
        training("b reader", reader, CONVMIX),
        training("b graph, recomputed", again, CONVMIX, True),
        training("b text, recomputed", replace(again, encoder=0, per_node=0), CONVMIX, True),
        training("b reader, recomputed", reader_again, CONVMIX, True),
        training("b graph, packed by 8", graph, CONVMIX, False, 8, 8),
        packed_plainly(graph, CONVMIX, 8),
        training("c ours, text, rank 8", peers_text, CONVMIX),
        training("c ours, graph, rank 8", peers, CONVMIX),
        all_logits("c TRL and GRetriever", peers_text, CONVMIX, vocabulary),
        *decoding("d", graph, model, 64, CONVMIX),
        training("e sqa, and f parity", small, SQA),
        four_bit(graph, CONVMIX),
        training("g reader", small_reader, SQA_READER),
    ], graph


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chip", choices=list(CHIPS), default="h200")
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    rows, cost = papers()
    print(table(rows, CHIPS[args.chip]))
    print("\n".join(exchange_lines(cost, Gpus(args.chip, 8))))


if __name__ == "__main__":
    run_cli(main)
