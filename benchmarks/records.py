"""What a long measurement has found so far: one line a question, so that it can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from data.jsonlines import Json, dump, iter_lines
from model.checkpoint import check_manifest


@contextmanager
def open_records(path: str | Path, settings: Json) -> Iterator[tuple[list[Json], IO[str]]]:
    """What is measured already, and the file to append to; a line cut off by a kill is dropped.

    Args:
        path: JSON Lines; the first one has the settings.
        settings: what all records were measured with, as JSON.

    Raises:
        ValueError: the file was written with other settings.
    """
    path, settings = Path(path), json.loads(json.dumps(settings))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not whole_lines(path):
        path.write_text(dump({"settings": settings}) + "\n", encoding="utf-8")
    head, *done = (record for _, record in iter_lines(path))
    for name, value in settings.items():
        if (was := head["settings"].get(name)) != value:
            raise ValueError(f"{path}: measured with {name}={was}, now {value}: take another file")
    with path.open("a", encoding="utf-8") as file:
        yield done, file


def whole_lines(path: Path) -> int:
    """How many lines of a file are whole; what is behind them is cut off, and nothing else lost."""
    if not path.is_file():
        return 0
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    os.truncate(path, len(whole))
    return whole.count(b"\n")


def checkpoint_hash(folder: str | Path) -> str:
    """What a checkpoint holds, whatever its path: another one after it was trained anew.

    Raises:
        ValueError: there is no whole checkpoint.
    """
    manifest = check_manifest(Path(folder))
    known = json.dumps([manifest["files"], manifest.get("base_model_fingerprint")])
    return hashlib.sha256(known.encode("utf-8")).hexdigest()


def file_hash(path: str | Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
