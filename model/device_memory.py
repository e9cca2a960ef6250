"""Reads the memory that a process uses on the GPU or the machine; recognises errors of memory."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable

import psutil
import torch

RELEASE_EVERY = 10
"""Steps or batches after which freed memory goes back to the system, which takes milliseconds."""
M_ARENA_MAX = -8
"""Number of mallopt's parameter, in malloc.h."""
CPU_ALLOCATOR = "DefaultCPUAllocator: can't allocate memory"


def peak_memory(device: torch.device) -> int:
    """Return this process's peak memory in bytes: on the GPU, else on the machine."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def current_memory(device: torch.device) -> int:
    """Return the memory that this process uses now, in bytes: tensors on the GPU, else resident."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return int(psutil.Process().memory_info().rss)


def device_memory(device: torch.device) -> int:
    """Return the total memory of the GPU, else of the machine, in bytes."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether an error means that the device's or the machine's memory is exhausted."""
    return isinstance(error, torch.OutOfMemoryError) or CPU_ALLOCATOR in str(error)


def release_freed_memory(device: torch.device) -> None:
    """Give the memory that was freed on the CPU back to the system; do nothing on a GPU.

    Batches of changing lengths leave gaps between blocks that stay. glibc keeps the gaps, and new
    lengths do not fit into them, so that a process would grow with every step.
    """
    if device.type == "cpu" and (trim := _malloc_trim()) is not None:
        trim(0)


def share_one_arena() -> bool:
    """Let threads that start from now on allocate from glibc's main arena.

    By default there are up to eight arenas for each core, and each keeps the gaps between its own
    blocks: under the load of many threads a server holds more and more memory that is free.

    Returns:
        Whether glibc has done so; False with another allocator.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1))
    except (AttributeError, OSError, TypeError):
        return False


def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's ``malloc_trim``; None if the system has another allocator."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return trim
