"""Predictions on their way to a file: in the input's order, as they come, through any stop.

Beside ``FILE`` stand ``FILE.run.json``, which says what the answers were made from, and, as long as
they are not whole, ``FILE.unfinished``, with every answer in the order in which it was found.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import IO, Any

from turngraph.data.jsonlines import Json, dump, whole_file
from turngraph.data.scoring.predictions import unfinished


class AnswerFile:
    """A predictions file that a second start of the same command goes on with.

    As a context manager it leaves nothing behind where it has not begun.

    Args:
        path: of the file.
        settings: all that shapes the answers, as JSON values by name.
        num_lines: of the file when it is whole.
        fresh: forget what is there.

    Raises:
        ValueError: it cannot be written, another run writes it, or what is there was made with
            other settings.
    """

    def __init__(
        self, path: str | Path, settings: dict[str, Any], num_lines: int, fresh: bool = False
    ) -> None:
        self.path, self.settings, self.num_lines = Path(path), settings, num_lines
        self.run, self.journal = Path(f"{path}.run.json"), unfinished(path)
        self.known: dict[int, Json] = {}
        self.num_errors = self.num_written = 0
        self._ready: dict[int, Json] = {}
        self._files: list[IO[bytes]] = []
        self._begun = False
        self._new = fresh or not self._goes_on()
        self.whole = not self._new and not self.journal.exists()

    def __enter__(self) -> AnswerFile:
        """Open the files and keep other runs out, before hours of answers need a place."""
        self._created = [p for p in (self.path, self.journal) if not p.exists()]
        try:
            if self.path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._files = [open(p, "ab+") for p in (self.path, self.journal)]  # noqa: SIM115
            fcntl.flock(self._files[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{self.path}: another run is writing it") from None
        except OSError as error:
            raise ValueError(f"{self.path}: cannot be written: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if not self._begun:
            for path in self._created:
                path.unlink(missing_ok=True)
        for file in self._files:
            file.close()

    def _goes_on(self) -> bool:
        """Whether answers of an earlier start are there, made with the same settings.

        Raises:
            ValueError: they were made with others.
        """
        hint = "give the same options, another --output, or --fresh to start over"
        begun = self.journal.exists()
        if not begun and not (self.path.is_file() and self.path.stat().st_size):
            return False
        if not self.run.is_file():
            if begun:  # stopped before its first answer
                return False
            raise ValueError(f"{self.path}: is there already, without {self.run.name}: {hint}")
        try:
            before = dict(json.loads(self.run.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise ValueError(f"{self.run}: damaged; --fresh starts over") from None
        for name in before | self.settings:
            was, now = before.get(name), self.settings.get(name)
            if was != now:
                raise ValueError(f"{self.path}: begun with {name} {was!r}, not {now!r}: {hint}")
        return True

    def begin(self) -> None:
        """Take up the answers of an earlier start, or forget them; then ``add`` may be called."""
        output, journal = self._files
        self._begun = True
        output.truncate(0)
        if self._new:
            journal.truncate(0)
            with whole_file(self.run) as file:
                file.write(json.dumps(self.settings, indent=1, ensure_ascii=False) + "\n")
            return
        journal.seek(0)
        end = 0
        for line in journal:
            if not line.endswith(b"\n"):  # it was being written when the run was killed
                break
            end += len(line)
            number, record = json.loads(line)
            self.known[number] = record
        journal.truncate(end)
        self.place(self.known)

    def add(self, records: dict[int, Json]) -> None:
        """Keep records by the numbers of their lines, whatever happens next."""
        new = {number: record for number, record in records.items() if number not in self.known}
        text = "".join(f"{dump([number, record])}\n" for number, record in new.items())
        self._files[1].write(text.encode("utf-8"))
        self._files[1].flush()
        self.known |= new
        self.place(new)

    def place(self, records: dict[int, Json]) -> None:
        """Write records by the numbers of their lines, as soon as all before them are written."""
        self._ready |= records
        while (record := self._ready.pop(self.num_written, None)) is not None:
            self._files[0].write(f"{dump(record)}\n".encode())
            self.num_written += 1
            self.num_errors += "error" in record
        self._files[0].flush()

    def finish(self) -> None:
        """All lines are there."""
        assert self.num_written == self.num_lines, "lines are missing"
        os.fsync(self._files[0].fileno())
        self.journal.unlink()
