"""Evaluates answers: H@1, H@5, exact match, F1, substring, and whether E_t holds the answer.

Pure functions over texts, gold answers and evidence. Two texts are equal if their values are
(``data.normalise.normalise_value``), so dates and numbers count in any spelling. A generated answer
that contains ``"; "`` is a list.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from turngraph.data.normalise import (
    MONTH_PATTERN,
    UNSPACED,
    fold,
    normalise_text,
    normalise_value,
    parse_date,
    parse_number,
)
from turngraph.data.types import LIST_SEPARATOR, Answer, Entity, Evidence, target_answer

NUM_CANDIDATES = 5

_QUOTES = " \t\r\n\"'`“”‘’«»"
_SENTENCE_END = _QUOTES + ".,;:!?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_MIDNIGHT = re.compile(r"(?<=\d)t00:00:00z")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DECIMAL_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_LETTER_POINT = "\u02d1"  # a letter in Unicode, so that "3.5" is one word that does not contain "5"
_DATE_IN_TEXT = re.compile(
    rf"\b(?:(?:{_DAY} (?:of )?)?(?:{MONTH_PATTERN})(?: {_DAY})? \d{{4}}"
    rf"|(?<!\d{_LETTER_POINT})\d{{1,2}}{_LETTER_POINT}\d{{1,2}}{_LETTER_POINT}\d{{4}})\b"
)
_UNSPACED = re.compile(f"[{UNSPACED}]")


@lru_cache(maxsize=1 << 16)
def answer_value(text: str) -> str:
    """Return the value of a generated or gold text, without quotes and a final full stop."""
    bare = text.strip(_QUOTES).rstrip(_SENTENCE_END)
    return normalise_value(bare or text)


def split_answer(answer: str) -> list[str]:
    """Split a generated answer at "; "; empty and repeated elements are left out."""
    elements = dict[str, str]()
    for part in answer.split(LIST_SEPARATOR):
        elements.setdefault(answer_value(part), part.strip())
    return [part for value, part in elements.items() if value]


def _values(answer: str) -> set[str]:
    return {answer_value(element) for element in split_answer(answer)}


def nearest_entities(
    answer: str, evidence: Sequence[Evidence], k: int = NUM_CANDIDATES
) -> list[Entity]:
    """Return the evidence's entities nearest to an answer, best first (paper, section 5.2).

    The measure is the Levenshtein distance between the values of the answer and of the labels; ties
    go to the entity that the evidence names first. An entity with several labels counts with the
    nearest one. The gold answer is not used.

    A list answer of n elements gets k entities for each: first the nearest of every element in
    the answer's order, then the second nearest of every element, and so on; the entities of
    element i are ``result[i::n]``, distinct by id within it.

    Args:
        answer: the generated answer; an empty one has no nearest entity.
        evidence: E_t, best first.
        k: number of entities; fewer if the evidence has fewer.
    """
    elements = split_answer(answer)
    pairs = {(e.id, e.label): e for passage in evidence for e in passage.entities}
    if not elements or not pairs:
        return []
    entities = list(pairs.values())
    rows = cdist(
        [answer_value(element) for element in elements],
        [answer_value(entity.label) for entity in entities],
        scorer=Levenshtein.distance,
        dtype=np.int32,
    )
    ranked = [_first_distinct(entities, np.argsort(row, kind="stable"), k) for row in rows]
    return [entity for rank in zip(*ranked, strict=True) for entity in rank]


def _first_distinct(entities: list[Entity], order: np.ndarray, k: int) -> list[Entity]:
    distinct: dict[str, Entity] = {}
    for index in order:
        if len(distinct) == k:
            break
        distinct.setdefault(entities[index].id, entities[index])
    return list(distinct.values())


def same_entity(entity: Entity, gold: Answer) -> bool:
    """Return whether an entity is the gold answer: by id if both have one, else by value.

    An id that only spells the label, or a date, does not count as an id: it says no more than the
    label.
    """
    if gold.id is not None and _is_own_id(gold.id, gold.label) and _is_own_id(*_names(entity)):
        return entity.id == gold.id
    return entity.id == gold.id or _same_value(entity.label, gold.label)


def _names(entity: Entity) -> tuple[str, str]:
    return entity.id, entity.label


@lru_cache(maxsize=1 << 16)
def _is_own_id(id_: str, label: str) -> bool:
    return answer_value(id_) != answer_value(label) and parse_date(id_) is None


def _same_value(text: str, gold: str) -> bool:
    return (value := answer_value(text)) != "" and value == answer_value(gold)


def _is_text_of(text: str, gold: Answer) -> bool:
    """Return whether a text is the gold answer's label or id; ids that are numbers do not count."""
    if _same_value(text, gold.label):
        return True
    if gold.id is None or gold.id.isdecimal() or parse_number(gold.id) is not None:
        return False
    return _same_value(text, gold.id)


def hit(
    answer: str,
    candidates: Sequence[Entity],
    gold: Sequence[Answer],
    k: int,
    is_entity: bool = False,
) -> bool:
    """Return H@k: whether the answer is right by its text or by one of its k nearest entities.

    The answer is a set of elements (one, if it is not a list) and is right only as a whole: as many
    elements as gold answers, every element a gold answer, every gold answer present. An element is
    a gold answer by its text (label or id), else by one of its first k candidates. A missing or
    superfluous element makes the answer wrong, at H@5 as at H@1.

    Args:
        answer: the generated answer.
        candidates: the result of ``nearest_entities`` for this answer.
        gold: the gold answers; equal labels count once.
        k: number of candidates of each element that count; 0 is exact match.
        is_entity: the answer is an entity's label: then it is one element, even with "; " in it.
    """
    if _values(answer) and _values(answer) == _values(target_answer(gold)):
        return True  # before equal labels are merged: a single label may contain "; "
    groups: dict[str, list[Answer]] = {}
    for one in gold:
        groups.setdefault(answer_value(one.label), []).append(one)
    elements = [answer] if is_entity else split_answer(answer)
    if len(elements) != len(groups):
        return False
    matches = [
        _gold_of(element, candidates[index :: len(elements)][:k], groups)
        for index, element in enumerate(elements)
    ]
    return all(matches) and set().union(*matches) == set(groups)


