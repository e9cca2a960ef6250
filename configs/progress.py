"""Shows the progress of what takes longer than a few seconds: a bar, or lines in a log."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from tqdm import tqdm

logger = logging.getLogger(__name__)
Item = TypeVar("Item")
LOG_INTERVAL = 60.0
"""Seconds between the lines of one bar in a log."""


class _LogLines(io.TextIOBase):
    """Stream that logs what a progress bar writes."""

    def write(self, text: str) -> int:
        if line := text.strip():
            logger.info("%s", line)
        return len(text)


@contextmanager
def progress(
    total: int, desc: str, unit: str, *, initial: int = 0, shown: bool = True, delay: float = 0
) -> Iterator[tqdm[Any]]:
    """Show a progress bar; where standard error is no terminal, log lines in place of it.

    These come at the start, once a minute, and at the end; with a delay, only what takes longer has
    them, and none at the start.

    Args:
        total: steps of the whole.
        desc: what is done.
        unit: what a step is, in the plural.
        initial: steps done before.
        shown: False in processes beside the main one.
        delay: seconds after which the bar appears.
    """
    on_terminal = sys.stderr.isatty()
    in_log, began = shown and not on_terminal, time.monotonic()
    if in_log and not delay:
        logger.info("%s: %d %s", desc, total - initial, unit)
    bar = partial(tqdm, total=total, initial=initial, desc=desc, unit=f" {unit}", disable=not shown)
    if in_log:
        bar = partial(
            bar,
            file=_LogLines(),
            position=0,  # a bar inside another one would move the cursor
            delay=LOG_INTERVAL,
            mininterval=LOG_INTERVAL,
            leave=False,
            bar_format="{desc}: {n_fmt} of {total_fmt}, {remaining} left{postfix}",
        )
    else:
        bar = partial(bar, delay=delay)
    with bar() as shown_bar:
        yield shown_bar
    if in_log and (seconds := time.monotonic() - began) >= delay:
        logger.info("%s: done in %.1f s", desc, seconds)


def track(
    items: Sequence[Item], desc: str, unit: str, *, initial: int = 0, delay: float = 0
) -> Iterator[Item]:
    """Yield items with a progress bar, as ``progress`` shows it; ``initial`` were done before."""
    with progress(initial + len(items), desc, unit, initial=initial, delay=delay) as bar:
        for item in items:
            yield item
            bar.update()
