"""Validation of episodes and extractions, and their normal form in the record."""

from __future__ import annotations

from collections.abc import Iterable

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Replaced,
    Span,
    Thesis,
    Triplet,
)
from turngraph.data.memory_graph.names import well_formed
from turngraph.data.memory_graph.times import offset_of, parse_time, start
from turngraph.data.normalise import fold

MAX_END_WORDS = 7
MAX_END_CHARACTERS = 200
"""Limits of an atomic end of a simple triplet; scripts without spaces have long words."""


def clean_episode(episode: Episode, label: str) -> Episode:
    """Return an episode with an ISO time in UTC and U+FFFD for every lone surrogate.

    The zone of the time becomes the property ``utc_offset``. Everything else is unchanged,
    including NUL and other control characters.

    Args:
        episode: episode as the user gave it.
        label: name of the episode in errors.

    Raises:
        UserError: the time is invalid, or a field is not a text.
    """
    for name in ("text", "time", "source", "origin", "speaker"):
        value = getattr(episode, name)
        if not isinstance(value, str) and (value is not None or name == "text"):
            raise UserError(f"{label}: field {name}: must be a text, not {type(value).__name__}")
    time = _time(episode.time, f"{label}: field time")
    properties = (offset_of(episode.time or "") | dict(episode.properties)).items()
    return Episode(
        text=well_formed(episode.text),
        time=time,
        source=_text(episode.source),
        origin=_text(episode.origin),
        speaker=_text(episode.speaker),
        properties={well_formed(str(key)): well_formed(str(value)) for key, value in properties},
    )


def _text(value: str | None) -> str | None:
    return None if value is None else well_formed(value)


def _time(value: str | None, label: str) -> str | None:
    return None if value is None else _iso(value, label)


def _iso(value: str, label: str) -> str:
    try:
        return parse_time(value)
    except UserError as error:
        raise UserError(f"{label}: {error}") from None


def clean_extraction(extraction: Extraction, length: int, label: str) -> Extraction:
    """Return an extraction with ISO times and a span for every statement.

    A triplet with a blank part or an end that is not atomic becomes a thesis, so that its text is
    kept.

    Args:
        extraction: result of an extractor.
        length: number of characters of the episode's text; the span of a statement without one is
            the whole text.
        label: name of the extractor in errors.

    Raises:
        UserError: a time is invalid, or a span is outside the text.
    """
    theses = [_clean_thesis(thesis, length, label) for thesis in extraction.theses]
    triplets = []
    named = {name for thesis in theses for name in thesis.entities} | set(extraction.entities)
    for triplet in extraction.triplets:
        clean = _clean_triplet(triplet, length, label)
        if all(map(_is_atomic, (clean.subject, clean.object))) and not _is_blank(clean.relation):
            triplets.append(clean)
        else:
            theses.append(_as_thesis(clean, named))
    return Extraction(
        triplets=tuple(triplets),
        theses=tuple(thesis for thesis in theses if not _is_blank(thesis.text)),
        times=tuple(_iso(time, f"{label}: a time") for time in extraction.times),
        entities=_names(extraction.entities),
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
        text=text,
        entities=entities,
        valid_from=triplet.valid_from,
        valid_to=triplet.valid_to,
        hypothesis=triplet.hypothesis,
        span=triplet.span,
        replaces=triplet.replaces,
    )


def _clean_triplet(triplet: Triplet, length: int, label: str) -> Triplet:
    since, until = _times(triplet, label)
    return Triplet(
        subject=well_formed(triplet.subject),
        relation=well_formed(triplet.relation),
        object=well_formed(triplet.object),
        valid_from=since,
        valid_to=until,
        hypothesis=triplet.hypothesis,
        span=_span(triplet.span, length, label),
        replaces=_replaces(triplet.replaces),
        local=tuple(map(well_formed, triplet.local)),
    )


def _clean_thesis(thesis: Thesis, length: int, label: str) -> Thesis:
    since, until = _times(thesis, label)
    return Thesis(
        text=well_formed(thesis.text),
        entities=_names(thesis.entities),
        valid_from=since,
        valid_to=until,
        hypothesis=thesis.hypothesis,
        span=_span(thesis.span, length, label),
        replaces=_replaces(thesis.replaces),
    )


def _times(statement: Triplet | Thesis, label: str) -> tuple[str | None, str | None]:
    """Return the begin and end of a statement; an end before the begin is dropped."""
    since = _time(statement.valid_from, f"{label}: valid_from")
    until = _time(statement.valid_to, f"{label}: valid_to")
    is_backwards = since is not None and until is not None and start(until) < start(since)
    return since, None if is_backwards else until


def _replaces(named: Iterable[Replaced]) -> tuple[Replaced, ...]:
    return tuple(
        Replaced(
            subject=_text(fact.subject),
            relation=_text(fact.relation),
            object=_text(fact.object),
            text=_text(fact.text),
        )
        for fact in named
    )


def _span(span: Span | None, length: int, label: str) -> Span:
    if span is None:
        return 0, length
    if not 0 <= span[0] <= span[1] <= length:
        raise UserError(f"{label}: span {tuple(span)} is not in a text of {length} characters")
    return span[0], span[1]
