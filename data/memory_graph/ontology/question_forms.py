"""Forms of questions and the operation of each, and the words that name nothing in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from turngraph.data.entities import FUNCTION_WORDS
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan, Operation

PREPOSITIONS = frozenset("to in at from with for as of by on into".split())
FIRST_PERSON = frozenset("i me my mine myself".split())
PRONOUNS = frozenset("she he they her his their".split())
EVENTS_FIRST: frozenset[Operation] = frozenset([
    "count", "since", "before", "after", "order", "difference", "first", "latest", "list",
    "sum", "min", "max", "mean", "most", "rate",
])  # fmt: skip
MEASURED: frozenset[Operation] = frozenset(["sum", "min", "max", "mean"])
SAYS_NOTHING = FUNCTION_WORDS | PREPOSITIONS | FIRST_PERSON | PRONOUNS | frozenset(
    "how what which who whom whose where when whereabouts since much long often old time times "
    "first last latest most recent recently did does do done has have had make made go take took "
    "took taken was were is are am ever currently still now year years month months day days week "
    "weeks happen happens happened happening came come comes occur occurred place order list all "
    "name names passed pass there it date dates before after different distinct various total far "
    "that and or number count tally frequently already average true which those these list current "
    "present presently begin began begun beginning start started starting somewhere anywhere age "
    "earlier later apart each every per thing things everything anything something item items "
    "really actually exactly just own myself new old brand whole entire full back today together "
    "altogether occasion occasions last lasts lasted lasting length duration stretch period span "
    "spell interval gap elapse elapsed separate separated separates lie lies lay between become "
    "became becoming turn turned chronologically chronological sequence whatever got get getting "
    "end ended up along anybody anyone somebody someone one ones another certain ago then when "
    "whether while fact record records overall rate frequency once".split()
)
"""Words of questions that may stand beside what is linked."""
SAYS_AMOUNT = frozenset(
    "little money cash amount amounts sum sums figure bill price prices cost costs priced least "
    "lowest highest peak top average altogether overall euros dollars pounds kroner paid pay spent "
    "spend spending".split()
)
"""Words that say nothing beside a measured term."""

_MY = r"(?:(?:the|my|our|exact|full|[A-Z]\w+['’]s) )*"
_WHEN = (
    r"(?:(?:on|in|at|by|from|as of|starting|since) (?:what|which) (?:exact )?(?:date|day|year|month|time|point)|"
    r"(?:the (?:first |last )?(?:date|day) )?when|"
    rf"(?:what|which) (?:was |is |were )?{_MY}(?:first |last |start |starting )?(?:date|day|year|month|time"
    r"|start(?! of \w+ing)|beginning))"
)
WHEN = re.compile(rf"{_WHEN}\b", re.IGNORECASE)
"""Beginnings of questions whose answer is a date."""
_UNSAID = re.compile(
    r"\b(?:not|never|no|none|neither|without|except|unless|almost|nearly|will|would|should|shall|could|"
    r"can|(?-i:may)|might|must|want(?:ed)?|plan(?:ned)?|hope[ds]?|more|fewer|than|both|else|other)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words that turn what was into what was not, may be or is compared: no operation computes that."""
