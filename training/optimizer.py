"""The optimizer: Adam, a learning rate for each part of the model, and how the rates change."""

from __future__ import annotations

import logging

import torch

from turngraph.configs.schema import TrainingConfig
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger(__name__)


def make_optimizer(model: GraphLM, settings: TrainingConfig) -> torch.optim.Optimizer:
    """Make Adam with a learning rate each for LoRA, encoder and residual gates."""
    rates = {
        "lora": settings.learning_rate,
        "encoder": settings.encoder_learning_rate,
        "residual_gate": settings.residual_gate_learning_rate,
    }
    groups = [
        {"params": parameters, "lr": rates[name], "full_lr": rates[name], "name": name}
        for name, parameters in model.parameter_groups().items()
    ]
    num = sum(p.numel() for group in groups for p in group["params"])
    logger.info("%d trainable parameters in %s", num, [group["name"] for group in groups])
    return torch.optim.Adam(groups, fused=True)


def set_rates(
    optimizer: torch.optim.Optimizer, settings: TrainingConfig, step: int, num_steps: int
) -> list[float]:
    """Set each group's learning rate for a step (from 0); a function of nothing else."""
    factor = rate_factor(settings, step, num_steps)
    for group in optimizer.param_groups:
        group["lr"] = factor * group["full_lr"]
    return [group["lr"] for group in optimizer.param_groups]


def rate_factor(settings: TrainingConfig, step: int, num_steps: int) -> float:
    """Linear warm-up from a first small rate, then linearly to 0 behind the last step."""
    warmup = min(settings.warmup_steps, num_steps)
    if step < warmup:
        return (step + 1) / warmup
    return max(num_steps - step, 0) / max(num_steps - warmup, 1)
