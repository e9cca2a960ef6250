"""Folders of a corpus: written whole, sealed with hashes of their files, and checked."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from turngraph.configs.json_files import file_hash
from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json, Location, parse_json
from turngraph.data.outputs import to_disk, whole_file

SEAL = "manifest.json"
"""The last file that is written into a folder; it names the hashes of all others."""
PARTIAL = ".partial"


@contextmanager
def sealed_folder(path: Path, manifest: Json) -> Iterator[Path]:
    """Make a folder that appears under its name only when it is complete and on the disk.

    Args:
        path: path of the folder, which must not exist yet.
        manifest: content of its ``manifest.json``, to which sizes and hashes of its files are
            added; it must be complete when the block ends.
    """
    partial = path.with_name(path.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        files = sorted(file for file in partial.rglob("*") if file.is_file())
        manifest["files"] = {
            file.relative_to(partial).as_posix(): {
                "bytes": file.stat().st_size,
                "sha256": file_hash(file),
            }
            for file in files
        }
        with whole_file(partial / SEAL) as file:
            json.dump(manifest, file, ensure_ascii=False)
        for written in (*files, *{file.parent for file in files}, partial):
            to_disk(written)
        os.rename(partial, path)
        to_disk(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_sealed(folder: Path, hashes: bool = False) -> Json:
    """Return the manifest of a folder, after its files' sizes were checked.

    Args:
        folder: made by ``sealed_folder``.
        hashes: check the hash of every file, too, which reads them all.

    Raises:
        UserError: a file is missing or differs; the message names it.
    """
    manifest = read_object(folder / SEAL)
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path}: missing; build the corpus again")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise UserError(f"{path}: {size} bytes, not {expected['bytes']}; it was changed")
        if hashes and file_hash(path) != expected["sha256"]:
            raise UserError(f"{path}: its hash differs from {SEAL}; it was changed")
    return manifest


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        UserError: it is missing, or no JSON.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8") from None
    return parse_json(text, Location(path))


def read_object(path: Path) -> Json:
    """Read a JSON file that holds one object.

    Raises:
        UserError: it is missing, or holds something else.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{path}: must be a JSON object")
    return value


def write_object(path: Path, value: Json) -> None:
    """Write a JSON file atomically: readers see the old or the new content."""
    with whole_file(path) as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
    to_disk(path.parent)


def array(folder: Path, name: str) -> np.ndarray:
    """Open an array of a folder, memory-mapped and read only."""
    path = folder / f"{name}.npy"
    try:  # an empty array cannot be mapped
        values: np.ndarray = np.load(path, mmap_mode="r" if path.stat().st_size > 128 else None)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}; build the corpus again") from None
    return values


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a corpus while it is changed.

    Raises:
        UserError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another process is building this corpus") from None
        yield
