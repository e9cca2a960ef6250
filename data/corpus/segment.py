"""Segments of a corpus: passages with their words counted and, if wanted, their vectors.

A segment is a folder that never changes. It holds pieces of sources; a version of the corpus says
which of them it uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.corpus.files import array, read_json, read_sealed, sealed_folder
from turngraph.data.json_fields import Json, Location, decoded, parse_json
from turngraph.data.jsonlines import dump, parse_evidence, to_json
from turngraph.data.retrieval.bm25 import terms
from turngraph.data.types import Evidence

FORMAT = 2


@dataclass(frozen=True)
class Piece:
    """Passages of one source in a segment, one after the other.

    Args:
        source: name of the source.
        digest: hash of the source's content.
        first_block: number of the first block of the source that the segment has.
        num_blocks: number of blocks.
        is_last: whether the source ends with this piece.
        start: row of the piece's first passage in the segment.
        count: number of passages.
    """

    source: str
    digest: str
    first_block: int
    num_blocks: int
    is_last: bool
    start: int
    count: int


class Segment:
    """A segment, memory-mapped.

    Args:
        folder: folder of the segment.
        hashes: check the hashes of its files.

    Raises:
        UserError: a file is missing or was changed.
    """

    def __init__(self, folder: Path, hashes: bool = False) -> None:
        self.folder, self.name = folder, folder.name
        manifest = read_sealed(folder, hashes)
        if manifest.get("format") != FORMAT:
            has = manifest.get("format")
            raise UserError(f"{folder}: has format {has}, not {FORMAT}; build the corpus again")
        self.pieces = [Piece(**piece) for piece in manifest["pieces"]]
        self.embedder: str | None = manifest["embedder"]

    def __len__(self) -> int:
        return sum(piece.count for piece in self.pieces)

    @cached_property
    def _starts(self) -> np.ndarray:
        return array(self.folder, "starts")

    @cached_property
    def _bytes(self) -> np.ndarray:
        return np.memmap(self.folder / "passages.jsonl", np.uint8, "r")

    @cached_property
    def vectors(self) -> np.ndarray:
        """Sentence vectors, float16 [rows, width]."""
        return array(self.folder, "vectors")

    def passage(self, row: int) -> Evidence:
        """Read the passage of a row."""
        start, end = self._starts[row : row + 2].tolist()
        location = Location(self.folder / "passages.jsonl", row + 1)
        record = parse_json(decoded(self._bytes[start:end].tobytes(), location), location)
        return parse_evidence(record, location, str(row))

    @cached_property
    def words(self) -> list[str]:
        """The words of its passages, sorted."""
        words: list[str] = read_json(self.folder / "words.json")
        return words

    def postings(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return which words are in which passages.

        Returns:
            For each pair of a word and a passage, by word and row: the word's index in ``words``,
            the row, how often the word is in it; and the number of words of every passage.
        """
        names = ("word", "row", "count", "length")
        word, row, count, length = (array(self.folder, name) for name in names)
        return word, row, count, length


def write_segment(
    folder: Path,
    passages: Sequence[Evidence],
    pieces: Iterable[Piece],
    vectors: np.ndarray | None,
    embedder: str | None,
) -> None:
    """Write a segment.

    Args:
        folder: folder of the segment, which must not exist yet.
        passages: passages, in the order of the pieces.
        pieces: the pieces of sources that the passages form.
        vectors: [passages, width]; None: the corpus has none.
        embedder: name of the sentence encoder that made them.
    """
    manifest: Json = {
        "format": FORMAT,
        "pieces": [asdict(piece) for piece in pieces],
        "embedder": embedder,
    }
    with sealed_folder(folder, manifest) as partial:
        starts = [0]
        with open(partial / "passages.jsonl", "wb") as file:
            for passage in passages:
                starts.append(starts[-1] + file.write((dump(to_json(passage)) + "\n").encode()))
        np.save(partial / "starts.npy", np.array(starts, np.int64))
        _write_postings(partial, passages)
        if vectors is not None:
            np.save(partial / "vectors.npy", vectors.astype(np.float16))


def _write_postings(folder: Path, passages: Sequence[Evidence]) -> None:
    number: dict[str, int] = {}
    flat: list[int] = []
    lengths: list[int] = []
    for passage in passages:
        words = terms(passage.text)
        lengths.append(len(words))
        flat += [number.setdefault(word, len(number)) for word in words]
    vocabulary = sorted(number)
    place = np.empty(len(number), np.int64)
    place[[number[word] for word in vocabulary]] = np.arange(len(number))
    length = np.array(lengths, np.int32)
    row = np.repeat(np.arange(len(passages), dtype=np.int64), length)
    key, count = np.unique(place[np.array(flat, np.int64)] << 32 | row, return_counts=True)
    np.save(folder / "word.npy", (key >> 32).astype(np.int32))
    np.save(folder / "row.npy", (key & 0xFFFFFFFF).astype(np.int32))
    np.save(folder / "count.npy", count.astype(np.int32))
    np.save(folder / "length.npy", length)
    (folder / "words.json").write_text(json.dumps(vocabulary, ensure_ascii=False), "utf-8")
