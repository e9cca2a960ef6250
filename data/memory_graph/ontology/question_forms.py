"""Forms of questions with their operations, and words that need no link in a question."""

from __future__ import annotations

import re
from dataclasses import dataclass

from turngraph.data.entities import FUNCTION_WORDS
from turngraph.data.memory_graph.ontology.plain_question import ASKS
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan, Operation
from turngraph.data.memory_graph.record.speaker import FIRST_PERSON
from turngraph.data.normalise import MONTHS

PREPOSITIONS = frozenset("to in at from with for as of by on into".split())
PRONOUNS = frozenset("she he they her his their".split())
EVENTS_FIRST: frozenset[Operation] = frozenset([
    "count", "since", "before", "after", "order", "difference", "first", "latest", "list",
    "sum", "min", "max", "mean", "most", "rate",
])  # fmt: skip
MEASURED: frozenset[Operation] = frozenset(["sum", "min", "max", "mean"])
SAYS_NOTHING = (
    FUNCTION_WORDS
    | PREPOSITIONS
    | FIRST_PERSON
    | PRONOUNS
    | frozenset(
        "whereabouts long old time times last latest recent recently done make made go take took "
        "taken am ever currently still year years month months day days week weeks happen happens "
        "happened happening came come comes occur occurred place order list name names passed pass "
        "date dates different distinct various total far number count tally frequently already "
        "average true current present presently begin began begun beginning start started starting "
        "somewhere anywhere age earlier apart per thing things everything anything something item "
        "items really actually exactly just own new brand whole entire full back together "
        "altogether occasion occasions lasts lasted lasting length duration stretch period span "
        "spell interval gap elapse elapsed separate separated separates lie lies lay become "
        "became becoming turn turned chronologically chronological sequence whatever got get "
        "getting along among amongst moment point gone having roughly approximately anybody "
        "anyone somebody someone ones single reach reached "
        "whether fact record records overall rate frequency".split()
    )
)
"""Words of questions that need no link to a term or an object."""
SAYS_AMOUNT = frozenset(
    "little money cash amount amounts sum sums figure bill price prices cost costs priced least "
    "lowest highest peak top average altogether overall euros dollars pounds kroner paid pay spent "
    "set spend spending show shows showed".split()
)
"""Words that need no link in questions for amounts."""

