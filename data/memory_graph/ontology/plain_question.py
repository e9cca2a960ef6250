"""Converts a question to a plain form: one word order, no politeness, absolute dates.

"Could you tell me, in 2019, how often I'd been to Rome?" becomes "how often had I been to Rome in
2019". Each step undoes one way of saying the same in other words; the rules of forms and terms read
the plain form.
"""

from __future__ import annotations

import re

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.ontology.question_rewrites import AUX, STEPS, WH, WORDS
from turngraph.data.normalise import MONTHS

_FRONTED = re.compile(
    r"(on average|in total|in all|altogether|overall|"
    r"(?:before|after|since|between|from) (?!when\b|what\b|which\b)[^,]+(?=,)),? (.+)",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    rf"(?P<topic>[^,:;–—]+?|[^:;–—]+?(?=:| [-–—] ))(?:[,:;]| [-–—])+ (?P<ask>(?:{WH}|{AUX}\b).*)",
    re.IGNORECASE,
)
_GROUP = re.compile(
    r"(?:of|among|out of|from)(?: all)?(?: of)?(?: the| my| our| these| those)?(?: \w+)? (\w+)",
    re.IGNORECASE,
)
_OPENS_TIME = frozenset(
    "after before since until during in on at by over from to with last".split()
)
_POSSESSIVES = frozenset("my our his her their the a an all every".split())
_TOPICAL = tuple(
    (re.compile(one, re.IGNORECASE), put) for one, put in (
        (r"(?<!is |as )\bthere\b(?! (?:was|were|is|are)\b)", "in {}"),
        (r"\b(?:his|her|its|their)\b(?= \w)", "{}'s"),
        (r"\b(?:it|this|that|these|those|they|them|he|she|him|her)\b", "{}"),
    )
)  # fmt: skip
_PHRASE = re.compile(
    r"(?:(?:the|my|our|a|an|exact|full|[A-Z]\w+['’]s) )*(?:first|last|highest|lowest|average|total|"
    r"altogether|sum|number|date|day|time|age|length|duration|price|amount|cost|names?|list|order|"
    r"start|beginning|cheapest|dearest|most|least|days|weeks|months|years|gap|interval|period|count|"
    r"tally|all|every|everything|chronological|\w{3,}est)\b",
    re.IGNORECASE,
)
_FRAGMENT = re.compile(
    r"(?:(?:my|the|all|our) )*[a-z]+s (?:(?:that )?(?:i|we) \w+|in|per|a|on|to|with|from|since) ",
    re.IGNORECASE,
)
"""Beginnings of noun phrases that ask without a question mark: "places I went to in May"."""
_PER_UNIT = re.compile(r"\b(?:an?|per|each|every) (?:day|week|month|year)\b", re.IGNORECASE)
ASKS = re.compile(
    rf"(?:{WH}|{AUX}\b|since when|(?:list|put|sort|arrange|order|rank|line up)\b)", re.IGNORECASE
)
"""Beginnings of plain questions."""
_IN_PLACE = re.compile(
    r"\b((?:in |on |at |to |for |from |by |with |under )?"
    r"(?:how (?:many \w+|much(?: money| time)?|\w+)|whose(?: \w+)?|which (?!in\b|on\b)\w+|"
    r"what(?: (?!in\b|on\b|at\b|for\b|during\b|from\b|since\b)\w+)?|where|when|"
    r"whom?))\b",
    re.IGNORECASE,
)


def plain_question(question: str, as_of: str | None = None, at_moment: bool = False) -> str:
    """Return the plain form of a question.

    Args:
        question: text of the question, in English.
        as_of: ISO time of the question, from which "last year" counts; None: relative dates are
            not replaced.
        at_moment: whether "two years ago" means the month two years before, not the whole year.
    """
    text = " ".join(question.split())
    is_asked = text.endswith("?")
    text = text.strip(" ?!.")
    for _ in range(2):  # "could you please tell me whether"
        for step, plain in STEPS:
            text = step.sub(plain, text)
    for step, put in WORDS:
        text = step.sub(put, text)
    text = re.sub(r" +(?=[ ,])|^[ ,]+|[ ,]+$", "", text)
    text = _absolute(text, as_of, at_moment)
    text = _unfronted(_topical(text))
    if not ASKS.match(text):
        if match := _IN_PLACE.search(text):
            rest = f"{text[: match.start()].rstrip()} {text[match.end() :].lstrip()}"
            text = f"{match[1]} {rest}".strip()  # "I read how many books"
        else:
            text = _completed(text, is_asked)
    return re.sub(r"^is it true that ", "did ", text, flags=re.IGNORECASE)


