"""Chooses the passages of an LM's prompt by a scorer of nodes, and proposes answers.

It is part of building the LM's examples, in training and in answering alike. The scorer reads many
passages (``proposer.config``), each passage counts as much as the entities in it are likely to be
the answer, and the LM's prompt takes the best ones up to ``evidence.max_nodes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

import torch

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.chooser import Choice, LoadExamples
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.scoring.proposals import NUM_PROPOSALS, Key, order_passages
from turngraph.data.types import Conversation, Evidence, Interaction
from turngraph.inference.answer_batches import (
    Batching,
    lengths_beyond,
    prompt_length,
    ranked_entities,
)
from turngraph.model.device_memory import RELEASE_EVERY, release_freed_memory
from turngraph.model.graph_lm import GraphLM

Loaded = tuple[GraphLM, ExampleBuilder]


class PassageChooser:
    """Chooses passages by scorers, one for each part of the conversations.

    Args:
        loads: functions that load the model of each part, in evaluation mode, and its builder; each
            one is called when the first question of its part comes.
        fingerprint: identifies these models.
        part: returns the index of a conversation's part.
        make_builder: makes the builder of all parts in other processes; a top-level function.
    """

    def __init__(
        self,
        loads: Sequence[Callable[[], Loaded]],
        fingerprint: str,
        part: Callable[[Conversation], int] = lambda conversation: 0,
        make_builder: Callable[[], ExampleBuilder] | None = None,
    ) -> None:
        self._loads, self._part, self._fingerprint = loads, part, fingerprint
        self._make_builder = make_builder
        self._loaded: dict[int, Loaded] = {}
        self._lock = Lock()

    @property
    def fingerprint(self) -> str:
        """Identify the models, and the parts that each one is for."""
        return self._fingerprint

    def loaded(self, index: int) -> Loaded:
        """Return a part's model and its builder; it is loaded once.

        Raises:
            UserError: it cannot be loaded.
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
    ) -> Choice:
        """Return the passages of a turn, and the entities that the nodes propose, best first.

        Args:
            conversation, turn, interaction, pool: as in ``ExampleBuilder.turn``.
            cut: edges that are left out or drawn at random, a control.

        Raises:
            UserError: a passage is too long for the model, or it cannot be loaded.
        """
        with self._lock:
            model, builder = self.loaded(self._part(conversation))
            builder.cut = cut
            memory = builder.memory(conversation)
            [(_, choice)] = _choices(
                model, [builder.turn(conversation, turn, interaction, memory, pool)]
            )
        return choice

    @torch.no_grad()
    def choose_all(self, load: LoadExamples) -> dict[Key, Choice]:
        """Choose for all questions of a data file, part by part, in batches of similar size.

        Memory has the model of one part at a time, and none afterwards.

        Args:
            load: loads the nodes' examples of the file; nodes that were trained on it find them in
                the cache.

        Raises:
            UserError: a passage is too long for the model, or it cannot be loaded.
        """
        examples: list[Example] = load(self.loaded(0)[1], make_builder=self._make_builder)
        chosen: dict[Key, Choice] = {}
        parts = [self._part(example.conversation) for example in examples]
        with self._lock, progress(len(examples), "choose passages", "questions") as bar:
            for part in sorted(set(parts)):
                model, _ = self.loaded(part)
                own = [e for e, of in zip(examples, parts, strict=True) if of == part]
                batches = Batching(max_new_tokens=0).pack([prompt_length(e) for e in own])
                for number, batch in enumerate(batches):
                    chosen.update(_choices(model, [own[index] for index in batch]))
                    bar.update(len(batch))
                    if number % RELEASE_EVERY == 0:
                        release_freed_memory(model.device)
                del model
                self._loaded.clear()
        return chosen


def _choices(model: GraphLM, examples: Sequence[Example]) -> Iterator[tuple[Key, Choice]]:
    """Yield what the nodes choose for a batch of examples."""
    for example in examples:
        if lengths := lengths_beyond(model, example, 0):
            where = f"conversation {example.key[0]}, turn {example.key[1]}"
            raise UserError(f"{where}: {lengths}")
    batch = collate(examples, "left", with_target=False).to(model.device)
    for example, entities in zip(
        examples, ranked_entities(model, batch, examples, None), strict=True
    ):
        chances = {proposal.entity.id: math.exp(proposal.logprob) for proposal in entities}
        chosen = order_passages(example.evidence, chances), entities[:NUM_PROPOSALS]
        yield example.key, chosen
