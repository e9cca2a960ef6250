"""HTTP routes of a user's memory graph: ask, history, forget, export."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from turngraph.data.json_fields import Json
from turngraph.data.memory_graph.recall.recollection import Mode, Recollection
from turngraph.data.memory_graph.record.place import is_url
from turngraph.inference.memory_printing import fact_json, recollection_json
from turngraph.inference.serve.auth import REFUSED, STREAMED, TAKES_PLACE, Served, Spoken, User
from turngraph.inference.serve.open_conversation import Gone
from turngraph.inference.serve.service import Service
from turngraph.inference.serve.streams import JSONLines, Streaming, events

if TYPE_CHECKING:
    from turngraph.data.memory_graph.graph import MemoryGraph

memory = APIRouter(
    prefix="/api/memory", tags=["memory"], responses=REFUSED, dependencies=[TAKES_PLACE]
)
Name = Annotated[Spoken, Query(max_length=500)]
Time = Annotated[str | None, Query(max_length=40, description="an ISO time")]
Answered = Annotated[bool, Query(description="let the model answer from what is found")]
MODES = (
    "both: facts and episodes, fused; facts: statements of the traversals; episodes: texts by"
    " personalised PageRank; plan: facts by a plan of steps; themes: statements theme by theme, or"
    " the closest facts without themes"
)


class Forget(BaseModel):
    """Request to forget one of: an entity, a source, episodes."""

    entity: Annotated[Spoken, Field(max_length=500)] | None = None
    source: Annotated[Spoken, Field(max_length=500)] | None = None
    episodes: list[Annotated[int, Field(ge=1, lt=2**63)]] | None = Field(None, max_length=1000)
    wide: bool = False
    dry_run: bool = False


def remembered(service: Service, user: str) -> str:
    """Return the path or the URL of a user's graph.

    Raises:
        HTTPException: 404: nothing is remembered.
    """
    place = service.memory_place(user)
    if not service.remembers or not (is_url(place) or Path(place).exists()):
        raise HTTPException(404, "nothing is remembered")
    return place


@contextmanager
def opened(service: Service, user: str) -> Iterator[MemoryGraph]:
    """Open a user's graph.

    Raises:
        HTTPException: 404: nothing is remembered.
    """
    path = remembered(service, user)
    service.loading.result()
    from turngraph.data.memory_graph.graph import MemoryGraph
    from turngraph.data.memory_graph.turns import TurnExtractor

    with MemoryGraph.open(path, service.qa.builder.embed, TurnExtractor()) as graph:
        yield graph


@memory.get("/ask")
def ask(
    question: Name,
    service: Served,
    user: User,
    as_of: Time = None,
    mode: Annotated[Mode, Query(description=MODES)] = "both",
    answer: Answered = False,
) -> Json:
    """Return what may answer a question, best first; with ``answer`` also the model's answer."""
    with opened(service, user) as graph:
        ways: dict[Mode, Callable[[str, str | None], Recollection]] = {
            "both": graph.ask_both,
            "facts": graph.ask,
            "episodes": graph.ask_episodes,
            "plan": graph.ask_planned,
            "themes": graph.ask_themes,
        }
        recollection = ways[mode](question, as_of)
    if answer:
        recollection = replace(recollection, answer=service.read(user, recollection))
    return recollection_json(recollection, as_of)


@memory.get("/plan", response_model=None, responses=STREAMED)
async def plan(
    question: Name, service: Served, user: User, as_of: Time = None, answer: Answered = False
) -> StreamingResponse:
    """Ask by a plan: events ``step`` as its steps finish, then ``answer`` or ``error``.

    With ``answer`` the model answers from the facts of all steps.
    """
    remembered(service, user)
    streaming = Streaming()

    def work() -> Json:
        if streaming.gone.is_set():  # the client left while this waited for a thread
            raise Gone
        with opened(service, user) as graph:
            recollection = graph.ask_planned(question, as_of, on_step=streaming.step)
        if answer:
            recollection = replace(recollection, answer=service.read(user, recollection))
        return recollection_json(recollection, as_of)

    working = asyncio.ensure_future(run_in_threadpool(work))
    stream = events(working, streaming, lambda one: one)
    return StreamingResponse(stream, media_type="text/event-stream")


@memory.get("/history")
def history(entity: Name, service: Served, user: User) -> list[Json]:
    """Return all facts of an entity in order of time, also those that hold no more."""
    with opened(service, user) as graph:
        return [fact_json(fact) for fact in graph.history(entity)]


@memory.post("/forget")
def forget(what: Forget, service: Served, user: User) -> Json:
    """Erase an entity, a source or episodes; return what was erased, or would be."""
    with opened(service, user) as graph:
        erased = graph.forget(what.episodes, what.entity, what.source, what.dry_run, what.wide)
    return {"dry_run": what.dry_run, **asdict(erased)}


@memory.get("/export", response_class=JSONLines)
def export(service: Served, user: User) -> JSONLines:
    """Return the whole graph as JSON Lines."""
    from turngraph.data.memory_graph.upkeep.transfer import export_jsonl

    with opened(service, user) as graph, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.jsonl"
        export_jsonl(graph.store, path)
        return JSONLines(path.read_bytes())
