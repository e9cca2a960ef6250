"""English word lists of the rules: words that are no names, verbs, countries and so on."""

from __future__ import annotations

from turngraph.data.entities import FUNCTION_WORDS
from turngraph.data.normalise import MONTHS

WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen twenty".split()
    )
} | {
    word: 10 * number
    for number, word in enumerate("thirty forty fifty sixty seventy eighty ninety".split(), 3)
}

NOT_NAMES = frozenset(
    "i me my mine we us you your yours he him his she her hers it its they them their ok okay mr "
    "mrs ms dr am pm yes no hi hey hello thanks bye omg lol wow".split()
) | frozenset(WEEKDAYS + MONTHS)
"""Words that are no names when alone, anywhere in a sentence."""

OPENERS = FUNCTION_WORDS | frozenset(
    "ah aha aw aww awesome absolutely actually agreed alright almost already amazing another "
    "anyone anything anyway apparently are aren't ask awhile back bad basically be beautiful being "
    "believe best better big both break bring but buy bye call can can't check cheers clearly come "
    "compare congrats congratulations consider correction could couldn't currently damn dear "
    "definitely describe did didn't different do does doesn't don't dunno either else enjoy enough "
    "especially even ever every everyone everything everywhere exactly excellent fantastic far "
    "fine find first five follow former formerly four fun generally get getting give glad go going "
    "gonna good goodbye gotta great guess haha had hang happy has hasn't have haven't having hear "
    "heard heck hello help here's hey hi hmm hold honestly hope hopefully how's imagine important "
    "included includes including incredible indeed inside interesting isn't it's join just keep "
    "kind know last lastly lately later least let let's list little long look looking looks lots "
    "love loved lovely luckily made make making many married maybe me mine moreover my myself name "
    "near nearly need neither new next nice nobody none nope note nothing obviously oh ok okay old "
    "omg one ones oops originally otherwise ouch outside overall own particularly people perfect "
    "perhaps personally please plus possibly previously probably pretty presumably put question "
    "quick quite rather read reading really recently regarding regardless remember right round "
    "sadly said same saw say says see seeing seems seen set shall share she's short should "
    "shouldn't show similarly simply sincere small somebody someday somehow someone something "
    "sometimes soon sorry sort sounds speaking specifically start started starting still stop sure "
    "surely take taking talk tell ten thank thankfully thanks that'll that's then there's they're "
    "they've thing things think thinking think thought three thrice today together tomorrow "
    "tonight too totally tried true try trying twice typically ugh um under unfortunately usually "
    "very wait waiting wanna want wanted wasn't watch we'd we'll we're we've welcome well went "
    "weren't what's what'd whatever whenever where's wherever whether whoever who's why's will "
    "wish wishing within won't wonder wonderful work working worth would wouldn't wow wrong yay "
    "yeah yep yes yesterday yet yo you'd you'll you're you've young yup zero a.k.a i'm i'd i'll "
    "i've he's he'd he'll she'd she'll they'd they'll it'll ain't good-bye sir ma'am hang "
    "aren't ours yours hers theirs us ago given named called located based born known using used "
    "among amid per via throughout across along behind beside besides beyond except past toward "
    "towards whereas whose ever half several certain additionally according due early late each "
    "somewhat subsequently nowadays ultimately initially soon afterwards beforehand morning "
    "afternoon evening night noon midnight weekend week month year day unless neither nor suppose "
    "supposing imagine assume assuming instead failing hardly scarcely barely rarely seldom never "
    "not nowhere none only although despite whereas".split()
)
"""Lower-case forms of words that begin sentences; alone and first they are no names."""

ADVERBS = frozenset(
    "also always already actually again currently now nowadays still just recently really finally "
    "only both first later then originally previously formerly probably officially soon often "
    "usually sometimes eventually ever once today happily legally permanently temporarily finally "
    "yet very so too totally quite newly well mostly mainly primarily simply even initially "
    "subsequently together alone back".split()
)
"""Words that may be between a subject and its verb without changing the statement."""

NOUNS_IN_LY = frozenset(
    "family reply supply assembly jelly belly ally bully lily butterfly monopoly anomaly "
    "melancholy doily dragonfly firefly homily daily weekly monthly friendly elderly lovely lonely "
    "early likely unlikely italy july".split()
)
"""Words in "-ly" that are no adverbs."""

LASTING = frozenset(
    "open closed full empty available unavailable negative positive normal benign".split()
)
"""Adjectives that state a condition of a thing, not an impression."""

