"""Settings of the traversals: one frozen dataclass per algorithm, and the mixture of them.

The defaults are those of PersonalAI (arXiv 2506.17001, section 4), where it names one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from turngraph.configs.schema import TRAVERSALS


def _check(settings: object, name: str, holds: bool, must: str) -> None:
    """Raise ValueError for an invalid setting."""
    if not holds:
        value = getattr(settings, name)
        raise ValueError(f"{type(settings).__name__}.{name}: {value!r} given, {must}")


def _at_least(settings: object, least: int, *names: str) -> None:
    for name in names:
        _check(settings, name, getattr(settings, name) >= least, f"must be at least {least}")


def _one_of(settings: object, name: str, known: tuple[str, ...]) -> None:
    _check(settings, name, getattr(settings, name) in known, f"must be one of {', '.join(known)}")


Sorting = Literal["mixed", "ended_first", "continuous_first"]


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Settings of ``beam_search.beam_search``."""

    max_depth: int = 5
    """Triplets in the longest path."""
    max_paths: int = 10
    """Paths that survive each depth, and that are kept at the end, for every linked object."""
    same_path_intersection_by_node: bool = False
    """A path may revisit one of its nodes (but never go straight back)."""
    diff_paths_intersection_by_node: bool = False
    """A path may visit a node of another live path."""
    diff_paths_intersection_by_rel: bool = False
    """A path may use a triplet of another live path."""
    mean_alpha: float = 0.75
    """A path's score is its cost / hops ** mean_alpha; 0: the sum, 1: the mean."""
    final_sorting_mode: Sorting = "mixed"
    """Which paths are kept at the end: the best of all, or those of one kind before the other."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "max_depth", "max_paths")
        _check(self, "mean_alpha", 0 <= self.mean_alpha <= 1, "must lie between 0 and 1")
        _one_of(self, "final_sorting_mode", get_args(Sorting))


Heuristic = Literal["ip", "weighted", "averaged"]


@dataclass(frozen=True, slots=True)
class AStar:
    """Settings of ``a_star.a_star``."""

    heuristic: Heuristic = "ip"
    """Estimate of the cost to the goal; none of the three is admissible."""
    max_depth: int = 10
    """Triplets in the longest path."""
    max_expanded: int = 150
    """Nodes that are expanded for each pair of linked objects."""
    max_walked: int = 10_000
    """Nodes that the breadth-first search from one goal expands (weighted, averaged). Nodes that it
    has not reached by then count as one hop farther than its last whole circle."""

    def __post_init__(self) -> None:
        _one_of(self, "heuristic", get_args(Heuristic))
        _at_least(self, 1, "max_depth", "max_expanded", "max_walked")


@dataclass(frozen=True, slots=True)
class WaterCircles:
    """Settings of ``water_circles.water_circles``."""

    max_circles: int = 2
    """Circles around every linked object; the first are its neighbours."""
    hyper_num: int = 15
    """Theses at most."""
    episodic_num: int = 15
    """Episodes at most."""
    chain_triplets_num: int = 25
    """Primary triplets at most."""
    other_triplets_num: int = 6
    """Secondary triplets at most, for every circle."""
    strict_filter: bool = True
    """Keep only primary triplets that join two entities of the question, if there are any."""
    max_width: int = 1000
    """Nodes of a circle that the next one starts from: those that the triplets closest to the
    question led to. Bounds the cost of a hub; smaller graphs never reach it."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "max_circles", "max_width")
        _check(self, "max_circles", self.max_circles <= 100, "must be at most 100")
        _at_least(self, 0, "hyper_num", "episodic_num", "chain_triplets_num", "other_triplets_num")


@dataclass(frozen=True, slots=True)
class Flat:
    """Settings of ``flat.flat``."""

    top_k: int = 50
    """Facts at most."""

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
    """Weight of every object of the closest fact, divided likewise; less for a farther fact's."""
    num_episodes: int = 100
    """Number of start episodes: the closest by vectors, and as many by words."""
    episodes: float = 0.05
    """Weight of the closest episode; less for a farther one, by closeness ** sharpness."""
    words: float = 0.5
    """Weight of BM25 in the closeness of an episode, beside 1 for its vector."""
    sharpness: float = 8.0
    """Exponent of closeness: the larger, the less weight has an episode that is not the closest."""
    beside: float = 0.0
    """Fraction of an episode's weight that the episodes right before and after it get as well."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "objects", "num_facts", "facts", "episodes", "words", "beside")
        _at_least(self, 1, "num_episodes")
        _check(self, "sharpness", self.sharpness > 0, "must be above 0")


PASSAGES = Restart()
"""Default for a record of passages, found on MuSiQue-100."""
TURNS = Restart(episodes=1.0, beside=0.15)
"""Default for a record of a dialogue's turns, found on two conversations of LoCoMo. A turn says
little by itself, so that the turns beside it count."""


@dataclass(frozen=True, slots=True)
class PPR:
    """Settings of ``pagerank.ppr``."""

    top_k: int = 50
    """Facts at most."""
    damping: float = 0.5
    """Fraction of a node's score that flows on (HippoRAG's value); the rest stays."""
    num_rounds: int = 20
    """Rounds of the power iteration; score that still flows after them stays where it is."""
    threshold: float = 1e-5
    """A node passes its score on once that is at least this much; 0: always. A graph of a million
    nodes is then walked only around the linked objects, and scores have about this error."""
    weights: Literal["one", "similarity"] = "one"
    """Weights of a node's triplets: all equal, or (1 + cosine to the question) / 2."""
    restart: Restart | None = None
    """Restart distribution; None: uniform over the linked objects, and in ``ask_episodes`` the
    default for the record's kind of texts (``PASSAGES`` or ``TURNS``). With one, texts that no
    object of the question leads to are found as well."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "top_k", "num_rounds")
        _check(self, "damping", 0 < self.damping < 1, "must lie between 0 and 1, both excluded")
        _at_least(self, 0, "threshold")
        _one_of(self, "weights", ("one", "similarity"))


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

    def __post_init__(self) -> None:
        parse_mixture(self.mixture)


def parse_mixture(text: str) -> tuple[str, ...]:
    """Return the algorithms that a mixture like "BeamSearch + WaterCircles" names, in its order.

    Args:
        text: names joined by "+"; case is ignored, repeats count once.

    Raises:
        ValueError: a name is unknown or missing; the message lists the known ones.
    """
    known = {name.casefold(): name for name in TRAVERSALS}
    names = [part.strip() for part in text.split("+")]
    for name in names:
        if name.casefold() not in known:
            must = f"known are {', '.join(TRAVERSALS)}, joined by '+'"
            raise ValueError(f"mixture {text!r}: no traversal is called {name!r}; {must}")
    return tuple(dict.fromkeys(known[name.casefold()] for name in names))
