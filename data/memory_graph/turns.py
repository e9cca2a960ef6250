"""Makes episodes of finished turns, and extracts their statements."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from turngraph.data.memory_graph.extract.english_rules import EnglishRules
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Thesis, Update
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.record.clean import MAX_END_WORDS
from turngraph.data.memory_graph.record.speaker import ASSISTANT, USER
from turngraph.data.types import LIST_SEPARATOR

QUESTION, TOPIC = "question", "topic"
"""Properties of a turn's episode: length of its question; names that the question refers to."""
KIND = "kind"
"""Property of a chat's episodes, ``question`` or ``answer``: they are shown in the history and are
never evidence."""
_FIRST_PERSON = re.compile(r"\b(?:I|me|my|mine|myself)\b")


def turn_episode(
    question: str,
    answer: str,
    time: str | None = None,
    source: str | None = None,
    origin: str | None = None,
    speaker: str | None = "user",
    topic: Sequence[str] = (),
) -> Episode:
    """Return the episode of a finished turn.

    Args:
        question: text of the question.
        answer: text of the answer; "" if there is none.
        time, source, origin: fields of the episode.
        speaker: who asked the question.
        topic: names of the previous turn, for a question without names ("When was he born?").
    """
    properties = {QUESTION: str(len(question))}
    if topic:
        properties[TOPIC] = "\n".join(topic)
    text = f"{question}\n{answer}" if answer else question
    return Episode(text, time, source, origin, speaker, properties)


def chat_episodes(question: str, answer: str, time: str, source: str, origin: str) -> list[Episode]:
    """Return the episodes of a chat's turn: the user's question, and the model's answer.

    The answer is an episode of its own, so that it never becomes a fact.

    Args:
        question: the user's text; its statements can be facts.
        answer: the model's text; "" if there is none.
        time, source: time and source of both episodes.
        origin: origin of the question; that of the answer begins with it.
    """
    said = Episode(question, time, source, origin, USER, {KIND: "question"})
    if not answer.strip():
        return [said]
    origin = answer_origin(origin)
    return [said, Episode(answer, time, source, origin, ASSISTANT, {KIND: "answer"})]


def answer_origin(origin: str) -> str:
    """Return the origin of the answer to a chat's question."""
    return f"{origin} answer"


class TurnExtractor:
    """Extractor of conversations, based on the rules.

    A turn with a gold answer becomes one thesis of question and answer: a question alone states
    nothing, and an answer alone lacks its question. In a chat, the model's answer is not extracted.
    Statements in a question ("I moved to Paris. What is there to see?") are extracted as in other
    texts.
    """

    name = RulesExtractor.name

    def __init__(self) -> None:
        self._rules, self._reader = EnglishRules(keep=is_history), RulesExtractor()

    @property
    def unread(self) -> Counter[str]:
        """Number of sentences that were not read, as they are not English, by language."""
        return self._rules.unread

    def extract(self, episodes: Sequence[Episode]) -> list[Extraction]:
        """Return one extraction for every episode, in order."""
        read = [episode for episode in episodes if episode.properties.get(KIND) != "answer"]
        sizes = [question_size(episode) for episode in read]
        stated = [
            episode if size is None else replace(episode, text=episode.text[:size])
            for episode, size in zip(read, sizes, strict=True)
        ]
        # in one call, because the rules keep the last texts to tell which facts come from them
        extracted = zip(read, sizes, self._rules.extract(stated, known_as=read), strict=True)
        of_read = iter([self._complete(*turn) for turn in extracted])
        return [
            Extraction() if episode.properties.get(KIND) == "answer" else next(of_read)
            for episode in episodes
        ]

    def _complete(self, episode: Episode, size: int | None, extraction: Extraction) -> Extraction:
        """Return an extraction without questions as theses, plus the answer's thesis."""
        if episode.properties.get(KIND) == "question":
            return replace(extraction, theses=_statements(extraction))
        return extraction if size is None else self._with_answer(episode, size, extraction)

    def _with_answer(self, episode: Episode, size: int, extraction: Extraction) -> Extraction:
        question, answer = episode.text[:size], episode.text[size + 1 :]
        theses = list(_statements(extraction))
        if answer:
            names = self.names(question, answer, episode.properties.get(TOPIC, "").split("\n"))
            text = " ".join(episode.text.split())
            theses.append(Thesis(text, names, span=(0, len(episode.text))))
        return replace(extraction, theses=tuple(theses))

    def names(self, question: str, answer: str, topic: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the names of the question, else of the topic, then those of the answer."""
        questioned = self._rules.entities(question) or topic
        labels = [label.strip() for label in answer.split(LIST_SEPARATOR)]
        answered = [
            name
            for label in labels
            for name in ([label] if 0 < len(label.split()) <= MAX_END_WORDS else self._found(label))
        ]
        named = {alias(name): name for name in (*questioned, *answered) if alias(name)}
        return tuple(named.values())

    def topic(self, question: str, topic: Sequence[str]) -> Sequence[str]:
        """Return ``topic`` if the question mentions no names, else nothing."""
        return () if self._rules.entities(question) else topic

    def _found(self, text: str) -> list[str]:
        extraction = self._reader.extract([Episode(text)])[0]
        return [name for thesis in extraction.theses for name in thesis.entities]

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """Return, for every update, the keys of the known facts that it replaces."""
        return self._rules.replaced(updates)

    def entities(self, question: str) -> list[str]:
        """Return the names that a question mentions, in order; "I" is the user."""
        names = self._rules.entities(question)
        return [*names, USER] if _FIRST_PERSON.search(question) else names

    def cost(self) -> dict[str, float]:
        """Return {}: the rules use no tokens and no requests."""
        return self._rules.cost()


def is_history(episode: Episode) -> bool:
    """Return whether an episode is a chat's question or answer, which is never recalled itself."""
    return episode.properties.get(KIND) in ("question", "answer")


def _statements(extraction: Extraction) -> tuple[Thesis, ...]:
    return tuple(thesis for thesis in extraction.theses if not thesis.text.rstrip().endswith("?"))


def question_size(episode: Episode) -> int | None:
    """Return the length of the question in a turn's text; None if the episode is not a turn."""
    size = episode.properties.get(QUESTION, "")
    if not size.isdecimal() or len(size) > 9:
        return None
    rest = episode.text[int(size) :]
    is_turn = int(size) > 0 and len(episode.text) >= int(size) and rest[:1] in ("", "\n")
    return int(size) if is_turn else None  # else it is a property that the user gave
