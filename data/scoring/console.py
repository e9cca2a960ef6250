"""A console whose closed pipe ends a command as any other closed pipe does."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console


class PipedConsole(Console):
    """Console of rich that leaves a closed pipe to ``run_cli``; rich itself exits with code 1."""

    def on_broken_pipe(self) -> NoReturn:
        """Pass the error on.

        Raises:
            BrokenPipeError: always.
        """
        self.quiet = True  # so that its buffer is not written again
        raise BrokenPipeError
