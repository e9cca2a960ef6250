"""Sends answers to clients: as a whole, or piece by piece as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from fastapi.responses import PlainTextResponse

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import to_json
from turngraph.data.memory_graph.record.database import Unavailable
from turngraph.data.types import Retrieved
from turngraph.inference.chat_answer import ChatAnswer
from turngraph.inference.memory_printing import step_cells
from turngraph.inference.serve.engine import Late, Stopping
from turngraph.inference.serve.errors import NOT_FOUND, NotFound, own_fault
from turngraph.inference.serve.open_conversation import Gone

if TYPE_CHECKING:
    from turngraph.data.memory_graph.recall.plan_trace import StepTrace

Answer = TypeVar("Answer")


class JSONLines(PlainTextResponse):
    """JSON Lines."""

    media_type = "application/x-ndjson"


class Streaming:
    """Passes the pieces of an answer and the steps of its plan from a thread to the event loop.

    Attributes:
        gone: set when the client has left.
    """

    def __init__(self) -> None:
        self.gone = Event()
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[str | Json | None] = asyncio.Queue()

    def emit(self, piece: str) -> None:
        """Take a piece, in any thread."""
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    def step(self, number: str, trace: StepTrace) -> None:
        """Take a finished step of a plan, in any thread.

        Raises:
            Gone: the client has left, so the other steps are not needed.
        """
        if self.gone.is_set():
            raise Gone
        cells = zip(("number", "text", "starts", "found"), step_cells(number, trace), strict=True)
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, dict(cells))

    async def until(self, answer: asyncio.Future[Answer]) -> AsyncIterator[str | Json]:
        """Yield what comes until the answer is complete; a reader that leaves ends the answer."""
        answer.add_done_callback(self._end)
        try:
            while (piece := await self._pieces.get()) is not None:
                yield piece
        finally:
            if not answer.done():
                self.gone.set()

    def _end(self, answer: asyncio.Future[Any]) -> None:
        _seen(answer)
        self._pieces.put_nowait(None)

    async def whole(self, answer: asyncio.Future[ChatAnswer], request: Request) -> ChatAnswer:
        """Wait for the whole answer; a client that leaves ends it.

        Args:
            answer: the answer to wait for.
            request: its request, whose body was read; the request tells when the client has left.

        Raises:
            Late: the client has left.
            Stopping: the server stops, and waits no longer.
        """
        answer.add_done_callback(_seen)
        left = asyncio.ensure_future(_left(request))
        either: list[asyncio.Future[Any]] = [answer, left]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            raise Stopping("the server stops") from None
        finally:
            left.cancel()
            if not answer.done():
                self.gone.set()
        if not answer.done():
            raise Late("the client has left")
        return answer.result()


def _seen(answer: asyncio.Future[Any]) -> None:
    """Look at an error, else asyncio reports an answer that nobody waits for any more."""
    if not answer.cancelled():
        answer.exception()


async def _left(request: Request) -> None:
    """Wait until the client of a request has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def passage_json(retrieved: Retrieved) -> Json:
    """Return a retrieved passage as a client sees it."""
    retrieval = {"score": round(retrieved.score, 4), "from_turn": retrieved.from_turn}
    return to_json(retrieved.evidence) | retrieval


def answer_json(answer: ChatAnswer) -> Json:
    """Return an answer as a client sees it; ``confidence`` is None if it is not calibrated."""
    return {
        "turn": int(answer.record["turn"]),
        "question": answer.question,
        "answer": answer.text,
        "probability": answer.probability,
        "confidence": answer.confidence,
        "withheld": answer.record.get("withheld"),
        "candidates": answer.record.get("candidates", []),
        "evidence": [passage_json(item) for item in answer.evidence],
        "milliseconds": answer.record.get("milliseconds"),
        "num_left_out": answer.num_left_out,
    }


async def events(
    answer: asyncio.Future[Answer], streaming: Streaming, shown: Callable[[Answer], Json]
) -> AsyncIterator[str]:
    """Yield the events of a streamed answer: ``step``, ``text``, then ``answer`` or ``error``."""
    async for piece in streaming.until(answer):
        yield event({"text": piece}, "text") if isinstance(piece, str) else event(piece, "step")
    if error := answer.exception():
        yield event(failure(error), "error")
    else:
        yield event(shown(answer.result()), "answer")


def event(data: Any, kind: str | None = None) -> str:
    """Return one server-sent event."""
    head = "" if kind is None else f"event: {kind}\n"
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def failure(error: BaseException) -> Json:
    """Return what a client sees of an error in the middle of a stream."""
    if isinstance(error, NotFound):
        return {"message": NOT_FOUND}
    if isinstance(error, UserError | Late | Stopping) and not isinstance(error, Unavailable):
        return {"message": " ".join(str(error).split())}
    return {"message": own_fault(error)[1]}
