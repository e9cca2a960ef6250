"""Decides what clients are told of errors; the text of the server's own errors is only logged."""

from __future__ import annotations

import logging

from turngraph.data.memory_graph.record.database import Unavailable

logger = logging.getLogger("serve")
NOT_FOUND = "there is none of that name"
FAILED = "the server could not answer"
UNAVAILABLE = "the server cannot read or write what it keeps; its log says why"


class NotFound(KeyError):
    """A user has nothing of that name."""


def own_fault(error: BaseException) -> tuple[int, str]:
    """Log an error of the server with its traceback; return the status and what a client is told.

    The error names files; its text is for the log.
    """
    logger.error("an answer failed", exc_info=error)
    return (503, UNAVAILABLE) if isinstance(error, Unavailable) else (500, FAILED)
