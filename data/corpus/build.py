"""Builds a corpus from its sources, and reads again only those that changed.

Finished segments stay when a build is interrupted, and the next one goes on from them. The current
version stays in use until the new one is complete.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.data.cli import StopRequest
from turngraph.data.corpus.files import only_writer
from turngraph.data.corpus.segment_writer import (
    SEGMENT,
    Encoder,
    NewSource,
    Pieces,
    SegmentWriter,
    Stopped,
    stored_pieces,
)
from turngraph.data.corpus.source_files import SourceFile
from turngraph.data.corpus.version import (
    CURRENT,
    Version,
    read_version,
    remove_old,
    switch,
    write_version,
)
from turngraph.data.ray_workers import map_on_ray
from turngraph.data.sources.document import Unreadable

logger = logging.getLogger(__name__)

MAX_SMALL = 8
"""Number of small or half-used segments from which on they are joined."""
TASK_BYTES = 1 << 24
"""Bytes of sources, at least, that one process of a cluster reads at a time."""

Read = tuple[NewSource, Unreadable | None]
"""A source, and the error if it cannot be read."""


@dataclass(frozen=True)
class Changes:
    """Result of a build.

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


@dataclass(frozen=True)
class OnRay:
    """Where sources are read in parallel.

    Args:
        address: address of a Ray cluster whose nodes see the corpus and its sources under the same
            paths; ``local``: this machine.
        make_encoder: makes the sentence encoder in a process of the cluster; a top-level function,
            or ``functools.partial`` of one.
    """

    address: str
    make_encoder: Callable[[], Encoder | None]


