"""What chooses passages, to the builder of examples; the models that do are in ``inference``."""

from __future__ import annotations

from typing import Protocol

from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.scoring.proposals import Proposal
from turngraph.data.types import Conversation, Evidence, Interaction, Retrieved


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
    ) -> tuple[list[Retrieved], list[Proposal]]:
        """Return passages and proposals of a turn, best first; the arguments are a builder's."""

    def drop_index(self, pool: tuple[Evidence, ...]) -> None:
        """Drop what is kept of a pool that is asked no more."""
