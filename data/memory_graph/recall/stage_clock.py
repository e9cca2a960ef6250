"""Measures how long each stage of a question takes."""

from __future__ import annotations

import time


class Clock:
    """Stopwatch that records the milliseconds of each stage."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a stage, and begin the next one."""
        now = time.perf_counter()
        self.milliseconds[name] = 1000 * (now - self._last)
        self._last = now
