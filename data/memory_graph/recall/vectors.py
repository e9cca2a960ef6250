"""Computes and caches the vectors of a memory graph: of names, facts, and questions with chunks.

``refresh`` computes missing vectors in batches and saves them in ``<db>.derived/``. If the process
is killed, the next process resumes.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.derived_files import State, record_state, shows
from turngraph.data.memory_graph.recall.vector_matrix import Row, VectorMatrix
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.fact_texts import changed_facts, changed_names
from turngraph.data.memory_graph.record.patience import Patience
from turngraph.data.memory_graph.record.theme_rows import changed_questions

logger = logging.getLogger(__name__)

NAMES, FACTS, QUESTIONS = "names", "facts", "questions"
BATCH = 512
SAVE_EVERY = 8192
"""Number of new rows after which a long run saves, so that little is lost if it is killed."""
SAVE_FROM = 256
"""Fewer new rows than this are only kept in memory, as they are quickly recomputed."""
MAX_CHARS = 4000
"""Characters of a text that are embedded; encoders read no more, and tokenising would be slow."""
PROBE = "The quick brown fox jumps over the lazy dog."
SAME = 0.99
"""Two vectors of the probe with at least this cosine count as vectors of the same encoder."""

Changed = Callable[[Database, int], Iterator[tuple[int, str]]]


class Texts(NamedTuple):
    """The texts whose vectors one matrix holds.

    Args:
        changed: yields the key and the text of every text that was written after a revision.
        keys: by value of ``kind`` in the table ``removed``: (a, b), so that the key of a removed id
            is a * id + b.
    """

    changed: Changed
    keys: dict[int, tuple[int, int]]


TEXTS = {
    NAMES: Texts(changed_names, {0: (1, 0)}),
    FACTS: Texts(changed_facts, {0: (2, 0), 1: (2, 1)}),
    QUESTIONS: Texts(changed_questions, {2: (2, 0), 3: (2, 1)}),
}
"""The texts of each matrix, by the matrix's name. In ``questions``, the key of a utility question
is 2 * its id, and the key of a chunk that is a part of an episode is 2 * its id + 1. A chunk that
is a whole episode has no row there, as ``facts`` has the episode's vector."""


def removed_keys(db: Database, name: str, since: int) -> np.ndarray:
    """Return the keys of a matrix whose texts were removed from the record after a revision."""
    keys = TEXTS[name].keys
    rows = db.execute("SELECT kind, id FROM removed WHERE revision > ?", (since,)).fetchall()
    removed = [keys[kind][0] * id_ + keys[kind][1] for kind, id_ in rows if kind in keys]
    return np.array(removed, dtype=np.int64)


