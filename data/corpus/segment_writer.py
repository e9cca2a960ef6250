"""Reads the sources of a corpus into segments."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.cli import StopRequest
from turngraph.data.corpus.files import PARTIAL
from turngraph.data.corpus.segment import Piece, Segment, write_segment
from turngraph.data.corpus.source_files import SourceFile
from turngraph.data.embedding import Embed
from turngraph.data.sources.document import Unreadable
from turngraph.data.types import Evidence

SEGMENT = 20_000
"""Passages after which a segment is written."""

Pieces = list[tuple[Segment, Piece]]
"""The pieces of one source in order, with their segments."""


class Stopped(Exception):
    """Raised when a build was asked to stop; the same command goes on from its segments."""


@dataclass(frozen=True)
class Encoder:
    """The sentence encoder of a corpus with vectors.

    Args:
        name: name of the model.
        embed: function from texts to unit vectors.
    """

    name: str
    embed: Embed


class NewSource(NamedTuple):
    """A source that is stored in part or not at all.

    Args:
        source: the file.
        digest: hash of its content.
        first_block: number of its blocks that are stored.
    """

    source: SourceFile
    digest: str
    first_block: int


def stored_pieces(
    corpus: Path, embedder: str | None, names: Collection[str] | None = None
) -> dict[tuple[str, str], Pieces]:
    """Return the stored pieces of each source and content, from its first block up to a gap.

    Args:
        corpus: folder of the corpus.
        embedder: only segments of this sentence encoder.
        names: names of the segments to look at; None: all.
    """
    pieces: dict[tuple[str, str], dict[int, tuple[Segment, Piece]]] = defaultdict(dict)
    parent = corpus / "segments"
    for folder in sorted(parent.iterdir()) if parent.is_dir() else []:
        if folder.name.endswith(PARTIAL) or (names is not None and folder.name not in names):
            continue
        segment = Segment(folder)
        if segment.embedder == embedder:
            for piece in segment.pieces:
                pieces[piece.source, piece.digest][piece.first_block] = segment, piece
    return {key: _chain(by_block) for key, by_block in pieces.items()}


def _chain(by_block: Mapping[int, tuple[Segment, Piece]]) -> Pieces:
    """Return pieces that follow each other, from a source's first block on."""
    chain: Pieces = []
    block = 0
    while block in by_block:
        chain.append(by_block[block])
        block += by_block[block][1].num_blocks
    return chain


@dataclass
class SegmentWriter:
    """Collects passages of sources, and writes them as segments.

    Args:
        corpus: folder of the corpus.
        encoder: makes the vectors of the passages; None: the corpus has none.
        segment: number of passages after which a segment is written.
        stop: request to stop, which is checked between the blocks of a source.
    """

    corpus: Path
    encoder: Encoder | None = None
    segment: int = SEGMENT
    stop: StopRequest | None = None
    passages: list[Evidence] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    @property
    def embedder(self) -> str | None:
        """Name of the sentence encoder, if there is one."""
        return None if self.encoder is None else self.encoder.name

    def read(self, new: NewSource) -> None:
        """Add the passages of a source that no segment has yet.

        Raises:
            UserError: a line is wrong, or the file changed meanwhile. Collected passages of other
                sources stay.
            Unreadable: nothing can be read from it.
            Stopped: the stop was requested; what was read is stored.
        """
        source, digest, first = new
        begin, start, end = first, len(self.passages), 0
        try:
            for number, block in enumerate(source.blocks()):
                end = number + 1
                if number < first:
                    continue
                is_full, stopped = len(self.passages) >= self.segment, bool(self.stop)
                if is_full or stopped:
                    if number > begin:
                        self._add_piece(source.name, digest, begin, number, False, start)
                    self.flush()
                    begin, start = number, 0
                if stopped:
                    raise Stopped
                self.passages += block()
            if not end:
                raise Unreadable(source.path, "nothing to read in it")
            if source.digest() != digest:
                raise UserError(f"{source.path}: was changed while it was read; build again")
        except UserError:
            del self.passages[start:]
            raise
        self._add_piece(source.name, digest, begin, end, True, start)

    def _add_piece(
        self, source: str, digest: str, begin: int, end: int, is_last: bool, start: int
    ) -> None:
        count = len(self.passages) - start
        self.pieces.append(Piece(source, digest, begin, end - begin, is_last, start, count))

    def flush(self, vectors: np.ndarray | None = None) -> Segment | None:
        """Write the collected passages as a segment; None if there are none."""
        if not self.pieces:
            return None
        folder = self.corpus / "segments" / uuid.uuid4().hex
        if vectors is None and self.encoder is not None:
            vectors = self.encoder.embed([passage.text for passage in self.passages])
        write_segment(folder, self.passages, self.pieces, vectors, self.embedder)
        self.passages, self.pieces = [], []
        return Segment(folder)
