"""How the time of something grows with the size of what it is given."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

MOST = 6.0
"""CPU seconds with four times the input, in those with it, at most; quadratic time has 16."""


def cpu_seconds(do: Callable[[], object]) -> float:
    """Return the CPU seconds of the faster of two calls.

    Without the collector of cycles, whose time grows with what other tests have left.
    """
    best = float("inf")
    for _ in range(2):
        gc.collect()
        gc.disable()
        try:
            begin = time.process_time()
            do()
            best = min(best, time.process_time() - begin)
        finally:
            gc.enable()
    return best


def assert_grows_linearly(seconds: Callable[[int], float], num: int) -> None:
    """Fail if four attempts all took far more than four times the CPU seconds at four times n.

    Args:
        seconds: returns the CPU seconds of an input of a size.
        num: the size, for which it takes some hundredths of a second.
    """
    ratios: list[float] = []
    while len(ratios) < 4 and min(ratios, default=MOST) >= MOST:
        small, large = seconds(num), seconds(4 * num)
        ratios.append(large / max(small, 0.004))
    assert min(ratios) < MOST, ratios
