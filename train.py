"""Trains a checkpoint: ``python train.py --config configs/X.yaml [--any.field value]``.

The same command under ``accelerate launch`` and ``torchrun`` trains with many processes; started
again after a stop or a crash, it resumes from the newest checkpoint. The file reads top to bottom:
data and model, the training loop, evaluation, the dry run.
"""

from __future__ import annotations

import sys

from turngraph.configs.help import train_help
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli

if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    run_cli(lambda: print(train_help("train.py"), end=""))
    raise SystemExit  # here, as loading torch takes seconds

import logging
import math
import shlex
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from accelerate.utils import set_seed

from turngraph.configs.parse import parse_train_options
from turngraph.configs.progress import progress
from turngraph.configs.schema import Config
from turngraph.data.batches.collate import with_gold_candidates
from turngraph.data.batches.prefetch import Trial, fingerprint, steps
from turngraph.data.batches.schedule import BatchSchedule, check_shared_evenly
from turngraph.data.example_cache import load_examples
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.inference.answer_batches import answer_together, check_lengths
from turngraph.inference.load import load_builder
from turngraph.inference.options import MAX_NEW_TOKENS
from turngraph.model.device_memory import RELEASE_EVERY, peak_memory, release_freed_memory
from turngraph.model.distributed import full, is_sharded, process_group_ended
from turngraph.model.make_model import make_model
from turngraph.training.calibrate import calibrate
from turngraph.training.cluster_cost import cluster_lines
from turngraph.training.diagnostics import memory_advice, memory_lines
from turngraph.training.evaluation import evaluation_key, tune_line, tune_loss
from turngraph.training.launcher import log_environment, make_accelerator
from turngraph.training.optimizer import set_rates
from turngraph.training.run import Run
from turngraph.training.run_folder import locked, start_afresh
from turngraph.training.run_log import postfix

logger = logging.getLogger("train")
TUNE_SEED = 1  # runs with different seeds are evaluated on the same questions


def main(argv: Sequence[str] | None = None) -> None:
    """Train as the config says; write the checkpoints ``best`` and ``last``."""
    options, config = parse_train_options(sys.argv[1:] if argv is None else argv)
    if options.for_gpu is not None:
        return print("\n".join(cluster_lines(config, options.for_gpu)))
    # a dry run has nothing to save, so that Ctrl-C ends it at once
    stop = StopRequest(options.max_minutes, "after the step or evaluated batch at hand")
    with nullcontext() if options.dry_run else stop, process_group_ended():
        run_training(options, config, stop)


def run_training(options: Namespace, config: Config, stop: StopRequest) -> None:
    """Load data and model, train, evaluate and save; with --dry_run only estimate the cost.

    Args:
        options: of the command line.
        config: of the run.
        stop: checked after every step, and for a signal while examples are built.

    Raises:
        UserError: data, model or a checkpoint cannot be used.
        SystemExit: a stop was requested.
    """
    settings = config.training
    accelerator = make_accelerator()
    if not accelerator.is_main_process:
        logging.disable(logging.INFO)
    check_shared_evenly(settings.batches_per_step, accelerator.num_processes)
    set_seed(settings.seed)
    builder = load_builder(config, trusted=config.model.trust_remote_code)
    with accelerator.main_process_first():  # the others then find the examples in the cache
        examples, tune = load_train_and_tune(config, builder, partial(stop_before_training, stop))
    if config.model.answers == "nodes" and not config.model.layer and examples:
        examples = with_gold_candidates(examples, config.data.train)
    log_environment(config, accelerator)
    limit = answer_limit([*examples, *tune], settings.max_new_tokens)
    config = replace(config, training=replace(settings, max_new_tokens=limit))
    logger.info("loading %s", config.model.base_model)
    run = Run(config, accelerator, make_model(config.model), builder, tune)
    check_lengths(run.model, examples, None)
    check_lengths(run.model, tune, limit)
    if accelerator.process_index:  # every process draws its own dropout
        set_seed(settings.seed, device_specific=True)
    if options.dry_run:
        return dry_run(run, examples)
    with locked(run.output) if accelerator.is_main_process else nullcontext():
        if options.fresh and accelerator.is_main_process:
            start_afresh(run.output)
        if settings.max_steps == 0:
            run.resume("", anyway=False)  # a trained run is not overwritten
        else:
            train(run, examples, stop, options.resume_anyway)
        finish(run, stop)


