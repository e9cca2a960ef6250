"""HTTP routes of a user's conversations and documents."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from turngraph.data.json_fields import Json
from turngraph.inference.options import MAX_QUESTION
from turngraph.inference.serve.auth import REFUSED, STREAMED, TAKES_PLACE, Served, Spoken, User
from turngraph.inference.serve.errors import NotFound
from turngraph.inference.serve.streams import (
    JSONLines,
    Streaming,
    answer_json,
    events,
    passage_json,
)
from turngraph.inference.session import Session

conversations = APIRouter(prefix="/api/conversations", tags=["conversations"], responses=REFUSED)
documents = APIRouter(prefix="/api/documents", tags=["documents"], responses=REFUSED)
ID = r"^[0-9a-f]{32}$"
Id = Annotated[str, Path(pattern=ID)]
Name = Annotated[str, Path(max_length=255)]


class Question(BaseModel):
    """A question to a conversation."""

    question: Spoken = Field(max_length=MAX_QUESTION)
    stream: bool = True


@conversations.get("")
def listed(
    service: Served,
    user: User,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str | None, Query(pattern=ID)] = None,
) -> list[Json]:
    """List a user's conversations, the last changed first.

    ``after`` is the id of the last conversation of the page before.
    """
    return [asdict(conversation) for conversation in service.store(user).listed(limit, after)]


@conversations.post("", status_code=201)
def create(service: Served, user: User) -> Json:
    """Begin a conversation."""
    return {"id": service.store(user).create()}


@conversations.get("/{id_}")
def one(id_: Id, service: Served, user: User) -> Json:
    """Return a conversation with the evidence of each turn."""
    store = service.store(user)
    if not store.has(id_):
        raise NotFound(id_)
    turns = [
        record | {"evidence": [passage_json(item) for item in passages]}
        for record, passages in store.turns(id_)
    ]
    return {"id": id_, "turns": turns}


@conversations.delete("/{id_}", status_code=204)
async def delete(id_: Id, service: Served, user: User, forget: bool = False) -> None:
    """Delete a conversation; with ``forget`` also its facts in the memory graph."""
    with service.places.taken(user) if forget else nullcontext():
        future = await run_in_threadpool(service.delete, user, id_, forget)
        await asyncio.wrap_future(future)


@conversations.post("/{id_}/ask", response_model=None, responses=STREAMED)
async def ask(
    id_: Id, asked: Question, request: Request, service: Served, user: User
) -> StreamingResponse | Json:
    """Answer a question: events ``step`` of a plan, ``text``, then ``answer`` or ``error``.

    Without ``stream`` the answer comes as a whole.
    """
    streaming, admission = Streaming(), service.engine.admit(user)
    try:
        future = await run_in_threadpool(service.ask, user, id_, asked.question, streaming)
    except BaseException:
        admission.end()
        raise
    future.add_done_callback(lambda _: admission.end())
    answer = asyncio.wrap_future(future)
    if asked.stream:
        stream = events(answer, streaming, answer_json)
        return StreamingResponse(stream, media_type="text/event-stream")
    return answer_json(await streaming.whole(answer, request))


@conversations.post("/{id_}/undo", dependencies=[TAKES_PLACE])
async def undo(id_: Id, service: Served, user: User) -> Json:
    """Remove the last turn, also from the memory graph."""
    future = await run_in_threadpool(service.undo, user, id_)
    return {"question": await asyncio.wrap_future(future)}


@conversations.get("/{id_}/why", dependencies=[TAKES_PLACE])
async def why(id_: Id, service: Served, user: User) -> Json:
    """Return the share of each passage in the last answer, and of the edges between passages."""
    future = await run_in_threadpool(service.run, user, id_, Session.why)
    explained = await asyncio.wrap_future(future)
    passages = [
        {"text": p.text, "source": p.source, "share": p.share, "origin": p.origin}
        for p in explained.passages
    ]
    edges = [
        {"first": e.first, "second": e.second, "entity": e.label, "share": e.share}
        for e in explained.edges
    ]
    turn = {"question": explained.question, "answer": explained.answer}
    return turn | {"passages": passages, "edges": edges}


@conversations.get("/{id_}/save", response_class=JSONLines, dependencies=[TAKES_PLACE])
async def save(id_: Id, service: Served, user: User) -> JSONLines:
    """Return a conversation as one line of JSON, each turn with its evidence."""

    def saved(session: Session) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return session.save(FilePath(folder) / f"{id_}.jsonl").read_bytes()

    future = await run_in_threadpool(service.run, user, id_, saved)
    return JSONLines(await asyncio.wrap_future(future))


@documents.get("")
def listed_documents(service: Served, user: User) -> list[Json]:
    """List a user's documents."""
    return service.documents.listed(user)


@documents.put("/{name}", status_code=201, dependencies=[TAKES_PLACE])
async def add_document(name: Name, request: Request, service: Served, user: User) -> Json:
    """Keep a document; the body is the file. ``warnings`` name what of it was not read."""
    content = await request.body()
    return await run_in_threadpool(service.documents.add, user, name, content)


@documents.delete("/{name}", status_code=204)
def remove_document(name: Name, service: Served, user: User) -> None:
    """Delete a document."""
    service.documents.remove(user, name)
