"""The runs of a study: lists them, identifies each by a hash, and executes one.

A run is a training, or the answers of a trained model. Its identity is a hash of everything that
determines its result: config fields that differ from their defaults, data and options. A finished
run is found even if its row was renamed, and is never repeated. The commit is recorded in its
folder but is not part of the hash.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from turngraph.benchmarks.study.config import (
    Row,
    Size,
    Study,
    changed_fields,
    row_config,
)
from turngraph.configs.json_files import file_hash, read_json_object
from turngraph.configs.parse import read_config, write_config
from turngraph.configs.schema import Config
from turngraph.configs.shipped import find_config
from turngraph.configs.user_error import UserError
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.outputs import whole_file
from turngraph.model.checkpoint import commit, read_checkpoint
from turngraph.training.run_folder import FREE

logger = logging.getLogger("study")
_file_hash = cache(file_hash)

PEER_WEIGHTS = "gretriever.safetensors"
NOT_IN_HASH = tuple({*FREE, "data.tune"} - {"model.base_model", "data.draw_seed"})
STATE, PREDICTIONS, LOG = "run.json", "predictions.jsonl", "log.txt"
SECONDS_TO_STOP = 120
"""Time to stop before a kill, enough for a step and a checkpoint of a large model."""
Json = dict[str, Any]
Folders = dict[str, Path]
"""Folder of each run, by hash."""
Outcome = Literal["done", "stopped", "failed"]


@dataclass(frozen=True)
class Run:
    """A training, or the answers of a trained model.

    Args:
        kind: ``train`` or ``answer``.
        row: first row that needs it.
        seed: random seed of the training.
        config: resolved config of the training.
        folder: folder of this run.
        identity: values that its hash is computed from.
        trained: for answers, the training's folder.
        options: for answers, the options of ``turngraph answer``.
    """

    kind: Literal["train", "answer"]
    row: Row
    seed: int
    config: Config
    folder: Path
    identity: Json
    trained: Path | None = None
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name for logs and tables."""
        return f"{self.kind} {self.row.name}, seed {self.seed}"

    @property
    def state(self) -> Json:
        """Recorded state: seconds spent, whether it is done, commits, machine."""
        return state_of(self.folder)

    @property
    def is_ready(self) -> bool:
        """Whether the runs that it depends on are done."""
        return self.trained is None or bool(state_of(self.trained)["done"])

    @property
    def predictions(self) -> Path:
        """File of its answers."""
        return self.folder / PREDICTIONS

    @property
    def uninterruptible(self) -> bool:
        """Whether the run cannot resume after a stop and must start over."""
        of_others = self.config.training.loop == "trl" or self.row.trainer == "gretriever"
        return self.kind == "train" and of_others


def state_of(folder: Path) -> Json:
    """Return the state that is recorded in a run's folder."""
    path = folder / STATE
    if not path.is_file():
        return {"done": False, "seconds": 0.0, "commits": []}
    return read_json_object(path)


def study_runs(study: Study, size: Size, output: Path, more: Sequence[str] = ()) -> list[Run]:
    """Return all runs of a study in the order in which they run, done or not.

    Rows with the same identity share a folder.

    Args:
        study: rows and seeds.
        size: number of questions and of seeds, and overrides of all rows.
        output: parent folder of all runs.
        more: ``--field=value`` overrides of all rows.

    Raises:
        UserError: a row's config is invalid; names the row.
    """
    names = {row.name: row for row in study.rows}
    runs: list[Run] = []
    trainings: dict[tuple[str, int], Run] = {}
    folders: Folders = {}
    for seed, row in _order(study, study.seeds[: size.num_seeds]):
        trained = names[row.checkpoint_of or row.name]
        if (trained.name, seed) not in trainings:
            config = row_config(study, size, trained, seed, more)
            trainings[trained.name, seed] = _training(trained, seed, config, output, folders)
            runs.append(trainings[trained.name, seed])
        training = trainings[trained.name, seed]
        runs.append(_answers(study, size, row, training=training, output=output, folders=folders))
    # without training, every seed gives the same answers
    first = study.seeds[0]
    return [r for r in runs if r.config.training.max_steps != 0 or r.seed == first]


