"""Chooses the passages of an LM's prompt by a scorer of nodes, and proposes answers.

It is part of building the LM's examples, in training and in answering alike. The scorer reads many
passages (``proposer.config``), each passage counts as much as the entities in it are likely to be
the answer, and the LM's prompt takes the best ones up to ``evidence.max_nodes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from threading import Lock

import torch

from turngraph.data.batches.collate import collate
from turngraph.data.examples import ExampleBuilder
from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.scoring.proposals import NUM_PROPOSALS, Proposal, order_passages
from turngraph.data.types import Conversation, Evidence, Interaction, Retrieved
from turngraph.inference.answer_batches import lengths_beyond, ranked_entities
from turngraph.model.graph_lm import GraphLM

Loaded = tuple[GraphLM, ExampleBuilder]


class PassageChooser:
    """Chooses passages by scorers, one for each part of the conversations.

    Args:
        loads: functions that load the model of each part, in evaluation mode, and its builder; each
            one is called when the first question of its part comes.
        fingerprint: identifies these models.
        part: returns the index of a conversation's part.
    """

    def __init__(
        self,
        loads: Sequence[Callable[[], Loaded]],
        fingerprint: str,
        part: Callable[[Conversation], int] = lambda conversation: 0,
    ) -> None:
        self._loads, self._part, self._fingerprint = loads, part, fingerprint
        self._loaded: dict[int, Loaded] = {}
        self._lock = Lock()

    @property
    def fingerprint(self) -> str:
        """Identify the models, and the parts that each one is for."""
        return self._fingerprint

    def loaded(self, index: int) -> Loaded:
        """Return a part's model and its builder; it is loaded once.

        Raises:
            ValueError: it cannot be loaded.
        """
        if index not in self._loaded:
            self._loaded[index] = self._loads[index]()
        return self._loaded[index]

    def drop_index(self, pool: tuple[Evidence, ...]) -> None:
        """Drop the indexes of a pool that is asked no more."""
        for _, builder in self._loaded.values():
            builder.drop_index(pool)

    @torch.no_grad()
    def choose(
        self,
        conversation: Conversation,
        turn: int,
        interaction: Interaction,
        pool: tuple[Evidence, ...] | None,
        cut: CutEdges,
    ) -> tuple[list[Retrieved], list[Proposal]]:
        """Return the passages of a turn, and the entities that the nodes propose, best first.

        Args:
            conversation, turn, interaction, pool: as in ``ExampleBuilder.turn``.
            cut: edges that are left out or drawn at random, a control.

        Raises:
            ValueError: a passage is too long for the model, or it cannot be loaded.
        """
        with self._lock:
            model, builder = self.loaded(self._part(conversation))
            builder.cut = cut
            memory = builder.memory(conversation)
            example = builder.turn(conversation, turn, interaction, memory, pool)
            if lengths := lengths_beyond(model, example, 0):
                where = f"conversation {conversation.id}, turn {conversation.turns[turn].id}"
                raise ValueError(f"{where}: {lengths}")
            batch = collate([example], "left", with_target=False).to(model.device)
            [entities] = ranked_entities(model, batch, [example], None)
        chances = {proposal.entity.id: math.exp(proposal.logprob) for proposal in entities}
        return order_passages(example.evidence, chances), entities[:NUM_PROPOSALS]
