"""Reads the complements of a predicate: the noun phrases after it with their prepositions."""

from __future__ import annotations

from collections.abc import Sequence

from turngraph.data.memory_graph.extract.nouns import (
    ARTICLES,
    OWNERS,
    PREPOSITIONS,
    Noun,
    Speakers,
    is_amount,
    read_noun,
)
from turngraph.data.memory_graph.extract.segments import is_comparison
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.time_phrases import (
    TIME_UNITS,
    after_times,
    is_about_unit,
    is_number,
    time_length,
)
from turngraph.data.memory_graph.extract.verbs import agrees, begins_predicate
from turngraph.data.memory_graph.extract.word_lists import (
    ADVERBS,
    NOUNS_IN_LY,
    PARTICIPLES,
    PAST,
    UNITS,
    VERB_FORMS,
    WEEKDAYS,
)

MAX_COMPLEMENTS = 3
Complement = tuple[str, Noun]
"""A preposition or "", and the noun phrase after it."""

PARTICIPLE_FORMS = frozenset(PARTICIPLES.values()) | frozenset(
    past for base, past in PAST.items() if base not in PARTICIPLES
)
SCHEDULED = frozenset(
    "be bear take start begin end open close expire leave postpone move delay reschedule adjourn "
    "defer schedule shift push meet".split()
)
"""Verbs of schedules: a weekday after them is part of the fact."""
_PLACES = frozenset("here there back twice".split())
_GIVES = frozenset(
    "pay cost charge lend give send owe offer award teach show tell buy prescribe bring".split()
)
_RECEIVERS = frozenset("me us you him them".split())
_COMES_FROM = frozenset(
    "move come travel buy return receive graduate borrow get steal order resign retire relocate "
    "emigrate immigrate escape date range descend hear learn fly drive change take be purchase "
    "release remove separate translate migrate withdraw rent bear fall rise raise gain regain "
    "inherit import obtain acquire recover rescue free save".split()
)
"""Verbs with a complement of origin; after other verbs "from Graz" belongs to the noun."""
_PLACED = frozenset("in at near on".split())
_ENDS_IN_PLACE = frozenset("to into onto from by for".split())
"""Prepositions whose noun a place may follow: "to a shelter in Bremen"."""
_OF_NOUNS = frozenset("between per".split())
_BEFORE_NUMBERS = PREPOSITIONS | frozenset("and than least most nearly almost".split())
_OPEN_PASSIVES = frozenset("named called known considered used said".split())
_SELVES = frozenset("myself himself herself itself".split())
_PARTS_OF_DAY = frozenset(["", "morning", "afternoon", "evening", "night"])
_TO_DO = frozenset(
    "promise try plan want need agree refuse decide hope manage begin start continue seem fail "
    "threaten intend learn expect prefer choose attempt aim wish pledge struggle tend".split()
)
"""Verbs after which "to" begins an infinitive."""
_BESIDE = frozenset("above under behind beside below opposite outside inside".split())
_LONG = frozenset("days weeks months years decades centuries ages".split())
_LASTS = frozenset("be last stay remain".split())
_STOPS = frozenset("instead rather".split())
_MANNERS = {
    "by": frozenset("mistake accident chance hand surprise law default".split()),
    "at": frozenset("moment random last once first".split()),
    "in": frozenset(
        "fact general total particular practice principle advance detail person vain public "
        "private full part turn addition time".split()
    ),
    "on": frozenset("purpose time".split()),
    "for": frozenset(
        "now sure example instance free good fun living hobby while moment time change".split()
    ),
    "without": frozenset("warning success".split()),
}
"""Nouns that form an adverb with their preposition ("by mistake")."""
_RECEIVED = frozenset("give send lend offer award owe sell pay prescribe bring".split())
"""Verbs of giving whose receiver can follow "to"."""
_LINKS = frozenset("connection relation response addition comparison accordance".split())
"""Nouns that form a preposition with "in" before and another word after: "in relation to"."""
_OTHERS = frozenset("us you them it him her me".split())
_OF_OBJECTS = frozenset("found establish open run drop add provide have lead head attend".split())
"""Verbs after which "for" belongs to the object: "founded a school for the deaf"."""
_ABOUT = frozenset("for against about over".split())
_ABOUT_NOUNS = frozenset(
    "plan petition proposal support request campaign protest demand need reason recipe ticket "
    "application appeal bid grant contract permission licence license ban tax book film article "
    "report law rule exhibition room space school".split()
)
"""Nouns to which "for" or "against" belongs: "rejected plans for a car park"."""
_PREPOSED = frozenset("with at in".split())
_DATED = frozenset("to for until till".split())


