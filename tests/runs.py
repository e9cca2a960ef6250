"""Small runs of train.py: their options, their commands, their logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turngraph.tests.processes import ROOT, Command

__all__ = ["ROOT", "Json", "command", "lines", "losses", "options"]
Json = dict[str, Any]


def options(base: str, data: Path, output: Path, **changes: Any) -> list[str]:
    """A small, fast run as command line options."""
    values = {
        "data.train": data / "train.jsonl",
        "data.tune": data / "tune.jsonl",
        "evidence.memory": "none",
        "evidence.top_k": 4,
        "model.base_model": base,
        "model.dtype": "float32",
        "model.lora.r": 4,
        "training.learning_rate": 1e-3,
        "training.batches_per_step": 2,
        "training.max_steps": 3,
        "training.warmup_steps": 0,
        "training.max_new_tokens": 4,
        "training.output": output,
    }
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return [f"--{name}={value}" for name, value in (values | named).items()]


def lines(output: Path) -> list[Json]:
    return [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]


def losses(output: Path) -> list[float]:
    return [line["loss"] for line in lines(output) if "loss" in line]


def command(*arguments: object, text: str = "", **environment: str) -> str:
    """Run a command as a user does, in the repository; its standard output."""
    done = Command(*arguments, text=text, **environment)
    out, err = done.communicate()
    assert done.returncode == 0, err[-3000:]
    return out
