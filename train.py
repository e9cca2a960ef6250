"""Train a checkpoint: ``python train.py --config configs/X.yaml [--any.field value]``.

The same under ``accelerate launch``. Reads top to bottom: data, model, loop, evaluation, save.
"""

from __future__ import annotations

import json
import logging
import math
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from configs.load import load_config, write_config
from configs.schema import Config, TrainingConfig
from data.cli import run_cli
from data.collate import collate
from data.entities import complete_entities
from data.examples import Example, ExampleBuilder, choose_questions
from data.jsonlines import read_conversations
from infer import answer_examples, load_builder
from model.checkpoint import commit, save_checkpoint
from model.graph_lm import GraphLM

logger = logging.getLogger("train")
TUNE_SEED = 1  # the questions that runs are compared on do not change with the run's seed


def main(argv: Sequence[str] | None = None) -> None:
    """Train as the config says; checkpoints ``best`` and ``last`` are in ``training.output``."""
    config = load_config(sys.argv[1:] if argv is None else argv)
    accelerator = Accelerator()
    if not accelerator.is_main_process:
        logging.disable(logging.INFO)
    set_seed(config.training.seed)
    output = Path(config.training.output)
    log_environment(config, accelerator)

    builder = load_builder(config)
    train, tune = load_examples(config, builder)
    model = GraphLM(config.model)
    run = Run(config, accelerator, model, builder, tune, output)
    if config.training.max_steps != 0:
        run.train(train)
    run.finish()


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


def load_examples(config: Config, builder: ExampleBuilder) -> tuple[list[Example], list[Example]]:
    """Training and tuning examples; retrieval, graphs and tokens are computed once, here."""
    data, seed = config.data, config.training.seed
    train: list[Example] = []
    if data.train is not None and config.training.max_steps != 0:
        train = _examples(builder, data.train, data.max_train_questions, data, seed)
    tune: list[Example] = []
    if data.tune is not None:
        tune = _examples(builder, data.tune, data.max_tune_questions, data, TUNE_SEED)
    return train, tune


def _examples(
    builder: ExampleBuilder, path: str, num: int | None, data: Any, seed: int
) -> list[Example]:
    conversations = complete_entities(read_conversations(path))
    try:
        chosen = choose_questions(conversations, num, data.single_answers_only, seed)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    builder.counts.clear()
    examples = [
        example
        for number, turns in tqdm(chosen.items(), desc=f"graphs of {Path(path).name}")
        for example in builder.conversation(conversations[number], turns)
    ]
    builder.log_counts()
    held = sum(bool(example.answer_sources) for example in examples)
    total = sum(bool(turn.answers) for c in conversations for turn in c.turns)
    logger.info(
        "%s: %d of %d questions, E_t holds the answer of %d", path, len(examples), total, held
    )
    return examples


