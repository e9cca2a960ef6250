"""Bounded wait for another process."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)

PAUSE = 0.02
"""Seconds between two attempts."""
QUIET = 5.0
"""Seconds of waiting after which a warning is logged."""


class Patience:
    """Bounded wait for another process, in short pauses.

    Args:
        seconds: seconds of the whole wait.
        reason: reason of the wait, for the warning.
    """

    def __init__(self, seconds: float, reason: str) -> None:
        self.seconds, self.reason = seconds, reason
        self._begun, self._told = time.monotonic(), False

    def pause(self) -> bool:
        """Wait a moment before the next attempt; return False if the time is up."""
        waited = time.monotonic() - self._begun
        if waited >= self.seconds:
            return False
        if waited >= QUIET and not self._told:
            logger.warning("%s; waiting up to %g s", self.reason, self.seconds)
            self._told = True
        time.sleep(PAUSE)
        return True
