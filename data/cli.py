"""Shared behaviour of all command lines: parser, logging, exit codes, streams, stop signals."""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn, TextIO

from turngraph.configs.user_error import UserError
from turngraph.configs.words import similar

EXIT_BAD_INPUT = 2
ASK, TRACEBACK = "--traceback", "TURNGRAPH_TRACEBACK"
"""The option and the environment variable that show where an error arose."""
EXIT_GO_ON = 75
"""Exit code of a stop with all work saved; the same command resumes (EX_TEMPFAIL, sysexits.h)."""


CTRL_C = "Ctrl-C"


_SHOWN = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_SHOWN |= dict.fromkeys(
    (
        *range(0x80, 0xA0),  # C1, which some terminals obey as they obey ESC
        *(0x2028, 0x2029),  # line and paragraph separators
        *range(0x202A, 0x202F),  # these, and the next range, override the direction of text
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),  # lone surrogates, of file names that are not UTF-8
    ),
    "\ufffd",
)


def visible(text: str) -> str:
    """Replace each control character by one visible character; the length does not change.

    These are the control characters of ASCII and of C1, line separators, lone surrogates, and the
    characters that override the direction of text.
    """
    return text.translate(_SHOWN)


class CommandParser(argparse.ArgumentParser):
    """Argument parser with prefix matching of options disabled, in subcommands too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False} | settings)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line; an unknown option is an error that names the most similar one."""
        words = list(sys.argv[1:] if args is None else args)
        self._check_options(words[: words.index("--")] if "--" in words else words)
        return super().parse_args(words, namespace)

    def _check_options(self, words: Sequence[str]) -> None:
        parser: CommandParser = self
        for word in words:
            parser = parser._commands().get(word, parser)
        options = self._options()
        for word in words:
            name = word.partition("=")[0]
            if name.startswith("--") and " " not in word and name not in options:
                near = similar(name, parser._option_string_actions)
                parser.error(
                    f"unknown option {name}" + (f" (did you mean {near}?)" if near else "")
                )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            if near := similar(str(value), map(str, action.choices or ())):
                error.message = f"{value!r} given, did you mean {near}?"
            raise

    def _commands(self) -> dict[str, CommandParser]:
        """Return the parsers of subcommands by name."""
        groups = [a for a in self._actions if isinstance(a, argparse._SubParsersAction)]
        return {name: parser for group in groups for name, parser in group.choices.items()}

    def _options(self) -> set[str]:
        """Return the options of the command and of its subcommands."""
        inner = (parser._options() for parser in self._commands().values())
        return set(self._option_string_actions).union(*inner)

    def error(self, message: str) -> NoReturn:
        """Print the error on one line without control characters, and exit with code 2."""
        line = f"{self.prog}: error: {message}; --help lists the options"
        self.exit(EXIT_BAD_INPUT, visible(line) + "\n")