MORE = frozenset("also too another second both additionally besides part-time".split())
"""Words that add to an old fact instead of replacing it."""

DOUBT = frozenset(
    "maybe perhaps possibly probably might may could would if unless wonder wondering wish "
    "hopefully suppose supposedly allegedly apparently rumoured rumored presumably potentially "
    "hypothetically imagine supposing assuming whether".split()
)
"""Words that make a statement a hypothesis."""

UNITS = frozenset(
    "euro euros dollar dollars pound pounds franc francs kronor crowns yen cent cents percent "
    "km kilometre kilometres kilometer kilometers metre metres meter meters mile miles feet "
    "kilo kilos kg gram grams hour hours minute minutes second seconds day days week weeks "
    "month months year years people times hundred thousand million billion trillion shares votes "
    "points goals tonnes tons litres hectares acres".split()
)
"""Words that a number counts; such a number does not belong to the name before it."""

STOP_WORDS = (
    FUNCTION_WORDS
    | ADVERBS
    | frozenset(
        "am i me my mine myself us being get got getting gets go goes going gone went come came "
        "coming make made makes making take took takes taking thing things stuff lot lots way "
        "really much good great nice new old big little bit kind sort want wants wanted need needs "
        "like likes liked love loves loved know knows think thinks thought feel feels felt see saw "
        "seen look looks looking say says said tell told give gives gave let just gonna gotta yeah "
        "yes oh wow hey hi thanks thank sure okay ok cool awesome amazing maybe perhaps pretty "
        "something anything nothing everything someone anyone everyone one ones ago yesterday "
        "tomorrow today tonight last next week month year day time times many ever don't doesn't "
        "didn't isn't aren't wasn't weren't can't couldn't won't wouldn't i'm i've i'd i'll you're "
        "you've it's that's there's he's she's we're they're let's what's best better first keep "
        "keeps kept try trying tried help helps helped find found start started work works working "
        "use used put happen happened happens name names called type many long".split()
    )
)
"""Words that are in no noun phrase in lower case."""

