"""Writes the BM25+ index of a corpus from the word counts of its segments.

The files are those that ``bm25s`` saves and opens memory-mapped, and hold the same numbers; what
``bm25s`` computes passage by passage in memory is computed here segment by segment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from turngraph.configs.progress import track
from turngraph.data.corpus.files import read_object
from turngraph.data.corpus.segment import Segment
from turngraph.data.retrieval.bm25 import DELTA, K1, B
from turngraph.data.retrieval.numpy_bm25s import bm25s

FOLDER = "bm25"
Placed = Sequence[tuple[Segment, np.ndarray]]
"""Segments, each with the row of the version for every row of the segment, -1 where it has none."""


@dataclass(frozen=True)
class _Postings:
    """Word counts of one segment's passages that the version uses.

    Args:
        words: indices of the version's words that occur, ascending.
        starts: the first posting of each.
        word: the position in ``words`` of each posting.
        row: the version's row of each posting.
        count: how often the word is in the passage.
        length: number of words of the passage.
    """

    words: np.ndarray
    starts: np.ndarray
    word: np.ndarray
    row: np.ndarray
    count: np.ndarray
    length: np.ndarray


def write_bm25(folder: Path, placed: Placed, num_rows: int) -> None:
    """Write the index of a version as ``bm25s`` saves it (BM25+, k1 1.5, b 0.75, delta 1).

    Args:
        folder: folder to make.
        placed: the segments and their rows.
        num_rows: number of the version's passages.
    """
    folder.mkdir()
    vocabulary = sorted({word for segment, _ in placed for word in segment.words})
    number = {word: i for i, word in enumerate(vocabulary)}
    frequency = np.zeros(len(vocabulary), np.int64)
    num_words = 0
    for postings in _read(placed, number):
        frequency[postings.words] += np.diff(postings.starts, append=len(postings.word))
    for segment, rows in placed:
        num_words += int(segment.postings()[3][rows >= 0].sum(dtype=np.int64))
    used = np.flatnonzero(frequency)
    place = np.cumsum(frequency > 0) - 1
    frequency = frequency[used]
    # the formulas of bm25s: idf of BM25+, and what a word that is not in a passage adds
    idf = np.log((num_rows + 1) / frequency)
    absent = idf * DELTA
    heads = np.concatenate([[0], np.cumsum(frequency)])
    indptr, num_postings = heads.copy(), int(heads[-1])
    data = open_memmap(folder / "data.csc.index.npy", "w+", np.float64, (num_postings,))
    rows_out = open_memmap(folder / "indices.csc.index.npy", "w+", np.int32, (num_postings,))
    mean_length = num_words / max(num_rows, 1)
    for postings in _read(track(placed, "indexing", "segments", delay=2), number):
        words = place[postings.words]
        offset = np.arange(len(postings.word)) - postings.starts[postings.word]
        at = heads[words][postings.word] + offset
        norm = K1 * (1 - B + B * postings.length / mean_length)
        tf = (K1 + 1) * postings.count / (norm + postings.count) + DELTA
        word = words[postings.word]
        data[at] = idf[word] * tf - absent[word]
        rows_out[at] = postings.row
        heads[words] += np.diff(postings.starts, append=len(postings.word))
    data.flush()
    rows_out.flush()
    np.save(folder / "indptr.csc.index.npy", indptr)
    np.save(folder / "nonoccurrence_array.index.npy", absent)
    _write_settings(folder, [vocabulary[i] for i in used.tolist()], num_rows)


def _write_settings(folder: Path, vocabulary: Sequence[str], num_rows: int) -> None:
    numbers = {word: i for i, word in enumerate(vocabulary)}
    (folder / "vocab.index.json").write_text(json.dumps(numbers, ensure_ascii=False), "utf-8")
    settings = {
        "k1": K1,
        "b": B,
        "delta": DELTA,
        "method": "bm25+",
        "idf_method": "bm25+",
        "dtype": "float64",
        "int_dtype": "int32",
        "num_docs": num_rows,
        "version": bm25s.__version__,
        "backend": "numpy",
    }
    (folder / "params.index.json").write_text(json.dumps(settings), "utf-8")


def _read(
    placed: Iterable[tuple[Segment, np.ndarray]], number: dict[str, int]
) -> Iterator[_Postings]:
    for segment, rows in placed:
        word, row, count, length = segment.postings()
        new = rows[row]
        kept = new >= 0
        of_version = np.array([number[term] for term in segment.words], np.int64)
        words, starts, inverse = np.unique(
            of_version[word[kept]], return_index=True, return_inverse=True
        )
        yield _Postings(words, starts, inverse, new[kept], count[kept], length[row[kept]])


def open_bm25(folder: Path) -> bm25s.BM25 | None:
    """Open an index, memory-mapped; None if no passage has a word."""
    if not read_object(folder / "vocab.index.json"):
        return None
    return bm25s.BM25.load(folder, mmap=True, show_progress=False)
