"""Adam with a learning rate for each part of the model, and the learning-rate schedule."""

from __future__ import annotations

import logging
from typing import Any

import torch

from turngraph.configs.schema import TrainingConfig
from turngraph.configs.words import plural
from turngraph.model.evidence_model import EvidenceModel

logger = logging.getLogger(__name__)

GATE_RATE = 5e-3
"""Learning rate of the residual gates, which start small and have one value a layer."""


def check_warmup(settings: TrainingConfig, num_steps: int) -> None:
    """Warn if the warm-up is longer than the run, whose learning rates then never decay."""
    if settings.warmup_steps > num_steps:
        logger.warning(
            "training.warmup_steps: %d, but the run has %s: the learning rates never decay",
            settings.warmup_steps,
            plural(num_steps, "step"),
        )


def make_optimizer(model: EvidenceModel, settings: TrainingConfig) -> torch.optim.Optimizer:
    """Make Adam with separate learning rates for LoRA, encoder and residual gates."""
    rates = {
        "lora": settings.learning_rate,
        "encoder": settings.encoder_learning_rate,
        "residual_gate": GATE_RATE,
    }
    groups: list[dict[str, Any]] = [
        {"params": parameters, "lr": rates[name], "full_lr": rates[name], "name": name}
        for name, parameters in model.parameter_groups().items()
    ]
    num = sum(p.numel() for group in groups for p in group["params"])
    logger.info("%d trainable parameters in %s", num, [group["name"] for group in groups])
    return torch.optim.Adam(groups, fused=True)


def set_rates(
    optimizer: torch.optim.Optimizer, settings: TrainingConfig, step: int, num_steps: int
) -> list[float]:
    """Set and return each group's learning rate, a function of the step (from 0) alone."""
    factor = rate_factor(settings, step, num_steps)
    for group in optimizer.param_groups:
        group["lr"] = factor * group["full_lr"]
    return [group["lr"] for group in optimizer.param_groups]


def rate_factor(settings: TrainingConfig, step: int, num_steps: int) -> float:
    """Return the rate's factor: linear warm-up, then linear decay to 0 after the last step."""
    warmup = min(settings.warmup_steps, num_steps)
    if step < warmup:
        return (step + 1) / warmup
    return max(num_steps - step, 0) / max(num_steps - warmup, 1)
