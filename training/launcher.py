"""What starts the processes: accelerate, with the settings of its launcher that fit this loop."""

from __future__ import annotations

import logging
from datetime import timedelta

import torch
from accelerate import Accelerator, InitProcessGroupKwargs

from turngraph.configs.parse import write_config
from turngraph.configs.schema import Config
from turngraph.model.checkpoint import commit

logger = logging.getLogger("train")
PATIENCE = timedelta(hours=4)
"""How long a process waits for another one: the first builds all examples, and ten minutes, the
default on GPUs, are not enough for it."""


def make_accelerator() -> Accelerator:
    """The processes that were started, or this one alone; on GPUs where there are some.

    Raises:
        ValueError: the launcher was told what the config says, or what the loop does not do.
    """
    accelerator = Accelerator(
        cpu=not torch.accelerator.is_available(),  # torchrun finds it, too
        kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
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
            raise ValueError(
                f"accelerate config field {name}: {given!r} given, must be {must!r}: the config "
                f"field is {field}"
            )
    return accelerator


def log_environment(config: Config, accelerator: Accelerator) -> None:
    """What a run can be repeated from: config, commit, versions, devices."""
    logger.info("config:\n%s", write_config(config))
    logger.info(
        "commit %s, torch %s, %d process(es) on %s",
        commit(),
        torch.__version__,
        accelerator.num_processes,
        accelerator.device,
    )
