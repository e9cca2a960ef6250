"""Noun phrases of plain sentences: subjects and complements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.verbs import begins_predicate
from turngraph.data.memory_graph.extract.word_lists import (
    ADVERBS,
    NUMBER_WORDS,
    PARTICIPLES,
    PAST,
    VERB_FORMS,
)

MAX_WORDS = 7
"""Longest atomic end of a triplet, in words (PersonalAI, arXiv 2506.17001)."""
MAX_COMPLEMENTS = 3

ENDS = frozenset(", ; : — – ( ) . ! ? / … । 。".split())
JOINS = frozenset(
    "and but or so yet because while although though when whenever where whereas who which that "
    "after before unless if since than whose whom nor plus except until then such including".split()
)
_PREPOSITIONS = frozenset(
    "in at of for with from to on by near into onto as about under over through around across "
    "against between among during like behind via within without towards toward beneath "
    "above below beside outside inside opposite throughout per".split()
)
_ARTICLES = frozenset("a an the".split())
_NOT_OBJECTS = frozenset(
    "it them him her me us you that this these those there here what which who everything anything "
    "something nothing so one more lot able out up down off away myself himself herself "
    "itself".split()
)
_NOT_NOUNS = _NOT_OBJECTS | frozenset("i we he she they".split())
_OWNERS = frozenset("my our his her their its your".split())
_ATTRIBUTES = frozenset(
    "name nickname birthday birthdate age height weight size colour color job occupation "
    "profession employer boss manager address email number phone telephone password passcode pin "
    "code salary income rent price cost hometown home capital ceo cto cfo president chairman "
    "chairwoman chair director mayor king queen captain head leader owner coach principal wife "
    "husband spouse fiancé fiancée fiance fiancee girlfriend boyfriend partner deadline status "
    "username nationality religion favourite favorite major degree rank title time date location "
    "venue headquarters population currency language".split()
)
"""Attributes with one value at a time: the newest value holds."""
_OUR_THINGS = frozenset(
    "meeting party wedding flight appointment deadline password passcode rent venue".split()
)
"""Things that are unique in a conversation: "the meeting"."""
_THINKING = frozenset(
    "think believe guess hope suppose assume doubt bet heard imagine feel thinks believes hopes "
    "guesses supposes assumes doubts claims says said claimed suspects suspect thought".split()
)
_CONTRACTION = re.compile(r"(.+?)(n['’]t|['’](?:m|re|ve|ll|d))$")
_LONG = {"m": "am", "re": "are", "ve": "have", "ll": "will", "d": "would"}
_PARTICIPLES = frozenset(PARTICIPLES.values())
_ONLY_PAST = frozenset(PAST.values()) - _PARTICIPLES
_IS = frozenset("he she it that there here what who where".split())
_FULL = {"ca": "can", "wo": "will", "sha": "shall", "ai": "is"}
_CORRECTIONS = (
    "actually", "correction", "no", "sorry", "wait", "i was wrong", "i was mistaken", "my mistake",
    "i misspoke", "in fact", "scratch that", "that was wrong", "that's wrong", "oops",
)  # fmt: skip
_OPENINGS = frozenset(
    (*_CORRECTIONS, "well", "yes", "yeah", "oh", "hey", "hi", "also", "now", "then", "by the way",
     "however", "today", "finally", "currently", "and", "but", "so", "btw", "fyi", "later", "hello",
     "after that", "good news", "ok", "okay", "wow", "recently", "these days", "nowadays", "again",
     "besides", "remember", "note", "guess what", "of course", "as of now", "that", "meanwhile",
     "previously", "formerly", "originally", "i mean", "you know", "in addition", "at the moment",
     "right now", "since then", "apparently", "maybe", "perhaps", "thanks")
)  # fmt: skip
_UNMARKED = frozenset(
    ["and", "but", "so", "actually", "now", "well", "by the way", "maybe", "perhaps"]
)
_CALLS = frozenset("hey hi hello thanks wow yeah oh yes well ok okay no".split())
_CORRECTS = re.compile(
    r"\W*(?:(?:well|oh|sorry|oops|wait|hey|hmm)\b[\W]*)*(?:actually\b|correction\b|no[,.!]\s|"
    r"i (?:was|am) (?:wrong|mistaken)|i misspoke|my mistake|scratch that|in fact\b|"
    r"that(?:'s| is| was) (?:wrong|not right)|not true|sorry\b|i meant\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun phrase.

    Args:
        text: as in a triplet, without its article.
        is_name: it is a name or a title.
        article: "a", "an", "the" or "".
        owner, thing: "Bob" and "car" of "Bob's car".
        role: owner and role: (speaker, "sister") of "my sister Ella".
        is_value: it is a name, number, date, quote or address.
    """

    text: str
    is_name: bool
    article: str = ""
    owner: str | None = None
    thing: str | None = None
    role: tuple[str, str] | None = None
    is_value: bool = False

    @property
    def is_attribute(self) -> bool:
        """Whether its owner has only one of its kind, such as a "favourite" thing."""
        words = (self.thing or "").lower().split()
        return bool(words) and (words[-1] in _ATTRIBUTES or words[0] in ("favourite", "favorite"))


