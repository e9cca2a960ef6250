"""The statement of a clause, and tests of the kind of a clause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from turngraph.data.memory_graph.extract.complements import PARTICIPLE_FORMS, is_participial
from turngraph.data.memory_graph.extract.dates import Date
from turngraph.data.memory_graph.extract.nouns import PREPOSITIONS, Noun
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.verbs import Predicate, begins_predicate
from turngraph.data.memory_graph.extract.word_lists import (
    ADVERBS,
    LASTING,
    NUMBER_WORDS,
    VERB_FORMS,
)

_AT_PLACE = frozenset("in at near".split())
_KIN = frozenset(
    "son daughter child youngest eldest oldest grandson granddaughter nephew niece brother sister "
    "widow heir".split()
)
_SEASONS = frozenset("spring summer autumn fall winter end beginning start".split())
_GOES_BY = frozenset("live stand stop walk pass sit drop come go run start begin end grow".split())
_CAUSES = frozenset(
    "require ask allow help want force order urge persuade enable invite advise encourage teach "
    "expect cause permit need".split()
)
"""Verbs whose object is the subject of the verb after "to"."""

OF_DOING = frozenset(
    "stop avoid prevent keep like love hate enjoy remember mind start begin spend imagine".split()
)
"""Verbs whose object is what somebody does: "stopped Ida leaving the house"."""
_THINKS = frozenset("think believe say suppose expect report rumour allege claim know".split())

IS = Predicate("is", "be", "present", 0)


@dataclass(frozen=True, slots=True)
class Statement:
    """Subjects, a predicate and its complements, which become one or more triplets.

    Args:
        subjects: one subject, or several joined by "and".
        predicate: predicate that joins the subjects to the complements.
        complements: pairs of a preposition or "" and the noun phrase after it.
        dates: dates of the statement.
        rest: tokens at the end of its segment that were not read.
    """

    subjects: tuple[Noun, ...]
    predicate: Predicate
    complements: tuple[tuple[str, Noun], ...]
    dates: tuple[Date, ...] = ()
    rest: tuple[Token, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether its segment was read to the end."""
        return not self.rest


def is_unaccounted(statement: Statement) -> bool:
    """Return whether the unread rest of a segment makes its statement unsure.

    A rest may limit a negation, contain the real verb, or continue a number ("140 by 70"). Only a
    phrase with a preposition, an adverb or a date may stay unread.
    """
    rest = statement.rest
    following = [*(preposition for preposition, _ in statement.complements[1:]), bool(rest)]
    if statement.predicate.base == "measure" and "by" in following:
        return True
    for (_, noun), more in zip(statement.complements, following, strict=True):
        if more in ("by", True) and _is_number(noun.text.rpartition(" ")[2]):
            return True
    if statement.predicate.base in _CAUSES and _has_infinitive(statement):
        return True
    if not rest or statement.predicate.is_negated:
        return bool(rest)
    may_be_left = rest[0].lower in PREPOSITIONS | {"instead", "rather"} or is_manner(rest[0])
    may_be_left |= is_participial(rest, 0)
    may_be_left |= _is_doing(rest) and statement.predicate.base not in OF_DOING
    if rest[0].kind in ("word", "name") and not may_be_left:
        return True
    is_reduced = is_participial(rest, 0)
    kinds = {VERB_FORMS.get(w.lower, ("", ""))[1] for w in rest[is_reduced:] if w.kind == "word"}
    return not kinds.isdisjoint(("past", "third"))


def _is_doing(rest: Sequence[Token]) -> bool:
    """Return whether the rest is like "tying her shoe", about the object or the subject."""
    return len(rest) > 1 and VERB_FORMS.get(rest[0].lower, ("", ""))[1] == "ing"


def _has_infinitive(statement: Statement) -> bool:
    """Return whether a verb after "to" follows an object: "requires her to wear", "to rest"."""
    rest = statement.rest
    if len(rest) > 1 and rest[0].lower == "to":
        return VERB_FORMS.get(rest[1].lower, ("", ""))[1] == "base"
    preposition, noun = statement.complements[-1]
    is_bare = noun.text.islower() and not noun.article and " " not in noun.text
    return preposition == "to" and is_bare and len(statement.complements) > 1


def _is_number(word: str) -> bool:
    return word.isdigit() or word in NUMBER_WORDS


def is_telling(predicate: Predicate, complement: tuple[str, Noun]) -> bool:
    """Return whether a statement about a common noun is more than an impression ("was nice")."""
    preposition, noun = complement
    if predicate.doubtful:
        return False
    if not predicate.is_copula or preposition or noun.is_value or noun.text in LASTING:
        return True
    return bool(noun.article) and predicate.time == "present"


def is_inverted(words: Sequence[Token], start: int, subjects: Sequence[Noun]) -> bool:
    """Return whether the subject comes after the verb: "Present were Ida and Bo"."""
    if words[start].lower not in ("are", "were") or start + 1 >= len(words):
        return False
    is_one = start == 1 and len(subjects) == 1 and not subjects[0].text.endswith("s")
    return is_one and words[start + 1].kind == "name"


def is_named(noun: Noun) -> bool:
    """Return whether a noun phrase is a name, or begins with one: "the Fjell chair"."""
    return noun.is_name or noun.text[:1].isupper()


def is_manner(word: Token) -> bool:
    return word.lower in ADVERBS or word.lower.endswith("ly")


