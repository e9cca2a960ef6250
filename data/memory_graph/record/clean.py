"""What comes in, checked and put into the form in which the record holds it."""

from __future__ import annotations

from collections.abc import Iterable

from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Replaced,
    Span,
    Thesis,
    Triplet,
)
from turngraph.data.memory_graph.names import well_formed
from turngraph.data.memory_graph.times import parse_time
from turngraph.data.normalise import fold

MAX_END_WORDS = 7
MAX_END_CHARACTERS = 200
"""An end of a simple triplet is atomic up to both; scripts without spaces have long words."""


def clean_episode(episode: Episode, place: str) -> Episode:
    """An episode with its time in ISO form and no lone surrogates (each becomes U+FFFD).

    Everything else, NUL and other control characters too, stays as it is.

    Args:
        episode: as a user gave it.
        place: what an error calls it.

    Raises:
        ValueError: its time is none, or a field is not text.
    """
    for name in ("text", "time", "source", "origin", "speaker"):
        value = getattr(episode, name)
        if not isinstance(value, str) and (value is not None or name == "text"):
            raise ValueError(f"{place}: field {name}: must be a text, not {type(value).__name__}")
    return Episode(
        well_formed(episode.text),
        _time(episode.time, f"{place}: field time"),
        _text(episode.source),
        _text(episode.origin),
        _text(episode.speaker),
        {well_formed(str(k)): well_formed(str(v)) for k, v in episode.properties.items()},
    )


def _text(value: str | None) -> str | None:
    return None if value is None else well_formed(value)


def _time(value: str | None, place: str) -> str | None:
    try:
        return None if value is None else parse_time(value)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def clean_extraction(extraction: Extraction, length: int, place: str) -> Extraction:
    """What an extractor found, with ISO times and a span for every statement.

    A triplet with an end that is not atomic, or without a part, becomes a thesis: nothing is lost.

    Args:
        extraction: as it came.
        length: of the episode's text, in characters; the span of what has none.
        place: what an error calls it.

    Raises:
        ValueError: a time is none, or a span is not in the text.
    """
    theses = [_clean_thesis(thesis, length, place) for thesis in extraction.theses]
    triplets = []
    named = {name for thesis in theses for name in thesis.entities} | set(extraction.entities)
    for triplet in extraction.triplets:
        clean = _clean_triplet(triplet, length, place)
        if all(map(_is_atomic, (clean.subject, clean.object))) and not _is_blank(clean.relation):
            triplets.append(clean)
        else:
            theses.append(_as_thesis(clean, named))
    return Extraction(
        tuple(triplets),
        tuple(thesis for thesis in theses if not _is_blank(thesis.text)),
        tuple(_time(time, f"{place}: a time") for time in extraction.times),
        _names(extraction.entities),
    )


def _is_blank(name: str) -> bool:
    return not fold(name) if len(name) < MAX_END_CHARACTERS else not name.strip()


def _is_atomic(name: str) -> bool:
    short = len(name) <= MAX_END_CHARACTERS and len(name.split()) <= MAX_END_WORDS
    return short and not _is_blank(name)


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(well_formed(name) for name in names if not _is_blank(name))


def _as_thesis(triplet: Triplet, named: set[str]) -> Thesis:
    ends = (triplet.subject, triplet.object)
    text = " ".join(part for part in (ends[0], triplet.relation, ends[1]) if not _is_blank(part))
    entities = tuple(end for end in ends if _is_atomic(end) or end in named)
    return Thesis(
        text, entities, triplet.valid_from, triplet.valid_to, triplet.hypothesis, triplet.span,
        triplet.replaces,
    )  # fmt: skip


def _clean_triplet(triplet: Triplet, length: int, place: str) -> Triplet:
    return Triplet(
        well_formed(triplet.subject),
        well_formed(triplet.relation),
        well_formed(triplet.object),
        *_holds(triplet, length, place),
    )


def _clean_thesis(thesis: Thesis, length: int, place: str) -> Thesis:
    held = _holds(thesis, length, place)
    return Thesis(well_formed(thesis.text), _names(thesis.entities), *held)


def _holds(statement: Triplet | Thesis, length: int, place: str) -> tuple:
    valid_from = _time(statement.valid_from, f"{place}: valid_from")
    valid_to = _time(statement.valid_to, f"{place}: valid_to")
    span = _span(statement.span, length, place)
    replaces = tuple(
        Replaced(*map(_text, (named.subject, named.relation, named.object, named.text)))
        for named in statement.replaces
    )
    return valid_from, valid_to, statement.hypothesis, span, replaces


def _span(span: Span | None, length: int, place: str) -> Span:
    if span is None:
        return 0, length
    if not 0 <= span[0] <= span[1] <= length:
        raise ValueError(f"{place}: span {tuple(span)} is not in a text of {length} characters")
    return span[0], span[1]
