"""Waiting for what other processes do: for events, however loaded the machine is."""

from __future__ import annotations

import os
import signal
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


def halted(process: subprocess.Popen) -> bool:
    """Halt a process until SIGCONT; false if it has ended before."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return process.poll() is None
