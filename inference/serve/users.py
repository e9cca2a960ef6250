"""Who may ask a server: bearer tokens, of which a file keeps the hashes."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
from pathlib import Path

from turngraph.data.outputs import whole_file

logger = logging.getLogger("serve")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names of users; each is the name of a folder, too."""
LOCAL = "local"
"""The user of a server without a file of tokens."""


class Users:
    """The users of a server; a changed file of tokens is read again at the next request.

    Args:
        path: file with one user a line, ``NAME SHA256``; None: everybody is ``local``.

    Raises:
        ValueError: the file cannot be read, or a line of it is wrong.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        self._read = None if self.path is None else _state(self.path)
        self._hashes = {} if self.path is None else read_tokens(self.path)

    def user_of(self, header: str | None) -> str | None:
        """Return whose token an ``Authorization`` header has; None: nobody's."""
        if self.path is None:
            return LOCAL
        self._read_again(self.path)
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        given = _hash(token.strip())
        found = [user for user, known in self._hashes.items() if hmac.compare_digest(known, given)]
        return found[0] if found else None

    def _read_again(self, path: Path) -> None:
        """Read the file if it has changed; one that cannot be read changes nothing."""
        if (state := _state(path)) == self._read:
            return
        self._read = state
        try:
            self._hashes = read_tokens(path)
        except ValueError as error:
            logger.error("%s; the tokens before are still those that are known", error)


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what differs when a file was changed or replaced; None: it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_tokens(path: Path) -> dict[str, str]:
    """Return the hash of each user's token.

    Raises:
        ValueError: the file cannot be read, or a line of it is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ValueError(f"{path}: {reason}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, known = line.partition(" ")
        if not NAME.fullmatch(name) or not re.fullmatch(r"[0-9a-f]{64}", known.strip()):
            raise ValueError(f"{path}, line {number}: must be a user's name and a SHA-256")
        if name in found:
            raise ValueError(f"{path}, line {number}: user {name} has a token already")
        found[name] = known.strip()
    if not found:
        raise ValueError(f"{path}: no user in it; turngraph serve --add_user NAME --tokens {path}")
    return found


def add_user(path: str | Path, name: str) -> str:
    """Give a user a new token, in place of one that they have.

    Returns:
        The token, which is kept nowhere.

    Raises:
        ValueError: the name is no name, or the file cannot be read or written.
    """
    path = Path(path)
    if not NAME.fullmatch(name):
        raise ValueError(f"user {name!r}: letters, digits, - and _, 64 at most")
    known = read_tokens(path) if path.exists() and path.stat().st_size else {}
    token = secrets.token_urlsafe(32)
    known[name] = _hash(token)
    with whole_file(path, private=True) as file:
        file.writelines(f"{user} {digest}\n" for user, digest in known.items())
    os.chmod(path, 0o600)
    return token


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
