"""Train a checkpoint: ``python train.py --config configs/X.yaml [--any.field value]``.

The same under ``accelerate launch`` and ``torchrun``; the same again after a stop or a crash goes
on from the newest checkpoint. Reads top to bottom: data, model, loop, evaluation, save.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from tqdm import tqdm

from turngraph.configs.parse import parse_train_options
from turngraph.configs.schema import Config
from turngraph.data.batches.prefetch import Step, Trial, fingerprint, steps
from turngraph.data.batches.schedule import BatchSchedule, check_shared_evenly
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli
from turngraph.data.example_cache import load_examples
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.inference.answer_batches import answer_together, check_lengths
from turngraph.inference.load import load_builder
from turngraph.model.checkpoint import save_checkpoint, trained_weights
from turngraph.model.device_memory import peak_memory
from turngraph.model.distributed import is_sharded, place, process_group_ended, whole
from turngraph.model.graph_lm import GraphLM
from turngraph.training.diagnostics import (
    memory_advice,
    memory_lines,
    not_finite_report,
    write_report,
)
from turngraph.training.launcher import log_environment, make_accelerator
from turngraph.training.optimizer import make_optimizer, set_rates
from turngraph.training.run_folder import (
    Progress,
    find_resumable,
    load_resumable,
    locked,
    save_resumable,
    start_afresh,
)
from turngraph.training.run_log import RunLog

logger = logging.getLogger("train")
TUNE_SEED = 1  # the questions that runs are compared on do not change with the run's seed


def main(argv: Sequence[str] | None = None) -> None:
    """Train as the config says; checkpoints ``best`` and ``last`` are in ``training.output``."""
    options, config = parse_train_options(sys.argv[1:] if argv is None else argv)
    # asked to stop also while everything is loaded
    with StopRequest(config.training.max_minutes) as stop, process_group_ended():
        run_training(options, config, stop)


def run_training(options: Namespace, config: Config, stop: StopRequest) -> None:
    """Data, model, and the run; or what it would need."""
    accelerator = make_accelerator()
    if not accelerator.is_main_process:
        logging.disable(logging.INFO)
    check_shared_evenly(config.training.batches_per_step, accelerator.num_processes)
    set_seed(config.training.seed)
    builder = load_builder(config)
    with accelerator.main_process_first():  # the others then find them in the cache
        train, tune = load_train_and_tune(config, builder)
    log_environment(config, accelerator)
    output = Path(config.training.output)
    run = Run(config, accelerator, GraphLM(config.model), builder, tune, output)
    check_lengths(run.model, train, None)
    check_lengths(run.model, tune, config.training.max_new_tokens)
    if accelerator.process_index:  # every process drops out something else
        set_seed(config.training.seed, device_specific=True)
    if options.dry_run:
        return dry_run(run, train)
    with locked(output) if accelerator.is_main_process else nullcontext():
        if options.fresh and accelerator.is_main_process:
            start_afresh(output)
        if config.training.max_steps != 0:
            run.train(train, stop, options.resume_anyway)
        else:
            run.resume("", anyway=False)  # what is trained is not written over
        run.finish()


def load_train_and_tune(
    config: Config, builder: ExampleBuilder
) -> tuple[list[Example], list[Example]]:
    """Training and tuning examples; retrieval, graphs and tokens are computed once."""
    data, seed, train, tune = config.data, config.training.seed, [], []
    load = partial(load_examples, builder, data=data, make_builder=partial(load_builder, config))
    if data.train is not None and config.training.max_steps != 0:
        train = data.train_repeats * load(data.train, data.max_train_questions, seed=seed)
        if data.table_questions:
            train += load(data.train, data.table_questions, seed=seed, from_tables=True)
    if data.tune is not None:
        tune = load(data.tune, data.max_tune_questions, seed=TUNE_SEED)
    return train, tune


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
        self.model, self.builder, self.tune = place(model, accelerator.device), builder, tune
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        self.progress = Progress(num_processes=self.world)
        self.optimizer: torch.optim.Optimizer | None = None
        self.run_log: RunLog | None = None
        self.largest_batch = 0  # tokens of the largest batch that fitted, padding included

    def train(
        self, examples: list[Example], stop: StopRequest, resume_anyway: bool = False
    ) -> None:
        """Train on examples, from where the folder's newest checkpoint stands.

        Args:
            examples: with gold answers.
            stop: asked after every step.
            resume_anyway: also from a checkpoint of a config that differs, where it may.
        """
        settings, schedule = self.config.training, self.prepare(examples)
        self.resume(fingerprint(examples), resume_anyway)
        if self.progress.finished:
            logger.info("%s: finished already; --fresh trains again", self.output)
            return
        self.open_log()
        first, num_steps = self.progress.step, schedule.num_steps
        numbers = range(first, num_steps)
        quiet = not self.accelerator.is_local_main_process
        with tqdm(total=num_steps, initial=first, desc="train", unit="step", disable=quiet) as bar:
            for step in steps(examples, schedule, numbers, self.rank, self.world, settings.packing):
                self.take(step, num_steps, stop, bar)

    def prepare(self, examples: list[Example]) -> BatchSchedule:
        """Make the optimizer and the order of the data."""
        schedule = BatchSchedule(examples, self.config.training, self.world)
        logger.info(
            "%d steps; %.1f examples a batch, %.1f %% of the tokens are padding",
            schedule.num_steps,
            schedule.examples_per_batch(),
            100 * schedule.padding_share(),
        )
        optimizer = make_optimizer(self.model, self.config.training)
        if is_sharded(self.model):
            self.model_in_loop, self.optimizer = self.model, optimizer
        else:
            self.model_in_loop, self.optimizer = self.accelerator.prepare(self.model, optimizer)
        return schedule

    def resume(self, data: str, anyway: bool) -> None:
        """Go to where the newest checkpoint stands, if there is one; it must be of these data."""
        found: list[Any] = [None]
        if self.accelerator.is_main_process:
            found = [find_resumable(self.output, self.config, data, anyway)]
        broadcast_object_list(found)
        if found[0] is not None:
            folder, self.progress = found[0]
            if self.optimizer is not None:
                load_resumable(folder, self.progress, self.model, self.optimizer, self.accelerator)
        self.progress.data = data

    def take(self, step: Step, num_steps: int, stop: StopRequest, bar: tqdm[Any]) -> None:
        """One step: loss, backward, clip, step, log, evaluate, save."""
        settings, began = self.config.training, time.monotonic()
        rates = set_rates(self.optimizer, settings, step.number, num_steps)
        loss, norm, stopping = self.update(step, bool(stop))
        seconds = step.wait + time.monotonic() - began
        self.progress.step = step.number + 1
        self.progress.seconds += seconds
        bar.update()
        if due(self.progress.step, settings.log_every):
            self.log(step, loss, norm, rates, seconds, bar)
        if self.tune and due(self.progress.step, settings.eval_every):
            self.evaluate()
        if stopping:
            self.stop(stop)
        if due(self.progress.step, settings.save_every) and self.progress.step < num_steps:
            self.save_last()

    def update(self, step: Step, stop: bool = False) -> tuple[float, float, bool]:
        """Change the weights by a step; its loss, gradient norm, and whether to stop."""
        self.model.train()
        loss, stopping = self.accumulate(step, stop)
        parameters = self.model_in_loop.parameters()
        norm = self.accelerator.clip_grad_norm_(parameters, self.config.training.max_grad_norm)
        if not math.isfinite(loss) or not torch.isfinite(norm):
            self.stop_at_not_finite(step, loss, float(norm))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, float(norm), stopping

    def accumulate(self, step: Step, stop: bool = False) -> tuple[float, bool]:
        """Gradients of one step.

        Returns:
            The mean loss of the answer tokens of all processes, and whether any of the processes
            was asked to stop.
        """
        total = torch.zeros(2, device=self.accelerator.device)
        total[1] = float(stop)
        for number, batch in enumerate(step.batches):
            # shards of gradients are small to send, whole ones large to keep
            send = number + 1 == len(step.batches) or is_sharded(self.model)
            with nullcontext() if send else self.accelerator.no_sync(self.model_in_loop):
                tensors = batch.to(self.accelerator.device)
                with memory_advice(batch, self.largest_batch):
                    loss = self.model_in_loop(tensors).total / max(step.answer_tokens, 1)
                    # data parallelism averages over processes what here must be a sum
                    self.accelerator.backward(loss * self.world)
            total[0] += loss.detach()
            self.largest_batch = max(self.largest_batch, batch.input_ids.numel())
        loss, asked = self.accelerator.reduce(total, "sum").tolist()
        return loss, asked > 0

    def log(
        self,
        step: Step,
        loss: float,
        norm: float,
        rates: list[float],
        seconds: float,
        bar: tqdm[Any],
    ) -> None:
        """One line of log.jsonl, TensorBoard and the bar."""
        values = {
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": rates[0],
            "tokens_per_second": step.num_tokens / seconds,
            "data_wait_seconds": step.wait,
            "peak_memory_gib": peak_memory(self.accelerator.device) / 2**30,
        }
        if (encoder := self.model.encoder) is not None:
            values["relative_change"] = float(encoder.relative_change)
            if encoder.config.residual == "gated":
                gates = enumerate(whole(encoder.gates).tolist())
                values |= {f"gate_{number}": gate for number, gate in gates}
        self.write(values)
        bar.set_postfix(
            loss=f"{loss:.3f}",
            tokens_s=f"{values['tokens_per_second']:.0f}",
            memory=f"{values['peak_memory_gib']:.1f}GiB",
            refresh=False,  # with the next step, and no more often than the bar is drawn
        )

    def open_log(self) -> None:
        """The log, behind the step that the run goes on from; the main process keeps it."""
        if self.accelerator.is_main_process and self.run_log is None:
            project = self.config.training.wandb_project
            place = self.progress.step, self.progress.log_lines
            self.run_log = RunLog(self.output, *place, project, asdict(self.config))

    def write(self, values: dict[str, float]) -> None:
        """Log values of this step."""
        if self.run_log is not None:
            self.run_log.write(self.progress.step, self.progress.seconds, values)
            self.progress.log_lines = self.run_log.num_lines

    def evaluate(self) -> None:
        """Answer the tuning questions with all processes; keep the best checkpoint by H@1."""
        settings, progress = self.config.training, self.progress
        self.model.eval()
        sizes = settings.eval_batch_size, settings.max_new_tokens
        try:
            records = answer_together(self.model, self.builder.prompt, self.tune, *sizes)
        except ValueError as error:
            fields = "training.eval_batch_size and training.max_new_tokens"
            raise ValueError(f"while evaluating: {error}; here the fields are {fields}") from error
        hits = [float(record["hit_at_1"]) for record in records]
        progress.metrics = {
            "step": progress.step,
            "questions": len(hits),
            "hit_at_1": sum(hits) / max(len(hits), 1),
            "hit_at_5": sum(float(r["hit_at_5"]) for r in records) / max(len(hits), 1),
        }
        self.write({f"tune_{name}": progress.metrics[name] for name in ("hit_at_1", "hit_at_5")})
        logger.info("step %d, tune: %s", progress.step, progress.metrics)
        if progress.best is None or progress.metrics["hit_at_1"] > progress.best["hit_at_1"]:
            progress.best = progress.metrics
            self.save_best()

    def finish(self) -> None:
        """Evaluate where the last step was not, and save ``last``."""
        progress = self.progress
        if not progress.finished:
            self.open_log()
            if self.tune and progress.metrics.get("step") != progress.step:
                self.save_last()  # the evaluation may fail
                self.evaluate()
            if progress.best is None:
                self.save_best()
            progress.finished = True
            self.save_last()
        logger.info("done; best on tune: %s", progress.best)
        logger.info("answer with: python infer.py answer --checkpoint %s", self.output / "best")

    def save_best(self) -> None:
        """Write ``best``, to answer with."""
        weights = trained_weights(self.model)
        if self.accelerator.is_main_process:
            metrics = self.progress.metrics | {"steps": self.progress.step}
            save_checkpoint(self.model, self.config, metrics, self.output / "best", weights)
        self.accelerator.wait_for_everyone()

    def save_last(self) -> None:
        """Write ``last``, to answer with and to resume from."""
        save_resumable(
            self.output, self.model, self.optimizer, self.config, self.progress, self.accelerator
        )

    def stop(self, request: StopRequest) -> None:
        """Save, say how to go on, and leave with an exit code of its own."""
        self.save_last()
        logger.warning(
            "stopped at step %d (%s); the same command goes on from %s",
            self.progress.step,
            request.reason or "another process was asked to",
            self.output / "last",
        )
        raise SystemExit(EXIT_GO_ON)

    def stop_at_not_finite(self, step: Step, loss: float, norm: float) -> None:
        """Leave before the step is taken, with a report of what it was computed from."""
        keys = [[example.key for example in batch] for batch in step.examples]
        batches = [batch.to(self.accelerator.device) for batch in step.batches]
        report = not_finite_report(self.model, batches, keys)
        name = f"not_finite_step_{step.number + 1}_process_{self.rank}.json"
        write_report({"loss": loss, "gradient_norm": norm} | report, self.output / name)
        raise ValueError(
            f"step {step.number + 1}: loss {loss}, gradient norm {norm}; nothing was changed, "
            f"batches {keys}, statistics in {self.output / name}"
        )


def dry_run(run: Run, examples: list[Example]) -> None:
    """Say what a run would need, from ten steps that are taken and forgotten, the largest first."""
    if not examples:
        raise ValueError("config field training.max_steps: 0 given: nothing is trained")
    before = peak_memory(run.accelerator.device)
    settings, schedule = run.config.training, run.prepare(examples)
    trial = Trial(schedule, examples)
    for step in steps(examples, schedule, trial.numbers, run.rank, run.world, settings.packing):
        began = time.monotonic()
        run.update(step)
        trial.times.append(step.wait + time.monotonic() - began)
    began = time.monotonic()
    asked = run.tune[: settings.eval_batch_size * run.world]
    run.model.eval()
    answer_together(
        run.model, run.builder.prompt, asked, settings.eval_batch_size, settings.max_new_tokens
    )
    evaluation = (time.monotonic() - began) * len(run.tune) / max(len(asked), 1)
    lines = [*trial.lines(settings, evaluation), *memory_lines(run.model, run.optimizer, before)]
    if run.accelerator.is_main_process:
        print("\n".join(lines))


def due(step: int, every: int | None) -> bool:
    """Whether something happens after a step."""
    return every is not None and step % every == 0


if __name__ == "__main__":
    run_cli(main)
