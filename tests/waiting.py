"""Waiting for what other processes do: for events, however loaded the machine is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

PATIENCE = 3600.0
"""Seconds after which what a test waits for is given up; nothing takes so long anywhere."""


def wait_until(
    happened: Callable[[], bool], process: subprocess.Popen | None = None, pause: float = 0.05
) -> None:
    """Wait until something happened; fail if a process that does it ends before."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert process is None or process.poll() is None, "the process has ended"
        assert time.monotonic() < end, "it does not happen"
        time.sleep(pause)
