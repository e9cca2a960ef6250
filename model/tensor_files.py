"""Reads safetensors files after checking names, shapes and types, so nothing else is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from turngraph.configs.user_error import UserError

TYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}
"""Data types as safetensors writes them."""


def check_tensors(path: Path, expected: Mapping[str, Tensor]) -> None:
    """Check the header of a safetensors file; the tensors themselves are not read.

    Args:
        path: path of the file.
        expected: tensors with the names, shapes and types that the file must have; they may be on
            the meta device.

    Raises:
        UserError: the file is damaged, or has other names, shapes or types.
    """
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            slices = {name: file.get_slice(name) for name in names & expected.keys()}
            headers = {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    except SafetensorError as error:
        raise UserError(f"{path}: damaged: {error}") from None
    if names != expected.keys():
        other = sorted(names ^ expected.keys())
        raise UserError(
            f"{path}: it has {len(names)} tensors, and the model has {len(expected)}; only one of "
            f"the two has {', '.join(map(repr, other[:3]))}"
        )
    for name, tensor in expected.items():
        shape, kind = tuple(tensor.shape), TYPES[tensor.dtype]
        is_number = tensor.numel() == 1 and headers[name] == ((), kind)  # older files have scalars
        if headers[name] != (shape, kind) and not is_number:
            raise UserError(
                f"{path}, tensor {name}: it has shape {list(headers[name][0])} and type "
                f"{headers[name][1]}, the config makes it {list(shape)} and {kind}"
            )


def read_tensors(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read a safetensors file whose tensors must match the expected ones.

    Raises:
        UserError: as ``check_tensors``, or a value is not finite.
    """
    check_tensors(path, expected)
    state = load_file(path)
    for name, tensor in state.items():
        if not tensor.isfinite().all():
            raise UserError(f"{path}, tensor {name}: a value is not finite")
    return {name: tensor.view(expected[name].shape) for name, tensor in state.items()}
