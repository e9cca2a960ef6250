"""The documents of users, each in a folder of its own, as evidence."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from threading import Lock
from uuid import uuid4

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import join_pools
from turngraph.data.sources.readers import SUFFIXES
from turngraph.data.types import Evidence
from turngraph.inference.serve.errors import NotFound
from turngraph.inference.serve.limited_reading import read_limited

MAX_NAME = 200
"""Bytes of a document's name; file systems allow 255."""
MAX_BYTES = 2**28
"""Most bytes of all documents of a user."""
MAX_DOCUMENTS = 1000
"""Most documents of a user; each question checks whether they have changed."""
MAX_POOLS = 32
"""Users whose documents are kept in memory, as passages and as an index beside the shared evidence;
the documents of the user who asked longest ago are dropped, and read again when needed."""
LEFT_SECONDS = 3600.0
"""Age in seconds from which an unfinished upload counts as left by a killed server; a younger one
may be of another server that shares the folder."""
ENDINGS = (".jsonl", *SUFFIXES)


def is_name(text: str) -> bool:
    """Tell whether a document may have this name: a visible file's, without a folder."""
    is_plain = text.isprintable() and not re.search(r'[/\\:*?"<>|]', text)
    return is_plain and text[:1] not in ("", ".", " ") and len(text.encode()) <= MAX_NAME


Read = tuple[Evidence, ...] | UserError
State = tuple[int, int, int]


def _read(path: Path) -> Read:
    """Read a document again; its warnings, which the upload has returned, are dropped.

    Returns:
        Its passages, or the error if it can no longer be read.
    """
    try:
        return read_limited([path], ease=2)[0]
    except UserError as error:
        return UserError(str(error).replace(f"{path.parent}/", ""))


