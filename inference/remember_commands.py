"""The commands that remember files: in one memory graph, or each in a graph of its own.

Many graphs are filled one after the other or on a Ray cluster.
"""

from __future__ import annotations

import dataclasses
import io
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import EXIT_GO_ON, CommandParser, StopRequest, visible
from turngraph.data.memory_graph.record.place import is_url, of_tenant
from turngraph.data.memory_graph.record.place import shown as shown_place
from turngraph.data.ray_workers import map_on_ray
from turngraph.inference import memory_commands, ontology_commands
from turngraph.inference.memory_options import extractor_option, positive, spoken_time
from turngraph.inference.model_options import (
    LANGUAGE_MODEL,
    SERVER_OPTIONS,
    local_extractor,
    server_extractor,
)

if TYPE_CHECKING:  # loaded where they are used, so that --help answers at once
    from turngraph.data.memory_graph.memory_types import Episode, Extractor

logger = logging.getLogger("memory")

Task = tuple[str, str]
"""Path or URL of the graph, path of the file."""


def add_remember_options(added: CommandParser) -> None:
    """Add the options of ``remember`` and of every extractor."""
    added.add_argument(
        "--input",
        dest="inputs",
        nargs="+",
        required=True,
        metavar="FILE",
        help="plain text, one episode a paragraph or message of a chat log; .html, .csv, .pdf, "
        ".docx; or .jsonl: texts or conversations",
    )
    added.add_argument(
        "--extractor",
        type=extractor_option,
        default="rules",
        metavar="NAME",
        help="rules (reads English, no model), lm (a local model), endpoint (a server), given "
        "(.jsonl with triplets), or spacy:PIPELINE, such as spacy:pl_core_news_sm",
    )
    added.add_argument("--source", help="source of the texts; default: the file's name")
    added.add_argument("--time", type=spoken_time, help="time of the texts that have none")
    added.add_argument("--speaker", help="speaker of the texts that name none")
    added.add_argument("--batch", type=positive, help="episodes in a commit; 200, with models 8")
    ontology_commands.add_typed(added)
    add_model_options(added)


def add_model_options(added: CommandParser) -> None:
    """Add the options of language models, local and on a server."""
    added.add_argument("--model", help=f"for lm (default {LANGUAGE_MODEL}) and endpoint")
    added.add_argument("--device", help="for lm (default cpu)")
    for name, (type_, help) in SERVER_OPTIONS.items():
        added.add_argument(f"--{name}", help=f"for endpoint: {help}", type=type_)


def remember(
    *,
    db: str,
    inputs: Sequence[str],
    extractor: str,
    source: str | None,
    time: str | None,
    speaker: str | None,
    batch: int | None,
    max_minutes: float | None,
    typed: bool,
    ontology: str | None,
    alone: bool,
    model: str | None,
    device: str | None,
    **server: str | float | None,
) -> None:
    """Remember files with one of the extractors."""
    from turngraph.data.memory_graph.inputs import read_episodes

    terms = ontology_commands.typed_terms(typed, ontology, alone)
    allowed = ((), ()) if terms is None else (terms.relations, terms.classes)
    read: Callable[[str], Iterable[Episode]] = read_episodes
    chosen: Extractor
    if extractor == "given":
        from turngraph.data.memory_graph.extract.given import GivenExtractor

        chosen = given = GivenExtractor()
        read = given.read
    elif extractor == "lm":
        chosen = local_extractor(model or LANGUAGE_MODEL, device or "cpu", *allowed)
    elif extractor == "endpoint":
        chosen = server_extractor(model, server, *allowed)
    elif extractor.startswith("spacy:"):
        from turngraph.data.memory_graph.extract.spacy_extractor import (
            SpacyExtractor,
            load_pipeline,
        )

        chosen = SpacyExtractor(load_pipeline(extractor.removeprefix("spacy:")), extractor)
    else:
        from turngraph.data.memory_graph.turns import TurnExtractor

        chosen = TurnExtractor()
    episodes = (
        dataclasses.replace(
            episode,
            source=source or episode.source,
            time=episode.time or time,
            speaker=episode.speaker or speaker,
        )
        for path in inputs
        for episode in read(path)
    )
    memory_commands.remember(
        db,
        episodes,
        extractor=chosen if terms is None else terms.wrap(chosen),
        batch=batch or (8 if extractor in ("lm", "endpoint") else 200),
        max_minutes=max_minutes,
    )


def remember_all(
    *,
    db_dir: str,
    inputs: Sequence[str],
    ray: str | None,
    max_minutes: float | None,
    **options: Any,
) -> None:
    """Remember each file in the graph ``DB_DIR/NAME.db``, and print what was done of each.

    In a PostgreSQL database, the graphs are those of the tenants ``NAME``.

    Files that were remembered before change nothing, so that the same command goes on after a stop.

    Args:
        db_dir: folder of the graphs, made where it is missing; or URL of a PostgreSQL database.
        inputs: files, whose names without their endings become the graphs' names.
        ray: address of a Ray cluster whose nodes see the same folders; None: this process.
        max_minutes: stop after so many minutes; None: no limit.
        **options: of ``remember``.

    Raises:
        UserError: two files have one name, or a file cannot be remembered.
        SystemExit: stopped early, with ``EXIT_GO_ON``.
    """
    tasks = tasks_of(db_dir, inputs)
    if not is_url(db_dir):
        Path(db_dir).mkdir(parents=True, exist_ok=True)
    work = partial(_remember_one, options)
    done: Generator[str, None, None]
    if ray is None:
        done = (work(None, task) for task in tasks)
    else:
        done = map_on_ray(ray, _nothing, work, tasks)
    shown = progress(len(tasks), "remembering", "files", delay=2)
    with StopRequest(max_minutes, "after the file at hand") as stop, shown as bar, closing(done):
        for number, ((_, path), said) in enumerate(zip(tasks, done, strict=True), 1):
            print(f"{visible(path)}: {said}", flush=True)
            bar.update()
            if stop and number < len(tasks):
                logger.info("stopped (%s); the same command goes on", stop.reason)
                raise SystemExit(EXIT_GO_ON)
    logger.info("%s in %s", plural(len(tasks), "memory graph"), shown_place(db_dir))


def tasks_of(db_dir: str, inputs: Sequence[str]) -> list[Task]:
    """Return the graph of each file.

    Raises:
        UserError: two files have one name, or a URL names a tenant.
    """
    by_place: dict[str, str] = {}
    for path in inputs:
        name = Path(path).stem
        place = of_tenant(db_dir, name) if is_url(db_dir) else Path(db_dir, f"{name}.db")
        if other := by_place.get(str(place)):
            raise UserError(f"{other} and {path} would both be remembered in {shown_place(place)}")
        by_place[str(place)] = path
    return list(by_place.items())


def _nothing() -> None:
    """Return None: a worker process needs no state."""


def _remember_one(options: dict[str, Any], _: None, task: Task) -> str:
    """Remember one file; return what the command printed, as one line."""
    said = io.StringIO()
    with redirect_stdout(said):
        remember(db=task[0], inputs=[task[1]], max_minutes=None, **options)
    return " ".join(said.getvalue().split())
