"""Reads and appends records of a resumable measurement, JSON Lines with one line per question."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.jsonlines import dump


@contextmanager
def open_records(path: str | Path, settings: Json) -> Iterator[tuple[list[Json], IO[str]]]:
    """Open a file of records; yield its records, and the file to append to.

    An incomplete last line, left by a kill, is removed.

    Args:
        path: JSON Lines file; its first line has the settings.
        settings: settings that all records of the file share.

    Raises:
        UserError: the file was written with other settings.
    """
    path, settings = Path(path), json.loads(json.dumps(settings))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not keep_complete_lines(path):
        path.write_text(dump({"settings": settings}) + "\n", encoding="utf-8")
    head, *done = (record for _, record in iter_lines(path))
    for name, value in settings.items():
        if (was := head["settings"].get(name)) != value:
            raise UserError(f"{path}: measured with {name}={was}, now {value}: take another file")
    with path.open("a", encoding="utf-8") as file:
        yield done, file


def keep_complete_lines(path: Path) -> int:
    """Truncate a file after its last complete line, and return its number of lines."""
    if not path.is_file():
        return 0
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    os.truncate(path, len(whole))
    return whole.count(b"\n")
