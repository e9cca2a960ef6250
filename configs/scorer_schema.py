"""Settings of the scorer of entities and of its training alone, sections of the config."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from turngraph.configs.kinds import check, check_layers


@dataclass(frozen=True)
class ScorerConfig:
    """The GATv2 that scores entities as answers (answers: nodes and answers: choice)."""

    num_layers: int = 3
    """GATv2 layers, each with a residual and a layer norm. Change it for answers more hops away."""
    width: int = 128
    """Width of node states; token embeddings are projected to it. Change it with the data's
    size."""
    heads: int = 4
    """Attention heads, concatenated, each width / heads wide. Change it with width."""
    dropout: float = 0.1
    """Dropout of node states; twice as much before the score. Change it where training overfits."""
    weight: float = 0.75
    """Weight of the scorer's log-probability beside the LM's, with answers: choice. Change it to
    trust the scorer more or less; it was found on tune questions of SQA."""
    num_proposals: int = 20
    """Entities that the LM chooses among, with answers: choice. Change it to trade time against the
    share of questions whose answer is proposed."""
    init: str | None = None
    """Checkpoint of answers: nodes whose scorer this one starts from, with answers: choice. Change
    it to share one scorer among runs; null: random, or trained first on data.table_questions."""

    def __post_init__(self) -> None:
        for name in ("width", "heads"):
            value = getattr(self, name)
            check(value >= 1, f"model.scorer.{name}", value, "must be at least 1")
        check_layers("model.scorer.num_layers", self.num_layers)
        is_whole = self.width % self.heads == 0
        check(is_whole, "model.scorer.heads", self.heads, "must divide model.scorer.width")
        dropout, weight, num = self.dropout, self.weight, self.num_proposals
        check(0 <= dropout < 0.5, "model.scorer.dropout", dropout, "must lie in [0, 0.5)")
        is_weight = isfinite(weight) and weight >= 0
        check(is_weight, "model.scorer.weight", weight, "must be a number from 0")
        check(num >= 1, "model.scorer.num_proposals", num, "must be at least 1")


@dataclass(frozen=True)
class ScorerTrainingConfig:
    """Training of the scorer alone, on generated questions, before the LM joins (answers: choice).

    Everything else is as in ``training``; the run's folder is ``scorer`` in ``training.output``.
    """

    learning_rate: float = 1e-3
    """Adam's learning rate. Change it with the scorer's size."""
    batch_size: int = 8
    """Examples in one forward pass. Change it for the memory at hand."""
    batches_per_step: int = 1
    """Batches in one optimizer step, shared among the processes. Change it with their number."""
    num_epochs: float = 1.0
    """Passes over the generated questions. Change it where they are few."""
    max_steps: int | None = None
    """Train this many steps; null: by num_epochs. Change it to try a configuration quickly."""
    warmup_steps: int = 100
    """Steps of linear warm-up. Change it with the number of steps."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "batches_per_step", "num_epochs"):
            value = getattr(self, name)
            check(value > 0, f"scorer_training.{name}", value, "must be positive")
        steps, rate, warmup = self.max_steps, self.learning_rate, self.warmup_steps
        is_some = steps is None or steps > 0
        check(is_some, "scorer_training.max_steps", steps, "must be positive or null")
        check(rate >= 0, "scorer_training.learning_rate", rate, "must not be negative")
        check(warmup >= 0, "scorer_training.warmup_steps", warmup, "must not be negative")