def is_agent_only(predicate: Predicate, complements: Sequence[tuple[str, Noun]]) -> bool:
    """Return whether "led by Ida" describes the noun before it, which is not its subject."""
    is_passive = predicate.text.startswith(("is ", "was ", "can be ", "used to be "))
    if is_passive or predicate.is_copula or not complements or complements[0][0] != "by":
        return False
    is_active = predicate.doubtful or predicate.time == "present" or " " in predicate.text
    return not is_active and predicate.base not in _GOES_BY


def without_makers(
    predicate: Predicate, complements: Sequence[tuple[str, Noun]]
) -> list[tuple[str, Noun]]:
    """Return complements without those of an object: "contains a painting by Hals"."""
    if predicate.is_copula:
        return list(complements)
    is_active = not predicate.text.startswith(("is ", "was ", "can be ", "used to be "))
    for index, (preposition, noun) in enumerate(complements):
        is_maker = preposition == "by" and index and not complements[index - 1][0]
        if (
            is_maker
            and is_active
            and not any(map(str.isdigit, noun.text))
            and not _is_number(noun.text)
        ):
            return list(complements[:index])
    return list(complements)


def is_prospect(words: Sequence[Token], complements: Sequence[tuple[str, Noun]]) -> bool:
    """Return whether an adjective qualifies an action: "is safe to drink"."""
    preposition, noun = complements[0]
    if preposition or noun.article or noun.is_value or not noun.text.islower():
        return False
    verbs = (w for to, w in pairwise(words) if to.lower == "to")
    return any(VERB_FORMS.get(word.lower, ("", ""))[1] == "base" for word in verbs)


def is_compared(predicate: Predicate, complements: Sequence[tuple[str, Noun]]) -> bool:
    """Return whether a thing is only compared or thought: "is as fast as", "was said to"."""
    prepositions = [preposition for preposition, _ in complements]
    if predicate.is_copula:
        return prepositions[:1] == ["as"]
    is_passive = predicate.text.startswith(("is ", "was "))
    return is_passive and predicate.base in _THINKS and prepositions[:1] == ["to"]


def is_of_name(words: Sequence[Token], start: int) -> bool:
    """Return whether "his" refers to a name and not to the subject: "thanked Rolf for his work"."""
    owners = (i for i in range(start, len(words)) if words[i].lower in ("his", "her"))
    first = next(owners, start)
    return any(word.kind == "name" for word in words[start:first])


def is_plain_end(words: Sequence[Token], start: int) -> bool:
    """Return whether no other verb follows in a segment, so that its subject is sure."""
    kinds = {VERB_FORMS.get(w.lower, ("", ""))[1] for w in words[start:] if w.kind == "word"}
    return kinds.isdisjoint(("past", "third"))


def doubted(statement: Statement) -> Statement:
    return replace(statement, predicate=replace(statement.predicate, doubtful=True))


def is_reduced(words: Sequence[Token]) -> bool:
    """Return whether a clause without "was" begins here: "built in 1911", "born in Faro"."""
    if is_participial(words, 0):
        return True
    return len(words) > 1 and words[1].kind == "date" and words[0].lower in PARTICIPLE_FORMS


def participial(token: Token) -> Predicate:
    """Return the predicate of "born in Faro" beside a name."""
    base = VERB_FORMS.get(token.lower, (token.lower,))[0]
    return Predicate(f"was {token.lower}", base, "event", 1)


def participle(predicate: Predicate) -> Noun | None:
    """Return the participle of a passive without an object ("is divorced") as a complement."""
    be, _, participle = predicate.text.rpartition(" ")
    if predicate.is_copula or be.split(" ")[0] not in ("is", "was") or participle.endswith("ing"):
        return None
    return Noun(participle, False)


def with_year(words: Sequence[Token]) -> Sequence[Token]:
    """Return a segment with the year of a thing as a word: "The treaty of 1648 ended"."""
    for index in (3, 2):
        if index + 1 < len(words) and words[index].kind == "date":
            year = words[index].text
            is_of = words[index - 1].lower == "of" and words[index - 2].lower not in _SEASONS
            if is_of and len(year) == 4 and begins_predicate(words, index + 1):
                word = words[index]._replace(kind="word")
                return [*words[:index], word, *words[index + 1 :]]
    return words


def split_roles(nouns: Sequence[Noun]) -> tuple[list[Noun], list[Statement]]:
    """Return the subjects, and statements of roles: "Leo, an engineer, and Nils founded"."""
    subjects: list[Noun] = []
    roles: list[Statement] = []
    for noun in nouns:
        if subjects and subjects[-1].is_name and not noun.is_name and noun.article in ("a", "an"):
            roles.append(Statement((subjects[-1],), IS, (("", noun),)))
        else:
            subjects.append(noun)
    return subjects, roles


def is_two_roles(first: Noun, role: Noun, other: Noun) -> bool:
    """Return whether two noun phrases describe the name before them: "a nurse and poet"."""
    is_plain = not (role.is_name or other.is_name)
    return is_plain and is_named(first) and role.article in ("a", "an") and other.article != "the"


def is_counted(statement: Statement) -> bool:
    """Return whether a statement ends with a number of things, whose names may follow."""
    _, noun = statement.complements[-1]
    return noun.is_value and not noun.is_name and not noun.text[-1].isdigit()


def is_kin_of_subject(preposition: str, words: Sequence[Token]) -> bool:
    """Return whether "the son of a baker" after a place is the subject: "born in Oslo, the ..."."""
    is_kin = not _KIN.isdisjoint([word.lower for word in words[1:4]])
    return preposition in _AT_PLACE and is_kin
