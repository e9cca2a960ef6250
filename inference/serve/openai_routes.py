"""OpenAI's chat API, so that its clients and chat front ends work unchanged.

A request carries its whole dialogue, and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Literal
from uuid import uuid4

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from turngraph.data.json_fields import Json
from turngraph.inference.chat_answer import ChatAnswer
from turngraph.inference.serve.auth import REFUSED, STREAMED, Served, User, readable
from turngraph.inference.serve.streams import Streaming, answer_json, event, failure

router = APIRouter(prefix="/v1", tags=["openai"], responses=REFUSED)
MODEL = "turngraph"
"""Name of the one model, whatever its checkpoint is called."""
MAX_TEXT = 100_000
"""Characters of one message."""


class ChatMessage(BaseModel):
    """One message; a system's is not read, as the model knows no such role."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]] = Field(max_length=MAX_TEXT)

    def text(self) -> str:
        """Return the text of its content.

        Raises:
            HTTPException: 422: a part of it is no text.
        """
        if isinstance(self.content, str):
            return self.content
        parts = [part.get("text") for part in self.content if part.get("type") == "text"]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) < len(self.content):
            raise HTTPException(422, "messages: only parts of type text can be read")
        return " ".join(texts)


class ChatRequest(BaseModel):
    """A request; what does not apply to greedy answers, such as temperature, is not read."""

    model_config = ConfigDict(extra="ignore")
    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    model: str | None = Field(None, max_length=500)
    stream: bool = False
    n: Literal[1] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)


@router.get("/models")
async def models(user: User) -> Json:
    """List the one model."""
    one = {"id": MODEL, "object": "model", "created": 0, "owned_by": "turngraph"}
    return {"object": "list", "data": [one]}


@router.post("/chat/completions", response_model=None, responses=STREAMED)
async def completions(
    asked: ChatRequest, request: Request, service: Served, user: User
) -> StreamingResponse | Json:
    """Answer the last message; the field ``turngraph`` has evidence, candidates and probability."""
    turns, question = dialogue(asked.messages)
    max_new_tokens = asked.max_completion_tokens or asked.max_tokens
    streaming = Streaming()
    head = {
        "id": f"chatcmpl-{uuid4().hex}",
        "created": int(time.time()),
        "model": MODEL,
    }
    admission = service.engine.admit(user)
    future = service.complete(user, turns, question, streaming, max_new_tokens)
    future.add_done_callback(lambda _: admission.end())
    answer = asyncio.wrap_future(future)
    if asked.stream:
        return StreamingResponse(chunks(answer, streaming, head), media_type="text/event-stream")
    found = await streaming.whole(answer, request)
    message = {"role": "assistant", "content": found.text}
    choice = {"index": 0, "message": message, "finish_reason": _finish(found)}
    return {
        **head,
        "object": "chat.completion",
        "choices": [choice],
        "usage": _usage(found),
        "turngraph": answer_json(found),
    }


async def chunks(
    answer: asyncio.Future[ChatAnswer], streaming: Streaming, head: Json
) -> AsyncIterator[str]:
    """Yield the events of a streamed completion."""

    def chunk(delta: Json, finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({**head, "object": "chat.completion.chunk", "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": ""})
    async for piece in streaming.until(answer):  # no steps: it asks no memory graph
        yield chunk({"content": piece})
    if error := answer.exception():
        yield event({"error": failure(error)})
        return
    found = answer.result()
    yield chunk({}, _finish(found), usage=_usage(found), turngraph=answer_json(found))
    yield "data: [DONE]\n\n"


def dialogue(messages: list[ChatMessage]) -> tuple[list[tuple[str, str]], str]:
    """Return the finished turns and the question.

    Raises:
        HTTPException: 422: the messages are no dialogue that ends with a question.
        UserError: one is no text.
    """
    spoken = [m for m in messages if m.role in ("user", "assistant")]
    roles = [m.role for m in spoken]
    expected = ["user", "assistant"] * (len(spoken) // 2) + ["user"]
    if roles != expected:
        raise HTTPException(422, "messages: user and assistant must alternate, from user to user")
    texts = [m.text() for m in spoken]
    if not all(text.strip() for text in texts[::2]):
        raise HTTPException(422, "messages: a question must not be blank")
    for text in texts:
        readable(text)
    return list(zip(texts[:-1:2], texts[1::2], strict=True)), texts[-1]


def _finish(answer: ChatAnswer) -> str:
    return "length" if answer.record["is_cut_off"] else "stop"


def _usage(answer: ChatAnswer) -> Json:
    read, written = int(answer.record["num_tokens"]), int(answer.record["num_new_tokens"])
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }
