"""Shared behaviour of all command lines: parser, logging, exit codes, stop signals."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

EXIT_BAD_INPUT = 2
EXIT_GO_ON = 75
"""Exit code of a stop with all work saved; the same command resumes (EX_TEMPFAIL, sysexits.h)."""


CTRL_C = "Ctrl-C"


class CommandParser(argparse.ArgumentParser):
    """Argument parser with prefix matching of options disabled, in subcommands too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False} | settings)


def run_cli(main: Callable[[], None]) -> None:
    """Run a command: log to stderr; a ``ValueError`` ends in one line and exit code 2."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    # libraries' notices about their next version do not concern a user
    for library in ("sentence_transformers", "httpx2"):
        logging.getLogger(library).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
        raise SystemExit(128 + signal.SIGPIPE) from None
    except ValueError as error:
        message = " ".join(str(error).split("\n"))  # some libraries' reasons have several lines
        print(f"error: {message}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise SystemExit(130) from None


class StopRequest:
    """Request to stop soon, by a signal or a time limit; true once it is made.

    Schedulers send SIGTERM before they kill; SLURM can be configured to send SIGUSR1 some time
    before. Ctrl-C is such a request, too; pressed again it raises KeyboardInterrupt. As a context
    manager it installs handlers and restores the previous ones.

    Args:
        max_minutes: time limit, counted from construction; None: no limit.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self, max_minutes: float | None = None) -> None:
        self.reason: str | None = None
        self.max_minutes = max_minutes
        self.started = time.monotonic()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        self._before = {number: signal.signal(number, self._notice) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _notice(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.reason == CTRL_C:
                raise KeyboardInterrupt
            self.reason = CTRL_C
            # not by logging: the signal may have come while it was writing
            os.write(sys.stderr.fileno(), b"\nstopping soon, with all work saved; again: at once\n")
        else:
            self.reason = signal.Signals(number).name

    def __bool__(self) -> bool:
        minutes = (time.monotonic() - self.started) / 60
        if self.reason is None and self.max_minutes is not None and minutes >= self.max_minutes:
            self.reason = f"{self.max_minutes:g} minutes are up"
        return self.reason is not None
