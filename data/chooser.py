"""What chooses passages, to the builder of examples; the models that do are in ``inference``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.scoring.proposals import Key, Proposal
from turngraph.data.types import Conversation, Evidence, Interaction, Retrieved

Choice = tuple[list[Retrieved], list[Proposal]]
"""Passages of a turn, and entities that are proposed as answers, best first."""
LoadExamples = Callable[..., list[Any]]
"""``example_cache.load_examples`` of a data file, called with ``builder`` and ``make_builder``."""


class Chooser(Protocol):
    """Chooses the passages of a question among those retrieved, and proposes answers."""

    @property
    def fingerprint(self) -> str:
        """Identify everything that determines what is chosen."""

    def choose(
        self,
        conversation: Conversation,
        turn: int,
        interaction: Interaction,
        pool: tuple[Evidence, ...] | None,
        cut: CutEdges,
    ) -> Choice:
        """Return passages and proposals of a turn; the arguments are a builder's."""

    def choose_all(self, load: LoadExamples) -> dict[Key, Choice]:
        """Return passages and proposals of all questions of a data file, with gold history."""

    def drop_index(self, pool: tuple[Evidence, ...]) -> None:
        """Drop what is kept of a pool that is asked no more."""


@dataclass(frozen=True)
class Chosen:
    """Passages and proposals that were chosen before, for the questions of a data file.

    Args:
        chooser: has chosen them.
        choices: its choices.
    """

    chooser: Chooser
    choices: Mapping[Key, Choice]

    @property
    def fingerprint(self) -> str:
        """Identify everything that determined what was chosen."""
        return self.chooser.fingerprint

    def choose(
        self,
        conversation: Conversation,
        turn: int,
        interaction: Interaction,
        pool: tuple[Evidence, ...] | None,
        cut: CutEdges,
    ) -> Choice:
        """Return passages and proposals of a turn with gold history and its own pool."""
        assert (pool, cut) == (None, "nothing"), "not chosen for this"
        return self.choices[conversation.id, conversation.turns[turn].id]

    def choose_all(self, load: LoadExamples) -> dict[Key, Choice]:
        """Return all choices."""
        return dict(self.choices)

    def drop_index(self, pool: tuple[Evidence, ...]) -> None:
        """Do nothing: there are no indexes."""