@dataclass(frozen=True, slots=True)
class Speakers:
    """Referents of the pronouns "I", "she" or "he", and "it"."""

    me: str | None
    them: str | None
    it: str | None

    def of(self, pronoun: str) -> str | None:
        """Return the name that a pronoun refers to, or None if it is unknown."""
        if pronoun in ("i", "my", "me"):
            return self.me
        if pronoun in ("he", "she", "his", "her"):
            return self.them
        return self.it if pronoun in ("it", "its") else None


def is_correction(text: str) -> bool:
    """Return whether a sentence begins with a correction ("Actually, ...", "No, ...")."""
    return bool(_CORRECTS.match(text))


def is_attribute(thing: str) -> bool:
    """Return whether an owner has only one such thing ("phone number", "favourite colour")."""
    return Noun("", False, thing=thing).is_attribute


def expand(tokens: Sequence[Token]) -> list[Token]:
    """Expand contractions ("I'm" to "I am") and drop parentheses."""
    words: list[Token] = []
    depth = 0
    for token in tokens:
        depth += token.text in ("(", "[") if token.kind == "mark" else 0
        if depth == 0:
            words += _expanded(token)
        depth -= depth > 0 and token.kind == "mark" and token.text in (")", "]")
    return words


def _expanded(token: Token) -> list[Token]:
    if token.owns and token.lower in _IS:
        return [token._replace(owns=False), token._replace(text="is", lower="is", owns=False)]
    if token.kind == "name" and " of " in token.text:  # "CEO of Acme"
        role, _, name = token.text.partition(" of ")
        if role.lower() in _ATTRIBUTES:
            words = [token._replace(text=t, lower=t.lower(), kind="word") for t in (role, "of")]
            return [*words, token._replace(text=name, lower=name.lower())]
    if token.kind != "word" or ("'" not in token.text and "’" not in token.text):
        return [token]
    match = _CONTRACTION.match(token.lower)
    if match is None:
        return [token]
    first, rest = match[1], match[2]
    first = _FULL.get(first, first) if rest[0] == "n" else first
    last = "not" if rest[0] == "n" else _LONG[rest[1:]]
    return [token._replace(text=first, lower=first), token._replace(text=last, lower=last)]


def without_opening(words: Sequence[Token]) -> tuple[list[Token], bool]:
    """Drop "Well," and "I think that"; return the rest, and whether it was only thought."""
    start = 0
    while (length := _opening_length(words, start)) > 0:
        start += length
    doubtful = False
    for index in range(start + 1, min(start + 3, len(words) - 1)):
        if words[index].lower in _THINKING and _begins_clause(words, index + 1):
            doubtful = True
            start = index + 1 + (words[index + 1].lower == "that")
            break
    return list(words[start:]), doubtful


