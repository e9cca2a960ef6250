"""Plain form of a question: one order of words, no politeness, no contractions, absolute dates.

"Could you tell me, in 2019, how often I'd been to Rome?" asks what "how often had I been to Rome in
2019" asks. Each step below undoes one way of English to say the same in other words; what a
question is about is left to the rules of forms and terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.normalise import MONTHS

_AUX = (
    r"(?:do|does|did|is|are|was|were|am|has|have|had|can|could|will|would|shall|should|may|might|"
    r"must)"
)
_WH = (
    r"(?:how|what|which|who|whom|whose|where|when|whereabouts|"
    r"(?:in|on|at|to|for|from|by|with|since|until|as of) (?:what|which|whom|how|when)\b)"
)
_MONTH = rf"(?:{'|'.join(MONTHS)})"
_UNITS = {"daily": "day", "weekly": "week", "monthly": "month", "yearly": "year",
          "annual": "year"}  # fmt: skip
_ADJECTIVE = "|".join(_UNITS)
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
    (r"^(?:(?:please|hi|hey|hello|so|well|ok|okay|now|and|um|say|as for|regarding|"
     r"quick question|just (?:curious|wondering|checking)|out of (?:curiosity|interest)|"
     r"by the way|i(?: am)? (?:forget|forgot|curious|unsure|(?:not |un)sure|wondering)|"
     r"i (?:can(?:['’]t|not| not)|do(?:n['’]t| not)) (?:quite )?(?:remember|recall|know))\b"
     r"[,:;]?(?: [-–—])? )+", ""),
    (r",? please\b", ""),
    (r"^list: ", "list "),
    (r",? (?:thanks|thank you|(?:would|could|can|will) you|if you (?:can|know|remember)|"
     r"do you (?:know|remember|recall))$", ""),
    (rf"^{_AUX} (?:you|we) (?:please |maybe |perhaps |possibly |kindly )?(?=[a-z])", ""),
    (r"^i (?:would like|want|would love|need|would be interested) (?:to (?:know|see|have|hear) )?",
     "tell me "),
    (r"^(?:i (?:wonder|was wondering|am wondering)|remember|know|recall|any idea) ", "tell me "),
    (r"^(?:tell|remind|show|give|find|let|read)(?: (?:me|us)\b)?(?: (?:of|know|about|out)\b)? ",
     "tell me "),
    (r"^(?:check|find out|look up|see|say|count up|work out)(?: for me)? (?=if\b|wh|how\b)",
     "tell me "),
    (rf"^tell me (?={_WH})", ""),
    (r"^(?:(?:tell me|confirm|verify) (?:if|whether|that)|"
     r"is it (?:correct|right|a fact|the case|so) that) ", "is it true that "),
    (r"^tell me (?:a |the )?(?:full |complete |whole )?list of ", "list "),
    (r"^tell me (?=all\b|every\b|each\b|the \w+s\b(?! of\b))", "list "),
    (r"^tell me ", "what is "),
    (r"^(?:name|enumerate|list up|list out) ", "list "),
    (r"^count(?: up)? (?:how (?:often|many times) )?(?:all )?(?:of )?", "what is the number of "),
    # tags, which make a question of a statement
    (rf"^(?!{_WH}\b)(.+?)(?:,? (?:right|correct|yes|no|eh|yes or no)|(?:,|(?= \w+n['’]t)) {_AUX}"
     r"(?:n['’]t| not)? (?:i|he|she|it|we|they))$", r"is it true that \1"),
)  # fmt: skip
_STEPS = tuple((re.compile(one, re.IGNORECASE), put) for one, put in _TEXT_STEPS)
_PLAIN_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    # times
    (r"\b(?:prior|previous) to\b", "before"),
    (r"\b(?:subsequent to|later than|following)\b", "after"),
    (r"\bearlier than\b", "before"),
    (r"\b(?:over|in|during|for|throughout|within)? ?(?:the )?(?:course|run|span|whole|entire|time|"
     rf"entirety|all|full)(?: of)? (?=(?:{_MONTH} )?(?:19|20)\d\d\b)", "in "),
    (r"\b(?:over|in|during) the (?:course|run|span|whole|time) of\b", "in"),
    (r"\b(?:throughout|within|all through)\b", "in"),
    (rf"\bthe (?:calendar )?(?:years?|month of)(?= (?:{_MONTH} )?(?:19|20)\d\d\b)", ""),
    (rf"\b({_MONTH}) of (?=(?:19|20)\d\d\b)", r"\1 "),
    (rf"\b(?:from|between) ({_MONTH})(?: to| and| through| until|[-–]) ({_MONTH}) (\d{{4}})\b",
     r"from \1 \3 to \2 \3"),
    (r"\b(?:from |between )?((?:19|20)\d\d) ?(?:to|through|until|till|[-–]) ?((?:19|20)\d\d)\b",
     r"from \1 to \2"),
    (r"\bbetween ((?:19|20)\d\d) and ((?:19|20)\d\d)\b", r"from \1 to \2"),
    (r"\b(?:in |of )?the first (?:half|six months) of ((?:19|20)\d\d)\b",
     r"from January \1 to June \1"),
    (r"\b(?:in |of )?the (?:second|last|latter) half of ((?:19|20)\d\d)\b",
     r"from July \1 to December \1"),
    (r"\b(?:up to|through|by)(?: and including)?(?: the end of)? (?=(?:19|20)\d\d\b)", "until "),
    (r"\b(?:starting|beginning) (?:in|from|with) (?=(?:19|20)\d\d\b)", "since "),
    (r"\b(?:the )?(?:past|previous|last) (?=year\b|month\b|week\b)", "last "),
    (r"\b(?:in|on|during) (?=(?:last|this) )", ""),
    (r"\bthe (month|year|week) before$", r"last \1"),
    (r"\b(?:as of|from|since) when(?: on)?\b", "since when"),
    (r"\bfrom (.+?) on(?:wards?)?$", r"since \1"),
    (r"\b(?:so far|to date|(?:up )?(?:until|till|to) now|over (?:all )?(?:the|these|those) years|"
     r"in all (?:these|those|that) (?:years|time)|all these years|of all time|"
     r"(?:in|over|during) my (?:whole |entire )?life(?:time)?|at (?:some|any) (?:point|time)|"
     r"at the moment|at present|right now|these days|nowadays|as things stand|on record|by now|"
     r"according to (?:my|the) (?:diary|notes|records?|memory))\b", ""),
    (rf"^({_WH}.*\b(?:is|was|are|were)\b.*) again$", r"\1"),
    # one word of several
    (r"\bwhereabouts\b", "where"),
    (r"^(?:the )?(?:names?|titles?) of (?=(?:all |the |every)*[a-z]+s\b)", "list "),
    (r"([a-z]s) (?=(?:19|20)\d\d\b)(?<!years )", r"\1 in "),
    (r"\bhow (?:frequent|regular)\b", "how often"),
    (r"^how (?:high|low)\b", lambda m: f"what {m[0][4:].lower()}est"),
    (r"\b(time|days|weeks|months|years) spent\b", r"\1"),
    (r"\b(?:the )?(?:names?|titles?) of (?=(?:all |the |every)*[a-z]+s?\b)(?! my)", ""),
    (r"\bhow recently\b", "when last"),
    (r"^how little\b(?: money)?", "what lowest"),
    (r"\b(?:cash|funds)\b", "money"),
    (r"\b(?:come|came|amount(?:ed)?|add(?:ed)? up|ran?|run) to$", "cost altogether"),
    (r"\b(?:very )?(?:most recent(?:ly)?|latest|newest|final|lastly)\b", "last"),
    (r"\b(?:very )?(?:earliest|initial(?:ly)?|originally|maiden|first[- ]ever)\b", "first"),
    (r"^what is the (first|last) (?:that )?(?=i\b|we\b)", r"when \1 "),
    (r"\bvery (?=first\b|last\b)", ""),
    (r"\b(?:for the first time|at first|to begin with)\b", "first"),
    (r"\bfor the last time\b", "last"),
    (r"\b(?:frequently|regularly)\b", "often"),
    (r"\b(?:more often|more times|more) than (?:any|every|all|the)(?:one|body|thing|where)?"
     r"(?: other [a-z]+| else)?\b", "most often"),
    (r"\bmost (?:frequent|common|usual|popular|regular)\b|\bthe most of(?= in\b|$)", "most often"),
    (r"\b(?:my|the) most (\w+ed|bought|seen|read|met|flown) (\w+)", r"\2 I \1 most often"),
    (r"\b(?:the )?(?:most|greatest|highest|largest) (?:number of )?(?:times|of all|of the time)\b",
     "most often"),
    (r"\bat (?:the )?(?:very )?most\b|\b(?:maximum|max|maximal|all-time high|greatest|largest|"
     r"biggest|(?:peak|top|record)(?= (?:price|amount|weight|sum|cost)))\b", "highest"),
    (r"\bat (?:the )?(?:very )?least\b|\b(?:minimum|min|minimal|all-time low|smallest|tiniest)\b",
     "lowest"),
    (r"\b(?:averaged|averaging|averages|mean|typically|on the average)\b", "average"),
    (r"\b(?:all together|all told|all in all|in sum|taken together|put together|combined)\b",
     "altogether"),
    (rf"\b({_ADJECTIVE}) ((?:average |total )?)((?:average|rate|number|frequency|count)\b.+)",
     lambda m: f"{m[2]}{m[3]} a {_UNITS[m[1].lower()]}"),
    (r"\b(?:got|get|went|go|gone|managed|manage|happened|happen|came|ended up) to "
     r"(?=(?:see|meet|watch|read|visit|buy|live|work|know|purchase|fly|move|travel)\b)", ""),
    (r"\bbeen (?:to|in)\b", "visited"),
    (r"^(?:was|were|had) (i|we|he|she|they|[A-Z]\w+)(?: been)? in (?=[A-Z]\w+ (?:before|after)\b)",
     r"did \1 visit "),
    (r"\b(how much time|how many (?:days|weeks|months|years)) (\w+) (.+?) spen[dt] (?=\w+ing\b)",
     r"\1 \2 \3 "),
    (r"^(?:is|was) it (before|after) (.+?) that (.+)$", r"did \3 \1 \2"),
    (r"^(?:is|was) it (.+?) or (.+?) that (.+?) (first|earlier)$", r"which did \3 first, \1 or \2"),
    (r"^(have|has|had|did) (.+) before$", r"\1 \2"),
    (r"^(?:by the time|when) (.+?), (had) (.+)$", r"\2 \3 before \1"),
    (rf"^({_ADJECTIVE}),? (how (?:many|often).+)", lambda m: f"{m[2]} a {_UNITS[m[1].lower()]}"),
    (r"^(?:back|way back) (?=in\b)", ""),
)  # fmt: skip
_WORDS = tuple((re.compile(one, re.IGNORECASE), put) for one, put in _PLAIN_WORDS)
_FRONTED = re.compile(
    r"(on average|in total|in all|altogether|overall|"
    r"(?:before|after|since) (?!when\b|what\b|which\b)[^,]+(?=,)),? (.+)",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    rf"(?P<topic>[^,:;–—]+?|[^:;–—]+?(?=:| [-–—] ))(?:[,:;]| [-–—])+ (?P<ask>(?:{_WH}|{_AUX}\b).*)",
    re.IGNORECASE,
)
_GROUP = re.compile(
    r"(?:of|among|out of|from)(?: all)?(?: of)?(?: the| my| our| these| those)?(?: \w+)? (\w+)",
    re.IGNORECASE,
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
_PER_UNIT = re.compile(r"\b(?:an?|per|each|every) (?:day|week|month|year)\b", re.IGNORECASE)
ASKS = re.compile(
    rf"(?:{_WH}|{_AUX}\b|since when|(?:list|put|sort|arrange|order|rank|line up)\b)", re.IGNORECASE
)
"""Beginnings of plain questions."""
_IN_PLACE = re.compile(
    r"\b((?:in |on |at |to |for |from |by |with )?"
    r"(?:how (?:many \w+|much(?: money| time)?|\w+)|which \w+|what(?: \w+)?|where|when|"
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
    text = " ".join(question.split())
    is_asked = text.endswith("?")
    text = text.strip(" ?!.")
    for _ in range(2):  # "could you please tell me whether"
        for step, plain in _STEPS:
            text = step.sub(plain, text)
    for step, put in _WORDS:
        text = step.sub(put, text)
    text = re.sub(r" +(?=[ ,])|^[ ,]+|[ ,]+$", "", text)
    text = _absolute(text, as_of, at_moment)
    text = _unfronted(_topical(text))
    if not ASKS.match(text):
        if found := _IN_PLACE.search(text):
            rest = f"{text[: found.start()].rstrip()} {text[found.end() :].lstrip()}"
            text = f"{found[1]} {rest}".strip()  # "I read how many books"
        else:
            text = _completed(text, is_asked)
    return re.sub(r"^is it true that ", "did ", text, flags=re.IGNORECASE)


def _topical(text: str) -> str:
    """Return a question with what stands before it put for its pronoun.

    "My trip to Rome, when was that?" is "when was my trip to Rome".
    """
    found = _TOPIC.fullmatch(text)
    if found is None or ASKS.match(text):
        return text
    topic, ask = found["topic"], found["ask"]
    topic = re.sub(r", (?!and |or |.*, )", " and ", topic)
    dates = find_dates(topic, None)
    if dates and dates[0].start == 0 and dates[-1].stop == len(topic):
        return text
    if group := _GROUP.fullmatch(topic):  # "of all my books, which was the last one"
        one = re.sub(r"s$", "", group[1])
        return re.sub(r"\b(?:ones?)\b", one, ask, flags=re.IGNORECASE)
    is_named = topic[:1].isupper() and topic.split()[0].lower() not in _POSSESSIVES
    topic = topic if is_named else topic[:1].lower() + topic[1:]
    for pronoun, place in _TOPICAL:
        if pronoun.search(ask):
            return pronoun.sub(place.format(topic), ask, count=1)
    if re.match(rf"how many(?: {_AUX}\b|$)", ask, re.IGNORECASE):
        return f"how many {topic}{ask[8:]}"
    if ask.endswith(" apart"):
        return f"{ask.removesuffix(' apart')} between {topic}"
    return f"{ask}, {topic}" if " or " in topic else text


def _completed(text: str, is_asked: bool) -> str:
    """Return a question of a phrase without a verb: "what is the date of my move"."""
    if found := re.match(r"(?:any|ever) ", text, re.IGNORECASE):
        is_ever = found[0].lower() == "ever "
        return f"did I ever {text[5:]}" if is_ever else f"is there any {text[4:]}"
    if is_asked and re.search(r"\w (?:before|after) \w", text):
        return f"was {text}"
    if is_asked and _PER_UNIT.search(text) and not _PHRASE.match(text):
        return f"how many {text}"
    if is_asked and re.match(r"(?:i|we|he|she|they) ", text, re.IGNORECASE):
        return f"did {text}"
    is_phrase = _PHRASE.match(text) and not re.search(r" (?:is|are|was|were) ", text)
    return f"what is {text}" if is_asked or is_phrase else text


def _unfronted(text: str) -> str:
    """Return a question whose phrase of time before the question stands behind it."""
    for _ in range(2):
        dates = find_dates(text, None)
        if dates and dates[0].start == 0 and dates[0].stop < len(text):
            is_span = len(dates) > 1 and dates[1].start == dates[0].stop + 1
            stop = dates[is_span].stop  # "from 2016 to 2018"
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
