"""Finds the documents of a folder, and names what is not read, such as links out of the folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from turngraph.data.sources.document import Unreadable

_SPECIAL = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


def find_files(
    folder: Path, suffixes: Collection[str]
) -> tuple[list[Path], list[Path], list[Unreadable]]:
    """Find the documents below a folder, by their names' endings, in the order of their names.

    A link is followed if it leads to a file of the folder that is not found without it.

    Args:
        folder: folder to look in, with its subfolders, except those that are links.
        suffixes: endings of the documents' names, in lower case.

    Returns:
        The documents, the files with other endings, and what cannot be read: links that lead
        nowhere, in circles, to folders or out of the folder, pipes, sockets, devices, and folders
        without permission.
    """
    refused: list[Unreadable] = []

    def no_permission(error: OSError) -> None:
        reason = error.strerror or str(error)
        refused.append(Unreadable(error.filename or folder, "cannot be read", reason))

    paths: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=no_permission):
        folders.sort()
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        paths += [Path(parent) / name for name in files + links]
    documents = {
        path for path in paths if path.suffix.lower() in suffixes or not os.path.isfile(path)
    }
    others = sorted(set(paths) - documents)
    read = {path.resolve() for path in documents if _is_file(path)}
    chosen = []
    for path in sorted(documents):
        reason = _refusal(path, folder.resolve(), read)
        if reason:
            refused.append(Unreadable(path, reason))
        else:
            read.add(path.resolve())
            chosen.append(path)
    return chosen, others, refused


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def _refusal(path: Path, folder: Path, read: Collection[Path]) -> str:
    """Return why a path is not read, "" if it is."""
    target = path
    if path.is_symlink():
        try:
            target = path.resolve(strict=True)
        except RuntimeError:
            return "a link that leads in a circle"
        except OSError:
            return "a link that leads nowhere"
        if not target.is_relative_to(folder):
            return "a link that leads out of the folder"
        if target in read:
            return "a link to a file that is read by itself"
    mode = target.stat().st_mode
    if stat.S_ISDIR(mode):
        return "a link to a folder"
    return next((what for is_kind, what in _SPECIAL.items() if is_kind(mode)), "")
