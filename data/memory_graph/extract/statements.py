"""Reads simple triplets from plain sentences: the copula, possession, and "X verb Y".

A sentence is read from left to right in segments, the parts between marks and conjunctions. A
segment has a subject, a predicate and complements, which may begin with a preposition. A segment
that the rules cannot read gives no triplet; the thesis contains its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from turngraph.data.memory_graph.extract.clauses import Statement
from turngraph.data.memory_graph.extract.dates import Date, find_dates
from turngraph.data.memory_graph.extract.nouns import (
    MAX_WORDS,
    PREPOSITIONS,
    TITLES,
    Noun,
    Speakers,
)
from turngraph.data.memory_graph.extract.openings import expand, without_opening
from turngraph.data.memory_graph.extract.sentence_mentions import (
    Spellings,
    Token,
    join_names,
    tokenise,
)
from turngraph.data.memory_graph.extract.sentence_reader import SentenceReader
from turngraph.data.memory_graph.extract.sentences import Sentence
from turngraph.data.memory_graph.extract.verbs import ACTIVITIES, MODALS, Predicate
from turngraph.data.memory_graph.extract.word_lists import COUNTRIES, DOUBT
from turngraph.data.memory_graph.memory_types import Triplet

_OF_ADJECTIVES = (PREPOSITIONS - {"like", "during"}) | {"than"}
"""Prepositions that complete an adjective: "is afraid of"."""
_OF_THINGS = frozenset(
    "be found establish acquire own buy sell join leave visit attend release publish write direct "
    "produce design build create invent develop play speak win run open close launch read compose "
    "record perform edit paint use like study teach host move reach cross found make".split()
)
"""Verbs whose objects are things, so "she" does not refer to them."""
_OF_PEOPLE = dict.fromkeys("speak talk write listen turn".split(), ("to", "with"))
"""Prepositions before a person, for verbs where they are not "by" and "with"."""
_DIMENSIONS = frozenset("old tall long high wide heavy deep".split())
_RECIPROCAL = frozenset("marry meet divorce".split())
"""Reciprocal verbs: two subjects without an object do them to each other."""
_COUPLED = {"married": "to", "engaged": "to", "divorced": "from", "separated": "from"}
"""Reciprocal states of two subjects, and their preposition."""
_WITH_WHOM = frozenset("love touch contact line talks conflict".split())
"""Nouns of states that "with" follows: "is in love with"."""
_LIGHT = frozenset("have get take make give start begin lose quit leave find accept".split())


class Reader:
    """Reader of an episode's sentences, in order; "she" refers to the last sentence's subject."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._thing: str | None = None  # referent of "it" from the last sentence
        self._described: set[str] = set()  # things without a name, which are this text's own

    def read(
        self, tokens: Sequence[Token], dates: Sequence[Date], sentence: Sentence
    ) -> list[Triplet]:
        """Return the simple triplets of a sentence.

        Args:
            tokens: tokens of the sentence, names joined.
            dates: dates of the sentence.
            sentence: the sentence, for its speaker, topic and span.
        """
        words, doubtful = without_opening(expand(tokens))
        is_open = is_hypothesis(tokens)
        if (doubtful or is_open) and any(
            a.lower == "would" and b.lower == "have" for a, b in pairwise(words)
        ):
            words = []  # contrary to fact
        is_first = bool(words) and words[0].lower in ("it", "its")
        thing = (is_first and self._thing) or sentence.topic
        who = Speakers(sentence.speaker, self._last or sentence.topic, thing, sentence.topic)
        reader = SentenceReader(who, {date.start: date for date in dates})
        reader.read(words, is_open)
        doubtful |= is_open and is_hypothesis(tokens, DOUBT - MODALS)
        self._remember(reader.statements, words, sentence.speaker)
        self._thing = reader.thing
        stated = (*reader.statements, *reader.asides)
        is_local = sentence.speaker is None and sentence.topic is None
        bare_triplets = [t for statement in stated for t in _triplets(statement, is_local)]
        bare_triplets += [Triplet(*ends) for ends in reader.roles]
        if is_local:
            self._described.update(name for triplet in bare_triplets for name in triplet.local)
        span, described = sentence.span, self._described
        # the constructor, as ``replace`` takes several times as long
        triplets = (
            Triplet(
                subject=t.subject,
                relation=t.relation,
                object=t.object,
                valid_from=t.valid_from,
                valid_to=t.valid_to,
                hypothesis=doubtful or t.hypothesis,
                span=span,
                local=tuple(n for n in (t.subject, t.object) if n in described),
            )
            for t in bare_triplets
        )
        return list(dict.fromkeys(triplets))

    def _remember(
        self, statements: Sequence[Statement], words: Sequence[Token], speaker: str | None
    ) -> None:
        """Remember the referent of "she" in the next sentence; None if there are two candidates."""
        if not statements:
            first = words[0] if words else None
            is_name = first is not None and first.kind == "name" and first.lower not in TITLES
            self._last = first.text if first and is_name else self._last
            return
        subject = statements[0].subjects[0]
        others = {
            noun.text
            for statement in statements
            for preposition, noun in statement.complements
            if noun.is_name and _may_be_person(statement.predicate, preposition, noun)
        }
        if subject.text == speaker:  # "she" is not the speaker
            self._last = others.pop() if len(others) == 1 else None
            return
        is_sure = len(statements[0].subjects) == 1 and not others - {subject.text}
        self._last = (subject.owner or subject.text) if is_sure else None


