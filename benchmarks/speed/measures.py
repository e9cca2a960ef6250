"""Measures a device's peak speed, and the time and peak memory of a step on it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from turngraph.model.evidence_model import EvidenceModel


def lm_of(model: EvidenceModel) -> Any:
    """Return the LM of a text or graph model, with or without PEFT's LoRA."""
    assert model.lm is not None
    return model.lm


def matmul_ceiling(device: torch.device, size: int = 8192, repeats: int = 20) -> float:
    """Return the operations per second of a large bf16 matrix product, the median of its runs."""
    left, right = (
        torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2)
    )  # [size, size]
    for _ in range(3):
        left @ right
    seconds = []
    for _ in range(repeats):
        began = clock(device)
        left @ right
        seconds.append(clock(device) - began)
    return 2 * size**3 / statistics.median(seconds)


def clock(device: torch.device) -> float:
    """Return the time in seconds, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Return the peak bytes of tensors during a step, beyond those before it.

    CUDA's allocator counts itself. On CPU, torch's profiler sees every allocation; the process's
    memory would include other systems and the caches of the C library.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = profiler.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda item: item[0]):
        held += change
        peak = max(peak, held)
    return peak
