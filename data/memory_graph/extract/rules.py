"""Extractor without a model: every sentence becomes a thesis, and a plain sentence also triplets.

PersonalAI (arXiv 2506.17001) asks a language model instead. The rules read English statements with
one verb, and find names, dates and quotes in any script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from turngraph.data.memory_graph.extract.aspects import find_replaced
from turngraph.data.memory_graph.extract.dates import Date, find_dates
from turngraph.data.memory_graph.extract.sentence_mentions import (
    Spellings,
    Token,
    full_names,
    join_names,
    mentions,
    phrases,
    plain_text,
    tokenise,
)
from turngraph.data.memory_graph.extract.sentences import Sentence, split_episode
from turngraph.data.memory_graph.extract.statements import Reader, is_hypothesis
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Span,
    Thesis,
    Triplet,
    Update,
)
from turngraph.data.memory_graph.times import local_time, start
from turngraph.data.normalise import fold
from turngraph.data.table_structure import row_cells

THIRD_PERSON = frozenset("he him his she her hers it its they them their theirs".split())
"""Pronouns that may refer to a name in the last sentence with one."""
_SentenceKey = tuple[str, str | None, str | None, Span | None]


class RulesExtractor:
    """Extractor of theses, entities and simple triplets by rules.

    In sentences with a speaker, noun phrases in lower case ("pottery class") are entities, too.
    """

    name = "rules"

    def __init__(self) -> None:
        self._said: dict[_SentenceKey, list[Triplet]] = {}
        """Triplets of the sentences in the last call of ``extract``, for ``replaced``."""

    def extract(
        self, episodes: Sequence[Episode], known_as: Sequence[Episode] | None = None
    ) -> list[Extraction]:
        """Return one extraction for every episode, in order; each depends on its episode alone.

        Args:
            episodes: episodes to read.
            known_as: the episodes with which ``replaced`` will be called, if ``episodes`` are only
                parts of these; None: ``episodes``.
        """
        self._said.clear()
        pairs = zip(episodes, known_as or episodes, strict=True)
        return [self._extract(episode, known) for episode, known in pairs]

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """Return, for every update, the keys of the known facts that the new statement replaces."""
        return [
            find_replaced(update, self._said.get(_sentence_key(update.episode, update.new.span)))
            for update in updates
        ]

    def entities(self, question: str) -> list[str]:
        """Return the names, quotes, dates and numbers of a question, then its noun phrases."""
        text, links = plain_text(question)
        dates = find_dates(text, None)
        tokens = join_names(tokenise(text, dates), text, Spellings())
        return list(dict.fromkeys([*links, *mentions(tokens, dates), *phrases(tokens)]))

    def cost(self) -> dict[str, float]:
        """Return {}: the rules use no tokens and no requests."""
        return {}

    def _extract(self, episode: Episode, known: Episode) -> Extraction:
        sentences = split_episode(episode)
        plain = [plain_text(sentence.text) for sentence in sentences]
        said = local_time(episode.time, episode.properties)
        dates = _dates_of([text for text, _ in plain], said)
        tokens = [tokenise(text, when) for (text, _), when in zip(plain, dates, strict=True)]
        seen = Spellings()
        for words in tokens:
            seen.add(words)
        joined = [
            join_names(words, text, seen) for words, (text, _) in zip(tokens, plain, strict=True)
        ]
        full = full_names(joined, sentences[0].topic if sentences else None)
        theses: list[Thesis] = []
        triplets: list[Triplet] = []
        times: list[str] = []
        reader, named = Reader(), list[str]()
        for sentence, (text, links), when, words in zip(
            sentences, plain, dates, joined, strict=True
        ):
            if full:
                links = [*links, *(full[word.text] for word in words if word.text in full)]
            is_row = sentence.speaker is None and _is_row(text)
            stated = [] if is_row else reader.read(_with_full_names(words, full), when, sentence)
            is_meant = any(word.lower in THIRD_PERSON for word in words)
            about = [*links, *named] if is_meant else links
            named = [word.text for word in words if word.kind == "name"] or named
            thesis = self._thesis(sentence, text, about, words, when)
            theses.append(replace(thesis, valid_from=_begin(stated, when, said)))
            triplets += stated
            self._said[_sentence_key(known, sentence.span)] = stated
            times += [date.first for date in when if date.is_exact]
        return Extraction(tuple(triplets), tuple(theses), tuple(dict.fromkeys(times)))

    def _thesis(
        self,
        sentence: Sentence,
        text: str,
        links: Sequence[str],
        words: Sequence[Token],
        dates: Sequence[Date],
    ) -> Thesis:
        names = [*links, *mentions(words, dates)]
        if sentence.speaker is not None:
            names += phrases(words)
        about = sentence.speaker or sentence.topic
        if about is not None:
            names.insert(0, about)
        return Thesis(
            text=_self_contained(sentence, text, dates),
            entities=tuple(dict.fromkeys(names)),
            hypothesis=is_hypothesis(words),
            span=sentence.span,
        )


def _dates_of(texts: Sequence[str], said: str | None) -> list[list[Date]]:
    """Return the dates of consecutive sentences; "the same day" is the last one stated."""
    dates: list[list[Date]] = []
    last: str | None = None
    for text in texts:
        dates.append(find_dates(text, said, last))
        last = next((date.first for date in reversed(dates[-1]) if len(date.first) == 10), last)
    return dates


def _begin(stated: Sequence[Triplet], dates: Sequence[Date], said: str | None) -> str | None:
    """Return the begin of a thesis: that of its first triplet, else a past date in the sentence."""
    begins = [triplet.valid_from for triplet in stated if not triplet.hypothesis]
    if begins:
        return None if None in begins else min(filter(None, begins), key=start)
    past = [date.first for date in dates if said is not None and start(date.first) <= start(said)]
    return min(past, key=start, default=None)


def _with_full_names(words: Sequence[Token], full: Mapping[str, str]) -> Sequence[Token]:
    if not full:
        return words
    return [
        word._replace(text=full[word.text], lower=full[word.text].lower())
        if word.kind == "name" and word.text in full
        else word
        for word in words
    ]


def _is_row(text: str) -> bool:
    """Return whether a text is a linearised table row, whose cells state nothing by themselves."""
    return not text.rstrip().endswith((".", "!", "?")) and len(row_cells(text)) > 1


def _sentence_key(episode: Episode, span: Span | None) -> _SentenceKey:
    """Return a key of all input on which a sentence's triplets depend."""
    return episode.text, episode.speaker, episode.properties.get("title"), span


def _self_contained(sentence: Sentence, text: str, dates: Sequence[Date]) -> str:
    """Return a sentence with its speaker or topic in front, and dates after relative ones."""
    for date in reversed(dates):
        if date.label is not None:
            text = f"{text[: date.stop]} ({date.label}){text[date.stop :]}"
    text = " ".join(text.split())
    if sentence.speaker is not None:
        return f"{sentence.speaker}: {text}"
    if sentence.topic is not None and fold(sentence.topic) not in fold(text):
        return f"{sentence.topic}: {text}"
    return text
