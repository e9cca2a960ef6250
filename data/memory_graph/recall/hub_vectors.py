"""Vectors that many questions ask for together, a hub's, copied to lie side by side in 8 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turngraph.configs.extras import extra

with extra("memory", "memory graphs need"):
    import numkong

MIN_HUB_ROWS, MAX_HUB_ROWS = 8192, 200_000
"""So many rows that are asked for at once are worth copies; so many are copied at most."""
CHUNK = 1024  # rows that are converted at once: they stay in the processor's cache


class HubVectors:
    """Copies of some rows of a matrix.

    To pick the rows one by one, in 16 bits, takes eight times as long as to read the copies.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the copies: rows have other numbers."""
        self.rows, self._copies, self._steps = np.empty(0, np.int64), np.empty(0), np.empty(0)
        self._asked: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def copy(self, rows: np.ndarray, gather: Callable[[np.ndarray], np.ndarray]) -> None:
        """Copy rows, and forget those from before.

        Args:
            rows: by number.
            gather: rows by number, float16 [k, width].
        """
        rows = np.unique(rows)[:MAX_HUB_ROWS]
        parts = [_eight_bits(gather(rows[at : at + CHUNK])) for at in range(0, len(rows), CHUNK)]
        if parts:
            self.rows, self._asked = rows, None
            self._copies, self._steps = map(np.concatenate, zip(*parts, strict=True))

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where rows stand among its own, and which of them do not (their place means nothing).

        What the same array gave is kept.
        """
        if self._asked is None or self._asked[0] is not rows:
            places = np.minimum(np.searchsorted(self.rows, rows), max(len(self.rows) - 1, 0))
            there = self.rows[places] == rows if len(self.rows) else np.zeros(len(rows), bool)
            self._asked = rows, places, np.flatnonzero(~there)
        return self._asked[1:]

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
