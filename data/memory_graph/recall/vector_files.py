"""Manifest and files of a matrix of vectors."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from turngraph.data.memory_graph.recall.derived_files import FORMAT, Manifest, State
from turngraph.data.memory_graph.record.integrity import highest_possible

DROPPED = -1
"""Key of a row that was dropped."""
UNKNOWN: Manifest = State()._asdict() | {
    "format": FORMAT, "serial": 0, "generation": 0, "count": 0, "width": 0, "probe": [],
}  # fmt: skip


def parse_manifest(written: bytes) -> Manifest:
    """Parse the content of a manifest file; one of another format is as if there were none.

    Raises:
        KeyError, TypeError, ValueError: it is no manifest.
    """
    manifest = json.loads(written)
    if manifest["format"] != FORMAT:
        return dict(UNKNOWN)
    State.of(manifest)
    counts = [manifest[name] for name in ("serial", "generation", "count", "width")]
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("a count that is none")
    np.asarray(manifest["probe"], dtype=np.float32)
    return dict(UNKNOWN | manifest)


def mapped(path: Path, dtype: str, shape: tuple[int, int]) -> np.ndarray:
    """Map the first values of a file.

    Raises:
        OSError, ValueError: it is missing or has fewer.
    """
    if not shape[0]:
        return np.empty(shape, dtype)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    # rows are read in random order: page by page from a disk, that would take minutes
    mapped.madvise(mmap.MADV_WILLNEED)
    return np.frombuffer(mapped, dtype, shape[0] * shape[1]).reshape(shape)


def is_labelled(labels: np.ndarray) -> bool:
    """Return whether labels have keys that were written; others would take as much memory."""
    keys = labels[:, 0]
    most = 2 * highest_possible(len(keys)) + 1
    return not len(keys) or bool(DROPPED <= keys.min() <= keys.max() <= most)


def sync(*files: BinaryIO) -> None:
    """Flush files to the disk."""
    for file in files:
        file.flush()
        os.fsync(file.fileno())
