"""Shows the progress of what takes longer than a few seconds: a bar, or lines in a log."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Collection, Iterable, Iterator
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
    total: int | None,
    desc: str,
    unit: str,
    *,
    initial: int = 0,
    shown: bool = True,
    delay: float = 0,
    leave: bool = True,
) -> Iterator[tqdm[Any]]:
    """Show a progress bar; where standard error is no terminal, log lines in place of it.

    The lines come at the start, once a minute, and at the end. With a delay, work that takes less
    than a minute has none.

    Args:
        total: steps of the whole; None: unknown.
        desc: name of the work, which begins each line.
        unit: name of the steps, in the plural.
        initial: steps done before.
        shown: False in processes beside the main one.
        delay: seconds after which the bar appears.
        leave: keep the full bar on the terminal.
    """
    on_terminal = sys.stderr.isatty()
    in_log, began = shown and not on_terminal, time.monotonic()
    if in_log and not delay:
        count = "" if total is None else f"{total - initial} "
        logger.info("%s: %s%s", desc, count, unit)
    bar = partial(tqdm, total=total, initial=initial, desc=desc, unit=f" {unit}", disable=not shown)
    if in_log:
        bar = partial(
            bar,
            file=_LogLines(),
            position=0,  # a bar inside another one would move the cursor
            delay=LOG_INTERVAL,
            mininterval=LOG_INTERVAL,
            miniters=1,  # else a thread of tqdm's repeats a line
            leave=False,
            bar_format="{desc}: {n_fmt} of {total_fmt}, {remaining} left{postfix}"
            if total is not None
            else "{desc}: {n_fmt}{unit}{postfix}",
        )
    else:
        bar = partial(bar, delay=delay, leave=leave)
    with bar() as shown_bar:
        yield shown_bar
    seconds = time.monotonic() - began
    if in_log and (not delay or seconds >= LOG_INTERVAL):
        logger.info("%s: done in %.1f s", desc, seconds)


def track(
    items: Iterable[Item],
    desc: str,
    unit: str,
    *,
    initial: int = 0,
    shown: bool = True,
    delay: float = 0,
    leave: bool = True,
) -> Iterator[Item]:
    """Yield items with a progress bar, as ``progress`` shows it; ``initial`` were done before."""
    total = initial + len(items) if isinstance(items, Collection) else None
    bar = progress(total, desc, unit, initial=initial, shown=shown, delay=delay, leave=leave)
    with bar as shown_bar:
        for item in items:
            yield item
            shown_bar.update()


@contextmanager
def library_bars() -> Iterator[None]:
    """Let transformers show its own progress bars on a terminal, and not in a log."""
    if sys.stderr.isatty():
        yield
        return
    # takes seconds, but the caller needs it anyway
    from transformers.utils import logging as library

    shown = library.is_progress_bar_enabled()
    library.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            library.enable_progress_bar()
