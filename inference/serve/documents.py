"""The documents of users, each in a folder of its own, as evidence."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
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
"""Bytes of all documents of a user."""
MAX_POOLS = 32
"""Users whose documents are kept in memory, as passages and as an index beside the shared evidence;
those of the user who asked longest ago are read again when they are needed."""
LEFT_SECONDS = 3600.0
"""Age at which what an upload writes first was left by a kill; servers may share a folder."""
ENDINGS = (".jsonl", *SUFFIXES)


def is_name(text: str) -> bool:
    """Tell whether a document may have a name: that of a visible file in one folder."""
    is_plain = text.isprintable() and not re.search(r'[/\\:*?"<>|]', text)
    return is_plain and text[:1] not in ("", ".", " ") and len(text.encode()) <= MAX_NAME


def _read(paths: Sequence[Path]) -> tuple[Evidence, ...]:
    """Read documents that were read before; what was told then is not told again.

    Raises:
        UserError: one cannot be read any more; the message has its name.
    """
    try:
        return read_limited(paths, ease=2)[0]
    except UserError as error:
        raise UserError(str(error).replace(f"{paths[0].parent}/", "")) from None


def _remove_left(folder: Path) -> None:
    """Remove what killed uploads have left in a folder."""
    for path in folder.glob(".*"):
        with suppress(FileNotFoundError):  # it has just become a document
            if path.stat().st_mtime < time.time() - LEFT_SECONDS:
                path.unlink()


class Documents:
    """What users have uploaded.

    Args:
        user_folder: returns the folder of a user, which is there.
        shared: evidence of all users.
        drop_index: takes a pool that has become another one.
    """

    def __init__(
        self,
        user_folder: Callable[[str], Path],
        shared: tuple[Evidence, ...],
        drop_index: Callable[[tuple[Evidence, ...]], None],
    ) -> None:
        self._user_folder, self.shared, self._drop_index = user_folder, shared, drop_index
        self._pools: OrderedDict[str, tuple[Evidence, ...]] = OrderedDict()
        self._lock = Lock()
        self._cleaned: set[str] = set()

    @property
    def num_pools(self) -> int:
        """Number of users whose documents are in memory."""
        return len(self._pools)

    def pool(self, user: str) -> tuple[Evidence, ...]:
        """Return the evidence of a user: the shared one and the user's own."""
        with self._lock:
            if (pool := self._pools.get(user)) is None:
                if not (paths := self._paths(user)):
                    return self.shared
                pool = self._pools[user] = join_pools(self.shared, _read(paths))
            self._pools.move_to_end(user)
            if len(self._pools) > MAX_POOLS:
                self._forget_pool(next(iter(self._pools)))
            return pool

    def listed(self, user: str) -> list[Json]:
        """Return name and size of each document of a user."""
        found: list[Json] = []
        for path in self._paths(user):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                found.append({"name": path.name, "bytes": path.stat().st_size})
        return found

    def add(self, user: str, name: str, content: bytes) -> Json:
        """Keep a document of a user, in place of one of the same name.

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
        folder = self._folder(user)
        trial = folder / f".{uuid4().hex}{suffix}"
        try:
            trial.write_bytes(content)
            trial.chmod(0o600)
            try:
                pool, warnings = read_limited([trial])
            except UserError as error:
                raise UserError(str(error).replace(str(trial), name)) from None
            if not pool:
                raise UserError(f"{name}: no passage in it")
            with self._lock:
                self._check_room(user, name, len(content))  # others may have come meanwhile
                trial.replace(folder / name)
                self._forget_pool(user)
        finally:
            trial.unlink(missing_ok=True)
        told = [warning.replace(str(trial), name) for warning in warnings]
        return {"name": name, "num_passages": len(pool), "warnings": told}

    def _check_room(self, user: str, name: str, num_bytes: int) -> None:
        others = sum(int(one["bytes"]) for one in self.listed(user) if one["name"] != name)
        if others + num_bytes > MAX_BYTES:
            raise UserError(
                f"{name}: {num_bytes} bytes, beside {others} of other documents; a user may have"
                f" {MAX_BYTES}: delete some"
            )

    def remove(self, user: str, name: str) -> None:
        """Delete a document of a user.

        Raises:
            NotFound: there is none of that name.
        """
        if not is_name(name):
            raise NotFound(name)
        with self._lock:
            try:
                (self._folder(user) / name).unlink()
            except FileNotFoundError:
                raise NotFound(name) from None
            self._forget_pool(user)

    def _forget_pool(self, user: str) -> None:
        pool = self._pools.pop(user, self.shared)
        if pool is not self.shared:
            self._drop_index(pool)

    def _folder(self, user: str) -> Path:
        path = self._user_folder(user) / "documents"
        path.mkdir(mode=0o700, exist_ok=True)
        if user not in self._cleaned:
            self._cleaned.add(user)
            _remove_left(path)
        return path

    def _paths(self, user: str) -> list[Path]:
        """Return the documents of a user, without those that are being written."""
        return sorted(p for p in self._folder(user).iterdir() if not p.name.startswith("."))
