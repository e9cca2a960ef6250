"""Plain form of a question: one order of words, no politeness, no contractions, absolute dates.

"Could you tell me, in 2019, how often I'd been to Rome?" asks what "how often had I been to Rome in
2019" asks. Each step below undoes one way of English to say the same in other words; what a
question is about is left to the rules of forms and terms.
"""

from __future__ import annotations

import re

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.normalise import MONTHS

_AUX = (
    r"(?:do|does|did|is|are|was|were|am|has|have|had|can|could|will|would|shall|should|may|might|"
    r"must)"
)
_WH = (
    r"(?:how|what|which|who|whom|whose|where|when|"
    r"(?:in|on|at|to|for|from|by|with|since|until|as of) (?:what|which|whom|how|when)\b)"
)
_TEXT_STEPS: tuple[tuple[str, str], ...] = (
    # contractions
    (r"\b(what|where|who|when|how|which|that|there|it)['’]s\b", r"\1 is"),
    (r"\b(what|where|who|when|how|which)['’]d\b", r"\1 did"),
    (r"\b(i|you|he|she|it|we|they)['’]d (?=like\b)", r"\1 would "),
    (r"\b(i|you|he|she|it|we|they)['’]d\b", r"\1 had"),
    (r"\b(\w+)['’]ve\b", r"\1 have"),
    (r"\b(\w+)['’]ll\b", r"\1 will"),
    (r"\b(\w+)['’]re\b", r"\1 are"),
    (r"\bi['’]m\b", "I am"),
    # politeness, which asks for the clause after it
    (r"^(?:(?:please|hi|hey|hello|so|well|ok|okay|now|and)\b,? )+", ""),
    (r",? (?:please|thanks|thank you)$", ""),
    (rf"^{_AUX} (?:you|we) (?:please |maybe |perhaps |possibly |kindly )?(?=[a-z])", ""),
    (r"^i (?:would like|want|would love|need|would be interested) (?:to (?:know|see|have|hear) )?",
     "tell me "),
    (r"^(?:i (?:wonder|was wondering|am wondering)|remember|know|recall|any idea) ", "tell me "),
    (r"^(?:tell|remind|show|give|find|let|read)(?: (?:me|us)\b)?(?: (?:of|know|about|out)\b)? ",
     "tell me "),
    (r"^(?:check|find out|look up|see|say|count up|work out)(?: for me)? (?=if\b|wh|how\b)",
     "tell me "),
    (rf"^tell me (?={_WH})", ""),
    (r"^tell me (?:if|whether) ", "is it true that "),
    (r"^tell me (?:a |the )?(?:full |complete |whole )?list of ", "list "),
    (r"^tell me (?=all\b|every\b|each\b|the \w+s\b(?! of\b))", "list "),
    (r"^tell me ", "what is "),
    (r"^(?:name|enumerate|list up|list out) ", "list "),
    (r"^count(?: up)? (?:how (?:often|many times) )?(?:all )?(?:of )?", "what is the number of "),
    # tags, which make a question of a statement
    (rf"^(.+?),? (?:right|correct|yes|no|eh|{_AUX}(?:n['’]t| not)? (?:i|he|she|it|we|they))$",
     r"is it true that \1"),
)  # fmt: skip
_STEPS = tuple((re.compile(one, re.IGNORECASE), put) for one, put in _TEXT_STEPS)
_PLAIN_WORDS: tuple[tuple[str, str], ...] = (
    (r"\b(?:prior|previous) to\b", "before"),
    (r"\b(?:subsequent to|later than|following)\b", "after"),
    (r"\bearlier than\b", "before"),
    (r"\b(?:over|in|during) the (?:course|run|span|whole|time) of\b", "in"),
    (r"\b(?:throughout|within|all through)\b", "in"),
    (r"\b(?:the )?(?:past|previous|last) (?=year\b|month\b|week\b)", "last "),
    (r"\b(?:in|on|during) (?=(?:last|this) )", ""),
    (r"\bthe (month|year|week) before$", r"last \1"),
    (r"\b(?:as of|from|since) when(?: on)?\b", "since when"),
    (r"\bfrom (.+?) on(?:wards?)?$", r"since \1"),
    (r"\b(?:monthly|yearly|weekly|daily) number of\b", "number of"),
    (r"\bbeen (?:to|in)\b", "visited"),
    (r"^(?:was|were|had) (i|we|he|she|they|[A-Z]\w+)(?: been)? in (?=[A-Z]\w+ (?:before|after)\b)",
     r"did \1 visit "),
    (r"\b(how much time|how many (?:days|weeks|months|years)) (\w+) (.+?) spen[dt] (?=\w+ing\b)",
     r"\1 \2 \3 "),
    (r"^(?:is|was) it (before|after) (.+?) that (.+)$", r"did \3 \1 \2"),
    (r"^(?:is|was) it (.+?) or (.+?) that (.+?) (first|earlier)$", r"which did \3 first, \1 or \2"),
    (r"^(?:back|way back) (?=in\b)", ""),
)  # fmt: skip
_WORDS = tuple((re.compile(one, re.IGNORECASE), put) for one, put in _PLAIN_WORDS)
_FRONTED = re.compile(
    r"(on average|in total|in all|altogether|overall|all in all|so far|up to now|until now|to date|"
    r"(?:before|after|since) (?!when\b|what\b|which\b)[^,]+(?=,)),? (.+)",
    re.IGNORECASE,
)
_ASKS = re.compile(rf"(?:{_WH}|{_AUX}\b|list\b|since when)", re.IGNORECASE)
_IN_PLACE = re.compile(
    r"\b((?:in |on |at |to |for |from |by |with )?"
    r"(?:how (?:many \w+|often|long|much(?: money| time)?)|which \w+|what(?: \w+)?|where|when|"
    r"whom?))\b",
    re.IGNORECASE,
)