class _OneLine(logging.Formatter):
    """Formatter that keeps a message on its line, without control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))


class AboveBars(logging.StreamHandler[TextIO]):
    """Log handler that writes above the progress bars of a terminal, not into them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; the bars are cleared before and drawn again after it."""
        bars = sys.modules.get("tqdm")  # None: not imported, so there is no bar
        if bars is None or not self.stream.isatty():
            super().emit(record)
            return
        with bars.tqdm.external_write_mode(file=self.stream):
            super().emit(record)


class _ClosedInput(io.RawIOBase):
    """Standard input that was closed before the command began."""

    def readable(self) -> bool:
        return True

    def readinto(self, _: Any, /) -> int:
        raise OSError(errno.EBADF, "closed", "standard input")


def run_cli(main: Callable[[], None]) -> None:
    """Run a command, with its log on standard error.

    What a user can mend (``UserError``) or the system refuses (``OSError``) is one line and exit
    code 2. Any other exception is a mistake of ours: it keeps its traceback, and the exit code is
    1. ``--traceback``, anywhere among the options, or ``TURNGRAPH_TRACEBACK=1`` shows the traceback
    of every error.
    """
    if ASK in sys.argv:
        sys.argv.remove(ASK)
        os.environ[TRACEBACK] = "1"
    _replace_closed_streams()
    handler = AboveBars(sys.stderr)
    handler.setFormatter(_OneLine("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # libraries' notices about their next version do not concern a user
    for library in ("sentence_transformers", "httpx2"):
        logging.getLogger(library).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may have lone surrogates
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            main()
        except SystemExit:  # --help ends so
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        _drop_output()
        raise SystemExit(128 + signal.SIGPIPE) from None
    except (UserError, OSError) as error:
        if os.environ.get(TRACEBACK) == "1":
            traceback.print_exc()
        _say(f"{_rank()}error: {_reason(error)}")
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        _say("stopped")
        raise SystemExit(130) from None
    except Exception:  # a mistake of ours: Python prints where it arose and exits with 1
        if rank := _rank():
            _say(f"{rank}failed:")
        raise


def _replace_closed_streams() -> None:
    """Replace closed standard streams: reading the input then fails, and output is discarded."""
    closed = {0: sys.stdin is None, 1: sys.stdout is None, 2: sys.stderr is None}
    # the next file that is opened would get the number, and receive what is printed
    while any(closed.values()):
        if (number := os.open(os.devnull, os.O_RDWR)) > 2:
            os.close(number)
            break
    if closed[0]:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedInput()), encoding="utf-8")
    if closed[1]:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if closed[2]:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _say(line: str) -> None:
    """Flush standard output as far as possible, then print a line to standard error."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    with suppress(OSError):
        print(visible(line), file=sys.stderr, flush=True)


def _rank() -> str:
    """Name this process among those of one run, as launchers number them; "" if it is alone."""
    num = os.environ.get("WORLD_SIZE", "1")
    return "" if num == "1" else f"rank {os.environ.get('RANK', '?')} of {num}: "


def _drop_output() -> None:
    """Discard unwritten standard output, which Python would otherwise try to write at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reason(error: Exception) -> str:
    """Describe an error in one line; an ``OSError`` by its file, if it names one."""
    if not isinstance(error, OSError) or error.strerror is None:
        return " ".join(str(error).split("\n"))  # some libraries' reasons have several lines
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    try:
        sys.stdout.flush()
    except OSError as left:  # the output cannot be flushed: that is the error
        return f"standard output: {left.strerror}"
    return error.strerror


class StopRequest:
    """Request to stop soon, by a signal or a time limit; true once it is made.

    Schedulers send SIGTERM before they kill; SLURM can be configured to send SIGUSR1 some time
    before. Ctrl-C is such a request, too; pressed again it raises KeyboardInterrupt. As a context
    manager it installs handlers and restores the previous ones.

    Args:
        max_minutes: time limit, counted from construction; None: no limit.
        when: when the command stops, for the line that a signal prints: "after the step at hand".
    """

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self, max_minutes: float | None = None, when: str = "soon") -> None:
        self.reason: str | None = None
        self.max_minutes, self.when = max_minutes, when
        self.started = time.monotonic()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        self._before = {number: signal.signal(number, self._notice) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _notice(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self.reason == CTRL_C:
            raise KeyboardInterrupt
        self.reason = CTRL_C if number == signal.SIGINT else signal.Signals(number).name
        more = "; press Ctrl-C again to end now" if number == signal.SIGINT else ""
        # not by logging: the signal may have come while it was writing
        line = f"\n{self.reason}: the command saves its work and stops {self.when}{more}\n"
        os.write(sys.stderr.fileno(), line.encode())

    def __bool__(self) -> bool:
        minutes = (time.monotonic() - self.started) / 60
        if self.reason is None and self.max_minutes is not None and minutes >= self.max_minutes:
            self.reason = f"the limit of {self.max_minutes:g} min is reached"
        return self.reason is not None