def _state(path: Path) -> State:
    """Return values that change when a document is replaced."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _remove_left(folder: Path) -> None:
    """Remove what killed uploads have left in a folder."""
    for path in folder.glob(".*"):
        with suppress(FileNotFoundError):  # the upload has just finished
            if path.stat().st_mtime < time.time() - LEFT_SECONDS:
                rmtree(path) if path.is_dir() else path.unlink()


@dataclass
class _OfUser:
    """State of one user's documents in memory.

    Args:
        reading: held while a document is read; a user's documents are read one at a time.
        changing: held for a short time, while a document is added or removed.
        read: passages or error of each document, by its name and state.
        pool: evidence of the user; None: it must be joined again.
        states: names and states of its documents.
    """

    reading: Lock = field(default_factory=Lock)
    changing: Lock = field(default_factory=Lock)
    read: dict[tuple[str, State], Read] = field(default_factory=dict)
    pool: tuple[Evidence, ...] | None = None
    states: dict[str, State] = field(default_factory=dict)


class Documents:
    """Documents that users have uploaded; work for one user never makes another one wait.

    Args:
        user_folder: returns the folder of a user, which exists.
        shared: evidence of all users.
        prepare: makes the index of a new pool.
        drop_index: called with a pool that is no longer used.
    """

    def __init__(
        self,
        user_folder: Callable[[str], Path],
        shared: tuple[Evidence, ...],
        prepare: Callable[[tuple[Evidence, ...]], object],
        drop_index: Callable[[tuple[Evidence, ...]], object],
    ) -> None:
        self._user_folder, self.shared = user_folder, shared
        self._prepare, self._drop_index = prepare, drop_index
        self._held: OrderedDict[str, _OfUser] = OrderedDict()
        self._lock = Lock()
        self._cleaned: set[str] = set()

    @property
    def num_pools(self) -> int:
        """Number of users whose documents are in memory."""
        with self._lock:
            return sum(held.pool is not None for held in self._held.values())

    def _of(self, user: str) -> _OfUser:
        """Return a user's state; drop those of the users who asked longest ago, if too many."""
        out: list[_OfUser] = []
        with self._lock:
            state = self._held.setdefault(user, _OfUser())
            self._held.move_to_end(user)
            while len(self._held) > MAX_POOLS:
                out.append(self._held.popitem(last=False)[1])
        for dropped in out:
            self._forget_pool(dropped)
        return state

    def pool(self, user: str) -> tuple[Evidence, ...]:
        """Return the evidence of a user: the shared one and the user's own.

        Raises:
            UserError: a document cannot be read any more.
        """
        if not (states := self._states(user)):
            return self.shared
        held = self._of(user)
        if (pool := held.pool) is not None and held.states == states:
            return pool
        with held.reading:
            if not (states := self._states(user)):
                return self.shared
            if (pool := held.pool) is not None and held.states == states:
                return pool  # another thread has joined it meanwhile
            return self._join(user, held, states)

    def _join(self, user: str, held: _OfUser, states: dict[str, State]) -> tuple[Evidence, ...]:
        """Make the pool of a user; only new and changed documents are read."""
        folder, known = self._folder(user), held.read
        held.read = {
            document: known[document] if document in known else _read(folder / document[0])
            for document in states.items()
        }
        pools = list[tuple[Evidence, ...]]()
        for pool_or_error in held.read.values():
            if isinstance(pool_or_error, UserError):
                raise pool_or_error
            pools.append(pool_or_error)
        self._forget_pool(held)
        pool = join_pools(self.shared, *pools)
        self._prepare(pool)
        held.pool, held.states = pool, states
        return pool

    def listed(self, user: str) -> list[Json]:
        """Return name and size of each document of a user."""
        documents: list[Json] = []
        for path in self._paths(user):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                documents.append({"name": path.name, "bytes": path.stat().st_size})
        return documents

    def add(self, user: str, name: str, content: bytes) -> Json:
        """Store a document of a user; it replaces a document of the same name.

        Returns:
            Its name, the number of its passages, and warnings of what was not read.

        Raises:
            UserError: the name is not one of a readable file, the content cannot be read, or the
                user has too many bytes.
        """
        suffix = Path(name).suffix.lower()
        if suffix not in ENDINGS:
            raise UserError(f"a document's name must end with one of {', '.join(sorted(ENDINGS))}")
        if not is_name(name):
            raise UserError(
                "a document's name must begin with a letter, a digit or a sign, have none of "
                f'/ \\ : * ? " < > |, and at most {MAX_NAME} bytes'
            )
        self._check_room(user, name, len(content))  # before it is read, which may take long
        held, folder = self._of(user), self._folder(user)
        trial = folder / f".{uuid4().hex}" / name  # passages contain the file's name
        try:
            trial.parent.mkdir(mode=0o700)
            trial.write_bytes(content)
            trial.chmod(0o600)
            try:
                with held.reading:
                    pool, warnings = read_limited([trial])
            except UserError as error:
                raise UserError(str(error).replace(str(trial), name)) from None
            if not pool:
                raise UserError(f"{name}: no passage in it")
            with held.changing:
                self._check_room(user, name, len(content))  # again, after other uploads
                others = {one: read for one, read in held.read.items() if one[0] != name}
                held.read = {**others, (name, _state(trial)): pool}
                trial.replace(folder / name)
                self._forget_pool(held)
        finally:
            rmtree(trial.parent, ignore_errors=True)
        told = [warning.replace(str(trial), name) for warning in warnings]
        return {"name": name, "num_passages": len(pool), "warnings": told}

    def _check_room(self, user: str, name: str, num_bytes: int) -> None:
        others = [int(one["bytes"]) for one in self.listed(user) if one["name"] != name]
        if sum(others) + num_bytes > MAX_BYTES:
            raise UserError(
                f"{name}: {num_bytes} bytes, beside {sum(others)} of other documents; a user may"
                f" have {MAX_BYTES} bytes: delete a document"
            )
        if len(others) >= MAX_DOCUMENTS:
            raise UserError(f"{name}: a user may have {MAX_DOCUMENTS} documents: delete one")

    def remove(self, user: str, name: str) -> None:
        """Delete a document of a user.

        Raises:
            NotFound: there is none of that name.
        """
        if not is_name(name):
            raise NotFound(name)
        held = self._of(user)
        with held.changing:
            try:
                (self._folder(user) / name).unlink()
            except FileNotFoundError:
                raise NotFound(name) from None
            held.read = {one: read for one, read in held.read.items() if one[0] != name}
            self._forget_pool(held)

    def _forget_pool(self, held: _OfUser) -> None:
        pool, held.pool = held.pool, None
        if pool is not None:
            self._drop_index(pool)

    def _folder(self, user: str) -> Path:
        path = self._user_folder(user) / "documents"
        path.mkdir(mode=0o700, exist_ok=True)
        if user not in self._cleaned:
            self._cleaned.add(user)
            _remove_left(path)
        return path

    def _states(self, user: str) -> dict[str, State]:
        states = dict[str, State]()
        for path in self._paths(user):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                states[path.name] = _state(path)
        return states

    def _paths(self, user: str) -> list[Path]:
        """Return the documents of a user, without those that are being written."""
        return sorted(p for p in self._folder(user).iterdir() if not p.name.startswith("."))
