"""Reads noun phrases of plain sentences: subjects and complements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.word_lists import (
    ADVERBS,
    NOUNS_IN_LY,
    NUMBER_WORDS,
    OPENERS,
    PARTICIPLES,
    PAST,
    UNITS,
    VERB_FORMS,
)

MAX_WORDS = 7
"""Longest atomic end of a triplet, in words (PersonalAI, arXiv 2506.17001)."""

PHRASES = frozenset(
    {(word, "to") for word in ("next", "close", "opposite")}
    | {(word, "of") for word in ("north", "south", "east", "west", "outside", "inside", "ahead")}
)
"""Prepositions of two words."""
PREPOSITIONS = frozenset(
    "in at of for with from to on by near into onto as about under over through around across "
    "against between among during like behind via within without towards toward beneath "
    "above below along beyond beside outside inside opposite throughout per after".split()
) | {" ".join(words) for words in PHRASES}
ARTICLES = frozenset("a an the".split())
_NOT_OBJECTS = frozenset(
    "it them him her me us you that this these those there here what which who everything anything "
    "something nothing so one more lot able out up down off away ahead aside apart myself himself "
    "herself itself others ya em no none not much good sure half better worse".split()
)
_FINITE = frozenset(
    "is are was were has had have does do did will would can could may might must shall should "
    "how why when where whether because".split()
)
"""Words that begin a clause, so they are in no noun phrase."""
_REGIONS = frozenset(
    "northern southern eastern western central upper lower inner outer mainland rural".split()
)
"""Adjectives that form the name of another place: "northern Laos"."""
_PARTICLES = frozenset("off out up down away".split())
_NO_DESCRIPTION = PREPOSITIONS | _PARTICLES | frozenset(PAST.values()) | _FINITE | _REGIONS
_NOT_ONE = PREPOSITIONS | {"more", "day", "thing", "time", "another"}
_COUNTED_PLACES = frozenset(
    "room gate platform flat building unit hall seat bus line route road flight level".split()
)
_NO_ENDS = frozenset("any more anymore last though tho btw lol haha tbh imo imho xx".split())
"""Words after a noun phrase that do not belong to it."""
IMPRECISE = frozenset("more over about under almost nearly between".split())
"""Words that make a number imprecise: "about 300", "more than 80"."""
_BEFORE_NOUN = frozenset("a an the own".split())
_NOT_NOUNS = _NOT_OBJECTS | frozenset("i we he she they".split())
OWNERS = frozenset("my our his her their its your".split())
_NO_PART = OWNERS | _NOT_NOUNS | _FINITE
ATTRIBUTES = frozenset(
    "name nickname birthday birthdate age height weight size colour color job occupation "
    "profession employer boss manager address email number phone telephone password passcode pin "
    "code salary income rent price cost hometown home capital ceo cto cfo president chairman "
    "chairwoman chair director mayor king queen captain head leader owner coach principal wife "
    "husband spouse fiancé fiancée fiance fiancee girlfriend boyfriend partner deadline status "
    "username nationality religion favourite favorite major degree rank title time date location "
    "venue headquarters population currency language fee fare revenue turnover budget length "
    "motto slogan salary".split()
)
"""Attributes with one value at a time: the newest value holds."""
TITLES = frozenset("mr mr. mrs mrs. ms ms. dr dr. prof prof. sir".split())
"""Titles before a name, which alone are no name: "Mr. and Mrs. Aldous"."""
OUR_THINGS = frozenset(
    "meeting party wedding flight appointment deadline password passcode rent venue".split()
)
"""Things that are unique in a conversation: "the meeting"."""
_UNIQUE = OUR_THINGS | ATTRIBUTES
_ONLY_PAST = frozenset(past for base, past in PAST.items() if base in PARTICIPLES)
_PAST = frozenset(PAST.values()) - _ONLY_PAST


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun phrase.

    Args:
        text: text as in a triplet, without the article.
        is_name: whether it is a name or a title.
        article: "a", "an", "the" or "".
        owner, thing: "Bob" and "car" of "Bob's car".
        role: owner and role: (speaker, "sister") of "my sister Ella".
        is_value: whether it is a name, number, date, quote or address.
        is_common: whether it is a description without a name ("the old bridge") in a text without
            a topic.
    """

    text: str
    is_name: bool
    article: str = ""
    owner: str | None = None
    thing: str | None = None
    role: tuple[str, str] | None = None
    is_value: bool = False
    is_common: bool = False

    @property
    def head(self) -> str:
        """The text; for a common noun without the phrase after it: "zoo" of "zoo in Rome"."""
        if not self.is_common:
            return self.text
        words = self.text.split()
        places = (i for i, word in enumerate(words) if i and word in PREPOSITIONS - {"of"})
        stop = next(places, None)
        return self.text if stop is None else " ".join(words[:stop])

    @property
    def is_described(self) -> bool:
        """Whether it describes one thing without a name: "the old bridge"."""
        if (self.is_common and self.is_name) or self.text.split()[-1].lower() in _UNIQUE:
            return False  # "my school", "the meeting"
        is_plain = not (self.is_name or self.is_value or self.owner)
        return self.is_common or (is_plain and self.article == "the" and self.text.islower())

    @property
    def is_attribute(self) -> bool:
        """Whether an owner has only one such thing, such as an age or a "favourite" thing."""
        words = (self.thing or (self.text if self.is_common else "")).lower().split()
        if self.is_common or self.owner:  # "deadline for the grant"
            words = words[: next((i for i, w in enumerate(words) if i and w in PREPOSITIONS), None)]
        return bool(words) and (words[-1] in ATTRIBUTES or words[0] in ("favourite", "favorite"))