def read_complements(
    words: Sequence[Token], start: int, who: Speakers, base: str
) -> tuple[list[Complement], Sequence[Token]]:
    """Return the complements after a predicate, at most three, and the unread rest of the words.

    Args:
        words: tokens of a segment.
        start: index after the predicate.
        who: the pronouns' referents.
        base: the verb's base form.
    """
    complements: list[Complement] = []
    is_copula = base == "be"
    receiver: Noun | None = None
    index = end = _after_places(words, start)
    if base in _GIVES and index < len(words) - 1 and words[index].lower in _SELVES:
        index += 1
    while index < len(words) and len(complements) < MAX_COMPLEMENTS:
        at = index
        index = after_times(words, index)
        if index >= len(words):
            break
        index += is_about_unit(words, index)
        preposition, index = _preposition(words, index, len(complements), is_copula)
        if preposition and _is_pronoun(words, index, who):
            index = end = index + 1
            continue
        is_over = not preposition and bool(complements or index > at)
        is_other = preposition == "from" and _is_days(words, index)
        is_other |= preposition == "to" and receiver is not None
        if is_over or is_other or _is_apart(preposition, complements, base):
            break
        stop = _complement_end(words, index, is_copula)
        if base in _GIVES and not preposition:
            first = index
            index, stop = _given(words, index, stop)
            if index > first and base in _RECEIVED:
                receiver = read_noun(words[first:index], who)
        noun = (
            None
            if _is_clause(words, index, preposition, "" if complements else base)
            else _noun(words[index:stop], who, preposition)
        )
        if noun is None or _is_unread(preposition, noun, is_copula):
            break
        is_done = not preposition and _is_doing_what(words[at:stop])
        index = end = stop
        if not _is_left_out((preposition, noun), complements, base):
            complements.append((preposition, noun))
            if receiver is not None and receiver.is_name:
                complements.insert(-1, ("to", receiver))
        if is_done:
            break
    return complements, words[after_times(words, end) :]


def _preposition(
    words: Sequence[Token], index: int, num_before: int, is_copula: bool
) -> tuple[str, int]:
    """Return a complement's preposition, or "", and the index after it."""
    lower = words[index].lower
    if lower == "than" and is_copula and num_before == 1:
        return lower, index + 1
    is_age = is_copula and not num_before and is_amount(words[index:])
    if lower in PREPOSITIONS and not (is_age or _is_range(words, index)):
        if index + 2 < len(words) and words[index + 1].lower == "by":  # "was operated on by"
            return f"{lower} by", index + 2
        return lower, index + 1
    if num_before and is_copula and is_participial(words, index):
        return f"{lower} {words[index + 1].lower}", index + 2
    return "", index


def _is_unread(preposition: str, noun: Noun, is_copula: bool) -> bool:
    """Return whether a phrase states no fact: "in connection", "by eight votes", "between them"."""
    if _is_doing(noun, is_copula) or _is_manner(noun, is_copula):
        return True
    if preposition == "between":
        return not noun.is_value
    is_vote = preposition in ("with", "by") and noun.text.endswith(" votes")
    return is_vote or (preposition == "in" and noun.text in _LINKS)


def _noun(words: Sequence[Token], who: Speakers, preposition: str) -> Noun | None:
    """Read a noun phrase; a date is one only after a preposition that makes it an object."""
    if len(words) == 1 and words[0].kind == "date" and preposition not in _DATED:
        return None
    return read_noun(words, who)


