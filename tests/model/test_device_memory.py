"""Memory of the machine and of a GPU, and errors that mean that it is exhausted."""

from __future__ import annotations

import platform
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from turngraph.model.device_memory import (
    current_memory,
    device_memory,
    is_out_of_memory,
    peak_memory,
    release_freed_memory,
    share_one_arena,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_the_machine_has_more_than_this_process_has_used() -> None:
    with open("/proc/meminfo", encoding="ascii") as file:
        total = int(file.readline().split()[1]) * 1024
    assert device_memory(CPU) == pytest.approx(total, rel=0.01)
    with open("/proc/self/status", encoding="ascii") as file:
        [peak] = [int(line.split()[1]) for line in file if line.startswith("VmHWM")]
    assert peak_memory(CPU) == pytest.approx(peak * 1024, rel=0.05)


def test_current_memory_falls_when_memory_is_freed() -> None:
    before = current_memory(CPU)
    block = bytearray(b"x" * 2**28)
    held = current_memory(CPU)
    del block
    assert held - before == pytest.approx(2**28, rel=0.1)
    assert current_memory(CPU) - before < 2**27


def test_gaps_between_blocks_that_stay_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    release_freed_memory(CPU)
    before = current_memory(CPU)
    blocks = [torch.ones(25_000) for _ in range(1000)]  # 100 MB, each below malloc's limit for mmap
    kept = blocks[::20]
    blocks.clear()
    release_freed_memory(CPU)
    assert current_memory(CPU) - before < 2**24
    assert sum(float(block[0]) for block in kept) == 50
    monkeypatch.setattr("turngraph.model.device_memory._malloc_trim", lambda: None)
    release_freed_memory(CPU)  # another allocator: nothing to do


def test_nothing_is_released_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turngraph.model.device_memory._malloc_trim", trim := MagicMock())
    release_freed_memory(CUDA)
    assert not trim.called


ARENAS = """
import ctypes, sys, threading
libc = ctypes.CDLL(None)
if sys.argv[1:]:
    from turngraph.model.device_memory import share_one_arena
    assert share_one_arena()
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
at_once = threading.Barrier(9)

def use():
    libc.malloc(1000)
    at_once.wait()
    at_once.wait()

for _ in range(8):
    threading.Thread(target=use).start()
at_once.wait()
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
at_once.wait()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's arenas")
def test_threads_share_one_arena() -> None:
    def arenas(*shared: str) -> int:
        command = [sys.executable, "-c", ARENAS, *shared]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        return found.stdout.count("<heap nr=")

    assert arenas() > arenas("shared") == 1


def test_another_allocator_has_no_arenas_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert not share_one_arena()


def test_a_gpu_is_asked_for_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 3)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80)
    )
    assert (current_memory(CUDA), peak_memory(CUDA), device_memory(CUDA)) == (3, 5, 80)


def test_which_errors_mean_out_of_memory() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9")
    )
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