_IRREGULAR = (  # base, past, participle where it differs
    "be was been|have had|do did done|go went gone|become became become|begin began begun|"
    "break broke broken|bring brought|build built|buy bought|catch caught|choose chose chosen|"
    "come came come|cost cost|cut cut|draw drew drawn|drink drank drunk|drive drove driven|"
    "eat ate eaten|fall fell fallen|feel felt|find found|fly flew flown|forget forgot forgotten|"
    "get got gotten|give gave given|grow grew grown|hear heard|hold held|hurt hurt|keep kept|"
    "know knew known|lead led|leave left|lend lent|lose lost|make made|mean meant|meet met|"
    "pay paid|put put|quit quit|read read|ride rode ridden|run ran run|see saw seen|"
    "sell sold|send sent|sing sang sung|sit sat|sleep slept|speak spoke spoken|spend spent|"
    "stand stood|swim swam swum|take took taken|teach taught|tell told|think thought|"
    "understand understood|wear wore worn|rise rose risen|steal stole stolen|throw threw thrown|"
    "hide hid hidden|freeze froze frozen|fight fought|hang hung|shut shut|strike struck|"
    "seek sought|withdraw withdrew withdrawn|undergo underwent undergone|feed fed|"
    "overcome overcame overcome|"
    "flee fled|lie lay lain|split split|dig dug|sink sank sunk|spread spread|swear swore sworn|"
    "tear tore torn|wake woke woken|bite bit bitten|blow blew blown|shake shook shaken|breed bred|"
    "win won|write wrote written|wed wed|set set|shoot shot|beat beat beaten|hit hit|"
    "bear bore borne|bend bent|bind bound|burn burnt|cast cast|forbid forbade forbidden|lay laid|"
    "let let|oversee oversaw overseen|overtake overtook overtaken|rebuild rebuilt|"
    "rewrite rewrote rewritten|ring rang rung|sew sewed sewn|shine shone|shrink shrank shrunk|"
    "spin spun|sweep swept|undertake undertook undertaken|weave wove woven|withstand withstood|"
    "arise arose arisen|cling clung|deal dealt|kneel knelt|outgrow outgrew outgrown|"
    "overthrow overthrew overthrown|repay repaid|show showed shown|slide slid|sow sowed sown|"
    "stick stuck|sting stung|strive strove striven|swell swelled swollen|swing swung|uphold upheld|"
    "weep wept"
)
_REGULAR = (
    "live work move reside relocate settle stay marry divorce separate retire join found "
    "establish acquire own use like love hate enjoy prefer play study attend visit direct produce "
    "star portray appear serve graduate host manage start open close create invent discover "
    "release publish record perform design compose narrate adapt translate teach train coach "
    "support help adopt name call employ hire promote appoint elect die travel return plan want "
    "need hope consider decide finish stop end turn weigh contain include feature cover border "
    "locate base represent belong compete score defeat collaborate volunteer practice practise "
    "paint cook bake collect research explore learn apply sign register order purchase receive "
    "earn donate watch listen follow celebrate organize organise participate raise switch change "
    "replace rename date engage share rent borrow owe measure cost dislike fear miss trust know "
    "voice edit develop debut premiere air broadcast flow cross succeed precede inherit bequeath "
    "arrive depart emigrate immigrate camp hike bike jog run dance knit garden photograph sponsor "
    "mentor tutor launch declare offer add connect form consist award nominate attack invade rule "
    "govern conquer capture negotiate reach describe suggest surprise remind adore network "
    "collapse complete confirm consult deliver demolish destroy dissolve distribute dominate "
    "enter examine expand expire explode extend improve inform inspect install introduce invite "
    "kill maintain manufacture merge modernise modernize occupy operate persuade postpone "
    "preserve promise protect prove pursue reject remain remove renovate repair reschedule "
    "respond restore reveal save select solve suffer thank threaten transform unveil warn adjourn "
    "cancel amend assemble assist beg behave breathe carry cease challenge climb combine complain "
    "conduct consume convert convince coordinate decorate dedicate defend deny depend destine "
    "detect devote disappear disappoint educate emerge encourage enrol enroll ensure exist expect "
    "fail fill fix fold generate grant handle heal identify ignore imagine injure inspire insure "
    "investigate migrate obtain occur oppose persist predict prepare prevent prohibit propose "
    "refuse relate rely require resemble resign specialise specialize steer stretch surrender "
    "tackle vary wander erupt enable calculate illustrate memorise memorize subscribe unlock "
    "vibrate sentence dream melt orbit overlook abandon absorb accept accompany accuse achieve "
    "administer admire admit advise affect allow announce approve argue arrange assess assign "
    "attain attract avoid bury commemorate comprise conclude construct contribute criticise "
    "cultivate define depict deploy detain determine diagnose discuss dismiss displace divide "
    "drain eliminate enclose encounter endorse enlist evacuate exceed exclude execute explain "
    "express gain gather impose impress infect inhabit invest "
    "involve modify neglect originate outlive "
    "permit pollinate populate possess predate preside provide punish qualify recommend recover "
    "recruit reduce refer regain relaunch remember reopen repaint retain secure seize submit "
    "supervise survive suspend topple unite "
    "abolish accelerate accommodate accomplish accumulate acknowledge activate adjust advertise "
    "advocate afford agree allocate alter amaze amuse analyse analyze annoy anticipate apologise "
    "apologize applaud appreciate ask assert associate assure besiege betray brew browse cater "
    "chew chop cite clarify classify collide colonise commute compensate compile compare comply "
    "communicate conceal conceive concentrate condemn confess confine confront confuse conserve "
    "consolidate constitute contemplate contend continue contradict converge convey cope "
    "correspond crawl criticize cry deepen descend deserve deteriorate dictate differ digitise "
    "diminish dine disagree disapprove discharge disembark dismantle dispose disrupt distinguish "
    "disturb dive dredge drown dwell ease elevate embark embroider emphasise emphasize enact "
    "endure enforce engrave enhance enlarge enrich enslave entail entertain entitle equip "
    "evaluate evolve excavate exploit expose facilitate fade fascinate fasten fertilise fetch "
    "flourish formulate fortify foster frighten fry fulfil fulfill garnish gaze germinate gild "
    "greet grill hesitate hibernate hinder imitate implement imply imprison incorporate incur "
    "indicate induce inject inscribe insert insist instruct insulate integrate intend intensify "
    "interact interfere interpret interrupt intervene irritate isolate justify liaise mend "
    "motivate mourn multiply notify obey obsess oblige observe ordain outnumber outperform "
    "overhear overlap overrule overturn pause peel perceive plead please plunder pray preach "
    "prescribe prevail proceed proclaim pronounce prosecute provoke prune ratify react realise "
    "realize reappear recite reckon recognise recognize reconsider reconstruct recount recycle "
    "reimburse refresh refurbish regulate rehearse reinforce relax relieve render renew repeat "
    "reproduce resist resolve restrict retrieve reunite revise revive revolve rinse ripen roam "
    "rob satisfy scatter scrape scratch sculpt sharpen shave shorten shout simmer simplify skip "
    "smash sneeze snatch soak soar soothe specify spill spoil sprinkle sprout squeeze stimulate "
    "stir stitch strengthen stroll stumble subsidise substitute sue summarise summarize surpass "
    "sustain swallow sympathise symbolise symbolize talk tempt tend testify thaw thicken thrive "
    "tighten tolerate transmit transplant tremble trim tuck tumble undermine unearth unfold unify "
    "unload unpack urge utilise vacate vanish violate wade wait walk whisper whistle widen wipe "
    "worship yell audition authenticate baptise bribe burgle capsize carve christen confiscate "
    "convict crochet curate debug delete demonstrate demote deprecate derail distil encrypt evict "
    "exhume extinguish ferment forge hatch graze improvise inaugurate inoculate knead mow "
    "paste plummet quarrel raze refute relapse resuscitate revert scold smuggle sprain stab "
    "strangle swerve triple uninstall vaccinate validate verify vomit weld whisk wither".split()
)
_NAMED_BY_NOUNS = (
    "head boil charge deal last fuel light rank stock pilot author captain farm fish land lease "
    "mine model nurse park partner plant pump ship staff stem tour answer commission damage "
    "double export finance flood guard import issue load monitor notice pass rescue smoke "
    "surround swap test upgrade wash delay block chair claim clean cycle decrease escape exchange "
    "guide hunt increase influence kiss lack lecture lock mark master murder pull push quote "
    "arrest ban campaign control cure embrace experience estimate exhibit face flank harvest "
    "praise recall reign seat shape span trigger "
    "regret report request retreat review reward ruin sail schedule shelter speed stage store "
    "struggle supply taste tie total touch track trade transfer transport treat vote warm welcome "
    "witness worry yield pair display print scan bill refund deposit fund link label audit "
    "act aim appeal bark howl hum approach attempt benefit blame blend bloom blossom boost cause "
    "chat chase compromise contact contrast count credit debate decline demand dispute drift drop "
    "dry echo email favour flavour float force glow halt harm haul heat highlight honour house "
    "interview jump kick knock laugh lift look match mention mount pick pledge press protest "
    "reform remark reply reserve respect rest resume reverse risk roast roll rush salute scare "
    "search shift shock smell smile sound spot steam step stew stress strip suit supplement "
    "suspect sweat target toss trace trip try tune twist value view wave wrap pack phone pioneer "
    "scrub slip snap tease surge survey trap delight desire index crash escort patrol leak cough "
    "fracture veto glaze raid catalogue loan nest roost sail moor"
).split()
"""Verbs whose base form is usually a noun: "the head", but "she heads"."""