def _opening_length(words: Sequence[Token], start: int) -> int:
    """Return the number of tokens of an opening, including the mark after it."""
    for length in (3, 2, 1):
        phrase = " ".join(word.lower for word in words[start : start + length])
        if phrase not in _OPENINGS or start + length >= len(words):
            continue
        after = words[start + length]
        if phrase in _CALLS and after.kind == "name" and _is_mark(words, start + 2):
            return 3  # "Hey Mel,"
        is_marked = after.kind == "mark" and after.text in ",:;.!—–-"
        if is_marked or phrase in _UNMARKED:
            return length + is_marked
    return 0


def _is_mark(words: Sequence[Token], index: int) -> bool:
    return index < len(words) and words[index].text in (",", "!", "-", "–", "—")


def _begins_clause(words: Sequence[Token], index: int) -> bool:
    first = words[index]
    subjects = ("i", "he", "she", "it", "that", "the", *_OWNERS)
    return first.kind == "name" or first.lower in subjects


def read_subject(words: Sequence[Token], who: Speakers) -> Noun | None:
    """Return the subject of a segment; None if it is unclear."""
    noun = None if words[-1].owns else read_noun(words, who)
    if noun is None or (noun.is_value and not noun.is_name):
        return None
    is_plain = noun.is_name or noun.owner is not None
    is_thing = noun.article == "the" and noun.text.split()[-1] in _OUR_THINGS
    return noun if is_plain or is_thing else None


def read_noun(words: Sequence[Token], who: Speakers) -> Noun | None:
    """Read all tokens as one noun phrase; return None if they are none or have over 7 words."""
    words = _without_adverbs(words)
    article = ""
    if words and words[0].lower in _ARTICLES:
        article, words = words[0].lower, words[1:]
    if not words:
        return None
    if len(words) == 1:
        return _single(words[0], who, article)
    if (found := _owned(words, who)) is not None:
        return found
    if any(w.kind in ("mark", "speech", "date") and w.text not in ("&", "'", "-") for w in words):
        return None
    return _several(words, article)


def _without_adverbs(words: Sequence[Token]) -> list[Token]:
    words = list(words)
    while words and (words[-1].lower in ADVERBS or words[-1].lower in ("any", "more", "anymore")):
        words.pop()
    while words and words[0].lower in ADVERBS:
        words.pop(0)
    return words


def _single(word: Token, who: Speakers, article: str) -> Noun | None:
    if word.kind == "date":
        return None
    if word.kind in ("name", "quote"):
        return Noun(word.text, True, article, is_value=True) if _fits(word.text) else None
    if word.kind in ("number", "address") or word.lower in NUMBER_WORDS:
        return Noun(word.text, False, article, is_value=True)
    if name := who.of(word.lower):
        return Noun(name, True, is_value=True) if word.lower not in _OWNERS else None
    if word.kind != "word" or word.lower in _NOT_OBJECTS | _OWNERS | _PREPOSITIONS:
        return None
    return (
        None if word.lower in ("i", "he", "she", "we", "they") else Noun(word.text, False, article)
    )


def _owned(words: Sequence[Token], who: Speakers) -> Noun | None:
    """Read "my car", "Bob's car", "my sister's car", "my sister Ella", "the capital of France"."""
    last_owner = max((i for i, word in enumerate(words[:-1]) if word.owns), default=-1)
    if last_owner >= 0:
        first = words[last_owner]._replace(owns=False)
        inner = read_noun([*words[:last_owner], first], who)
        if inner is None or not (inner.is_name or inner.owner or inner.article == "the"):
            return None
        return _of_owner(inner.text, words[last_owner + 1 :])
    if words[0].lower in _OWNERS:
        owner = who.of(words[0].lower)
        return _of_owner(owner, words[1:]) if owner else None
    of = next((i for i, word in enumerate(words) if word.lower == "of"), 0)
    if of and words[-1].kind == "name" and of == len(words) - 2:
        thing = " ".join(word.text for word in words[:of])
        if all(w.kind == "word" for w in words[:of]) and _fits(f"{thing} of {words[-1].text}"):
            return Noun(f"{thing} of {words[-1].text}", False, "", words[-1].text, thing)
    return None


