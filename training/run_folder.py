"""Locks a run's folder, writes its checkpoints, and finds the one to resume from.

``last/`` is the newest checkpoint, ``step_*/`` the ones before it, ``best/`` the best on tune.
"""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.optim import Optimizer

from turngraph.configs.parse import differences
from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.model.checkpoint import (
    check_base,
    check_manifest,
    checkpoint_config,
    load_weights,
    save_checkpoint,
    trained_weights,
)
from turngraph.model.evidence_model import EvidenceModel
from turngraph.training.kept_checkpoints import (
    NAMES,
    check_ours,
    keep_newest,
    newest_checkpoint,
    our_checkpoints,
    undo_killed_save,
)
from turngraph.training.run_log import LOG, check_log
from turngraph.training.trainer_state import (
    load_optimizer,
    load_random,
    optimizer_tensors,
    random_states,
    read_progress,
    write_trainer_state,
)

logger = logging.getLogger(__name__)

FREE = {
    "data.draw_seed",  # the examples are compared, by fingerprint
    "data.num_workers",
    "data.ray",
    "data.train",  # likewise
    "model.base_model",  # its weights are compared, by fingerprint
    "model.trust_remote_code",
    "training.eval_batch_size",
    "training.output",
    "training.save_every",
    "training.save_minutes",
    "training.wandb_project",
}
"""Fields that do not affect the trained weights: a run resumes even if they have changed."""
ON_REQUEST = {
    "data.max_tune_questions",
    "data.tune",
    "model.attn_implementation",
    "model.compile",
    "model.encoder.dropout",
    "model.gradient_checkpointing",
    "model.lora.lora_dropout",
    "model.scorer.dropout",
    "training.encoder_learning_rate",
    "training.eval_every",
    "training.learning_rate",
    "training.max_grad_norm",
    "training.max_new_tokens",
    "training.max_steps",
    "training.num_epochs",
    "training.packing",
    "training.warmup_steps",
}
"""Fields that may change in the middle of a run with --resume_anyway."""
EVALUATION = {"data.max_tune_questions", "data.tune", "training.max_new_tokens"}
"""Fields of ``ON_REQUEST`` after whose change earlier evaluations are not comparable."""


@dataclass
class Progress:
    """Progress of a run.

    Args:
        step: number of steps taken.
        finished: whether the run is complete.
        seconds: time spent in the loop, including that before the run was resumed.
        metrics: metrics of the latest evaluation.
        best: metrics of the best evaluation.
        num_processes: number of processes that took the steps.
        data: fingerprint of the training examples.
        log_lines: number of lines in log.jsonl.
    """

    step: int = 0
    finished: bool = False
    seconds: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] | None = None
    num_processes: int = 1
    data: str = ""
    log_lines: int = 0


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Lock a folder against other runs.

    Raises:
        UserError: another run has locked it, or it cannot be written.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = open(output / ".lock", "wb")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"config field training.output: {output}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"config field training.output: {output} is in use by another run"
            raise UserError(message) from None
        yield


def start_afresh(output: Path) -> None:
    """Remove the checkpoints and logs of earlier runs, and nothing else.

    Raises:
        UserError: a path with the name of a checkpoint or of the log is something else.
    """
    undo_killed_save(output)
    check_ours(output)
    check_log(output / LOG)
    for name in NAMES:
        for folder in our_checkpoints(output, name):
            shutil.rmtree(folder)
    for events in (output / "tensorboard").glob("events.out.tfevents.*"):
        events.unlink()
    (output / LOG).unlink(missing_ok=True)


