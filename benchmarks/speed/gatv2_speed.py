"""Peak memory and time of our GATv2 layer beside PyTorch Geometric's, forward and backward.

    python -m turngraph.benchmarks.speed.gatv2_speed [--nodes 1500] [--edges 6000] [--device cuda]

Heads are averaged and self-loops added, as in the encoder. Three measurements:

- trained: the layer as it is trained; its parameters and their gradients count as memory;
- frozen maps: the two linear maps have no gradients and no parameters count, so that what is
  left is what the layer computes and keeps;
- attention: no linear maps at all; their result, which is the input then, does not count.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch_geometric.nn import GATv2Conv
from tqdm import tqdm

from turngraph.data.cli import run_cli
from turngraph.model.gatv2 import GATv2Layer

PARTS = ("trained", "frozen maps", "attention")
LAYERS: dict[str, type[nn.Module]] = {"PyG": GATv2Conv, "ours": GATv2Layer}
MIB = 2**20
Row = dict[str, float]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure both layers in turns and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=1500)
    parser.add_argument("--edges", type=int, default=6000, help="without self-loops")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--width", type=int, default=4096, help="of the input and of each head")
    parser.add_argument("--dropout", type=float, default=0.5, help="of attention weights")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "bfloat16"),
        default="float32",
        help="bfloat16: autocast over float32 parameters, as in training",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="processor threads; all unless given")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds; 0: memory only")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_json", help="write the table's numbers here, too")
    args = parser.parse_args(argv)
    if min(args.nodes, args.heads, args.width) < 1 or min(args.rounds, args.edges) < 0:
        raise ValueError("--nodes, --heads, --width must be at least 1, --rounds and --edges 0")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    rows = measure(args)
    print_table(rows, args)
    if args.output_json:
        numbers = {part: {whose: rows[part, whose] for whose in LAYERS} for part in args.parts}
        Path(args.output_json).write_text(json.dumps(numbers, indent=1), encoding="utf-8")


def measure(args: argparse.Namespace) -> dict[tuple[str, str], Row]:
    """Peak MiB and median milliseconds by part and layer."""
    torch.manual_seed(args.seed)
    edge_index = torch.randint(0, args.nodes, (2, args.edges)).to(args.device)
    keys = [(part, whose) for part in args.parts for whose in LAYERS]
    rows: dict[tuple[str, str], Row] = {}
    times: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in keys}
    for number in tqdm(range(args.rounds + 1), desc="rounds"):  # the first one warms up
        for key in keys:
            layer, x = make(*key, args)
            if number == 0:
                rows[key] = {"peak MiB": peak(key[0], layer, x, edge_index, args) / MIB}
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
    """A layer for one of the measurements, the same for both, and its input."""
    torch.manual_seed(args.seed)
    layer = LAYERS[whose](
        args.width, args.width, args.heads, concat=False, dropout=args.dropout
    ).to(args.device, kind(args))
    if part == "attention":
        layer.lin_l = layer.lin_r = nn.Identity()
    layer.lin_l.requires_grad_(part == "trained")
    layer.lin_r.requires_grad_(part == "trained")
    width = args.width * (args.heads if part == "attention" else 1)
    x = torch.randn(args.nodes, width, device=args.device, dtype=kind(args))
    return layer, x.requires_grad_()


def kind(args: argparse.Namespace) -> torch.dtype:
    """Type of parameters and input."""
    return torch.float64 if args.dtype == "float64" else torch.float32


def forward(layer: nn.Module, x: Tensor, edge_index: Tensor, args: argparse.Namespace) -> Tensor:
    """New node states, in autocast for bfloat16."""
    low = args.dtype == "bfloat16"
    with torch.autocast(args.device.partition(":")[0], torch.bfloat16, enabled=low):
        return layer(x, edge_index)


def peak(
    part: str, layer: nn.Module, x: Tensor, edge_index: Tensor, args: argparse.Namespace
) -> float:
    """Most bytes of tensors alive at once, over forward and backward."""

    def step() -> None:
        forward(layer, x, edge_index, args).float().square().mean().backward()

    used = (peak_cuda if args.device.startswith("cuda") else peak_cpu)(step)
    if part == "trained":
        used += sum(p.numel() * p.element_size() for p in [x, *layer.parameters()])
    return used


def peak_cuda(step: Callable[[], None]) -> int:
    """Peak of the allocator above where it stood before the step."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def peak_cpu(step: Callable[[], None]) -> int:
    """Peak of the running sum of all that torch's allocator gave and took back."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    events = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    alive = highest = 0
    for _, change in changes:
        alive += change
        highest = max(highest, alive)
    return highest


def timed(
    layer: nn.Module, x: Tensor, edge_index: Tensor, args: argparse.Namespace
) -> tuple[float, float]:
    """Seconds of a forward pass and of its backward pass."""
    on_gpu = args.device.startswith("cuda")
    wait = torch.cuda.synchronize if on_gpu else (lambda: None)
    wait()
    began = time.perf_counter()
    out = forward(layer, x, edge_index, args)
    wait()
    middle = time.perf_counter()
    out.backward(torch.ones_like(out))
    wait()
    return middle - began, time.perf_counter() - middle


def print_table(rows: dict[tuple[str, str], Row], args: argparse.Namespace) -> None:
    """Both layers' numbers, and ours divided by PyG's."""
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