def guess_hit(gold: Sequence[Answer], evidence: Sequence[Evidence], k: int) -> float:
    """Return the chance level of H@k: the probability that a guess hits.

    The guess ranks the entities of E_t at random. It answers with one entity, so that it never hits
    a list of gold answers.

    Args:
        gold: the gold answers; equal labels count once.
        evidence: E_t.
        k: number of entities that count.
    """
    entities: dict[str, list[Entity]] = {}
    for passage in evidence:
        for entity in passage.entities:
            entities.setdefault(entity.id, []).append(entity)
    if not entities or len({answer_value(answer.label) for answer in gold}) != 1:
        return 0.0
    wrong = sum(
        not any(same_entity(entity, answer) for entity in labelled for answer in gold)
        for labelled in entities.values()
    )
    drawn = min(k, len(entities))
    return 1 - math.comb(wrong, drawn) / math.comb(len(entities), drawn)


def _gold_of(
    element: str, candidates: Sequence[Entity], groups: dict[str, list[Answer]]
) -> set[str]:
    """Return the gold answers that an element is: by its text, else by its candidates."""
    exact = {key for key, golds in groups.items() if any(_is_text_of(element, g) for g in golds)}
    return exact or {
        key
        for key, golds in groups.items()
        if any(same_entity(entity, gold) for entity in candidates for gold in golds)
    }


def exact_match(answer: str, gold: Sequence[Answer]) -> bool:
    """Return whether answer and gold answer have equal values; for lists, as sets."""
    return hit(answer, (), gold, k=0)


def token_f1(answer: str, gold: Sequence[Answer]) -> float:
    """Return the F1 of the bags of words of answer and gold answer, 0 to 1; 1 for an exact match.

    The words are those of the normalised text (no case, accents, punctuation, articles). Several
    gold answers are one list: the answer is compared with all their labels joined.
    """
    if exact_match(answer, gold):
        return 1.0
    predicted = Counter(_plain_words(answer).split())
    wanted = Counter(_plain_words(target_answer(gold)).split())
    common = (predicted & wanted).total()
    return 2 * common / (predicted.total() + wanted.total()) if common else 0.0


def substring_match(answer: str, gold: Sequence[Answer]) -> bool:
    """Return whether the answer has every gold label as whole words; dates in any spelling."""
    if exact_match(answer, gold):
        return True
    words = searchable(answer)
    return bool(gold) and all(_contains(words, _needle(one.label)) for one in gold)


def _plain_words(text: str) -> str:
    """Return a normalised text in which a number is one word: "1,234.5" is not "1 234 5"."""
    joined = _THOUSANDS.sub("", _MIDNIGHT.sub("", fold(text)))
    return normalise_text(_DECIMAL_POINT.sub(_LETTER_POINT, joined))


@lru_cache(maxsize=1 << 12)
def searchable(text: str) -> str:
    """Return the normalised words of a text, followed by the ISO form of every date in it."""
    words = _plain_words(text)
    dates = [parse_date(d.replace(_LETTER_POINT, ".")) for d in _DATE_IN_TEXT.findall(words)]
    return " | ".join([words, *(normalise_text(date) for date in dates if date)])


@lru_cache(maxsize=1 << 16)
def _needle(label: str) -> str:
    return _plain_words(parse_date(label) or label)


def _contains(words: str, needle: str) -> bool:
    """Return whether normalised words contain the needle with a word boundary at both ends."""
    start = words.find(needle) if needle else -1
    while start >= 0:
        if _is_boundary(words, start) and _is_boundary(words, start + len(needle)):
            return True
        start = words.find(needle, start + 1)
    return False


def _is_boundary(words: str, at: int) -> bool:
    if at in (0, len(words)) or words[at - 1] == " " or words[at] == " ":
        return True
    if unicodedata.category(words[at]).startswith("M"):
        return False  # a vowel sign belongs to the letter before it
    return bool(_UNSPACED.match(words[at - 1]) or _UNSPACED.match(words[at]))


class _Index(NamedTuple):
    """Search keys of a passage."""

    words: str
    ids: frozenset[str]
    values: frozenset[str]


@lru_cache(maxsize=1 << 14)  # an entry has a few kilobytes
def _index(passage: Evidence) -> _Index:
    labels = frozenset(answer_value(entity.label) for entity in passage.entities)
    return _Index(searchable(passage.text), frozenset(e.id for e in passage.entities), labels)


def answer_in_evidence(answers: Sequence[Answer], evidence: Sequence[Evidence]) -> list[str]:
    """Return the sources that hold the gold answers; empty unless E_t holds all of them.

    A passage holds an answer if it has it as an entity, by id or label, or names it in its text as
    whole words.

    Args:
        answers: the gold answers.
        evidence: E_t, in any order.

    Returns:
        The sources of the passages that hold an answer, sorted, each once.
    """
    indexes = [(_index(passage), passage.source) for passage in evidence]
    sources: set[str] = set()
    for answer in answers:
        value, needle = answer_value(answer.label), _needle(answer.label)
        holding = {
            source
            for index, source in indexes
            if answer.id in index.ids
            or (value and value in index.values)
            or _contains(index.words, needle)
        }
        if not holding:
            return []
        sources |= holding
    return sorted(sources)
