"""Reads the evidence of a chat: texts, passages, pools, documents and folders of documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.data.entities import find_entities
from turngraph.data.jsonlines import join_pools, read_pool
from turngraph.data.sources.pool import read_documents
from turngraph.data.sources.readers import SUFFIXES
from turngraph.data.types import Evidence

Item = str | Path | Evidence
"""One thing to read evidence from."""


def read_evidence(items: Iterable[Item]) -> tuple[Evidence, ...]:
    """Read one evidence pool out of several things, with entities found where none are given.

    Args:
        items: each a passage; a path of a pool (.jsonl), of a document, or of a folder of
            documents; or a text. A string is a path if it names an existing file or folder, or if
            it has no space and ends like a path (a slash, or the suffix of a file that can be
            read).

    Raises:
        UserError: a file cannot be read; the message names file, line and field.
    """
    pools: list[Sequence[Evidence]] = []
    texts: list[Evidence] = []
    for item in items:
        if isinstance(item, Evidence):
            texts.append(item)
        elif isinstance(item, Path) or _is_path(item):
            pools.append(_read(Path(item)))
        else:
            texts.append(Evidence(f"text#{len(texts)}", item, "text"))
    if texts:
        pools.append(texts)
    return tuple(find_entities(join_pools(*map(tuple, pools))))


def _is_path(text: str) -> bool:
    suffixes = (".jsonl", "/", *SUFFIXES)
    if " " not in text.strip() and text.lower().endswith(suffixes):
        return True
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or with a null character
        return False


def _read(path: Path) -> Sequence[Evidence]:
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        return read_documents(path)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    return read_pool(path)