def _is_left_out(complement: Complement, complements: Sequence[Complement], base: str) -> bool:
    """Return whether a phrase is left out: a weekday, "a shelter in Rome", "accounts for 2024"."""
    preposition, noun = complement
    if noun.text in _MANNERS.get(preposition, ()) and base != "be":
        return True
    if preposition == "for" and noun.text.rpartition(" ")[2] in _LONG and base not in _LASTS:
        return True
    if preposition == "after" and noun.is_value and noun.text.rpartition(" ")[2] in UNITS:
        return True  # "after 30 minutes"
    if not complements:
        return False
    before, last = complements[-1]
    if preposition == "in" and last.text.lower().startswith(("best ", "most ", "only ")):
        return True  # "makes the best pudding in the world"
    day, _, part = noun.text.lower().partition(" ")
    if preposition == "on" and day.removesuffix("s") in WEEKDAYS and part in _PARTS_OF_DAY:
        return base not in SCHEDULED
    unit = noun.text.rpartition(" ")[2].removesuffix("s")
    if preposition == "within" and base != "be" and unit in TIME_UNITS:
        return True
    if preposition == "for" and noun.is_value and not noun.is_name and noun.text[-4:].isdigit():
        return len(noun.text) == 4 or noun.text[-5:-4] == " "
    if preposition == "near" and not before and not last.is_name:  # "a house near Oslo"
        return True
    if preposition in _BESIDE and before and not last.is_name:  # "to a view above the lake"
        return True
    return preposition in _PLACED and before in _ENDS_IN_PLACE and not last.is_name


def _is_apart(preposition: str, complements: Sequence[Complement], base: str) -> bool:
    """Return whether a phrase belongs to the noun before it: "a dentist from Graz"."""
    if not complements:
        return False
    before, noun = complements[-1]
    if preposition == "for" and (before or base in _OF_OBJECTS):
        return not before or (before in _PREPOSED and noun.article in ("a", "an"))
    if base == "prefer" and preposition == "to":
        return True
    if not before and preposition in _ABOUT:
        return noun.text.rpartition(" ")[2].lower().removesuffix("s") in _ABOUT_NOUNS
    if before == "after" or (preposition == "with" and before == "for"):
        return True
    is_origin = preposition == "from" and base not in _COMES_FROM
    return preposition in _OF_NOUNS or (is_origin and (bool(before) or not noun.is_name))


def _after_places(words: Sequence[Token], index: int) -> int:
    while index < len(words) and (words[index].lower in ADVERBS or words[index].lower in _PLACES):
        index += 1
    is_adverb = index + 1 < len(words) and words[index].lower.endswith("ly")
    return index + (is_adverb and words[index + 1].lower in PREPOSITIONS)


def _is_pronoun(words: Sequence[Token], index: int, who: Speakers) -> bool:
    """Return whether a phrase is only a pronoun whose referent is not known: "to us"."""
    if index >= len(words) or words[index].lower not in _OTHERS or who.of(words[index].lower):
        return False
    following = words[index + 1 : index + 2]
    return not following or following[0].kind == "date" or following[0].lower in PREPOSITIONS


def _complement_end(words: Sequence[Token], index: int, is_copula: bool) -> int:
    """Return where a noun phrase ends: at a preposition, a time, or a verb after a name."""
    stop = index
    while stop < len(words):
        word = words[stop]
        if stop > index and _ends_before(words, stop, is_copula):
            break
        is_amount_here = is_copula and is_amount(words[index:])
        is_inside = stop > index or is_amount_here or _is_range(words, index)
        if word.lower in PREPOSITIONS and not is_inside:
            break
        if word.lower in _STOPS:
            break
        if time_length(words, stop) or (word.kind == "date" and stop > index):
            break
        stop += 1
    return stop


def _ends_before(words: Sequence[Token], index: int, is_copula: bool) -> bool:
    word, before = words[index], words[index - 1]
    if word.lower in PREPOSITIONS and (word.lower != "of" or is_copula):
        is_ratio = word.lower == "over" and before.kind == "number" and index + 1 < len(words)
        return not (is_ratio and words[index + 1].kind == "number")  # "145 over 90"
    if word.lower == "than" and is_copula and is_comparison(words, index):
        return True
    if is_participial(words, index) and (is_copula or _is_reduced(words, index)):
        return True
    if _is_gerund(words, index):
        return True
    if before.kind != "name" or before.owns:
        return False
    is_new = word.kind == "number" or word.lower in ARTICLES or word.lower in OWNERS
    return is_new or (begins_predicate(words, index) and agrees(words, index))


def _is_reduced(words: Sequence[Token], index: int) -> bool:
    """Return whether a participle after a noun describes it: "presented by Ida"."""
    before = words[index - 1]
    is_noun = before.kind in ("word", "name") and not before.owns
    return is_noun and before.lower not in ARTICLES | OWNERS | ADVERBS


