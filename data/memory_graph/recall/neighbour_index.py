"""Approximate nearest-neighbour index (usearch HNSW) over the settled rows of a matrix.

The index stores int8 vectors; the caller rescores the rows that it returns with the matrix. Its
file name holds the number of rows. One thread adds the rows in order, so the place of a row's copy
in the file follows from the row's index, and the copy can be erased.
"""

from __future__ import annotations

import logging
import os
import re
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from turngraph.configs.extras import extra
from turngraph.configs.progress import track

with extra("memory", "memory graphs need"):
    from usearch.index import Index

logger = logging.getLogger(__name__)

MAX_EXACT = 20_000
"""Most rows that are searched exactly, whether all rows or those not in the index yet."""
MAX_EXACT_SHARE = 0.25
"""The same limit as a fraction of a larger index, so that the index is rarely rewritten."""
CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 16, 128, 256
HEADER = struct.Struct("<II")
"""Header of an index file: its number of rows, and the bytes of each."""
BATCH = 1000
NAME = re.compile(r"index-\d+-\d{1,18}-[0-9a-f]{8}")
"""Pattern of an index file's name: generation, number of rows, and the checksum of everything
behind the rows. usearch checks nothing: a changed byte there would end the process."""
PART = 1 << 24
"""Bytes that are read at once for the checksum."""


class NeighbourIndex:
    """The index of one generation of a matrix.

    Args:
        folder: folder of the matrix.
        generation: generation of its files.
        width: width of its rows.
    """

    def __init__(self, folder: Path, generation: int, width: int) -> None:
        self.folder, self.generation, self.width = folder, generation, width
        self.num_rows, self.path = _newest(folder, generation)
        self._index = None
        if self.path is not None:
            try:
                self._index = self._restored(self.path)
            except FileNotFoundError:  # another process has just written a larger index
                self.num_rows, self.path = 0, None
            except (OSError, RuntimeError, ValueError):
                logger.warning("%s is corrupt and will be rebuilt", self.path)
                self.num_rows, self.path = 0, None

    def is_newest(self, generation: int, width: int) -> bool:
        """Return whether this is the newest index of a generation, by the files' names."""
        here = self.generation, self.width, self.num_rows, self.path
        return here == (generation, width, *_newest(self.folder, generation))

    def _restored(self, path: Path) -> Index | None:
        """Map an index.

        Raises:
            FileNotFoundError: another process has just deleted it.
            OSError, RuntimeError, ValueError: the file is corrupt.
        """
        with path.open("rb") as file:
            begin = file.read(HEADER.size)
        if len(begin) < HEADER.size or HEADER.unpack(begin) != (self.num_rows, self.width):
            raise ValueError("another header")
        if path.name.rpartition("-")[2] != _checksum(path, *HEADER.unpack(begin)):
            raise ValueError("changed bytes")
        index = Index.restore(str(path), view=True)
        if index is not None:
            # usearch has a setter, but its second definition of the property hides it from mypy
            index.expansion_search = EXPANSION_SEARCH  # type: ignore[misc]
        return index

    def search(self, query: np.ndarray, k: int) -> np.ndarray:
        """Return about ``2 * k`` nearest rows among the first ``num_rows`` as row indices, int64.

        Args:
            query: unit vector, float16 [width].
            k: number of rows that the caller needs; some rows may be dropped or not the nearest.
        """
        if self._index is None:
            return np.empty(0, dtype=np.int64)
        return np.asarray(self._index.search(query, 2 * k).keys.astype(np.int64))

    def is_outgrown(self, count: int) -> bool:
        """Return whether a matrix of ``count`` rows should be indexed (again)."""
        return count - self.num_rows > max(MAX_EXACT, MAX_EXACT_SHARE * self.num_rows)

    def extend(self, rows: np.ndarray) -> None:
        """Write a new index file: a copy of this index, extended by the rows that it lacks.

        Args:
            rows: all settled rows, float16 [count, width].
        """
        index = Index(
            ndim=self.width,
            metric="ip",
            dtype="i8",
            connectivity=CONNECTIVITY,
            expansion_add=EXPANSION_ADD,
        )
        if self.path is not None:
            index.load(str(self.path))
        starts = range(self.num_rows, len(rows), BATCH)
        for begin in track(starts, "index of vectors", "batches", delay=2):
            batch = rows[begin : begin + BATCH]
            index.add(np.arange(begin, begin + len(batch)), batch, threads=1)
        name = f"index-{self.generation}-{len(rows)}"
        partial = self.folder / f".{name}.partial"
        index.save(str(partial))
        final = self.folder / f"{name}-{_checksum(partial, len(rows), self.width)}"
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, final)
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def erase(self, rows: Sequence[int]) -> None:
        """Zero the copies of rows in the file; skip rows that it does not have."""
        if self.path is None:
            return
        with self.path.open("r+b") as file:
            for row in rows:
                if row < self.num_rows:
                    file.seek(HEADER.size + row * self.width)
                    file.write(bytes(self.width))
            file.flush()
            os.fsync(file.fileno())


def _newest(folder: Path, generation: int) -> tuple[int, Path | None]:
    """Return the number of rows and the path of a generation's largest index."""
    paths = folder.glob(f"index-{generation}-*")
    by_size = {int(p.name.split("-")[2]): p for p in paths if NAME.fullmatch(p.name)}
    most = max(by_size, default=0)
    return most, by_size.get(most)


def _checksum(path: Path, num_rows: int, width: int) -> str:
    """Return the CRC-32 of the bytes behind the rows; only the rows are changed in place."""
    checksum = 0
    with path.open("rb") as file:
        file.seek(HEADER.size + num_rows * width)
        while part := file.read(PART):
            checksum = zlib.crc32(part, checksum)
    return f"{checksum:08x}"
