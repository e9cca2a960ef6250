"""JSON schemas of a language model's replies, and their reader: triplets, theses and times."""

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
from turngraph.data.memory_graph.times import local_time, parse_time, start
from turngraph.data.normalise import fold

Schema = dict[str, Any]

MAX_END, MAX_TEXT = 100, 300
"""Maximum length of a name or relation, and of a thesis, in characters."""
MAX_TRIPLETS, MAX_THESES, MAX_NAMES, MAX_TIMES, MAX_CLASSES = 24, 20, 12, 12, 24
DATE = r"\d{4}(-\d{2}(-\d{2})?)?"
EXAMPLE_NAMES = frozenset({"oddny", "eskil", "zither", "theremin"})
"""Names in the example of ``prompts/extract.txt``, which few texts contain: if one occurs in a
reply but not in the excerpt, a small model has copied the example."""
SEEN = 75.0
"""Least similarity, from 0 to 100, of a text to a name that counts as occurring in the text."""
KINDS = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def object_schema(**properties: Schema) -> Schema:
    """Return the schema of an object with exactly these fields, written in this order."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(longest: int) -> Schema:
    """Return the schema of a text of at most ``longest`` characters."""
    return {"type": "string", "maxLength": longest}


def list_schema(items: Schema, most: int) -> Schema:
    """Return the schema of a list of at most ``most`` items."""
    return {"type": "array", "items": items, "maxItems": most}


_NAME = text_schema(MAX_END)
_HOLDS = {
    "when": {"type": "string", "pattern": f"^({DATE})?(/({DATE})?)?$"},
    "hypothesis": {"type": "boolean"},
}
_THESIS = object_schema(
    text=text_schema(MAX_TEXT), entities=list_schema(_NAME, MAX_NAMES), **_HOLDS
)


def extraction_schema(relations: Sequence[str] = (), classes: Sequence[str] = ()) -> Schema:
    """Return the schema of theses, triplets and times, and of classes if there are any.

    Args:
        relations: relations that triplets may have; (): any.
        classes: names of classes, one of which an object may have.
    """
    relation = {"type": "string", "enum": list(relations)} if relations else _NAME
    triplet = object_schema(subject=_NAME, relation=relation, object=_NAME, **_HOLDS)
    kind = object_schema(name=_NAME, kind={"type": "string", "enum": list(classes)})
    return object_schema(
        theses=list_schema(_THESIS, MAX_THESES),
        triplets=list_schema(triplet, MAX_TRIPLETS),
        times=list_schema({"type": "string", "pattern": f"^{DATE}$"}, MAX_TIMES),
        **({"classes": list_schema(kind, MAX_CLASSES)} if classes else {}),
    )


EXTRACTION = extraction_schema()
ENTITIES = object_schema(entities=list_schema(_NAME, MAX_NAMES))


def numbers_schema(count: int) -> Schema:
    """Return the schema of a list of numbers from 1 to ``count``."""
    return list_schema({"type": "integer", "enum": list(range(1, count + 1))}, count)


def replaced_schema(count: int) -> Schema:
    """Return the schema of the numbers, up to ``count``, of replaced facts."""
    return object_schema(replaced=numbers_schema(count))


def misfit(value: Any, schema: Schema, where: str = "the reply") -> str | None:
    """Return how a value breaks a schema, without quoting the value; None: it fits.

    Maximum lengths are not checked.

    Args:
        value: a parsed reply.
        schema: schema of the value.
        where: name of the value in the message.
    """
    if type(value) is not KINDS[schema["type"]]:
        return f"{where} must be of the type {schema['type']}"
    if value not in schema.get("enum", (value,)):
        return f"{where} must be one of the values of the schema"
    if isinstance(value, dict):
        for name, field in schema["properties"].items():
            if name not in value:
                return f"{where} lacks the field {name!r}"
            if problem := misfit(value[name], field, f"{name!r} of {where}"):
                return problem
    if isinstance(value, list):
        for number, item in enumerate(value, 1):
            if problem := misfit(item, schema["items"], f"item {number} of {where}"):
                return problem
    return None


def is_full(value: Any, schema: Schema) -> bool:
    """Return whether a list or text has its maximum length, so a part may be missing."""
    kind = schema["type"]
    if kind == "object":
        return any(is_full(value[name], field) for name, field in schema["properties"].items())
    most = schema.get("maxItems" if kind == "array" else "maxLength")
    if most is not None and len(value) >= most:
        return True
    return kind == "array" and any(is_full(item, schema["items"]) for item in value)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Part of an episode for one prompt.

    Args:
        index: index of the episode in its batch.
        episode: the episode.
        span: span of the excerpt in the episode's text.
    """

    index: int
    episode: Episode
    span: Span

    @property
    def text(self) -> str:
        """The excerpt's text."""
        return self.episode.text[slice(*self.span)]