def _topical(text: str) -> str:
    """Replace the pronoun of a question by the topic before it.

    "My trip to Rome, when was that?" becomes "when was my trip to Rome".
    """
    match = _TOPIC.fullmatch(text)
    if match is None or ASKS.match(text):
        return text
    topic, ask = match["topic"], match["ask"]
    topic = re.sub(r", (?!and |or |.*, )", " and ", topic)
    dates = find_dates(topic, None)
    if dates and dates[0].start == 0 and dates[-1].stop == len(topic):
        return text
    if group := _GROUP.fullmatch(topic):  # "of all my books, which was the last one"
        noun = re.sub(r"s$", "", group[1])
        return re.sub(r"\b(?:ones?)\b", noun, ask, flags=re.IGNORECASE)
    is_named = topic[:1].isupper() and topic.split()[0].lower() not in _POSSESSIVES
    topic = topic if is_named else topic[:1].lower() + topic[1:]
    for pronoun, place in _TOPICAL:
        if pronoun.search(ask):
            return pronoun.sub(place.format(topic), ask, count=1)
    if re.match(rf"how many(?: {AUX}\b|$)", ask, re.IGNORECASE):
        return f"how many {topic}{ask[8:]}"
    if apart := re.search(r" (?:apart|(?:in )?between(?: them| the two)?)$", ask):
        return f"{ask[: apart.start()]} between {topic}"
    if " or " in topic:
        return f"{ask}, {topic}"
    first, words = topic.split()[0].lower(), topic.split()
    is_name = all(word[:1].isupper() for word in words) and first not in {*_OPENS_TIME, *MONTHS}
    return f"{ask} for {topic}" if is_name else text  # "Paris: how many visits"


def _completed(text: str, is_asked: bool) -> str:
    """Complete a phrase without a verb to a question: "what is the date of my move"."""
    if match := re.match(r"(?:any|ever) ", text, re.IGNORECASE):
        is_ever = match[0].lower() == "ever "
        return f"did I ever {text[5:]}" if is_ever else f"is there any {text[4:]}"
    if is_asked and re.search(r"\w (?:before|after) \w", text):
        return f"was {text}"
    if (is_asked or _FRAGMENT.match(text)) and _PER_UNIT.search(text) and not _PHRASE.match(text):
        return f"how many {text}"
    if is_asked and re.match(r"(?:i|we|he|she|they) ", text, re.IGNORECASE):
        return f"did {text}"
    is_asked |= _FRAGMENT.match(text) is not None
    is_phrase = _PHRASE.match(text) and not re.search(r" (?:is|are|was|were) ", text)
    return f"what is {text}" if is_asked or is_phrase else text


def _unfronted(text: str) -> str:
    """Move a phrase of time from the begin of a question to its end."""
    for _ in range(2):
        dates = find_dates(text, None)
        if dates and dates[0].start == 0 and dates[0].stop < len(text):
            is_span = len(dates) > 1 and dates[1].start == dates[0].stop + 1
            stop = dates[is_span].stop  # "from 2016 to 2018"
            text = f"{text[stop:].lstrip(' ,')} {_lowered(text[:stop])}"
        elif match := _FRONTED.fullmatch(text):
            text = f"{match[2]} {_lowered(match[1])}"
        else:
            break
    return text


def _lowered(text: str) -> str:
    """Return a phrase with its first letter in lower case, unless it begins with a month."""
    is_month = text.split(" ", 1)[0].lower() in MONTHS
    return text if is_month else text[:1].lower() + text[1:]


def _absolute(text: str, as_of: str | None, at_moment: bool) -> str:
    """Replace relative dates of a question: "last year" by "in 2022"."""
    if as_of is None:
        return text
    told = {(date.start, date.stop) for date in find_dates(text, None)}
    for date in reversed(find_dates(text, as_of)):
        if (date.start, date.stop) not in told and date.is_exact:
            then = date.first
            if at_moment and len(then) == 4 and text[: date.stop].endswith("ago"):
                then += as_of[4:7]
            text = f"{text[: date.start]}in {then} {text[date.stop :]}".strip()
    return " ".join(text.split())
