"""Commands in processes of their own that start without the seconds in which torch is imported.

They are forks of a process that has imported it and has done nothing else.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

import coverage
import psutil

import turngraph.inference.serve.limited_reading  # noqa: F401 - it sets what the server imports
from turngraph.tests.waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parent.parent
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(["turngraph.train", "turngraph.infer", "turngraph.inference.load"])


class Command:
    """A running command: a script of the repository or ``-m`` and a module, with arguments."""

    def __init__(
        self,
        *arguments: object,
        text: str = "",
        folder: Path = ROOT,
        without: str = "",
        **environment: str,
    ) -> None:
        """Start it in a folder, with a text as its standard input, without a library."""
        self._folder = tempfile.TemporaryDirectory()
        self._files = [Path(self._folder.name) / name for name in ("in", "out", "err")]
        for path, content in zip(self._files, (text, "", ""), strict=True):
            path.write_text(content, encoding="utf-8")
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        given = (list(map(str, arguments)), variables, self._files, folder, without)
        self._process = _FORKS.Process(target=_run, args=given)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code; minus a signal's number if that ended it; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def halted(self) -> bool:
        """Halt it until SIGCONT; false if it has ended before."""
        self.send_signal(signal.SIGSTOP)
        wait_until(lambda: self.returncode is not None or _is_stopped(self.pid), pause=0.001)
        return self.returncode is None

    def communicate(self) -> tuple[str, str]:
        """Wait for its end; its standard output and its standard error."""
        self._process.join(PATIENCE)
        assert self.returncode is not None, "it does not end"
        out, err = (path.read_text(encoding="utf-8") for path in self._files[1:])
        return out, err


def _is_stopped(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() == psutil.STATUS_STOPPED


def _run(
    arguments: list[str], environment: dict[str, str], files: list[Path], folder: Path, without: str
) -> None:
    """Be the process: its own standard streams, variables, arguments and folder."""
    for number, path in enumerate(files):
        opened = os.open(path, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if without:
        sys.modules[without] = None  # type: ignore[assignment]
    if (of_server := coverage.Coverage.current()) is not None:
        of_server.stop()
    measured = coverage.process_startup(force=True)  # None: nobody asks which lines it runs
    try:
        _start(arguments)
    finally:
        if measured is not None:  # a fork ends without doing so
            measured.stop()
            measured.save()


def _start(arguments: list[str]) -> None:
    """Run a script, or ``-m`` and a module."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