def chosen_runs(runs: Sequence[Run], rows: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Return the answers of some rows and seeds with the runs they need, each folder once.

    Args:
        runs: all runs of a study.
        rows: row names; empty: all.
        seeds: random seeds; empty: all.

    Raises:
        UserError: a row or seed is unknown, or a row does not run with any of the seeds.
    """
    answers = [run for run in runs if run.kind == "answer"]
    for option, given, known in (
        ("--rows", rows, {run.row.name: None for run in answers}),
        ("--seeds", seeds, {run.seed: None for run in answers}),
    ):
        if wrong := [value for value in given if value not in known]:
            names = ", ".join(map(str, known))
            raise UserError(f"{option}: {wrong[0]!r} given, must be of {names}")
    kept = [r for r in answers if (not rows or r.row.name in rows)]
    for name in rows:
        own = [run.seed for run in kept if run.row.name == name]
        if seeds and not set(own) & set(seeds):
            only = " and ".join(map(str, own))
            raise UserError(f"--seeds: row {name!r} runs with seed {only} alone")
    kept = [r for r in kept if not seeds or r.seed in seeds]
    wanted = {run.folder for run in kept} | {run.trained for run in kept}
    return list({run.folder: run for run in runs if run.folder in wanted}.values())


def _order(study: Study, seeds: Sequence[int]) -> Iterator[tuple[int, Row]]:
    """Yield core rows seed by seed, then the other rows with the first seed."""
    yield from ((seed, row) for seed in seeds for row in study.rows if row.core)
    yield from ((seeds[0], row) for row in study.rows if not row.core)


def _training(row: Row, seed: int, config: Config, output: Path, folders: Folders) -> Run:
    identity: Json = {
        "config": changed_fields(config, leave_out=NOT_IN_HASH),
        "train": _file_hash(config.data.train),
        "trainer": row.trainer,
    }
    folder = _folder(output / "train", row, seed, identity, folders)
    return Run(kind="train", row=row, seed=seed, config=config, folder=folder, identity=identity)


def _answers(
    study: Study,
    size: Size,
    row: Row,
    *,
    training: Run,
    output: Path,
    folders: Folders,
) -> Run:
    questions = Path(study.data) / study.dev
    options = [f"--{name}={value}" for name, value in sorted(row.answer.items())]
    if study.single_answers_only:
        options.append("--single_answers_only")
    if size.num_questions is not None:
        options.append(f"--max_questions={size.num_questions}")
    options.append(f"--max_new_tokens={training.config.training.max_new_tokens}")
    identity = {
        "training": training.identity,
        "dev": _file_hash(questions),
        "options": list(options),
    }
    folder = _folder(output / "answers", row, training.seed, identity, folders)
    options += [f"--input={questions}", f"--output={folder / PREDICTIONS}"]
    options.append(f"--batch_size={training.config.training.eval_batch_size}")
    return Run(
        kind="answer",
        row=row,
        seed=training.seed,
        config=training.config,
        folder=folder,
        identity=identity,
        trained=training.folder,
        options=tuple(options),
    )


def _folder(parent: Path, row: Row, seed: int, identity: Json, folders: Folders) -> Path:
    """Return the folder of an identity: the one on disk, else one named after the first row."""
    text = json.dumps(identity, sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    if key not in folders:
        known = sorted(parent.glob(f"*-{key}"))
        folders[key] = known[0] if known else parent / f"{row.name}-seed{seed}-{key}"
    return folders[key]


def missing_files(study: Study) -> list[str]:
    """Return the study's missing data files, each with the command that makes it."""
    found = []
    for name in ("train.jsonl", study.dev):
        path = Path(study.data) / name
        if not path.is_file():
            part = name.removesuffix(".jsonl")
            found.append(f"{path}: {study.make_data.format(part=part, output=path)}")
    return found


def check_finished(runs: Sequence[Run]) -> None:
    """Check that finished runs are the ones that the study would make now.

    Raises:
        UserError: a default has changed since a training, or answers were made from another
            checkpoint than the present one; names the folder.
    """
    for run in runs:
        if run.state["done"]:
            (_check_config if run.kind == "train" else _check_made_from)(run)


def _check_config(run: Run) -> None:
    path = run.folder / "config.yaml"
    before = changed_fields(read_config(path), leave_out=NOT_IN_HASH)
    if json.dumps(before, default=str) != json.dumps(run.identity["config"], default=str):
        raise UserError(f"{path}: a default has changed since the run began: move its folder away")


def _check_made_from(run: Run) -> None:
    assert run.trained is not None
    before, last = _made_from(run).get("checkpoint"), run.trained / "run" / "last"
    if before is None or not last.is_dir():
        return
    of_peer = run.row.trainer == "gretriever"
    if before != (file_hash(last / PEER_WEIGHTS) if of_peer else read_checkpoint(last).hash):
        raise UserError(
            f"{run.folder}: answers of another checkpoint than the present one: delete the folder"
        )


def _made_from(run: Run) -> Json:
    """Return the record of what the answers were made from; empty if there are no answers."""
    path = Path(f"{run.predictions}.run.json")
    return read_json_object(path) if path.is_file() else {}


def execute(run: Run, size: Size, stop: StopRequest) -> Outcome:
    """Start or resume a run, and wait until it is done, stopped or failed.

    Raises:
        UserError: a default has changed since it began.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    if run.kind == "train":
        _write_config(run)
    command = command_of(run, size)
    began = time.monotonic()
    code = call(command, run.folder / LOG, stop)
    if code == 0:
        outcome: Outcome = "done"
    else:
        outcome = "stopped" if stop or code == EXIT_GO_ON else "failed"
    _note(run, outcome, time.monotonic() - began)
    return outcome


def command_of(run: Run, size: Size) -> list[str]:
    """Return the command line of a run, which starts or resumes it."""
    launcher = [str(find_config(word)) for word in size.launcher]
    start = [*(launcher or [sys.executable]), "-m"]
    peer = ["turngraph.benchmarks.study.gretriever", run.kind]
    of_peer = run.row.trainer == "gretriever"
    if run.kind == "train":
        module = peer if of_peer else ["turngraph.train"]
        return [*start, *module, f"--config={run.folder / 'config.yaml'}"]
    assert run.trained is not None
    checkpoint = f"--checkpoint={run.trained / 'run' / 'last'}"
    # not in the hash: a user may lower it if a batch does not fit
    size_now = run.config.training.eval_batch_size
    fresh = ["--fresh"] if _made_from(run).get("batch_size", size_now) != size_now else []
    module = peer if of_peer else ["turngraph.infer", "answer"]
    return [*start, *module, checkpoint, *run.options, *fresh]


def _write_config(run: Run) -> None:
    """Write the resolved config into the run's folder; a changed default is an error."""
    path, output = run.folder / "config.yaml", run.folder / "run"
    if path.is_file():
        _check_config(run)
    settings = replace(run.config.training, output=str(output))
    with whole_file(path) as file:
        file.write(write_config(replace(run.config, training=settings)))


def call(command: list[str], log: Path, stop: StopRequest) -> int:
    """Run a command with its output in a log, and return its exit code; a stop ends it early."""
    with open(log, "a", encoding="utf-8") as file:
        print("$", *command, file=file, flush=True)
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    return _wait(process, stop)


def _wait(process: subprocess.Popen[Any], stop: StopRequest) -> int:
    deadline = None
    try:
        while True:
            try:
                return process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                if deadline is None and stop:
                    process.send_signal(signal.SIGTERM)  # a training then saves
                    deadline = time.monotonic() + SECONDS_TO_STOP
                elif deadline is not None and time.monotonic() > deadline:
                    process.kill()
    finally:
        if process.poll() is None:
            process.kill()


def _note(run: Run, outcome: Outcome, seconds: float) -> None:
    state, now = run.state, commit()
    state["done"], state["failed"] = outcome == "done", outcome == "failed"
    state["seconds"] += seconds
    state["commits"] += [now] if now not in state["commits"] else []
    state |= {"row": run.row.name, "seed": run.seed, "machine": machine(), **run.identity}
    with whole_file(run.folder / STATE) as file:
        file.write(json.dumps(state, indent=1, default=str) + "\n")


@cache
def machine() -> str:
    """Return the name of the GPU, or the CPU's threads and architecture."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{torch.get_num_threads()} threads of {platform.machine()}"