def stop_before_training(stop: StopRequest) -> None:
    """Stop where a signal has asked for it; a time limit leaves at least one step.

    Raises:
        SystemExit: with ``EXIT_GO_ON``.
    """
    if stop.reason is not None:
        logger.warning("stopped before training (%s); the same command starts again", stop.reason)
        raise SystemExit(EXIT_GO_ON)


def load_train_and_tune(
    config: Config, builder: ExampleBuilder, after_task: Callable[[], None] = lambda: None
) -> tuple[list[Example], list[Example]]:
    """Load the training and tuning examples: evidence retrieved, graphs built, tokenised.

    Args:
        config: of the run.
        builder: builds the examples.
        after_task: called whenever some more of them are built; may raise to stop.
    """
    data = config.data
    seed = config.training.seed if data.draw_seed is None else data.draw_seed
    examples, tune = list[Example](), list[Example]()
    make = partial(load_builder, config, trusted=config.model.trust_remote_code)
    load = partial(load_examples, data=data, after_task=after_task)
    if data.train is not None and config.training.max_steps != 0:
        num, most = data.max_train_questions, config.training.max_passages
        training_builder = replace(builder, max_passages=most)
        make_training = partial(make, max_passages=most)
        examples = load(training_builder, data.train, num, seed=seed, make_builder=make_training)
    if data.tune is not None:
        num = data.max_tune_questions
        tune = load(builder, data.tune, num, seed=TUNE_SEED, make_builder=make)
    return examples, tune


def answer_limit(examples: Sequence[Example], cap: int | None) -> int:
    """Return the length of the longest answer, in tokens, for evaluation and answering.

    It leaves a quarter more than the longest gold answer needs, for answers that are not known yet.

    Args:
        examples: examples for training and tuning, with gold answers.
        cap: largest length; a warning counts the gold answers that it cuts. None: no cap.
    """
    lengths = [len(example.target_ids) for example in examples]
    limit = math.ceil(1.25 * max(lengths)) if lengths else MAX_NEW_TOKENS
    if cap is None or cap >= limit:
        return limit
    if num_cut := sum(length > cap for length in lengths):
        logger.warning(
            "training.max_new_tokens: %d cuts %d of %s, which can then never be "
            "right; the longest has %s",
            *(cap, num_cut, plural(len(lengths), "gold answer"), plural(max(lengths), "token")),
        )
    return cap


def train(run: Run, examples: list[Example], stop: StopRequest, resume_anyway: bool) -> None:
    """Train on examples, resuming from the newest checkpoint in the run's folder.

    Args:
        run: a run whose ``prepare`` has not been called yet.
        examples: training examples, with gold answers.
        stop: checked after every step.
        resume_anyway: also resume if the checkpoint's config differs in fields that may change.

    Raises:
        UserError: the checkpoint has another config or other data, or a step runs out of memory
            or is not finite.
        SystemExit: a stop was requested.
    """
    schedule = BatchSchedule(examples, run.config.training)
    if run.config.training.loop == "trl":
        from turngraph.training.trl_loop import train_with_trl  # seconds

        run.resume(fingerprint(examples), resume_anyway)
        if not run.progress.finished:
            return train_with_trl(run, examples, schedule, stop)
    else:
        run.prepare(schedule)
        run.resume(fingerprint(examples), resume_anyway)
        if not run.progress.finished:
            run.open_log()
            step, every = run.progress.step, run.config.training.eval_every
            is_evaluated = not step or run.progress.metrics.get("step") == step
            if run.tune and is_due(step, every) and not is_evaluated:  # a signal stopped it
                evaluate(run, stop)
            train_steps(run, examples, schedule, range(step, schedule.num_steps), stop)
            return
    logger.info("%s: already complete; --fresh trains again", run.output)


