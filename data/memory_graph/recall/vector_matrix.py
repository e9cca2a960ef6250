"""Stores unit vectors by key in files; finds the nearest rows exactly or approximately.

Rows are float16 and only appended. A row that was dropped or replaced is overwritten with zeros, in
the files too. ``manifest.json`` has the number of valid rows; further rows, which a killed process
wrote, are ignored.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.recall.derived_files import (
    MANIFEST,
    Manifest,
    State,
    locked,
    write_json,
)
from turngraph.data.memory_graph.recall.hub_vectors import MIN_HUB_ROWS, HubVectors
from turngraph.data.memory_graph.recall.neighbour_index import NeighbourIndex
from turngraph.data.memory_graph.recall.ranking import largest
from turngraph.data.memory_graph.recall.vector_files import (
    DROPPED,
    UNKNOWN,
    is_labelled,
    mapped,
    parse_manifest,
    sync,
)

with extra("memory", "memory graphs need"):
    import numkong

logger = logging.getLogger(__name__)

SAMPLED = 100  # one row in so many is in the sample that checks the index
CHUNK = 1024  # rows that are gathered at once, which fit into the processor's cache
NO_GENERATION = -1  # generation of a matrix that has not been read


class Row(NamedTuple):
    """Label of a row.

    Args:
        key: fact key or node id.
        hash: hash of the text.
    """

    key: int
    hash: int


def inner_products(query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the inner product of each row with a query, float32 [n].

    Args:
        query: float16 [width].
        rows: float16 [n, width].
    """
    return np.asarray(numkong.dot(query, rows), np.float32)


