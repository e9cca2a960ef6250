"""Sentence encoder without a model: texts that share words are close."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np

from turngraph.data.normalise import words

WIDTH = 64


@cache
def word_vector(word: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([zlib.crc32(word.encode()), seed]).standard_normal(WIDTH)


class Hashing:
    """Encoder that sums random vectors of words and records its inputs in ``seen``.

    Args:
        seed: random seed; another seed is another encoder.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.seen = seed, []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.seen += texts
        rows = [sum(word_vector(w, self.seed) for w in words(text) or ["?"]) for text in texts]
        found = np.array(rows, dtype=np.float32).reshape(len(texts), WIDTH)
        return found / np.linalg.norm(found, axis=1, keepdims=True)
