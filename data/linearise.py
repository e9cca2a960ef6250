"""Linearises rows, infobox entries and sentences, and splits text into sentences.

Nothing here depends on a dataset. The forms follow ConvMix (Christmann et al. 2022): a statement
begins with the title of its subject, and its parts are joined by commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# A sentence continues after these abbreviations, whether or not the next word is capitalised.
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof rev hon sr jr st mt ft gen col lt sgt capt cmdr maj adm gov sen rep pres "
    "vs v no nos vol vols pp op ed eds cf ca c approx est fig al dept univ assn bros feat "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun "
    "e.g i.e u.s.s a.k.a viz etc inc ltd co corp".split()
)
# A sentence may end after these: it continues only if the next word is in lower case.
_MAY_END = frozenset("etc inc ltd co corp jr sr al".split())
_STOPS = "。！？｡।॥؟۔።။։"  # full stops of scripts without capitals or spaces
# Possessive quantifiers: a long run of marks takes linear time.
_END = re.compile(rf"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s)|[{_STOPS}]+[」』”）]*")
_LAST_WORD = re.compile(r"[\w.&'’-]+$")
_MONTH_AFTER_DAY = re.compile(  # "3. Mai", "3. August 2021": German dates
    r"\s+(?:(?:Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember)\b"
    r"|(?:April|August|September|November)\s+\d{4})"
)
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_OPENING = "\"'“‘«([„¿¡"
LOOKED_AT = 24
"""Characters after a dot that are looked at: white space, marks, and the next word's beginning."""
MAX_LEAD = 200
"""Characters of the longest title, heading or header that passages repeat."""


def cut_lead(text: str) -> str:
    """Return a title, a heading or a header as passages repeat it: its first characters."""
    return text if len(text) <= MAX_LEAD else text[:MAX_LEAD].rstrip() + "…"


def linearise_row(
    title: str, headers: Sequence[str], cells: Sequence[str], caption: str | None = None
) -> str:
    """Linearise a row as "Title, Caption, Header is Cell, Header is Cell"; drop empty cells.

    Args:
        title: title of the page or file with the table.
        headers: header of each cell; with "" only the cell is written.
        cells: texts of the row's cells.
        caption: caption that distinguishes the table from others of the page; None: left out.
    """
    parts = [title, caption or ""]
    for header, cell in zip(headers, cells, strict=True):
        if cell:
            parts.append(f"{header} is {cell}" if header else cell)
    return _join(parts)


def linearise_infobox(title: str, key: str, value: str, section: str | None = None) -> str:
    """Linearise an infobox row as "Title, Key, Value", with the section, if any, before the key."""
    return _join([title, section or "", key, value])


def linearise_sentence(title: str, sentence: str, section: str | None = None) -> str:
    """Linearise a sentence as "Title, Sentence", with the section, if any, between."""
    return _join([title, section or "", sentence])


def _join(parts: Sequence[str]) -> str:
    return ", ".join(part for part in parts if part)


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences; abbreviations, initials and decimals do not end one."""
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence, in characters, without surrounding spaces."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        if _ends_sentence(text, start, match):
            _append_span(spans, text, start, match.end())
            start = match.end()
    _append_span(spans, text, start, len(text))
    return spans


def _append_span(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        spans.append((start, end))


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    following = text[match.end() : match.end() + LOOKED_AT].lstrip().lstrip(_OPENING)
    if not following or following[0].islower() or match[0][0] in _STOPS:
        return not following or match[0][0] in _STOPS
    if match[0] != ".":
        return True
    word = _LAST_WORD.search(text, max(start, match.start() - 40), match.start())
    if word is None:
        return True
    before = text[start : word.start()]
    lead = before.rstrip()
    if word[0].isdigit() and (not lead or (lead[-1] in ":;" and lead != before)):
        return False  # the number of an item: "1. Unofficial; 2. Official", not a time, "16:55."
    if re.fullmatch(r"\d\d?", word[0]) and _MONTH_AFTER_DAY.match(text, match.end()):
        return False
    last = word[0].lower()
    if last in _MAY_END:
        return True
    if _INITIALS.fullmatch(word[0]) and (word[0][0].isupper() or "." in word[0]):
        # the sentence continues in "J. Smith" and "J.R.R. Tolkien", not in "in the U.S. The"
        return "." in word[0] and following.split()[0].rstrip(",") in _STARTERS
    return last not in _ABBREVIATIONS


_STARTERS = frozenset(
    "The A An In On At He She It They This That These Those His Her Its Their But And However "
    "After Before When While As For From With By There".split()
)