def train_steps(
    run: Run,
    examples: list[Example],
    schedule: BatchSchedule,
    indices: Sequence[int],
    stop: StopRequest,
    name: str = "train",
) -> list[float]:
    """Run the training loop: forward, loss, backward, clip, step, log, evaluate, save.

    Args:
        run: a prepared run.
        examples: training examples, to which the schedule's indices refer.
        schedule: assigns examples to the batches of each step.
        indices: steps to take, counted from 0.
        stop: checked after every step.
        name: name of the progress bar.

    Returns:
        Seconds of each step, including the wait for its batches.
    """
    settings, accelerator = run.config.training, run.accelerator
    model, wrapped, optimizer = run.model, run.wrapped, run.optimizer
    rank, world, sharded = accelerator.process_index, accelerator.num_processes, is_sharded(model)
    assert optimizer is not None, "not prepared"
    step_seconds, pinned = list[float](), accelerator.device.type == "cuda"
    initial, shown_here = run.progress.step, accelerator.is_local_main_process
    with progress(initial + len(indices), name, "steps", initial=initial, shown=shown_here) as bar:
        # a thread prefetches; a step is the same for any number of processes
        for step in steps(examples, schedule, indices, rank, world, settings.packing, pinned):
            began = time.monotonic()
            rates = set_rates(optimizer, settings, step.index, schedule.num_steps)
            model.train()

            # Forward and backward, batch after batch. The loss is divided by the answer tokens of
            # the whole step, over all processes, so that accumulation changes nothing.
            totals = torch.zeros(3, device=accelerator.device)  # loss, requests to stop, to save
            for index, batch in enumerate(step.batches):
                # DDP reduces once a step; FSDP always, as unsharded gradients take much memory
                reduce = sharded or index + 1 == len(step.batches)
                with nullcontext() if reduce else accelerator.no_sync(wrapped):
                    tensors = batch.to(accelerator.device)
                    with memory_advice(batch, run.largest_batch):
                        loss = wrapped(tensors).total / step.answer_tokens
                        # DDP and FSDP average gradients over processes; the loss needs their sum
                        accelerator.backward(loss * world)
                totals[0] += loss.detach()
                run.largest_batch = max(run.largest_batch, batch.input_ids.numel())
            totals[1], totals[2] = float(bool(stop)), float(run.minutes_are_up())
            totals = accelerator.reduce(totals, "sum")

            # Clip, wait for the device once, and step, unless loss or gradient is not finite.
            gradient = accelerator.clip_grad_norm_(wrapped.parameters(), settings.max_grad_norm)
            step_loss, stops, saves, norm = torch.cat([totals, full(gradient)[None]]).tolist()
            if not math.isfinite(step_loss) or not math.isfinite(norm):
                run.stop_at_not_finite(step, step_loss, norm)
            optimizer.step()
            optimizer.zero_grad()
            if is_due(step.index + 1, RELEASE_EVERY):
                release_freed_memory(accelerator.device)

            # Log, evaluate, save.
            step_seconds.append(step.wait + time.monotonic() - began)
            run.progress.step = step.index + 1
            run.progress.seconds += step_seconds[-1]
            bar.update()
            values = run.step_values(
                step, loss=step_loss, norm=norm, rate=rates[0], seconds=step_seconds[-1]
            )
            run.log(values)
            bar.set_postfix(postfix(values), refresh=False)  # drawn with the next step
            if run.tune and is_due(run.progress.step, settings.eval_every):
                evaluate(run, stop)
            if stops:
                run.stop(stop)
            is_last = run.progress.step >= schedule.num_steps
            if (saves or is_due(run.progress.step, settings.save_every)) and not is_last:
                run.save_last()
    return step_seconds


