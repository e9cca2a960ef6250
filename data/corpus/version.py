"""Versions of a corpus: which passages of which segments it has, and their indexes.

``corpus.json`` names the current version, and is replaced at once when a new one is complete.
Readers keep the version that they opened.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.corpus.bm25_files import FOLDER, write_bm25
from turngraph.data.corpus.files import (
    PARTIAL,
    SEAL,
    array,
    read_object,
    read_sealed,
    sealed_folder,
    write_object,
)
from turngraph.data.corpus.segment import FORMAT, Piece, Segment
from turngraph.data.corpus.sign_codes import sign_codes
from turngraph.data.json_fields import Json

CURRENT = "corpus.json"


@dataclass(frozen=True)
class Version:
    """A version's manifest.

    Args:
        folder: folder of the version.
        sources: name -> hash of its content and number of its passages.
        segments: names of the segments that it uses.
        num_passages: number of passages.
        embedder: name of the sentence encoder; None: it has no vectors.
    """

    folder: Path
    sources: Mapping[str, Json]
    segments: Sequence[str]
    num_passages: int
    embedder: str | None

    @property
    def number(self) -> int:
        """Its number; the first version is 1."""
        return int(self.folder.name)


def read_version(corpus: Path, number: int | None = None, hashes: bool = False) -> Version:
    """Read a version of a corpus.

    Args:
        corpus: folder of the corpus.
        number: number of the version; None: the current one.
        hashes: check the hashes of its files.

    Raises:
        UserError: there is no such corpus or version, or a file of it is missing or was changed.
    """
    if not (corpus / CURRENT).is_file():
        raise UserError(f"{corpus}: no corpus; turngraph corpus build makes one")
    if number is None:
        number = read_object(corpus / CURRENT).get("version")
        if not isinstance(number, int):
            raise UserError(f"{corpus / CURRENT}, field version: must be a whole number")
    return _read(corpus, number, hashes)


def _read(corpus: Path, number: int, hashes: bool = False) -> Version:
    folder = folder_of(corpus, number)
    if not (folder / SEAL).is_file():
        numbers = ", ".join(map(str, version_numbers(corpus))) or "none"
        raise UserError(f"{corpus}: no version {number}; it has {numbers}")
    manifest = read_sealed(folder, hashes)
    if manifest.get("format") != FORMAT:
        has = manifest.get("format")
        raise UserError(f"{folder}: has format {has}, not {FORMAT}; build the corpus again")
    names = ("sources", "segments", "num_passages", "embedder")
    return Version(folder, **{name: manifest[name] for name in names})


def folder_of(corpus: Path, number: int) -> Path:
    """Return the folder of a version."""
    return corpus / "versions" / f"{number:06d}"


def version_numbers(corpus: Path) -> list[int]:
    """Return the numbers of the complete versions, ascending."""
    seals = (corpus / "versions").glob(f"*/{SEAL}")
    return sorted(int(path.parent.name) for path in seals if path.parent.name.isdigit())


def switch(corpus: Path, number: int) -> None:
    """Make a version the current one, at once.

    Raises:
        UserError: there is no such version, or a file of it is missing.
    """
    _read(corpus, number)
    write_object(corpus / CURRENT, {"format": FORMAT, "version": number})


def write_version(
    corpus: Path,
    pieces: Mapping[str, Sequence[tuple[Segment, Piece]]],
    embedder: str | None,
) -> Version:
    """Write a version with its indexes; it is not the current one yet.

    Rows are in the order of the sources' names, so that equal passages rank in the same order
    however the corpus was built.

    Args:
        corpus: folder of the corpus.
        pieces: name of each source -> its pieces in order, with their segments.
        embedder: name of the sentence encoder; None: no vectors.
    """
    number = max(version_numbers(corpus), default=0) + 1
    folder = folder_of(corpus, number)
    segments = {segment.name: segment for of in pieces.values() for segment, _ in of}
    names = sorted(segments)
    manifest: Json = {
        "format": FORMAT,
        "segments": names,
        "embedder": embedder,
        "sources": {
            name: {"sha256": of[0][1].digest, "passages": sum(piece.count for _, piece in of)}
            for name, of in sorted(pieces.items())
        },
    }
    index = {name: i for i, name in enumerate(names)}
    ordered = [pair for _, of in sorted(pieces.items()) for pair in of]
    counts = [piece.count for _, piece in ordered]
    segment = np.repeat(np.array([index[s.name] for s, _ in ordered], np.int32), counts)
    row = np.concatenate(
        [piece.start + np.arange(piece.count, dtype=np.int32) for _, piece in ordered]
    )
    manifest["num_passages"] = len(row)
    placed = []
    for i, name in enumerate(names):
        rows = np.full(len(segments[name]), -1, np.int64)
        mine = np.flatnonzero(segment == i)
        rows[row[mine]] = mine
        placed.append((segments[name], rows))
    with sealed_folder(folder, manifest) as partial:
        np.save(partial / "segment.npy", segment)
        np.save(partial / "row.npy", row)
        write_bm25(partial / FOLDER, placed, len(row))
        if embedder is not None:
            np.save(partial / "codes.npy", _codes(placed, len(row)))
    return _read(corpus, number)


def _codes(placed: Sequence[tuple[Segment, np.ndarray]], num_rows: int) -> np.ndarray:
    codes: np.ndarray | None = None
    for segment, rows in placed:
        used = np.flatnonzero(rows >= 0)
        segment_codes = sign_codes(segment.vectors)[used]
        if codes is None:
            codes = np.zeros((num_rows, segment_codes.shape[1]), np.uint64)
        codes[rows[used]] = segment_codes
    assert codes is not None, "a version has a segment"
    return codes


def remove_old(corpus: Path, keep: int) -> None:
    """Remove all but the last versions, and segments that no version uses.

    Args:
        corpus: folder of the corpus.
        keep: number of versions to keep besides the current one, newest first.
    """
    current = read_version(corpus).number
    others = [number for number in version_numbers(corpus) if number != current]
    kept = {current, *(others[-keep:] if keep else ())}
    used: set[str] = set()
    for number in version_numbers(corpus):
        if number in kept:
            used.update(read_version(corpus, number).segments)
        else:
            shutil.rmtree(folder_of(corpus, number))
    _remove_folders(corpus / "segments", used)
    _remove_folders(corpus / "versions", {folder_of(corpus, number).name for number in kept})


def _remove_folders(parent: Path, kept: Collection[str]) -> None:
    for folder in list(parent.iterdir()) if parent.is_dir() else []:
        if folder.name not in kept or folder.name.endswith(PARTIAL):
            shutil.rmtree(folder)


def rows_of(version: Version) -> tuple[np.ndarray, np.ndarray]:
    """Return for every passage of a version the number of its segment and its row there."""
    return array(version.folder, "segment"), array(version.folder, "row")
