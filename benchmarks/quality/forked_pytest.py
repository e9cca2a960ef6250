"""Runs pytest again and again, each time in a fork of a process that has imported the libraries.

A run then starts in a second, instead of the many that torch and transformers take. The file is
run as a script, so that nothing of the package is imported before the fork: every run sees the
files as they are.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

PYTEST = ("-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no")


WALL_SHARE = 1 / 40
"""Least share of a core that a run gets: it also ends when it waits for so long."""


class PytestRun(NamedTuple):
    """pytest's exit code, None if it was ended; what it printed; its seconds of CPU time."""

    code: int | None
    printed: str
    seconds: float


class ForkedPytest:
    """Runs the tests of a copy of the repository; a context manager, whose end ends all processes.

    Args:
        copy: in a folder called as the package is.
        libraries: import the large libraries before the forks.
    """

    def __init__(self, copy: Path, libraries: bool = True) -> None:
        self.copy, self.arguments = copy, ["libraries"] if libraries else []
        one_thread = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.environment = {**os.environ, **one_thread, "PYTHONPATH": str(copy.parent)}
        self.folder = copy / "build"
        self.folder.mkdir(exist_ok=True)

    def __enter__(self) -> ForkedPytest:
        self._server = subprocess.Popen(
            [sys.executable, "-P", __file__, *self.arguments],
            cwd=self.copy,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends a run by us
        )
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*psutil.Process(self._server.pid).children(recursive=True), self._server]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._server.communicate()

    def run(self, tests: Sequence[str], *options: str, limit: float | None = None) -> PytestRun:
        """Run tests; end them, and what they started, when the time is over.

        Args:
            tests: files or tests.
            options: further options of pytest.
            limit: CPU seconds of one process, which a busy machine does not shorten.
        """
        listed, printed = self.folder / "tests.txt", self.folder / "printed.txt"
        listed.write_text("\n".join(tests) + "\n", encoding="utf-8")
        self._send([str(printed), limit, *PYTEST, *options, f"@{listed}"])
        began = self._receive(None)
        assert began is not None
        try:
            ended = self._receive(limit and limit / WALL_SHARE)
        finally:
            with suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(int(began["group"]), signal.SIGKILL)
        code, seconds = None, limit or 0.0
        if ended is None:
            self._receive(None)
        else:
            seconds = float(ended["seconds"])
            code = None if ended["code"] == -signal.SIGXCPU else int(ended["code"])
        return PytestRun(code, printed.read_text(encoding="utf-8", errors="replace"), seconds)

    def _send(self, request: list[str | float | None]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        self._server.stdin.flush()

    def _receive(self, timeout: float | None) -> dict[str, float] | None:
        """Return the next answer of the other process; None if the time is over."""
        assert self._server.stdout is not None
        if not select.select([self._server.stdout], [], [], timeout)[0]:
            return None
        answer: dict[str, float] = json.loads(os.read(self._server.stdout.fileno(), ANSWER))
        return answer


ANSWER = 80
"""Bytes of an answer, with the spaces that fill it."""


def serve() -> None:
    """Run pytest for each line of standard input; write its process, then how it ended."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    if sys.argv[1:] == ["libraries"]:
        import_libraries()
    for line in sys.stdin:
        printed, limit, *arguments = json.loads(line)
        process = os.fork()
        if process == 0:
            _run(printed, limit, arguments)
        _answer(answers, group=process)
        _, status, used = os.wait4(process, 0)
        code, seconds = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        _answer(answers, code=code, seconds=round(seconds, 3))


def _answer(descriptor: int, **values: float) -> None:
    os.write(descriptor, json.dumps(values).ljust(ANSWER).encode())


def import_libraries() -> None:
    """Import what takes long; a fork has it."""
    import accelerate  # noqa: F401
    import bm25s  # noqa: F401
    import peft  # noqa: F401
    import pytest  # noqa: F401
    import torch_geometric.nn  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401


def _run(printed: str, limit: float | None, arguments: list[str]) -> None:
    os.setsid()
    if limit is not None:
        seconds = max(1, round(limit))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    with open(os.devnull, "rb") as nothing, open(printed, "wb") as output:
        os.dup2(nothing.fileno(), 0)
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    import pytest

    code = 1
    try:
        code = int(pytest.main(arguments))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
