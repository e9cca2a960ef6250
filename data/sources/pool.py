"""Reads documents and folders of them as one evidence pool, and says what it read or skipped."""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.entities import count_entity_edges, find_entities, log_entities
from turngraph.data.jsonlines import join_pools, write_pool
from turngraph.data.sources.document import Unreadable, shown
from turngraph.data.sources.folder import find_files
from turngraph.data.sources.readers import SUFFIXES, read_document, with_ids
from turngraph.data.types import Evidence

logger = logging.getLogger(__name__)

NAMED_FILES = 5


def read_documents(*inputs: str | Path, strict: bool = False) -> list[Evidence]:
    """Read documents and folders as an evidence pool with entities.

    Args:
        inputs: each a document, or a folder, which is read with its subfolders.
        strict: raise at the first document of a folder that cannot be read, which is skipped
            otherwise; files of other kinds are always skipped.

    Raises:
        UserError: an input is missing or of another kind, or no file of a folder can be read.
        Unreadable: an input that is a document cannot be read; with ``strict``, any document.
    """
    pools = [_read(Path(path), strict) for path in inputs]
    passages = find_entities(join_pools(*map(tuple, pools)), extend=True)
    log_entities(count_entity_edges(passages), len(passages))
    return passages


def _read(path: Path, strict: bool) -> list[Evidence]:
    if path.is_dir():
        return _read_folder(path, strict)
    if not path.exists():
        raise UserError(f"{shown(path)}: no such file or folder")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{shown(path)}: ends in none of {', '.join(SUFFIXES)}")
    document = read_document(path)
    encoding = [] if document.encoding is None else [f"{shown(path)} ({document.encoding})"]
    _log_counts([path], encoding, document.passages)
    return with_ids(document.passages, shown(path.name))


def _read_folder(folder: Path, strict: bool) -> list[Evidence]:
    """Read the documents of a folder and its subfolders, in the order of their names.

    Ids are "folder/file.md#12", and "file.pdf, page 3#12". A file that cannot be read is skipped:
    a warning names it and says why. Files of other kinds are counted and named in a warning.
    """
    paths, others, skipped = find_files(folder, SUFFIXES)
    if strict and skipped:
        raise skipped[0]
    if not paths and not skipped:
        raise UserError(f"{shown(folder)}: no file with one of {', '.join(SUFFIXES)} in it")
    passages: list[Evidence] = []
    encodings: list[str] = []
    files: list[Path] = []
    for path in track(paths, "reading", "files", delay=2):
        name = shown(path.relative_to(folder).as_posix())
        try:
            document = read_document(path)
        except Unreadable as error:
            if strict:
                raise
            skipped.append(error)
            continue
        files.append(path)
        passages += with_ids(document.passages, name)
        encodings += [] if document.encoding is None else [f"{name} ({document.encoding})"]
    _warn_others(others, folder)
    if files or len(skipped) > 1:  # else the error below names the file
        _log_skipped(skipped)
    if not files:
        raise UserError(f"{shown(folder)}: none of its files can be read; first: {skipped[0]}")
    _log_counts(files, encodings, passages)
    return passages


def _warn_others(paths: Sequence[Path], folder: Path) -> None:
    if paths:
        names = [shown(path.relative_to(folder).as_posix()) for path in paths]
        logger.warning("%s of other kinds not read: %s", plural(len(paths), "file"), _named(names))


def _log_skipped(skipped: Iterable[Unreadable]) -> None:
    """Name every skipped file, and count them by their reasons."""
    reasons = Counter[str]()
    for error in skipped:
        logger.warning("skipped %s", error)
        reasons[error.reason] += 1
    if reasons:
        counts = ", ".join(f"{reason} ({n})" for reason, n in reasons.most_common())
        logger.warning("%s skipped: %s", plural(reasons.total(), "file"), counts)


def _log_counts(
    paths: Sequence[Path], encodings: Sequence[str], passages: Sequence[Evidence]
) -> None:
    if encodings:
        logger.info("%s in other encodings: %s", plural(len(encodings), "file"), _named(encodings))
    files = Counter(path.suffix.lower() for path in paths)
    sources = Counter(passage.source for passage in passages)
    kinds = ", ".join(f"{n} {suffix}" for suffix, n in sorted(files.items()))
    logger.info("%s read: %s", plural(len(paths), "file"), kinds)
    shares = ", ".join(f"{n} {source}" for source, n in sorted(sources.items()))
    logger.info("%s: %s", plural(len(passages), "passage"), shares)


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED_FILES]) + (", ..." if len(names) > NAMED_FILES else "")


def pool_parser() -> CommandParser:
    """Return a parser of the command's options."""
    description = (main.__doc__ or "").split("\n", 1)[0]
    parser = CommandParser(prog="turngraph pool", description=description)
    parser.add_argument("--input", required=True, nargs="+", metavar="FILE_OR_FOLDER")
    parser.add_argument("--output", required=True, metavar="POOL.jsonl")
    parser.add_argument(
        "--strict", action="store_true", help="stop at the first file that cannot be read"
    )
    return parser


def make_pool(inputs: Sequence[str], output: str, strict: bool) -> list[Evidence]:
    """Read documents and write their passages as a pool; return them.

    Args:
        inputs, strict: as in ``read_documents``.
        output: path of the pool.

    Raises:
        UserError: as ``read_documents``, or the output cannot be written.
    """
    if Path(output).is_dir():  # before reading, which can take long
        reason = f"{os.strerror(errno.EISDIR)}; --output must name a file"
        raise UserError(f"{output}: {reason}")
    passages = read_documents(*inputs, strict=strict)
    write_pool(output, passages)
    logger.info("written to %s", output)
    return passages


def main(argv: Sequence[str] | None = None) -> None:
    """Make an evidence pool of text, Markdown, HTML, CSV, PDF and Word files, and folders of them.

    Raises:
        UserError: a file or folder cannot be read, or with ``--strict`` a file of a folder.
    """
    args = pool_parser().parse_args(argv)
    make_pool(args.input, args.output, args.strict)


if __name__ == "__main__":
    run_cli(main)
