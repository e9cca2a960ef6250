"""Settings of the conversations' memory graphs, a section of the config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turngraph.configs.kinds import check
from turngraph.configs.words import similar

TRAVERSALS = ("BeamSearch", "A*", "WaterCircles", "flat", "ppr", "eigen")
"""Traversals of the memory graph that a mixture may name."""


@dataclass(frozen=True)
class MemoryGraphConfig:
    """A memory graph for each conversation, filled with what earlier turns said and retrieved."""

    mixture: str = "BeamSearch + WaterCircles"
    """Traversals joined by +: BeamSearch, A*, WaterCircles, flat, ppr, eigen. The graph of a
    conversation has no themes, and eigen then equals flat. Change it to compare traversals."""
    vectors: Literal["encoder", "words"] = "encoder"
    """encoder: evidence.embedder; words: hashed words and subwords. Change it to need no model."""
    plan: Literal["none", "rules"] = "none"
    """none: search with the question as it is; rules: divide the question into steps. Change it for
    questions that need several facts, one of which names what the next is about."""
    compute: Literal["none", "rules"] = "none"
    """rules: compute an answer, such as a count, from typed facts, and make it the first passage
    (extra rdf). Change it for questions of how many and how long."""

    def __post_init__(self) -> None:
        names = [name.strip() for name in self.mixture.split("+")]
        for name in names:
            near = similar(name, TRAVERSALS)
            hint = f"; did you mean {near}?" if near else ""
            must = f"{name!r} is none of {', '.join(TRAVERSALS)}{hint}"
            check(name in TRAVERSALS, "memory_graph.mixture", self.mixture, must)
