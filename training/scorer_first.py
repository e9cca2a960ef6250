"""Derives the run that trains the scorer of ``answers: choice`` before LM and scorer are trained.

A scorer that has not been trained proposes nothing that is worth choosing from. It is therefore
trained alone first, on questions generated from tables, as an ordinary run with ``answers: nodes``.
It meets the questions of people for the first time when the LM does, so that its proposals for them
are as imperfect as those that the LM will choose from later.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from turngraph.configs.schema import Config, TrainingConfig
from turngraph.configs.scorer_schema import ScorerConfig
from turngraph.training.kept_checkpoints import newest_checkpoint

FOLDER = "scorer"
"""Folder of the scorer's own run, in ``training.output``."""


def scorer_run(config: Config) -> Config | None:
    """Return the config of the run that trains the scorer alone; None if there is none."""
    if config.model.answers != "choice" or not config.data.table_questions:
        return None
    own, settings = config.scorer_training, config.training
    usual = ScorerConfig()  # what is not used here may change without another training
    scorer = replace(
        config.model.scorer, init=None, weight=usual.weight, num_proposals=usual.num_proposals
    )
    return replace(
        config,
        data=replace(config.data, train_repeats=0),
        evidence=replace(config.evidence, max_prompt_nodes=None),
        model=replace(config.model, answers="nodes", evidence="graph", lora=None, scorer=scorer),
        training=replace(
            settings,
            learning_rate=TrainingConfig().learning_rate,
            encoder_learning_rate=own.learning_rate,
            batch_size=own.batch_size,
            batch_tokens=None,
            batches_per_step=own.batches_per_step,
            num_epochs=own.num_epochs,
            max_steps=own.max_steps,
            warmup_steps=own.warmup_steps,
            output=str(Path(settings.output) / FOLDER),
        ),
    )


def is_begun(config: Config, accelerator: Accelerator, fresh: bool) -> bool:
    """Tell whether the run of LM and scorer has a checkpoint to resume from; in all processes.

    Its scorer then needs no start.

    Args:
        config: of that run.
        accelerator: the processes.
        fresh: whether earlier runs are removed.
    """
    found = [False]
    if accelerator.is_main_process and not fresh:
        found = [newest_checkpoint(Path(config.training.output)) is not None]
    return bool(broadcast_object_list(found)[0])
