"""Writes and reads the trainer state of a checkpoint: optimizer, random states, progress.

``trainer_state/`` in a checkpoint has ``optimizer.safetensors`` (tensors by parameter name),
``random.safetensors`` (states by process) and ``progress.json``; the weights are in the checkpoint
itself. The order of the data is a function of random seed and step, so the sampler has no state.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from turngraph.configs.json_files import read_json_object
from turngraph.configs.user_error import UserError
from turngraph.model.distributed import gather, placed_like

FOLDER = "trainer_state"
OPTIMIZER, RANDOM, PROGRESS = "optimizer.safetensors", "random.safetensors", "progress.json"


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's state as ``parameter name/key`` -> tensor, gathered, on CPU."""
    return {
        f"{name}/{key}": gather(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    """Load the state of ``optimizer_tensors`` from a checkpoint folder into an optimizer.

    Raises:
        UserError: a tensor belongs to no trained parameter, or is not finite.
    """
    path = folder / FOLDER / OPTIMIZER
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for full_name, value in _tensors(path).items():
        name, _, key = full_name.rpartition("/")
        parameter = trained.get(name)
        if parameter is None or (value.dim() and value.shape != parameter.shape):
            raise UserError(f"{path}, tensor {full_name}: belongs to no trained parameter")
        if not (value.is_floating_point() and value.isfinite().all()):
            raise UserError(f"{path}, tensor {full_name}: a value is not finite")
        if key != "step" and parameter.numel() == 1:  # older files have scalars
            value = value.view(parameter.shape)
        # Adam's fused step counts are on the parameter's device, as scalars
        placed = placed_like(value, parameter) if value.dim() else value.to(parameter.device)
        optimizer.state[parameter][key] = placed


def random_states() -> dict[str, Tensor]:
    """Return the states of this process's random number generators."""
    version, words, gauss = random.getstate()
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict), type(numpy_state)
    assert numpy_state["bit_generator"] == "MT19937", numpy_state["bit_generator"]
    keys, position = numpy_state["state"]["key"].tolist(), numpy_state["state"]["pos"]
    states = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.tensor([*keys, position, numpy_state["has_gauss"]], dtype=torch.int64),
        "numpy_gauss": torch.tensor([numpy_state["gauss"]], dtype=torch.float64),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: dict[str, Tensor]) -> None:
    """Restore this process's random number generators to the states of ``random_states``."""
    torch.set_rng_state(states["torch"])
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].tolist()
    random.setstate((version, tuple(words), gauss[0] if gauss else None))
    *keys, position, has_gauss = states["numpy"].tolist()
    cached = states["numpy_gauss"].item()
    np.random.set_state(("MT19937", np.array(keys, np.uint32), position, has_gauss, cached))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def write_trainer_state(
    folder: Path,
    optimizer: dict[str, Tensor],
    random_by_process: list[dict[str, Tensor]],
    progress: dict[str, Any],
) -> None:
    """Write ``trainer_state/`` into a checkpoint folder."""
    target = folder / FOLDER
    target.mkdir()
    save_file(optimizer, target / OPTIMIZER)
    states = {
        f"{rank}/{name}": state
        for rank, process_states in enumerate(random_by_process)
        for name, state in process_states.items()
    }
    save_file(states, target / RANDOM)
    (target / PROGRESS).write_text(json.dumps(progress, indent=1), encoding="utf-8")


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Read ``progress.json`` of a checkpoint; None if it has no trainer state.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / FOLDER / PROGRESS
    if not path.is_file():
        return None
    progress = read_json_object(path)
    if not isinstance(progress.get("step"), int):
        raise UserError(f"{path}, field step: must be a whole number")
    return progress


def load_random(folder: Path, rank: int) -> None:
    """Restore one process's random states; do nothing if the run had fewer processes.

    Raises:
        UserError: the file is damaged.
    """
    path, prefix = folder / FOLDER / RANDOM, f"{rank}/"
    tensors = _tensors(path).items()
    if states := {n.removeprefix(prefix): state for n, state in tensors if n.startswith(prefix)}:
        try:
            set_random_states(states)
        except (KeyError, OverflowError, RuntimeError, TypeError, ValueError):
            raise UserError(f"{path}: damaged, not states of random number generators") from None


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: damaged: {error}") from None
