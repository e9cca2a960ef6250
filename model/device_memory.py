"""Reads the memory that a process uses on the GPU or the machine; recognises errors of memory."""

from __future__ import annotations

import os
import resource

import psutil
import torch

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
