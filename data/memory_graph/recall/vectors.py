"""The vectors of a memory graph: of objects' names, and of facts' texts, at one revision.

They are made when they are asked for, in batches, and kept in ``<db>.derived/``. Killed in between,
the next process goes on where this one stopped.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.derived_files import State, record_state, shows
from turngraph.data.memory_graph.recall.vector_matrix import Row, VectorMatrix
from turngraph.data.memory_graph.record.fact_texts import changed_facts, changed_names

logger = logging.getLogger(__name__)

NAMES, FACTS = "names", "facts"
BATCH = 512
SAVE_EVERY = 8192
"""Rows after which a long run is written down, so that little is lost if it is killed."""
SAVE_FROM = 256
"""Fewer new rows than this stay in memory: they are quickly made again."""
MAX_CHARS = 4000
"""No embedder reads more of an episode, and cutting megabytes into tokens takes minutes."""
PROBE = "The quick brown fox jumps over the lazy dog."
SAME = 0.99
"""Cosine from which two vectors of the probe are by the same embedder."""

Changed = Callable[[sqlite3.Connection, int], Iterator[tuple[int, str]]]


class Vectors:
    """Names and facts as vectors.

    Args:
        db: the record; ``refresh`` reads it, inside the caller's read transaction.
        folder: ``<db>.derived``.
        embed: texts to unit vectors.
        writable: False keeps what is missing in memory.
    """

    def __init__(
        self, db: sqlite3.Connection, folder: Path, embed: Embed, writable: bool = True
    ) -> None:
        self.db, self.embed = db, embed
        self.names = VectorMatrix(folder / NAMES, writable)
        self.facts = VectorMatrix(folder / FACTS, writable)
        self._seen = {NAMES: State(), FACTS: State()}
        self._probe = np.asarray(embed([PROBE])[0], dtype=np.float32)
        for matrix in (self.names, self.facts):
            self._check(matrix)

    def _check(self, matrix: VectorMatrix) -> None:
        """Start again where another embedder made the vectors."""
        probe = np.array(matrix.manifest["probe"], dtype=np.float32)
        same = len(probe) == len(self._probe) and probe @ self._probe >= SAME
        if matrix.count and not same:
            if matrix.writable:
                logger.warning("%s: by another embedder, vectors are made again", matrix.folder)
            else:
                logger.info("%s: by another embedder, not used and not changed", matrix.folder)
            matrix.clear()
        self._seen[matrix.folder.name] = State.told_by(matrix.manifest)

    @property
    def revision(self) -> int:
        """Up to which revision of the record everything has its vector."""
        return min(state.revision for state in self._seen.values())

    def refresh(self) -> int:
        """Bring the vectors to the record's revision, which is returned."""
        state = record_state(self.db)
        for matrix, changed in ((self.names, changed_names), (self.facts, changed_facts)):
            self._refresh(matrix, changed, state)
        return state.revision

    def _refresh(self, matrix: VectorMatrix, changed: Changed, state: State) -> None:
        name = matrix.folder.name
        if matrix.is_outdated():  # by another process
            matrix.reload()
            self._check(matrix)
        since = self._seen[name]
        if since == state:
            return
        if not shows(self.db, since):  # of another record, that this one was put in place of
            matrix.clear()
            since = State()
        if since.revision < 0:
            matrix.drop(self._strange(matrix, changed))
        else:
            matrix.drop(self._removed(name, since.revision))
        made = self._embed(matrix, changed(self.db, since.revision), since)
        self._seen[name] = state
        if matrix.unsaved >= SAVE_FROM or matrix.erases:
            # who only asks does not wait for an index that others have let grow old
            matrix.save(state, self._probe, index=made >= SAVE_EVERY)

    def _strange(self, matrix: VectorMatrix, changed: Changed) -> np.ndarray:
        """Keys of rows, left by a process that was killed, of which the record has nothing."""
        keys = matrix.keys
        if not len(keys):
            return keys
        return np.setdiff1d(keys, [key for key, _ in changed(self.db, -1)])

    def _removed(self, name: str, since: int) -> np.ndarray:
        sql = "SELECT kind, id FROM removed WHERE revision > ?"
        rows = self.db.execute(sql, (since,)).fetchall()
        if name == NAMES:
            keys = [number for kind, number in rows if kind == 0]
        else:
            keys = [2 * number + kind for kind, number in rows]
        return np.array(keys, dtype=np.int64)

    def _embed(self, matrix: VectorMatrix, texts: Iterable[tuple[int, str]], since: State) -> int:
        """Make the vectors of texts that have none or another; how many those were."""
        new = (
            (Row(key, found), text)
            for key, text in texts
            if (found := digest(text)) != matrix.hash_of(key)
        )
        made = 0
        with tqdm(desc=f"vectors of {matrix.folder.name}", unit="text", delay=2) as bar:
            while batch := list(islice(new, BATCH)):
                rows, parts = zip(*batch, strict=True)
                matrix.put(rows, self.embed([part[:MAX_CHARS] for part in parts]))
                made += len(rows)
                bar.update(len(rows))
                if matrix.unsaved >= SAVE_EVERY:
                    matrix.save(since, self._probe, index=True)
        return made

    def save(self) -> None:
        """Write what is only in memory."""
        for matrix in (self.names, self.facts):
            name = matrix.folder.name
            if self._seen[name].revision >= 0:  # forgotten since they were made
                matrix.drop(self._removed(name, self._seen[name].revision))
            if matrix.unsaved:
                matrix.save(self._seen[name], self._probe)


def digest(text: str) -> int:
    """Tells a text that has its vector from one that was changed; a signed 64-bit number."""
    found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found, "little", signed=True)


def purge(folder: Path, facts: Iterable[int], nodes: Iterable[int]) -> None:
    """Erase what was derived from forgotten items, in the files; call it after the commit.

    Args:
        folder: ``<db>.derived``.
        facts: keys of forgotten facts.
        nodes: ids of forgotten objects.
    """
    for name, keys in ((NAMES, nodes), (FACTS, facts)):
        keys = np.fromiter(keys, dtype=np.int64)
        if not (folder / name).is_dir():
            continue
        saved = False
        while not saved:  # another process may write at the same moment
            matrix = VectorMatrix(folder / name)
            matrix.drop(keys)
            state = State.told_by(matrix.manifest)
            saved = matrix.save(state, matrix.manifest["probe"], wait=True)