def find_resumable(
    output: Path, config: Config, fingerprint: str, anyway: bool
) -> tuple[Path, Progress] | None:
    """Return the newest intact checkpoint of a run and its progress; None if there is none.

    Args:
        output: the run's folder.
        config: config of the run that resumes.
        fingerprint: of its training examples.
        anyway: allow the fields of ``ON_REQUEST`` to differ.

    Raises:
        UserError: the checkpoint has another config (the message names the fields) or other data;
            no checkpoint is intact; or a path with the name of a checkpoint or of the log is
            something else.
    """
    undo_killed_save(output)
    check_ours(output)
    check_log(output / LOG)
    folder = newest_checkpoint(output)
    if folder is None:
        return None
    saved = read_progress(folder)
    assert saved is not None, "newest_checkpoint returns resumable ones"
    try:
        progress = Progress(**saved)
    except TypeError:
        raise UserError(f"{folder}: damaged, its progress has other fields") from None
    changed = differences(checkpoint_config(folder), config)
    conflicts = {n: pair for n, pair in changed.items() if n not in FREE}
    if anyway:
        conflicts = {n: pair for n, pair in conflicts.items() if n not in ON_REQUEST}
    if conflicts:
        raise UserError(_conflict_message(folder, conflicts))
    if progress.data != fingerprint:
        raise UserError(
            f"{folder}: trained on other data: the examples of data.train or data.draw_seed have "
            "changed since; --fresh starts over, another training.output keeps both"
        )
    if accepted := changed.keys() & ON_REQUEST:  # new values may ask for more steps
        progress.finished = False
        if accepted & EVALUATION:
            progress.best, progress.metrics = None, {}
    if progress.best is not None and not _is_intact(output / "best"):
        progress.best, progress.finished = None, False
    return folder, progress


def _is_intact(best: Path) -> bool:
    try:
        check_manifest(best)
    except UserError as error:
        logger.warning(
            "%s; the next evaluation, or the end of the run, replaces this checkpoint", error
        )
        return False
    return True


def _conflict_message(folder: Path, conflicts: dict[str, tuple[Any, Any]]) -> str:
    listed = "; ".join(f"{n}: {old!r} there, {new!r} here" for n, (old, new) in conflicts.items())
    safe = "--resume_anyway resumes with the new values, " if conflicts.keys() <= ON_REQUEST else ""
    return (
        f"{folder}: a checkpoint of another config: {listed}. {safe}--fresh starts over, "
        "another training.output keeps both"
    )


def save_resumable(
    output: Path,
    model: EvidenceModel,
    optimizer: Optimizer | None,
    config: Config,
    progress: Progress,
    accelerator: Accelerator,
) -> None:
    """Write the checkpoint ``last``, for resuming; every process must call it.

    Args:
        output: the run's folder.
        model: the model; sharded weights are gathered.
        optimizer: its optimizer; None if nothing was trained.
        config: config of the run.
        progress: progress of the run.
        accelerator: the run's accelerator.

    Raises:
        UserError: the checkpoint cannot be written; earlier checkpoints are kept.
    """
    weights = trained_weights(model)
    tensors = {} if optimizer is None else optimizer_tensors(model, optimizer)
    states = gather_object([random_states()])
    if accelerator.is_main_process:

        def write_more(folder: Path) -> None:
            write_trainer_state(folder, tensors, states, dataclasses.asdict(progress))

        def make_room() -> None:
            keep_newest(output, progress.step)

        metrics = progress.metrics | {"steps": progress.step}
        save_checkpoint(model, config, metrics, output / "last", weights, write_more, make_room)
    accelerator.wait_for_everyone()


def load_start(folder: Path, model: EvidenceModel) -> None:
    """Load the trained weights of a checkpoint that a run starts from.

    Raises:
        UserError: it is no intact checkpoint of this model.
    """
    try:
        check_manifest(folder)
        check_base(model, folder)
        load_weights(model, folder)
    except UserError as error:
        raise UserError(f"config field training.start_from: {error}") from None
    logger.info("starts from the weights of %s", folder)


def load_resumable(
    folder: Path,
    progress: Progress,
    model: EvidenceModel,
    optimizer: Optimizer,
    accelerator: Accelerator,
) -> None:
    """Restore model, optimizer and random states from a checkpoint of ``save_resumable``.

    With another number of processes the order of the data is the same, but dropout differs.

    Raises:
        UserError: the checkpoint was trained on another base model.
    """
    check_base(model, folder)
    load_weights(model, folder)
    load_optimizer(model, optimizer, folder)
    if progress.num_processes != accelerator.num_processes:
        logger.warning(
            "resumed a run of %s with %d: the order of the data is the same, but "
            "losses may differ from those of an uninterrupted run",
            plural(progress.num_processes, "process", "processes"),
            accelerator.num_processes,
        )
    else:
        load_random(folder, accelerator.process_index)
    progress.num_processes = accelerator.num_processes
    logger.info("resumed from %s, step %d", folder, progress.step)
