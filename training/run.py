"""Keeps the state of a training run outside its loop: progress, checkpoints, logs."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from turngraph.configs.schema import Config
from turngraph.configs.shipped import find_checkpoint_folder
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.batches.prefetch import Step
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.model.checkpoint import save_checkpoint, trained_weights
from turngraph.model.device_memory import current_memory, peak_memory
from turngraph.model.distributed import gather, is_sharded, place
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.graph_lm import GraphLM
from turngraph.training.diagnostics import not_finite_report, write_report
from turngraph.training.optimizer import check_warmup, make_optimizer
from turngraph.training.run_folder import (
    Progress,
    find_resumable,
    load_resumable,
    load_start,
    save_resumable,
)
from turngraph.training.run_log import RunLog

logger = logging.getLogger("train")


class Run:
    """A training run: model, optimizer, progress, and their folder.

    Args:
        config: the config of the run.
        accelerator: device and processes.
        model: an untrained model; it is moved to the device.
        builder: builder of the examples; it holds prompt and tokenizer.
        tune: examples to evaluate on.

    Attributes:
        wrapped: the model that the loop calls; inside DDP if there are several processes.
        optimizer: None before ``prepare``.
        progress: steps taken, time, and best evaluation.
        largest_batch: number of tokens of the largest batch so far, padding included.
    """

    def __init__(
        self,
        config: Config,
        accelerator: Accelerator,
        model: EvidenceModel,
        builder: ExampleBuilder,
        tune: list[Example],
    ) -> None:
        self.config, self.accelerator, self.builder, self.tune = config, accelerator, builder, tune
        self.output = Path(config.training.output)
        self.model = place(model, accelerator.device)
        self.wrapped: torch.nn.Module = self.model
        self.optimizer: torch.optim.Optimizer | None = None
        self.progress = Progress(num_processes=accelerator.num_processes)
        self.largest_batch = 0
        self._log: RunLog | None = None
        self._saved = time.monotonic()

    def prepare(self, schedule: BatchSchedule) -> None:
        """Make the optimizer, and wrap the model for the processes."""
        logger.info(
            "%s; %.1f examples a batch, %.1f %% of the tokens are padding",
            plural(schedule.num_steps, "step"),
            schedule.examples_per_batch(),
            100 * schedule.padding_share(),
        )
        check_warmup(self.config.training, schedule.num_steps)
        self.optimizer = make_optimizer(self.model, self.config.training)
        if not is_sharded(self.model):
            self.wrapped, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)

    def resume(self, fingerprint: str, anyway: bool) -> None:
        """Load the newest checkpoint of the output folder, else ``training.start_from``.

        Args:
            fingerprint: of the training examples; the checkpoint's must be equal.
            anyway: also resume if the config differs in the fields of ``ON_REQUEST``.

        Raises:
            UserError: the checkpoint has another config or other data, or is damaged.
        """
        resumable: list[Any] = [None]
        if self.accelerator.is_main_process:
            resumable = [find_resumable(self.output, self.config, fingerprint, anyway)]
        broadcast_object_list(resumable)
        if resumable[0] is not None:
            folder, self.progress = resumable[0]
            if self.optimizer is not None:
                load_resumable(folder, self.progress, self.model, self.optimizer, self.accelerator)
        elif (start := self.config.training.start_from) is not None:
            load_start(find_checkpoint_folder(start), self.model)
        self.progress.data = fingerprint

    def open_log(self) -> None:
        """Open the log in the main process; a resumed run appends to its log."""
        if self.accelerator.is_main_process and self._log is None:
            self._log = RunLog(
                self.output,
                self.progress.step,
                self.progress.log_lines,
                self.config.training.wandb_project,
                asdict(self.config),
            )

    def log(self, values: dict[str, float]) -> None:
        """Write values of the current step to log.jsonl and TensorBoard."""
        if self._log is not None:
            self._log.write(self.progress.step, self.progress.seconds, values)
            self.progress.log_lines = self._log.num_lines

    def step_values(
        self, step: Step, *, loss: float, norm: float, rate: float, seconds: float
    ) -> dict[str, float]:
        """Return the values to log for a step."""
        values = {
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": rate,
            "tokens_per_second": step.num_tokens / seconds,
            "data_wait_seconds": step.wait,
            "memory_gib": current_memory(self.accelerator.device) / 2**30,
            "peak_memory_gib": peak_memory(self.accelerator.device) / 2**30,
        }
        if isinstance(self.model, GraphLM):
            encoder = self.model.encoder
            values["relative_change"] = float(encoder.relative_change)
            if encoder.config.residual_gate is not None:
                gates = gather(encoder.residual_gates).tolist()
                values |= {f"residual_gate_{layer}": gate for layer, gate in enumerate(gates)}
        return values

    def save_best(self) -> None:
        """Write the checkpoint ``best``, for answering; every process must call it."""
        weights = trained_weights(self.model)
        if self.accelerator.is_main_process:
            metrics = self.progress.metrics | {"steps": self.progress.step}
            save_checkpoint(self.model, self.config, metrics, self.output / "best", weights)
        self.accelerator.wait_for_everyone()

    def save_last(self) -> None:
        """Write the checkpoint ``last``, for resuming and answering; every process must call it."""
        now = self.model, self.optimizer, self.config, self.progress, self.accelerator
        save_resumable(self.output, *now)
        self._saved = time.monotonic()

    def minutes_are_up(self) -> bool:
        """Tell whether ``last`` is due because ``training.save_minutes`` have passed."""
        minutes = self.config.training.save_minutes
        return minutes is not None and time.monotonic() - self._saved >= 60 * minutes

    def stop_if_signalled(self, request: StopRequest) -> None:
        """Stop if a signal reached any process; every process must call it.

        Raises:
            SystemExit: as ``stop`` does.
        """
        signalled = torch.tensor(float(request.reason is not None), device=self.accelerator.device)
        if float(self.accelerator.reduce(signalled, "sum")):
            self.stop(request)

    def stop(self, request: StopRequest) -> None:
        """Write ``last``, log how to resume, and exit.

        Raises:
            SystemExit: always, with ``EXIT_GO_ON``.
        """
        self.save_last()
        logger.warning(
            "stopped at step %d (%s); run the same command to resume from %s",
            self.progress.step,
            request.reason or "requested in another process",
            self.output / "last",
        )
        raise SystemExit(EXIT_GO_ON)

    def stop_at_not_finite(self, step: Step, loss: float, norm: float) -> None:
        """Write a report of a step's batches and tensors, and stop before the weights change.

        ``last`` is written, with the weights and the optimizer of the step before, unless a weight
        is not finite. Every process must call it.

        Raises:
            UserError: always; names the batches, the report and what can be resumed.
        """
        keys = [[example.key for example in batch] for batch in step.examples]
        batches = [batch.to(self.accelerator.device) for batch in step.batches]
        report = not_finite_report(self.model, batches, keys)
        rank = self.accelerator.process_index
        name = f"not_finite_step_{step.index + 1}_process_{rank}.json"
        write_report({"loss": loss, "gradient_norm": norm} | report, self.output / name)
        kept = "weights are not finite, nothing is saved"
        if not report["not_finite_weights"]:
            self.save_last()
            kept = f"the weights before this step are in {self.output / 'last'}"
        raise UserError(
            f"step {step.index + 1}: loss {loss}, gradient norm {norm}, must be finite; {kept}; "
            f"batches {keys}; statistics in {self.output / name}"
        )
