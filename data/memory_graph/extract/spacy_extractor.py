"""Extractor that uses a spaCy pipeline, for texts in the pipeline's language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.linearise import sentence_spans
from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Span,
    Thesis,
    Triplet,
    Update,
)
from turngraph.data.memory_graph.times import local_time

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.tokens import Span as Tokens

NO_THINGS = frozenset("DATE TIME PERCENT MONEY QUANTITY ORDINAL CARDINAL".split())
"""Labels of entities that name no object."""
SUBJECTS = frozenset("nsubj nsubj:pass nsubjpass sb sbp".split())
"""Dependency relations of a subject: of Universal Dependencies and of spaCy's older schemes."""
MAX_END_WORDS = 7


def load_pipeline(name: str) -> Language:
    """Load a pipeline: the name of an installed package, or a folder.

    Raises:
        UserError: spaCy or the pipeline is missing, or the pipeline finds no entities.
    """
    with extra("spacy", f"--extractor spacy:{name} needs"):
        import spacy
    try:
        pipeline = spacy.load(name)
    except (OSError, ValueError) as error:  # spaCy's own message names removed features
        installed = f"install it with: python -m spacy download {name}"
        message = f"--extractor spacy:{name}: no such pipeline, neither a package nor a folder"
        raise UserError(f"{message}; {installed}") from error
    parts = pipeline.pipe_names
    if not any("doc.ents" in pipeline.get_pipe_meta(part).assigns for part in parts):
        has = ", ".join(parts) or "nothing"
        raise UserError(f"--extractor spacy:{name}: the pipeline finds no entities; it has {has}")
    return pipeline


class SpacyExtractor:
    """Extractor of theses, entities and, with a parser, triplets of two entities.

    A sentence becomes a thesis. A triplet is extracted if a verb has one entity as its subject and
    another entity as its object or after a preposition. No fact replaces another, as there are no
    rules for this in other languages.

    Args:
        pipeline: pipeline of spaCy.
        name: name that is recorded with every episode.
    """

    def __init__(self, pipeline: Language, name: str) -> None:
        self.pipeline, self.name = pipeline, name

    def extract(self, episodes: Sequence[Episode]) -> list[Extraction]:
        """Return one extraction for every episode, in order."""
        docs = self.pipeline.pipe(episode.text for episode in episodes)
        return [_extraction(*pair) for pair in zip(episodes, docs, strict=True)]

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """Return () for every update: no fact is replaced."""
        return [()] * len(updates)

    def entities(self, question: str) -> list[str]:
        """Return the names of the entities in a question, in order."""
        return list(dict.fromkeys(entity.text for entity in _things(self.pipeline(question))))

    def cost(self) -> dict[str, float]:
        """Return {}: nothing is counted."""
        return {}


def _extraction(episode: Episode, doc: Doc) -> Extraction:
    things = _things(doc)
    theses: list[Thesis] = []
    triplets: list[Triplet] = []
    for start, stop in _sentences(doc):
        text = " ".join(episode.text[start:stop].split())
        inside = [thing for thing in things if start <= thing.start_char and thing.end_char <= stop]
        names = [thing.text for thing in inside]
        if episode.speaker is not None:
            text, names = f"{episode.speaker}: {text}", [episode.speaker, *names]
        theses.append(Thesis(text, tuple(dict.fromkeys(names)), span=(start, stop)))
        if doc.has_annotation("DEP"):
            triplets += _triplets(inside, (start, stop))
    said = local_time(episode.time, episode.properties)
    dates = [date.first for date in find_dates(doc.text, said) if date.is_exact]
    return Extraction(tuple(triplets), tuple(theses), tuple(dict.fromkeys(dates)))


def _things(doc: Doc) -> list[Tokens]:
    return [entity for entity in doc.ents if entity.label_ not in NO_THINGS and entity.text.strip()]


def _sentences(doc: Doc) -> list[Span]:
    """Return the spans of sentences, in characters, without blank ones."""
    if not doc.has_annotation("SENT_START"):
        return sentence_spans(doc.text)
    spans = [(sentence.start_char, sentence.end_char) for sentence in doc.sents]
    return [(start, stop) for start, stop in spans if doc.text[start:stop].strip()]


def _triplets(things: Sequence[Tokens], span: Span) -> Iterator[Triplet]:
    """Yield triplets of a subject, its verb, and another entity that depends on the verb."""
    for subject in things:
        if subject.root.dep_ not in SUBJECTS or _is_negated(subject):
            continue
        for other in things:
            relation = _relation(subject, other)
            if other is not subject and relation is not None:
                ends = (subject.text, other.text)
                if all(len(end.split()) <= MAX_END_WORDS for end in ends):
                    yield Triplet(subject.text, relation, other.text, span=span)


def _relation(subject: Tokens, other: Tokens) -> str | None:
    """Return the relation of a verb's subject to another entity; None: there is none."""
    verb, above = subject.root.head, other.root.head
    if other.root.dep_ in SUBJECTS:
        return None
    if above == verb:  # an object, or as in Universal Dependencies: "Oslo" has "in" below it
        cases = [child.text for child in other.root.children if child.dep_ == "case"]
        return " ".join([verb.text, *cases])
    if above.head == verb and above.pos_ == "ADP":  # as in older schemes: "in" has "Oslo" below it
        return f"{verb.text} {above.text}"
    return None


def _is_negated(subject: Tokens) -> bool:
    verb = subject.root.head
    return any(
        child.dep_ in ("neg", "ng") or child.morph.get("Polarity", []) == ["Neg"]
        for child in [verb, *verb.children]
    )
