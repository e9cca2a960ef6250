"""How the time of something grows with the size of what it is given."""

from __future__ import annotations

import time
from collections.abc import Callable

MOST = 6.0
"""CPU seconds with four times the input, in those with it, at most; quadratic time has 16."""


def cpu_seconds(do: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    begin = time.process_time()
    do()
    return time.process_time() - begin


def assert_grows_linearly(seconds: Callable[[int], float], num: int) -> None:
    """Fail if four attempts all took far more than four times the CPU seconds at four times n.

    Args:
        seconds: returns the CPU seconds of an input of a size.
        num: the size, for which it takes some hundredths of a second.
    """
    ratios: list[float] = []
    while len(ratios) < 4 and min(ratios, default=MOST) >= MOST:
        small = min(seconds(num), seconds(num))  # the first may load something
        ratios.append(seconds(4 * num) / max(small, 0.004))
    assert min(ratios) < MOST, ratios