@dataclass
class CorpusBuilder:
    """Builds versions of one corpus.

    Args:
        folder: folder of the corpus.
        encoder: makes the vectors of new passages; None: the corpus has none.
        segment: number of passages after which a segment is written.
        keep: number of versions to keep besides the new one.
        stop: request to stop, which is checked between the blocks of a source.
        ray: reads new sources on a cluster; None: in this process.
    """

    folder: Path
    encoder: Encoder | None = None
    segment: int = SEGMENT
    keep: int = 1
    stop: StopRequest | None = None
    ray: OnRay | None = None

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
            UserError: a line is wrong, nothing can be read, a document of the current version
                cannot be read any more, or another process builds this corpus. The current
                version stays.
            Stopped: the stop was requested; finished segments stay.
        """
        with only_writer(self.folder):
            old = self._current_sources()
            names = {source.name for source in sources}
            pieces = {} if mirror else {n: of for n, of in old.items() if n not in names}
            return self._build(sources, old, pieces, strict)

    def remove(self, names: Collection[str]) -> Changes:
        """Make a version without some sources and switch to it.

        Raises:
            UserError: a name is not one of the corpus's sources, or none would be left.
        """
        with only_writer(self.folder):
            old = self._current_sources()
            for name in names:
                if name not in old:
                    raise UserError(f"{self.folder}: no source {name!r}")
            return self._build([], old, {n: of for n, of in old.items() if n not in names}, True)

    def _build(
        self,
        sources: Sequence[SourceFile],
        old: Mapping[str, Pieces],
        pieces: dict[str, Pieces],
        strict: bool,
    ) -> Changes:
        """Add sources to the pieces, and make these the current version."""
        new: dict[str, str] = {}
        skipped: list[Unreadable] = []
        todo: list[NewSource] = []
        stored = stored_pieces(self.folder, self.embedder)

        def skip(source: SourceFile, error: Unreadable) -> None:
            if (
                strict or source.name in old
            ):  # a source of the current version must not vanish because it is unreadable
                raise error
            logger.warning("skipped %s", error)
            skipped.append(error)

        for source in sources:
            try:
                digest = source.digest()
            except Unreadable as error:
                skip(source, error)
                continue
            if source.name in old and old[source.name][0][1].digest == digest:
                pieces[source.name] = old[source.name]
                continue
            done = stored.get((source.name, digest), [])
            if done and done[-1][1].is_last:  # an interrupted build has stored all of it
                new[source.name] = digest
            else:
                first = sum(piece.num_blocks for _, piece in done)
                todo.append(NewSource(source, digest, first))
        kept = list(pieces)
        with progress(len(todo), "reading sources", "sources", delay=2) as bar:
            for (source, digest, _), unread in self._read(todo):
                if unread is None:
                    new[source.name] = digest
                else:
                    skip(source, unread)
                bar.update()
        stored = stored_pieces(self.folder, self.embedder)
        pieces |= {name: stored[name, digest] for name, digest in new.items()}
        if not pieces:
            raise skipped[0] if skipped else UserError(f"{self.folder}: no source would be left")
        removed = [name for name in old if name not in pieces]
        if new or removed or not (self.folder / CURRENT).is_file():
            self._finish(pieces)
        added = [name for name in new if name not in old]
        replaced = [name for name in new if name in old]
        return Changes(read_version(self.folder), added, replaced, removed, kept, skipped)

    def _read(self, todo: Sequence[NewSource]) -> Iterator[Read]:
        """Store the passages of sources in segments; yield each source when that is done."""
        if self.ray is None:
            writer = SegmentWriter(self.folder, self.encoder, self.segment, self.stop)
            yield from read_all(writer, todo)
            return
        make = partial(_make_writer, self.folder, self.ray.make_encoder, self.segment)
        with closing(map_on_ray(self.ray.address, make, _read_task, _tasks(todo))) as done:
            for reads in done:
                yield from reads
                if self.stop:
                    raise Stopped

    def _finish(self, pieces: dict[str, Pieces]) -> None:
        """Write the new version, switch to it, and remove what is not needed any more."""
        version = write_version(self.folder, self._compacted(pieces), self.embedder)
        switch(self.folder, version.number)
        remove_old(self.folder, self.keep)

    def _current_sources(self) -> dict[str, Pieces]:
        """Return the pieces of the current version's sources.

        Raises:
            UserError: its vectors are of another sentence encoder.
        """
        if not (self.folder / CURRENT).is_file():
            return {}
        version = read_version(self.folder)
        if version.embedder != self.embedder:
            of, wanted = version.embedder or "none", self.embedder or "none"
            hint = "build into another folder"
            raise UserError(
                f"{self.folder}: sentence encoder {of}, this build has {wanted}; {hint}"
            )
        stored = stored_pieces(self.folder, self.embedder, version.segments)
        return {name: stored[name, of["sha256"]] for name, of in version.sources.items()}

    def _compacted(self, pieces: dict[str, Pieces]) -> dict[str, Pieces]:
        """Return the pieces after those of many small or half-used segments were joined."""
        used: dict[str, int] = defaultdict(int)
        segments = {segment.name: segment for of in pieces.values() for segment, _ in of}
        for of in pieces.values():
            for segment, piece in of:
                used[segment.name] += piece.count
        half = {
            name
            for name, segment in segments.items()
            if used[name] * 2 < min(len(segment), self.segment)
        } | {name for name in segments if used[name] * 8 < self.segment}
        if len(half) <= MAX_SMALL:
            return pieces
        return self._joined(pieces, half)

    def _joined(self, pieces: Mapping[str, Pieces], chosen: Collection[str]) -> dict[str, Pieces]:
        """Return the pieces after those of some segments were written into new ones."""
        joined = {name: list(of) for name, of in pieces.items()}
        writer = SegmentWriter(self.folder, self.encoder, self.segment)
        places: list[tuple[str, int]] = []
        vectors: list[np.ndarray] = []

        def write() -> None:
            written = list(writer.pieces)
            segment = writer.flush(np.concatenate(vectors) if vectors else None)
            for (name, at), piece in zip(places, written, strict=True):
                assert segment is not None, "there are pieces"
                joined[name][at] = segment, piece
            places.clear()
            vectors.clear()

        for name, of in joined.items():
            for at, (segment, piece) in enumerate(of):
                if segment.name not in chosen:
                    continue
                rows = range(piece.start, piece.start + piece.count)
                writer.pieces.append(replace(piece, start=len(writer.passages)))
                writer.passages += [segment.passage(row) for row in rows]
                places.append((name, at))
                if self.encoder is not None:
                    vectors.append(segment.vectors[rows.start : rows.stop])
                if len(writer.passages) >= self.segment:
                    write()
        write()
        return joined


def read_all(writer: SegmentWriter, todo: Sequence[NewSource]) -> Iterator[Read]:
    """Store the passages of sources in segments; yield each source, the last ones at the end.

    Raises:
        UserError: a line of a source is wrong; the sources before it are stored.
        Stopped: the stop was requested.
    """
    for new in todo:
        try:
            writer.read(new)
        except Unreadable as error:
            yield new, error
        except UserError:
            writer.flush()
            raise
        else:
            yield new, None
    writer.flush()


def _make_writer(
    corpus: Path, make_encoder: Callable[[], Encoder | None], segment: int
) -> SegmentWriter:
    return SegmentWriter(corpus, make_encoder(), segment)


def _read_task(writer: SegmentWriter, todo: Sequence[NewSource]) -> list[Read]:
    return list(read_all(writer, todo))


def _tasks(todo: Sequence[NewSource]) -> Iterator[list[NewSource]]:
    """Group sources so that a segment of a group is not too small."""
    group: list[NewSource] = []
    size = 0
    for new in todo:
        group.append(new)
        size += new.source.path.stat().st_size
        if size >= TASK_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
