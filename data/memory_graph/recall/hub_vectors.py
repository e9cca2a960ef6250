"""Caches the vectors of a hub's facts as contiguous int8 rows, for many questions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turngraph.configs.extras import extra

with extra("memory", "memory graphs need"):
    import numkong

MIN_HUB_ROWS, MAX_HUB_ROWS = 8192, 200_000
"""Least number of rows at which a hub's vectors are copied, and most rows that are copied."""
CHUNK = 1024  # rows that are converted at once, which fit into the processor's cache

_Positions = tuple[np.ndarray, np.ndarray]


class HubVectors:
    """Contiguous int8 copies of some rows of a matrix.

    Gathering the float16 rows one by one takes eight times as long as reading the copies.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop the copies, as after a change of the row indices."""
        self.rows, self._copies, self._steps = np.empty(0, np.int64), np.empty(0), np.empty(0)
        self._last: tuple[np.ndarray, _Positions] | None = None

    def copy(self, rows: np.ndarray, gather: Callable[[np.ndarray], np.ndarray]) -> None:
        """Copy rows and drop the earlier copies.

        Args:
            rows: indices of rows.
            gather: returns rows by index, float16 [k, width].
        """
        rows = np.unique(rows)[:MAX_HUB_ROWS]
        parts = [_eight_bits(gather(rows[at : at + CHUNK])) for at in range(0, len(rows), CHUNK)]
        if parts:
            self.rows, self._last = rows, None
            self._copies, self._steps = map(np.concatenate, zip(*parts, strict=True))

    def positions(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the position of each row among the copies, and which rows have no copy.

        The position of a row without a copy is meaningless. The result for the same array object is
        cached.
        """
        if self._last is None or self._last[0] is not rows:
            positions = np.minimum(np.searchsorted(self.rows, rows), max(len(self.rows) - 1, 0))
            there = self.rows[positions] == rows if len(self.rows) else np.zeros(len(rows), bool)
            self._last = rows, (positions, np.flatnonzero(~there))
        return self._last[1]

    def dot(self, query: np.ndarray) -> np.ndarray:
        """Return the inner product of each copied row of unit length with a query; float32.

        The error is about 0.001: every component is rounded to a 127th of its row's largest.

        Args:
            query: unit vector, [width].
        """
        if not len(self.rows):
            return np.empty(0, dtype=np.float32)
        [small], [step] = _eight_bits(query[None])
        products = np.asarray(numkong.dot(small, self._copies), dtype=np.float32)
        return np.asarray(products * (self._steps * step))


def _eight_bits(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantise rows to int8 in steps of a 127th of their largest component; return both."""
    steps = np.abs(rows).max(axis=1).astype(np.float32) / 127
    steps[steps == 0] = 1  # a row of zeros
    return np.rint(rows / steps[:, None]).astype(np.int8), steps
