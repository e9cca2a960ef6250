"""Batch inference: answers a file of conversations, resumable, in any number of processes."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.examples import ExampleBuilder
from turngraph.data.json_fields import Json, iter_lines
from turngraph.inference.answer_job import AnswerJob
from turngraph.inference.answer_lines import answer_lines
from turngraph.inference.answer_on_ray import answer_on_ray
from turngraph.inference.calibrated import read_confidence
from turngraph.inference.explain import explain_answers
from turngraph.inference.load import device_of, load
from turngraph.inference.output import AnswerFile
from turngraph.inference.questions import Questions
from turngraph.model.distributed import process_group_ended
from turngraph.model.evidence_model import EvidenceModel

logger = logging.getLogger("infer")
EXIT_ERRORS = 1


def answer_file(job: AnswerJob) -> None:
    """Write predictions for a file of conversations, in its order, with any number of processes.

    Raises:
        UserError: input, output, checkpoint or device cannot be used.
        SystemExit: with ``EXIT_GO_ON`` after a request to stop, with ``EXIT_ERRORS`` if some
            lines of the predictions are errors.
    """
    state = PartialState(cpu=job.ray is not None or device_of(job.loading.device) == "cpu")
    if job.ray is not None and state.num_processes > 1:
        raise UserError("--ray: start one process, without accelerate")
    with process_group_ended():
        if not state.is_main_process:
            logging.disable(logging.INFO)
        _answer_file(job, state.is_main_process)


def _answer_file(job: AnswerJob, main: bool) -> None:
    """Run ``answer_file`` in one process, the main one or another."""
    job.check()
    options = job.options
    questions = Questions.read(job.input, options)
    file = None
    if main:
        num_lines = len(questions.lines) + len(questions.errors)
        file = AnswerFile(job.output, job.settings(), num_lines, job.fresh)
    loaded = None
    with StopRequest(job.max_minutes, "after the questions at hand") as stop:
        if not everywhere(file and file.is_complete):
            if file is not None and job.ray is not None:
                answer_on_ray(job, job.ray, questions, file, stop)
            else:
                loaded = answer_all(job, questions, file, stop)
        if file and job.explain:
            model, builder = loaded or load(job.checkpoint, job.loading, options.cut_edges)
            explain_answers(
                model=model,
                builder=builder,
                questions=questions,
                predictions=job.output,
                page=job.explain,
                history=options.history,
                checkpoint=job.checkpoint,
                stop=stop,
            )
    log_end(file, job.output)


def answer_all(
    job: AnswerJob,
    questions: Questions,
    file: AnswerFile | None,
    stop: StopRequest,
) -> tuple[EvidenceModel, ExampleBuilder]:
    """Answer the questions that have no answer yet.

    Args:
        job: the job.
        questions: the questions to answer.
        file: the predictions file; None in all processes but the main one.
        stop: checked after every batch.

    Returns:
        The model and its example builder.

    Raises:
        SystemExit: a stop was requested.
    """
    main, options = file is not None, job.options
    with file or nullcontext():
        model, builder = load(job.checkpoint, job.loading, options.cut_edges)
        if file is not None:
            file.begin()
            file.write_in_order(questions.errors)
        known: dict[int, Json] = everywhere(file and dict(file.known))
        confidence = read_confidence(job.checkpoint, options.abstain_below)
        batches = answer_lines(model, builder, questions, options, known, confidence)
        total = len(questions.lines)
        with progress(total, "answers", "questions", initial=len(known), shown=main) as bar:
            for records in batches:
                if file is not None:
                    file.add(records)
                bar.update(len(records))
                if any(gather_object([bool(stop)])):
                    logger.info("stopped: %s; run the same command to resume", stop.reason)
                    raise SystemExit(EXIT_GO_ON)
        builder.log_counts()
        if file is not None:
            file.finish()
    return model, builder


def everywhere(value: Any) -> Any:
    """Return the main process's value in all processes."""
    return broadcast_object_list([value])[0]


def log_end(file: AnswerFile | None, output: str) -> None:
    """Log how many lines there are and how many are errors.

    Raises:
        SystemExit: with ``EXIT_ERRORS`` if there are errors.
    """
    if file is None:
        return
    if file.is_complete:
        file.num_errors = sum("error" in record for _, record in iter_lines(file.path))
        logger.info("%s is already complete; --fresh recomputes it", output)
    answered = file.num_lines - file.num_errors
    counts = (plural(answered, "answer"), plural(file.num_errors, "error"))
    logger.info("wrote %s: %s, %s", output, *counts)
    if file.num_errors:
        raise SystemExit(EXIT_ERRORS)