def one_line(text: str) -> str:
    """Return a text with each run of white space as one space."""
    return " ".join(text.split())


class Reader:
    """Reader of the replies about one excerpt.

    A fact with a name that occurs only in the prompt's example is left out and counted in
    ``copied``. A name that the excerpt does not contain is kept, and an invalid date is read as no
    date; both are counted. (A triplet whose ends are too long becomes a thesis in ``clean.py``.)

    Args:
        excerpt: the excerpt in the prompt.
        before: the text before the excerpt, which was in the prompt, too.
        counts: counter to update.
    """

    def __init__(self, excerpt: Excerpt, before: str, counts: Counter[str]) -> None:
        self.excerpt, self.counts, self.copied = excerpt, counts, 0
        self.sentences = sentence_spans(excerpt.text)
        episode = excerpt.episode
        said = local_time(episode.time, episode.properties)
        shown = (excerpt.text, before, episode.speaker or "", said or "")
        self.shown = fold("\n".join(shown))

    def extraction(self, reply: Any) -> Extraction:
        """Return the triplets, theses and times of a reply of the schema ``EXTRACTION``."""
        theses = [
            thesis
            for thesis in map(self._thesis, reply["theses"])
            if thesis is not None and not self._is_copied(thesis)
        ]
        given = [*map(self._triplet, reply["triplets"]), *map(self._kind, reply.get("classes", ()))]
        triplets = [t for t in given if t is not None and not self._is_copied(t)]
        facts: list[Thesis | Triplet] = [*theses, *triplets]
        for name in {name for fact in facts for name in names_of(fact)}:
            self.counts["unseen_names"] += not seen(name, self.shown)
        times = () if self.copied else dict.fromkeys(reply["times"])
        return Extraction(
            triplets=tuple(dict.fromkeys(triplets)),
            theses=tuple(dict.fromkeys(theses)),
            times=tuple(filter(None, map(self._time, times))),
        )

    def _thesis(self, item: Any) -> Thesis | None:
        text, names = one_line(item["text"]), unique(map(one_line, item["entities"]))
        if not text:
            return None
        since, until = self._interval(item["when"])
        return Thesis(
            text=text,
            entities=names,
            valid_from=since,
            valid_to=until,
            hypothesis=item["hypothesis"],
            span=self._span(text, names),
        )

    def _triplet(self, item: Any) -> Triplet | None:
        subject, relation, object_ = (
            one_line(item[name]) for name in ("subject", "relation", "object")
        )
        if not (subject or relation or object_):
            return None
        since, until = self._interval(item["when"])
        return Triplet(
            subject=subject,
            relation=relation,
            object=object_,
            valid_from=since,
            valid_to=until,
            hypothesis=item["hypothesis"],
            span=self._span(f"{subject} {relation} {object_}", (subject, object_)),
        )

    def _kind(self, item: Any) -> Triplet | None:
        """Return the class of an object as a triplet; None if the object has no name."""
        name = one_line(item["name"])
        if not name:
            return None
        return Triplet(name, "is a", item["kind"], span=self._span(name, (name,)))

    def _is_copied(self, fact: Triplet | Thesis) -> bool:
        words = set(re.findall(r"\w+", fold(" ".join((text_of(fact), *names_of(fact))))))
        copied = any(name not in self.shown for name in words & EXAMPLE_NAMES)
        self.copied += copied
        return copied

    def _interval(self, when: str) -> tuple[str | None, str | None]:
        first, _, last = when.strip().partition("/")
        since, until = self._time(first), self._time(last)
        if since is not None and until is not None and start(until) < start(since):
            self.counts["unread_times"] += 1
            return None, None
        return since, until

    def _time(self, text: str) -> str | None:
        try:
            return parse_time(text) if text.strip() else None
        except ValueError:  # such as month 13: keep the fact without it
            self.counts["unread_times"] += 1
            return None

    def _span(self, statement: str, names: Sequence[str]) -> Span | None:
        """Return the span of a statement: its words, else the first sentence with all its names.

        A statement with a single name gets the whole excerpt instead of a sentence.
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
    """Return the names of a fact's objects."""
    return (fact.subject, fact.object) if isinstance(fact, Triplet) else fact.entities


def text_of(fact: Triplet | Thesis) -> str:
    """Return a statement in one line."""
    if isinstance(fact, Thesis):
        return fact.text
    return f"{fact.subject} {fact.relation} {fact.object}"


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return names without blank ones and without repeated ones, by normal form."""
    by_alias: dict[str, str] = {}
    for name in filter(None, names):
        by_alias.setdefault(alias(name), name)
    return tuple(by_alias.values())


def seen(name: str, folded: str) -> bool:
    """Return whether a name, perhaps inflected, occurs in a folded text."""
    if fold(name) in folded:
        return True
    # longer names would take too long
    return len(name) <= MAX_TEXT and fuzz.partial_ratio(fold(name), folded) >= SEEN
