"""Dates in English sentences, absolute in any spelling or relative to a day ("last week")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR, date, timedelta

from turngraph.data.memory_graph.extract.tenses import Tense, tense_at
from turngraph.data.memory_graph.extract.word_lists import NUMBER_WORDS, WEEKDAYS
from turngraph.data.normalise import MONTHS, parse_date

_ABBREVIATED = r"t?\.(?=[\s,]*\w)|t"  # a full stop at the end is the sentence's
_MONTH = "|".join(
    rf"{name[:3]}(?:{name[3:]}|{_ABBREVIATED})?" if name[3:] else name for name in MONTHS
)
_NUMBER = "|".join(["an?", r"\d{1,3}", *NUMBER_WORDS])
_UNITS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
_ORDINALS = {name: i for i, name in enumerate(_UNITS, 1)}
_ORDINALS |= {f"twenty-{name}": 20 + i for i, name in enumerate(_UNITS[:9], 1)}
_ORDINALS |= {"thirtieth": 30, "thirty-first": 31}
_PART = r"(?:\ (?:morning|afternoon|evening|night))?"
_DATE = re.compile(
    rf"""(?<![\w.,:/])(?<![^d]-)(?=[\dadefjlmnopstwyz])(?:
      (?P<full>\d{{1,2}}(?:st|nd|rd|th)?\ (?:of\ )?(?:{_MONTH}),?\ \d{{4}}
        |(?:{_MONTH})\ \d{{1,2}}(?:st|nd|rd|th)?,?\ \d{{4}}|(?:{_MONTH}),?\ \d{{4}})
      |(?P<iso>\d{{4}}-\d\d(?:-\d\d)?)(?:T[\d:]+Z?)?
      |(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\ (?:of\ )?(?P<month_of>{_MONTH})
      |(?P<month>{_MONTH})\ (?P<day_of>\d{{1,2}})(?:st|nd|rd|th)?
      |(?P<ordinal>{"|".join(sorted(_ORDINALS, key=len, reverse=True))})\ of\ (?P<in_month>{_MONTH})
        (?:,?\ (?P<in_year>\d{{4}}))?
      |(?P<near>the\ day\ before\ yesterday|(?:yesterday|tomorrow){_PART}|today|tonight|last\ night
        |this\ (?:morning|afternoon|evening))
      |(?P<same>(?:the\ same|that\ same|that)\ day)
      |(?P<count>{_NUMBER})\ (?P<unit>day|week|month|year)s?\ (?P<side>ago|from\ now)
      |(?P<which>last|next|this|past)\ (?P<what>week|month|year|weekend|{_MONTH}
        |(?:{"|".join(WEEKDAYS)}){_PART})
      |(?P<weekday>{"|".join(WEEKDAYS)}){_PART}(?!,?\ (?:\d|the\ |{_MONTH}))
      |(?P<alone>{_MONTH})
      |(?P<year>1\d{{3}}|20\d\d)
    )(?![\w/]|[.,:-]\d)""",
    re.IGNORECASE | re.VERBOSE,
)
_DAY_NUMBER = r"\d{1,2}(?:st|nd|rd|th)?"
_DASH = r"\s?[-‐‑‒–—―−]\s?"
_TO = rf"(?:{_DASH}|\ (?:to|until|till|through)\ (?:the\ )?)"
_RANGE = re.compile(
    rf"""(?<![\w.,:/-])(?=[\dabdefjlmnops])(?:(?:from|between)\ (?:the\ )?)?(?:
      (?P<day>{_DAY_NUMBER})(?:\ (?:of\ )?(?P<month>{_MONTH}))?(?P<to>{_TO}|\ and\ )
        (?P<last_day>{_DAY_NUMBER})\ (?:of\ )?(?P<last_month>{_MONTH})(?:,?\ (?P<year>\d{{4}}))?
      |(?P<us_month>{_MONTH})\ (?P<us_day>{_DAY_NUMBER})(?P<us_to>{_TO}|\ and\ )
        (?:(?P<us_last_month>{_MONTH})\ )?(?P<us_last_day>{_DAY_NUMBER})
        (?:,?\ (?P<us_year>\d{{4}}))?
      |(?P<first_month>{_MONTH})(?P<month_to>{_TO}|\ and\ )(?P<until_month>{_MONTH}),?
        \ (?P<month_year>\d{{4}})
      |(?P<dated_month>{_MONTH}),?\ (?P<dated_year>\d{{4}})(?P<dated_to>{_TO})
        (?P<bare_month>{_MONTH})(?!,?\ \d)
      |(?P<first_year>1\d{{3}}|20\d\d)(?P<year_to>{_DASH})(?P<until_year>1\d{{3}}|20\d\d|\d\d)
    )(?![\w/]|[.,:-]\d)""",
    re.IGNORECASE | re.VERBOSE,
)
"""Ranges of days, months or years that state the month or year only once: "3–5 May 2021"."""
_BEFORE = re.compile(
    r"(?:\b(since|from|to|until|till|through|in|on|during|by|before|after|between|and|as\ of|"
    r"starting(?:\ in|\ on)?|effective|of|around|at(?=\ the\ (?:beginning|start|end)\b))\s+"
    r"(?:the\s+|early\s+|late\s+|mid-?\s*|(?:spring|summer|autumn|winter|night|morning|evening|"
    r"beginning|start|middle|end)\s+(?:of\s+)?)*"
    r"|([(–—-])\s*)$",
    re.IGNORECASE,
)
_TRIGGER = re.compile(
    r"\d|[Yy]esterday|[Tt]o(?:day|night|morrow)|\b(?:[Ll]ast|[Nn]ext|[Tt]his|past) "
    r"|\b(?:same|[Tt]hat) day\b"
    r"|\b(?:ago|now)\b"
    r"|\b(?:[IiOo]n|[Ss]ince|[Uu]ntil|[Ff]rom|[Dd]uring|of) (?:mid-|early |late )?[JFMASONDTW]"
)
_JOINS = re.compile(_TO, re.VERBOSE)
_ENDING = re.compile(r"\D+$")
_YEARS = ("year", "us_year", "month_year", "dated_year", "first_year")
_BETWEEN = ("to", "us_to", "month_to", "dated_to", "year_to")
_NEAR = {"yesterday": -1, "last": -1, "tomorrow": 1, "the": -2}
"""Number of days from today, by the first word."""
_ON = frozenset(("on", "since"))
_WITHIN = frozenset(("in", "on", "during"))
"""Words before the day or month of an event."""
_STARTS = frozenset({"since", "from", "as of", "starting", "starting in", "starting on"})
_STARTS |= {"effective", "between"}

_Period = tuple[str, str, str | None]
"""``first``, ``after`` and ``label`` of a ``Date``."""


@dataclass(frozen=True, slots=True)
class Date:
    """A date in a sentence.

    Args:
        start, stop: its span in the sentence, including a word like "since" before it.
        first: the day, month or year in ISO form; the first day of a week.
        after: the first day, month or year after the date.
        word: "since", "until", "at", or "" if the date is not the time of a statement ("after
            2010").
        label: the date in words, if the sentence gives it relative to a day; else None.
        is_inside: whether something that holds until the date also holds at it: "3 to 5 May".
    """

    start: int
    stop: int
    first: str
    after: str
    word: str
    label: str | None = None
    is_inside: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the date is one day, month or year, not a week."""
        return _next(self.first) == self.after


def find_dates(text: str, said: str | None, before: str | None = None) -> list[Date]:
    """Return the dates in a sentence, in order.

    Args:
        text: a sentence.
        said: time at which it was said, in ISO form; None: unknown, so "last week" is no date.
        before: last date in the sentences before; "the same day" refers to it if it is a day.
    """
    if not _TRIGGER.search(text):
        return []
    now = _day(said)
    dates = list(_ranges(text, now, said))
    taken = [(date.start, date.stop) for date in dates]
    for match in _DATE.finditer(text):
        if any(start < match.end() and match.start() < stop for start, stop in taken):
            continue
        ahead = _BEFORE.search(text, max(0, match.start() - 24), match.start())
        word = (ahead[1] or "").lower() if ahead else ""
        if match["same"]:
            day = next((d.first for d in reversed(dates) if len(d.first) == 10), before)
            period = _one_day(date.fromisoformat(day)) if day and len(day) == 10 else None
        else:
            period = _period(match, now, said, bool(ahead), word)
        if period is not None:
            role = _role(word, dates)
            if dates and _JOINS.fullmatch(text, dates[-1].stop, match.start()):
                role = _joined(dates, period[0]) or role
            start = ahead.start() if ahead and ahead[1] and role else match.start()
            first, after, label = period
            made = Date(start, match.end(), first, after, word=role, label=label)
            if role == "until" and word not in ("until", "till"):
                made = _ending(dates[-1].first, made)
            dates.append(made)
    return sorted(dates, key=lambda date: date.start) if taken else dates


def _joined(dates: list[Date], last: str) -> str:
    """Make the date before a dash or "to" the begin of a range, and return "until"; else ""."""
    if dates[-1].word not in ("at", "since") or dates[-1].first > last:
        return ""
    dates[-1] = replace(dates[-1], word="since")
    return "until"


def _ending(first: str, last: Date) -> Date:
    """Return the last date of a range that begins at another, with whether it belongs to it.

    Days and months do. The last of several years does not: what holds "from 2010 to 2015" may have
    ended at any time of 2015.
    """
    return replace(last, is_inside=len(last.first) > 4 or first == last.first)


def _ranges(text: str, now: date | None, said: str | None) -> Iterator[Date]:
    """Yield the first and the last date of every range that states its year or month once."""
    for match in _RANGE.finditer(text):
        try:
            ends = _ends_of_range(match, now, said)
        except (OverflowError, ValueError):
            continue
        if ends is None or ends[0] > ends[1]:
            continue
        first, last = ends
        middle = next(match.start(name) for name in _BETWEEN if match[name])
        has_year = any(
            match[name] for name in ("year", "us_year", "month_year", "dated_year", "first_year")
        )
        label = None if has_year else f"{name_date(first)} to {name_date(last)}"
        yield Date(match.start(), middle, first, _next(first), "since")
        yield _ending(first, Date(middle, match.end(), last, _next(last), "until", label))


def _ends_of_range(
    match: re.Match[str], now: date | None, said: str | None
) -> tuple[str, str] | None:
    if match["first_year"]:
        first, last = match["first_year"], match["until_year"]
        if len(last) == 2:
            if int(last) <= 12:  # "2010-12" is a month
                return None
            last = first[:2] + last
        return first, last
    if match["first_month"]:
        if not match["first_month"][0].isupper():  # "I march to"
            return None
        year, month = int(match["month_year"]), _month_number(match["until_month"])
        first = _month_number(match["first_month"])
        return f"{year - (first > month):04d}-{first:02d}", f"{year:04d}-{month:02d}"
    if match["dated_month"]:
        year, first = int(match["dated_year"]), _month_number(match["dated_month"])
        month = _month_number(match["bare_month"])
        return f"{year:04d}-{first:02d}", f"{year + (first > month):04d}-{month:02d}"
    prefix = "us_" if match["us_day"] else ""
    days = [int(_ENDING.sub("", match[prefix + name])) for name in ("day", "last_day")]
    names = match[prefix + "month"], match[prefix + "last_month"]
    first = _month_number(names[0] or names[1])
    last = _month_number(names[1] or names[0])
    if match[prefix + "year"]:
        year = int(match[prefix + "year"])
    elif now is not None and len(said or "") >= 10:
        nearest = _nearest_day(last, days[1], now, tense_at(match.string, match.start()))
        if nearest is None:
            return None
        year = int(nearest[0][:4])
    else:
        return None
    ends = (year - (first > last), first, days[0]), (year, last, days[1])
    isos = [_valid(f"{y:04d}-{month:02d}-{day:02d}") for y, month, day in ends]
    return (isos[0], isos[1]) if isos[0] and isos[1] else None


def _role(word: str, before: Sequence[Date]) -> str:
    """Return the ``word`` of a date from the word before it; "to" and "and" may end an interval."""
    if word == "and" and not (before and before[-1].word == "since"):
        return "at"
    if word in _STARTS:
        return "since"
    if word in ("until", "till"):
        return "until"
    if word in ("to", "and", "through"):
        return "until" if before and before[-1].word == "since" else ""
    return "at" if word in ("", "in", "on", "during", "at") else ""


def _period(
    match: re.Match[str], now: date | None, said: str | None, is_marked: bool, word: str
) -> _Period | None:
    """Return the period of a match, or None if there is no such date."""
    try:
        return _period_of(match, now, said, is_marked, word)
    except (OverflowError, ValueError):  # "until 9999", "in 90000 years"
        return None


def _period_of(
    match: re.Match[str], now: date | None, said: str | None, is_marked: bool, word: str
) -> _Period | None:
    kind = match.lastgroup
    if kind == "full" or kind == "iso":
        iso = parse_date(match[0]) if kind == "full" else _valid(match["iso"])
        return (iso, _next(iso), None) if iso else None
    if kind == "year":
        return (match[0], _next(match[0]), None) if is_marked else None
    if kind == "which" or match["which"]:
        return _which(match["which"].lower(), match["what"].lower(), now, said)
    if match["in_year"]:
        day = _ORDINALS[match["ordinal"].lower()]
        iso = _valid(f"{match['in_year']}-{_month_number(match['in_month']):02d}-{day:02d}")
        return (iso, _next(iso), None) if iso else None
    if now is None or len(said or "") < 7:
        return None
    if kind == "alone":
        is_month = is_marked and match[0][0].isupper()
        return _nearest_month(match[0], now, _tense(match, word)) if is_month else None
    if len(said or "") < 10:
        return None
    if match["near"]:
        if match["near"] == "Today" and not match.start() and tense_at(match.string, 0) != "past":
            return None  # "Today it houses a library"
        return _one_day(now + timedelta(_NEAR.get(match[0].lower().split()[0], 0)))
    if match["count"]:
        return _counted(match["count"].lower(), match["unit"].lower(), match["side"], now)
    if match["weekday"]:
        return _weekday(match, word, now, said) if match[0][0].isupper() else None
    month = _month_number(match["month"] or match["month_of"] or match["in_month"])
    ordinal = match["ordinal"]
    day = _ORDINALS[ordinal.lower()] if ordinal else int(match["day"] or match["day_of"])
    return _nearest_day(month, day, now, _tense(match, word))


def _weekday(match: re.Match[str], word: str, now: date, said: str | None) -> _Period | None:
    """Return the day of "on Friday" (past events only) or "until Friday"; None: unclear."""
    name = match["weekday"].lower()
    if word in _ON and _tense(match, word) == "past":
        return _which("last", name, now, said)
    if word == "until" and tense_at(match.string, match.start()) != "past":
        return _which("next", name, now, said)
    return None


def _tense(match: re.Match[str], word: str) -> Tense:
    """Return the tense of a match: whether its day is before or after today."""
    if word == "since":
        return "past"
    return tense_at(match.string, match.start()) if word in _WITHIN else ""


def _which(which: str, what: str, now: date | None, said: str | None) -> _Period | None:
    """Return the period of "last month", "next Friday" and so on, if ``said`` is exact enough."""
    step = {"last": -1, "past": -1, "next": 1, "this": 0}[which]
    if now is None:
        return None
    if what == "year":
        return _labelled(f"{now.year + step:04d}")
    if what == "month":
        return _labelled(_month_after(now, step)) if len(said or "") >= 7 else None
    if len(said or "") < 10:
        return None
    if what == "week":
        return _days(now - timedelta(now.weekday()) + timedelta(7 * step), 7)
    if what == "weekend":
        return _days(now - timedelta(now.weekday()) + timedelta(7 * step + 5), 2)
    if (weekday := what.split()[0]) in WEEKDAYS:
        ahead = WEEKDAYS.index(weekday) - now.weekday()
        if which in ("last", "past"):
            return _one_day(now - timedelta(-ahead % 7 or 7))
        return _one_day(now + timedelta(ahead % 7 or 7))
    month = _month_number(what)
    year = now.year + (step if (month - now.month) * step <= 0 else 0)
    return _labelled(f"{year:04d}-{month:02d}")


def _counted(count: str, unit: str, side: str, now: date) -> _Period | None:
    num = 1 if count in ("a", "an") else NUMBER_WORDS.get(count)
    num = (int(count) if num is None else num) * (-1 if side.lower() == "ago" else 1)
    if unit == "year":
        return _labelled(_month_after(now, 12 * num)[:4])
    if unit == "month":
        return _labelled(_month_after(now, num))
    return _one_day(now + timedelta(num * (7 if unit == "week" else 1)))


def _nearest_day(month: int, day: int, now: date, tense: Tense) -> _Period | None:
    days = [_valid(f"{year:04d}-{month:02d}-{day:02d}") for year in _years_around(now)]
    candidates = [date.fromisoformat(iso) for iso in days if iso]
    if tense:
        is_past = tense == "past"
        candidates = [day for day in candidates if (day <= now if is_past else day >= now)]
    return _one_day(min(candidates, key=lambda day: abs(day - now))) if candidates else None


def _nearest_month(name: str, now: date, tense: Tense) -> _Period:
    month = _month_number(name)
    steps = [(year - now.year) * 12 + month - now.month for year in _years_around(now)]
    if tense:
        steps = [step for step in steps if (step <= 0 if tense == "past" else step >= 0)]
    return _labelled(_month_after(now, min(steps, key=abs)))


def _years_around(now: date) -> Iterator[int]:
    yield from (now.year, now.year - 1, now.year + 1)


def _month_number(name: str) -> int:
    return next(i for i, month in enumerate(MONTHS, 1) if month.startswith(name.lower()[:3]))


def _month_after(now: date, step: int) -> str:
    year, month = divmod(now.year * 12 + now.month - 1 + step, 12)
    if not MINYEAR <= year <= MAXYEAR:
        raise OverflowError("years have four digits")
    return f"{year:04d}-{month + 1:02d}"


def _one_day(day: date) -> _Period:
    return _labelled(day.isoformat())


def _days(first: date, count: int) -> _Period:
    last = first + timedelta(count - 1)
    label = f"{name_date(first.isoformat())} to {name_date(last.isoformat())}"
    return first.isoformat(), (first + timedelta(count)).isoformat(), label


def _labelled(iso: str) -> _Period:
    return iso, _next(iso), name_date(iso)


def name_date(iso: str) -> str:
    """Return an ISO day, month or year in English: "7 May 2023"."""
    year, *rest = iso.split("-")
    if not rest:
        return year
    month = f"{MONTHS[int(rest[0]) - 1].capitalize()} {year}"
    return f"{int(rest[1])} {month}" if len(rest) > 1 else month


def _next(iso: str) -> str:
    """Return the day, month or year after one.

    Raises:
        OverflowError: the year would have five digits.
    """
    if iso == "9999":
        raise OverflowError("years have four digits")
    if len(iso) == 4:
        return f"{int(iso) + 1:04d}"
    if len(iso) == 7:
        return _month_after(date(int(iso[:4]), int(iso[5:]), 1), 1)
    return (date.fromisoformat(iso) + timedelta(1)).isoformat()


def _day(said: str | None) -> date | None:
    """Return the day of an ISO time, the first day of a month or year; None if it is invalid."""
    iso = _valid(said[:10]) if said else None
    return date.fromisoformat((iso + "-01-01")[:10]) if iso else None


def _valid(iso: str) -> str | None:
    try:
        date.fromisoformat((iso + "-01-01")[:10])
    except ValueError:  # "31 June" is no date
        return None
    return iso
