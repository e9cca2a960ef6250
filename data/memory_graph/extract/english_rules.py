"""Rules extractor that skips and counts sentences in other languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from turngraph.configs.words import plural
from turngraph.data.memory_graph.extract.languages import other_languages
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Span


class EnglishRules(RulesExtractor):
    """Rules extractor of texts that may be in any language.

    English rules would misread a sentence in another language. Such a sentence gives neither theses
    nor triplets; its names are joined to the episode.

    Args:
        keep: returns whether an episode's sentences in other languages become theses unread; used
            for episodes that are never recalled themselves.
    """

    def __init__(self, keep: Callable[[Episode], bool] = lambda _: False) -> None:
        super().__init__()
        self.keep = keep
        self.unread: Counter[str] = Counter()
        """Number of skipped sentences so far, by language."""

    def extract(
        self, episodes: Sequence[Episode], known_as: Sequence[Episode] | None = None
    ) -> list[Extraction]:
        """Return one extraction for every episode, in order, from its English sentences."""
        extractions = super().extract(episodes, known_as)
        return [self._english(*pair) for pair in zip(episodes, extractions, strict=True)]

    def _english(self, episode: Episode, extraction: Extraction) -> Extraction:
        spans = [thesis.span or (0, len(episode.text)) for thesis in extraction.theses]
        languages = other_languages([episode.text[start:stop] for start, stop in spans])
        unread = {
            span: language
            for span, language in zip(spans, languages, strict=True)
            if language is not None
        }
        if not unread:
            return extraction
        self.unread.update(unread.values())
        extraction = replace(
            extraction,
            triplets=tuple(
                triplet for triplet in extraction.triplets if not _inside(triplet.span, unread)
            ),
        )
        if self.keep(episode):
            return extraction
        names = [
            name
            for thesis in extraction.theses
            if thesis.span in unread
            for name in thesis.entities
        ]
        return Extraction(
            triplets=extraction.triplets,
            theses=tuple(
                thesis for thesis in extraction.theses if not _inside(thesis.span, unread)
            ),
            times=extraction.times,
            entities=tuple(dict.fromkeys([*extraction.entities, *names])),
        )


def _inside(span: Span | None, others: dict[Span, str]) -> bool:
    if span is None:
        return False
    return any(start <= span[0] and span[1] <= stop for start, stop in others)


def unread_line(unread: Counter[str]) -> str:
    """Return a message about skipped sentences: "... from 5 sentences (Polish 3, German 2)"."""
    counted = ", ".join(f"{language} {count}" for language, count in unread.most_common())
    sentences = plural(unread.total(), "sentence")
    return f"the rules read English: no facts were read from {sentences} ({counted})"