class Vectors:
    """The vectors of some of the texts of a memory graph, a matrix for each kind.

    Args:
        db: the record; ``refresh`` reads it, inside the caller's read transaction.
        folder: ``<db>.derived``.
        embed: returns unit vectors of texts.
        writable: False keeps new vectors in memory.
        kinds: names of the matrices.
    """

    def __init__(
        self,
        db: Database,
        folder: Path,
        embed: Embed,
        writable: bool = True,
        kinds: Sequence[str] = (NAMES, FACTS),
    ) -> None:
        self.db, self.embed = db, embed
        self.matrices = {name: VectorMatrix(folder / name, writable) for name in kinds}
        self._seen = {name: State() for name in kinds}
        self.probe = np.asarray(embed([PROBE])[0], dtype=np.float32)
        for matrix in self.matrices.values():
            self._check(matrix)

    @property
    def names(self) -> VectorMatrix:
        """Vectors of objects' names, by node id."""
        return self.matrices[NAMES]

    @property
    def facts(self) -> VectorMatrix:
        """Vectors of facts' texts, by fact key."""
        return self.matrices[FACTS]

    @property
    def questions(self) -> VectorMatrix:
        """Vectors of questions and of parts of texts; keys as in ``TEXTS``."""
        return self.matrices[QUESTIONS]

    def _check(self, matrix: VectorMatrix) -> None:
        """Drop the vectors of a matrix if another encoder computed them."""
        probe = np.array(matrix.manifest["probe"], dtype=np.float32)
        same = is_same(probe, self.probe)
        if matrix.count and not same:
            if matrix.writable:
                logger.warning("%s: vectors of another encoder are recomputed", matrix.folder)
            else:
                logger.info("%s: vectors of another encoder are not used", matrix.folder)
            matrix.clear()
        self._seen[matrix.folder.name] = State.of(matrix.manifest)

    @property
    def revision(self) -> int:
        """Revision of the record up to which every text has its vector."""
        return min(state.revision for state in self._seen.values())

    def num_missing(self) -> int:
        """Return how many texts of the record have no vector yet."""
        return sum(
            matrix.hash_of(key) is None
            for name, matrix in self.matrices.items()
            for key, _ in TEXTS[name].changed(self.db, self._seen[name].revision)
        )

    def refresh(self) -> int:
        """Bring the vectors to the record's revision and return it."""
        state = record_state(self.db)
        for name, matrix in self.matrices.items():
            self._refresh(matrix, TEXTS[name].changed, state)
        return state.revision

    def _refresh(self, matrix: VectorMatrix, changed: Changed, state: State) -> None:
        name = matrix.folder.name
        if matrix.is_outdated():  # another process has written
            matrix.reload()
            self._check(matrix)
        since = self._seen[name]
        if since == state:
            return
        if not shows(self.db, since):  # the vectors are those of a replaced record
            matrix.clear()
            since = State()
        if since.revision < 0:
            matrix.drop(self._strange(matrix, changed))
        else:
            matrix.drop(removed_keys(self.db, name, since.revision))
        num_new = self._embed(matrix, changed(self.db, since.revision), since)
        self._seen[name] = state
        if matrix.num_unsaved >= SAVE_FROM or matrix.must_erase:
            # questions must not wait while an outdated index is rebuilt
            self._save(matrix, state, index=num_new >= SAVE_EVERY)

    def _strange(self, matrix: VectorMatrix, changed: Changed) -> np.ndarray:
        """Return the keys of rows, left by a killed process, whose texts are not in the record."""
        keys = matrix.keys
        if not len(keys):
            return keys
        return np.setdiff1d(keys, [key for key, _ in changed(self.db, -1)])

    def _embed(self, matrix: VectorMatrix, texts: Iterable[tuple[int, str]], since: State) -> int:
        """Compute the vectors of new and changed texts; return the number of them."""
        new = (
            (Row(key, new_hash), text)
            for key, text in texts
            if (new_hash := digest(text)) != matrix.hash_of(key)
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
        for name, matrix in self.matrices.items():
            if self._seen[name].revision >= 0:  # drop texts that were forgotten since
                matrix.drop(removed_keys(self.db, name, self._seen[name].revision))
            if matrix.num_unsaved:
                self._save(matrix, self._seen[name])

    def _save(self, matrix: VectorMatrix, state: State, index: bool = False) -> None:
        try:
            matrix.save(state, self.probe, index=index)
        except OSError as error:  # such as a full disk; the vectors can be computed again
            reason = error.strerror
            logger.warning("%s: the vectors stay in memory: %s", matrix.folder, reason)


def is_same(probe: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two vectors of the probe are by the same encoder."""
    return len(probe) == len(other) and bool(probe @ other >= SAME)


def digest(text: str) -> int:
    """Return the hash of a text, a signed 64-bit number."""
    hash_bytes = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(hash_bytes, "little", signed=True)


def purge(db: Database, folder: Path, since: int, wait: float) -> None:
    """Erase the vectors of forgotten texts from the files, after the commit that forgot them.

    Args:
        db: the record.
        folder: ``<db>.derived``.
        since: the first revision whose deletions are still in the files.
        wait: seconds to wait for other processes that write.

    Raises:
        UserError: the files cannot be written, or other processes still write after ``wait``
            seconds.
    """
    for name in TEXTS:
        dropped = removed_keys(db, name, since - 1)
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
                raise UserError(f"{folder / name}: cannot be written now")
