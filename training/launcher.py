"""Sets up accelerate's processes, and refuses launcher settings that the config covers."""

from __future__ import annotations

import logging
from datetime import timedelta

import torch
from accelerate import Accelerator, InitProcessGroupKwargs

from turngraph.configs.parse import changed_fields
from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.model.checkpoint import commit

logger = logging.getLogger("train")
TIMEOUT = timedelta(hours=4)
"""Timeout of collective operations: all other processes wait while the first one builds all
examples, which may take longer than ten minutes, the default on GPUs."""


def make_accelerator() -> Accelerator:
    """Make the accelerator of the launched processes, or of this one alone; on GPUs if available.

    Raises:
        UserError: the launcher sets mixed precision or accumulation, which are config fields.
    """
    accelerator = Accelerator(
        cpu=not torch.accelerator.is_available(),  # else torchrun selects a GPU
        kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)],
    )
    for name, given, must, field in (
        ("mixed_precision", accelerator.mixed_precision, "no", "model.dtype"),
        (
            "gradient_accumulation_steps",
            accelerator.gradient_accumulation_steps,
            1,
            "training.batches_per_step",
        ),
    ):
        if given != must:
            raise UserError(
                f"accelerate config field {name}: {given!r} given, must be {must!r}: set the "
                f"run's config field {field} instead"
            )
    return accelerator


def log_environment(config: Config, accelerator: Accelerator) -> None:
    """Log the data needed to reproduce a run: config, commit, version of torch, devices."""
    logger.info("config:")
    for line in changed_fields(config):
        logger.info("  %s", line)
    logger.info(
        "commit %s, torch %s, %s on %s",
        commit(),
        torch.__version__,
        plural(accelerator.num_processes, "process", "processes"),
        accelerator.device,
    )
