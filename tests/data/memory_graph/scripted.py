"""Extractor that returns what a test scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Fact,
    Thesis,
    Triplet,
    Update,
)

Judge = Callable[[Update], Sequence[int]]


def nothing(_: Update) -> tuple[int, ...]:
    """Judge that replaces nothing."""
    return ()


def same_relation(update: Update) -> tuple[int, ...]:
    """Judge that replaces triplets with the same subject and relation, and theses with the same
    first two words."""
    if isinstance(update.new, Triplet):
        ends = update.new.subject, update.new.relation
        return tuple(f.key for f in update.known if f.ends and f.ends[:2] == ends)
    begin = update.new.text.split()[:2]
    return tuple(f.key for f in update.known if not f.ends and f.text.split()[:2] == begin)


class Scripted:
    """Extractor by script.

    Args:
        script: the extraction of each text; any other text is one thesis whose entities are its
            capitalised words, and, if it has three words, one triplet.
        judge: returns the keys of the facts that an update replaces.
        name: of the extractor.
    """

    def __init__(
        self,
        script: Mapping[str, Extraction] | None = None,
        judge: Judge = same_relation,
        name: str = "scripted",
    ) -> None:
        self.script, self.judge, self.name = script or {}, judge, name
        self.judged: list[tuple[Triplet | Thesis, tuple[Fact, ...]]] = []
        self.extracted: list[Episode] = []

    def extract(self, episodes: Sequence[Episode]) -> list[Extraction]:
        """Return extractions by the script, or by words."""
        self.extracted.extend(episodes)
        return [self.script.get(e.text) or by_words(e.text) for e in episodes]

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """Return what the judge decides; ``judged`` records the updates."""
        self.judged.extend((update.new, tuple(update.known)) for update in updates)
        return [tuple(self.judge(update)) for update in updates]

    def entities(self, question: str) -> list[str]:
        """Return the capitalised words."""
        return [word.strip("?.!,") for word in question.split() if word[0].isupper()]

    def cost(self) -> dict[str, float]:
        """Return the number of texts read."""
        return {"texts": float(len(self.extracted))}


def by_words(text: str) -> Extraction:
    """Return one thesis about the capitalised words, and a triplet of three words."""
    words = text.strip(".!? \n").split()
    names = tuple(dict.fromkeys(word.strip(",.") for word in words if word[:1].isupper()))
    triplets = (Triplet(*words),) if len(words) == 3 else ()
    return Extraction(triplets, (Thesis(text, names),) if text.strip() else ())
