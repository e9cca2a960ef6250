"""Sentence encoders, functions from texts to unit vectors: their type, a cache, a choice of two."""

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


def few_or_many(few: Embed, many: Embed, max_few: int = 256) -> Embed:
    """Join two forms of one sentence encoder: one that starts at once, and one that is fast.

    Args:
        few: computes up to ``max_few`` texts.
        many: computes more of them; is not called before.
        max_few: number of texts that ``few`` computes in the seconds in which ``many`` starts.
    """

    def embed(texts: Sequence[str]) -> np.ndarray:
        return (few if len(texts) <= max_few else many)(texts)

    return embed
