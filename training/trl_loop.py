"""Trains a text model with TRL's SFTTrainer instead of our loop: ``training.loop: trl``.

Both loops share everything up to token ids and labels: questions, evidence, prompt, base model,
initial LoRA weights, order of the examples, Adam and the learning-rate schedule (TRL's own starts
at 0 and would waste the first step). TRL does batches, forward, loss, accumulation, clipping and
mixed precision. Without dropout both end with the same weights; with dropout their masks differ.
TRL's checkpoints contain pickles, which Turngraph never writes; so a stopped run cannot resume.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from datasets import Dataset
from huggingface_hub import constants
from transformers import (
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer

from turngraph.configs.progress import track
from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.examples import Example
from turngraph.model.base_model import cast_adapter_inputs
from turngraph.model.device_memory import RELEASE_EVERY, release_freed_memory
from turngraph.model.evidence_model import EvidenceModel
from turngraph.training.optimizer import check_warmup, make_optimizer, rate_factor
from turngraph.training.run import Run

logger = logging.getLogger("train")


def train_with_trl(
    run: Run, examples: Sequence[Example], schedule: BatchSchedule, stop: StopRequest
) -> None:
    """Train a run's model with TRL, up to the last step of its schedule.

    Args:
        run: a run whose ``training.loop`` is ``trl``.
        examples: training examples, with gold answers.
        schedule: the order of the examples.
        stop: checked after every step.

    Raises:
        UserError: several processes were started, TRL would average the loss of this base model
            differently, or a loss is not finite.
        SystemExit: a stop was requested; nothing is saved.
    """
    config = replace(run.config, model=run.model.config)  # with the device's dtype
    if run.accelerator.num_processes > 1:
        raise UserError(
            f"config field training.loop: 'trl' given, which trains with one process; "
            f"{run.accelerator.num_processes} were started"
        )
    trainer = make_trainer(
        run.model,
        config,
        trainer_arguments(config),
        training_set(examples, schedule),
        run.builder.prompt.tokenizer,
        schedule.num_steps,
    )
    trainer.add_callback(_StepCallback(stop))
    trainer.train()
    run.open_log()
    for entry in trainer.state.log_history:
        if "loss" not in entry:
            continue
        values = log_values(entry)
        run.progress.step = int(entry["step"])
        run.log(values)
        if not (math.isfinite(values["loss"]) and math.isfinite(values["gradient_norm"])):
            raise UserError(
                f"step {entry['step']}: {values}, must be finite; no checkpoint is written"
            )
    if trainer.state.global_step < schedule.num_steps:
        logger.warning(
            "stopped at step %d (%s); a run with TRL cannot resume, the same command starts over",
            trainer.state.global_step,
            stop.reason,
        )
        raise SystemExit(EXIT_GO_ON)
    run.progress.step = trainer.state.global_step
    cast_adapter_inputs(run.model.causal_lm, config.model.dtype != "bfloat16")


class _StepCallback(TrainerCallback):
    """Ends TRL's loop when a stop is requested, and releases freed memory."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Check the request after every step."""
        if state.global_step % RELEASE_EVERY == 0:
            release_freed_memory(args.device)
        if self.stop and state.global_step < state.max_steps:
            control.should_training_stop = True


def trainer_arguments(config: Config) -> SFTConfig:
    """Return TRL's arguments for a config; whatever our loop does not do is switched off."""
    settings = config.training
    assert settings.batch_size is not None, "checked by the config"
    return SFTConfig(
        output_dir=settings.output,
        num_train_epochs=1,  # the data set holds all epochs, in our order
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.batches_per_step,
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
        bf16=config.model.dtype == "bfloat16",
        use_cpu=not torch.accelerator.is_available(),
        train_sampling_strategy="sequential",
        max_length=None,
        gradient_checkpointing=False,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
    )


def ids_and_labels(example: Example) -> dict[str, list[int]]:
    """Return one example in TRL's format, from the tensors that our loop trains on."""
    batch = collate([example], "right", with_target=True)
    assert batch.labels is not None
    return {"input_ids": batch.input_ids[0].tolist(), "labels": batch.labels[0].tolist()}


def training_set(examples: Sequence[Example], schedule: BatchSchedule) -> Dataset:
    """Return the examples in the order of our loop, epoch after epoch."""
    rows = [ids_and_labels(example) for example in track(examples, "ids and labels", "examples")]
    steps = map(schedule.step, range(schedule.num_steps))
    return Dataset.from_list(rows).select([i for step in steps for batch in step for i in batch])


def make_trainer(
    model: EvidenceModel,
    config: Config,
    args: SFTConfig,
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    num_steps: int,
) -> SFTTrainer:
    """Make TRL's trainer over our LM, optimizer and schedule.

    Raises:
        UserError: TRL would average the loss of this base model differently.
    """
    constants.HF_HUB_DISABLE_TELEMETRY = True  # TRL reports every run to its developers
    model.to(args.device)
    cast_adapter_inputs(model.causal_lm, True)  # PEFT's default
    check_warmup(config.training, num_steps)
    optimizer = make_optimizer(model, config.training)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate_factor(config.training, step, num_steps)
    )
    trainer = SFTTrainer(
        model=model.causal_lm,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        optimizers=(optimizer, scheduler),
    )
    if not trainer.model_accepts_loss_kwargs:  # needed to divide by the step's answer tokens
        raise UserError(
            f"config field model.base_model: {config.model.base_model!r} given, whose loss TRL "
            "averages in each forward pass and not over the step; set training.loop to native"
        )
    return trainer


def log_values(entry: dict[str, Any]) -> dict[str, float]:
    """Return the values of an entry of TRL's log under our names; TRL logs the next step's rate."""
    return {
        "loss": float(entry["loss"]),
        "gradient_norm": float(entry["grad_norm"]),
        "learning_rate": float(entry["learning_rate"]),
    }