def _of_owner(owner: str, words: Sequence[Token]) -> Noun | None:
    if not words or any(word.kind in ("mark", "date", "speech") for word in words):
        return None
    thing = " ".join(word.text for word in words if word.kind != "name")
    names = [word.text for word in words if word.kind == "name"]
    if names and words[-1].kind == "name" and thing:  # "my sister Ella"
        return Noun(names[-1], True, role=(owner, thing), is_value=True)
    thing = " ".join(word.text for word in words)
    text = f"{owner}'s {thing}"
    return Noun(text, False, "", owner, thing) if _fits(text) else None


def _several(words: Sequence[Token], article: str) -> Noun | None:
    """Read a name after its description ("the physicist Marie Curie"), or all as one phrase."""
    if words[-1].kind == "name" and all(w.kind == "word" and w.text.islower() for w in words[:-1]):
        return Noun(words[-1].text, True, article, is_value=True)
    if any(word.lower in _OWNERS or word.lower in _NOT_NOUNS for word in words):
        return None
    if not article and VERB_FORMS.get(words[0].lower, ("", ""))[1] == "base":
        return None  # "helps put things right"
    if any(word.lower in _ONLY_PAST for word in words):
        return None
    text = " ".join(word.text + "'s" * word.owns for word in words)
    has_number = any(word.kind == "number" or word.lower in NUMBER_WORDS for word in words)
    return Noun(text, False, article, is_value=has_number) if _fits(text) else None


def _fits(text: str) -> bool:
    return len(text.split()) <= MAX_WORDS


def read_complements(
    words: Sequence[Token], start: int, who: Speakers, is_copula: bool
) -> list[tuple[str, Noun]]:
    """Read the complements after a predicate: at most three of (preposition, noun phrase)."""
    complements: list[tuple[str, Noun]] = []
    index = start
    while index < len(words) and len(complements) < MAX_COMPLEMENTS:
        preposition = ""
        while index < len(words) and words[index].lower in ADVERBS and not complements:
            index += 1
        is_after_date = index < len(words) and words[index].kind == "date"
        while index < len(words) and words[index].kind == "date":
            index += 1
        if index < len(words) and words[index].lower in _PREPOSITIONS:
            preposition, index = words[index].lower, index + 1
        elif complements and is_copula and is_participial(words, index):
            preposition = f"{words[index].lower} {words[index + 1].lower}"
            index += 2
        stop = _complement_end(words, index, is_copula)
        noun = None if _is_clause(words, index, preposition) else read_noun(words[index:stop], who)
        if noun is None or (is_after_date and not preposition) or _is_doing(noun, is_copula):
            break
        complements.append((preposition, noun))
        index = stop
    return complements


def _complement_end(words: Sequence[Token], index: int, is_copula: bool) -> int:
    """Return where a noun phrase ends: at a preposition, a date, or a verb after a name."""
    stop = index
    while stop < len(words):
        word = words[stop]
        is_of = word.lower == "of" and stop > index and not is_copula
        if (
            word.kind == "date"
            or (word.lower in _PREPOSITIONS and not is_of)
            or (stop > index and is_copula and is_participial(words, stop))
        ):
            break
        if stop > index and words[stop - 1].kind == "name" and begins_predicate(words, stop):
            break
        stop += 1
    return stop


def _is_doing(noun: Noun, is_copula: bool) -> bool:
    """Return whether a complement is an unknown verb in -ing: "is networking" is an activity."""
    return is_copula and noun.text.endswith("ing") and noun.text.islower() and not noun.article


def is_participial(words: Sequence[Token], index: int) -> bool:
    """Return whether "directed by", "based on" or the like is here, a reduced clause."""
    if index + 1 >= len(words) or words[index + 1].lower not in _PREPOSITIONS:
        return False
    word = words[index]
    return word.kind == "word" and (word.lower in _PARTICIPLES or word.lower.endswith("ed"))


def _is_clause(words: Sequence[Token], index: int, preposition: str) -> bool:
    """Return whether a clause begins here: "to study medicine", "by working hard"."""
    form = VERB_FORMS.get(words[index].lower, ("", ""))[1] if index < len(words) else ""
    return (preposition == "to" and form == "base") or (bool(preposition) and form == "ing")
