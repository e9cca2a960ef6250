"""Finds the messages of a chat log, and the days of a diary, whose dates are lines of their own.

Messages, and who writes them when, are read in the forms that apps export:

02/08/2024, 18:04 - Marisol: Evening all.        [02.08.24, 18:04:11] Marisol: Evening all.
18:04 <Marisol> Evening all.                     Marisol: Evening all.
Marisol — 02/08/2024 18:04                       (and the message below)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, time
from itertools import chain, pairwise

from turngraph.data.normalise import parse_date

_CLOCK = r"\d{1,2}[:.]\d\d(?:[:.]\d\d)?(?:[\s\u202f]?[ap]\.?m\b\.?)?"
_DAY = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
_STAMP = rf"[\[(]?(?:(?P<day>{_DAY})[,T]?\s?)?(?P<clock>{_CLOCK})[\])]?"
_NAME = r"[^\W_][^:<>\[\]\n]{0,39}"
_STAMPED = re.compile(rf"{_STAMP}(?:\s[-–—])?\s", re.IGNORECASE)
_SPEAKER = re.compile(rf"(?:<(?P<nick>[^<>\n]{{1,40}})>|(?:~\s?)?(?P<name>{_NAME}):)(?=\s|$)")
"""WhatsApp has "~ " before the name of somebody who is not among the contacts."""
_HEAD_LINE = re.compile(rf"(?P<name>{_NAME}?)\s{{1,3}}(?:[-–—]\s)?{_STAMP}", re.IGNORECASE)
_RULES = "-–—=*_# "
_LONGEST_DATE = 60
"""Characters of a line that is a date and nothing else, with rules around it."""


@dataclass
class Message:
    """A message of a chat log, or a paragraph of another text.

    Args:
        head: who wrote it and when, as the log says; "" for other text.
        day: the line with a date that stands above it, if any.
        lines: its text.
        speaker, date, clock: the parts of its head, as written; "" where it has none.
    """

    head: str
    day: str
    lines: list[str] = field(default_factory=list)
    speaker: str = ""
    date: str = ""
    clock: str = ""


def messages(text: str) -> list[Message]:
    """Return the messages of a chat log, or the paragraphs of another text, each with its day.

    A log has at least two heads with a time. A log without times has a speaker at the head of most
    of its lines, and in most paragraphs with several speakers one speaks again: the fields of a
    form do not repeat.
    """
    is_log = _is_log(text)
    log = [Message("", "")]
    day = ""
    for line in text.split("\n"):
        bare = line.strip()
        begun = _begun_by(bare, day) if is_log else Message("", day)
        if begun.head or not (bare or is_log):
            log.append(begun)
        elif len(bare) <= _LONGEST_DATE and parse_date(bare.strip(_RULES)):
            day = bare.strip(_RULES)
            log.append(Message("", day))
        else:
            log[-1].lines.append(bare if is_log else line)
    return log


def times(messages: Sequence[Message]) -> tuple[list[str | None], str]:
    """Return when each message was written, and a date that could be read in two ways, else "".

    In 02/08/2024 the day comes first, unless with the month first fewer dates of the log are
    impossible or before the date above them. In 02.08.2024 the day always comes first. Years of two
    digits are of this century.

    Returns:
        ISO times, as precise as the log, None for a message without a date; and the first date of
        which nothing tells whether the day comes first.
    """
    readings = [[_date(message, day_first) for message in messages] for day_first in (True, False)]
    unlikely = list(map(_unlikely, readings))
    read = readings[unlikely[1] < unlikely[0]]
    differ = (m.date for m, day, month in zip(messages, *readings, strict=True) if day != month)
    doubtful = next(differ, "") if unlikely[0] == unlikely[1] else ""
    said = [on and on + _clock(m.clock) for m, on in zip(messages, read, strict=True)]
    return said, doubtful


def _unlikely(dates: Sequence[str | None]) -> int:
    """Count the dates that do not exist, or that are before the one above them."""
    there = [date for date in dates if date]
    return len(dates) - len(there) + sum(b < a for a, b in pairwise(there))


def _date(message: Message, day_first: bool) -> str | None:
    if not message.date:
        return parse_date(message.day)
    first, second, last = map(int, re.split("[./-]", message.date))
    if first > 31:
        year, month, day = first, second, last
    else:
        day, month = (first, second) if day_first or "." in message.date else (second, first)
        year = last if last > 99 else 2000 + last
    try:
        return date(year, month, day).isoformat()
    except ValueError:  # no such day
        return None


def _clock(written: str) -> str:
    """Return "T18:02" of "6:02 PM", "" if there is no such time of day."""
    numbers = [int(digits) for digits in re.findall(r"\d+", written)]
    if not numbers:
        return ""
    hour, minute, second = [*numbers, 0][:3]
    if half := re.search("[ap]", written, re.IGNORECASE):
        hour = hour % 12 + 12 * (half[0] in "pP")
    try:
        return f"T{time(hour, minute, second).isoformat('seconds' if numbers[2:] else 'minutes')}"
    except ValueError:
        return ""


def _begun_by(line: str, day: str) -> Message:
    """Return the message that a line begins; its head is "" if the line begins none."""
    if alone := _HEAD_LINE.fullmatch(line):
        parts = alone.groupdict("")
        return Message(f"{line}:", day, [""], parts["name"], parts["day"], parts["clock"])
    stamp = _STAMPED.match(line)
    begin = stamp.end() if stamp else 0
    speaker = _SPEAKER.match(line, begin)
    if speaker:
        begin = speaker.end()
    elif stamp and not stamp["day"]:
        begin, stamp = 0, None
    said_by = (speaker["nick"] or speaker["name"]) if speaker else ""
    when = (stamp["day"] or "", stamp["clock"]) if stamp else ("", "")
    return Message(line[:begin].rstrip(), day, [line[begin:].strip()], said_by, *when)


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
    several = [names for names in speakers if len(names) > 1] or [list(chain(*speakers))]
    return 2 * sum(len(set(names)) < len(names) for names in several) > len(several)


def _with_time(line: str) -> bool:
    stamp = _STAMPED.match(line)
    return bool((stamp and _SPEAKER.match(line, stamp.end())) or _HEAD_LINE.fullmatch(line))


def _speakers(lines: Sequence[str]) -> list[str]:
    return [match[0] for line in lines if (match := _SPEAKER.match(line))]
