"""Defines the types of the memory graph: episodes, statements, facts, and ``Extractor``.

After PersonalAI (arXiv 2506.17001): objects, theses, episodes and times, joined by simple, hyper,
episodic and time edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, get_args, overload

from turngraph.data.memory_graph.times import UTC_OFFSET, local_time

NodeType = Literal["object", "thesis", "episodic", "time"]
EdgeType = Literal["simple", "hyper", "episodic", "time"]
NODE_TYPES: tuple[str, ...] = get_args(NodeType)
EDGE_TYPES: tuple[str, ...] = get_args(EdgeType)
OBJECT, THESIS, EPISODIC, TIME = range(4)
"""Node types in the database and the arrays."""
SIMPLE, HYPER, EPISODIC_EDGE, TIME_EDGE = range(4)
"""Edge types in the database and the arrays. All edges except simple ones lead to a thesis or an
episode, and have its text."""

Span = tuple[int, int]
"""Begin and end in an episode's text, in characters."""
Ends = tuple[str, str, str]
"""Subject, relation and object of a simple triplet."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An original text to remember.

    Args:
        text: the text.
        time: when it was said, ISO time of any precision ("2019", "2019-05-03T10:00"); None:
            unknown.
        source: file or conversation that it belongs to; episodes of a source can be forgotten
            together.
        origin: identifier of the input, which is remembered only once; None: always new.
        speaker: who said it.
        properties: other fields, which are kept with it.
    """

    text: str
    time: str | None = None
    source: str | None = None
    origin: str | None = None
    speaker: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Triplet:
    """Simple triplet that an extractor found.

    Args:
        subject, relation, object: two atomic ends of at most 7 words, and their relation.
        valid_from, valid_to: times between which it holds, [from, to); None: unknown, open.
        hypothesis: whether it was said only as a possibility; it then supersedes nothing.
        span: span in the episode's text; None: all of it.
        replaces: old facts that it replaces according to the input (extractor ``given``).
        local: ends that only this episode's text can mean ("the bridge"): the same name in another
            text is another object.
    """

    subject: str
    relation: str
    object: str
    valid_from: str | None = None
    valid_to: str | None = None
    hypothesis: bool = False
    span: Span | None = None
    replaces: tuple[Replaced, ...] = ()
    local: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thesis:
    """Self-contained sentence with the objects that it mentions.

    Args:
        text: the sentence.
        entities: names of the objects that it mentions.
        valid_from, valid_to, hypothesis, span, replaces: as in a ``Triplet``.
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
    """Description of old facts: ends and relation of a triplet (None: any), or a thesis's text."""

    subject: str | None = None
    relation: str | None = None
    object: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """Statements of one episode.

    Args:
        triplets, theses: statements in the order of the text.
        times: dates and moments that the text mentions, in ISO form.
        entities: names of objects that are in no triplet or thesis.
    """

    triplets: tuple[Triplet, ...] = ()
    theses: tuple[Thesis, ...] = ()
    times: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()

    def names(self) -> Iterator[str]:
        """Yield the names of all objects, with repetitions."""
        yield from self.entities
        for triplet in self.triplets:
            yield from (triplet.subject, triplet.object)
        for thesis in self.theses:
            yield from thesis.entities


@dataclass(frozen=True, slots=True)
class Provenance:
    """An episode that states a fact.

    Args:
        episode: node id of the episode.
        span: span of the fact in the episode's text.
        source, speaker, said: source, speaker and time (UTC) of the episode.
        utc_offset: zone of the speaker's clock, such as "+09:00"; None: UTC, or unknown.
    """

    episode: int
    span: Span
    source: str | None = None
    speaker: str | None = None
    said: str | None = None
    utc_offset: str | None = None

    @property
    def said_locally(self) -> str | None:
        """The time of the episode as its speaker's clock showed it."""
        return local_time(self.said, {UTC_OFFSET: self.utc_offset or "Z"})


@dataclass(frozen=True, slots=True)
class Fact:
    """Fact of the graph: a simple triplet, a thesis or an episode.

    Args:
        key: 2 * edge id + 1 of a simple triplet, 2 * node id of a thesis or an episode.
        type: one of the three types.
        text: text as in evidence; "subject relation object" for a simple triplet.
        ends: subject, relation, object of a simple triplet; None for others.
        entities: (node id, name) of the objects that it joins or mentions.
        valid_from, valid_to: times between which it holds, [from, to).
        hypothesis: whether it was said only as a possibility.
        provenance: the episodes that state it, in order of time.
        score: similarity to the question, larger is closer; 0 without a question.
        partly_until: for a thesis or a recalled episode, the time at which a part of it ended.
        may_have_ended: key of a newer fact that may have ended it; None: nothing suggests it.
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
    partly_until: str | None = None
    may_have_ended: int | None = None


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
    """New statement and the open facts around its entities, some of which it may replace.

    Args:
        new: the statement.
        episode: the episode that says it.
        known: the facts, those that the statement names (``replaces``) first. They are read from
            the record on first use, so examine ``new`` first where that is enough.
        named: for every entry of ``new.replaces``, the keys of the known facts that it describes.
    """

    new: Triplet | Thesis
    episode: Episode
    known: Sequence[Fact]
    named: tuple[tuple[int, ...], ...] = ()

    def known_where(self, test: Callable[[str, Ends | None], bool]) -> Sequence[Fact]:
        """Return the known facts that pass a test; the others are not loaded.

        Args:
            test: takes the text, which may have the fact's time in front, and a triplet's ends.
        """
        if isinstance(self.known, LazyFacts):
            return self.known.where(test)
        return [fact for fact in self.known if test(fact.text, fact.ends)]


class Extractor(Protocol):
    """Extracts the statements of texts, and decides which facts they replace.

    Args:
        name: name of the extractor, which is recorded with every episode.
    """

    name: str

    def extract(self, episodes: Sequence[Episode]) -> list[Extraction]:
        """Return one extraction for every episode, in order."""

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """Return, for every update, the keys of the known facts that the new statement replaces.

        A statement replaces only facts about the same aspect; in doubt, both are kept.
        """

    def entities(self, question: str) -> list[str]:
        """Return the names that a question mentions, in order."""

    def cost(self) -> dict[str, float]:
        """Return the tokens and requests used so far, by name; {} if nothing is counted."""


def node_key(node: int) -> int:
    """Return the fact key of a thesis or an episode."""
    return 2 * node


def edge_key(edge: int) -> int:
    """Return the fact key of a simple triplet."""
    return 2 * edge + 1
