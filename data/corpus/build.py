"""Builds a corpus from its sources, and reads again only those that changed.

Finished segments stay when a build is interrupted, and the next one goes on from them. The current
version stays in use until the new one is complete.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from turngraph.configs.progress import progress
from turngraph.data.cli import StopRequest
from turngraph.data.corpus.files import PARTIAL, only_writer
from turngraph.data.corpus.segment import Piece, Segment, write_segment
from turngraph.data.corpus.source_files import SourceFile
from turngraph.data.corpus.version import (
    CURRENT,
    Version,
    read_version,
    remove_old,
    switch,
    write_version,
)
from turngraph.data.embedding import Embed
from turngraph.data.sources.document import Unreadable
from turngraph.data.types import Evidence

logger = logging.getLogger(__name__)

SEGMENT = 20_000
"""Passages after which a segment is written."""
MAX_SMALL = 8
"""Number of small or half-used segments from which on they are joined."""

Pieces = list[tuple[Segment, Piece]]
"""The pieces of one source in order, with their segments."""


class Stopped(Exception):
    """A build was asked to stop; the same command goes on from its segments."""


@dataclass(frozen=True)
class Encoder:
    """The sentence encoder of a corpus with vectors.

    Args:
        name: of the model.
        embed: texts to unit vectors.
    """

    name: str
    embed: Embed


@dataclass(frozen=True)
class Changes:
    """What a build did.

    Args:
        version: the current version after it.
        added, replaced, removed, kept: names of sources.
        skipped: files that cannot be read, with the reasons.
    """

    version: Version
    added: Sequence[str]
    replaced: Sequence[str]
    removed: Sequence[str]
    kept: Sequence[str]
    skipped: Sequence[Unreadable] = ()


@dataclass
class CorpusBuilder:
    """Builds versions of one corpus.

    Args:
        folder: of the corpus.
        encoder: makes the vectors of new passages; None: the corpus has none.
        segment: number of passages after which a segment is written.
        keep: number of versions to keep besides the new one.
        stop: asked between the blocks of a source.
    """

    folder: Path
    encoder: Encoder | None = None
    segment: int = SEGMENT
    keep: int = 1
    stop: StopRequest | None = None
    _passages: list[Evidence] = field(default_factory=list)
    _pieces: list[Piece] = field(default_factory=list)

    @property
    def embedder(self) -> str | None:
        """Name of the sentence encoder, if there is one."""
        return None if self.encoder is None else self.encoder.name

    def build(
        self, sources: Sequence[SourceFile], mirror: bool = True, strict: bool = False
    ) -> Changes:
        """Make a version with these sources and switch to it; none if nothing changed.

        Args:
            sources: files to add, or to replace where a source has another content.
            mirror: leave out the current version's sources that are not among them.
            strict: raise at the first document that cannot be read; else it is skipped.

        Raises:
            ValueError: a line is wrong, nothing can be read, a document of the current version
                cannot be read any more, or another process builds this corpus. The current
                version stays.
            Stopped: the stop was requested; finished segments stay.
        """
        with only_writer(self.folder):
            old = self._current_sources()
            names = {source.name for source in sources}
            result = {} if mirror else {n: of for n, of in old.items() if n not in names}
            return self._build(sources, old, result, strict)

    def remove(self, names: Collection[str]) -> Changes:
        """Make a version without some sources and switch to it.

        Raises:
            ValueError: a name is not one of the corpus's sources, or none would be left.
        """
        with only_writer(self.folder):
            old = self._current_sources()
            for name in names:
                if name not in old:
                    raise ValueError(f"{self.folder}: no source {name!r}")
            return self._build([], old, {n: of for n, of in old.items() if n not in names}, True)

    def _build(
        self,
        sources: Sequence[SourceFile],
        old: Mapping[str, Pieces],
        result: dict[str, Pieces],
        strict: bool,
    ) -> Changes:
        """Add sources to the result, and make it the current version."""
        added, replaced, kept = list[str](), list[str](), list(result)
        skipped: list[Unreadable] = []
        digests: dict[str, str] = {}
        stored = self._stored()
        with progress(len(sources), "reading sources", "sources", delay=2) as bar:
            for source in sources:
                is_old = source.name in old
                try:
                    digest = source.digest()
                    if is_old and old[source.name][0][1].digest == digest:
                        result[source.name] = old[source.name]
                        kept.append(source.name)
                    else:
                        self._read(source, digest, stored.get((source.name, digest), []))
                        digests[source.name] = digest
                        (replaced if is_old else added).append(source.name)
                except Unreadable as error:
                    if strict or is_old:  # a source does not vanish because it cannot be read
                        raise
                    skipped.append(error)
                bar.update()
        self._flush()
        stored = self._stored()
        result |= {name: stored[name, digest] for name, digest in digests.items()}
        for unread in skipped:
            logger.warning("skipped %s", unread)
        if not result:
            raise skipped[0] if skipped else ValueError(f"{self.folder}: no source would be left")
        removed = [name for name in old if name not in result]
        if added or replaced or removed or not (self.folder / CURRENT).is_file():
            self._finish(result)
        return Changes(read_version(self.folder), added, replaced, removed, kept, skipped)

    def _finish(self, result: dict[str, Pieces]) -> None:
        """Write the new version, switch to it, and remove what is not needed any more."""
        version = write_version(self.folder, self._compacted(result), self.embedder)
        switch(self.folder, version.number)
        remove_old(self.folder, self.keep)

    def _current_sources(self) -> dict[str, Pieces]:
        """Return the pieces of the current version's sources.

        Raises:
            ValueError: its vectors are of another sentence encoder.
        """
        if not (self.folder / CURRENT).is_file():
            return {}
        version = read_version(self.folder)
        if version.embedder != self.embedder:
            of, wanted = version.embedder or "no vectors", self.embedder or "no vectors"
            hint = "build it in another folder"
            raise ValueError(f"{self.folder}: made with {of}, not with {wanted}; {hint}")
        stored = self._stored(version.segments)
        return {name: stored[name, of["sha256"]] for name, of in version.sources.items()}

    def _stored(self, names: Collection[str] | None = None) -> dict[tuple[str, str], Pieces]:
        """Return what segments have of each source and content, from its begin without a gap.

        Args:
            names: of the segments to look at; None: all of this sentence encoder.
        """
        found: dict[tuple[str, str], dict[int, tuple[Segment, Piece]]] = defaultdict(dict)
        parent = self.folder / "segments"
        folders = sorted(parent.iterdir()) if parent.is_dir() else []
        for folder in folders:
            if folder.name.endswith(PARTIAL) or (names is not None and folder.name not in names):
                continue
            segment = Segment(folder)
            if segment.embedder == self.embedder:
                for piece in segment.pieces:
                    found[piece.source, piece.digest][piece.first_block] = segment, piece
        return {key: _chain(by_block) for key, by_block in found.items()}

    def _read(self, source: SourceFile, digest: str, done: Pieces) -> None:
        """Add the passages of a source that no segment has yet.

        Raises:
            ValueError: a line is wrong, or the file changed meanwhile.
            Unreadable: nothing can be read from it.
            Stopped: the stop was requested.
        """
        if done and done[-1][1].is_last:
            return
        num_done = sum(piece.num_blocks for _, piece in done)
        blocks = source.blocks()
        number, begin, start = -1, num_done, len(self._passages)
        for number, block in enumerate(blocks):
            if number < num_done:
                continue
            is_full, stopped = len(self._passages) >= self.segment, bool(self.stop)
            if is_full or stopped:
                if number > begin:
                    self._add_piece(source.name, digest, begin, number, False, start)
                self._flush()
                begin, start = number, 0
            if stopped:
                raise Stopped
            self._passages += block()
        if number < 0:
            raise Unreadable(source.path, "nothing to read in it")
        if source.digest() != digest:
            del self._passages[start:]
            raise ValueError(f"{source.path}: was changed while it was read; build again")
        self._add_piece(source.name, digest, begin, number + 1, True, start)

    def _add_piece(
        self, source: str, digest: str, begin: int, end: int, is_last: bool, start: int
    ) -> None:
        count = len(self._passages) - start
        self._pieces.append(Piece(source, digest, begin, end - begin, is_last, start, count))

    def _flush(self, vectors: np.ndarray | None = None) -> Segment | None:
        """Write what waits as a segment."""
        if not self._pieces:
            return None
        folder = self.folder / "segments" / uuid.uuid4().hex
        if vectors is None and self.encoder is not None:
            vectors = self.encoder.embed([passage.text for passage in self._passages])
        write_segment(folder, self._passages, self._pieces, vectors, self.embedder)
        self._passages, self._pieces = [], []
        return Segment(folder)

    def _compacted(self, result: dict[str, Pieces]) -> dict[str, Pieces]:
        """Return the pieces after those of many small or half-used segments were joined."""
        used: dict[str, int] = defaultdict(int)
        segments = {segment.name: segment for of in result.values() for segment, _ in of}
        for of in result.values():
            for segment, piece in of:
                used[segment.name] += piece.count
        half = {
            name
            for name, segment in segments.items()
            if used[name] * 2 < min(len(segment), self.segment)
        } | {name for name in segments if used[name] * 8 < self.segment}
        if len(half) <= MAX_SMALL:
            return result
        joined = {name: list(of) for name, of in result.items()}
        waiting: list[tuple[str, int]] = []
        vectors: list[np.ndarray] = []
        for name, of in joined.items():
            for at, (segment, piece) in enumerate(of):
                if segment.name not in half:
                    continue
                start = len(self._passages)
                rows = range(piece.start, piece.start + piece.count)
                self._passages += [segment.passage(row) for row in rows]
                self._pieces.append(replace(piece, start=start))
                waiting.append((name, at))
                if self.encoder is not None:
                    vectors.append(segment.vectors[rows.start : rows.stop])
                if len(self._passages) >= self.segment:
                    self._place(joined, waiting, vectors)
        self._place(joined, waiting, vectors)
        return joined

    def _place(
        self,
        joined: dict[str, Pieces],
        waiting: list[tuple[str, int]],
        vectors: list[np.ndarray],
    ) -> None:
        """Write joined pieces as a segment, and put it in the place of their old ones."""
        pieces = list(self._pieces)
        segment = self._flush(np.concatenate(vectors) if vectors else None)
        if segment is not None:
            for (name, at), piece in zip(waiting, pieces, strict=True):
                joined[name][at] = segment, piece
        waiting.clear()
        vectors.clear()


def _chain(by_block: Mapping[int, tuple[Segment, Piece]]) -> Pieces:
    """Return pieces that follow each other, from a source's first block on."""
    chain: Pieces = []
    block = 0
    while block in by_block:
        chain.append(by_block[block])
        block += by_block[block][1].num_blocks
    return chain
