"""Defines the type of sentence encoders, functions from texts to unit vectors, and a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

import numpy as np

Embed = Callable[[Sequence[str]], np.ndarray]
"""Sentence encoder: texts to unit vectors, [len(texts), width]."""


def cached(embed: Embed, max_texts: int = 100_000) -> Embed:
    """Wrap a sentence encoder in a cache, as conversations over the same page share passages.

    Args:
        embed: the encoder.
        max_texts: largest number of cached vectors, at which the cache is cleared; a vector takes
            1.5 kB at width 384.
    """
    vectors: dict[str, np.ndarray] = {}

    @wraps(embed)
    def embed_cached(texts: Sequence[str]) -> np.ndarray:
        if len(vectors) + len(texts) > max_texts:
            vectors.clear()
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        if new:
            vectors.update(zip(new, embed(new), strict=True))
        return np.stack([vectors[text] for text in texts])

    return embed_cached
