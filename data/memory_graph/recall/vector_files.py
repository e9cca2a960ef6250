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
    """Parse the content of a manifest file; return ``UNKNOWN`` for one of another format.

    Raises:
        KeyError, TypeError, ValueError: the content is not a manifest.
    """
    manifest = json.loads(written)
    if manifest["format"] != FORMAT:
        return dict(UNKNOWN)
    State.of(manifest)
    counts = [manifest[name] for name in ("serial", "generation", "count", "width")]
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("a count is not a number of at least 0")
    np.asarray(manifest["probe"], dtype=np.float32)
    return dict(UNKNOWN | manifest)


def mapped(path: Path, dtype: str, shape: tuple[int, int]) -> np.ndarray:
    """Map the first values of a file into memory, as a read-only array of a shape.

    Raises:
        OSError, ValueError: the file is missing or too short.
    """
    if not shape[0]:
        return np.empty(shape, dtype)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    # ask for the whole file: random reads, page by page from a disk, would take minutes
    mapped.madvise(mmap.MADV_WILLNEED)
    return np.frombuffer(mapped, dtype, shape[0] * shape[1]).reshape(shape)


def is_labelled(labels: np.ndarray) -> bool:
    """Return whether the keys of labels are in a plausible range; others would fill the memory."""
    keys = labels[:, 0]
    most = 2 * highest_possible(len(keys)) + 1
    return not len(keys) or bool(DROPPED <= keys.min() <= keys.max() <= most)


def sync(*files: BinaryIO) -> None:
    """Flush files to the disk."""
    for file in files:
        file.flush()
        os.fsync(file.fileno())
