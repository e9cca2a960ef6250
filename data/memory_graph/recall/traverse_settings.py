"""Defines the settings of the traversals, one frozen dataclass per algorithm.

The defaults are those of PersonalAI (arXiv 2506.17001, section 4) where it states them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from turngraph.configs.memory_schema import TRAVERSALS
from turngraph.configs.user_error import UserError


def _check(settings: object, name: str, holds: bool, must: str) -> None:
    """Raise UserError for an invalid setting."""
    if not holds:
        value = getattr(settings, name)
        raise UserError(f"{type(settings).__name__}.{name}: {value!r} given, {must}")


def _at_least(settings: object, least: int, *names: str) -> None:
    for name in names:
        _check(settings, name, getattr(settings, name) >= least, f"must be at least {least}")


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Settings of ``beam_search.beam_search``."""

    max_depth: int = 5
    """Most triplets in a path."""
    max_paths: int = 10
    """Number of paths that survive each depth, and that are kept at the end, for every object."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "max_depth", "max_paths")


@dataclass(frozen=True, slots=True)
class AStar:
    """Settings of ``a_star.a_star``."""

    max_depth: int = 10
    """Most triplets in a path."""
    max_expanded: int = 150
    """Most nodes that are expanded for each pair of linked objects."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "max_depth", "max_expanded")


@dataclass(frozen=True, slots=True)
class WaterCircles:
    """Settings of ``water_circles.water_circles``."""

    max_circles: int = 2
    """Number of circles around every linked object; the first circle is its neighbours."""
    hyper_num: int = 15
    """Maximum number of theses."""
    episodic_num: int = 15
    """Maximum number of episodes."""
    chain_triplets_num: int = 25
    """Maximum number of primary triplets."""
    other_triplets_num: int = 6
    """Maximum number of secondary triplets for every circle."""
    strict_filter: bool = True
    """Keep only primary triplets that join two entities of the question, if there are any."""
    max_width: int = 1000
    """Maximum number of nodes of a circle from which the next circle starts: those reached by the
    triplets closest to the question. This bounds the cost of hubs."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "max_circles", "max_width")
        _check(self, "max_circles", self.max_circles <= 100, "must be at most 100")
        _at_least(self, 0, "hyper_num", "episodic_num", "chain_triplets_num", "other_triplets_num")


@dataclass(frozen=True, slots=True)
class Flat:
    """Settings of ``flat.flat``."""

    top_k: int = 50
    """Maximum number of facts."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "top_k")


@dataclass(frozen=True, slots=True)
class Restart:
    """Settings of ``restart_distribution.restart_distribution``: the weight of each start node."""

    objects: float = 0.5
    """Weight of every object that the question names, divided by its number of episodes."""
    num_facts: int = 3
    """Number of closest theses and simple triplets whose objects are start nodes."""
    facts: float = 1.0
    """Weight of every object of the closest fact, divided as above; less for farther facts."""
    num_episodes: int = 100
    """Number of start episodes: the closest by vectors, and as many by words."""
    episodes: float = 0.05
    """Weight of the closest episode; less for a farther one, by closeness ** sharpness."""
    words: float = 0.5
    """Weight of BM25 in the closeness of an episode; its vector has weight 1."""
    sharpness: float = 8.0
    """Exponent of closeness; a larger one gives less weight to episodes that are less close."""
    adjacent: float = 0.0
    """Fraction of an episode's weight that is also given to the episodes right before and after it
    from the same source."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "objects", "num_facts", "facts", "episodes", "words", "adjacent")
        _at_least(self, 1, "num_episodes")
        _check(self, "sharpness", self.sharpness > 0, "must be above 0")


PASSAGES = Restart()
"""Default for graphs of passages, tuned on MuSiQue-100."""
TURNS = Restart(episodes=1.0, adjacent=0.15)
"""Default for graphs of dialogues, tuned on two conversations of LoCoMo. A single turn says little,
so adjacent turns get weight too."""


@dataclass(frozen=True, slots=True)
class PPR:
    """Settings of ``pagerank.ppr``."""

    top_k: int = 50
    """Maximum number of facts."""
    damping: float = 0.5
    """Fraction of a node's score that is passed on; the default is HippoRAG's."""
    num_rounds: int = 20
    """Number of rounds of the power iteration; the remaining score then stays at its nodes."""
    threshold: float = 1e-5
    """Smallest score that a node passes on; 0: any. Large graphs are then walked only around the
    linked objects, and scores have about this error."""
    restart: Restart | None = None
    """Restart distribution; None: uniform over the linked objects, and in ``ask_episodes`` the
    default for the record's kind of texts (``PASSAGES`` or ``TURNS``). With a ``Restart``, texts
    that no object of the question leads to are found too."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "top_k", "num_rounds")
        _check(self, "damping", 0 < self.damping < 1, "must lie between 0 and 1, both excluded")
        _at_least(self, 0, "threshold")


