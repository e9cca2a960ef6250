"""Rewrite rules for questions: politeness, contractions, periods and synonyms.

Each row undoes one way of saying the same in other words. ``plain_question`` applies the rows in
order.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from turngraph.data.normalise import MONTHS

AUX = (
    r"(?:do|does|did|is|are|was|were|am|has|have|had|can|could|will|would|shall|should|may|might|"
    r"must)"
)
WH = (
    r"(?:how|what|which|who|whom|whose|where|when|whereabouts|"
    r"(?:in|on|at|to|for|from|by|with|under|since|until|as of) "
    r"(?:what|which|whom|whose|how|when)\b)"
)
MONTH = rf"(?:{'|'.join(MONTHS)})"
_YEAR = r"(?:19|20)\d\d"
_PERIOD = rf"(?:{MONTH} )?{_YEAR}\b"
_UNITS = {"daily": "day", "weekly": "week", "monthly": "month", "yearly": "year",
          "annual": "year", "annually": "year"}  # fmt: skip
_PER = "|".join(_UNITS)
_WE = r"(?:i|we|he|she|it|they)"
_PLEASE = r"(?:please |maybe |perhaps |possibly |kindly |just |quickly |still |happen to )*"
_ASK_VERB = (
    r"(?:tell|remind|show|give|find(?: out)?|let|read|check|look up|see|say|have|get|know|remember|"
    r"recall|be so kind as to tell|help me (?:remember|recall|find(?: out)?))"
)
"""Verbs of a request, followed by the question."""
_SUM_VERB = r"(?:add(?: up)?|sum(?: up)?|total(?: up)?|tot up)"
_COMPUTE_VERB = r"(?:calculate|compute|work out|figure out|determine|find out|establish)"
_COUNT_VERB = r"(?:count(?: up)?|tally(?: up)?|number)"
_VOCATIVE = r"(?:mate|buddy|pal|dude|man|dear|love|my friend|assistant|computer)"
_LATER_ASKED = (
    r"(?:(?:(?:would|could|can|will|do|did) you(?: (?:please )?(?:know|remember|recall|tell me|say|"
    r"happen to know|have it))?)|if (?:you|i) (?:can|may|could|know|remember|would|have it|"
    r"do(?:n['’]t| not) mind)(?: ask)?|any idea|i wonder|i['’]?(?: a)?m wondering|remind me|"
    r"i(?:['’]d| would) like to know|by any chance|as far as you know|again|exactly|then|though|"
    r"anyway|thanks(?: a lot)?|thank you|cheers|"
    rf"{_VOCATIVE})"
)
"""Polite phrases after a question."""
_TEXT_STEPS: tuple[tuple[str, str], ...] = (
    # a question that corrects itself: "how often, I mean, how many times"
    (r"^.*(?:\.{2,}|…|[,;–—]|\s-) ?(?:i mean|i meant|or rather|rather|no|sorry|that is)[,:]? "
     rf"(?=(?:or rather )?(?:{WH}|did|was|on what|in what)\b)", ""),
    (r"^((?:please |just |now )*(?:tell|remind|show|give) (?:me|us))[,:] ", r"\1 "),
    (rf"^({_PERIOD}) ?(?::|,| [-–—]) ?(.+)", r"\2 in \1"),
    # contractions
    (r"\b(what|where|who|when|how|which|that|there|it)['’]s\b", r"\1 is"),
    (r"^(how \w+)['’]s\b", r"\1 is"),
    (r"\b(what|where|who|when|how|which)['’]d\b", r"\1 did"),
    (rf"\b({_WE}|you)['’]d (?=like\b|love\b|be\b)", r"\1 would "),
    (rf"\b({_WE}|you)['’]d\b", r"\1 had"),
    (r"\b(\w+)['’]ve\b", r"\1 have"),
    (r"\b(\w+)['’]ll\b", r"\1 will"),
    (r"\b(\w+)['’]re\b", r"\1 are"),
    (r"\bi['’]m\b", "I am"),
    (r"\bd['’]you\b", "do you"),
    (r"\b(?:wanna|want to|gotta|need to|(?:would|'d) (?:like|love) to|am (?:curious|keen|"
     r"interested|trying) to) (?=know|hear|find out|remember|recall|see\b)", "want to "),
    (r"\bgimme\b", "give me"),
    (r"\blemme\b", "let me"),
    # politeness, which asks for the clause after it
    (r"^(?:(?:please|hi|hey|hello|so|well|ok|okay|right|alright|now|and|um|uh|oh|say|listen|actually|"
     rf"as for|regarding|there|{_VOCATIVE}|"
     r"(?:a )?quick(?: one| question)|(?:one )?(?:more )?question|one more thing|just to check|"
     r"(?:just )?(?:curious|wondering|checking)|out of (?:curiosity|interest)|"
     r"by the way|for (?:the record|my records)|let me think|let us see|"
     r"if i remember (?:right|rightly|correctly)|if i am not mistaken|"
     r"i(?: am)? (?:forget|forgot|curious|unsure|(?:not |un)sure|"
     r"wondering)|"
     r"i (?:can(?:['’]t|not| not)|do(?:n['’]t| not)) (?:quite )?(?:remember|recall|know))\b"
     r"[,:;]?(?: [-–—])? )+", ""),
    (r",? please\b", ""),
    (r"^list: ", "list "),
    (rf"(?:,| [-–—]) {_LATER_ASKED}(?:,? {_VOCATIVE})?$", ""),
    (r" (?:thanks|thank you|if you (?:can|know|remember)|do you (?:know|remember|recall))$", ""),
    (rf"^(?:{AUX} you |(?:can|could|may|might|shall) (?:we|i|someone) |"
     r"is there (?:a|any) way (?:to|you (?:can|could)) )"
     rf"{_PLEASE}(?=(?:{_ASK_VERB}|{_SUM_VERB}|{_COMPUTE_VERB}|{_COUNT_VERB}|list|name|sort|put|order|"
     r"arrange|rank|average)\b)", ""),
    (rf"^{AUX} (?:you|we) {_PLEASE}(?=[a-z])", ""),
    (r"^i (?:would like|want|would love|need|would be interested) (?:to (?:know|see|have|hear|"
     r"find out|remember|recall) )?", "tell me "),
    (r"^(?:i (?:wonder|was wondering|am wondering|am asking (?:you )?)|remember|know|recall|"
     r"any (?:idea|clue|memory of)) ", "tell me "),
    (r"^(?:get|have) (?:me )?(?=(?:a|the) list\b)", "tell me "),
    (r"^(?:tell|remind|show|give|find|let|read)(?: (?:me|us)\b)?"
     r"(?: (?:again|of|know|about|out|once more)\b)? ", "tell me "),
    (rf"^(?:check|find out|look up|see|say|count up|{_COMPUTE_VERB})(?: for me)? "
     r"(?=if\b|wh|how\b|on wh|in wh)", "tell me "),
    (rf"^(?:tell me )?(?:check|look up|{_COMPUTE_VERB})(?: for me)? ", "tell me "),
    (rf"^(?:tell me )?{_SUM_VERB} ", "what is the total of "),
    (r"^average ", "what is the average of "),
    (rf"^tell me (?={WH})", ""),
    (r"^tell me (?=did\b|was\b|were\b|had\b|have\b|is\b|am\b)", ""),
    (r"^(?:(?:tell me|confirm|verify) (?:if|whether|that)|whether|"
     r"(?:is it|is that) (?:correct|right|a fact|the case|so|true) that|"
     r"(?:am i|would i be|was i) (?:right|correct|wrong)(?: in (?:thinking|saying))?(?: that)?|"
     r"(?:would|do|did) you (?:say|think|believe|reckon|recall)(?: that)?(?= i\b)|"
     r"is there (?:any |a )?(?:record|mention|note|entry) (?:that|of me)|"
     r"do (?:i|we|you) have (?:any |a )?(?:record|mention|note) (?:of|that)(?: me)?|"
     r"(?:could|can|may|might) it be(?: true| right| the case)? that|is it possible that|"
     r"(?:was|is|has) there (?:ever )?(?:been )?(?:a time|any time|an? occasion|any occasion)"
     r"(?: when| that)?)\b",
     "is it true that "),
    (r"^tell me (?:a |the |my )?(?:full |complete |whole )?(?:list|names?|titles?) of ", "list "),
    (r"^tell me (?=all\b|every\b|everything\b|each\b|the \w+s\b(?! of\b))", "list "),
    (r"^tell me ", "what is "),
    (r"^(?:name|enumerate|list up|list out) ", "list "),
    (rf"^{_COUNT_VERB} (?:how (?:often|many times) )?(?:all )?(?:of )?", "what is the number of "),
    (r"^what is (?=how\b|what\b|which\b|who\b|where\b|when\b)", ""),
    # tags, which make a question of a statement
    (rf"^(?!{WH}\b)(.+?)(?:,? (?:right|correct|yes|no|eh|yes or no|true or false|am i right|"
     rf"is(?:n['’]t)? that (?:so|right|true|correct))|(?:,|(?= \w+n['’]t)) {AUX}"
     rf"(?:n['’]t| not)? {_WE}(?: not)?)$", r"is it true that \1"),
)  # fmt: skip
STEPS = tuple((re.compile(one, re.IGNORECASE), put) for one, put in _TEXT_STEPS)
_PLAIN_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    # verbs whose object is what was done: "did I manage to see"
    (r"\b(?:(?:that )?(?:you|i) (?:know|remember|recall)(?: of)?(?: that)?) (?=i\b)", ""),
    (r"\b(?:got|get|went|go|gone|managed?|happen(?:ed)?|came|end(?:ed)? up|bother(?:ed)?|used?|"
     r"(?:had|have|got|get) (?:the |a )?(?:chance|opportunity|occasion)) to "
     r"(?=(?:see|meet|watch|read|visit|buy|live|work|purchase|fly|move|travel|go|spend|pay|get|"
     r"weigh|finish)\b)", ""),
    (r"\b(?:end(?:ed)? up|(?:got|get|gotten) (?:a?round) to|went (?:on|ahead) and) (?=\w+)", ""),
    (r"\b(?:got|get|getting|gotten) to know\b", "first meet"),
    (r"\b(?:make|made) (?:the acquaintance of (.+)|(.+?)['’]s acquaintance)",
     lambda m: f"first meet {m[1] or m[2]}"),
    (r"\b(?:can|could|may|would|might) (?=.+ be found\b)(.+) be found\b", r"does \1"),
    (r"\b(how old|how many years old|what age|age) (?:would|might|could|must|may|will) (.+?) "
     r"(?:have been|be)\b", r"\1 was \2"),
    (r"\b(have|has|had) (\w+) just (?=\w)", r"\1 \2 last "),
    (r"\b(?:each other|one another|even once|at least once|ever once|so much as once|for me)\b",
     ""),
    (r"\bonce (?=i\b|we\b|he\b|she\b|they\b)", "after "),
    (r"\b(?:only|not) (?=.*\bafter\b)(?=.+ (?:after|until after)\b)", ""),
    (r"^having\b", "after"),
    (r"\bmy (?:good |old |dear )?(?:friend|mate|pal|buddy) (?=[A-Z])", ""),
    (r"\b(?:called|named|titled|entitled) (?=[A-Z])", ""),
    (r"\b(?:sort|kind|type)s? of (?=\w)", ""),
    (r"\b(have|has|had) (\w+) (?:been )?on (?:a|the|board (?:a|the)) (?:plane|flight)\b",
     r"\1 \2 flown"),
    (r"^(?:my|the) reading list\b", "list books I read"),
    (r"\b(how much (?:money|cash)) (.*)\b(?:get|got|gone|go|went) through\b", r"\1 \2spend"),
    # idioms
    (r"^what (does|do|did) (.+?) do (?:for|as) (?:a |his |her |my )?"
     r"(?:living|job|work|profession)\b", r"what occupation \1 \2 have"),
    (r"\bspen[dt](?:ing)? (?:any |some |much |a lot of )?time with\b", "meet with"),
    (r"\bwith (whom?) (.+?) spen[dt] (?:any |some )?time\b", r"\1 \2 meet with"),
    (r",? (?:price|cost|money|date|time)[- ]?wise\b", ""),
    (r"^(is it true that .+) once$", r"\1"),
    (r"^((?:for )?how long .+) (?:when|before|until|till) i (?:left|moved (?:out|away|on))$",
     r"\1"),
    (rf"^when (.+?), ((?!{WH} ?(?:is|was) the (?:order|sequence)){WH} .+)$", r"\2 when \1"),
    (r"\b(most \w+|least \w+|highest|lowest|\w{2,}est|first|last) of (?:all )?(?:the|my|our) "
     r"([a-z]+?)s\b(?! or\b)", r"\1 \2"),
    (r"^did (.+?) first,? and (?:then )?(.+?) (?:afterwards?|later|second|next|after that)$",
     r"did \1 before \2"),
    (r"^did (.+?),? and (?:then|afterwards|only then|after that) (.+)$", r"did \1 before \2"),
    (r"^(is|was|were) it only (?=after\b)", r"\1 it "),
    (r"\b(?:ahead|in advance) of\b", "before"),
    (r"\bwhere (?:in the world|on earth)\b", "where"),
    (r"^(?:oldest|earliest|first) to (?:newest|latest|last)[:,] ", "put in order: "),
    (r"^(i|we|he|she) (.+?) (how (?:long|many \w+)) (?:after|before) (.+)$",
     r"\3 are between \1 \2 and \4"),
    (r"^(days|weeks|months|years) (?=from\b|between\b|since\b)", r"how many \1 "),
    (r",? in (day|week|month|year)s,? (?=between\b)", r" in \1s "),
    (r"\bhow many (?:euros|dollars|pounds|kroner) (?=(?:went|go|goes) (?:on|to|for|into)\b)",
     "how much money "),
    (r"^(?:what is )?(?:the )?(?:money|amount|sum)(?: of money)?(?: that)? (?=i\b|we\b)",
     "what is the amount "),
    (r"\bper[- ](day|week|month|year) (\w+) of (.+)$", r"\2 of \3 a \1"),
    # periods
    (rf"\bover (?={_PERIOD})(?! (?:euros|dollars|pounds|kroner))", "in "),
    (rf"\bas of (?=(?:\d|{MONTH}))", "in "),
    (rf"^({_PERIOD}) (?=[a-z]+s\b)(.+)", r"\2 in \1"),
    (r"\b(last|this|past) (year|month|week)['’]s (.+)", r"\3 \1 \2"),
    (rf"\b(?:begin|began|start|started|open|opened) (?:my |the year )?({_YEAR}) with\b",
     r"first in \1"),
    (rf"^with (which|what) (.+?) did (?:my |the year )?({_YEAR}) (?:begin|start|open)$",
     r"which \2 first in \3"),
    (rf"\b(my|the|our|all|every|each) ({_YEAR}) ([a-z]+)\b", r"\1 \3 in \2"),
    (rf"^what did (?:the year )?({_YEAR}) cost\b", r"what did I pay altogether in \1"),
    # times
    (r"\b(?:prior|previous) to\b", "before"),
    (r"\b(?:subsequent to|later than|following)\b", "after"),
    (r"\bearlier than\b", "before"),
    (r"\b(?:over|in|during|for|throughout|within)? ?(?:the )?(?:course|run|span|whole|entire|time|"
     rf"entirety|all|full)(?: of)? (?=(?:{MONTH} )?(?:19|20)\d\d\b)", "in "),
    (r"\b(?:over|in|during) the (?:course|run|span|whole|time) of\b", "in"),
    (r"\b(?:throughout|within|all through)\b", "in"),
    (rf"\bthe (?:calendar )?(?:years?|month of)(?= (?:{MONTH} )?(?:19|20)\d\d\b)", ""),
    (rf"\b({MONTH}) of (?=(?:19|20)\d\d\b)", r"\1 "),
    (rf"\b(?:from|between) ({MONTH})(?: to| and| through| until|[-–]) ({MONTH}) (\d{{4}})\b",
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
    (rf"\b(?:since|(?:starting|beginning)(?: from| at| with)?|from) (?:the )?(?:very )?"
     rf"(?:start|beginning|first day) of (?={_PERIOD})(?!.* (?:to|until|till|through) )", "since "),
    (rf"\b(?:for|of|from) (?={_PERIOD})(?!.* (?:to|until|till|through|and) (?:{MONTH}|{_YEAR}))"
     rf"(?!{_PERIOD} (?:on|onwards?)\b)", "in "),
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
    (rf"^({WH}.*\b(?:is|was|are|were)\b.*) again$", r"\1"),
    # one word of several
    (r"\bwhereabouts\b", "where"),
    (r"^(?:the )?(?:names?|titles?) of (?=(?:all |the |every)*[a-z]+s\b)", "list "),
    (r"([a-z]s) (?=(?:19|20)\d\d\b)(?<!years )", r"\1 in "),
    (r"\bhow (?:frequent|regular)\b", "how often"),
    (r"^how (?:high|large|big) (?:is|was|were|are) "
     r"(?=.*\b(?:spending|expenditures?|expenses|bills?|"
     r"total|sum|outlays?)\b)", "what is the total of "),
    (r"^how (?:early|soon)\b", "when"),
    (r"^how (?:high|low)\b", lambda m: f"what {m[0][4:].lower()}est"),
    (r"\b(time|days|weeks|months|years) spent\b", r"\1"),
    (r"\b(time|days|weeks|months|years)(?: that)? (\w+) (?:have |had |has )?spen[dt] (?=\w+ing\b)",
     r"\1 \2 "),
    (r"\b(?:the )?(?:names?|titles?) of (?=(?:all |the |every)*[a-z]+s?\b)(?! my)", ""),
    (r"\bhow recently\b", "when last"),
    (r"^(?:at|with) (?:what|which) (?:rate|pace|frequency)\b", "how often"),
    (r"^how much of my (?:life|time)\b", "how much time"),
    (r"^(how much time|(?:for )?how (?:long|many (?:day|week|month|year)s)) "
     r"(.*?)\bspen[dt](?: living| working)? in\b", r"\1 \2 live in"),
    (r"^how much time (.*?)\bspen[dt] (?:working )?(?=at\b|with\b|for\b)", r"how long \1 work "),
    (r"\bhow much (?:money )?(?=(?:went|goes|has gone) (?:on|to|for|into|out)\b)",
     "how much money "),
    (r"\b(highest|lowest)[- ]priced\b", r"\1 priced"),
    (r"\b(?:biggest|largest|greatest) (?=purchases?\b|buys?\b)", "most expensive "),
    (r"\b(?:smallest|tiniest) (?=purchases?\b|buys?\b)", "least expensive "),
    (r"^(where .*)\bbeen\b(?! \w+(?:ing|ed)\b)", r"\1visited"),
    (r"\bin (?:an|the) average (day|week|month|year)(?: (?:of|in))?\b", r"a \1 in"),
    (r"\ba (day|week|month|year) in$", r"a \1"),
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
    (r"\b(?:more often|more frequently|more times|more) than (?:any|every|all|the)"
     r"(?:one|body|thing|where)?(?: (?:else|others?(?: (?!in\b|on\b|during\b)[a-z]+)?))?\b",
     "most often"),
    (r"\bbefore (?:any|all|every)(?:thing|one|body)?(?: of)?(?: the)? "
     r"(?:else|rest|others?(?: (?!in\b)[a-z]+)?)\b", "first"),
    (r"\bmost (?:frequent|common|usual|popular|regular)\b|\b(?:the )?most of(?= in\b|$)",
     "most often"),
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
    (r"\bbeen (?:to|in)\b", "visited"),
    (r"^(?:was|were|had) (i|we|he|she|they|[A-Z]\w+)(?: been)? in (?=[A-Z]\w+ (?:before|after)\b)",
     r"did \1 visit "),
    (r"\b(how much time|how many (?:days|weeks|months|years)) (\w+) (.+?) spen[dt] (?=\w+ing\b)",
     r"\1 \2 \3 "),
    (r"^(?:is|was) it (before|after) (.+?) that (.+)$", r"did \3 \1 \2"),
    (r"^(?:is|was) it (.+?) or (.+?) that (.+?) (first|earlier)$", r"which did \3 first, \1 or \2"),
    (r"^(have|has|had|did|is it true that) (.+) before$", r"\1 \2"),
    (r"^(?:by the time|when) (.+?), (had) (.+)$", r"\2 \3 before \1"),
    (rf"^(.*?)\b({_PER})\b,? ?(.*)$", lambda m: f"{m[1]}{m[3]} a {_UNITS[m[2].lower()]}"),
    # of several, which was first: "of Rome and Oslo, which did I see first"
    (r"^(?:of|between|out of|from) (.+) and (.+?), ((?:which|what|where)\b.*\b(?:first|earlier))\b",
     r"\3, \1 or \2"),
    (r"^(which|what) of (?!the\b|my\b|these\b|those\b|them\b)(.+) and (.+?) "
     r"((?:did|was|were|had|have|came|is)\b.*\b(?:first|earlier))$", r"\1 \4, \2 or \3"),
    (r"^did (\w+) first (.+) or (?:first )?(.+?)(?: first)?$", r"did \1 \2 or \3 first"),
    (r"^when (.+), what (?:is|was) the (?:order|sequence)$", r"in what order \1"),
    (r"^(?:had|was|were|did) (.+) (?:when|by the time(?: that)?) (?=i\b|we\b|he\b|she\b)",
     r"did \1 before "),
    (r"^(?:back|way back) (?=in\b)", ""),
    (r"^(.+?),? from (?:the |my )?first to (?:the |my )?last ([a-z]+?)s?$",
     r"\1 in order of my \2s"),
    (r" +:", ":"),
)  # fmt: skip
WORDS = tuple((re.compile(one, re.IGNORECASE), put) for one, put in _PLAIN_WORDS)
