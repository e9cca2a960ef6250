"""Vectors of made-up chunks in planted topics, and an encoder of words for tests of themes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def planted(
    count: int, topics: int, noise: float, seed: int = 0, width: int = 48
) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors [count, width] around the centres of topics, and each one's topic."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((topics, width))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    of = np.arange(count) % topics
    vectors = centres[of] + noise * rng.standard_normal((count, width)) / np.sqrt(width)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), of


def by_words(texts: Sequence[str]) -> np.ndarray:
    """Return unit vectors of the texts' words, the same for the same words."""
    rows = []
    for text in texts:
        words = [word.strip(".,?!") for word in text.lower().split()]
        seeds = [int.from_bytes(word.encode()[:8], "little") for word in words]
        drawn = [np.random.default_rng(seed).standard_normal(48) for seed in seeds]
        rows.append(np.sum([np.ones(48) / 100, *drawn], axis=0))
    found = np.array(rows)
    unit: np.ndarray = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return unit