def _may_be_person(predicate: Predicate, preposition: str, noun: Noun) -> bool:
    if preposition:
        return preposition in _OF_PEOPLE.get(predicate.base, ("by", "with"))
    return predicate.base not in _OF_THINGS and noun.text.lower() not in COUNTRIES


@lru_cache(maxsize=1 << 14)
def read_sentence(text: str) -> tuple[Triplet, ...]:
    """Return the simple triplets of a thesis, with its speaker: "Anna: I live in Paris.".

    The speaker or topic before the colon is optional.
    """
    about, text = _speaker(text)
    dates = find_dates(text, None)
    tokens = join_names(tokenise(text, dates), text, Spellings())
    sentence = Sentence((0, len(text)), text, about, about)
    return tuple(Reader().read(tokens, dates, sentence))


def _speaker(text: str) -> tuple[str | None, str]:
    """Return the speaker or topic before a colon, or None, and the rest of a text."""
    about, colon, rest = text.partition(": ")
    if colon and about.count(" ") < MAX_WORDS and about[:1].isupper():
        return about, rest
    return None, text


def is_hypothesis(tokens: Sequence[Token], doubts: frozenset[str] = DOUBT) -> bool:
    """Return whether a sentence is a question or contains a word of doubt."""
    if tokens and tokens[-1].text in ("?", "？", "؟"):
        return True
    if doubts.isdisjoint([token.lower for token in tokens]):
        return False
    return any(
        token.kind == "word" and token.lower in doubts and token.text != "May" for token in tokens
    )


def _triplets(statement: Statement, is_local: bool) -> list[Triplet]:
    """Return the triplets of a statement.

    Args:
        statement: statement of a sentence.
        is_local: whether things without a name ("the bridge") are the text's own.
    """
    triplets: list[Triplet] = []
    predicate = statement.predicate
    since, until = _interval(statement)
    for subject in statement.subjects:
        for relation, noun in _relations(predicate, statement.complements):
            who, relation = _possession(subject, relation, noun)
            if who == noun.text:
                continue
            ends = [(who, subject), (noun.text, noun)] if is_local else []
            local = tuple(name for name, end in ends if name == end.text and end.is_described)
            made = Triplet(who, relation, noun.text, since, until, predicate.doubtful, local=local)
            triplets += [made] if not predicate.was else _ended(made, predicate)
    return [*_each_other(statement, since, until), *triplets]


def _each_other(statement: Statement, since: str | None, until: str | None) -> list[Triplet]:
    """Return the triplets between two subjects: "Ida and Bo met", "are married"."""
    predicate, subjects = statement.predicate, statement.subjects
    if len(subjects) != 2 or not all(subject.is_name for subject in subjects):
        return []
    preposition, noun = statement.complements[0]
    if predicate.base in _RECIPROCAL and preposition:
        to = " to" if predicate.text.startswith(("is ", "was ")) else ""
        relation = f"{predicate.text}{to}"
    elif predicate.base in ("be", "get") and not preposition and noun.text in _COUPLED:
        relation = f"{predicate.text} {noun.text} {_COUPLED[noun.text]}"
    else:
        return []
    first, second = subjects
    return [Triplet(first.text, relation, second.text, since, until, predicate.doubtful)]


def _ended(made: Triplet, predicate: Predicate) -> list[Triplet]:
    """Return the triplets of "used to live": its end, and with a time, the state before."""
    over = replace(made, valid_from=made.valid_to, valid_to=None)
    if made.valid_from is None and made.valid_to is None:
        return [over]
    relation = made.relation.replace(predicate.text, predicate.was or "", 1)
    return [replace(made, relation=relation), over]


