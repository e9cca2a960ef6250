"""Settings of the nodes that choose an LM's passages and propose its answers, a config section."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from turngraph.configs.kinds import check

MOST_FOLDS = 16
"""Largest number of parts of the training tables; each one trains a scorer more."""


@dataclass(frozen=True)
class ProposerConfig:
    """Nodes inside the LM's checkpoint, which choose the passages of its prompt and its answers."""

    config: str = "sqa/graph_read"
    """Config of its training (answers: nodes), as for train --config; data, seed, corpus, time
    limit, output, and evidence.edges: none are this run's. Change it to propose by other nodes."""
    part_config: str | None = None
    """Config of the nodes that choose the passages of training questions; null: the same. Change it
    to nodes that are trained faster, such as sqa/graph_nodes: each part needs its own."""
    folds: int = 2
    """Parts of the training pools: the passages of each part's questions are chosen by a scorer
    that was trained on the others, so that the LM learns from prompts like those it will meet.
    Change it where pools are few."""
    weight: float = 1.0
    """Weight of the scorer's log-probability beside the LM's. Change it to trust the scorer more or
    less."""
    num_proposals: int = 20
    """Entities that the LM chooses among. Change it to trade time against the share of questions
    whose answer is proposed."""

    def __post_init__(self) -> None:
        folds, weight, num = self.folds, self.weight, self.num_proposals
        check(2 <= folds <= MOST_FOLDS, "proposer.folds", folds, f"must be from 2 to {MOST_FOLDS}")
        is_weight = isfinite(weight) and weight >= 0
        check(is_weight, "proposer.weight", weight, "must be a number from 0")
        check(1 <= num <= 20, "proposer.num_proposals", num, "must be from 1 to 20")
