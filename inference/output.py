"""Resumable JSON Lines writer that keeps the input's order.

Beside ``FILE``, ``FILE.run.json`` records the settings that made the answers. Until ``FILE`` is
complete, ``FILE.unfinished`` is a journal of all answers in the order in which they were computed.
A device or a pipe gets the answers in order, and nothing lies beside it.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from turngraph.configs.json_files import read_json_object
from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json, Location, decoded, parse_json
from turngraph.data.jsonlines import dump
from turngraph.data.outputs import is_stream, open_stream, whole_file, writing
from turngraph.data.scoring.predictions import unfinished


class AnswerFile:
    """A predictions file that the same command resumes when it is started again.

    A context manager: if ``begin`` was not called inside it, it removes the files it created.

    Args:
        path: path of the predictions file.
        settings: everything that determines the answers, as JSON values by name.
        num_lines: number of lines of the complete file.
        fresh: discard existing answers.

    Raises:
        UserError: the file cannot be written, another run is writing it, or its answers were made
            with other settings.
    """

    def __init__(
        self, path: str | Path, settings: dict[str, Any], num_lines: int, fresh: bool
    ) -> None:
        self.path, self.settings, self.num_lines = Path(path), settings, num_lines
        self.run, self.journal = Path(f"{path}.run.json"), unfinished(path)
        self.known: dict[int, Json] = {}
        self.num_errors = self.num_written = 0
        self._ready: dict[int, Json] = {}
        self._files: list[IO[bytes]] = []
        self._begun = False
        self._is_stream = is_stream(path)
        self._new = fresh or self._is_stream or not self._resumes()
        self.is_complete = not self._new and not self.journal.exists()

    def __enter__(self) -> AnswerFile:
        """Open and lock the files, so that a bad path fails before hours of answering."""
        self._created: list[str] = []
        with writing(self.path):
            if (stream := open_stream(self.path)) is not None:
                self._files = [stream]
                return self
            # targets of links are made and removed, not the links
            paths = [os.path.realpath(path) for path in (self.path, self.journal)]
            self._created = [path for path in paths if not os.path.exists(path)]
            os.makedirs(os.path.dirname(paths[0]), exist_ok=True)
            self._files = [open(path, "ab+") for path in paths]  # noqa: SIM115
            try:
                fcntl.flock(self._files[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self.path}: another run is writing it") from None
        return self

    def __exit__(self, *_: object) -> None:
        if not self._begun:
            for path in self._created:
                Path(path).unlink(missing_ok=True)
        for file in self._files:
            with suppress(OSError):  # a full disk, which was reported before
                file.close()

    def _resumes(self) -> bool:
        """Return whether there are answers of an earlier run with the same settings.

        Raises:
            UserError: they were made with other settings, or ``FILE.run.json`` is missing or
                corrupt.
        """
        hint = "give the same options, another --output, or --fresh to start over"
        begun = self.journal.exists()
        if not begun and not (self.path.is_file() and self.path.stat().st_size):
            return False
        if not self.run.is_file():
            if begun:  # stopped before its first answer
                return False
            raise UserError(f"{self.path}: exists already, but {self.run.name} is missing: {hint}")
        try:
            before = read_json_object(self.run)
        except UserError as error:
            raise UserError(f"{error}; --fresh starts over") from None
        for name in before | self.settings:
            old, new = before.get(name), self.settings.get(name)
            if old != new:
                raise UserError(
                    f"{self.path}: begun with {name} {old!r}, now {new!r} given: {hint}"
                )
        return True

    def begin(self) -> None:
        """Resume from the journal, or discard old answers; call this before ``add``."""
        self._begun = True
        if self._is_stream:
            return
        output, journal = self._files
        if self._new:
            with writing(self.path):
                output.truncate(0)
                journal.truncate(0)
            with whole_file(self.run) as file:
                file.write(json.dumps(self.settings, indent=1, ensure_ascii=False) + "\n")
            return
        journal.seek(0)
        end = 0
        for number, line in enumerate(journal, 1):
            if not line.endswith(b"\n"):  # incomplete: the run was killed while writing it
                break
            end += len(line)
            index, record = self._entry(line, Location(self.journal, number))
            self.known[index] = record
        with writing(self.path):
            output.truncate(0)
            journal.truncate(end)
        self.write_in_order(self.known)

    def _entry(self, line: bytes, location: Location) -> tuple[int, Json]:
        """Parse a line of the journal."""
        match parse_json(decoded(line, location), location):
            case [int(index), dict(record)] if 0 <= index < self.num_lines and _is_line(record):
                return index, record
        raise location.error("damaged, not an answer of this run; --fresh starts over")

    def add(self, records: dict[int, Json]) -> None:
        """Append new records, keyed by line index, to the journal and write those that are next."""
        new = {index: record for index, record in records.items() if index not in self.known}
        if not self._is_stream:
            text = "".join(f"[{index}, {dump(record)}]\n" for index, record in new.items())
            with writing(self.journal):
                self._files[1].write(text.encode("utf-8"))
                self._files[1].flush()
        self.known |= new
        self.write_in_order(new)

    def write_in_order(self, records: dict[int, Json]) -> None:
        """Write records, keyed by line index, each as soon as all lines before it are written."""
        self._ready |= records
        with writing(self.path):
            while (record := self._ready.pop(self.num_written, None)) is not None:
                self._files[0].write(f"{dump(record)}\n".encode())
                self.num_written += 1
                self.num_errors += "error" in record
            self._files[0].flush()

    def finish(self) -> None:
        """Sync the complete file to disk and remove the journal."""
        assert self.num_written == self.num_lines, "lines are missing"
        if self._is_stream:
            return
        with writing(self.path):
            os.fsync(self._files[0].fileno())
            self.journal.unlink()


def _is_line(record: Json) -> bool:
    """Whether a record is a line of a predictions file: an answer, or why there is none."""
    texts = (record.get("answer"), record.get("error"))
    return any(isinstance(text, str) for text in texts)