_UNIT = r"(?P<unit>day|week|month|year)"
_PAID = r"\b(?:pay|paid|spend|spent|costs?)\b"
_WHICH = r"(?:which|what|who|whom|where)"
_LATER = r"(?:after|before|later|earlier)"
_SORT = r"(?:put|sort|arrange|order|rank|line up|place|list|give|what is|what are|is it true that)"
_FORMS: tuple[tuple[str, Operation], ...] = (
    # the time between two
    (rf"(?:how (?:long|much time|many {_UNIT}s?)|what (?:is |was )?{_MY}"
     r"(?:length of |amount of |number of )?(?:time|interval|gap|distance|difference|period|days|"
     r"weeks|months|years)) (?:[a-z]+ ){0,3}between (?P<a>.+?) and (?P<b>.+)", "difference"),
    (rf"(?:by )?how (?:far|long|much time|many {_UNIT}s?)(?: apart)? (?:is|are|was|were|lie|lay) "
     r"(?P<a>.+?) and (?P<b>.+?)(?: (?:apart|separated|from each other|away))*", "difference"),
    (rf"(?:by )?how (?:much|long|many {_UNIT}s?)(?: time)? (?:do |did |does )?(?:separates?|separated|"
     r"divides?) (?P<a>.+?) (?:and|from) (?P<b>.+)", "difference"),
    (rf"how (?:long|much time|many {_UNIT}s?) (?:[a-z]+ ){{0,3}}from (?P<a>.+?) (?:to|until|till) "
     r"(?P<b>.+)", "difference"),
    (rf"how (?:long|much|much time|many {_UNIT}s?) {_LATER} (?P<a>.+?) (?P<b>(?:did|was|were|had|is) "
     r".+?)(?: happen| come| take place)?", "difference"),
    (rf"how (?:long|much|much time|many {_UNIT}s?) (?:passed |went by |elapsed |later |earlier )?"
     rf"(?:did|was|were|had|is) (?P<a>.+?) {_LATER} (?P<b>.+)", "difference"),
    (rf"how (?:long|much time|many {_UNIT}s?) (?:passed|went by|elapsed) (?:from |since )?(?P<a>.+?) "
     r"(?:before|until|till) (?P<b>.+)", "difference"),
    # order
    (r"(?:which|what|who) (?:of (?:these|those|them|the (?:two|three)) )?"
     r"(?:came|comes|happened|was|is|took place|did I do|occurred|were) (?:the )?(?:first|earlier|before)"
     r"\W+(?P<a>.+?),? or (?P<b>.+)", "order"),
    (r"(?:which|what|where|who) (?P<frame>.+?) (?:first|earlier)\W+(?P<a>.+?),? or (?P<b>.+)",
     "order"),
    (r"(?:did|was|were|had|have|has) (?P<a>.+?),? or (?P<b>.+?) (?:come |happen |take place |occur )?"
     r"(?:first|earlier)", "order"),
    (r"in (?:what|which) (?:order|sequence) (?:did|were|was)?\W*(?P<a>.+?),? and (?P<b>.+?)"
     r"(?: (?:happen|come|take place|occur))?", "order"),
    (rf"(?:what|which|list) (?:is |was )?{_MY}(?:time |chronological )?(?:order|sequence|timeline) of "
     r"(?P<a>.+?),? and (?P<b>.+)", "order"),
    (rf"{_SORT} .*?\border\W+(?P<a>.+?),? and (?P<b>.+)", "order"),
    (rf"{_SORT} (?P<a>.+?),? and (?P<b>.+?),? (?:chronologically|(?:in|by) .*?(?:order|dates?|time|"
     r"sequence)|from (?:the )?first to (?:the )?last|first to last)", "order"),
    # before and after
    (r"(?:did|was|were|had|have|has|is) (?P<a>.+?) (?:(?:come|happen|occur|take place|fall|lie) )?"
     r"(?P<how>before|after|follow|precede) (?P<b>.+)", "before"),
    (r"(?:did|was|were|had|have|has) (?P<a>.*\balready\b.+?) (?P<how>when|by the time) (?P<b>.+)",
     "before"),
    # the rest
    (r"how (?:old|many years old) .+|(?:what|which) (?:.+ )?age\b.*|(?:at|of) what age .+", "age"),
    (rf"(?:how (?:often|many \w+)|what .*\b(?:average|rate|number|frequency|count))\b.*"
     rf"\b(?:an?|per|each|every|in an? average|by) {_UNIT}\b.*", "rate"),
    (r"how (?:many times|often) .+|(?:on|in) how many (?:occasions|cases) .+|"
     rf"what (?:is |was )?{_MY}(?:total |overall |exact )?(?:number|count|tally) of .+", "count"),
    (rf"{_WHICH} .*{_PAID}.*\b(?:the )?most\b(?! often| expensive).*", "max"),
    (rf"{_WHICH} .*{_PAID}.*\b(?:the )?least\b(?! often| expensive).*", "min"),
    (r".*\bhighest\b.*|what (?:is|was) the most (?!recent|often|[a-z]+s\b).+", "max"),
    (r".*\b(?:lowest|least)\b.*", "min"),
    (rf"{_WHICH} .*\bmost (?:often|[a-z]+s)\b.*|{_WHICH} .*\b(?:the )?most(?: in .+)?", "most"),
    (r".*\baverage\b.*", "mean"),
    (rf"(?:for )?how much time .+|what (?:is |was )?{_MY}(?:total )?(?:length|duration) of .+|"
     r"(?:for )?(?:what|which) (?:length|amount|period) of time .+", "duration"),
    (r"how much .+|how many (?:euros|dollars|pounds|kroner) .+|"
     r"what .+\b(?:cost|in total|altogether|overall|in all)\b.*|"
     r"what (?:is|was) .*\b(?:total|sum|altogether) .+",
     "sum"),
    (rf"(?:for )?(?:about )?how (?:long|many {_UNIT}s?) .+", "duration"),
    (r"how many .+", "count"),
    (r"(?:since when|from when|as of when) .+", "since"),
    (rf"(?={_WHEN}\b).*\blast\b.*", "latest"),
    (rf"(?={_WHEN}\b).*\bfirst\b.*", "first"),
    (rf"{_WHEN} .+", "since"),
    (r".*\blast\b.*", "latest"),
    (r".*\bfirst\b.*", "first"),
    (r"(?:list|name) .+|(?:what|which) (?:is |are |were )?(?:all |the )?(?:all|every|\w+s) .+", "list"),
    (r"(?:do|does|did|is|are|was|were|has|have|had) .+", "exists"),
    (r"(?:who|whom|whose|where|what|which|(?:in|to|for|at|by|with|from) (?:what|which|whom)) .+",
     "value"),
)  # fmt: skip
_PER_UNIT = re.compile(rf"\b(?:an?|per|each|every) {_UNIT}\b(?! ago| before| after| later)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Form:
    """Form of a question.

    Args:
        operation: that the form asks for.
        text: the question, plain.
        clauses: its parts that select facts.
        unit: of time that it names; None: none.
        how: "before" or "after" of its two clauses; "" of other operations.
    """

    operation: Operation
    text: str
    clauses: tuple[str, ...]
    unit: str | None = None
    how: str = ""


def forms_of(text: str) -> list[Form]:
    """Return the forms that fit a question, the best first.

    Args:
        text: the question, in the form of ``plain_question``.

    Raises:
        NoPlan: it is of no known form, or it asks for what is not, may be or should be.
    """
    check_said(text)
    found = []
    for pattern, operation in _FORMS:
        match = re.fullmatch(pattern, text, re.IGNORECASE)
        if match is None:
            continue
        parts = match.groupdict()
        clauses: tuple[str, ...] = (text,)
        if parts.get("a"):
            first = [part.strip() for part in parts["a"].split(",") if part.strip()]
            clauses = (*first, parts["b"])
        if parts.get("frame"):  # "which did I visit first, Rome or Paris"
            clauses = tuple(f"{parts['frame']} to {clause}" for clause in clauses)
        unit = parts.get("unit")
        how = (parts.get("how") or "").lower()
        how = {"follow": "after"}.get(how, "before") if how not in ("", "after") else how
        if not found and operation != "rate" and _PER_UNIT.search(text):
            raise NoPlan("an amount by time is not computed")
        found.append(Form(operation, text, clauses, unit and unit.lower(), how))
    if not found:
        raise NoPlan("the question is of no known form")
    return found


def check_said(text: str) -> None:
    """Check that a question asks for what was, and not for what was not or might be.

    Raises:
        NoPlan: it does not; names the word.
    """
    if unsaid := _UNSAID.search(text):
        raise NoPlan(f"a word of the question is not computed: {unsaid[0]!r}")
