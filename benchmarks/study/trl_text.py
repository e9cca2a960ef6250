"""Trains the text row with TRL's SFTTrainer instead of our loop.

    python -m turngraph.benchmarks.study.trl_text --config CONFIG [--field value]

Reads the same config as ``turngraph train`` and writes a checkpoint for ``turngraph answer``. Both
share everything up to token ids and labels: questions, evidence, prompt, base model, initial LoRA
weights, order of the examples, Adam and the learning-rate schedule (TRL's own starts at 0 and would
waste the first step). TRL does batches, forward, loss, accumulation, clipping and mixed precision.
Without dropout both end with the same weights; with it they draw different masks.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from datasets import Dataset
from huggingface_hub import constants
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase
from trl import SFTConfig, SFTTrainer

from turngraph.configs.parse import load_config
from turngraph.configs.schema import Config
from turngraph.data.batches.collate import collate
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import run_cli
from turngraph.data.examples import Example
from turngraph.inference.load import load_builder
from turngraph.model.base_model import cast_adapter_inputs
from turngraph.model.checkpoint import save_checkpoint
from turngraph.model.graph_lm import GraphLM
from turngraph.train import load_train_and_tune
from turngraph.training.optimizer import make_optimizer, rate_factor

logger = logging.getLogger("trl_text")


def main(argv: Sequence[str] | None = None) -> None:
    """Train as the config says; the checkpoint is ``last`` in ``training.output``."""
    config = load_config(sys.argv[1:] if argv is None else argv)
    check_config(config)
    set_seed(config.training.seed)  # then the calls of train.py in its order: the same fresh LoRA
    builder = load_builder(config)
    examples, _ = load_train_and_tune(config, builder)
    model = GraphLM(config.model)

    args = trainer_arguments(config)
    schedule = BatchSchedule(examples, config.training, args.world_size)
    args.gradient_accumulation_steps //= args.world_size
    dataset, num_steps = training_set(examples, schedule), schedule.num_steps
    trainer = make_trainer(model, config, args, dataset, builder.prompt.tokenizer, num_steps)
    trainer.train()
    finish(trainer, model, config)


def check_config(config: Config) -> None:
    """Refuse a config that is not text fine-tuned with LoRA.

    Raises:
        ValueError: names the field.
    """
    if config.model.evidence != "text":
        given = config.model.evidence
        raise ValueError(f"config field model.evidence: {given!r} given, TRL trains on text only")
    if config.model.lora is None:
        raise ValueError("config field model.lora: null given, there is nothing for TRL to train")
    if config.training.batch_size is None:
        raise ValueError("config field training.batch_size: null given, TRL takes no token budget")
    if config.training.max_steps == 0:
        raise ValueError("config field training.max_steps: 0 given, TRL would train nothing")


def trainer_arguments(config: Config) -> SFTConfig:
    """TRL's arguments for a config; what TRL does beyond our loop is switched off."""
    settings = config.training
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
        logging_steps=settings.log_every,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
    )


def ids_and_labels(example: Example) -> dict[str, list[int]]:
    """One example as TRL takes it, from the tensors that our loop trains on."""
    batch = collate([example], "right", with_target=True)
    return {"input_ids": batch.input_ids[0].tolist(), "labels": batch.labels[0].tolist()}


def training_set(examples: Sequence[Example], schedule: BatchSchedule) -> Dataset:
    """The examples that ``train.py`` would see, in its order, epoch after epoch."""
    rows = [ids_and_labels(example) for example in tqdm(examples, desc="ids and labels")]
    steps = map(schedule.step, range(schedule.num_steps))
    return Dataset.from_list(rows).select([i for step in steps for batch in step for i in batch])


def make_trainer(
    model: GraphLM,
    config: Config,
    args: SFTConfig,
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    num_steps: int,
) -> SFTTrainer:
    """TRL's trainer over our LM, optimizer and schedule.

    Raises:
        ValueError: TRL would average the loss of this base model in another way.
    """
    constants.HF_HUB_DISABLE_TELEMETRY = True  # TRL reports every run to its makers
    model.to(args.device)
    cast_adapter_inputs(model.lm, True)  # as PEFT leaves them
    optimizer = make_optimizer(model, config.training)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate_factor(config.training, step, num_steps)
    )
    trainer = SFTTrainer(
        model=model.lm,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        optimizers=(optimizer, scheduler),
    )
    if not trainer.model_accepts_loss_kwargs:  # else divided by the answer tokens of the step
        raise ValueError(
            f"config field model.base_model: {config.model.base_model!r} given, TRL averages its "
            "loss within each forward pass and not over the whole step"
        )
    return trainer


def finish(trainer: SFTTrainer, model: GraphLM, config: Config) -> None:
    """Write the log, with the names of train.py's, and the checkpoint.

    Raises:
        ValueError: a loss or a gradient was not finite; no checkpoint is written.
    """
    if not trainer.is_world_process_zero():
        return
    output = Path(config.training.output)
    records = [log_record(entry) for entry in trainer.state.log_history if "loss" in entry]
    with open(output / "log.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    for record in records:
        if not (math.isfinite(record["loss"]) and math.isfinite(record["gradient_norm"])):
            raise ValueError(f"step {record['step']}: {record}")
    metrics = {"steps": trainer.state.global_step}
    save_checkpoint(model, config, metrics, output / "last")
    logger.info("done: %s", output / "last")


def log_record(entry: dict[str, Any]) -> dict[str, Any]:
    """A line of log.jsonl from an entry of TRL's log; the rate is that of the next step."""
    return {
        "step": entry["step"],
        "loss": entry["loss"],
        "gradient_norm": float(entry["grad_norm"]),
        "learning_rate": entry["learning_rate"],
    }


if __name__ == "__main__":
    run_cli(main)
