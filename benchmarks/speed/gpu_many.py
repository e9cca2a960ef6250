"""The row of ``gpu.py`` with a process on each of several GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import torch

from turngraph.benchmarks.speed.gpu_bench import CONVMIX, Bench, RowError, Training, Values
from turngraph.model.distributed import process_group_ended

STRATEGIES: dict[str, dict[str, str]] = {
    "ddp": {},
    "fsdp2": {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"},
}


def several(bench: Bench) -> Values:
    """Train three steps on all GPUs by DDP and by FSDP2, each by torchrun.

    Raises:
        RowError: there is one GPU or none.
    """
    count = torch.cuda.device_count() if bench.device.type == "cuda" else int(bench.tiny) * 2
    if count < 2:
        raise RowError("needs two GPUs or more")
    bench.free()
    return compare({name: launched(bench, name, count) for name in STRATEGIES})


def compare(found: dict[str, Values]) -> Values:
    """Return the values of each strategy, and the largest relative difference of a loss."""
    losses = [values.pop("losses") for values in found.values()]
    error = max(abs(a - b) / abs(b) for a, b in zip(*losses, strict=True))
    named = {
        f"{name}_{key}": value for name, values in found.items() for key, value in values.items()
    }
    return named | {"loss_error": error}


def launched(bench: Bench, strategy: str, count: int) -> Values:
    """Return what the first of ``count`` processes measures.

    Raises:
        RuntimeError: the processes failed; the message has their last line.
        TimeoutError: they took too long.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={count}", "-m", __name__]
    command += [bench.device.type, str(int(bench.tiny)), str(bench.seed)]
    started = subprocess.Popen(
        command,
        env={**os.environ, **STRATEGIES[strategy], "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, said = started.communicate(timeout=max(bench.deadline - time.monotonic(), 1))
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{strategy}: not done at the row's time limit") from None
    finally:
        started.terminate()  # torchrun then ends its processes; a kill would leave them
        started.wait()
    if started.returncode:
        last = said.strip().splitlines()[-1:] or ["no message"]
        raise RuntimeError(f"{strategy}: {last[0]}")
    values: Values = json.loads(printed.splitlines()[-1])
    return values


def main(argv: Sequence[str]) -> None:
    """Train some steps in each process of a launch; the first prints its values."""
    kind, tiny, seed = argv
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    with process_group_ended():
        bench = Bench(device, tiny == "1", int(seed), tempfile.gettempdir())
        values = trained(bench, world)
        if rank == 0:
            print(json.dumps(values), flush=True)


def trained(bench: Bench, world: int) -> Values:
    """Train three steps of one batch for each process, and return speed, memory and losses."""
    options = (f"--training.batches_per_step={world}", "--model.encoder.dropout=0")
    config = bench.config(CONVMIX, *options, "--model.lora.lora_dropout=0")
    training = Training(bench, config, bench.examples(CONVMIX, 4 * world, config))
    training.steps(1)
    seconds = training.steps(2)
    tokens = sum(
        training.examples[index].num_tokens
        for step in (1, 2)
        for batch in training.schedule.step(step)
        for index in batch
    )
    losses = [values["loss"] for values in training.logged]
    return {"tokens_s": tokens / seconds, "losses": losses} | bench.memory()


if __name__ == "__main__":
    main(sys.argv[1:])
