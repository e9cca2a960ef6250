"""Users of a server, who are known by bearer tokens; a file has the hashes of the tokens."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.data.outputs import whole_file

logger = logging.getLogger("serve")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names of users; each is the name of a folder, too."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a process that has no room to open a file."""
LOCAL = "local"
"""The user of a server without a file of tokens."""


class Users:
    """The users of a server; changes of the file of tokens hold from the next request on.

    Args:
        path: file with one user a line, ``NAME SHA256``; None: everybody is ``local``.

    Raises:
        UserError: the file cannot be read, a line of it is wrong, or it has no user.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        self._content: bytes | str = ""
        self._users: dict[str, str] = {}
        if self.path is not None and (wrong := self._read(self.path)):
            raise UserError(wrong[0])

    def user_of(self, header: str | None) -> str | None:
        """Return the user whose token an ``Authorization`` header has; None: no user has it."""
        if self.path is None:
            return LOCAL
        for message in self._read(self.path):
            logger.error("%s", message)
        scheme, _, token = (header or "").partition(" ")
        return self._users.get(_hash(token.strip())) if scheme.lower() == "bearer" else None

    def _read(self, path: Path) -> list[str]:
        """Read the users if the file has changed; return a message for each wrong line, or none."""
        content: bytes | str
        try:
            content = path.read_bytes()
        except OSError as error:
            if error.errno in EXHAUSTED:
                return []  # keep the users read before
            content = f"{path}: {error.strerror}"
        if content == self._content:  # a file's time and size do not show every change
            return []
        self._content = content
        if isinstance(content, str):
            users, wrong = dict[str, str](), [content]
        else:
            users, wrong = parse_tokens(content, path)
        self._users = {token_hash: name for name, token_hash in users.items()}
        missing = f"{path}: no user in it; turngraph serve --add_user NAME --tokens {path}"
        return wrong or ([] if users else [missing])


def parse_tokens(content: bytes, path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the hash of each user's token, and a message for each wrong line.

    A user of two lines has no token: nobody can tell which of them was to be removed. Nor has one
    whose name differs from an earlier one's in case alone: some file systems give both one folder.
    """
    hashes, wrong, twice = dict[str, str](), list[str](), set[str]()
    spelled: dict[str, str] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, token_hash = line.partition(" ")
        if not NAME.fullmatch(name) or not re.fullmatch(r"[0-9a-f]{64}", token_hash.strip()):
            wrong.append(f"{path}, line {number}: must be a user's name and a SHA-256")
        elif name in hashes:
            wrong.append(f"{path}, line {number}: user {name} has a token already")
            twice.add(name)
        elif (other := spelled.setdefault(name.lower(), name)) != name:
            wrong.append(f"{path}, line {number}: user {name} differs in case alone from {other}")
        else:
            hashes[name] = token_hash.strip()
    return {name: token_hash for name, token_hash in hashes.items() if name not in twice}, wrong


def add_user(path: str | Path, name: str) -> str:
    """Give a user a new token, which replaces an old one; lines of other users stay as they are.

    Returns:
        The token, which is kept nowhere.

    Raises:
        UserError: the name is not valid, or the file cannot be read or written.
    """
    path = Path(path)
    if not NAME.fullmatch(name):
        raise UserError(f"user {name!r}: must have only letters, digits, - and _, 64 at most")
    try:
        content = path.read_bytes()
        lines = content.decode().splitlines()
    except FileNotFoundError:
        content, lines = b"", []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"{path}: {reason}") from None
    hashes, wrong = parse_tokens(content, path)
    if wrong:
        raise UserError(wrong[0])
    if alike := [one for one in hashes if one.lower() == name.lower() and one != name]:
        raise UserError(f"user {name!r} differs in case alone from {alike[0]}")
    token = secrets.token_urlsafe(32)
    others = [one for one in lines if one.partition(" ")[0] != name]
    with whole_file(path, private=True) as file:
        file.writelines(f"{line}\n" for line in (*others, f"{name} {_hash(token)}"))
    os.chmod(path, 0o600)
    return token


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
