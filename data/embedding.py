"""Type of sentence encoders (texts to unit vectors), and wrappers: cache, thread, choice of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps

import numpy as np

Embed = Callable[[Sequence[str]], np.ndarray]
"""Sentence encoder: texts to unit vectors, [len(texts), width]."""


def cached(embed: Embed, max_texts: int = 100_000) -> Embed:
    """Wrap a sentence encoder in a cache, as conversations over the same page share passages.

    Args:
        embed: the encoder.
        max_texts: largest number of cached vectors, at which the cache is cleared; a text with
            its vector takes 2 kB at width 384.
    """
    vectors: dict[str, np.ndarray] = {}

    @wraps(embed)
    def embed_cached(texts: Sequence[str]) -> np.ndarray:
        known = {text: vectors.get(text) for text in texts}  # another thread may clear them
        by_text = {text: vector for text, vector in known.items() if vector is not None}
        if new := [text for text in known if text not in by_text]:
            computed = dict(zip(new, embed(new), strict=True))
            if len(vectors) + len(new) > max_texts:
                vectors.clear()
            vectors.update(computed)
            by_text |= computed
        return np.stack([by_text[text] for text in texts])

    return embed_cached


def in_one_thread(embed: Embed, at_once: int = 32) -> Embed:
    """Run a sentence encoder in one thread, for callers in many.

    The libraries that multiply matrices keep buffers of megabytes for each thread that has called
    them, even after it has ended, so that a server that starts new threads would grow.

    Args:
        embed: the encoder.
        at_once: texts that are computed before the next caller has its turn.
    """
    pool = ThreadPoolExecutor(1, "embedding")

    @wraps(embed)
    def embed_there(texts: Sequence[str]) -> np.ndarray:
        starts = range(0, max(len(texts), 1), at_once)
        return np.concatenate([pool.submit(embed, texts[i : i + at_once]).result() for i in starts])

    return embed_there


def few_or_many(few: Embed, many: Embed, max_few: int = 256) -> Embed:
    """Join two forms of one sentence encoder: one that starts at once, and one that is fast.

    Args:
        few: computes up to ``max_few`` texts.
        many: computes larger numbers of texts; it is not called for fewer.
        max_few: number of texts that ``few`` computes in the seconds in which ``many`` starts.
    """

    def embed(texts: Sequence[str]) -> np.ndarray:
        return (few if len(texts) <= max_few else many)(texts)

    return embed
