"""Parses ISO times of any precision; computes their first second and their end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from turngraph.configs.user_error import UserError
from turngraph.data.normalise import parse_date

_ISO = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,]\d+)?)?)?"
    r"\s?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?)?)?",
    re.IGNORECASE | re.ASCII,
)
_ZONE = re.compile(r"Z|[+-]\d\d(?::?\d\d)?", re.IGNORECASE | re.ASCII)
_LENGTHS = {"year": 4, "month": 7, "day": 10, "hour": 13, "minute": 16, "second": 19}
_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
EPOCH = date(1970, 1, 1).toordinal()
UTC_OFFSET = "utc_offset"
"""Property of an episode: the zone of its speaker's clock, such as "+09:00"."""
_MAX_OFFSET = timedelta(hours=14)
"""Offset of Kiribati, the largest in use."""


@lru_cache(maxsize=1 << 12)
def parse_time(text: str) -> str:
    """Return the ISO form of a time, as precise as the text: "2019", "2019-05-03T10:30".

    A time of day with a zone is converted to UTC, with minutes if the zone needs them; fractions of
    a second are dropped. Dates in words ("3 May 2019") are read by ``data.normalise.parse_date``.

    Raises:
        UserError: the text is not a time, or there is no such day.
    """
    match = _ISO.fullmatch(text.strip())
    if match is None:
        words = parse_date(text)
        if words is None:
            raise UserError("not a time in ISO form (2019, 2019-05-03, 2019-05-03T10:30)")
        return words
    parts = {name: part for name, part in match.groupdict().items() if part is not None}
    zone = parts.pop("zone", "Z")
    last = next(reversed(parts))
    try:
        values = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}
        values |= {name: int(part) for name, part in parts.items()}
        moment = datetime(
            values["year"],
            values["month"],
            values["day"],
            values["hour"],
            values["minute"],
            values["second"],
        )
        moment -= _offset(zone)
    except NoZone:
        raise
    except (ValueError, OverflowError):
        raise UserError("no such day or time of day") from None
    if last == "hour" and moment.minute:  # the zone differs by half an hour
        last = "minute"
    return moment.isoformat(timespec="seconds")[: _LENGTHS[last]]


def _offset(zone: str) -> timedelta:
    if zone in "Zz":
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    if size > _MAX_OFFSET or int(digits[2:]) > 59:
        raise NoZone(f"there is no zone {zone}")
    return -size if zone[0] == "-" else size


def offset_of(text: str) -> dict[str, str]:
    """Return {``UTC_OFFSET``: zone} for a time with a zone other than UTC, else {}.

    Raises:
        UserError: there is no such zone.
    """
    match = _ISO.fullmatch(text.strip())
    zone = match["zone"] if match else None
    return {UTC_OFFSET: zone} if zone and _offset(zone) else {}


def local_time(iso: str | None, properties: Mapping[str, str]) -> str | None:
    """Return a time of day in UTC as the speaker's clock shows it, by the episode's properties.

    Relative dates in a text ("today", "last month") count from this time. A date without a time of
    day is returned unchanged.
    """
    zone = properties.get(UTC_OFFSET, "Z")
    if iso is None or len(iso) <= _LENGTHS["day"] or not _ZONE.fullmatch(zone):
        return iso
    try:
        moment = datetime.fromisoformat(iso) + _offset(zone)
    except (ValueError, OverflowError):  # a property of the user's own, or the year 10000
        return iso
    length = _LENGTHS["minute"] if len(iso) == _LENGTHS["hour"] and moment.minute else len(iso)
    return moment.isoformat(timespec="seconds")[:length]


@lru_cache(maxsize=1 << 16)
def start(iso: str) -> int:
    """Return the first second of a time, counted from 1970 in UTC.

    Raises:
        NoTime: it is not in the form of ``parse_time``.
    """
    return _bounds(iso)[0]


@lru_cache(maxsize=1 << 12)
def end(iso: str) -> int:
    """Return the first second after a time: that of 2020-01-01 for "2019".

    Raises:
        NoTime: it is not in the form of ``parse_time``.
    """
    return _bounds(iso)[1]


class NoTime(ValueError):
    """A text is not a time in the form of ``parse_time``."""


class NoZone(UserError):
    """No place on earth has this time zone."""


def _bounds(iso: str) -> tuple[int, int]:
    match = _ISO.fullmatch(iso)
    if match is None:
        raise NoTime("not a time in ISO form")
    parts = {name: int(p) for name, p in match.groupdict().items() if p and name != "zone"}
    last = next(reversed(parts))
    year, month = parts["year"], parts.get("month", 1)
    first = _day(year, month) + parts.get("day", 1) - 1
    if last in ("year", "month"):
        after = _day(year + 1, 1) if last == "year" else _day(year, month + 1)
        return first * 86400, after * 86400
    seconds = sum(_SECONDS[name] * parts.get(name, 0) for name in ("hour", "minute", "second"))
    return first * 86400 + seconds, first * 86400 + seconds + _SECONDS[last]


def _day(year: int, month: int) -> int:
    """Return a month's first day, counted from 1970; month 13 and year 10000 are valid."""
    if month > 12:
        year, month = year + 1, 1
    if year > 9999:
        return date.max.toordinal() + 1 - EPOCH
    if not (year and month):
        raise NoTime("not a time in ISO form")
    return date(year, month, 1).toordinal() - EPOCH


def now() -> str:
    """Return the current second in UTC."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def local_now() -> str:
    """Return the current second by this machine's clock, with its zone."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def second_of(as_of: str | None) -> int:
    """Return the last second of a time in ISO form; None: the present second.

    Raises:
        UserError: it is not a time.
    """
    if as_of is None:
        return start(now())
    if not isinstance(as_of, str):
        raise UserError(f"as_of: {as_of!r} given, must be a string")
    try:
        return end(parse_time(as_of)) - 1
    except UserError as error:
        raise UserError(f"as_of: {as_of!r} given: {error}") from None
