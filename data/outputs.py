"""Writes output files: whole or not at all, through links, with their permissions.

A device, a pipe or standard output cannot be replaced, and is written to directly.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from turngraph.configs.user_error import UserError

STANDARD = (1, 2)
"""File descriptors of standard output and standard error."""
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def to_disk(path: Path) -> None:
    """Flush a file, or a folder's entries, to the disk, so that it survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_file(path: str | Path, private: bool = False) -> Iterator[IO[str]]:
    """Open a text file for writing that appears under its name only when it is complete.

    A link stays, and the file that it leads to is replaced. The new file keeps the permissions and
    the owner of the old one. A device or a pipe is written to as it is. Lone surrogates, as in
    names of files that are not UTF-8, are written as ``\\udc80``.

    Args:
        path: path of the file; its folder is made if it is missing.
        private: if the file is new or was empty, only its owner may read it.

    Raises:
        UserError: the path is a folder or cannot be written.
    """
    path = Path(path)
    with writing(path):
        stream = open_stream(path)
        target, partial = Path(os.path.realpath(path)), None
        if stream is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = partial_of(target)
            stream = open(os.open(partial, NEW_FILE, 0o600 if private else 0o666), "wb")  # noqa: SIM115
    try:
        with writing(path, inside=True):
            with io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace") as file:
                yield file
                file.flush()
                if partial is not None:
                    _keep_permissions(target, file.fileno(), private)
                    os.fsync(file.fileno())
            if partial is not None:
                os.replace(partial, target)
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def partial_of(path: Path) -> Path:
    """Return a new path beside an output file, for its content while it is incomplete."""
    return path.with_name(f".{secrets.token_hex(4)}.partial")


@contextmanager
def writing(path: str | Path, inside: bool = False) -> Iterator[None]:
    """Turn an ``OSError`` in writing a file into a UserError that names the file.

    Args:
        path: path of the file.
        inside: the block also does other things; their errors, which name another file, are not
            changed.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of the pipe has stopped: no error
        raise
    except OSError as error:
        is_own = error.filename is None or str(error.filename).endswith(".partial")
        if inside and not is_own:
            raise
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def is_stream(path: str | Path) -> bool:
    """Whether a path is written to as it is: a device, a pipe, or where standard output goes.

    Raises:
        OSError: no file can have this name.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    if stat.S_ISREG(status.st_mode):
        return _standard(status) is not None
    return not stat.S_ISDIR(status.st_mode)


def is_standard_output(path: str | Path) -> bool:
    """Return whether a path leads to where standard output goes, as ``/dev/stdout`` does."""
    with suppress(OSError):
        return _standard(os.stat(path)) == 1
    return False


def open_stream(path: str | Path) -> IO[bytes] | None:
    """Open a device, a pipe, or standard output under a name that it has; None for all others.

    Raises:
        OSError: it cannot be opened, or is a folder.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not is_stream(path):
        return None
    number = _standard(os.stat(path))
    if number is None:
        return open(path, "wb")
    if sys.stdout is not None:
        sys.stdout.flush()
    # another opening of the same file would begin at its start, and write over what comes first
    return open(os.dup(number), "wb")


def _standard(status: os.stat_result) -> int | None:
    """Return the descriptor of standard output or error that leads to a file, if one does."""
    for number in STANDARD:
        with suppress(OSError):  # this stream is closed
            if os.path.samestat(status, os.fstat(number)):
                return number
    return None


def _keep_permissions(old: Path, number: int, private: bool) -> None:
    """Give a new file the permissions and owner of the one that it replaces, if there is one."""
    try:
        before = os.stat(old)
    except FileNotFoundError:
        return
    with suppress(PermissionError):  # only root gives files away
        os.fchown(number, before.st_uid, before.st_gid)
    if before.st_size or not private:
        os.fchmod(number, stat.S_IMODE(before.st_mode) & 0o777)