def _third(base: str) -> str:
    if base.endswith(("s", "sh", "ch", "x", "z", "o")):
        return f"{base}es"
    return f"{base[:-1]}ies" if base[-1:] == "y" and base[-2:-1] not in "aeiou" else f"{base}s"


def _past(base: str) -> str:
    if base.endswith("e"):
        return f"{base}d"
    if base[-1] == "y" and base[-2:-1] not in "aeiou":
        return f"{base[:-1]}ied"
    return f"{_doubled(base)}ed"


_DOUBLING = frozenset(
    "prefer refer transfer occur commit admit cancel travel model enrol submit permit control "
    "regret equip overlap trim strip scrub snap forget".split()
)


def _doubled(base: str) -> str:
    is_short = (
        len(base) < 5
        and base not in ("open", "edit")
        and base[-1] in "bdgmnprt"
        and base[-2] in "aeiou"
    )
    if base in _DOUBLING:
        return base + base[-1]
    vowels = base[-3:-1] if base[-3:-1] != "ui" else base[-2]  # "quit" doubles, "wear" does not
    return base + base[-1] if is_short and len(vowels.strip("bcdfghjklmnpqrstvwxyz")) == 1 else base


def _ing(base: str) -> str:
    return f"{base[:-1]}ing" if base[-1] == "e" and base[-2] != "e" else f"{_doubled(base)}ing"


