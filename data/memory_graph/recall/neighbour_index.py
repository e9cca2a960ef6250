"""Approximate nearest rows of a matrix: a usearch index (HNSW) over the rows that are settled.

Its vectors are 8-bit integers; whoever asks scores what it finds by the matrix itself. Its file is
named by how many rows it has. One thread adds them in their order, so that a row's copy stands in
the file where its number says, and can be erased.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from turngraph.configs.extras import extra

with extra("memory", "memory graphs need"):
    from usearch.index import Index

logger = logging.getLogger(__name__)

MAX_EXACT = 20_000
"""So many rows are searched exactly: all, or those that the index does not have yet."""
MAX_EXACT_SHARE = 0.25
"""Of a larger index it may be this share, so that writing it again costs little in the long run."""
CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 16, 128, 256
HEADER = struct.Struct("<II")
"""What an index file begins with: how many rows it has, and how many bytes each has."""
BATCH = 1000


class NeighbourIndex:
    """The index of one generation of a matrix.

    Args:
        folder: of the matrix.
        generation: of its files.
        width: of its rows.
    """

    def __init__(self, folder: Path, generation: int, width: int) -> None:
        self.folder, self.generation, self.width = folder, generation, width
        found = {int(p.name.split("-")[2]): p for p in folder.glob(f"index-{generation}-*")}
        self.num_rows = max(found, default=0)
        self.path = found.get(self.num_rows)
        if self.path is not None and not self._is_sound(self.path):
            logger.warning("%s is not as expected and will be made again", self.path)
            self.num_rows, self.path = 0, None
        self._index = Index.restore(str(self.path), view=True) if self.path else None
        if self._index is not None:
            self._index.expansion_search = EXPANSION_SEARCH

    def _is_sound(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                begin = file.read(HEADER.size)
        except FileNotFoundError:  # another process has just written a larger one
            return False
        return len(begin) == HEADER.size and HEADER.unpack(begin) == (self.num_rows, self.width)

    def search(self, query: np.ndarray, k: int) -> np.ndarray:
        """Numbers of the nearest of the first ``num_rows`` rows, twice as many as are wanted.

        Args:
            query: unit vector, float16 [width].
            k: how many are wanted; some may have been dropped since, some are mistaken.
        """
        if self._index is None:
            return np.empty(0, dtype=np.int64)
        return self._index.search(query, 2 * k).keys.astype(np.int64)

    def wants(self, count: int) -> bool:
        """Whether a matrix of so many rows should be indexed (again)."""
        return count - self.num_rows > max(MAX_EXACT, MAX_EXACT_SHARE * self.num_rows)

    def extend(self, rows: np.ndarray) -> None:
        """Write an index that has the rows which this one does not have yet, too.

        Args:
            rows: all settled rows, float16 [count, width].
        """
        kind = {"ndim": self.width, "metric": "ip", "dtype": "i8"}
        index = Index(connectivity=CONNECTIVITY, expansion_add=EXPANSION_ADD, **kind)
        if self.path is not None:
            index.load(str(self.path))
        starts = range(self.num_rows, len(rows), BATCH)
        for begin in tqdm(starts, desc="index of vectors", unit="thousand", delay=2):
            part = rows[begin : begin + BATCH]
            index.add(np.arange(begin, begin + len(part)), part, threads=1)
        final = self.folder / f"index-{self.generation}-{len(rows)}"
        partial = self.folder / f".{final.name}.partial"
        index.save(str(partial))
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, final)
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def erase(self, rows: Sequence[int]) -> None:
        """Zero the copies of rows in the file; rows that it does not have are passed over."""
        if self.path is None:
            return
        with self.path.open("r+b") as file:
            for row in rows:
                if row < self.num_rows:
                    file.seek(HEADER.size + row * self.width)
                    file.write(bytes(self.width))
            file.flush()
            os.fsync(file.fileno())
