"""Extractor that asks a language model for the statements of excerpts and for replaced facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from operator import itemgetter
from string import Template
from typing import Any, NamedTuple

from turngraph.configs.user_error import UserError
from turngraph.data.linearise import sentence_spans
from turngraph.data.memory_graph.extract.replies import (
    ENTITIES,
    EXTRACTION,
    Excerpt,
    Reader,
    Schema,
    extraction_schema,
    is_full,
    one_line,
    replaced_schema,
    seen,
    text_of,
    unique,
)
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Fact, Span, Update
from turngraph.data.memory_graph.times import local_time
from turngraph.data.normalise import fold

EXCERPT_CHARACTERS = 800
"""Maximum length of an excerpt in a prompt; the paper's texts have up to 1,024 characters."""
BEFORE_CHARACTERS = 300
CONTEXT_CHARACTERS = 200
"""Characters of context on each side of a new statement, such as "No, I was wrong"."""
KNOWN_AT_ONCE = 40
"""Maximum number of known facts in a prompt."""


class Prompt(NamedTuple):
    """A prompt for a language model.

    Args:
        text: text of the user message.
        schema: JSON schema of the reply.
        subject: name of the episode or question in errors, without its text.
    """

    text: str
    schema: Schema
    subject: str


class Reply(NamedTuple):
    """A language model's reply.

    Args:
        value: value of the prompt's schema; None: the reply was cut off and cannot be parsed.
        is_complete: whether the model ended the reply by itself.
    """

    value: Any
    is_complete: bool


Ask = Callable[[Sequence[Prompt]], Sequence[Reply]]
"""Returns replies in the order of the prompts."""


class ModelExtractor:
    """Extractor that asks a language model.

    If a reply is cut off, or fills a list or a text to its limit, its excerpt is split and asked
    again. If a single sentence is too long, or a reply copies the prompt's example, the rules turn
    the excerpt's sentences into theses, in addition to the readable part of the reply.

    Args:
        name: name that is recorded with every episode.
        ask: the language model.
        relations: relations that triplets may have, such as an ontology's; (): any.
        classes: names of classes, one of which the model may give each object; (): no classes.
    """

    def __init__(
        self, name: str, ask: Ask, relations: Sequence[str] = (), classes: Sequence[str] = ()
    ) -> None:
        self.name, self.ask = name, ask
        self.schema = extraction_schema(relations, classes)
        self.counts: Counter[str] = Counter()

    def extract(self, episodes: Sequence[Episode]) -> list[Extraction]:
        """Return one extraction for every episode, in order.

        Raises:
            UserError: the language model cannot be asked, or its budget is spent.
        """
        extracted: list[list[tuple[Span, Extraction]]] = [[] for _ in episodes]
        todo = [
            Excerpt(index, episode, span)
            for index, episode in enumerate(episodes)
            for span in excerpt_spans(episode.text, EXCERPT_CHARACTERS)
        ]
        while todo:
            replies = self._ask([extraction_prompt(excerpt, self.schema) for excerpt in todo])
            again: list[Excerpt] = []
            for excerpt, reply in zip(todo, replies, strict=True):
                is_complete = reply.is_complete and not is_full(reply.value, self.schema)
                parts = [] if is_complete else split_excerpt(excerpt)
                again += parts
                self.counts["split_excerpts"] += bool(parts)
                if not parts:
                    extraction = self._read(excerpt, reply, is_complete)
                    extracted[excerpt.index].append((excerpt.span, extraction))
            todo = again
        return [join([part for _, part in sorted(parts, key=itemgetter(0))]) for parts in extracted]

    def _read(self, excerpt: Excerpt, reply: Reply, is_complete: bool) -> Extraction:
        reader = Reader(excerpt, before(excerpt), self.counts)
        extraction = Extraction() if reply.value is None else reader.extraction(reply.value)
        self.counts["copied_from_example"] += reader.copied
        if is_complete and not reader.copied:
            return extraction
        self.counts["excerpts_by_rules"] += 1
        return join([extraction, by_rules(excerpt)])

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """Return, for every update, the keys of the known facts that the new statement replaces.

        A hypothesis replaces nothing. If there are many known facts, several prompts are asked.

        Raises:
            UserError: the language model cannot be asked, or its budget is spent.
        """
        parts = [
            (index, update.known[first : first + KNOWN_AT_ONCE])
            for index, update in enumerate(updates)
            if not update.new.hypothesis
            for first in range(0, len(update.known), KNOWN_AT_ONCE)
        ]
        replies = self._ask([replaced_prompt(updates[index], known) for index, known in parts])
        keys: list[tuple[int, ...]] = [()] * len(updates)
        for (index, known), reply in zip(parts, replies, strict=True):
            chosen = sorted(set(_readable(reply)["replaced"]))
            keys[index] += tuple(known[n - 1].key for n in chosen)
        return keys

    def entities(self, question: str) -> list[str]:
        """Return the names that a question mentions, in order; names that it does not contain are
        dropped.

        Raises:
            UserError: the language model cannot be asked, or its budget is spent.
        """
        text = prompt_text("entities", question=one_line(question))
        [reply] = self._ask([Prompt(text, ENTITIES, "the question")])
        names = unique(map(one_line, _readable(reply)["entities"]))
        mentioned = [name for name in names if seen(name, fold(question))]
        self.counts["unseen_names"] += len(names) - len(mentioned)
        return mentioned

    def cost(self) -> dict[str, float]:
        """Return the numbers of requests and of replies that could not be used unchanged."""
        return {name: float(count) for name, count in self.counts.items()}

    def _ask(self, prompts: Sequence[Prompt]) -> Sequence[Reply]:
        self.counts["requests"] += len(prompts)
        return self.ask(prompts) if prompts else []


