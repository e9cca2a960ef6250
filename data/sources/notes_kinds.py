"""Kinds of made documents: what they state, in which words, and what is asked about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

Layout = Literal["page", "table", "diary", "letter", "chat"]


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that a document states about a subject.

    Args:
        key: key in an infobox, or header of a column.
        value: kind of its value (``notes_words.make_values``).
        says: sentences with ``{s}``, the subject, ``{v}``, the value, and ``{a}``, a or an.
        asks: questions with ``{s}``.
        its: questions about the subject of the question before.
        which: questions that ask for the subject, with ``{v}``; empty if there are none.
    """

    key: str
    value: str
    says: tuple[str, ...]
    asks: tuple[str, ...]
    its: tuple[str, ...]
    which: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document.

    Args:
        name: name of the kind.
        layout: page: about one subject; table: a row for each subject; diary, letter, chat: what
            people write about themselves.
        subject: kind of the subjects' names.
        header: header of the column with the subjects.
        titles: titles of the document, with kinds of values in braces, ``{s}`` the subject of a
            page.
        relations: statements of such a document.
    """

    name: str
    layout: Layout
    subject: str
    header: str
    titles: tuple[str, ...]
    relations: tuple[Relation, ...]


def _read_kinds() -> Iterator[Kind]:
    """Read ``notes_kinds.json``, where a kind's relations may be those of a kind before it."""
    known = dict[str, tuple[Relation, ...]]()
    path = files("turngraph.data.sources") / "notes_kinds.json"
    for kind in json.loads(path.read_text(encoding="utf-8")):
        name, relations = kind["name"], kind.pop("relations")
        is_known = isinstance(relations, str)
        known[name] = known[relations] if is_known else tuple(map(_relation, relations))
        yield Kind(**kind | {"titles": tuple(kind["titles"]), "relations": known[name]})


def _relation(fields: dict[str, Any]) -> Relation:
    wordings = {name: tuple(fields.get(name, ())) for name in ("says", "asks", "its", "which")}
    return Relation(fields["key"], fields["value"], **wordings)


KINDS = tuple(_read_kinds())
