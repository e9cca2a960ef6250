"""Settings of the conversations' memory graphs, a section of the config."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from turngraph.configs.kinds import check

TRAVERSALS = ("BeamSearch", "A*", "WaterCircles", "flat", "ppr", "eigen")
"""Traversals of the memory graph that a mixture may name."""


@dataclass(frozen=True)
class MemoryGraphConfig:
    """A memory graph for each conversation, filled with what earlier turns said and retrieved."""

    share: float = 1 / 3
    """Fraction of E_t, lowest-ranked, that recalled facts replace; they also fill positions that a
    small pool leaves empty. Change it for longer conversations, where more is worth recalling."""
    num_evidence: int = 10
    """Number of a turn's best passages to remember; 0: questions and answers only. Change it to
    trade a larger graph against speed."""
    mixture: str = "BeamSearch + WaterCircles"
    """Traversals joined by +: BeamSearch, A*, WaterCircles, flat, ppr, and eigen, which is flat in
    a graph without themes, as a conversation's own is. Change it to compare them."""
    forbidden: tuple[str, ...] = ("E",)
    """Node types that traversals skip: E, T, O (episodes, theses, objects). Change it to ablate."""
    num_facts: int = 50
    """Largest number of recalled facts, before share applies. Change it with evidence.top_k."""
    min_similarity: float = 0.0
    """Facts with a smaller cosine to the question are left out. Change it if they are off topic."""
    vectors: Literal["encoder", "words"] = "encoder"
    """encoder: evidence.embedder; words: hashed words and subwords. Change it to need no model."""
    plan: Literal["none", "rules"] = "none"
    """none: a question is asked as it is; rules: by a plan of steps. Change it for questions that
    need several facts, one of which names what the next is about."""
    compute: Literal["none", "rules"] = "none"
    """rules: what typed facts compute, such as a count, is the first passage (extra rdf). Change it
    for questions of how many and how long."""

    def __post_init__(self) -> None:
        check(0 <= self.share <= 1, "memory_graph.share", self.share, "must lie between 0 and 1")
        for name, least in (("num_evidence", 0), ("num_facts", 1)):
            value = getattr(self, name)
            check(value >= least, f"memory_graph.{name}", value, f"must be at least {least}")
        names = [name.strip() for name in self.mixture.split("+")]
        for name in names:
            near = difflib.get_close_matches(name, TRAVERSALS, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            must = f"{name!r} is none of {', '.join(TRAVERSALS)}{hint}"
            check(name in TRAVERSALS, "memory_graph.mixture", self.mixture, must)
        cosine = self.min_similarity
        is_cosine = -1 <= cosine <= 1
        check(is_cosine, "memory_graph.min_similarity", cosine, "must lie between -1 and 1")
        wrong = [letter for letter in self.forbidden if letter not in ("E", "T", "O")]
        check(not wrong, "memory_graph.forbidden", wrong, "must be some of E, T, O")
