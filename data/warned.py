"""Loggers of modules that read files; a server can collect their warnings for its user."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


def _is_logged(record: logging.LogRecord) -> bool:
    """Tell whether a record goes into the log; else a warning is collected."""
    if (warnings := _collected.get()) is None:
        return True
    if record.levelno >= logging.WARNING:
        warnings.append(record.getMessage())
    return False


def reading_logger(name: str) -> logging.Logger:
    """Return the logger of a module that reads files, or of a library that it reads with."""
    logger = logging.getLogger(name)
    logger.addFilter(_is_logged)
    return logger


@contextmanager
def collected() -> Iterator[list[str]]:
    """Yield a list that receives the readers' warnings inside the context; they are not logged.

    The warnings name files and fields and quote ids, which a server's log must not hold.
    """
    warnings: list[str] = []
    token = _collected.set(warnings)
    try:
        yield warnings
    finally:
        _collected.reset(token)
