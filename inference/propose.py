"""Proposals of a checkpoint that answers from nodes, for the LM that chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.json_fields import Json, Location
from turngraph.data.scoring.predictions import proposals_of
from turngraph.data.scoring.proposals import NUM_PROPOSALS, Proposed
from turngraph.inference.answer_batches import Batching, answer_batch, answer_batches
from turngraph.inference.choose import Choice
from turngraph.inference.load import load
from turngraph.inference.options import LoadOptions, ProposalOptions
from turngraph.model.checkpoint import Checkpoint, read_checkpoint
from turngraph.model.distributed import sharding_wanted
from turngraph.model.graph_lm import GraphLM


@dataclass(frozen=True)
class Proposer:
    """A model that answers from nodes and hands its answers to a choice.

    Args:
        model: in evaluation mode.
        builder: builds its examples, which differ from the LM's: more passages, other edges.
        choice: receives the proposals.
    """

    model: GraphLM
    builder: ExampleBuilder
    choice: Choice

    def propose(self, examples: Sequence[Example], batching: Batching) -> None:
        """Hand the proposals for some questions to the choice; all processes must call it.

        Args:
            examples: of this model's builder.
            batching: sizes.

        Raises:
            UserError: a batch does not fit into memory, and ``batching.keep_going`` is not set.
        """
        prompt, alone = self.builder.prompt, replace(batching, choice=None)
        for found in answer_batches(self.model, prompt, examples, alone):
            for index, record in found.items():
                self._hand_over(examples[index], record)

    def propose_alone(self, example: Example) -> None:
        """Hand the proposals for one question to the choice; errors are the caller's to catch.

        Args:
            example: of this model's builder.
        """
        [record] = answer_batch(self.model, self.builder.prompt, [example], max_new_tokens=0)
        self._hand_over(example, record)

    def _hand_over(self, example: Example, record: Json) -> None:
        location = Location(self.choice.path or "")
        proposals = [] if "error" in record else proposals_of(record, location)
        proposed = Proposed(record["question"], proposals[: self.choice.num])
        self.choice.proposed[example.key] = proposed


def read_choice(
    options: ProposalOptions, checkpoint: Checkpoint, needed_by: str | None = None
) -> Choice | None:
    """Return what the answers are chosen from; None if the LM writes them.

    Args:
        options: which proposals, how many, and their weight.
        checkpoint: of the LM that chooses.
        needed_by: an option that needs the proposing checkpoint itself, not its predictions.

    Raises:
        UserError: a file of proposals is malformed, or a checkpoint cannot propose or choose.
    """
    path, own = options.proposals, checkpoint.config.proposer
    if own is not None:
        if path is not None:
            where = f"the nodes in {checkpoint.folder} propose"
            raise UserError(f"--proposals {path}: {where}, so that none are needed")
        return own_choice(checkpoint.config, options)
    if path is None:
        if (options.proposal_weight, options.num_proposals) != (None, None):
            raise UserError("--proposal_weight and --num_proposals need --proposals")
        return None
    checkpoint.check_writes()
    if sharding_wanted():
        raise UserError("--proposals: not possible under FSDP; start one process, or do not shard")
    weight = 1.0 if options.proposal_weight is None else options.proposal_weight
    proposing = read_checkpoint(path) if Path(path).is_dir() else None
    choice = Choice(path, weight, options.num_proposals or NUM_PROPOSALS, proposing)
    if proposing is None:
        if needed_by is not None:
            raise UserError(f"--proposals {path}: {needed_by} needs the checkpoint that makes them")
        choice.read()
    elif proposing.config.model.answers != "nodes":
        raise UserError(f"--proposals {path}: its model.answers is text, so it proposes nothing")
    return choice


def own_choice(config: Config, options: ProposalOptions | None = None) -> Choice | None:
    """Return the choice among the proposals of a checkpoint's own nodes; None: it has none.

    Args:
        config: the checkpoint's.
        options: weight and number, where they differ from the config's; None: they do not.
    """
    if (own := config.proposer) is None:
        return None
    options = options or ProposalOptions()
    weight = own.weight if options.proposal_weight is None else options.proposal_weight
    return Choice(None, weight, options.num_proposals or own.num_proposals)


def load_proposer(
    choice: Choice | None, checkpoint: Checkpoint, options: LoadOptions, cut: CutEdges = "nothing"
) -> Proposer | None:
    """Load the model of ``--proposals`` on the LM's device; None if proposals come from a file.

    Args:
        choice: of ``read_choice``.
        checkpoint: of the LM that chooses.
        options: how the LM is loaded.
        cut: edges that are left out of the proposing model's graphs.

    Raises:
        UserError: it cannot be loaded.
    """
    if choice is None or choice.checkpoint is None:
        return None
    names = {found.config.model.base_model for found in (checkpoint, choice.checkpoint)}
    moved = options.base_model if len(names) == 1 else None
    loading = LoadOptions(moved, options.device, "none", corpus=options.corpus)
    model, builder = load(choice.checkpoint, loading)
    builder.cut = cut
    return Proposer(model, builder, choice)