class VectorMatrix:
    """A matrix of unit vectors with its own folder.

    Args:
        folder: folder of the files; it need not exist.
        writable: whether to write new rows to files; otherwise they stay in memory.
    """

    def __init__(self, folder: Path, writable: bool = True) -> None:
        self.folder, self.writable = folder, writable
        self.manifest: Manifest = dict(UNKNOWN)
        self.hub_vectors = HubVectors()
        self._copied: int | None = None  # generation of the rows in ``hub_vectors``
        self.neighbours = NeighbourIndex(folder, NO_GENERATION, 0)
        self._parsed: tuple[bytes | None, Manifest] = None, dict(UNKNOWN)
        self.reload()

    def _path(self, kind: str, generation: int | None = None) -> Path:
        generation = self.manifest["generation"] if generation is None else generation
        return self.folder / f"{kind}-{generation}"

    def read_manifest(self) -> Manifest:
        """Read the manifest that is now in the folder; another process may have written it."""
        try:
            written = (self.folder / MANIFEST).read_bytes()
            if written != self._parsed[0]:  # read before every question, and seldom changed
                self._parsed = written, parse_manifest(written)
            return dict(self._parsed[1])
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (ValueError, KeyError, TypeError, OSError):
            logger.warning("%s is corrupt, vectors will be recomputed", self.folder / MANIFEST)
        return dict(UNKNOWN)

    def is_outdated(self) -> bool:
        """Return whether the files were written or deleted since they were read."""
        return bool(self.read_manifest()["serial"] != self.manifest["serial"])

    def reload(self) -> None:
        """Load the files' rows and drop the rows that only this process has."""
        self.manifest = self.read_manifest()
        count, width = self.manifest["count"], self.manifest["width"]
        try:
            settled = mapped(self._path("rows"), "f2", (count, width))
            labels = mapped(self._path("labels"), "i8", (count, 2))
            if not is_labelled(labels):
                raise ValueError("a label has an impossible key")
        except (ValueError, OSError):
            if self.is_outdated():  # another process has just written other files
                self.reload()
                return
            logger.warning("%s is corrupt, vectors will be recomputed", self.folder)
            self.clear()
        else:
            self._use(settled, np.array(labels))

    def _use(self, settled: np.ndarray, labels: np.ndarray) -> None:
        self._settled, self.labels = settled, labels
        self.count, self.width = map(int, settled.shape)
        self._tail = np.empty((0, self.width), dtype=np.float16)
        self._row = np.full(1, -1, dtype=np.int32)  # by key
        live = np.flatnonzero(labels[:, 0] != DROPPED)
        self._make_room(int(labels[live, 0].max(initial=0)))
        self._row[labels[live, 0]] = live
        self._to_erase: list[int] = []
        self._hub_rows: tuple[np.ndarray, np.ndarray] | None = None
        if self._copied != self.manifest["generation"]:  # row indices change with the generation
            self.hub_vectors.clear()
        generation = self.manifest["generation"]
        if not self.neighbours.is_newest(generation, self.width):
            self.neighbours = NeighbourIndex(self.folder, generation, self.width)

    def _make_room(self, key: int) -> None:
        if key >= len(self._row):
            more = key + key // 10 + 64 - len(self._row)
            self._row = np.pad(self._row, (0, more), constant_values=-1)

    @property
    def keys(self) -> np.ndarray:
        """Keys of the rows that were neither dropped nor replaced; int64."""
        keys = self.labels[: self.count, 0]
        return np.asarray(keys[keys != DROPPED])

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """Return the row index of every key, -1 if it has none; int64.

        For a large read-only array of keys, as a cached hub has, the result is cached.
        """
        if self._hub_rows and self._hub_rows[0] is keys:
            return self._hub_rows[1]
        rows = self._rows(keys)
        if len(keys) >= MIN_HUB_ROWS and not keys.flags.writeable:
            self._hub_rows = keys, rows
        return rows

    def _rows(self, keys: np.ndarray) -> np.ndarray:
        keys = np.asarray(keys, dtype=np.int64)
        known = (keys >= 0) & (keys < len(self._row))
        rows: np.ndarray = self._row[np.where(known, keys, 0)]
        return np.where(known, rows, -1).astype(np.int64)

    def hash_of(self, key: int) -> int | None:
        """Return the hash of the text whose vector a key has; None if it has none."""
        row = int(self.rows(np.array([key]))[0])
        return None if row < 0 else int(self.labels[row, 1])

    def put(self, labels: Sequence[Row], vectors: np.ndarray) -> None:
        """Append rows and drop the keys' older rows.

        Args:
            labels: labels of the vectors, each key once.
            vectors: unit vectors, [len(labels), width].

        Raises:
            UserError: the width differs from that of the existing rows.
        """
        if not len(labels):
            return
        if self.width and vectors.shape[1] != self.width:
            widths = f"the new vectors have width {vectors.shape[1]}, the old ones {self.width}"
            raise UserError(f"{self.folder}: {widths}")
        self.width = vectors.shape[1]
        keys = np.array([label.key for label in labels], dtype=np.int64)
        self.drop(keys)
        self._make_room(int(keys.max()))
        used = self.count - len(self._settled)
        if used + len(keys) > len(self._tail):
            grown = np.zeros((2 * (used + len(keys)), self.width), dtype=np.float16)
            if used:
                grown[:used] = self._tail[:used]
            self._tail = grown
        self._tail[used : used + len(keys)] = vectors
        if self.count + len(keys) > len(self.labels):
            more = self.count // 10 + 2 * len(keys)
            self.labels = np.pad(self.labels, ((0, more), (0, 0)))
        self.labels[self.count : self.count + len(keys)] = labels
        self._row[keys] = np.arange(self.count, self.count + len(keys))
        self.count += len(keys)

    def drop(self, keys: np.ndarray) -> None:
        """Zero the rows of keys; the next ``save`` zeroes them in the files."""
        rows = self.rows(keys)
        self._hub_rows = None
        for row in rows[rows >= 0].tolist():
            self._row[self.labels[row, 0]] = -1
            self.labels[row] = DROPPED, 0
            if row < len(self._settled):
                self._to_erase.append(row)
            else:
                self._tail[row - len(self._settled)] = 0

    def clear(self) -> None:
        """Drop all rows; the next ``save`` drops them from the files."""
        kept = {name: self.manifest[name] for name in ("serial", "generation")}
        self.manifest = dict(UNKNOWN) | kept
        self.manifest["generation"] += 1
        self._use(np.empty((0, 0), np.float16), np.empty((0, 2), np.int64))

    @property
    def must_erase(self) -> bool:
        """Whether rows are still to be zeroed in the files."""
        return bool(self._to_erase)

    @property
    def num_unsaved(self) -> int:
        """Number of rows that are added or dropped in memory but not in the files."""
        return self.count - len(self._settled) + len(self._to_erase)

    def save(
        self,
        state: State,
        probe: Iterable[float],
        *,
        wait: float = 0.0,
        index: bool = False,
    ) -> bool:
        """Write the changes unless another process is writing or has written meanwhile.

        Args:
            state: state of the record that the rows represent.
            probe: vector of a known text, which identifies the encoder.
            wait: seconds to wait until another process has finished writing.
            index: whether to update the index of neighbours if it is outgrown.

        Returns:
            Whether the changes were written.
        """
        if not self.writable:
            return False
        with locked(self.folder, wait) as is_mine:
            if not is_mine or self.is_outdated():
                return False
            if not self.manifest["serial"]:  # no readable files
                self.manifest["generation"] = secrets.randbits(48)
            self.manifest |= {"serial": 1 + secrets.randbits(48), "width": self.width}
            self._erase()
            if self.count > 1000 and len(self.keys) < self.count / 2:
                self._compact()
            else:
                self._append()
            self.manifest |= state._asdict() | {"count": self.count, "probe": [*map(float, probe)]}
            write_json(self.folder / MANIFEST, self.manifest)
            self._reload_and_clean()
            if index and self.neighbours.is_outgrown(self.count):
                self.neighbours.extend(self._settled)
                self.reload()
        return True

    def _erase(self) -> None:
        if not self.must_erase:
            return
        self.neighbours.erase(self._to_erase)
        with self._path("rows").open("r+b") as rows, self._path("labels").open("r+b") as labels:
            for row in self._to_erase:
                rows.seek(row * 2 * self.width)
                rows.write(bytes(2 * self.width))
                labels.seek(row * 16)
                labels.write(np.array([DROPPED, 0], np.int64).tobytes())
            sync(rows, labels)

    def _append(self) -> None:
        begin = len(self._settled)
        rows = self._tail[: self.count - begin]
        for kind, size, array in (
            ("rows", 2 * self.width, rows),
            ("labels", 16, self.labels[begin : self.count]),
        ):
            path = self._path(kind)
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.truncate(begin * size)  # cut off rows that a killed process left
                file.seek(begin * size)
                file.write(array.tobytes())
                sync(file)

    def _compact(self) -> None:
        """Write only the live rows, as a new generation of files."""
        live = np.flatnonzero(self.labels[: self.count, 0] != DROPPED)
        generation = self.manifest["generation"] + 1
        with self._path("rows", generation).open("wb") as file:
            for begin in range(0, len(live), CHUNK):
                file.write(self.gather(live[begin : begin + CHUNK]).tobytes())
            sync(file)
        with self._path("labels", generation).open("wb") as file:
            file.write(self.labels[live].tobytes())
            sync(file)
        self.manifest["generation"], self.count = generation, len(live)

    def _reload_and_clean(self) -> None:
        """Map the written files; delete those of older generations and indexes."""
        self.reload()
        generation = self.manifest["generation"]
        for path in self.folder.glob("*-*"):
            kind, of_generation = path.name.split("-")[:2]
            # a process that was killed while writing an index leaves a second or a partial one
            second = kind.endswith("index") and path != self.neighbours.path
            if of_generation != str(generation) or second:
                path.unlink(missing_ok=True)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Return rows by index, float16 [k, width]."""
        out = np.empty((len(rows), self.width), dtype=np.float16)
        late = rows >= len(self._settled)
        if not len(rows):
            return out
        if not late.any():
            return np.take(self._settled, rows, axis=0, out=out, mode="clip")
        out[late] = self._tail[rows[late] - len(self._settled)]
        if not late.all():
            out[~late] = self._settled[rows[~late]]
        return out

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """Return the vector of every key, float32 [k, width]; zeros where it has none."""
        rows = self.rows(keys)
        out = np.zeros((len(rows), self.width), dtype=np.float32)
        out[rows >= 0] = self.gather(rows[rows >= 0])
        return out

    def dot(self, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Return the inner product of each row with a query; float32 [k].

        Args:
            rows: row indices.
            query: unit vector, float16 [width].
        """
        scores = np.empty(len(rows), dtype=np.float32)
        for begin in range(0, len(rows), CHUNK):
            part = slice(begin, begin + CHUNK)
            scores[part] = inner_products(query, self.gather(rows[part]))
        return scores

    def copy_hub(self, rows: np.ndarray) -> None:
        """Copy rows into ``hub_vectors``, except those that are only in memory."""
        self.hub_vectors.copy(rows[rows < len(self._settled)], self.gather)
        self._copied = self.manifest["generation"]

    def dot_all(self, query: np.ndarray, begin: int = 0) -> np.ndarray:
        """Return the inner product of every row from ``begin`` on with a query; float32."""
        scores = np.empty(self.count - begin, dtype=np.float32)
        parts = (self._settled[begin:], self._tail[max(begin - len(self._settled), 0) :])
        at = 0
        for part in parts:
            part = part[: len(scores) - at]
            if len(part):
                scores[at : at + len(part)] = inner_products(query, part)
            at += len(part)
        return scores

    def nearest(self, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys and inner products of the ``k`` rows closest to a query, ties by key.

        Up to about 20,000 rows the search is exact. For more rows an approximate index is searched,
        and rows that are not in the index yet are searched exactly. If a sample of rows shows that
        the index missed one, all rows are searched exactly.

        Args:
            query: unit vector, float16 [width].
            k: maximum number of rows.
        """
        if not self.count:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        near = self.neighbours.search(query, k)
        late = self.neighbours.num_rows if len(near) else 0
        scores = self.dot(near, query)
        if self._overlooked(near, scores, query, k):
            near, scores, late = near[:0], scores[:0], 0
        rows = np.concatenate([near, np.arange(late, self.count)])
        scores = np.concatenate([scores, self.dot_all(query, late)])
        keys = self.labels[rows, 0]
        scores[keys == DROPPED] = -np.inf
        best = largest(scores, keys, k)
        best = best[keys[best] != DROPPED]
        return keys[best], scores[best]

    def _overlooked(self, near: np.ndarray, scores: np.ndarray, query: np.ndarray, k: int) -> bool:
        """Return whether a sample of the rows contains a closer one that the index missed.

        Clusters far from all others can become unreachable in a graph of neighbours.
        """
        if len(near) < k:
            return False
        sample = np.arange(0, self.neighbours.num_rows, SAMPLED)
        farthest = np.partition(scores, len(scores) - k)[len(scores) - k]
        closer = sample[self.dot(sample, query) > farthest]
        return not np.isin(closer, near).all()