def _readable(reply: Reply) -> Any:
    if reply.value is None:
        raise UserError("the language model's reply was cut off (max_tokens)")
    return reply.value


def excerpt_spans(text: str, most: int) -> list[Span]:
    """Return spans of whole sentences, each of up to ``most`` characters or a single sentence.

    Only a sentence longer than ``EXCERPT_CHARACTERS`` is cut, between words if it has any.
    """
    spans: list[Span] = []
    for sentence in sentence_spans(text):
        for start, stop in _cut(text, sentence):
            if spans and stop - spans[-1][0] <= most:
                spans[-1] = spans[-1][0], stop
            else:
                spans.append((start, stop))
    return spans


def _cut(text: str, span: Span) -> list[Span]:
    start, stop = span
    spans: list[Span] = []
    while stop - start > EXCERPT_CHARACTERS:
        space = text.rfind(" ", start + 1, start + EXCERPT_CHARACTERS)
        end = space if space > 0 else start + EXCERPT_CHARACTERS
        spans.append((start, end))
        start = end
    return [*spans, (start, stop)]


def split_excerpt(excerpt: Excerpt) -> list[Excerpt]:
    """Split an excerpt into about two parts; return [] if it is a single sentence."""
    first = excerpt.span[0]
    spans = excerpt_spans(excerpt.text, len(excerpt.text) // 2)
    parts = [
        Excerpt(excerpt.index, excerpt.episode, (first + start, first + stop))
        for start, stop in spans
    ]
    return parts if len(parts) > 1 else []


def by_rules(excerpt: Excerpt) -> Extraction:
    """Return the theses and times of an excerpt that the rules find."""
    first = excerpt.span[0]
    [extraction] = RulesExtractor().extract([replace(excerpt.episode, text=excerpt.text)])
    theses = [
        replace(thesis, span=(first + thesis.span[0], first + thesis.span[1]))
        for thesis in extraction.theses
        if thesis.span is not None
    ]
    return Extraction(theses=tuple(theses), times=extraction.times)


def join(parts: Sequence[Extraction]) -> Extraction:
    """Join several extractions of one episode without repeats."""
    return Extraction(
        triplets=tuple(dict.fromkeys(triplet for part in parts for triplet in part.triplets)),
        theses=tuple(dict.fromkeys(thesis for part in parts for thesis in part.theses)),
        times=tuple(dict.fromkeys(time for part in parts for time in part.times)),
    )


@cache
def _template(name: str) -> Template:
    path = files("turngraph.data.memory_graph.extract") / "prompts" / f"{name}.txt"
    return Template(path.read_text(encoding="utf-8"))


def prompt_text(name: str, **values: str) -> str:
    """Return a prompt of ``prompts/`` with its values filled in."""
    return _template(name).substitute(values)


@cache
def template_words() -> frozenset[str]:
    """Return the words of all prompts without their values, in lower case."""
    texts = " ".join(_template(name).template for name in ("entities", "extract", "replaced"))
    return frozenset(word.casefold() for word in re.findall(r"\w+", texts))


def name_episode(episode: Episode) -> str:
    """Return an episode's name in errors, without its text."""
    if episode.origin is None:
        return "an episode without origin" + (f" of {episode.source}" if episode.source else "")
    return f"the episode {episode.origin}"


def before(excerpt: Excerpt) -> str:
    """Return the end of the text before an excerpt in its episode."""
    start = excerpt.span[0]
    text = excerpt.episode.text[max(start - BEFORE_CHARACTERS, 0) : start]
    return one_line(text.partition(" ")[2] if start > BEFORE_CHARACTERS else text)


def extraction_prompt(excerpt: Excerpt, schema: Schema = EXTRACTION) -> Prompt:
    """Return the prompt for an excerpt's theses, triplets and times."""
    episode = excerpt.episode
    text = prompt_text(
        "extract",
        speaker=one_line(episode.speaker or "") or "unknown",
        said=local_time(episode.time, episode.properties) or "unknown",
        before=before(excerpt) or "nothing",
        passage=one_line(excerpt.text),
    )
    relation = schema["properties"]["triplets"]["items"]["properties"]["relation"]
    if "enum" in relation:
        text += "\nRelations, no others: " + ", ".join(relation["enum"])
    if "classes" in schema["properties"]:
        kind = schema["properties"]["classes"]["items"]["properties"]["kind"]
        text += '\n"classes": the "kind" of every entity for whose "name" one of these fits: '
        text += ", ".join(kind["enum"])
    return Prompt(text, schema, name_episode(episode))


def replaced_prompt(update: Update, known: Sequence[Fact]) -> Prompt:
    """Return the prompt for which of the known facts, numbered from 1, a new statement replaces."""
    episode = update.episode
    start, stop = update.new.span or (0, 0)
    context = episode.text[max(start - CONTEXT_CHARACTERS, 0) : stop + CONTEXT_CHARACTERS]
    text = prompt_text(
        "replaced",
        known="\n".join(f"{n}. {known_line(fact)}" for n, fact in enumerate(known, 1)),
        new=one_line(text_of(update.new)),
        said=local_time(episode.time, episode.properties) or "at an unknown time",
        speaker=one_line(episode.speaker or "") or "somebody",
        context=one_line(context),
    )
    return Prompt(text, replaced_schema(len(known)), name_episode(episode))


def known_line(fact: Fact) -> str:
    """Return a fact in one line with its times."""
    said = next((place.said_locally for place in fact.provenance if place.said), None)
    times = [
        f"{word} {time}"
        for word, time in (("since", fact.valid_from), ("until", fact.valid_to), ("said", said))
        if time is not None
    ]
    text = " ".join(fact.ends) if fact.ends else fact.text  # a triplet's text begins with its time
    return one_line(text) + (f" ({', '.join(times)})" if times else "")
