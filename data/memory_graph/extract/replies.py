"""The schema of a language model's replies, and what they say as triplets, theses and times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rapidfuzz import fuzz

from turngraph.data.linearise import sentence_spans
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Span, Thesis, Triplet
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.times import parse_time, start
from turngraph.data.normalise import fold

Schema = dict[str, Any]

MAX_END, MAX_TEXT = 100, 300
"""Longest name or relation, longest thesis, in characters."""
MAX_TRIPLETS, MAX_THESES, MAX_NAMES, MAX_TIMES = 24, 20, 12, 12
DATE = r"\d{4}(-\d{2}(-\d{2})?)?"
EXAMPLE_NAMES = frozenset({"oddny", "eskil"})
"""Of the example in ``prompts/extract.txt``: small models copy it."""
SEEN = 75.0
"""Similarity (of 100) at which a name, maybe inflected, is taken to occur in a text."""
KINDS = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _text(longest: int) -> Schema:
    return {"type": "string", "maxLength": longest}


def _list(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


_NAME = _text(MAX_END)
_HOLDS = {
    "when": {"type": "string", "pattern": f"^({DATE})?(/({DATE})?)?$"},
    "hypothesis": {"type": "boolean"},
}
_THESIS = _object(text=_text(MAX_TEXT), entities=_list(_NAME, MAX_NAMES), **_HOLDS)
_TRIPLET = _object(subject=_NAME, relation=_NAME, object=_NAME, **_HOLDS)
EXTRACTION = _object(
    theses=_list(_THESIS, MAX_THESES),
    triplets=_list(_TRIPLET, MAX_TRIPLETS),
    times=_list({"type": "string", "pattern": f"^{DATE}$"}, MAX_TIMES),
)
ENTITIES = _object(entities=_list(_NAME, MAX_NAMES))


def replaced_schema(count: int) -> Schema:
    """Numbers from 1 to ``count``."""
    number = {"type": "integer", "enum": list(range(1, count + 1))}
    return _object(replaced=_list(number, count))


def fits(value: Any, schema: Schema) -> bool:
    """Whether a value has the fields and types of a schema; lengths may be exceeded."""
    kind = schema["type"]
    if type(value) is not KINDS[kind] or value not in schema.get("enum", (value,)):
        return False
    if kind == "object":
        parts = schema["properties"].items()
        return all(name in value and fits(value[name], part) for name, part in parts)
    return kind != "array" or all(fits(item, schema["items"]) for item in value)


def is_full(value: Any, schema: Schema) -> bool:
    """Whether a list or text is as long as it may be, so that more may have been meant."""
    kind = schema["type"]
    if kind == "object":
        return any(is_full(value[name], part) for name, part in schema["properties"].items())
    most = schema.get("maxItems" if kind == "array" else "maxLength")
    if most is not None and len(value) >= most:
        return True
    return kind == "array" and any(is_full(item, schema["items"]) for item in value)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of an episode that is asked about at once.

    Args:
        number: of the episode, in its batch.
        episode: to which it belongs.
        span: its characters there.
    """

    number: int
    episode: Episode
    span: Span

    @property
    def text(self) -> str:
        """Its own text."""
        return self.episode.text[slice(*self.span)]


def one_line(text: str) -> str:
    """Text with single spaces for all white space."""
    return " ".join(text.split())


