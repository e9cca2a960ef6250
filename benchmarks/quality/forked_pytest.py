"""Runs pytest again and again, each time in a fork of a process that has imported the libraries.

A run then starts in a second, instead of the many that torch and transformers take. The file is
run as a script, so that nothing of the package is imported before the fork: every run sees the
files as they are.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PYTEST = ("-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no")


class ForkedPytest:
    """Runs the tests of a copy of the repository; a context manager.

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
        self._server.communicate()

    def run(
        self, tests: Sequence[str], *options: str, timeout: float | None = None
    ) -> tuple[int | None, str]:
        """Run tests; end them, and what they started, when the time is over.

        Returns:
            pytest's exit code, None if the time is over, and what it printed.
        """
        listed, printed = self.folder / "tests.txt", self.folder / "printed.txt"
        listed.write_text("\n".join(tests) + "\n", encoding="utf-8")
        self._send([str(printed), *PYTEST, *options, f"@{listed}"])
        group = self._receive(None)
        assert group is not None
        try:
            code = self._receive(timeout)
        finally:
            with suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(group, signal.SIGKILL)
        if code is None:
            self._receive(None)
        return code, printed.read_text(encoding="utf-8", errors="replace")

    def _send(self, request: list[str]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        self._server.stdin.flush()

    def _receive(self, timeout: float | None) -> int | None:
        """Return the next number that the other process writes; None if the time is over."""
        assert self._server.stdout is not None
        if not select.select([self._server.stdout], [], [], timeout)[0]:
            return None
        return int(os.read(self._server.stdout.fileno(), 9))


def serve() -> None:
    """Run pytest for each line of standard input; write the process and then its exit code."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    if sys.argv[1:] == ["libraries"]:
        import_libraries()
    for line in sys.stdin:
        printed, *arguments = json.loads(line)
        process = os.fork()
        if process == 0:
            _run(printed, arguments)
        os.write(answers, f"{process:<9}".encode())
        _, status = os.waitpid(process, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status):<9}".encode())


def import_libraries() -> None:
    """Import what takes long; a fork has it."""
    import accelerate  # noqa: F401
    import bm25s  # noqa: F401
    import peft  # noqa: F401
    import pytest  # noqa: F401
    import torch_geometric.nn  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401


def _run(printed: str, arguments: list[str]) -> None:
    os.setsid()
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
