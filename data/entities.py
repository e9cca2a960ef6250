"""Finds entities in evidence that comes without them, so that equal things can be linked.

It finds the title before a statement, cells of rows and values of infoboxes and facts, names
(spans of capitalised words), quoted titles, dates in any spelling, and numbers and amounts of two
or more digits. An entity's id is the normal form of its text, so that "2 October 2000" and
"Oct. 2, 2000" are one entity, as are "$1.5m" and "$1.5 million". In a script without capital
letters names are found only as titles, cells, values, or in quotes.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from turngraph.configs.progress import track
from turngraph.configs.words import plural
from turngraph.data.amounts import AMOUNT, SPACED_AMOUNT, read_amount
from turngraph.data.linearise import sentence_spans
from turngraph.data.normalise import MONTH_PATTERN, fold, normalise_value, parse_date, parse_number
from turngraph.data.types import Conversation, Entity, Evidence

logger = logging.getLogger(__name__)

MIN_DIGITS = 2  # equal single digits seldom mean the same thing
MIN_LETTERS = 2
MAX_CHARS = 100  # a longer cell is a text, not an entity
MAX_TITLE_CHARS = 80

_DATE = re.compile(
    rf"(?<!\w)(?<!\d\.)(?:\d{{1,2}}(?:st|nd|rd|th|\.)?\s+(?:of\s+)?(?:{MONTH_PATTERN})\.?,?\s+\d{{4}}"
    rf"|(?:{MONTH_PATTERN})\.?(?:\s+\d{{1,2}}(?:st|nd|rd|th)?)?,?\s+\d{{4}}|\d{{4}}-\d\d-\d\d"
    r"|\d{1,2}\.\s?\d{1,2}\.\s?\d{4})(?!\w)",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<!\w)(?<!\d[.,:/])(?:(?<!\d)[+−-])?"
    r"(?:\d{1,3}(?:\.\d{3})+,\d+|(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?)(?!\w|[.,:]\d)"
)
_SIZE = r" (?:thousand|million|billion|trillion)(?!\w)"
_AMOUNT = re.compile(
    rf"(?<!\w)(?<!\d[.,:/])(?:{SPACED_AMOUNT}|{AMOUNT}(?:{_SIZE})?|(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?{_SIZE})"
)
# bounded where the marks differ: else every opening mark without a closing one costs the whole text
_QUOTED = re.compile(
    rf'"([^"]+)"|“([^“”]{{1,{MAX_TITLE_CHARS}}})”|„([^„“”]{{1,{MAX_TITLE_CHARS}}})[“”]'
    rf"|«([^«»]{{1,{MAX_TITLE_CHARS}}})»|「([^「」]{{1,{MAX_TITLE_CHARS}}})」|『([^『』]{{1,{MAX_TITLE_CHARS}}})』"
)
_CELL = re.compile(r", (?=[^,]* is )")
_WORD = re.compile(
    r"(?:Dr|Mrs?|Ms|St|Prof|Gen|Col|Capt|Lt|Mt|Ft)\.(?!\w)|(?:[^\W\d_]\.)+(?!\w)"
    r"|\w+(?:['’-]\w+|\.[a-z\d]\w*|\.[A-Z]{2,}(?!\w))*"  # Booking.com, ASP.NET
)
_BLANK = "\x1f"

CONNECTORS = frozenset(
    "of the de del della di da do dos das du des la le les los las el al van von der den ter ten "
    "zu zum zur af av bin ibn".split()
)
# Words that begin English sentences and are no names, even if a small pool never has them in
# lower case.
FUNCTION_WORDS = frozenset(
    "a an the this that these those there here it its he she they we you i his her their our my "
    "your him them who whom whose which what when where why how if then than as at by for from in "
    "into of off on onto out over to under until up upon with within without and or but nor so yet "
    "not no yes all any both each every few many more most much other others several some such "
    "after again against before below between beyond during since though although because while "
    "however therefore moreover furthermore thus hence finally later today meanwhile instead also "
    "about around additionally eventually first second third once only one two three now never "
    "often early "
    "is are was were be been has have had do does did can could may might must shall should will "
    "would unlike like despite due according".split()
)


class EntityEdges(NamedTuple):
    """Counts of entities, of those in two passages or more, and of their star edges."""

    num_entities: int
    num_shared: int
    num_edges: int


class _Name(NamedTuple):
    """A span of capitalised words, and whether a sentence begins with it."""

    words: tuple[str, ...]
    text: str
    is_initial: bool
    second: int  # start of the second capitalised word in text; 0 if there is none


@dataclass
class _Seen:
    """Counts how words are written in a pool, to tell names from words that begin a sentence."""

    lower: set[str] = field(default_factory=set)
    inner_words: set[str] = field(default_factory=set)
    inner_names: set[str] = field(default_factory=set)


def find_entities(passages: Sequence[Evidence], extend: bool = False) -> list[Evidence]:
    """Return the passages, with entities found for those that have none.

    A found text that equals a label or mention of an entity that the pool already has is that
    entity. Otherwise its id is its normal form and its label its first spelling in the pool.

    Args:
        passages: one pool; how a word is written in one passage helps to read another.
        extend: add what was found to passages that have entities too; otherwise they stay as is.
    """
    titles = _titles(passages)
    chosen = [i for i, passage in enumerate(passages) if extend or not passage.entities]
    split = [_split(passages[i], titles) for i in chosen]
    names = [[_read_names(text) for text in values + free] for _, values, free in split]
    seen = _Seen()
    for name_lists in names:
        for capitalised, lower in name_lists:
            _look_at(capitalised, lower, seen)
    known = _known_entities(passages)
    heads_and_values = [name for heads, values, _ in split for name in heads + values]
    seen.inner_words.update(heads_and_values, (entity.label for entity in known.values()))
    extended = list(passages)
    for index, (heads, values, free), name_lists in zip(chosen, split, names, strict=True):
        labels = heads + values
        for text, (capitalised, _) in zip(values + free, name_lists, strict=True):
            labels += _dates_numbers_quotes(text)[0] + list(_choose(capitalised, seen))
        extended[index] = _with_entities(passages[index], labels, known)
    return extended


def entity_of(text: str) -> Entity | None:
    """Make an entity of a title, cell or link; None for short or long text, or a small number."""
    text = text.strip()
    return Entity(_id_of(text), text) if _is_entity(text) else None


def _id_of(text: str) -> str:
    amount = read_amount(text) if _AMOUNT.fullmatch(text) else None
    if amount is None:
        return normalise_value(text)
    return f"{amount.number.normalize():f} {amount.unit}".strip()


def _titles(passages: Iterable[Evidence]) -> set[str]:
    """Return the texts before the first comma that several passages share."""
    total: Counter[str] = Counter()
    as_title: Counter[str] = Counter()
    for passage in passages:
        head, comma, rest = passage.text.partition(", ")
        if comma and 0 < len(head) <= MAX_TITLE_CHARS and head.casefold() not in FUNCTION_WORDS:
            total[head] += 1
            as_title[head] += not rest[:1].islower() or passage.source != "text"
    return {head for head, n in total.items() if n > 1 and as_title[head] > n / 2}


def _split(passage: Evidence, titles: set[str]) -> tuple[list[str], list[str], list[str]]:
    """Split a passage into its title, its values (each an entity) and its free text."""
    head, _, rest = passage.text.partition(", ")
    parts = passage.text.split(", ")
    if passage.source == "kb" and len(parts) > 2:
        return parts[:1], parts[2::2], []
    if passage.source == "infobox" and len(parts) > 2:
        return parts[:1], list(dict.fromkeys([", ".join(parts[2:]), *parts[2:]])), []
    if passage.source == "table" and len(cells := _CELL.split(passage.text)) > 1:
        title = head if head in titles else cells[0]
        return [title], [cell.partition(" is ")[2] for cell in cells[1:]], []
    if head in titles:
        return [head], [], [rest]
    begins = rest.split(" ", 1)[0]  # "Peru, The capital": a title of one passage, then a sentence
    is_sentence = begins[:1].isupper() and begins.casefold() in FUNCTION_WORDS
    return [], [], [head, rest] if is_sentence else [passage.text]


def _read_names(text: str) -> tuple[list[_Name], list[str]]:
    """Return the names of a text in order, and its words in lower case."""
    _, plain = _dates_numbers_quotes(text)
    names: list[_Name] = []
    lower: list[str] = []
    for start, end in sentence_spans(text):
        words = list(_WORD.finditer(plain, start, end))
        lower += [word[0] for word in words if word[0][0].islower()]
        first = words[0].start() if words else start
        names += [_name(run, plain, run[0].start() == first) for run in _runs(words, plain)]
    return names, lower


def _runs(words: Sequence[re.Match[str]], text: str) -> Iterator[list[re.Match[str]]]:
    """Yield runs of capitalised words, connectors and short numbers inside ("Apollo 11")."""
    run: list[re.Match[str]] = []
    for word in words:
        gap = text[run[-1].end() : word.start()] if run else None
        joined = gap in (" ", " & ") or (gap == "" and run[-1][0].endswith("."))
        closed = bool(run) and _is_possessive(run[-1][0])
        if word[0][0].isupper():
            if run and not (joined and not closed):
                yield _trim(run)
                run = []
            run.append(word)
        elif run and joined and not closed and _continues(word, run[-1][0]):
            run.append(word)
        elif run:
            yield _trim(run)
            run = []
    if run:
        yield _trim(run)


def _continues(word: re.Match[str], last: str) -> bool:
    is_number = word[0].isdigit() and len(word[0]) < 4 and last[0].isupper()
    is_whole = not re.match(r"[.,:]\d", word.string[word.end() : word.end() + 2])
    return (is_number and is_whole) or word[0] in CONNECTORS


def _is_possessive(word: str) -> bool:
    return word.endswith(("'s", "’s"))


def _trim(run: list[re.Match[str]]) -> list[re.Match[str]]:
    while run[-1][0] in CONNECTORS:
        run = run[:-1]
    return run


def _name(run: Sequence[re.Match[str]], text: str, is_initial: bool) -> _Name:
    start, end = run[0].start(), run[-1].end()
    end -= 2 * _is_possessive(run[-1][0])
    capital = (word.start() - start for word in run[1:] if word[0] not in CONNECTORS)
    words = tuple(word[0] for word in run)
    return _Name(words, text[start:end], is_initial, next(capital, 0))


def _look_at(names: Iterable[_Name], lower: Iterable[str], seen: _Seen) -> None:
    seen.lower.update(lower)
    for name in names:
        seen.inner_words.update(name.words[name.is_initial :])
        if not name.is_initial:
            seen.inner_names.add(name.text)


def _choose(names: Iterable[_Name], seen: _Seen) -> Iterator[str]:
    """Return the names, without words that merely begin a sentence."""
    for name in names:
        first = name.words[0].removesuffix("'s").removesuffix("’s")
        alone = name.second == 0
        is_function = first.lower() in FUNCTION_WORDS
        if alone and is_function:
            continue
        if not name.is_initial or name.text in seen.inner_names:
            yield name.text
        elif alone:
            if name.words[0] in seen.inner_words or first in seen.inner_words:
                yield name.text
        else:
            rest = name.text[name.second :]
            is_role = first.lower() in seen.lower and rest in seen.inner_names  # "Singer Adele"
            yield rest if is_function or is_role else name.text


def _dates_numbers_quotes(text: str) -> tuple[list[str], str]:
    """Find quoted titles, dates and numbers; return them and the text with them blanked."""
    labels: list[str] = []
    patterns = (
        (_QUOTED, _is_title),
        (_DATE, parse_date),
        (_AMOUNT, _is_amount),
        (_NUMBER, _is_number),
    )
    for pattern, is_it in patterns:
        matches = [match for match in pattern.finditer(text) if is_it(match[match.lastindex or 0])]
        labels += [match[match.lastindex or 0] for match in matches]
        if pattern is not _NUMBER:
            text = _blanked(text, matches)
    return labels, text


def _blanked(text: str, matches: Iterable[re.Match[str]]) -> str:
    parts, at = [], 0
    for match in matches:
        parts += [text[at : match.start()], _BLANK * (match.end() - match.start())]
        at = match.end()
    return "".join([*parts, text[at:]])


def _is_title(text: str) -> bool:
    return len(text) <= MAX_TITLE_CHARS and text[-1] not in ".!?," and any(map(str.isalnum, text))


def _is_amount(text: str) -> bool:
    return read_amount(text) is not None and sum(map(str.isdigit, text)) >= MIN_DIGITS


def _is_number(text: str) -> bool:
    number = parse_number(text) or text[1:]  # a code counts without its zero: "042", but not "05"
    return sum(map(str.isdigit, number)) >= MIN_DIGITS


def _is_entity(text: str) -> bool:
    is_small = parse_number(text) is not None and not _is_number(text)
    num_letters = sum(map(str.isalnum, text)) + (not text.isascii())  # one sign can be a word
    return len(text) <= MAX_CHARS and num_letters >= MIN_LETTERS and not is_small


def _known_entities(passages: Iterable[Evidence]) -> dict[str, Entity]:
    known: dict[str, Entity] = {}
    entities = {entity for passage in passages for entity in passage.entities}
    for entity in sorted(entities, key=lambda e: (e.id, e.label, e.mentions)):
        for name in (entity.label, *entity.mentions):
            known.setdefault(_id_of(name), replace(entity, mentions=()))
    return known


def _with_entities(passage: Evidence, labels: Iterable[str], known: dict[str, Entity]) -> Evidence:
    entities = {entity.id: entity for entity in passage.entities}
    for named in filter(None, map(entity_of, labels)):
        entity = known.setdefault(named.id, named)
        if fold(named.label) != fold(entity.label):
            entity = replace(entity, mentions=(named.label,))
        entities.setdefault(entity.id, entity)
    return replace(passage, entities=tuple(entities.values()))


def count_entity_edges(passages: Iterable[Evidence]) -> EntityEdges:
    """Count a pool's entities, those in two passages or more, and their star edges.

    A star joins an entity's m passages by m - 1 edges; each is walked both ways.
    """
    counts = Counter(entity.id for passage in passages for entity in passage.entities)
    shared = [count for count in counts.values() if count > 1]
    return EntityEdges(len(counts), len(shared), sum(shared) - len(shared))


def complete_entities(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Return conversations with entities found for passages that have none, and log the counts.

    A pool that several conversations share stays shared and is read once. Passages that have
    entities, and pools of only such passages, are returned unchanged.
    """
    pools = {id(pool): pool for c in conversations for pool in (c.evidence, *_turn_pools(c))}
    lacking = {k: p for k, p in pools.items() if not all(passage.entities for passage in p)}
    if not lacking:
        return list(conversations)
    done, total, num_passages = dict(pools), EntityEdges(0, 0, 0), 0
    for key, pool in track(lacking.items(), "finding entities", "pools", delay=2):
        done[key] = tuple(find_entities(pool))
        total = EntityEdges(*map(sum, zip(total, count_entity_edges(done[key]), strict=True)))
        num_passages += sum(not passage.entities for passage in pool)
    log_entities(total, num_passages)
    return [
        replace(
            conversation,
            evidence=done[id(conversation.evidence)],
            turns=tuple(replace(t, evidence=done[id(t.evidence)]) for t in conversation.turns),
        )
        for conversation in conversations
    ]


def _turn_pools(conversation: Conversation) -> Iterator[tuple[Evidence, ...]]:
    return (turn.evidence for turn in conversation.turns)


def log_entities(edges: EntityEdges, num_passages: int) -> None:
    """Log the entities found in ``num_passages`` passages, and the edges that they give."""
    logger.info(
        "found %s in %s, %d in at least two passages; these give up to %s, "
        "where they are in at most half of a question's passages",
        plural(edges.num_entities, "entity", "entities"),
        plural(num_passages, "passage"),
        edges.num_shared,
        plural(edges.num_edges, "entity edge"),
    )
