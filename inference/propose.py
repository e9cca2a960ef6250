"""A checkpoint that answers from nodes, asked beside the LM that chooses among its answers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data.chain_graph import CutEdges
from data.examples import Example, ExampleBuilder
from data.jsonlines import Place
from data.proposals import proposals_of
from inference.batches import Batching, answer_batches
from inference.choose import Choice
from inference.load import check_writes, load
from model.checkpoint import check_manifest, checkpoint_config
from model.graph_lm import GraphLM


@dataclass(frozen=True)
class Proposer:
    """A model that answers from nodes.

    Args:
        model: in evaluation mode.
        builder: of its examples, which are others than the LM's: more pieces, other edges.
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
                proposed = (
                    [] if "error" in record else proposals_of(record, Place(self.choice.path))
                )
                self.choice.proposals[examples[number].key] = proposed[: self.choice.num]


def read_choice(args: argparse.Namespace, asked_by: str | None = None) -> Choice | None:
    """What the answers are chosen from; None where they are written.

    Args:
        args: the options of a command.
        asked_by: what needs a checkpoint of proposals, as its predictions are of gold history.

    Raises:
        ValueError: a file of proposals is wrong, or a checkpoint does not propose or not choose.
    """
    if (path := args.proposals) is None:
        return None
    check_writes(args.checkpoint)
    choice = Choice(path, args.proposal_weight, args.num_proposals)
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
    found = {"checkpoint": choice.path, "base_model": moved, "quantization": None}
    model, builder = load(argparse.Namespace(**vars(args) | found))
    builder.cut = cut
    return Proposer(model, builder, choice)
