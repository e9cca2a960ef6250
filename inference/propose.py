"""A checkpoint that answers from nodes, asked beside the LM that chooses among its answers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.jsonlines import Json, Place
from turngraph.data.scoring.predictions import proposals_of
from turngraph.data.scoring.proposals import NUM_PROPOSALS, Proposed
from turngraph.inference.answer_batches import Batching, answer_batch, answer_batches
from turngraph.inference.choose import Choice
from turngraph.inference.load import check_writes, load
from turngraph.model.checkpoint import check_manifest, checkpoint_config
from turngraph.model.distributed import sharding_wanted
from turngraph.model.graph_lm import GraphLM


@dataclass(frozen=True)
class Proposer:
    """A model that answers from nodes.

    Args:
        model: in evaluation mode.
        builder: of its examples, which are others than the LM's: more passages, other edges.
        choice: gets what it proposes.
    """

    model: GraphLM
    builder: ExampleBuilder
    choice: Choice

    def propose(self, examples: Sequence[Example], batching: Batching) -> None:
        """Hand the proposals to some questions to the choice; all processes must call it.

        Args:
            examples: of this model's builder.
            batching: sizes.

        Raises:
            ValueError: a batch does not fit into memory, and ``batching.keep_going`` is not set.
        """
        prompt, alone = self.builder.prompt, replace(batching, choice=None)
        for found in answer_batches(self.model, prompt, examples, alone):
            for number, record in found.items():
                self._hand_over(examples[number], record)

    def propose_alone(self, example: Example) -> None:
        """Hand the proposals to one question to the choice; what fails is the caller's.

        Args:
            example: of this model's builder.
        """
        [record] = answer_batch(self.model, self.builder.prompt, [example], max_new_tokens=0)
        self._hand_over(example, record)

    def _hand_over(self, example: Example, record: Json) -> None:
        place = Place(self.choice.path)
        proposals = [] if "error" in record else proposals_of(record, place)
        proposed = Proposed(record["question"], proposals[: self.choice.num])
        self.choice.proposed[example.key] = proposed


def read_choice(args: argparse.Namespace, asked_by: str | None = None) -> Choice | None:
    """What the answers are chosen from; None where they are written.

    Args:
        args: the options of a command.
        asked_by: what needs a checkpoint of proposals: its predictions were made without it.

    Raises:
        ValueError: a file of proposals is wrong, a checkpoint does not propose or not choose, or
            the options do not go together.
    """
    path, weight, num = args.proposals, args.proposal_weight, args.num_proposals
    if path is None:
        if (weight, num) != (None, None):
            raise ValueError("--proposal_weight and --num_proposals need --proposals")
        return None
    check_writes(args.checkpoint)
    if sharding_wanted():
        raise ValueError("--proposals: not under FSDP; start one process, or without shards")
    if (num or 0) > NUM_PROPOSALS:
        raise ValueError(f"--num_proposals: {num} given, there are up to {NUM_PROPOSALS}")
    choice = Choice(path, 1.0 if weight is None else weight, num or NUM_PROPOSALS)
    if not choice.is_asked:
        if asked_by is not None:
            raise ValueError(f"--proposals {path}: {asked_by} needs the checkpoint that makes them")
        choice.read()
        return choice
    check_manifest(Path(path))
    if checkpoint_config(path).model.answers != "nodes":
        raise ValueError(f"--proposals {path}: model.answers is text, so that it proposes nothing")
    return choice


def load_proposer(
    args: argparse.Namespace, choice: Choice | None, cut: CutEdges = "nothing"
) -> Proposer | None:
    """The model of ``--proposals``, on the LM's device; None where no checkpoint is to be asked.

    Args:
        args: the options of a command.
        choice: of ``read_choice``.
        cut: edges that are left out of its graphs.

    Raises:
        ValueError: it cannot be loaded.
    """
    if choice is None or not choice.is_asked:
        return None
    names = [checkpoint_config(path).model.base_model for path in (args.checkpoint, choice.path)]
    moved = args.base_model if names[0] == names[1] else None
    found = {"checkpoint": choice.path, "base_model": moved, "quantization": "none"}
    model, builder = load(argparse.Namespace(**vars(args) | found))
    builder.cut = cut
    return Proposer(model, builder, choice)
