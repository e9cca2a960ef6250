"""Caches sentence vectors in the user's cache folder, keyed by text."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from turngraph.configs.models import cache_folder, sentence_encoder
from turngraph.data.embedding import Embed

BATCH = 512


def kept_encoder(name: str) -> EmbeddingCache:
    """Return a sentence encoder whose vectors stay in the user's cache folder."""
    path = cache_folder() / "embeddings" / f"{name.replace('/', '--')}.db"
    return EmbeddingCache(path, sentence_encoder(name))


class EmbeddingCache:
    """Sentence encoder that encodes each text only once over all runs.

    Args:
        path: path of the database of vectors, float16.
        embed: the encoder.
    """

    def __init__(self, path: Path, embed: Embed) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.embed = embed
        self.db = sqlite3.connect(path, timeout=60)
        self.db.execute("CREATE TABLE IF NOT EXISTS vectors (hash BLOB PRIMARY KEY, vector BLOB)")

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit vectors, float32 [len(texts), width]."""
        by_hash = {_hash(text): text for text in texts}
        found = {key: vector for key in by_hash if (vector := self._kept(key)) is not None}
        new = sorted(by_hash.keys() - found.keys(), key=lambda key: len(by_hash[key]))
        steps = range(0, len(new), BATCH)
        for start in tqdm(steps, desc="embedding", unit_scale=BATCH, delay=2, leave=False):
            keys = new[start : start + BATCH]
            vectors = np.asarray(self.embed([by_hash[key] for key in keys]), dtype=np.float16)
            found |= zip(keys, vectors, strict=True)
            rows = [(key, vector.tobytes()) for key, vector in zip(keys, vectors, strict=True)]
            with self.db:
                self.db.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        return np.stack([found[_hash(text)] for text in texts]).astype(np.float32)

    def _kept(self, key: bytes) -> np.ndarray | None:
        row = self.db.execute("SELECT vector FROM vectors WHERE hash = ?", (key,)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float16)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