class Reader:
    """Reads the replies about one excerpt into triplets, theses and times.

    A fact that names who occurs in the prompt's example only is left out, and ``copied`` tells how
    many. Names that are not found in the excerpt are kept, and dates that are none leave the time
    open; both are counted. (A triplet whose ends are too long becomes a thesis in ``clean.py``.)

    Args:
        excerpt: what was asked about.
        before: text that was given with it.
        counts: where to count.
    """

    def __init__(self, excerpt: Excerpt, before: str, counts: Counter[str]) -> None:
        self.excerpt, self.counts, self.copied = excerpt, counts, 0
        self.sentences = sentence_spans(excerpt.text)
        episode = excerpt.episode
        given = (excerpt.text, before, episode.speaker or "", episode.time or "")
        self.given = fold("\n".join(given))

    def extraction(self, value: Any) -> Extraction:
        """What a reply of the schema ``EXTRACTION`` says."""
        facts = [self._triplet(item) for item in value["triplets"]]
        facts = [self._thesis(item) for item in value["theses"]] + facts
        told = [fact for fact in facts if fact is not None and not self._is_copied(fact)]
        for name in {name for fact in told for name in names_of(fact)}:
            self.counts["unseen_names"] += not seen(name, self.given)
        triplets = tuple(dict.fromkeys(fact for fact in told if isinstance(fact, Triplet)))
        theses = tuple(dict.fromkeys(fact for fact in told if isinstance(fact, Thesis)))
        said = () if self.copied else dict.fromkeys(value["times"])
        return Extraction(triplets, theses, tuple(filter(None, map(self._time, said))))

    def _thesis(self, item: Any) -> Thesis | None:
        text, names = one_line(item["text"]), unique(map(one_line, item["entities"]))
        if not text:
            return None
        since, until = self._interval(item["when"])
        return Thesis(text, names, since, until, item["hypothesis"], self._span(text, names))

    def _triplet(self, item: Any) -> Triplet | None:
        subject, relation, object_ = (
            one_line(item[name]) for name in ("subject", "relation", "object")
        )
        if not (subject or relation or object_):
            return None
        span = self._span(f"{subject} {relation} {object_}", (subject, object_))
        holds = *self._interval(item["when"]), item["hypothesis"], span
        return Triplet(subject, relation, object_, *holds)

    def _is_copied(self, fact: Triplet | Thesis) -> bool:
        words = set(re.findall(r"\w+", fold(" ".join((text_of(fact), *names_of(fact))))))
        copied = any(name not in self.given for name in words & EXAMPLE_NAMES)
        self.copied += copied
        return copied

    def _interval(self, when: str) -> tuple[str | None, str | None]:
        since, _, until = when.strip().partition("/")
        interval = self._time(since), self._time(until)
        if None not in interval and start(interval[1]) < start(interval[0]):
            self.counts["unread_times"] += 1
            return None, None
        return interval

    def _time(self, text: str) -> str | None:
        try:
            return parse_time(text) if text.strip() else None
        except ValueError:  # such as month 13: no reason to lose what was said
            self.counts["unread_times"] += 1
            return None

    def _span(self, statement: str, names: Sequence[str]) -> Span | None:
        """Where a statement was said: its words, else the first sentence with all its names.

        A single name says too little for that.
        """
        first, stop = self.excerpt.span
        words = r"\s+".join(map(re.escape, statement.rstrip(".").split()))
        if match := re.search(words, self.excerpt.text, re.IGNORECASE):
            return first + match.start(), first + match.end()
        for left, right in self.sentences:
            sentence = fold(self.excerpt.text[left:right])
            if len(names) > 1 and all(fold(name) in sentence for name in names):
                return first + left, first + right
        return None if stop - first == len(self.excerpt.episode.text) else (first, stop)


def names_of(fact: Triplet | Thesis) -> tuple[str, ...]:
    """The names of a fact's objects."""
    return (fact.subject, fact.object) if isinstance(fact, Triplet) else fact.entities


def text_of(fact: Triplet | Thesis) -> str:
    """A statement in one line."""
    if isinstance(fact, Thesis):
        return fact.text
    return f"{fact.subject} {fact.relation} {fact.object}"


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Names without empty ones and without those that are spelled like an earlier one."""
    found: dict[str, str] = {}
    for name in filter(None, names):
        found.setdefault(alias(name), name)
    return tuple(found.values())


def seen(name: str, folded: str) -> bool:
    """Whether a name occurs in a folded text, maybe inflected."""
    return fold(name) in folded or fuzz.partial_ratio(fold(name), folded) >= SEEN
