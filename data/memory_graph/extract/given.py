"""Extractor for statements that the user gives as JSON Lines.

A line has ``text``, ``time``, ``source``, ``speaker``, ``title`` (all optional), ``triplets`` (or
``triples``) of ``subject``, ``relation``, ``object`` and ``theses`` of ``text`` and ``entities``.
Triplets and theses may have ``valid_from``, ``valid_to``, ``hypothesis``, and ``replaces``: a list
of old facts, each described by any of ``subject``, ``relation`` and ``object``, or by the ``text``
of a thesis.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TypedDict

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json, Location, field, filled, iter_lines, records
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Replaced,
    Span,
    Thesis,
    Triplet,
    Update,
)
from turngraph.data.memory_graph.times import offset_of, parse_time, start

_TIMES = ("valid_from", "valid_to", "hypothesis", "replaces")
_FIELDS = frozenset(
    {"text", "time", "source", "speaker", "title", "triplets", "triples"} | {"theses", "times"}
)
_TRIPLET = frozenset({"subject", "relation", "object", *_TIMES})
_THESIS = frozenset({"text", "entities", *_TIMES})
_REPLACED = frozenset({"subject", "relation", "object", "text"})


class GivenExtractor:
    """Extractor that returns given statements; rules find the names in questions."""

    name = "given"

    def __init__(self) -> None:
        self._ahead: dict[str, _Given] = {}
        self._current: dict[str, _Given] = {}
        self._rules = RulesExtractor()

    def read(self, path: str | Path) -> Iterator[Episode]:
        """Read the episodes of a JSON Lines file, for ``MemoryGraph.remember_many``.

        The origin of an episode is the file and a hash of the line, so a file that has grown can be
        read again. The source is that of the line, else the file's name.

        Raises:
            UserError: a line or field is invalid, or there is no line; the message names file, line
                and field.
        """
        read = (
            self._hold(episode, _Given(extraction, at)) for at, episode, extraction in _read(path)
        )
        return filled(path, read)

    def hold(self, episode: Episode, extraction: Extraction) -> Episode:
        """Store an episode's extraction until ``extract`` is called, and return the episode.

        Raises:
            UserError: the episode has no origin, which identifies it.
        """
        if episode.origin is None:
            raise UserError("an episode with given statements needs an origin")
        return self._hold(episode, _Given(extraction, Location(episode.origin)))

    def extract(self, episodes: Sequence[Episode]) -> list[Extraction]:
        """Return the extractions of episodes, which must come in the order in which they were read.

        Raises:
            UserError: an episode was not read by this extractor.
        """
        self._current = {}
        for episode in episodes:
            given = self._ahead.get(episode.origin or "")
            if given is None:
                raise UserError(f"{episode.origin or 'an episode'}: no given statements")
            self._current[episode.origin or ""] = given
        last = next(reversed(self._current), None)
        while last in self._ahead:  # episodes skipped before it are remembered already
            del self._ahead[next(iter(self._ahead))]
        return [given.extraction for given in self._current.values()]

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """Return, for every update, the keys of the known facts that its ``replaces`` describes.

        Raises:
            UserError: an entry describes no fact that holds; the message names file, line and
                field.
        """
        return [self._replaced(update) for update in updates]

    def entities(self, question: str) -> list[str]:
        """Return the names that a question mentions, found by rules."""
        return self._rules.entities(question)

    def cost(self) -> dict[str, float]:
        """Return {}: the extractor uses no tokens and no requests."""
        return {}

    def _hold(self, episode: Episode, given: _Given) -> Episode:
        self._ahead[episode.origin or ""] = given
        return episode

    def _replaced(self, update: Update) -> tuple[int, ...]:
        for index, keys in enumerate(update.named):
            if not keys:
                location = self._location(update) / "replaces" / index
                raise location.error("no fact that holds at this time fits the description")
        return tuple(dict.fromkeys(chain.from_iterable(update.named)))

    def _location(self, update: Update) -> Location:
        """Return where a statement was read; a triplet may have become a thesis in between."""
        given = self._current[update.episode.origin or ""]
        statements: dict[str, tuple[Triplet | Thesis, ...]] = {
            "triplets": given.extraction.triplets,
            "theses": given.extraction.theses,
        }
        return next(
            given.location / kind / index
            for kind, several in statements.items()
            for index, statement in enumerate(several)
            if (statement.replaces, statement.span) == (update.new.replaces, update.new.span)
        )


@dataclass(frozen=True, slots=True)
class _Given:
    """An episode's extraction, and where it was read."""

    extraction: Extraction
    location: Location


def _read(path: str | Path) -> Iterator[tuple[Location, Episode, Extraction]]:
    seen: Counter[str] = Counter()
    for location, record in iter_lines(path):
        line = json.dumps(record, sort_keys=True).encode()
        key = hashlib.blake2b(line, digest_size=8).hexdigest()
        seen[key] += 1
        again = f":{seen[key]}" if seen[key] > 1 else ""
        episode, extraction = _read_line(record, location)
        origin = f"{Path(path).resolve()}:{key}{again}"
        yield location, replace(episode, origin=origin), extraction