@dataclass(frozen=True, slots=True)
class Eigen:
    """Settings of the best-first search over chunks and themes, ``find_themes.facts_of_hits``.

    The defaults are those of ``data.eigen.search.SearchSettings``, which explains them.
    """

    top_k: int = 50
    """Maximum number of facts."""
    gamma: float = 0.7
    """Factor of a node's score that its neighbours inherit."""
    num_starts: int = 5
    """Number of chunks or themes at which the search starts."""
    max_pops: int = 64
    """Maximum number of chunks and themes that are visited."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "top_k", "num_starts", "max_pops")
        _check(self, "gamma", 0 <= self.gamma < float("inf"), "must be at least 0 and finite")


@dataclass(frozen=True, slots=True)
class Traversal:
    """The algorithms of a traversal, and the settings of each."""

    mixture: str = "BeamSearch + WaterCircles"
    """One name of ``TRAVERSALS``, or several joined by "+": the union of their facts."""
    beam_search: BeamSearch = field(default_factory=BeamSearch)
    """Settings of "BeamSearch"."""
    a_star: AStar = field(default_factory=AStar)
    """Settings of "A*"."""
    water_circles: WaterCircles = field(default_factory=WaterCircles)
    """Settings of "WaterCircles"."""
    flat: Flat = field(default_factory=Flat)
    """Settings of "flat"."""
    ppr: PPR = field(default_factory=PPR)
    """Settings of "ppr"."""
    eigen: Eigen = field(default_factory=Eigen)
    """Settings of "eigen"."""

    def __post_init__(self) -> None:
        parse_mixture(self.mixture)


def changed(traversal: Traversal, settings: Sequence[str]) -> Traversal:
    """Return a traversal with other numbers, each given as ``BeamSearch.max_depth=3``.

    Args:
        traversal: traversal to change.
        settings: texts of the form ``algorithm.field=value``, with an algorithm of ``TRAVERSALS``.

    Raises:
        UserError: there is no such numeric setting, or the value has the wrong type or is out of
            range.
    """
    names = ("beam_search", "a_star", "water_circles", "flat", "ppr", "eigen")
    fields = dict(zip(TRAVERSALS, names, strict=True))
    for text in settings:
        path, _, value = text.partition("=")
        name, _, field = path.strip().partition(".")
        own = getattr(traversal, fields.get(name, ""), None)
        old = getattr(own, field, None)
        if own is None or isinstance(old, bool) or not isinstance(old, int | float):
            must = "must be a number of a traversal, such as BeamSearch.max_depth=3"
            raise UserError(f"setting {text!r}: {must}")
        try:
            new = type(old)(value)
        except ValueError:
            raise UserError(f"setting {text!r}: {value!r} is no {type(old).__name__}") from None
        traversal = replace(traversal, **{fields[name]: replace(own, **{field: new})})
    return traversal


def parse_mixture(text: str) -> tuple[str, ...]:
    """Return the algorithms that a mixture like "BeamSearch + WaterCircles" names, in its order.

    Args:
        text: names joined by "+"; case is ignored, repeats count once.

    Raises:
        UserError: a name is unknown or missing; the message lists the known ones.
    """
    known = {name.casefold(): name for name in TRAVERSALS}
    names = [part.strip() for part in text.split("+")]
    for name in names:
        if name.casefold() not in known:
            must = f"known are {', '.join(TRAVERSALS)}, joined by '+'"
            raise UserError(f"mixture {text!r}: no traversal is called {name!r}; {must}")
    return tuple(dict.fromkeys(known[name.casefold()] for name in names))