@dataclass(frozen=True, slots=True)
class Speakers:
    """Referents of pronouns, and the topic of the text.

    Args:
        me, them, it: referents of "I", of "he" or "she", and of "it"; None: unknown.
        topic: topic of the text; None: it has none.
        many: whether "their" refers to the subject, which is several.
        that: referent of "it" as an object, if it differs from ``it``.
    """

    me: str | None
    them: str | None
    it: str | None
    topic: str | None = None
    many: bool = False
    that: str | None = None

    def of(self, pronoun: str) -> str | None:
        """Return the name that a pronoun refers to, or None if it is unknown.

        "We" refers to the speaker, as what is said of "we" is true of the speaker, too.
        """
        if pronoun in ("i", "my", "me", "we", "our"):
            return self.me
        if pronoun in ("he", "she", "his", "her"):
            return self.them if self.them != self.me else None
        if pronoun == "it" and self.that:
            return self.that
        return self.it if pronoun in ("it", "its") else None


def is_attribute(thing: str) -> bool:
    """Return whether an owner has only one thing of this name ("phone number")."""
    return Noun("", False, thing=thing).is_attribute


def _is_label(words: Sequence[Token]) -> bool:
    """Return whether a name is only a number of a thing: "room B12"."""
    has_digit = any(map(str.isdigit, words[-1].text))
    return has_digit and len(words) > 1 and words[-2].lower in _COUNTED_PLACES


def _is_shown(words: Sequence[Token]) -> bool:
    """Return whether "this" stands before a thing: "this clock", not "this week" or "this one"."""
    is_plain = all(word.kind == "word" and word.text.islower() for word in words[1:])
    last = words[-1].lower
    return is_plain and last not in _NOT_ONE | UNITS | {"one"} and not last.endswith("s")


def read_noun(words: Sequence[Token], who: Speakers) -> Noun | None:
    """Read all tokens as one noun phrase; return None if they are not one, or over 7 words."""
    words = _without_adverbs(words)
    while words and words[-1].kind == "mark":
        words = words[:-1]
    if words and (words[-1].lower in PREPOSITIONS or _begins_phrase(words)):
        return None
    if len(words) > 2 and words[0].lower == "all" and words[1].lower in OWNERS | {"the"}:
        words = words[1:]
    if len(words) > 2 and words[-2].lower in ("named", "called") and words[-1].kind == "name":
        return _named(words, who)
    article = ""
    if words and words[0].lower in ARTICLES:
        article, words = words[0].lower, words[1:]
    elif len(words) > 1 and words[0].lower == "this" and _is_shown(words):
        article, words = "the", words[1:]
    if not words:
        return None
    if len(words) == 1:
        return _single(words[0], who, article)
    if (owned := _owned(words, who)) is not None:
        return owned
    for word in words:
        if word.kind in ("mark", "speech", "date") and word.text not in ("&", "'", "-"):
            return None
    return read_several(words, article)


def _named(words: Sequence[Token], who: Speakers) -> Noun | None:
    """Read "a dentist named Kuhl" as the name, "two brothers named Kuhl" as a whole."""
    if not words[-3].lower.endswith("s"):
        return _single(words[-1], who, "")
    text = " ".join(word.text for word in words)
    return Noun(text, False, "the", is_common=True) if fits(text) else None


def _begins_phrase(words: Sequence[Token]) -> bool:
    """Return whether a preposition is first, unless it begins an amount ("about 300")."""
    return words[0].lower in PREPOSITIONS and not is_amount(words)


def is_amount(words: Sequence[Token]) -> bool:
    """Return whether the tokens begin with an amount like "about 300" or "more than 80"."""
    is_imprecise = words[0].lower in IMPRECISE
    return is_imprecise and any(
        word.kind == "number" or word.lower in NUMBER_WORDS for word in words[1:3]
    )


def _without_adverbs(words: Sequence[Token]) -> list[Token]:
    words = list(words)
    while words and (words[-1].lower in ADVERBS or words[-1].lower in _NO_ENDS):
        if len(words) > 1 and words[-2].lower in _BEFORE_NOUN:  # "its own well"
            break
        words.pop()
    while len(words) > 1 and _is_adverb(words[-1]) and words[-2].lower not in _BEFORE_NOUN:
        words.pop()
    while words and words[0].lower in ADVERBS:
        if words[0].lower == "first" and words[1:] and words[1].kind == "word":
            break  # "first prize"
        words.pop(0)
    return words


