"""Finds the messages of a chat log: who says what, and when, in the forms that apps export.

02/08/2024, 18:04 - Marisol: Evening all.        [02.08.24, 18:04:11] Marisol: Evening all.
18:04 <Marisol> Evening all.                     Marisol: Evening all.
Marisol — 02/08/2024 18:04                       (and the message below)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from turngraph.data.normalise import parse_date

_CLOCK = r"\d{1,2}[:.]\d\d(?:[:.]\d\d)?(?:[\s\u202f]?[ap]\.?m\b\.?)?"
_DAY = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
_STAMP = rf"[\[(]?(?P<day>{_DAY}[,T]?\s?)?{_CLOCK}[\])]?"
_NAME = r"[^\W_][^:<>\[\]\n]{0,39}"
_STAMPED = re.compile(rf"{_STAMP}(?:\s[-–—])?\s", re.IGNORECASE)
_SPEAKER = re.compile(rf"(?:<[^<>\n]{{1,40}}>|{_NAME}:)(?=\s|$)")
_HEAD_LINE = re.compile(rf"{_NAME}?\s{{1,3}}(?:[-–—]\s)?{_STAMP}", re.IGNORECASE)
_RULES = "-–—=*_# "


@dataclass
class Message:
    """A message of a chat log.

    Args:
        head: who wrote it and when, as the log says; "" of what stands before the first message.
        day: the line with a date that stands above it, if any.
        lines: its text.
    """

    head: str
    day: str
    lines: list[str] = field(default_factory=list)


def messages(text: str) -> list[Message] | None:
    """Return the messages of a chat log, None if a text is none.

    A log has two heads with a time; or, without times, heads on most of its lines, and in most
    of its paragraphs that have several a speaker who speaks again: the fields of a form do not.
    """
    if not _is_log(text):
        return None
    found = [Message("", "")]
    day = ""
    for line in map(str.strip, text.split("\n")):
        head, rest = _split(line)
        if head:
            found.append(Message(head, day, [rest]))
        elif parse_date(line.strip(_RULES)):
            day = line.strip(_RULES)
            found.append(Message("", day))
        else:
            found[-1].lines.append(line)
    return found


def _split(line: str) -> tuple[str, str]:
    """Split a line into the head that begins it, "" if there is none, and the rest."""
    if _is_head_line(line):
        return f"{line}:", ""
    stamp = _STAMPED.match(line)
    begin = stamp.end() if stamp else 0
    if speaker := _SPEAKER.match(line, begin):
        begin = speaker.end()
    elif stamp and not stamp["day"]:
        begin = 0
    return line[:begin].rstrip(), line[begin:].strip()


def _is_log(text: str) -> bool:
    paragraphs = [
        [line.strip() for line in paragraph.split("\n") if line.strip()]
        for paragraph in re.split(r"\n\s*\n", text)
    ]
    lines = [line for paragraph in paragraphs for line in paragraph]
    if sum(_with_time(line) for line in lines) > 1:
        return True
    speakers = [_speakers(paragraph) for paragraph in paragraphs]
    if 2 * sum(map(len, speakers)) <= len(lines):
        return False
    several = [found for found in speakers if len(found) > 1] or [list(chain(*speakers))]
    return 2 * sum(len(set(found)) < len(found) for found in several) > len(several)


def _with_time(line: str) -> bool:
    stamp = _STAMPED.match(line)
    return bool(stamp and _SPEAKER.match(line, stamp.end())) or _is_head_line(line)


def _is_head_line(line: str) -> bool:
    return _HEAD_LINE.fullmatch(line) is not None


def _speakers(lines: Sequence[str]) -> list[str]:
    return [match[0] for line in lines if (match := _SPEAKER.match(line))]
