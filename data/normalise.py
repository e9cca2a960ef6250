"""Normalises text, dates and numbers, in the same way for linking, entities and metrics."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from functools import lru_cache
from typing import Literal

MONTHS = (
    "january february march april may june july august september october november december"
).split()
GERMAN_MONTHS = (
    "januar februar märz april mai juni juli august september oktober november dezember"
).split()
_MONTH = {
    name[:length].replace("ä", "a"): i
    for names in (MONTHS, GERMAN_MONTHS)
    for i, name in enumerate(names, 1)
    for length in (3, len(name))
}
_MONTH["sept"] = 9
MONTH_PATTERN = "|".join(sorted([*_MONTH, "märz"], key=len, reverse=True))
"""Pattern of a month's name or abbreviation in lower case, folded or not."""
_DAY_MONTH_YEAR = re.compile(
    rf"(\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?({MONTH_PATTERN})\.?,?\s+(\d{{4}})"
)
_MONTH_DAY_YEAR = re.compile(rf"({MONTH_PATTERN})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})")
_MONTH_YEAR = re.compile(rf"({MONTH_PATTERN})\.?,?\s+(\d{{4}})")
_DOTTED = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})")
_ISO = re.compile(r'"?(\d{4})-(\d{2})-(\d{2})(?:t00:00:00z)?"?')
_NUMBER = re.compile(r"[+−–-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[+−–-]?\.\d+")
_DECIMAL_COMMA = re.compile(r"[+−–-]?\d{1,3}(?:\.\d{3})+,\d+")
_SWAPPED = str.maketrans(".,", ",.")
_CODE = re.compile(r"[+−–-]?0[\d,]")  # "0042" and "42" are not the same thing
_NEGATIVE = re.compile(r"[(\[$£€¥]*[−–-][$£€¥]?(?=\.?\d)")  # -5.2%, (−70 kg), -$3
_GRADE = re.compile(r"(?<=[^\W\d_])(?:\+{1,2}|#)$|(?<=^[a-f])[−–-]$")  # B+, A-, C#, C++
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NOT_WORD = re.compile(r"[^\w\s]|_")
UNSPACED = (  # scripts that write no space between words, as the inside of a character class
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# Vowel signs (Devanagari) are part of a word, but ``re`` does not count them as letters.
MARKS = "".join(c for c in map(chr, range(0x900, 0x2000)) if unicodedata.category(c)[0] == "M")
WORD = re.compile(rf"[{UNSPACED}]|(?:[^\W{UNSPACED}][{MARKS}]*)+")

MAX_MARKS = 30
"""Marks in a row that stay, as in Unicode's stream-safe text format: their order takes quadratic
time, and no word has as many."""
_MANY_MARKS = re.compile(rf"[^\w\s\x00-\x7f]{{{MAX_MARKS + 1},}}")
MAX_CACHED = 2000
"""Longest text, in characters, whose folded form goes into the cache of many texts."""
MAX_LONG = 10**6
"""Longest text that goes into the cache of a few: readers of a long name fold it repeatedly."""


def fold(text: str) -> str:
    """Fold a text: compatibility form, folded case, no accents, single spaces."""
    if len(text) <= MAX_CACHED:
        return _fold_cached(text)
    return _fold_long(text) if len(text) <= MAX_LONG else _fold(text)


def _fold(text: str) -> str:
    if text.isascii():  # nothing to decompose: several times faster, the same result
        return " ".join(text.casefold().split())
    decomposed = unicodedata.normalize("NFKD", normal_form("NFKD", text).casefold())
    plain = "".join(char for char in decomposed if not is_accent(char))
    return " ".join(unicodedata.normalize("NFKC", plain).split())


def normal_form(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Return a text in a normal form of Unicode; of more than 30 marks in a row the first stay."""
    return unicodedata.normalize(form, _MANY_MARKS.sub(_first_marks, text))


def _first_marks(match: re.Match[str]) -> str:
    kept: list[str] = []
    num = 0
    for char in match[0]:
        num = num + 1 if unicodedata.category(char)[0] == "M" else 0
        if num <= MAX_MARKS:
            kept.append(char)
    return "".join(kept)


def words(text: str) -> list[str]:
    """Split a text into BM25's tokens: folded words, or characters of scripts without spaces."""
    return WORD.findall(fold(text))


_fold_cached = lru_cache(maxsize=1 << 16)(_fold)
_fold_long = lru_cache(maxsize=4)(_fold)


def is_accent(char: str) -> bool:
    """Tell whether a character is a combining mark of a script where folding may remove it.

    They are Latin, Greek, Cyrillic, Hebrew and Arabic. In scripts after these in Unicode a mark
    makes another word: without marks, the Japanese words for "bus" and "pass" would be equal.
    """
    return char < "\u0900" and unicodedata.combining(char) > 0


def normalise_text(text: str) -> str:
    """Fold a text and remove punctuation and English articles.

    A text of punctuation or articles alone ("The The", "?!") is only folded, so that two different
    ones do not become equal.
    """
    folded = fold(text)
    bare = " ".join(_ARTICLES.sub(" ", _NOT_WORD.sub(_mark_or_space, folded)).split())
    return bare or folded


def _mark_or_space(match: re.Match[str]) -> str:
    """Return a vowel sign (Devanagari, Thai) itself, as it is part of a word, else a space."""
    char = match[0]
    keep = unicodedata.category(char) in ("Mn", "Mc") and not "\ufe00" <= char <= "\ufe0f"
    return char if keep else " "


def parse_date(text: str) -> str | None:
    """Return the ISO form of a text that is a single date, else None.

    "2 October 2000", "October 2, 2000", "2nd of Oct. 2000", German "2. Oktober 2000" and
    "02.10.2000", "2000-10-02" and Wikidata's "2000-10-02T00:00:00Z" give "2000-10-02"; "October
    2000" gives "2000-10". A bare year is a number, not a date.
    """
    folded = fold(text)
    for pattern, order in (
        (_DAY_MONTH_YEAR, "dmy"), (_MONTH_DAY_YEAR, "mdy"), (_ISO, "ymd"), (_DOTTED, "dmy")
    ):  # fmt: skip
        if match := pattern.fullmatch(folded):
            groups = dict(zip(order, match.groups(), strict=True))
            month = _MONTH.get(groups["m"]) or int(groups["m"])
            return _valid_date(int(groups["y"]), month, int(groups["d"]))
    if match := _MONTH_YEAR.fullmatch(folded):
        return f"{int(match[2]):04d}-{_MONTH[match[1]]:02d}"
    return None


def _valid_date(year: int, month: int, day: int) -> str | None:
    try:
        return datetime(year, month, day).date().isoformat()
    except ValueError:  # "31 June 2000" is no date
        return None


def parse_number(text: str) -> str | None:
    """Return the plain decimal form of a text that is a number ("1,234.0" -> "1234"), else None.

    "1.234,5" is 1234.5, as nothing else is written like that. "0042" is a code, no number.
    """
    folded = fold(text)
    if _DECIMAL_COMMA.fullmatch(folded):
        folded = folded.translate(_SWAPPED)
    if not _NUMBER.fullmatch(folded) or _CODE.match(folded):
        return None
    sign = "-" if folded[0] in "−–-" else ""
    whole, _, fraction = folded.lstrip("+−–-").replace(",", "").partition(".")
    fraction = fraction.rstrip("0")
    whole = whole.lstrip("0") or "0"
    sign = sign if (whole, fraction) != ("0", "") else ""
    return f"{sign}{whole}.{fraction}" if fraction else sign + whole


def normalise_value(text: str) -> str:
    """Normalise a cell or an answer: ISO date, plain number, else normalised text.

    Spellings of one value get the same form, so that equal cells of a table get the same entity id.
    Signs that distinguish values are kept: the minus before a quantity (-5.2 %), and the sign after
    a grade or a name (B+, C#).
    """
    return parse_date(text) or parse_number(text) or _signed(text)


def _signed(text: str) -> str:
    folded = fold(text)
    if grade := _GRADE.search(folded):
        return normalise_text(folded[: grade.start()]) + re.sub("[−–]", "-", grade[0])
    return ("-" if _NEGATIVE.match(folded) else "") + normalise_text(text)


def answer_type(text: str) -> str:
    """Classify an answer's label as "date", "number" or "string" (paper, table 3)."""
    if parse_date(text) or re.fullmatch(r"(?:1\d|20)\d\d", text.strip()):
        return "date"
    return "number" if parse_number(text) or text.strip().isdecimal() else "string"