_MY = r"(?:(?:the|my|our|exact|full|[A-Z]\w+['’]s) )*"
_WHEN = (
    r"(?:(?:on|in|at|by|from|as of|starting|since) (?:what|which) (?:exact )?"
    r"(?:date|day|year|month|point)|(?:the (?:first |last )?(?:date|day) )?when|"
    rf"(?:what|which) (?:was |is |were )?{_MY}(?:first |last |start |starting )?"
    r"(?:date|day|year|month|(?<=first )time|(?<=last )time|start(?! of \w+ing)|beginning))"
)
WHEN = re.compile(rf"{_WHEN}\b", re.IGNORECASE)
"""Beginnings of questions whose answer is a date."""
_UNSAID = re.compile(
    r"\b(?:not|never|no|none|neither|without|except|unless|almost|nearly|will|would|should|shall|"
    r"could|can|(?-i:may)(?! \d)|might|must|want(?:ed)?|plan(?:ned)?|hope[ds]?|more|fewer|than|"
    r"both|else|other|why|only|once|twice|thrice|same|(?:apart|aside) from|besides|before or after|"
    r"how (?:long|many \w+) ago)\b|n['’]t\b|"
    r"\b(?:until|till)$|^how (?:was|were|is|are|am|did|do|does|have|has|had|come)\b",
    re.IGNORECASE,
)
"""Words of negation, possibility and comparison, which no operation computes."""
_UNIT = r"(?P<unit>day|week|month|year)"
_PAID = (
    r"\b(?:pay|paid|spend|spent|costs?|set (?:me |us )?back|shell(?:ed)? out|fork(?:ed)? out|"
    r"part(?:ed)? with|la(?:y|id) out|splash(?:ed)? out|hand(?:ed)? over)\b"
)
_WHICH = r"(?:(?:to|in|at|from|with|for|on|by) )?(?:which|what|whom|who|where)"
_LATER = r"(?:after|before|later|earlier|precede|follow)"
_APART = r"(?:(?:apart|separated?|divided|away|from each other|in time|in total|exactly)\b ?)"
_BE = r"(?:is|are|was|were|lie|lay|do|does|did)"
_PASSED = r"(?:pass(?:ed)?|go by|went by|gone by|elapsed?|lie|lay|(?:is|are|was|were) (?:it|there))"
_SORT = r"(?:put|sort|arrange|order|rank|line up|place|list|give|what is|what are|is it true that)"
_LONG = rf"(?:how (?:long|much time|many {_UNIT}s?))"
_AND = r"(?P<a>.+?) and (?P<b>.+?)"
_LIST = r"(?P<a>.+?)(?:,? and |, (?!.*,|.* and ))(?P<b>.+?)"
_AND2 = r"(?P<a2>.+?) and (?P<b2>.+?)"
_OR = r"(?P<a>.+?),? or (?P<b>.+?)"
_DID = r"(?:did|was|were|had|have|has|is)"
_HAPPEN = r"(?:happen|come|take place|occur|fall|lie)"
_FORMS: tuple[tuple[str, Operation], ...] = (
    # the time between two
    (rf"(?:{_LONG}|what (?:is |was )?{_MY}(?:length of |amount of |number of )?"
     r"(?:time|interval|gap|distance|difference|period|days|weeks|months|years)) "
     rf"(?:[a-z]+ ){{0,3}}between {_AND}", "difference"),
    (rf"(?:by )?(?:how far|{_LONG})(?: apart)?(?: in [a-z]+s)? (?:is|are|was|were|lie|lay) "
     rf"{_AND}(?: (?:apart|separated|from each other|away))*", "difference"),
    (rf"(?:by )?(?:how much|{_LONG})(?: time)? (?:do |did |does )?(?:separated?s?|divides?) "
     r"(?P<a>.+?) (?:and|from) (?P<b>.+)", "difference"),
    (rf"(?=.*\b(?:apart|separated)\b)(?:by )?(?:how far|{_LONG}) {_APART}*(?:{_BE} )?{_AND}"
     rf"(?: (?:{_BE} )?{_APART}*)?", "difference"),
    (rf"{_LONG} .*?\bbetween {_AND}(?: {_PASSED})?", "difference"),
    (rf"{_LONG} (?:have |has |had |did )?(?:[a-z]+ ){{0,3}}(?:since|from) (?P<a>.+?) "
     r"(?:to|until|till|when|before) (?P<b>(?:my|the|when|i|we|getting|\w+ing)\b.+?)"
     rf"(?: {_PASSED})?", "difference"),
    (rf"{_LONG} (?:[a-z]+ ){{0,3}}from (?P<a>.+?) (?:to|until|till) (?P<b>.+)", "difference"),
    (rf"(?:how much|{_LONG}) {_LATER} (?P<a>.+?) (?P<b>{_DID} .+?)(?: {_HAPPEN})?", "difference"),
    (rf"(?:by how much|(?:by )?{_LONG}) (?:passed |went by |elapsed |later |earlier )?{_DID} "
     rf"(?P<a>.+?) {_LATER} (?P<b>.+)", "difference"),
    (rf"{_LONG} (?:passed|went by|elapsed) (?:from |since )?(?P<a>.+?) (?:before|until|till) "
     r"(?P<b>.+)", "difference"),
    # order
    (r"(?:which|what|who) (?:of (?:these|those|them|the (?:two|three)) )?"
     r"(?:came|comes|happened|was|is|took place|occurred|were) (?:the )?(?:first|earlier|before)"
     rf"(?:\W+{_OR}| between {_AND2})", "order"),
    (rf"(?:which|what|where|who) (?P<frame>.+?) (?:first|earlier)\W+{_OR}", "order"),
    (rf"{_DID} {_OR} (?:{_HAPPEN} )?(?:first|earlier)", "order"),
    (rf"{_DID} (?P<a>(?:my |the )?[A-Z][^,]*?) (?:first|earlier),? or (?P<b>.+)", "order"),
    (rf"(?:in )?(?:what|which) (?:order|sequence) (?:did|were|was)(?: (?:these|those|the following)"
     rf"(?: things| events)? {_HAPPEN})?(?: in)?\W*{_LIST}(?: {_HAPPEN})?(?: in)?",
     "order"),
    (rf"in (?:what|which) (?:order|sequence) {_LIST}(?: {_HAPPEN})?", "order"),
    (rf"{_SORT} {_LIST},? (?:in|by) (?:the )?(?:order|sequence|dates?) of "
     r"(?P<frame>(?:my|the|our) .+|\w+ing .+)", "order"),
    (rf"(?:what|which|list) (?:is |was )?{_MY}(?:time |chronological |right |correct )?"
     rf"(?:order|sequence|timeline)(?: of|:) {_LIST}", "order"),
    (rf"{_SORT} {_LIST} in (?:the )?order (?!of\b)(?:in which |that )?(?P<frame>.+?)(?: them| it)?",
     "order"),
    (rf"{_SORT} {_LIST},? (?:by|according to) (?:when|date|time|the (?:dates?|times?|order))\b.*",
     "order"),
    (rf"{_SORT} .*?(?:\border|\b(?:dates?|time|chronologically):)\W+{_LIST}", "order"),
    (rf"{_SORT} {_LIST},? (?:chronologically|(?:in|by) .*?(?:order|dates?|time|sequence)|"
     r"from (?:the )?first to (?:the )?last|first to last)", "order"),
    # before and after
    (rf"{_DID} (?P<a>.+?) (?:{_HAPPEN} )?(?P<how>before|after|follow|precede) (?P<b>.+)", "before"),
    (rf"{_DID} (?P<a>.*\balready\b.+?) (?:when|by the time) (?P<b>.+)", "before"),
    # one selection
    (r"how (?:old|many years old) .+|(?:what|which) (?:.+ )?age\b.*|(?:at|of) what age .+", "age"),
    (r"(?:how (?:often|many \w+)|what .*\b(?:average|rate|number|frequency|count))\b.*"
     rf"\b(?:an?|per|each|every|by) {_UNIT}\b.*", "rate"),
    (r"how (?:many times|often) .+|(?:on|in) how many (?:occasions|cases) .+|"
     rf"what (?:is |was )?{_MY}(?:total |overall |exact )?(?:number|count|tally) of .+", "count"),
    (rf"{_WHICH} .*{_PAID}.*\b(?:the )?most\b(?! often).*", "max"),
    (rf"{_WHICH} .*{_PAID}.*\b(?:the )?least\b(?! often).*", "min"),
    (r".*\bhighest\b.*|what (?:is|was) (?:the )?most (?!often|[a-z]+s\b).+", "max"),
    (r".*\b(?:lowest|least)\b.*", "min"),
    (rf"{_WHICH} .*\bmost (?:often|[a-z]+s)\b.*|{_WHICH} .*\b(?:the )?most(?: in .+)?", "most"),
    (r".*\baverage\b.*", "mean"),
    (rf"(?:for )?how much time .+|what (?:is |was )?{_MY}(?:total )?(?:length|duration) of .+|"
     rf"what (?:is |was )?{_MY}(?:total |whole |overall )?(?:time|{_UNIT}s)(?: that)? "
     r"(?:i|we|living|working|as|in|at) .+|"
     r"(?:for )?(?:what|which) (?:length|amount|period) of time .+", "duration"),
    (rf"what (?:is |was )?{_MY}(?:total |whole |full |overall )?(?:amount|sum)(?: of money)?"
     r"(?: that)? (?:i|we|he|she|they|spent|paid|[A-Z]\w+) .+", "sum"),
    (r"how much .+|how many (?:euros|dollars|pounds|kroner) .+|"
     r"what .+\b(?:cost|altogether|overall|in total|in all)\b.*|"
     r"what (?:is|are|was|were) .*\b(?:total|sum|altogether) .+", "sum"),
    (rf"(?:for )?(?:about )?how (?:long|many {_UNIT}s?) .+", "duration"),
    (r"how many .+", "count"),
    (r"(?:since when|from when|as of when) .+", "since"),
    (rf"(?={_WHEN}\b).*\blast\b.*", "latest"),
    (rf"(?={_WHEN}\b).*\bfirst\b.*", "first"),
    (rf"{_WHEN} .+", "since"),
    (r".*\blast\b.*", "latest"),
    (r".*\bfirst\b.*", "first"),
    (r"list .+|(?:what|which) (?:is |are |were )?(?:all |the )?(?:all|every|\w+s) .+", "list"),
    (r"(?:do|does|did|is|are|was|were|has|have|had) .+", "exists"),
    (r"(?:who|whom|whose|where|what|which|"
     r"(?:in|on|under|to|for|at|by|with|from) (?:what|which|whom|whose)) .+",
     "value"),
)  # fmt: skip
_PER_UNIT = r"\b(?:an?|per|each|every) (?:day|week|month|year)\b(?! ago| before| after| later)"
_NO_DATE = rf"(?! (?:the )?(?:\d|{'|'.join(MONTHS)}))"
_CUES: tuple[tuple[str, tuple[Operation, ...]], ...] = (
    (r"\bmost\b", ("most", "max")),
    (r"\bleast\b|\blowest\b", ("min",)),
    (r"\bhighest\b", ("max",)),
    (r"\boften\b", ("count", "rate", "most")),
    (r"\baverage\b", ("mean", "rate")),
    (r"^(?:do|does|did|is|are|was|were|has|have|had) .*\b(?:whose|whom|how|what)\b", ()),
    (_PER_UNIT, ("rate",)),
    (rf"\b(?:earlier|later|apart)\b|\b(?:before|after)\b{_NO_DATE}",
     ("order", "difference", "before", "after")),
)  # fmt: skip
"""Words that need one of these operations."""
_IN_UNITS = re.compile(
    r"\bin (?:whole |full )?(day|week|month|year)s\b|"
    r"\b(day|week|month|year)s (?:[a-z]+ ){0,2}between",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Form:
    """Form of a question.

    Args:
        operation: operation of the form.
        text: the plain question.
        clauses: parts of the question that select facts.
        unit: unit of time in the question; None: none.
        frame: words to put before each clause: "did I visit" of "which did I visit first, Rome or
            Paris"; "": none.
    """

    operation: Operation
    text: str
    clauses: tuple[str, ...]
    unit: str | None = None
    frame: str = ""


def forms_of(text: str) -> list[Form]:
    """Return the forms that fit a question, the best first.

    Args:
        text: the question, in the form of ``plain_question``.

    Raises:
        NoPlan: the question has no known form, or a word of negation or possibility.
    """
    check_said(text)
    if not ASKS.match(text):
        raise NoPlan("the question is of no known form")
    forms = []
    for pattern, operation in _FORMS:
        match = re.fullmatch(pattern, text, re.IGNORECASE)
        if match is None:
            continue
        parts = {name.rstrip("2"): part for name, part in match.groupdict().items() if part}
        clauses: tuple[str, ...] = (text,)
        if parts.get("a"):
            parted = r",(?: and\b)?|\band\b" if operation == "order" else ","
            first = [part.strip() for part in re.split(parted, parts["a"]) if part.strip()]
            *more, last = re.split(parted, parts["b"]) if operation == "order" else [parts["b"]]
            clauses = (*first, *(clause.strip() for clause in more if clause.strip()), last.strip())
        unit = parts.get("unit") or _named_unit(text)
        frame = parts.get("frame") or ""
        if (parts.get("how") or "").lower() in ("after", "follow"):
            operation = "after"
        forms.append(Form(operation, text, clauses, unit and unit.lower(), frame))
    if not forms:
        raise NoPlan("the question is of no known form")
    return forms


def _named_unit(text: str) -> str | None:
    """Return the unit of time of "in days" or "days between"."""
    match = _IN_UNITS.search(text)
    return match and (match[1] or match[2]).lower()


def check_cues(form: Form) -> None:
    """Check that no word of a question needs another operation than its form's.

    Raises:
        NoPlan: a word does.
    """
    for cue, operations in _CUES:
        if form.operation not in operations and re.search(cue, form.text, re.IGNORECASE):
            raise NoPlan(f"a word of the question does not fit its form ({form.operation})")


def check_said(text: str) -> None:
    """Check that a question has no word of negation, possibility or comparison.

    Raises:
        NoPlan: it has one; the message names the word.
    """
    if unsaid := _UNSAID.search(text):
        raise NoPlan(f"a word of the question is not computed: {unsaid[0]!r}")
