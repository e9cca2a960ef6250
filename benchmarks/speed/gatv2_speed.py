"""Measures peak memory and time of our GATv2 layer, compared with PyTorch Geometric's.

    python -m turngraph.benchmarks.speed.gatv2_speed [--nodes 1500] [--edges 6000] [--device cuda]

Forward and backward pass; heads are averaged and self-loops added, as in the encoder. Three parts:

- trained: the layer as trained; parameters and their gradients count as memory;
- frozen maps: the two linear maps have no gradients, and parameters do not count, which leaves the
  tensors that the layer computes and stores;
- attention: without linear maps; the input is what they would compute, and does not count.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv
from tqdm import tqdm

from turngraph.benchmarks.speed.measures import clock, peak_bytes
from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.model.gatv2 import GATv2Layer

PARTS = ("trained", "frozen maps", "attention")
LAYERS: dict[str, type[nn.Module]] = {"PyG": GATv2Conv, "ours": GATv2Layer}
MIB = 2**20
Row = dict[str, float]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure both layers in turns, and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1500)
    parser.add_argument("--edges", type=int, default=6000, help="without self-loops")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument(
        "--width", type=int, default=4096, help="width of the input and of each head"
    )
    parser.add_argument("--dropout", type=float, default=0.5, help="dropout of attention weights")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "bfloat16"),
        default="float32",
        help="bfloat16: autocast over float32 parameters, as in training",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="CPU threads; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds; 0: memory only")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_json", help="file for the table's numbers")
    args = parser.parse_args(argv)
    if min(args.nodes, args.heads, args.width) < 1 or min(args.rounds, args.edges) < 0:
        raise UserError("--nodes, --heads, --width must be at least 1, --rounds and --edges 0")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    rows = measure(args)
    print_table(rows, args)
    if args.output_json:
        numbers = {part: {whose: rows[part, whose] for whose in LAYERS} for part in args.parts}
        Path(args.output_json).write_text(json.dumps(numbers, indent=1), encoding="utf-8")


def measure(args: argparse.Namespace) -> dict[tuple[str, str], Row]:
    """Return peak MiB and median milliseconds by part and layer."""
    torch.manual_seed(args.seed)
    edge_index = torch.randint(0, args.nodes, (2, args.edges)).to(args.device)
    keys = [(part, whose) for part in args.parts for whose in LAYERS]
    rows: dict[tuple[str, str], Row] = {}
    times: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in keys}
    for index in tqdm(range(args.rounds + 1), desc="rounds"):  # the first round warms up
        for key in keys:
            part, whose = key
            layer, x = make(part, whose, args)
            if index == 0:
                rows[key] = {"peak MiB": peak(part, layer, x, edge_index, args) / MIB}
            else:
                times[key].append(timed(layer, x, edge_index, args))
            del layer, x
            gc.collect()
    for key in keys if args.rounds else ():
        ways = zip(*times[key], strict=True)
        forward_ms, backward_ms = (1000 * statistics.median(seconds) for seconds in ways)
        both = 1000 * statistics.median(sum(seconds) for seconds in times[key])
        rows[key] |= {"forward ms": forward_ms, "backward ms": backward_ms, "both ms": both}
    return rows


def make(part: str, whose: str, args: argparse.Namespace) -> tuple[nn.Module, Tensor]:
    """Build a layer for one part, with the same random seed for both libraries, and its input."""
    torch.manual_seed(args.seed)
    layer = LAYERS[whose](
        args.width, args.width, args.heads, concat=False, dropout=args.dropout
    ).to(args.device, dtype_of(args))
    if part == "attention":
        layer.lin_l = layer.lin_r = nn.Identity()
    layer.lin_l.requires_grad_(part == "trained")
    layer.lin_r.requires_grad_(part == "trained")
    width = args.width * (args.heads if part == "attention" else 1)
    x = torch.randn(args.nodes, width, device=args.device, dtype=dtype_of(args))
    return layer, x.requires_grad_()


def dtype_of(args: argparse.Namespace) -> torch.dtype:
    """Return the dtype of parameters and input."""
    return torch.float64 if args.dtype == "float64" else torch.float32


def forward(layer: nn.Module, x: Tensor, edge_index: Tensor, args: argparse.Namespace) -> Tensor:
    """Return new node states, computed in autocast for bfloat16."""
    low = args.dtype == "bfloat16"
    with torch.autocast(args.device.partition(":")[0], torch.bfloat16, enabled=low):
        states: Tensor = layer(x, edge_index)
        return states


def peak(
    part: str, layer: nn.Module, x: Tensor, edge_index: Tensor, args: argparse.Namespace
) -> float:
    """Return the peak bytes of tensors over forward and backward."""

    def step() -> None:
        loss = forward(layer, x, edge_index, args).float().square().mean()
        torch.autograd.backward(loss)

    used = peak_bytes(step, torch.device(args.device))
    if part == "trained":
        used += sum(p.numel() * p.element_size() for p in [x, *layer.parameters()])
    return used


def timed(
    layer: nn.Module, x: Tensor, edge_index: Tensor, args: argparse.Namespace
) -> tuple[float, float]:
    """Return the seconds of a forward pass and of its backward pass."""
    device = torch.device(args.device)
    began = clock(device)
    out = forward(layer, x, edge_index, args)
    middle = clock(device)
    torch.autograd.backward(out, torch.ones_like(out))
    return middle - began, clock(device) - middle


def print_table(rows: dict[tuple[str, str], Row], args: argparse.Namespace) -> None:
    """Print both layers' numbers, and ours divided by PyG's."""
    names = list(next(iter(rows.values())))
    where = torch.cuda.get_device_name() if args.device.startswith("cuda") else "CPU"
    print(
        f"{args.nodes} nodes, {args.edges} edges, {args.heads} heads of {args.width}, "
        f"{args.dtype}, {where}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"medians of {args.rounds} rounds in turns"
    )
    print(f"| part | layer | {' | '.join(names)} |")
    print(f"|---|---|{'---:|' * len(names)}")
    for part in args.parts:
        theirs, ours = (rows[part, whose] for whose in LAYERS)
        for whose, row in (("PyG", theirs), ("ours", ours)):
            print(f"| {part} | {whose} | {' | '.join(f'{row[n]:.1f}' for n in names)} |")
        print(f"| {part} | ratio | {' | '.join(f'{ours[n] / theirs[n]:.2f}' for n in names)} |")


if __name__ == "__main__":
    run_cli(main)
