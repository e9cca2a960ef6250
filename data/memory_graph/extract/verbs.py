"""Reads predicates: auxiliaries, negations and a verb between subject and complements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.word_lists import (
    ADVERBS,
    NUMBER_WORDS,
    PARTICIPLES,
    PAST,
    VERB_FORMS,
    third_person,
)

Time = Literal["present", "past", "event"]

MODALS = frozenset("will would can could may might must shall should".split())
ACTIVITIES = frozenset(
    "work play study teach serve lead attend date use rent drive coach manage run host rule govern "
    "occupy edit chair".split()
)
"""Verbs of activities that last; with an object they are events ("ran the marathon")."""
_STATES = ACTIVITIES | frozenset(
    "be have live reside stay own know belong love like hate prefer need want cost weigh contain "
    "measure remain exist lack last border lie stand hang sit".split()
)
_LASTING_PASSIVES = frozenset("base locate employ know call engage".split())
_INTENTS = frozenset("want plan hope need decide consider intend wish dream think try aim".split())
_ENDINGS = frozenset("stop quit finish cease".split())
_BEGINNINGS = frozenset("start begin continue".split())
_TO_DO = _BEGINNINGS | {"learn", "manage"}
_COMING = frozenset("move leave join marry get go come relocate start begin switch".split())
_PARTICLES = frozenset("up out off together".split())
_PARTICIPLES = frozenset(PARTICIPLES.values()) | frozenset(PAST.values())
_PARTICIPLES |= frozenset(
    "become come overcome run cost put set cut hit read shut split spread quit hurt cast".split()
)
_MANY = frozenset("i you we they people parents children men women police staff team".split())
_DETERMINERS = frozenset("the a an his her its".split())
_AFTER_PARTICIPLE = frozenset("from in to at into by with for on".split())
_NEGATIONS = frozenset("not never".split())
_BETWEEN = ADVERBS | _NEGATIONS | {"no"}
"""Words that may be between a subject and its verb."""
_NO_ADVERBS = frozenset(
    "rarely hardly scarcely barely nearly allegedly supposedly reportedly presumably possibly "
    "probably family supply reply daily weekly monthly early lily lovely friendly elderly rally "
    "ally bully belly jelly butterfly assembly monopoly july italy likely unlikely lonely".split()
)
"""Words in "-ly" that are no adverbs, or that change the statement."""
_TAKES_OVER = frozenset("take hand".split())
_AUXILIARIES = MODALS | frozenset("is are was were has have had does do did cannot".split())


@dataclass(frozen=True, slots=True)
class Predicate:
    """The predicate that joins a subject and its complements.

    Args:
        text: the relation in the third person ("lives", "is no longer", "was directed").
        base: the verb's base form.
        time: "present" if it holds now, "past" if it held, "event" if it happened.
        stop: index of the first token after the predicate.
        doubtful: whether it is only possible, planned or wished.
        ended: whether it states that something no longer holds.
        was: the relation in the past, if it has ended ("used to live": "lived").
    """

    text: str
    base: str
    time: Time
    stop: int
    doubtful: bool = False
    ended: bool = False
    was: str | None = None

    @property
    def can_last(self) -> bool:
        """Whether the predicate can last and end: "was married from 1990 to 2001"."""
        return self.time == "past" or self.base in _STATES or self.base == "marry"

    @property
    def is_negated(self) -> bool:
        """Whether the predicate is negated."""
        return not _NEGATIONS.isdisjoint(self.text.split(" "))

    @property
    def is_copula(self) -> bool:
        """Whether the predicate is a form of "to be" without another verb."""
        return self.base == "be"


def begins_predicate(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a verb, or the adverbs and negations before one, begins here."""
    if tokens[index].lower in _BETWEEN or tokens[index].lower.endswith("ly"):
        index = _after_adverbs(tokens, index)
    if index >= len(tokens) or tokens[index].kind != "word" or not _is_verb(tokens[index]):
        return False
    if index + 1 == len(tokens) or tokens[index + 1].lower not in _AUXILIARIES:
        return True
    base, kind = VERB_FORMS.get(tokens[index].lower, ("", ""))
    return kind != "third" or base == "have"  # "seats cannot be"