def _is_gerund(words: Sequence[Token], index: int) -> bool:
    """Return whether a clause like "volunteering at the desk" begins here."""
    if index + 1 >= len(words) or VERB_FORMS.get(words[index].lower, ("", ""))[1] != "ing":
        return False
    before, following = words[index - 1].lower, words[index + 1].lower
    if before in ARTICLES or before in OWNERS:
        return False
    return following in PREPOSITIONS - {"of"} or following in ARTICLES or following in OWNERS


def _is_doing_what(words: Sequence[Token]) -> bool:
    """Return whether an object is an action: "suggested moving the archive"."""
    is_doing = len(words) > 2 and VERB_FORMS.get(words[0].lower, ("", ""))[1] == "ing"
    return is_doing and (words[1].lower in ARTICLES or words[1].lower in OWNERS)


def _given(words: Sequence[Token], start: int, stop: int) -> tuple[int, int]:
    """Return start and stop of the second of two noun phrases: "paid Anna | 20 euros"."""
    if start < len(words) and is_number(words[start]):
        return start, stop
    if start + 1 < len(words) and words[start].lower in _RECEIVERS:
        is_given = words[start + 1].kind != "date" and words[start + 1].lower not in PREPOSITIONS
        return (start + 1, _complement_end(words, start + 1, False)) if is_given else (start, stop)
    for index in range(start + 1, len(words)):
        word = words[index]
        is_counted = word.kind == "number" and index + 1 < len(words)
        is_counted &= words[index - 1].lower not in _BEFORE_NUMBERS
        is_new = is_counted or word.lower in ARTICLES or word.lower in OWNERS
        if is_new and (index == stop or words[index - 1].kind == "word"):
            is_inside = words[index - 1].lower in ARTICLES or words[index - 1].lower in OWNERS
            is_inside |= word.lower in ("its", "their")  # whose is not known
            return (start, stop) if is_inside else (index, _complement_end(words, index, False))
        if index >= stop:
            break
    return start, stop


def _is_doing(noun: Noun, is_copula: bool) -> bool:
    """Return whether a complement is an unknown verb in -ing, or an incomplete passive."""
    if is_copula and noun.text in _OPEN_PASSIVES:  # "was named after"
        return True
    return is_copula and noun.text.endswith("ing") and noun.text.islower() and not noun.article


def _is_manner(noun: Noun, is_copula: bool) -> bool:
    """Return whether a complement is an adverb: "stood quietly"."""
    text = noun.text
    if is_copula or noun.article or not text.islower() or not text.endswith(("ly", "wards")):
        return False
    return " " not in text and len(text) > 4 and text not in NOUNS_IN_LY


def _is_range(words: Sequence[Token], index: int) -> bool:
    """Return whether "between 10 and 30" begins here, which belongs to the amount."""
    if words[index].lower != "between" or index + 3 >= len(words):
        return False
    return words[index + 1].kind == words[index + 3].kind == "number"


def _is_days(words: Sequence[Token], index: int) -> bool:
    """Return whether "3 to 12 November" begins here."""
    if index + 2 >= len(words) or words[index].kind != "number":
        return False
    return words[index + 1].lower in ("to", "until") and words[index + 2].kind == "date"


def is_participial(words: Sequence[Token], index: int) -> bool:
    """Return whether a reduced clause begins here: "directed by", "based on"."""
    if index + 1 >= len(words) or words[index + 1].lower not in PREPOSITIONS:
        return False
    word = words[index]
    return word.kind == "word" and (word.lower in PARTICIPLE_FORMS or word.lower.endswith("ed"))


def _is_clause(words: Sequence[Token], index: int, preposition: str, base: str) -> bool:
    """Return whether a clause begins here: "to study medicine", "meeting Anna"."""
    if not preposition or index >= len(words):
        return False
    word = words[index]
    form = VERB_FORMS.get(word.lower, ("", ""))[1]
    following = words[index + 1].lower if index + 1 < len(words) else ""
    is_object = following in ARTICLES or following in OWNERS
    if preposition == "to":
        if base in _TO_DO and word.kind == "word" and word.lower not in ARTICLES | OWNERS:
            return True  # "promised to plant 500 trees"
        is_new = is_object and word.kind == "word" and word.lower not in ARTICLES | OWNERS
        return form == "base" or is_new
    return form == "ing" or (is_object and word.lower.endswith("ing"))