def _verb_forms() -> dict[str, tuple[str, str]]:
    """Return form -> (base, kind: base, third, past, participle or ing).

    Where forms of a verb coincide, the first of these kinds wins.
    """
    parts = {base: (_past(base), _past(base)) for base in _REGULAR}
    for entry in _IRREGULAR.split("|"):
        base, past, *rest = entry.split()
        parts[base] = past, rest[0] if rest else past
    parts |= {base: (_past(base), _past(base)) for base in _NAMED_BY_NOUNS if base not in parts}
    forms: dict[str, tuple[str, str]] = {}
    for base, (past, participle) in parts.items():
        forms[_ing(base)] = base, "ing"
        forms[participle] = base, "participle"
        forms[past] = base, "past"
        forms[_third(base)] = base, "third"
        if base not in _NAMED_BY_NOUNS:
            forms[base] = base, "base"
    forms |= {"has": ("have", "third"), "does": ("do", "third"), "is": ("be", "third")}
    forms |= {"am": ("be", "base"), "are": ("be", "base"), "were": ("be", "past")}
    forms |= {"born": ("bear", "participle"), "quit": ("quit", "past")}
    forms |= {"dreamt": ("dream", "past"), "learnt": ("learn", "past")}
    forms |= {"being": ("be", "ing"), "beginning": ("begin", "ing")}
    forms |= {"practising": ("practise", "ing"), "dying": ("die", "ing"), "lying": ("lie", "ing")}
    return forms


VERB_FORMS = _verb_forms()
PAST = {base: form for form, (base, kind) in VERB_FORMS.items() if kind == "past"}
PARTICIPLES = {base: form for form, (base, kind) in VERB_FORMS.items() if kind == "participle"}


def third_person(base: str) -> str:
    """Return the form of a verb after "she": "lives", "has", "is"."""
    return {"be": "is", "have": "has"}.get(base) or _third(base)


COUNTRIES = frozenset(
    "afghanistan albania algeria andorra angola argentina armenia australia austria azerbaijan "
    "bahamas bahrain bangladesh barbados belarus belgium belize benin bhutan bolivia bosnia "
    "botswana brazil brunei bulgaria burundi cambodia cameroon canada chad chile china colombia "
    "congo croatia cuba cyprus czechia denmark dominica ecuador egypt england eritrea estonia "
    "eswatini ethiopia fiji finland france gabon gambia georgia germany ghana greece grenada "
    "guatemala guinea guyana haiti honduras hungary iceland india indonesia iran iraq ireland "
    "israel italy jamaica japan jordan kazakhstan kenya kosovo kuwait kyrgyzstan laos latvia "
    "lebanon lesotho liberia libya liechtenstein lithuania madagascar malawi malaysia maldives "
    "mali malta mauritania mauritius mexico moldova mongolia montenegro morocco mozambique myanmar "
    "namibia nepal netherlands nicaragua niger nigeria norway oman pakistan palestine panama "
    "paraguay peru philippines poland portugal qatar romania russia rwanda scotland senegal serbia "
    "singapore slovakia slovenia somalia spain sudan suriname sweden switzerland syria taiwan "
    "tajikistan tanzania thailand togo tunisia turkey turkmenistan uganda ukraine uruguay usa uk "
    "uzbekistan vanuatu venezuela vietnam wales yemen zambia zimbabwe europe asia africa america "
    "oceania antarctica scandinavia".split()
) | frozenset(
    {"united states", "united states of america", "united kingdom", "great britain", "new zealand"}
    | {"south africa", "south korea", "north korea", "saudi arabia", "sri lanka", "costa rica"}
    | {"el salvador", "ivory coast", "sierra leone", "u s", "u s a", "u k", "czech republic"}
    | {"dominican republic", "united arab emirates", "burkina faso", "south sudan", "north america"}
    | {"south america", "puerto rico"}
)
CONTINENTS = frozenset(
    {"africa", "europe", "asia", "antarctica", "oceania", "north america", "south america"}
)
STATES = frozenset(
    "alabama alaska arizona arkansas california colorado connecticut delaware florida georgia "
    "hawaii idaho illinois indiana iowa kansas kentucky louisiana maine maryland massachusetts "
    "michigan minnesota mississippi missouri montana nebraska nevada ohio oklahoma oregon "
    "pennsylvania tennessee texas utah vermont virginia washington wisconsin wyoming".split()
) | frozenset(
    {"new hampshire", "new jersey", "new mexico", "new york", "north carolina", "north dakota"}
    | {"rhode island", "south carolina", "south dakota", "west virginia"}
)
"""States of the United States."""
