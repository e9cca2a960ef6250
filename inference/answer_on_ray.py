"""Batch inference on a Ray cluster: each process has a model, and answers windows of questions.

The windows, and the batches in them, are those of one process, so that the answers are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from turngraph.configs.progress import progress
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.json_fields import Json
from turngraph.data.ray_workers import map_on_ray
from turngraph.inference.answer_job import AnswerJob
from turngraph.inference.answer_lines import answer_lines, window_size
from turngraph.inference.calibrated import read_confidence
from turngraph.inference.load import load
from turngraph.inference.output import AnswerFile
from turngraph.inference.questions import Questions

logger = logging.getLogger("infer")

Window = tuple[list[int], dict[int, Json]]
"""Indices of the conversations of a window, and the records of its lines that are answered."""


class WindowAnswerer:
    """Answers windows of a job's questions in one process of the cluster.

    Args:
        job: the job; its checkpoint and input have the same paths on all nodes.

    Raises:
        UserError: model or questions cannot be loaded.
    """

    def __init__(self, job: AnswerJob) -> None:
        self.job, options = job, job.options
        self.questions = Questions.read(job.input, options)
        self.model, self.builder = load(job.checkpoint, job.loading, options.cut_edges)
        self.confidence = read_confidence(job.checkpoint, options.abstain_below)

    def answer(self, window: Window) -> dict[int, Json]:
        """Return the prediction records of a window's lines that have none yet."""
        conversations, known = window
        records: dict[int, Json] = {}
        for batch_records in answer_lines(
            self.model,
            self.builder,
            self.questions.only(conversations),
            self.job.options,
            known,
            self.confidence,
        ):
            records |= batch_records
        return records


def answer_on_ray(
    job: AnswerJob, address: str, questions: Questions, file: AnswerFile, stop: StopRequest
) -> None:
    """Answer the questions that have no answer yet on a cluster, and write them in order.

    Args:
        job: the job; unless its device is the CPU, each process needs a GPU.
        address: address of the cluster.
        questions: the questions of the job.
        file: the predictions file.
        stop: checked after every window.

    Raises:
        UserError: a question cannot be answered, or the cluster cannot be used.
        SystemExit: a stop was requested.
    """
    num_gpus = 0 if job.loading.device == "cpu" else 1
    with file:
        file.begin()
        file.write_in_order(questions.errors)
        known = dict(file.known)
        answered = map_on_ray(
            address,
            partial(WindowAnswerer, job),
            WindowAnswerer.answer,
            windows(job, questions, known),
            num_gpus,
        )
        shown = progress(len(questions.lines), "answers", "questions", initial=len(known))
        with closing(answered), shown as bar:
            for records in answered:
                file.add(records)
                bar.update(len(records))
                if stop:
                    logger.info("stopped: %s; run the same command to resume", stop.reason)
                    raise SystemExit(EXIT_GO_ON)
        file.finish()


def windows(job: AnswerJob, questions: Questions, known: dict[int, Json]) -> Iterator[Window]:
    """Yield the windows of a job that are not yet answered."""
    is_gold = job.options.history == "gold"
    size = window_size(is_gold)
    for window in questions.windows(size, is_gold, known):
        lines = (questions.lines[n, turn] for n in window for turn in questions.chosen[n])
        yield window, {line: known[line] for line in lines if line in known}