def agrees(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the verb here may belong to the words before it.

    A base form follows a plural or "I": in "the Pathfinder watch has", "watch" is no verb.
    """
    verb = _after_adverbs(tokens, index)
    base, kind = VERB_FORMS.get(tokens[verb].lower, ("", ""))
    if kind != "base" or base in ("be", "have", "do"):
        return True
    last = tokens[index - 1]
    is_many = last.lower in _MANY or (last.lower.endswith("s") and not last.owns)
    return is_many or PAST.get(base, base) == base


def is_plural(noun: str) -> bool:
    """Return whether a noun is plural, by its last letters."""
    lower = noun.lower()
    return lower in _MANY or (lower.endswith("s") and not lower.endswith(("ss", "us", "is")))


def _is_verb(token: Token) -> bool:
    lower = token.lower
    form = VERB_FORMS.get(lower)
    if form is not None:
        return form[1] != "ing"
    return lower in MODALS or (len(lower) > 4 and lower.endswith("ed") and token.text.islower())


def _after_adverbs(tokens: Sequence[Token], index: int) -> int:
    while index < len(tokens):
        lower = tokens[index].lower
        if lower == "no" and _word(tokens, index + 1) == "longer":
            index += 2
        elif (
            lower in ADVERBS
            or lower in _NEGATIONS
            or (lower.endswith("ly") and _is_adverb(tokens, index))
        ):
            index += 1
        else:
            break
    return index


def _is_adverb(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a word in "-ly" is before a verb: "slowly opened", "was badly damaged"."""
    if index + 1 >= len(tokens) or tokens[index].kind != "word":
        return False
    following = tokens[index + 1]
    is_verb = following.kind == "word" and (_is_verb(following) or following.lower in _PARTICIPLES)
    return is_verb and len(tokens[index].lower) > 4 and tokens[index].lower not in _NO_ADVERBS


def _word(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].lower if index < len(tokens) else ""


def _base(word: str) -> tuple[str, str]:
    """Return (base, kind of form); an unknown word in "-ed" is its own base, in the past."""
    return VERB_FORMS.get(word) or (word, "past" if word.endswith("ed") else "")


def read_predicate(
    tokens: Sequence[Token], index: int, lasts: bool = False, is_one: bool = False
) -> Predicate | None:
    """Return the predicate that begins here, or None if no known verb follows.

    Args:
        tokens: tokens of a segment.
        index: index at which the auxiliaries, adverbs or the verb begin.
        lasts: whether the segment has a date with "since", so that "has worked" still holds.
        is_one: whether the subject is singular, so that "cost" is in the past.
    """
    negation = _negation(tokens, index)
    index = _after_adverbs(tokens, index)
    word = _word(tokens, index)
    if word in MODALS:
        return _modal(tokens, index, negation)
    if word == "used" and _word(tokens, index + 1) == "to":
        return _used_to(tokens, index + 2)
    base, form = _base(word)
    if not form or form == "ing":
        return None
    following = _after_adverbs(tokens, index + 1)
    negation = _negation(tokens, index + 1) or negation
    if base == "do" and _base(_word(tokens, following))[1] == "base":
        helped = _base(_word(tokens, following))[0]
        time: Time = "past" if word == "did" else "present"
        return _whole(tokens, following, helped, time, negation)
    if base == "do" and negation and following < len(tokens):  # a verb that is not known
        text = f"{word} {negation} {_word(tokens, following)}"
        is_word = tokens[following].kind == "word" and following > index + 1
        return Predicate(text, "do", "event", following + 1) if is_word else None
    if base == "have" and _is_participle(tokens, following):
        return _perfect(tokens, following, word, negation, lasts)
    if base == "be":
        return _being(tokens, following, "past" if form == "past" else "present", negation)
    is_past = is_one and form == "base" and PAST.get(base, base) == base
    is_present = form in ("base", "third") and not is_past
    return _whole(tokens, index, base, "present" if is_present else "past", negation)


def without_any(predicate: Predicate) -> Predicate | None:
    """Return the predicate of "has no" as "does not have"; None if it has no such form."""
    if predicate.is_copula and predicate.text in ("is", "was"):
        text = f"{predicate.text} not"
    elif " " in predicate.text or predicate.base not in PAST:
        return None
    else:
        text = f"{'does' if predicate.time == 'present' else 'did'} not {predicate.base}"
    return replace(predicate, text=text, stop=predicate.stop + 1)


def _is_participle(tokens: Sequence[Token], index: int) -> bool:
    """Return whether "has" is an auxiliary: in "has dropped the", not in "has limited access"."""
    word, following = _word(tokens, index), _word(tokens, index + 1)
    is_before = following in _DETERMINERS or following in _AFTER_PARTICIPLE
    is_before |= following in NUMBER_WORDS or following in ("my", "our", "their", "all", "both")
    is_before |= index + 1 < len(tokens) and tokens[index + 1].kind in ("name", "number")
    is_verb = len(word) > 4 and word.endswith("ed") and is_before
    return word in _PARTICIPLES or is_verb


def _negation(tokens: Sequence[Token], index: int) -> str:
    stop = _after_adverbs(tokens, index)
    words = [token.lower for token in tokens[index:stop]]
    if "longer" in words:
        return "no longer"
    negated = next((word for word in words if word in _NEGATIONS), "")
    if negated == "not" and any(
        token.lower in ("anymore", "longer")
        or (token.lower == "any" and _word(tokens, i + 1) == "more")
        for i, token in enumerate(tokens)
    ):
        return "no longer"
    return negated


def _modal(tokens: Sequence[Token], index: int, negation: str) -> Predicate | None:
    following = _after_adverbs(tokens, index + 1)
    base, form = _base(_word(tokens, following))
    if form != "base" and base not in ("be", "have"):
        return None
    modal = _word(tokens, index)
    if modal == "would" and base in ("be", "have"):  # contrary to fact
        return None
    if _negation(tokens, index + 1) or negation:
        modal += " not"
    participle = _word(tokens, following + 1)
    if base == "be" and participle in _PARTICIPLES and following + 2 < len(tokens):
        text, verb = f"{modal} be {participle}", _base(participle)[0]
        return Predicate(text, verb, "present", following + 2, doubtful=True)
    return Predicate(f"{modal} {base}", base, "present", following + 1, doubtful=modal != "can")


def _used_to(tokens: Sequence[Token], index: int) -> Predicate | None:
    base, form = _base(_word(tokens, index))
    if form != "base":
        return None
    was = PAST.get(base, base)
    participle = _word(tokens, index + 1)
    if base == "be" and participle in _PARTICIPLES:  # "used to be called"
        text, was, verb = f"used to be {participle}", f"was {participle}", _base(participle)[0]
        return Predicate(text, verb, "event", index + 2, ended=True, was=was)
    return Predicate(f"used to {base}", base, "event", index + 1, ended=True, was=was)


def _perfect(
    tokens: Sequence[Token], index: int, have: str, negation: str, lasts: bool
) -> Predicate | None:
    """Read a perfect: "has moved" is an event, "has been" still holds, "had been" does not."""
    time: Time = "past" if have == "had" else "present"
    base, _ = _base(_word(tokens, index))
    following = _after_adverbs(tokens, index + 1)
    if base == "be" and _word(tokens, following) != "to":
        return _being(tokens, following, time, negation)
    text = PAST.get(base, _word(tokens, index))
    after = _word(tokens, index + 1)
    if after in _PARTICLES or (after == "over" and base in _TAKES_OVER):
        text, index = f"{text} {after}", index + 1
    if negation:
        text = _word(tokens, index)
        return Predicate(f"has {negation} {text}", base, "event", index + 1)
    is_lasting = have != "had" and base in _STATES and lasts
    text = third_person(base) if is_lasting else text
    return Predicate(text, base, "present" if is_lasting else "event", index + 1)


def _being(tokens: Sequence[Token], index: int, time: Time, negation: str) -> Predicate | None:
    """Read the words after a form of "to be": a verb in -ing, a participle, or a complement."""
    be = "is" if time == "present" else "was"
    be += f" {negation}" if negation else ""
    ended = negation == "no longer"
    word = _word(tokens, index)
    if word == "best" and _word(tokens, index + 1) in _PARTICIPLES:  # "is best known for"
        index, word = index + 1, _word(tokens, index + 1)
    base, form = _base(word)
    if form == "ing":
        return _going_on(tokens, index, base, time, negation)
    is_participle = word in _PARTICIPLES or (form == "past" and len(word) > 4)
    follows = index + 1 < len(tokens) or base == "bear"
    is_lower = index < len(tokens) and tokens[index].text.islower()
    if is_participle and is_lower and follows and base != "be":
        stop = index + 1
        return Predicate(f"{be} {word}", base, _passive_time(time, base), stop, ended=ended)
    return Predicate(be, "be", time, index, ended=ended)


def _passive_time(time: Time, base: str) -> Time:
    """Return a passive's time: "is based" holds, "was based" held, "was directed" happened."""
    if time == "present":
        return "present"
    return "past" if base in _LASTING_PASSIVES | (_STATES - ACTIVITIES) else "event"


def _going_on(
    tokens: Sequence[Token], index: int, base: str, time: Time, negation: str
) -> Predicate | None:
    following = _word(tokens, index + 1)
    if base == "go" and following == "to" and _base(_word(tokens, index + 2))[1] == "base":
        planned = _base(_word(tokens, index + 2))[0]
        return Predicate(f"is going to {planned}", planned, "present", index + 3, doubtful=True)
    if base in _INTENTS or time == "past" or base in _COMING or base not in _STATES:
        be = "was" if time == "past" else "is"
        be += f" {negation}" if negation else ""
        predicate = _whole(tokens, index, base, time, "", f"{be} {_word(tokens, index)}")
        is_plan = base in _COMING and time == "present"
        if predicate is None or not (is_plan or negation):
            return predicate
        ended = negation == "no longer"
        return Predicate(
            predicate.text, base, time, predicate.stop, is_plan and not negation, ended
        )
    return _whole(tokens, index, base, time, negation)


def _whole(
    tokens: Sequence[Token], index: int, base: str, time: Time, negation: str, text: str = ""
) -> Predicate | None:
    """Read a full verb with its particles and second verb: "stopped working", "grew up"."""
    text = text or _inflected(base, time, negation, _word(tokens, index))
    ended = negation == "no longer"
    after = _word(tokens, index + 1)
    second = index + 2 if after in ("to", "about", "of", "on") else index + 1
    inner, form = _base(_word(tokens, second))
    if base in _INTENTS and form in ("base", "ing") and (second > index + 1 or form == "ing"):
        joined = " ".join([text, *(token.lower for token in tokens[index + 1 : second + 1])])
        return Predicate(joined, inner, "present", second + 1, doubtful=True)
    is_done = base in _BEGINNINGS or (base in _TO_DO and time != "present")
    if is_done and after == "to" and form == "base":
        joined = f"{text} to {inner}"
        return Predicate(joined, inner, "event", second + 1, ended=ended)
    if form == "ing" and base == "keep" and second == index + 1:
        return Predicate(f"{text} {_word(tokens, second)}", inner, time, second + 1, ended=ended)
    if form == "ing" and second == index + 1 and base in _ENDINGS | _BEGINNINGS:
        joined = f"{text} {_word(tokens, second)}"
        is_end = base in _ENDINGS and not negation
        return Predicate(joined, inner, "event", second + 1, ended=is_end or ended)
    stop = index + 1
    is_over = after == "over" and base in _TAKES_OVER
    is_limit = after == "up" and _word(tokens, index + 2) == "to"  # "holds up to ten"
    if (
        is_over
        or (after in _PARTICLES and not is_limit)
        or (base == "take" and after in ("place", "part"))
    ):
        text, stop = f"{text} {after}", stop + 1
    is_state = base in _STATES
    when: Time = time if time == "present" or is_state else "event"
    return Predicate(text, base, when, stop, ended=ended)


def _inflected(base: str, time: Time, negation: str, form: str) -> str:
    """Return a verb in the third person, as in the relation of a triplet."""
    if negation == "not":
        return f"{'does' if time == 'present' else 'did'} not {base}"
    text = third_person(base) if time == "present" else form
    return f"{negation} {text}" if negation else text
