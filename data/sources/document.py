"""Collects the passages of one document, and says why a document cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.entities import entity_of
from turngraph.data.json_fields import Location
from turngraph.data.linearise import (
    cut_lead,
    linearise_row,
    linearise_sentence,
    sentence_spans,
)
from turngraph.data.name_finder import find_names, name_automaton
from turngraph.data.normalise import parse_date
from turngraph.data.types import Evidence, Source

TOO_DEEP = "nested too deep to be read"
"""Reason of pages whose elements are nested beyond what can be walked."""


class Unreadable(UserError):
    """A file that cannot be read, or that nothing can be read from.

    Args:
        path: the file.
        reason: reason in a few words, the same for all such files, which are counted by it.
        detail: more about this file.
        line: number of the line with the error, if there is one.
    """

    def __init__(
        self, path: str | Path, reason: str, detail: str = "", line: int | None = None
    ) -> None:
        message = f"{reason}: {detail}" if detail else reason
        super().__init__(str(Location(shown(path), line).error(message)))
        self.reason = reason
        self._given = path, reason, detail, line

    def __reduce__(self) -> tuple[type[Unreadable], tuple[object, ...]]:
        """Return class and arguments, from which ``pickle`` makes the error in another process."""
        return Unreadable, self._given


MAX_CHARACTERS, CHARACTERS_PER_BYTE = 16_000_000, 16
"""Most characters of a file's passages: the first number, and the second for each byte of the file.
Without a limit, a small file that repeats a text in every passage could fill the memory."""
PASSAGE_CHARACTERS = 50
"""Characters that a passage counts in addition to its text."""
PASSAGE_BYTES = 180
"""Most bytes of the sentences that share a passage, some 30 English words: with as many words to
read, more answers are found than in single sentences, and "it" stands beside what it means."""


class PassageLimit:
    """Counts the characters of a file's passages.

    Args:
        path: path of the file.
        num_bytes: size of the file.
    """

    def __init__(self, path: Path, num_bytes: int) -> None:
        self.path = path
        self.most = self.left = MAX_CHARACTERS + CHARACTERS_PER_BYTE * num_bytes

    def count(self, text: str) -> None:
        """Count a passage.

        Raises:
            Unreadable: the file's passages have too many characters.
        """
        self.left -= len(text) + PASSAGE_CHARACTERS
        if self.left < 0:
            detail = f"its passages have more than {self.most} characters"
            raise Unreadable(self.path, "too large", detail)


@contextmanager
def documents_extra(path: Path, kind: str) -> Iterator[None]:
    """Report a failed import of a library that reads one kind of documents.

    Raises:
        Unreadable: it is not installed; says what to install.
    """
    try:
        with extra("documents", f"{kind} need"):
            yield
    except UserError as error:
        raise Unreadable(path, str(error)) from None


def shown(path: str | Path) -> str:
    r"""Return a path as text; bytes of its name that are not UTF-8 become ``\xe9``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def title_of(path: Path, titles: Iterable[str] = ()) -> str:
    """Return a document's first title; its file's name if there is none, or it is a date."""
    title = next(filter(None, titles), "")
    return shown(path.stem) if not title or parse_date(title) else title


@dataclass
class Document:
    """Passages of one document; names among its words are entities.

    Args:
        title: beginning of every passage; a long one is cut.
        limit: counts the passages; None: any number.
        place: where in the document the next passage is, such as "page 3"; it becomes the passage's
            id. Where ``by_sentence`` is False, it is the heading above that is a date.
        by_sentence: split paragraphs into passages of a few sentences; False: keep them whole, with
            their lines, each after only the nearest heading that is not a date.
        headings: headings above the next passage, by their level, 1 the highest.
    """

    title: str
    limit: PassageLimit | None = None
    place: str = ""
    by_sentence: bool = True
    headings: dict[int, str] = field(default_factory=dict)
    passages: list[Evidence] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.title = cut_lead(self.title)

    def heading(self, level: int, text: str) -> None:
        """Begin a section, which ends those of its level and below."""
        self.headings = {above: name for above, name in self.headings.items() if above < level}
        self.headings[level] = cut_lead(text)
        if not self.by_sentence:
            self.place = day_of(self.headings.values())

    @property
    def path(self) -> list[str]:
        """Headings above the next passage, the highest first, without the title."""
        return [name for name in self.headings.values() if name and name != self.title]

    @property
    def section(self) -> str:
        """The headings of ``path``, joined as passages repeat them."""
        return ", ".join(self.path)

    def add(self, text: str, source: Source, names: Sequence[str]) -> None:
        """Add a linearised passage with its entities: the title, and ``names``."""
        named = [entity_of(name) for name in (self.title, *names)]
        entities = {entity.id: entity for entity in named if entity is not None}
        self._append(Evidence(self.place, text, source, tuple(entities.values())))

    def _append(self, passage: Evidence) -> None:
        if self.limit is not None:
            self.limit.count(passage.text)
        self.passages.append(passage)

    def sentences(self, text: str, links: Sequence[str] = (), lead: str = "") -> None:
        """Add the sentences of a paragraph as passages, with the links in them, after ``lead``."""
        if not self.by_sentence:
            self._paragraph(text)
            return
        automaton = name_automaton({link: index for index, link in enumerate(links)})
        text = " ".join(text.split())
        for passage in (text[start:end] for start, end in passage_spans(text)):
            if any(map(str.isalnum, passage)):
                matches = () if automaton is None else find_names(automaton, passage)
                names = [links[index] for index in sorted({index for _, index in matches})]
                said = f"{lead} {passage}" if lead else passage
                self.add(linearise_sentence(self.title, said, self.section), "text", names)

    def _paragraph(self, text: str) -> None:
        if any(map(str.isalnum, text)):
            heading = next((name for name in self.path[::-1] if not parse_date(name)), self.title)
            head = entity_of(heading)
            entities = () if head is None else (head,)
            text = linearise_sentence(heading, text)
            self._append(Evidence(self.place, text, "text", entities))

    def row(self, headers: list[str], cells: list[str], links: Sequence[str] = ()) -> None:
        """Add a row; it may be short, and cells without a header are added as they are."""
        headers = headers[: len(cells)] + [""] * (len(cells) - len(headers))
        text = linearise_row(self.title, headers, cells, self.section or None)
        self.add(text, "table", [*links, *filter(None, cells)])


def day_of(headings: Iterable[str]) -> str:
    """Return the lowest of a passage's headings that is a date and nothing else; "" if none is."""
    return next((name for name in [*headings][::-1] if parse_date(name)), "")


def passage_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each passage of a paragraph, in characters.

    A passage is consecutive sentences of up to ``PASSAGE_BYTES`` together, or one longer sentence.
    """
    spans: list[tuple[int, int]] = []
    for start, end in sentence_spans(text):
        begin = spans[-1][0] if spans else start
        if spans and len(text[begin:end].encode(errors="surrogatepass")) <= PASSAGE_BYTES:
            spans[-1] = begin, end
        else:
            spans.append((start, end))
    return spans
