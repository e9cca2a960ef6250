"""Derives the runs that train the nodes of a ``proposer``, before the LM is trained.

One run trains on all questions; its nodes become part of the LM's checkpoint. Before it, one run
for each part of the training pools leaves that part out: its nodes choose the passages of the
part's questions, so that the LM learns from prompts as imperfect as those that it will meet
(stacking, Wolpert, 1992). Conversations with the same passages are in the same part.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from turngraph.configs.kinds import FieldError
from turngraph.configs.parse import read_config
from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.data.examples import Example
from turngraph.data.types import Conversation
from turngraph.model.checkpoint import NODES
from turngraph.model.distributed import sharding_wanted


@dataclass(frozen=True)
class ProposerRun:
    """A run that trains nodes.

    Args:
        config: of the run.
        left_out: index of the part whose questions it does not see; None: it sees all.
        folds: number of parts.
    """

    config: Config
    left_out: int | None
    folds: int

    def keep(self, examples: list[Example]) -> list[Example]:
        """Return the examples that it trains on.

        Raises:
            UserError: none is left.
        """
        left_out, folds = self.left_out, self.folds
        kept = [e for e in examples if part_of(e.conversation, folds) != left_out]
        if not kept:
            raise UserError(
                f"config field proposer.folds: {self.config.data.train}: all questions have the "
                "same passages, so that there is none to train the nodes on that choose for the "
                "others"
            )
        return kept

    @property
    def checkpoint(self) -> Path:
        """The folder of its trained nodes."""
        return Path(self.config.training.output) / "best"


def part_of(conversation: Conversation, folds: int) -> int:
    """Return the part of a conversation, by a hash of its passages; without any, of its id."""
    of_turns = [passage for turn in conversation.turns for passage in turn.evidence]
    texts = [passage.text for passage in conversation.evidence or of_turns]
    digest = hashlib.sha256("\n".join(texts or [conversation.id]).encode())
    return int.from_bytes(digest.digest()[:8]) % folds


def proposer_runs(config: Config) -> list[ProposerRun]:
    """Return the runs of a config's proposer, that on all questions last; none without one.

    Raises:
        UserError: a config of nodes cannot be read, or is not one of nodes that can propose.
    """
    if config.proposer is None:
        return []
    if sharding_wanted():
        raise FieldError("proposer", "not possible under FSDP; start one process, or do not shard")
    name, folds = config.proposer.config, config.proposer.folds
    whole = config_of_nodes(name, "proposer.config")
    of_part = config.proposer.part_config
    parts = whole if of_part is None else config_of_nodes(of_part, "proposer.part_config")
    data, evidence, settings = config.data, config.evidence, config.training

    def run(folder: str, left_out: int | None) -> ProposerRun:
        own = whole if left_out is None else parts
        edges = own.evidence.edges if evidence.edges == "all" else evidence.edges
        changed = replace(
            own,
            data=replace(
                own.data,
                train=data.train,
                tune=data.tune if left_out is None else None,
                max_train_questions=data.max_train_questions,
                draw_seed=data.draw_seed,
                max_tune_questions=data.max_tune_questions,
                single_answers_only=data.single_answers_only,
                num_workers=data.num_workers,
            ),
            evidence=replace(own.evidence, corpus=evidence.corpus, edges=edges),
            training=replace(
                own.training,
                seed=settings.seed,
                max_minutes=settings.max_minutes,
                output=str(Path(settings.output) / NODES / folder),
            ),
        )
        return ProposerRun(changed, left_out, folds)

    return [*(run(f"without_{part}", part) for part in range(folds)), run("all", None)]


def config_of_nodes(name: str, field: str) -> Config:
    """Read a config of nodes that can propose.

    Args:
        name: as for ``train --config``.
        field: the config field that names it, for messages.

    Raises:
        UserError: it cannot be read, or is not one of nodes that can propose.
    """
    try:
        own = read_config(name)
    except UserError as error:
        raise UserError(f"config field {field}: {error}") from None
    wanted = {
        "model.answers": (own.model.answers, "nodes"),
        "evidence.memory": (own.evidence.memory, "none"),
        "memory_graph": (own.memory_graph, None),
        "training.max_steps": (own.training.max_steps == 0, False),
    }
    for inner, (value, must) in wanted.items():
        if value != must:
            raise FieldError(field, f"{name}: its {inner} cannot be that of a proposer")
    return own
