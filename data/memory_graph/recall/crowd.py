"""Vectors that many questions ask for together, a hub's, copied to lie side by side in 8 bits."""

from __future__ import annotations

from collections.abc import Callable

import numkong
import numpy as np

MIN_CROWD, MAX_CROWD = 8192, 200_000
"""So many rows that are asked for at once are worth copies; so many are copied at most."""
CHUNK = 1024  # rows that are converted at once: they stay in the processor's cache


class Crowd:
    """Copies of some rows of a matrix.

    To pick the rows one by one, in 16 bits, takes eight times as long as to read the copies.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the copies: rows have other numbers."""
        self.rows, self._copies, self._steps = np.empty(0, np.int64), np.empty(0), np.empty(0)

    def copy(self, rows: np.ndarray, gather: Callable[[np.ndarray], np.ndarray]) -> None:
        """Copy rows, and forget those from before.

        Args:
            rows: by number.
            gather: rows by number, float16 [k, width].
        """
        rows = np.unique(rows)[:MAX_CROWD]
        parts = [_eight_bits(gather(rows[at : at + CHUNK])) for at in range(0, len(rows), CHUNK)]
        if parts:
            copies, steps = zip(*parts, strict=True)
            self.rows, self._copies, self._steps = (
                rows,
                np.concatenate(copies),
                np.concatenate(steps),
            )

    def dot(self, query: np.ndarray) -> np.ndarray:
        """Inner product of each row of unit length with a query; float32.

        It is about 0.001 off: every component is rounded to a 127th of its row's largest.

        Args:
            query: unit vector, [width].
        """
        if not len(self.rows):
            return np.empty(0, dtype=np.float32)
        [small], [step] = _eight_bits(query[None])
        return np.asarray(numkong.dot(small, self._copies), dtype=np.float32) * (self._steps * step)


def _eight_bits(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in steps of a 127th of their largest component, int8, and these steps."""
    steps = np.abs(rows).max(axis=1).astype(np.float32) / 127
    steps[steps == 0] = 1  # a row of zeros
    return np.rint(rows / steps[:, None]).astype(np.int8), steps
