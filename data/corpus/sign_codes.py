"""Searches vectors by the signs of their components, then by cosine.

One bit for each component takes a thirty-second of the memory of the vectors, and a million codes
are compared in some milliseconds. The nearest by Hamming distance are ranked again by their
vectors, which are read from disk (two-stage search as by Shan et al., arXiv 2106.00882).
"""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 16
"""Rows that are compared at a time, so that they stay in the processor's cache."""
WORD_BITS = 64


def sign_codes(vectors: np.ndarray) -> np.ndarray:
    """Return the signs of vectors as bits.

    Args:
        vectors: [rows, width].

    Returns:
        uint64 [rows, ceil(width / 64)]; bits beyond the width are 0.
    """
    width = -vectors.shape[1] % WORD_BITS
    parts = []
    for start in range(0, max(len(vectors), 1), BLOCK):
        signs = np.pad(vectors[start : start + BLOCK] > 0, ((0, 0), (0, width)))
        parts.append(np.packbits(signs, axis=1).view(np.uint64))
    return np.concatenate(parts)


def nearest_codes(codes: np.ndarray, code: np.ndarray, num: int) -> np.ndarray:
    """Return the rows whose codes have the smallest Hamming distances, ascending by row.

    Of the rows at the largest distance in the result, those with the smallest numbers are taken, so
    that the result is always the same.

    Args:
        codes: [rows, words].
        code: [words].
        num: number of rows.
    """
    if num >= len(codes):
        return np.arange(len(codes))
    distance = np.empty(len(codes), np.uint16)
    for start in range(0, len(codes), BLOCK):
        differ = np.bitwise_count(codes[start : start + BLOCK] ^ code)
        distance[start : start + BLOCK] = differ.sum(axis=1, dtype=np.uint16)
    counts = np.cumsum(np.bincount(distance))
    last = int(np.searchsorted(counts, num))
    nearer = np.flatnonzero(distance < last)
    equal = np.flatnonzero(distance == last)[: num - len(nearer)]
    return np.sort(np.concatenate([nearer, equal]))
