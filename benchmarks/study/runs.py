"""The runs of a study: which there are, what each is known by, and one of them run to its end.

A run is a training or the answers of a trained model. It is known by a hash over what shapes its
result: the fields of its config that are not the default, its data, its options. So a run that is
finished is found again whatever its row is called, and is never repeated; the commit is noted in
its folder and is no part of the hash.
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
    CONFIGS,
    Row,
    Size,
    Study,
    find_yaml,
    row_config,
    said,
)
from turngraph.configs.parse import read_config, write_config
from turngraph.configs.schema import Config
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.jsonlines import whole_file
from turngraph.model.checkpoint import commit, file_hash, read_checkpoint
from turngraph.training.run_folder import FREE

logger = logging.getLogger("study")
_file_hash = cache(file_hash)

TRAINERS = {
    "train": "turngraph.train",
    "trl": "turngraph.benchmarks.study.trl_text",
    "gretriever": "turngraph.benchmarks.study.gretriever",
}
"""Modules that train a row, by its trainer."""
UNINTERRUPTIBLE = ("trl",)
"""Trainers that cannot go on from where they were stopped."""
NOT_IN_HASH = {*FREE, "data.tune"} - {"model.base_model"}
PEER_WEIGHTS = "gretriever.safetensors"
STATE, PREDICTIONS, LOG = "run.json", "predictions.jsonl", "log.txt"
SECONDS_TO_STOP = 120  # for a step, and a checkpoint of a large model
Json = dict[str, Any]
Folders = dict[str, Path]
"""Folder of each hash."""
Outcome = Literal["done", "stopped", "failed"]


@dataclass(frozen=True)
class Run:
    """A training, or the answers of a trained model.

    Args:
        kind: which of the two.
        row: the row that it was first needed for.
        seed: of the training.
        config: of the training.
        folder: of this run.
        identity: what its hash is made of.
        trained: the training's folder, for answers.
        options: of infer.py answer.
        proposals: the folder of the answers that it chooses among.
    """

    kind: Literal["train", "answer"]
    row: Row
    seed: int
    config: Config
    folder: Path
    identity: Json
    trained: Path | None = None
    options: tuple[str, ...] = ()
    proposals: Path | None = None

    @property
    def name(self) -> str:
        """As the log calls it."""
        return f"{self.kind} {self.row.name}, seed {self.seed}"

    @property
    def state(self) -> Json:
        """What its folder says of it: seconds spent, whether it is done, commits, machine."""
        return state_of(self.folder)

    @property
    def is_ready(self) -> bool:
        """Whether what it answers with is there."""
        needed = (self.trained, self.proposals)
        return all(state_of(folder)["done"] for folder in needed if folder is not None)

    @property
    def predictions(self) -> Path:
        """Where answers are."""
        return self.folder / PREDICTIONS

    @property
    def uninterruptible(self) -> bool:
        """Whether it starts over when it was stopped."""
        return self.kind == "train" and self.row.trainer in UNINTERRUPTIBLE


def state_of(folder: Path) -> Json:
    """What a run's folder says of it."""
    path = folder / STATE
    if not path.is_file():
        return {"done": False, "seconds": 0.0, "commits": []}
    return json.loads(path.read_text(encoding="utf-8"))


def study_runs(study: Study, size: Size, output: Path, more: Sequence[str] = ()) -> list[Run]:
    """All runs of a study, in the order in which they are run; none is checked for being done.

    Rows that come to the same have runs of the same folder.

    Args:
        study: what it says of rows and seeds.
        size: how much of it.
        output: folder of all runs.
        more: ``--field=value`` overrides of all rows.

    Raises:
        ValueError: a row's config cannot be; names the row.
    """
    names = {row.name: row for row in study.rows}
    runs: list[Run] = []
    trainings: dict[tuple[str, int], Run] = {}
    answers: dict[tuple[str, int], Run] = {}
    folders: Folders = {}
    for seed, row in _order(study):
        trained = names[row.checkpoint_of or row.name]
        if (trained.name, seed) not in trainings:
            config = row_config(study, size, trained, seed, more)
            trainings[trained.name, seed] = _training(trained, seed, config, output, folders)
            runs.append(trainings[trained.name, seed])
        training = trainings[trained.name, seed]
        proposals = answers[row.proposals_of, seed] if row.proposals_of is not None else None
        if proposals is not None and proposals.config.model.answers != "nodes":
            raise ValueError(f"row {row.name}: proposals_of {row.proposals_of!r}: it has an LM")
        answers[row.name, seed] = _answers(study, size, row, training, output, folders, proposals)
        runs.append(answers[row.name, seed])
    # where nothing is trained every seed gives the same
    first = study.seeds[0]
    return [r for r in runs if r.config.training.max_steps != 0 or r.seed == first]


