"""Computes and caches the vectors of a memory graph: of objects' names and of facts' texts.

They are computed on request, in batches, and saved in ``<db>.derived/``. If the process is killed,
the next one resumes.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from turngraph.configs.progress import progress
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.derived_files import State, record_state, shows
from turngraph.data.memory_graph.recall.vector_matrix import Row, VectorMatrix
from turngraph.data.memory_graph.record.fact_texts import changed_facts, changed_names
from turngraph.data.memory_graph.record.patience import Patience

logger = logging.getLogger(__name__)

NAMES, FACTS = "names", "facts"
BATCH = 512
SAVE_EVERY = 8192
"""Number of new rows after which a long run saves, so that little is lost if it is killed."""
SAVE_FROM = 256
"""Fewer new rows than this are only kept in memory, as they are quickly recomputed."""
MAX_CHARS = 4000
"""Characters of a text that are embedded; encoders read no more, and tokenising would be slow."""
PROBE = "The quick brown fox jumps over the lazy dog."
SAME = 0.99
"""Smallest cosine of two vectors of the probe that are taken to be by the same encoder."""

Changed = Callable[[sqlite3.Connection, int], Iterator[tuple[int, str]]]


class Vectors:
    """The vectors of objects' names and of facts' texts.

    Args:
        db: the record; ``refresh`` reads it, inside the caller's read transaction.
        folder: ``<db>.derived``.
        embed: returns unit vectors of texts.
        writable: False keeps new vectors in memory.
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
        """Drop the vectors if another embedder made them."""
        probe = np.array(matrix.manifest["probe"], dtype=np.float32)
        same = len(probe) == len(self._probe) and probe @ self._probe >= SAME
        if matrix.count and not same:
            if matrix.writable:
                logger.warning("%s: by another embedder, vectors are recomputed", matrix.folder)
            else:
                logger.info("%s: by another embedder, not used and not changed", matrix.folder)
            matrix.clear()
        self._seen[matrix.folder.name] = State.of(matrix.manifest)

    @property
    def revision(self) -> int:
        """Revision of the record up to which every name and fact has its vector."""
        return min(state.revision for state in self._seen.values())

    def refresh(self) -> int:
        """Bring the vectors to the record's revision and return it."""
        state = record_state(self.db)
        for matrix, changed in ((self.names, changed_names), (self.facts, changed_facts)):
            self._refresh(matrix, changed, state)
        return state.revision

    def _refresh(self, matrix: VectorMatrix, changed: Changed, state: State) -> None:
        name = matrix.folder.name
        if matrix.is_outdated():  # another process has written
            matrix.reload()
            self._check(matrix)
        since = self._seen[name]
        if since == state:
            return
        if not shows(self.db, since):  # of another record, which this one replaced
            matrix.clear()
            since = State()
        if since.revision < 0:
            matrix.drop(self._strange(matrix, changed))
        else:
            matrix.drop(self._removed(name, since.revision))
        num_new = self._embed(matrix, changed(self.db, since.revision), since)
        self._seen[name] = state
        if matrix.num_unsaved >= SAVE_FROM or matrix.must_erase:
            # questions must not wait while an outdated index is rebuilt
            self._save(matrix, state, index=num_new >= SAVE_EVERY)

    def _strange(self, matrix: VectorMatrix, changed: Changed) -> np.ndarray:
        """Return keys of rows that are not in the record, which a killed process left."""
        keys = matrix.keys
        if not len(keys):
            return keys
        return np.setdiff1d(keys, [key for key, _ in changed(self.db, -1)])

    def _removed(self, name: str, since: int) -> np.ndarray:
        sql = "SELECT kind, id FROM removed WHERE revision > ?"
        rows = self.db.execute(sql, (since,)).fetchall()
        if name == NAMES:
            keys = [i for kind, i in rows if kind == 0]
        else:
            keys = [2 * i + kind for kind, i in rows]
        return np.array(keys, dtype=np.int64)

    def _embed(self, matrix: VectorMatrix, texts: Iterable[tuple[int, str]], since: State) -> int:
        """Compute the vectors of new and changed texts; return the number of them."""
        new = (
            (Row(key, found), text)
            for key, text in texts
            if (found := digest(text)) != matrix.hash_of(key)
        )
        num_new = 0
        with progress(None, f"vectors of {matrix.folder.name}", "texts", delay=2) as bar:
            while batch := list(islice(new, BATCH)):
                rows, parts = zip(*batch, strict=True)
                matrix.put(rows, self.embed([part[:MAX_CHARS] for part in parts]))
                num_new += len(rows)
                bar.update(len(rows))
                if matrix.num_unsaved >= SAVE_EVERY:
                    self._save(matrix, since, index=True)
        return num_new

    def save(self) -> None:
        """Write the rows that are only in memory."""
        for matrix in (self.names, self.facts):
            name = matrix.folder.name
            if self._seen[name].revision >= 0:  # forgotten since they were computed
                matrix.drop(self._removed(name, self._seen[name].revision))
            if matrix.num_unsaved:
                self._save(matrix, self._seen[name])

    def _save(self, matrix: VectorMatrix, state: State, index: bool = False) -> None:
        try:
            matrix.save(state, self._probe, index=index)
        except OSError as error:  # a full disk: the vectors can be made again
            reason = error.strerror
            logger.warning("%s: not written, kept in memory: %s", matrix.folder, reason)


def digest(text: str) -> int:
    """Return a text's hash, a signed 64-bit number, which changes with the text."""
    found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found, "little", signed=True)


def purge(folder: Path, facts: Iterable[int], nodes: Iterable[int], wait: float) -> None:
    """Erase the vectors of forgotten items in the files, after the commit that forgot them.

    Args:
        folder: ``<db>.derived``.
        facts: keys of forgotten facts.
        nodes: ids of forgotten objects.
        wait: seconds at most for other processes that write.

    Raises:
        ValueError: the files cannot be written, or other processes write all the time.
    """
    for name, keys in ((NAMES, nodes), (FACTS, facts)):
        dropped = np.fromiter(keys, dtype=np.int64)
        if not (folder / name).is_dir():
            continue
        patience = Patience(wait, f"{folder / name}: another process is writing to it")
        while True:
            matrix = VectorMatrix(folder / name)
            matrix.drop(dropped)
            state = State.of(matrix.manifest)
            if matrix.save(state, matrix.manifest["probe"], wait=wait):
                break
            if not patience.pause():  # or other processes write again and again
                raise ValueError(f"{folder / name}: may not be written")
