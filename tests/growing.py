"""How the time of something grows with the size of what it is given."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

MOST = 6.0
"""CPU seconds with four times the input, in those with it, at most; quadratic time has 16."""


def cpu_seconds(do: Callable[[], object]) -> float:
    """Return the CPU seconds of a call.

    Without the collector of cycles, whose time grows with what other tests have left.
    """
    gc.disable()
    try:
        begin = time.process_time()
        do()
        return time.process_time() - begin
    finally:
        gc.enable()


def assert_grows_linearly(seconds: Callable[[int], float], num: int) -> None:
    """Fail if the fastest of up to 24 calls at 4 n takes far more than four times as long.

    Args:
        seconds: returns the CPU seconds of an input of a size.
        num: the size, for which it takes some hundredths of a second.
    """
    small = large = float("inf")
    for _ in range(24):
        small, large = min(small, seconds(num)), min(large, seconds(4 * num))
        if large < MOST * max(small, 0.004):
            return
    raise AssertionError(f"{large} s at four times what takes {small} s")