def chosen_runs(runs: Sequence[Run], rows: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Answers of some rows and seeds with their trainings, each folder once.

    Args:
        runs: of a study.
        rows: by name; empty: all.
        seeds: empty: all.

    Raises:
        ValueError: there is no such row or seed.
    """
    answers = [run for run in runs if run.kind == "answer"]
    for option, given, known in (
        ("--rows", rows, {run.row.name: None for run in answers}),
        ("--seeds", seeds, {run.seed: None for run in answers}),
    ):
        if wrong := [value for value in given if value not in known]:
            names = ", ".join(map(str, known))
            raise ValueError(f"{option}: {wrong[0]!r} given, must be of {names}")
    kept = [r for r in answers if (not rows or r.row.name in rows)]
    kept = [r for r in kept if not seeds or r.seed in seeds]
    proposing = {run.proposals for run in kept}
    kept += [run for run in answers if run.folder in proposing]
    wanted = {run.folder for run in kept} | {run.trained for run in kept}
    return list({run.folder: run for run in runs if run.folder in wanted}.values())


def _order(study: Study) -> Iterator[tuple[int, Row]]:
    """Core rows seed after seed, then the others with the first seed."""
    yield from ((seed, row) for seed in study.seeds for row in study.rows if row.core)
    yield from ((study.seeds[0], row) for row in study.rows if not row.core)


def _training(row: Row, seed: int, config: Config, output: Path, folders: Folders) -> Run:
    identity = {
        "config": said(config, tuple(NOT_IN_HASH)),
        "train": _file_hash(config.data.train),
        "trainer": row.trainer,
    }
    folder = _folder(output / "train", row, seed, identity, folders)
    return Run("train", row, seed, config, folder, identity)


def _answers(
    study: Study,
    size: Size,
    row: Row,
    training: Run,
    output: Path,
    folders: Folders,
    proposals: Run | None,
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
    if proposals is not None:
        identity["proposals"] = proposals.identity
        options.append(f"--proposals={proposals.predictions}")
    folder = _folder(output / "answers", row, training.seed, identity, folders)
    options += [f"--input={questions}", f"--output={folder / PREDICTIONS}"]
    options.append(f"--batch_size={training.config.training.eval_batch_size}")
    config, seed = training.config, training.seed
    return Run(
        "answer",
        row,
        seed,
        config,
        folder,
        identity,
        training.folder,
        tuple(options),
        proposals.folder if proposals is not None else None,
    )


def _folder(parent: Path, row: Row, seed: int, identity: Json, folders: Folders) -> Path:
    """The folder with that hash: as it is on disk, or as the first row to need it names it."""
    text = json.dumps(identity, sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    if key not in folders:
        known = sorted(parent.glob(f"*-{key}"))
        folders[key] = known[0] if known else parent / f"{row.name}-seed{seed}-{key}"
    return folders[key]


def missing_files(study: Study) -> list[str]:
    """What is not there of the study's data, each with the command that makes it."""
    found = []
    for name in ("train.jsonl", study.dev):
        path = Path(study.data) / name
        if not path.is_file():
            part = name.removesuffix(".jsonl")
            found.append(f"{path}: {study.make_data.format(part=part, output=path)}")
    return found


def check_finished(runs: Sequence[Run]) -> None:
    """Whether what is finished is what the study would make now.

    Raises:
        ValueError: a default has changed since a training, or answers are of another checkpoint or
            of other proposals than those that are there; names the folder.
    """
    for run in runs:
        if run.state["done"]:
            (_check_config if run.kind == "train" else _check_made_from)(run)


def _check_config(run: Run) -> None:
    path = run.folder / "config.yaml"
    before = said(read_config(path), tuple(NOT_IN_HASH))
    if json.dumps(before, default=str) != json.dumps(run.identity["config"], default=str):
        raise ValueError(f"{path}: a default has changed since it began: move its folder away")


def _check_made_from(run: Run) -> None:
    assert run.trained is not None
    before, last = _made_from(run), run.trained / "run" / "last"
    now = {}
    if last.is_dir():
        of_peer = run.row.trainer == "gretriever"
        now["checkpoint"] = (
            file_hash(last / PEER_WEIGHTS) if of_peer else read_checkpoint(last).hash
        )
    if run.proposals is not None and (run.proposals / PREDICTIONS).is_file():
        now["proposals"] = file_hash(run.proposals / PREDICTIONS)
    for name, found in now.items():
        if name in before and before[name] != found:
            raise ValueError(
                f"{run.folder}: answers of another {name} than what is there now: delete the folder"
            )


def _made_from(run: Run) -> Json:
    """What answers say that they were made from; nothing where there are none."""
    path = Path(f"{run.predictions}.run.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def execute(run: Run, size: Size, stop: StopRequest) -> Outcome:
    """Run or go on with a run, until it is done or the stop is asked for.

    Raises:
        ValueError: a default has changed since it began.
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
    """The command line of a run; each goes on where it was stopped."""
    launcher = [str(find_yaml(word, CONFIGS)) for word in size.launcher]
    start = [*(launcher or [sys.executable]), "-m"]
    module = TRAINERS[run.row.trainer]
    if run.kind == "train":
        more = ["train"] if run.row.trainer == "gretriever" else []
        return [*start, module, *more, f"--config={run.folder / 'config.yaml'}"]
    module = module if run.row.trainer == "gretriever" else "turngraph.infer"
    assert run.trained is not None
    checkpoint = f"--checkpoint={run.trained / 'run' / 'last'}"
    size_now = run.config.training.eval_batch_size  # no part of the hash: it may not have fitted
    over = ["--fresh"] if _made_from(run).get("batch_size", size_now) != size_now else []
    return [*start, module, "answer", checkpoint, *run.options, *over]


def _write_config(run: Run) -> None:
    """The whole config, beside what it makes; a default that has changed since is an error."""
    path, output = run.folder / "config.yaml", run.folder / "run"
    if path.is_file():
        _check_config(run)
    settings = replace(run.config.training, output=str(output))
    with whole_file(path) as file:
        file.write(write_config(replace(run.config, training=settings)))


def call(command: list[str], log: Path, stop: StopRequest) -> int:
    """The exit code of a command, which is asked to end when the stop is asked for."""
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
                    process.send_signal(signal.SIGTERM)  # train.py then saves
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
    """What the runs are made on."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{torch.get_num_threads()} threads of {platform.machine()}"