def plain_question(question: str, as_of: str | None = None, at_moment: bool = False) -> str:
    """Return the plain form of a question.

    Args:
        question: in English.
        as_of: ISO time at which it is asked, of which "last year" is told; None: relative dates
            stay as they are.
        at_moment: "two years ago" is the month two years before, not any time of that year.
    """
    text = " ".join(question.split()).strip(" ?!.")
    for _ in range(2):  # "could you please tell me whether"
        for step, plain in _STEPS:
            text = step.sub(plain, text)
    for step, plain in _WORDS:
        text = step.sub(plain, text)
    text = _absolute(text, as_of, at_moment)
    text = _unfronted(text)
    if not _ASKS.match(text) and (found := _IN_PLACE.search(text)):
        rest = f"{text[: found.start()].rstrip()} {text[found.end() :].lstrip()}"
        text = f"{found[1]} {rest}".strip()  # "I read how many books"
    return re.sub(r"^is it true that ", "did ", text, flags=re.IGNORECASE)


def _unfronted(text: str) -> str:
    """Return a question whose phrase of time before the question stands behind it."""
    for _ in range(2):
        dates = find_dates(text, None)
        if dates and dates[0].start == 0 and dates[0].stop < len(text):
            stop = dates[0].stop
            text = f"{text[stop:].lstrip(' ,')} {_lowered(text[:stop])}"
        elif found := _FRONTED.fullmatch(text):
            text = f"{found[2]} {_lowered(found[1])}"
        else:
            break
    return text


def _lowered(text: str) -> str:
    """Return a phrase with its first word in lower case, unless it is the name of a month."""
    is_month = text.split(" ", 1)[0].lower() in MONTHS
    return text if is_month else text[:1].lower() + text[1:]


def _absolute(text: str, as_of: str | None, at_moment: bool) -> str:
    """Return a question with relative dates replaced: "in 2022" for "last year"."""
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