def evaluate(run: Run, stop: StopRequest) -> None:
    """Answer the tuning questions with all processes; keep the best checkpoint.

    The best one has the highest H@1, then the highest H@5, then the lowest loss; of several equal
    ones, the latest is kept. The loss is computed only where evaluations are compared.

    Args:
        run: a run whose log is open.
        stop: checked after every batch for a signal. The time limit does not stop an evaluation,
            which starts over when the run resumes.

    Raises:
        UserError: a question does not fit into the model or the memory.
        SystemExit: a signal requested a stop.
    """
    done = run.progress
    run.model.eval()
    after_batch = partial(run.stop_if_signalled, stop)
    try:
        records = answer_tune(run, run.tune, after_batch)
    except UserError as error:
        fields = "training.eval_batch_size and training.max_new_tokens"
        raise UserError(f"while evaluating: {error}; the config fields are {fields}") from error
    hits = {
        name: sum(float(record[name]) for record in records) / len(records)
        for name in ("hit_at_1", "hit_at_5")
    }
    is_compared = run.config.training.eval_every is not None
    metrics = hits | ({"loss": tune_loss(run, after_batch)} if is_compared else {})
    calibration = calibrate(records)
    confidence = None if calibration is None else calibration.to_json()
    done.metrics = {
        "step": done.step,
        "questions": len(records),
        **metrics,
        "confidence": confidence,
    }
    run.log({f"tune_{name}": value for name, value in metrics.items()})
    logger.info("step %d, tune: %s", done.step, tune_line(records, metrics.get("loss")))
    if done.best is None or evaluation_key(done.metrics) >= evaluation_key(done.best):
        done.best = done.metrics
        run.save_best()


def answer_tune(
    run: Run, examples: Sequence[Example], after_batch: Callable[[], None] | None = None
) -> list[Json]:
    """Return the prediction records of tuning examples."""
    settings = run.config.training
    return answer_together(
        run.model,
        run.builder.prompt,
        examples,
        batch_size=settings.eval_batch_size,
        max_new_tokens=settings.max_new_tokens or MAX_NEW_TOKENS,
        desc="evaluate",
        after_batch=after_batch,
    )


def finish(run: Run, stop: StopRequest) -> None:
    """Evaluate unless the last step was evaluated, and save ``last``.

    Raises:
        SystemExit: a signal requested a stop.
    """
    done = run.progress
    if run.config.training.loop == "trl":
        stop = StopRequest()  # it cannot resume, so that no signal stops its evaluation
    if not done.finished:
        run.open_log()
        if run.tune and done.metrics.get("step") != done.step:
            run.save_last()  # the evaluation may fail
            evaluate(run, stop)
        if done.best is None:
            run.save_best()
        done.finished = True
        run.save_last()
    best = {name: value for name, value in (done.best or {}).items() if name != "confidence"}
    logger.info("done; %s", f"best on tune: {best}" if best else "not evaluated")
    command = ["turngraph", "answer", "--checkpoint", str(run.output / "best")]
    command += ["--input", run.config.data.tune or run.config.data.train or "QUESTIONS.jsonl"]
    command += ["--output", str(run.output / "answers.jsonl")]
    logger.info("answer with: %s", shlex.join(command))


def dry_run(run: Run, examples: list[Example]) -> None:
    """Print estimates of a run's time and memory, measured on a few steps; write no run.

    Raises:
        UserError: ``training.max_steps`` is 0, or the largest batch does not fit into memory.
    """
    settings = run.config.training
    if not examples:
        raise UserError("config field training.max_steps: 0 given: nothing is trained")
    before = peak_memory(run.accelerator.device)
    schedule = BatchSchedule(examples, settings)
    run.prepare(schedule)
    trial = Trial(schedule, examples)
    silent = replace(settings, eval_every=None, save_every=None, save_minutes=None)
    run.config = replace(run.config, training=silent)
    trial.times = train_steps(run, examples, schedule, trial.indices, StopRequest(), name="dry run")
    began = time.monotonic()
    sample = run.tune[: settings.eval_batch_size * run.accelerator.num_processes]
    run.model.eval()
    answer_tune(run, sample)
    evaluation = (time.monotonic() - began) * len(run.tune) / max(len(sample), 1)
    assert run.optimizer is not None
    lines = [*trial.lines(settings, evaluation), *memory_lines(run.model, run.optimizer, before)]
    if run.accelerator.is_main_process:
        print("\n".join(lines))


def is_due(step: int, every: int | None) -> bool:
    """Tell whether an action of every ``every`` steps is due after ``step`` steps; None: never."""
    return every is not None and step % every == 0


if __name__ == "__main__":
    run_cli(main)
