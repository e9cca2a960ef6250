"""Text vectors that need no model: hashed words and letter trigrams; similar words are close."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from turngraph.data.normalise import words

WIDTH = 512


def word_vectors(texts: Sequence[str]) -> np.ndarray:
    """Return unit vectors of texts, float32 [len(texts), 512]; zeros for a text without words.

    Every word counts once, weighted by its length up to 6. All its trigrams together count as much,
    so that "lives" is near "live".
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