def _is_adverb(word: Token) -> bool:
    if not word.lower.endswith("ly"):
        return False
    is_plain = word.kind == "word" and word.text.islower() and len(word.text) > 4
    return is_plain and word.lower not in NOUNS_IN_LY


def _single(word: Token, who: Speakers, article: str) -> Noun | None:
    if word.kind == "date":
        return Noun(word.text, False, is_value=True) if word.text else None
    if word.lower in TITLES:
        return None
    if word.kind in ("name", "quote"):
        text = f"{word.text}'s" if word.owns else word.text  # "St Anne's"
        return Noun(text, True, article, is_value=True) if fits(text) else None
    if word.kind in ("number", "address") or word.lower in NUMBER_WORDS:
        return Noun(word.text, False, article, is_value=True)
    if name := who.of(word.lower):
        return Noun(name, True, is_value=True) if word.lower not in OWNERS else None
    if word.kind != "word" or word.lower in _NOT_OBJECTS | OWNERS | PREPOSITIONS:
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
    if words[0].lower == "their" and who.many:
        return read_noun(words[1:], who)
    if words[0].lower in OWNERS:
        owner = who.of(words[0].lower)
        return _of_owner(owner, words[1:]) if owner else None
    of = next((i for i, word in enumerate(words) if word.lower == "of"), 0)
    last = of + 1 + (words[min(of + 1, len(words) - 1)].lower == "the")
    if of and words[-1].kind == "name" and last == len(words) - 1:
        thing = " ".join(word.text for word in words[:of])
        if all(w.kind == "word" for w in words[:of]) and fits(f"{thing} of {words[-1].text}"):
            return Noun(f"{thing} of {words[-1].text}", False, "", words[-1].text, thing)
    return None


def _of_owner(owner: str, words: Sequence[Token]) -> Noun | None:
    if not words or any(word.kind in ("mark", "date", "speech") for word in words):
        return None
    if any(word.lower in ("a", "an") or word.lower in _FINITE for word in words):
        return None  # "her brother a watch"
    if words[-1].lower in _PARTICLES or (len(words) == 1 and words[0].lower == "own"):
        return None
    thing = " ".join(word.text for word in words if word.kind != "name")
    is_verb = any(word.lower in ARTICLES or word.lower in VERB_FORMS for word in words[1:-1])
    names = [word.text for word in words if word.kind == "name"]
    if len(names) == len(words) == 1 and fits(f"{owner}'s {names[0]}"):
        return Noun(f"{owner}'s {names[0]}", True, is_value=True)  # "Freedom's Journal"
    is_plain = not any(word.lower in PREPOSITIONS for word in words)
    if (
        names and words[-1].kind == "name" and thing and is_plain and not is_verb
    ):  # "my sister Ella"
        return Noun(names[-1], True, role=(owner, thing), is_value=True)
    thing = " ".join(word.text for word in words)
    text = f"{owner}'s {thing}"
    return Noun(text, False, "", owner, thing) if fits(text) else None


def read_several(words: Sequence[Token], article: str) -> Noun | None:
    """Read a name after its description ("the physicist Marie Curie"), or one whole phrase."""
    if words[-1].kind == "name" and _describe(words[:-1]) and not _is_label(words):
        return Noun(words[-1].text, True, article, is_value=True)
    if words[-1].kind == "name" and len(words) == 2 and words[0].lower in _REGIONS:
        return Noun(f"{words[0].text} {words[1].text}", True, article, is_value=True)
    first = is_amount(words) or (words[0].lower == "one" and words[1].lower not in _NOT_ONE)
    for word in words[first:]:
        if word.lower in _NO_PART and word.kind == "word":
            return None
    if not article and VERB_FORMS.get(words[0].lower, ("", ""))[1] == "base":
        return None  # "helps put things right"
    lowers = [word.lower for word in words]
    if not (_ONLY_PAST.isdisjoint(lowers) and _PAST.isdisjoint(lowers[1:])):
        return None  # but "retired teacher"
    if ("a" in lowers or "an" in lowers) and any(_is_said(*pair) for pair in pairwise(words)):
        return None  # "legend says a dragon"
    text = " ".join(word.text + "'s" * word.owns for word in words).replace("s ' ", "s' ")
    has_number = any(word.kind == "number" or word.lower in NUMBER_WORDS for word in words)
    return Noun(text, False, article, is_value=has_number) if fits(text) else None


def _is_said(before: Token, word: Token) -> bool:
    is_verb = word.lower in ("a", "an") and before.lower not in UNITS
    return is_verb and VERB_FORMS.get(before.lower, ("", ""))[1] in ("third", "past")


def _describes(word: Token) -> bool:
    is_plain = word.text.islower() or word.lower in OPENERS
    return word.kind == "word" and is_plain and word.lower not in _NO_DESCRIPTION


def _describe(words: Sequence[Token]) -> bool:
    """Return whether words describe the name after them: "the physicist", "Nobel laureate"."""
    is_of_name = len(words) == 2 and words[0].kind == "name" and not words[0].owns
    return all(map(_describes, words[is_of_name:]))


def fits(text: str) -> bool:
    return len(text.split()) <= MAX_WORDS
