"""The words of the memory graph: what is remembered, what is extracted, what is recalled.

After PersonalAI (arXiv 2506.17001): objects, theses, episodes and times, joined by simple, hyper,
episodic and time edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, get_args, overload

NodeType = Literal["object", "thesis", "episodic", "time"]
EdgeType = Literal["simple", "hyper", "episodic", "time"]
NODE_TYPES: tuple[str, ...] = get_args(NodeType)
EDGE_TYPES: tuple[str, ...] = get_args(EdgeType)
OBJECT, THESIS, EPISODIC, TIME = range(4)
"""Node types as the database and the arrays hold them."""
SIMPLE, HYPER, EPISODIC_EDGE, TIME_EDGE = range(4)
"""Edge types likewise. The target of all but simple edges is the thesis or episode they read as."""

Span = tuple[int, int]
"""Characters of an episode's text, from and up to."""
Ends = tuple[str, str, str]
"""Subject, relation, object of a simple triplet."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A text as it came.

    Args:
        text: what was said or read.
        time: when, in ISO form of any precision ("2019", "2019-05-03T10:00"); None: unknown.
        source: what it belongs to (a file, a conversation), so that it can be forgotten together.
        origin: equal origins are the same input, which is remembered once; None: always new.
        speaker: who said it.
        properties: whatever else is to be kept with it.
    """

    text: str
    time: str | None = None
    source: str | None = None
    origin: str | None = None
    speaker: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Triplet:
    """A simple triplet, as an extractor found it.

    Args:
        subject, relation, object: two atomic ends of at most 7 words and what joins them.
        valid_from, valid_to: when it holds, [from, to); None: not known, open.
        hypothesis: said as possible, not as so; it supersedes nothing.
        span: where in the episode it was said; None: all of it.
        replaces: old facts that the user says it replaces (``given``).
    """

    subject: str
    relation: str
    object: str
    valid_from: str | None = None
    valid_to: str | None = None
    hypothesis: bool = False
    span: Span | None = None
    replaces: tuple[Replaced, ...] = ()


@dataclass(frozen=True, slots=True)
class Thesis:
    """One sentence that is understood without its surroundings, and what it mentions.

    Args:
        text: the sentence.
        entities: names of the objects that it mentions.
        valid_from, valid_to, hypothesis, span, replaces: as of a ``Triplet``.
    """

    text: str
    entities: tuple[str, ...] = ()
    valid_from: str | None = None
    valid_to: str | None = None
    hypothesis: bool = False
    span: Span | None = None
    replaces: tuple[Replaced, ...] = ()


@dataclass(frozen=True, slots=True)
class Replaced:
    """Names old facts: a triplet by its ends and relation (None: any), or a thesis by its text."""

    subject: str | None = None
    relation: str | None = None
    object: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """What one episode says.

    Args:
        triplets, theses: in the order in which they were said.
        times: dates and moments that it mentions, in ISO form.
        entities: further names of objects, in no triplet or thesis.
    """

    triplets: tuple[Triplet, ...] = ()
    theses: tuple[Thesis, ...] = ()
    times: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()

    def names(self) -> Iterator[str]:
        """Of all objects, as often as each is named."""
        yield from self.entities
        for triplet in self.triplets:
            yield from (triplet.subject, triplet.object)
        for thesis in self.theses:
            yield from thesis.entities


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a fact was said.

    Args:
        episode: node id of the episode.
        span: in its text.
        source, speaker, said: of the episode.
    """

    episode: int
    span: Span
    source: str | None = None
    speaker: str | None = None
    said: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of the graph: a simple triplet, a thesis or an episode.

    Args:
        key: 2 * edge id + 1 of a simple triplet, 2 * node id of a thesis or an episode.
        type: which of the three.
        text: as evidence reads it; a simple triplet is "subject relation object".
        ends: subject, relation, object of a simple triplet; None for others.
        entities: (node id, name) of the objects that it joins or mentions.
        valid_from, valid_to: when it holds, [from, to).
        hypothesis: said as possible only.
        provenance: every place where it was said, in the order of saying.
        score: closeness to the question, larger is closer; 0 where none was asked.
    """

    key: int
    type: Literal["simple", "thesis", "episodic"]
    text: str
    ends: Ends | None = None
    entities: tuple[tuple[int, str], ...] = ()
    valid_from: str | None = None
    valid_to: str | None = None
    hypothesis: bool = False
    provenance: tuple[Provenance, ...] = ()
    score: float = 0.0


class LazyFacts(Sequence[Fact]):
    """Facts of the record that are read on first use.

    Args:
        find: returns their keys.
        read_texts: returns the texts, without times, and the ends of facts by key.
        load: returns facts by key.
    """

    def __init__(
        self,
        find: Callable[[], Iterable[int]],
        read_texts: Callable[[Sequence[int]], Iterable[tuple[str, Ends | None]]],
        load: Callable[[Sequence[int]], Sequence[Fact]],
    ) -> None:
        self._find, self._read_texts, self._load = find, read_texts, load

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """Keys of the facts in order, each once."""
        return tuple(dict.fromkeys(self._find()))

    @cached_property
    def _facts(self) -> Sequence[Fact]:
        return self._load(self.keys)

    def where(self, test: Callable[[str, Ends | None], bool]) -> Sequence[Fact]:
        """Return the facts whose text and ends pass a test; no other fact is loaded."""
        read = zip(self.keys, self._read_texts(self.keys), strict=True)
        keys = [key for key, (text, ends) in read if test(text, ends)]
        return self._load(keys) if keys else ()

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Fact: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Fact]: ...
    def __getitem__(self, index: int | slice) -> Fact | Sequence[Fact]:
        return self._facts[index]


@dataclass(frozen=True, slots=True)
class Update:
    """A new statement beside the open facts around its entities: which of them does it replace?

    Args:
        new: the statement.
        episode: where it was said.
        known: the facts, those that it names itself (``replaces``) first. They are read from the
            record when they are first looked at: look at ``new`` first where that can decide.
        named: for every entry of ``new.replaces`` the keys of the known facts that it names.
    """

    new: Triplet | Thesis
    episode: Episode
    known: Sequence[Fact]
    named: tuple[tuple[int, ...], ...] = ()

    def known_where(self, test: Callable[[str, Ends | None], bool]) -> Sequence[Fact]:
        """The known facts whose text and ends pass a test, which saves reading the others whole.

        Args:
            test: of a text, which may have the fact's time in front, and of a triplet's ends.
        """
        if isinstance(self.known, LazyFacts):
            return self.known.where(test)
        return [fact for fact in self.known if test(fact.text, fact.ends)]


class Extractor(Protocol):
    """What turns texts into triplets and theses, and tells what they replace.

    Args:
        name: recorded with every episode.
    """

    name: str

    def extract(self, episodes: Sequence[Episode]) -> list[Extraction]:
        """One extraction for every episode, in their order."""

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """For every update the keys of the known facts that the new statement replaces.

        The same aspect only; when in doubt both stay.
        """

    def entities(self, question: str) -> list[str]:
        """Names that a question mentions, in its order."""

    def cost(self) -> dict[str, float]:
        """What it has used so far, by name (tokens, requests); {} where nothing is counted."""


def node_key(node: int) -> int:
    """The fact key of a thesis or an episode."""
    return 2 * node


def edge_key(edge: int) -> int:
    """The fact key of a simple triplet."""
    return 2 * edge + 1
