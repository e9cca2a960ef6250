"""Splits an episode into sentences, each with its speaker and topic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from turngraph.data.linearise import sentence_spans
from turngraph.data.memory_graph.extract.word_lists import NOT_NAMES, OPENERS
from turngraph.data.memory_graph.memory_types import Episode, Span

MAX_SENTENCE_CHARS = 1000
"""Longest sentence; a longer one (a page without a full stop) is cut at the end of a word."""
MAX_HEADING_CHARS = 80
MAX_WRAPPED_CHARS = 50  # a shorter line without a mark at its end was not wrapped, but is complete

_SPEAKER = re.compile(r"(?:[-*>]\s*)?([^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){0,2}):\s+(?=\S)")
_ITEM = re.compile(r"(?:[-*•+>#|]+|\d{1,3}[.)])\s")
_MARKUP = re.compile(r"(?:[-*•+>#]+\s+|\d{1,3}[.)]\s+)+(?=\S)")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of an episode.

    Args:
        span: span of the sentence in the episode's text.
        text: text of the sentence.
        speaker: who says it; None: unknown.
        topic: topic of the whole text (its heading); None: unknown.
    """

    span: Span
    text: str
    speaker: str | None
    topic: str | None


def split_episode(episode: Episode) -> list[Sentence]:
    """Return the sentences of an episode, in order; a heading becomes the topic of the others."""
    topic, start = _heading(episode)
    text = episode.text
    sentences: list[Sentence] = []
    for first, last in _blocks(text, start):
        speaker = episode.speaker
        if (match := _speaker(text, first, last)) and speaker in (None, match[1]):
            speaker, first = match[1], match.end()
        for at, end in sentence_spans(text[first:last]):
            for span in _parts(text, first + at, first + end):
                sentences.append(Sentence(span, text[slice(*span)], speaker, topic))
    return sentences


def _heading(episode: Episode) -> tuple[str | None, int]:
    """Return an episode's title or heading, and the index at which the text after it begins.

    A heading is a short first line without a full stop."""
    title = episode.properties.get("title")
    text = episode.text
    if "\n" not in text or episode.speaker is not None:
        return title, 0
    line, _, rest = text.partition("\n")
    heading = line.strip().strip("#= \t")
    is_heading = 0 < len(heading) <= MAX_HEADING_CHARS and heading[-1] not in ".!?:;,。！？।"
    if is_heading and line.strip() == heading:  # without a mark of a heading
        is_heading = title in (None, heading) and not _is_wrapped(text)
    if not is_heading or not rest.strip() or _SPEAKER.match(line) or _ITEM.match(line.lstrip("#=")):
        return title, 0
    return title or heading, len(line) + 1


def _is_wrapped(text: str) -> bool:
    """Return whether the first line belongs to a text whose lines are wrapped at a width."""
    first, *more = text.split("\n\n", 1)[0].split("\n")
    if not more:
        return False
    if len(sentence_spans(first)) > 1:
        return True
    word = more[0].split(" ", 1)[0]  # is there room for it on the first line?
    is_full = len(first) + 1 + len(word) > max(map(len, more))
    return word[:1].islower() or (len(first) >= MAX_WRAPPED_CHARS and is_full)


def _blocks(text: str, start: int) -> Iterator[Span]:
    """Yield paragraphs, list items and lines of a dialogue; wrapped lines are joined."""
    if "\n" not in text:
        yield start, len(text)
        return
    at = start
    while (newline := text.find("\n", at)) >= 0:
        if _ends_block(text, at, newline):
            if start < newline:
                yield start, newline
            start = newline + 1
        at = newline + 1
    if start < len(text):
        yield start, len(text)


def _ends_block(text: str, line: int, newline: int) -> bool:
    following = text[newline + 1 : newline + 80].split("\n", 1)[0]
    if not following.strip() or line == newline or text[line:newline].isspace():
        return True
    if _ITEM.match(following.lstrip()) or _SPEAKER.match(following.lstrip()):
        return True
    return newline - line < MAX_WRAPPED_CHARS and following.lstrip()[:1].isupper()


def _speaker(text: str, first: int, last: int) -> re.Match[str] | None:
    match = _SPEAKER.match(text, first, last)
    if match is None or not match[1][0].isupper():
        return None
    word = match[1].lower()
    return None if word in OPENERS or word in NOT_NAMES else match


def _parts(text: str, start: int, stop: int) -> Iterator[Span]:
    """Yield the span of a sentence without list marks before it, in parts if it is too long."""
    if match := _MARKUP.match(text, start, stop):
        start = match.end()
    while stop - start > MAX_SENTENCE_CHARS:
        cut = text.rfind(" ", start + 1, start + MAX_SENTENCE_CHARS)
        cut = cut if cut > start else start + MAX_SENTENCE_CHARS
        yield start, cut
        start = cut + (text[cut] == " ")
    if start < stop:
        yield start, stop
