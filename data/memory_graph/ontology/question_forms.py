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
    "how what which who whom whose where when since much long often old time times first last "
    "latest most recent recently did does do done has have had make made go take took was were is "
    "are ever currently now still year years month months day days week weeks happen happened came "
    "come order list all name passed there it date before after different total so far that and or "
    "number frequently already average true which those these list "
    "current present begin began begun start started somewhere anywhere "
    "age earlier each every per thing things everything anything something".split()
)  # fmt: skip
"""Words of questions that may stand beside what is linked."""
SAYS_AMOUNT = frozenset(
    "little money amount amounts price prices cost costs cheap cheapest expensive least lowest "
    "peak top highest greatest largest smallest biggest average mean maximum minimum altogether "
    "overall sum euros dollars pounds kroner paid pay spent spend spending".split()
)
"""Words that say nothing beside a measured term."""

_WHEN = (
    r"(?:when|on (?:what|which) (?:date|day)|in (?:what|which) (?:year|month)|"
    r"(?:what|which) (?:was |is )?(?:the )?(?:first |last )?(?:date|day))"
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
_FORMS: tuple[tuple[str, Operation], ...] = (
    (rf"(?:how (?:long|much time|many {_UNIT}s?)|what (?:is |was )?(?:the )?"
     r"(?:length of |amount of |number of )?(?:time|interval|gap|distance|difference|days|weeks|"
     r"months|years)) (?:[a-z]+ ){0,3}between (?P<a>.+?) and (?P<b>.+)", "difference"),
    (rf"(?:by )?how (?:far|long|much time|many {_UNIT}s?)(?: apart)? (?:is|are|was|were|lie|lay) "
     r"(?P<a>.+?) and (?P<b>.+?)(?: (?:apart|separated|from each other))*", "difference"),
    (rf"how (?:long|many {_UNIT}s?) (?:before|after) (?P<a>.+?) (?P<b>(?:did|was|were) .+)",
     "difference"),
    (r"(?:which|what) (?:came|happened|was|is|took place) (?:first|earlier)\W+(?P<a>.+?),? or "
     r"(?P<b>.+)", "order"),
    (r"(?:which|what|where) (?P<frame>.+?) (?:first|earlier)\W+(?P<a>.+?),? or (?P<b>.+)", "order"),
    (r"(?:did|was|were|had|have|has) (?P<a>.+?),? or (?P<b>.+?) (?:first|earlier)", "order"),
    (r"in (?:what|which) order (?:did|were|was)?\W*(?P<a>.+?),? and (?P<b>.+)", "order"),
    (r"(?:what|which|list) (?:is |was )?(?:the )?(?:order|sequence) of (?P<a>.+?),? and (?P<b>.+)",
     "order"),
    (r"(?:put|sort|arrange) .*?in order\W+(?P<a>.+?),? and (?P<b>.+)", "order"),
    (r"(?:did|was|were|had|have|has) (?P<a>.+?) (?P<how>before|after|follow|precede) (?P<b>.+)",
     "before"),
    (r"(?:was|were|had|have|has) (?P<a>.*\balready\b.+?) (?P<how>when) (?P<b>.+)", "before"),
    (r"how (?:old|many years old) .+|(?:what|which) (?:.+ )?age\b.*", "age"),
    (rf"how (?:often|frequently|many \w+)\b.*\b(?:an?|per|each|every) {_UNIT}\b.*", "rate"),
    (r"how (?:many times|often|frequently) .+|"
     r"what (?:is |was )?(?:the )?(?:total |overall |exact )?number of .+", "count"),
    (rf"{_WHICH} .*{_PAID}.*\b(?:the )?most\b(?! often| frequently| expensive| times).*", "max"),
    (rf"{_WHICH} .*{_PAID}.*\b(?:the )?least\b(?! often| frequently| expensive| times).*", "min"),
    (rf"{_WHICH} .*\bmost (?:often|frequently|times|[a-z]+s)\b.*|"
     rf"{_WHICH} (?!(?:is|was) the most ).*\bmost(?: in .+)?", "most"),
    (r".*\b(?:average|mean)\b.*", "mean"),
    (r".*\b(?:most expensive|dearest|highest|largest|biggest|greatest|maximum|peak|top)\b.*|"
     r"what (?:is|was) the most (?!recent|often|frequent).+", "max"),
    (r".*\b(?:cheapest|least|lowest|smallest|minimum)\b.*", "min"),
    (r"(?:for )?how much time .+", "duration"),
    (r"how much .+|how many (?:euros|dollars|pounds|kroner) .+|"
     r"what .+\b(?:cost|in total|altogether|overall|in all)\b.*|"
     r"what (?:is|was) .*\b(?:total|sum) .+",
     "sum"),
    (rf"(?:for )?how (?:long|many {_UNIT}s?) .+", "duration"),
    (r"how many .+", "count"),
    (r"(?:since when|from when) .+", "since"),
    (rf"(?={_WHEN}\b).*\b(?:last|latest|most recent(?:ly)?)\b.*", "latest"),
    (rf"(?={_WHEN}\b).*\bfirst\b.*", "first"),
    (rf"{_WHEN} .+", "since"),
    (r".*\b(?:last|latest|most recent(?:ly)?)\b.*", "latest"),
    (r".*\bfirst\b.*", "first"),
    (r"(?:list|name) .+|(?:what|which) (?:are |were )?(?:all |the )?(?:all|\w+s) .+", "list"),
    (r"(?:do|does|did|is|are|was|were|has|have|had) .+", "exists"),
    (r"(?:who|whom|whose|where|what|which|(?:in|to|for|at|by|with|from) (?:what|which|whom)) .+",
     "value"),
)  # fmt: skip


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
        how = {"follow": "after", "precede": "before", "when": "before"}.get(
            how := (parts.get("how") or "").lower(), how
        )
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
