"""Search for other ways of writing a name, in episodes that ``forget`` would leave.

Texts and names are reduced to letters and digits, without case, accents, compatibility forms, white
space, punctuation and invisible characters. So "@anna_schmidt", "ANNA-SCHMIDT",
"An<soft hyphen>na Schmidt" and "anna.schmidt@example.org" are all found by "Anna Schmidt".
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from turngraph.data.memory_graph.memory_types import EPISODIC, EPISODIC_EDGE, SIMPLE, THESIS
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.normalise import fold

SHORT = 4
"""Names of fewer letters must be separate words: the letters "al" are in almost every text."""
NO_OBJECT = -1
"""Stands for an object's id if only a name is given."""
MAX_SPANS = 5
"""Maximum number of different spans of an episode that are listed."""
_NOT_LETTERS = re.compile(r"[\W_]+")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_ALIKE = str.maketrans("асеорхуіјѕԁһкмтнвοανρτικ", "aceopxyijsdhkmthboavptik")
"""Cyrillic and Greek letters that look like Latin ones."""
_TEXTS = f"""
SELECT id, text FROM nodes WHERE type = {EPISODIC}
UNION ALL SELECT node, source FROM episodes WHERE source IS NOT NULL
UNION ALL SELECT node, origin FROM episodes WHERE origin IS NOT NULL
UNION ALL SELECT node, speaker FROM episodes WHERE speaker IS NOT NULL
UNION ALL SELECT node, CAST(properties AS TEXT) FROM episodes
    WHERE CAST(properties AS TEXT) != '{{}}'
UNION ALL SELECT p.episode, n.text FROM nodes n JOIN provenance p ON p.fact = 2 * n.id
    WHERE n.type = {THESIS}
UNION ALL SELECT p.episode, e.relation FROM edges e JOIN provenance p ON p.fact = 2 * e.id + 1
    WHERE e.type = {SIMPLE}
UNION ALL SELECT e.target, a.spelling FROM aliases a JOIN edges e ON e.source = a.node
    AND e.type = {EPISODIC_EDGE} WHERE a.node != ?"""
"""Selects every text with its episode, except the names of the object itself."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Episode in which a name is written in another way.

    Args:
        episode: node id of the episode.
        source: source of the episode.
        spans: the name as the episode writes it.
    """

    episode: int
    source: str | None
    spans: tuple[str, ...]


def wide_mentions(
    db: Database, node: int, names: Iterable[str], known: Iterable[int]
) -> list[Mention]:
    """Return the episodes that may mention an object, oldest first.

    Args:
        db: the record.
        node: the object, or ``NO_OBJECT``.
        names: names of the object.
        known: episodes to leave out, since they are known to mention it.
    """
    forms = _forms(names)
    left_out = set(known)
    by_episode: dict[int, dict[str, None]] = {}
    for episode, text in db.execute(_TEXTS, (node,)) if forms else ():
        if episode not in left_out:
            for span in _spans(text, forms):
                by_episode.setdefault(episode, {})[span] = None
    sql = "SELECT source FROM episodes WHERE node = ?"
    return [
        Mention(episode, db.execute(sql, (episode,)).fetchone()[0], tuple(spans)[:MAX_SPANS])
        for episode, spans in sorted(by_episode.items())
    ]


def _forms(names: Iterable[str]) -> tuple[str, ...]:
    """Return the reduced forms of names; also last word first, and initial with last word."""
    forms: dict[str, None] = {}
    for name in names:
        words = [word for part in fold(name).split() if (word := _reduced(part))]
        forms["".join(words)] = None
        if len(words) > 1:
            forms["".join([words[-1], *words[:-1]])] = None
            forms[words[0][0] + words[-1]] = None
    return tuple(form for form in forms if form)


def _reduced(text: str) -> str:
    """Return the letters and digits of a text, folded."""
    return _NOT_LETTERS.sub("", fold(text)).translate(_ALIKE)


@lru_cache(maxsize=1 << 12)
def _reduced_letter(letter: str) -> str:
    return _reduced(letter)


def _spans(text: str, wanted: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a text that reduce to one of the wanted forms."""
    for written in dict.fromkeys([text, unquote(text), html.unescape(text), _unescaped(text)]):
        reduced = _reduced(written)
        if any(form in reduced for form in wanted):
            yield from _spans_in(written, wanted)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _spans_in(text: str, wanted: Sequence[str]) -> Iterator[str]:
    parts = [_reduced_letter(letter) for letter in text]
    places = [index for index, part in enumerate(parts) for _ in part]
    reduced = "".join(parts)
    for form in wanted:
        at = -1
        while (at := reduced.find(form, at + 1)) >= 0:
            begin, stop = places[at], places[at + len(form) - 1] + 1
            alone = not (parts[begin - 1] if begin else "") and not "".join(parts[stop : stop + 1])
            if alone or len(form) >= SHORT:
                yield text[begin:stop]