def _read_line(record: Json, location: Location) -> tuple[Episode, Extraction]:
    _check_fields(record, _FIELDS, location)
    triplets = [
        _triplet(r, at)
        for name in ("triplets", "triples")
        for at, r in records(record, name, location)
    ]
    theses = [_thesis(r, at) for at, r in records(record, "theses", location)]
    text = field(record, "text", str, location, None)
    if text is None:
        text, triplets, theses = _written_out(triplets, theses)
    else:
        whole = (0, len(text))
        triplets = [replace(triplet, span=whole) for triplet in triplets]
        theses = [replace(thesis, span=whole) for thesis in theses]
    if not text.strip():
        raise location.error("must have a text, triplets or theses")
    title = field(record, "title", str, location, None)
    time = _time(record, "time", location)
    properties = {} if time is None else offset_of(record["time"])
    episode = Episode(
        text=text,
        time=time,
        source=field(record, "source", str, location, Path(location.path).name),
        speaker=field(record, "speaker", str, location, None),
        properties=properties if title is None else properties | {"title": title},
    )
    times = [_iso(at, value) for at, value in _strings(record, "times", location)]
    return episode, Extraction(tuple(triplets), tuple(theses), tuple(times))


def _written_out(
    triplets: Sequence[Triplet], theses: Sequence[Thesis]
) -> tuple[str, list[Triplet], list[Thesis]]:
    """Return a text made of the statements, one a line, and the statements with their spans."""
    lines = [f"{t.subject} {t.relation} {t.object}." for t in triplets] + [t.text for t in theses]
    spans: list[Span] = []
    at = 0
    for line in lines:
        spans.append((at, at + len(line)))
        at += len(line) + 1
    num = len(triplets)
    return (
        "\n".join(lines),
        [replace(t, span=span) for t, span in zip(triplets, spans[:num], strict=True)],
        [replace(t, span=span) for t, span in zip(theses, spans[num:], strict=True)],
    )


def _triplet(record: Json, location: Location) -> Triplet:
    _check_fields(record, _TRIPLET, location)
    return Triplet(
        subject=_filled(record, "subject", location),
        relation=_filled(record, "relation", location),
        object=_filled(record, "object", location),
        **_common_fields(record, location),
    )


def _thesis(record: Json, location: Location) -> Thesis:
    _check_fields(record, _THESIS, location)
    entities = tuple(value for _, value in _strings(record, "entities", location))
    return Thesis(
        text=_filled(record, "text", location),
        entities=entities,
        **_common_fields(record, location),
    )


class _CommonFields(TypedDict):
    """Fields that triplets and theses have in common."""

    valid_from: str | None
    valid_to: str | None
    hypothesis: bool
    replaces: tuple[Replaced, ...]


def _common_fields(record: Json, location: Location) -> _CommonFields:
    since, until = (_time(record, name, location) for name in ("valid_from", "valid_to"))
    if since is not None and until is not None and start(until) < start(since):
        raise (location / "valid_to").error(f"{until} is before valid_from {since}")
    hypothesis = record.get("hypothesis", False)
    if not isinstance(hypothesis, bool):
        raise (location / "hypothesis").error("must be true or false")
    patterns = tuple(_pattern(r, at) for at, r in records(record, "replaces", location))
    if hypothesis and patterns:
        raise (location / "replaces").error("a hypothesis replaces nothing")
    return {
        "valid_from": since,
        "valid_to": until,
        "hypothesis": hypothesis,
        "replaces": patterns,
    }


def _pattern(record: Json, location: Location) -> Replaced:
    _check_fields(record, _REPLACED, location)
    named = {name: field(record, name, str, location, None) for name in _REPLACED}
    if named["text"] is None and named["subject"] is None and named["object"] is None:
        raise location.error("must have the subject, the object or the text of the replaced fact")
    if named["text"] is not None and len(record) > 1:
        raise (location / "text").error("a description with a text must have no other field")
    return Replaced(**named)


def _filled(record: Json, name: str, location: Location) -> str:
    value = field(record, name, str, location)
    if not value.strip():
        raise (location / name).error("empty")
    return " ".join(value.split())


def _strings(record: Json, name: str, location: Location) -> Iterator[tuple[Location, str]]:
    for index, value in enumerate(field(record, name, list, location, [])):
        if not isinstance(value, str) or not value.strip():
            raise (location / name / index).error("must be a string that is not empty")
        yield location / name / index, " ".join(value.split())


def _time(record: Json, name: str, location: Location) -> str | None:
    value = field(record, name, str, location, None)
    return None if value is None else _iso(location / name, value)


def _iso(location: Location, value: str) -> str:
    try:
        return parse_time(value)
    except UserError as error:
        raise location.error(str(error)) from None


def _check_fields(record: Json, known: frozenset[str], location: Location) -> None:
    if unknown := sorted(record.keys() - known):
        raise (location / unknown[0]).error(f"unknown; known are {', '.join(sorted(known))}")
