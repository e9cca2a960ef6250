"""Memory of the GPU or machine: how much there is, how much was used, whether it ran out."""

from __future__ import annotations

import os
import resource

import torch

CPU_ALLOCATOR = "DefaultCPUAllocator: can't allocate memory"


def peak_memory(device: torch.device) -> int:
    """Most bytes that this process had at once: of the GPU, else of the machine."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def device_memory(device: torch.device) -> int:
    """Bytes that the device has, or the machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error says that the device's memory, or the machine's, is used up."""
    return isinstance(error, torch.OutOfMemoryError) or CPU_ALLOCATOR in str(error)
