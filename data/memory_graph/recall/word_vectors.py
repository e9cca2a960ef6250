"""Computes text vectors without a model, from hashed words and letter trigrams."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from turngraph.data.normalise import words

WIDTH = 512


def word_vectors(texts: Sequence[str]) -> np.ndarray:
    """Return unit vectors of texts, float32 [len(texts), 512]; zeros for a text without words.

    Every distinct word is weighted by its length, up to 6. All its trigrams together have the same
    weight, so that "lives" is close to "live".
    """
    vectors = np.zeros((len(texts), WIDTH), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        for word in set(words(text)):
            padded, size = f" {word} ", min(len(word), 6)
            parts = [padded[i : i + 3] for i in range(len(padded) - 2)]
            for part in (word, *parts):
                weight = size if part == word else size / len(parts) ** 0.5
                code = zlib.crc32(part.encode())
                vector[code % WIDTH] += weight if code & 0x10000 else -weight
        length = np.linalg.norm(vector)
        vector /= length or 1.0
    return vectors
