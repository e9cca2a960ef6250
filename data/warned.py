"""Loggers of what reads files, whose warnings one who reads for somebody else may collect."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


def _is_logged(record: logging.LogRecord) -> bool:
    """Tell whether a record goes into the log; else a warning is collected."""
    if (found := _collected.get()) is None:
        return True
    if record.levelno >= logging.WARNING:
        found.append(record.getMessage())
    return False


def reading_logger(name: str) -> logging.Logger:
    """Return the logger of a module that reads files, or of a library that it reads with."""
    logger = logging.getLogger(name)
    logger.addFilter(_is_logged)
    return logger


@contextmanager
def collected() -> Iterator[list[str]]:
    """Yield a list that gets the warnings of what is read meanwhile; none of it is logged.

    They name files and fields and quote ids, which a server's log must not hold.
    """
    found: list[str] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