class Run:
    """One training run: the loop and what it writes.

    Args:
        config: the whole config.
        accelerator: device and processes.
        model: fresh; ``train`` changes it.
        builder: holds prompt and tokenizer.
        tune: examples to evaluate on.
        output: folder for checkpoints and logs.
    """

    def __init__(
        self,
        config: Config,
        accelerator: Accelerator,
        model: GraphLM,
        builder: ExampleBuilder,
        tune: list[Example],
        output: Path,
    ) -> None:
        self.config, self.accelerator, self.output = config, accelerator, output
        self.model, self.builder, self.tune = model.to(accelerator.device), builder, tune
        self.best: dict[str, Any] | None = None
        self.step, self.started = 0, time.monotonic()
        self.metrics: dict[str, Any] = {}
        self.writer: SummaryWriter | None = None
        if accelerator.is_main_process:
            output.mkdir(parents=True, exist_ok=True)
            (output / "log.jsonl").unlink(missing_ok=True)
            shutil.rmtree(output / "tensorboard", ignore_errors=True)  # an earlier run's curves
            self.writer = SummaryWriter(str(output / "tensorboard"))

    def train(self, examples: list[Example]) -> None:
        """The loop: batch, loss, backward, clip, step, log, evaluate, save."""
        settings = self.config.training
        num_steps = count_steps(settings, len(examples), self.accelerator.num_processes)
        optimizer = make_optimizer(self.model, settings)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule(settings, num_steps))
        model, optimizer = self.accelerator.prepare(self.model, optimizer)
        steps = step_batches(
            examples, settings, self.accelerator.process_index, self.accelerator.num_processes
        )
        quiet = not self.accelerator.is_local_main_process
        with tqdm(total=num_steps, desc="train", unit="step", disable=quiet) as bar:
            for self.step, batches in zip(range(1, num_steps + 1), steps, strict=False):
                model.train()
                began = time.monotonic()
                loss = self.accumulate(model, batches)
                norm = self.accelerator.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
                if not math.isfinite(loss) or not torch.isfinite(norm):
                    keys = [example.key for batch in batches for example in batch]
                    raise ValueError(f"step {self.step}: loss {loss}, norm {norm}, batch {keys}")
                rates = scheduler.get_last_lr()
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                bar.update()
                if self.step % settings.log_every == 0:
                    self.log(loss, float(norm), rates, batches, began, bar)
                if self.tune and settings.eval_every and self.step % settings.eval_every == 0:
                    self.evaluate()

    def accumulate(self, model: torch.nn.Module, batches: list[list[Example]]) -> float:
        """Gradients of one step; the loss is divided by the answer tokens of all processes."""
        answer_tokens = sum(len(e.target_ids) for batch in batches for e in batch)
        local = torch.tensor(float(answer_tokens), device=self.accelerator.device)
        num_tokens = self.accelerator.reduce(local, "sum").clamp_min(1)
        total = torch.zeros((), device=self.accelerator.device)
        for number, batch in enumerate(batches):
            last = number + 1 == len(batches)
            with nullcontext() if last else self.accelerator.no_sync(model):
                tensors = collate(batch, "right", with_target=True).to(self.accelerator.device)
                loss = model(tensors).total / num_tokens
                # data parallelism averages over processes what here must be a sum
                self.accelerator.backward(loss * self.accelerator.num_processes)
            total += loss.detach()
        return float(self.accelerator.reduce(total, "sum"))

    def log(
        self,
        loss: float,
        norm: float,
        rates: list[float],
        batches: list[list[Example]],
        began: float,
        bar: tqdm[Any],
    ) -> None:
        """One line of log.jsonl, TensorBoard and the bar."""
        tokens = sum(example.num_tokens for batch in batches for example in batch)
        values = {
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": rates[0],
            "tokens_per_second": tokens / (time.monotonic() - began),
        }
        if (encoder := self.model.encoder) is not None:
            values["relative_change"] = encoder.relative_change
            if encoder.config.residual == "gated":
                gates = enumerate(encoder.gates.tolist())
                values |= {f"gate_{number}": gate for number, gate in gates}
        self.write(values)
        bar.set_postfix(loss=f"{loss:.3f}", tokens_s=f"{values['tokens_per_second']:.0f}")

    def write(self, values: dict[str, float]) -> None:
        """Values of this step to log.jsonl and TensorBoard."""
        if self.writer is None:
            return
        for name, value in values.items():
            self.writer.add_scalar(name, value, self.step)
        self.writer.flush()
        record = {"step": self.step, "seconds": time.monotonic() - self.started} | values
        with open(self.output / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def evaluate(self) -> None:
        """Answer the tuning questions with all processes; keep the best checkpoint by H@1."""
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        settings = self.config.training
        self.model.eval()
        mine = answer_examples(
            self.model,
            self.builder.prompt,
            self.tune[rank::world],
            settings.eval_batch_size,
            settings.max_new_tokens,
            progress=self.accelerator.is_local_main_process,
        )
        records = gather_object(list(mine))
        hits = [float(record["hit_at_1"]) for record in records]
        self.metrics = {
            "step": self.step,
            "questions": len(hits),
            "hit_at_1": sum(hits) / max(len(hits), 1),
            "hit_at_5": sum(float(r["hit_at_5"]) for r in records) / max(len(hits), 1),
        }
        self.write({f"tune_{name}": self.metrics[name] for name in ("hit_at_1", "hit_at_5")})
        logger.info("step %d, tune: %s", self.step, self.metrics)
        if self.best is None or self.metrics["hit_at_1"] > self.best["hit_at_1"]:
            self.best = self.metrics
            self.save("best")

    def finish(self) -> None:
        """Evaluate where the last step was not, and save ``last``."""
        if self.tune and self.metrics.get("step") != self.step:
            self.evaluate()
        self.save("last")
        if self.best is None:
            self.save("best")
        logger.info("done; best on tune: %s", self.best)
        logger.info("answer with: python infer.py answer --checkpoint %s", self.output / "best")

    def save(self, name: str) -> None:
        """Write a checkpoint under a name in the output folder."""
        if self.accelerator.is_main_process:
            metrics = self.metrics | {"steps": self.step}
            save_checkpoint(self.model, self.config, metrics, self.output / name)
        self.accelerator.wait_for_everyone()


def make_optimizer(model: GraphLM, settings: TrainingConfig) -> torch.optim.Optimizer:
    """Adam with a learning rate each for LoRA, encoder and gates."""
    rates = {
        "lora": settings.learning_rate,
        "encoder": settings.encoder_learning_rate,
        "gate": settings.gate_learning_rate,
    }
    groups = [
        {"params": parameters, "lr": rates[name], "name": name}
        for name, parameters in model.parameter_groups().items()
    ]
    num = sum(p.numel() for group in groups for p in group["params"])
    logger.info("%d trainable parameters in %s", num, [group["name"] for group in groups])
    return torch.optim.Adam(groups, fused=True)


def schedule(settings: TrainingConfig, num_steps: int) -> Callable[[int], float]:
    """Linear warm-up from a first small rate, then linearly to 0 behind the last step."""
    warmup = min(settings.warmup_steps, num_steps)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return max(num_steps - step, 0) / max(num_steps - warmup, 1)

    return factor


def count_steps(settings: TrainingConfig, num_examples: int, num_processes: int) -> int:
    """Steps of a run: epochs times examples over the global batch, or ``max_steps`` if fewer."""
    size = settings.batch_size * settings.batches_per_step * num_processes
    steps = max(1, math.ceil(num_examples * settings.num_epochs / size))
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def step_batches(
    examples: list[Example], settings: TrainingConfig, rank: int, world: int
) -> Iterator[list[list[Example]]]:
    """For every step, this process's batches; epochs are shuffled by the seed, without end.

    The global batch of a step is the same for any number of processes that divides it.
    """
    size = settings.batch_size * settings.batches_per_step * world
    order = epochs(len(examples), settings.seed)
    while True:
        chosen = [examples[next(order)] for _ in range(size)]
        mine = chosen[rank::world]
        yield [mine[i : i + settings.batch_size] for i in range(0, len(mine), settings.batch_size)]


def epochs(num_examples: int, seed: int) -> Iterator[int]:
    """Numbers of examples, epoch after epoch, each epoch in an order of its own."""
    epoch = 0
    while True:
        order = list(range(num_examples))
        random.Random(f"epoch {epoch} of seed {seed}").shuffle(order)
        yield from order
        epoch += 1


if __name__ == "__main__":
    run_cli(main)