def _interval(statement: Statement) -> tuple[str | None, str | None]:
    """Return [from, to) of a segment's statement, from its dates.

    An event is a fact from its time on without end: who won in 2010 has won ever since. A state in
    the past held only at its time. An activity with an object ("ran the marathon") ends if the text
    states an end, and is an event otherwise.
    """
    predicate, dates = statement.predicate, statement.dates
    since = next((date.first for date in dates if date.word == "since"), None)
    ends = (date.after if date.is_inside else date.first for date in dates if date.word == "until")
    until = next(ends, None)
    at = next((date for date in dates if date.word == "at"), None)
    if predicate.ended and not predicate.was:
        return since or until or (at.first if at else None), None
    if since or until or at is None:
        return since, until if since is None or predicate.can_last else None
    is_done = predicate.base in ACTIVITIES and not statement.complements[0][0]
    is_over = predicate.was or (predicate.time == "past" and not is_done)
    return at.first, at.after if is_over else None


def _relations(
    predicate: Predicate, complements: Sequence[tuple[str, Noun]]
) -> list[tuple[str, Noun]]:
    """Return (relation, object) pairs: "works as", "works at"; "is the CEO of"; "got job at"."""
    if predicate.is_copula:
        return _copula(predicate.text, complements)
    relations: list[tuple[str, Noun]] = []
    verb = predicate.text
    for preposition, noun in complements:
        relations.append((f"{verb} {preposition}" if preposition else predicate.text, noun))
        if not preposition and predicate.base in _LIGHT and not noun.is_value:
            verb = f"{predicate.text} {noun.thing or noun.text}"
    return relations


def _copula(be: str, complements: Sequence[tuple[str, Noun]]) -> list[tuple[str, Noun]]:
    """Return the pairs of a copula: plain complement, role "of" something, and place."""
    relations: list[tuple[str, Noun]] = []
    role, is_adjective = "", False
    for index, (preposition, noun) in enumerate(complements):
        if not preposition:
            article = f"{be} {noun.article}" if noun.article else be
            role = f"{article} {noun.text}"
            following = complements[index + 1][0] if index + 1 < len(complements) else ""
            is_plain = noun.text.islower() and not (noun.article or noun.is_value)
            is_adjective = is_plain and following in _OF_ADJECTIVES
            if following == "of" and not (is_adjective or complements[index + 1][1].is_value):
                whole = f"{noun.text} of {complements[index + 1][1].text}"
                relations.append((article, replace(noun, text=whole)))
            elif following != "of" and not is_adjective:
                relations.append((article, noun))
        elif preposition not in PREPOSITIONS | {"than"}:  # "a film directed by"
            relations.append((preposition, noun))
        elif role and preposition == complements[1][0] and (noun.is_value or is_adjective):
            relations.append((f"{role} {preposition}", noun))
        elif index and not role and _continues(complements[index - 1], preposition):
            before, place = complements[index - 1]  # "is in the north of", "is in charge of"
            if relations and relations[-1][1] is place:
                relations.pop()
            if place.article and preposition == "of":
                region = replace(place, text=f"{place.text} of {noun.text}")
                relations.append((f"{be} {before}", region))
            else:
                relations.append((f"{be} {before} {place.text} {preposition}", noun))
        elif not role:
            relations.append((f"{be} {preposition}", noun))
    return relations


def _continues(before: tuple[str, Noun], preposition: str) -> bool:
    """Return whether a preposition continues a phrase: "in the north of", "in love with"."""
    first, noun = before
    return bool(first) and (
        preposition == "of" or (noun.text in _WITH_WHOM and preposition == "with")
    )


def _possession(subject: Noun, relation: str, noun: Noun) -> tuple[str, str]:
    """Return subject and relation: "Bob has wife" of "Bob's wife is Anna"; not of "car is red"."""
    if subject.owner is None or subject.thing is None:
        return subject.text, relation
    be = relation.removesuffix(" the").removesuffix(" a")
    is_value = noun.is_value and noun.text.rpartition(" ")[2] not in _DIMENSIONS
    is_of_owner = is_value or subject.is_attribute
    if be == "is" and is_of_owner:
        return subject.owner, f"has {subject.thing}"
    if be in ("was", "is no longer", "is not") and is_of_owner:
        verb = {"was": "had", "is not": "does not have"}.get(be, "no longer has")
        return subject.owner, f"{verb} {subject.thing}"
    return subject.text, relation
