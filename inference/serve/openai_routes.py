"""OpenAI's chat API, so that its clients and chat front ends work unchanged.

A request carries its whole dialogue, and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, HTTPException, Path, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json
from turngraph.inference.chat_answer import ChatAnswer
from turngraph.inference.options import too_long
from turngraph.inference.serve.auth import REFUSED, STREAMED, Served, User, readable
from turngraph.inference.serve.streams import Streaming, answer_json, event, failure

router = APIRouter(prefix="/v1", tags=["openai"], responses=REFUSED)
MODEL = "turngraph"
"""Name of the one model, whatever its checkpoint is called."""
ONE: Json = {"id": MODEL, "object": "model", "created": 0, "owned_by": "turngraph"}
MAX_TEXT = 100_000
"""Characters of one message."""
MAX_STOPS, MAX_STOP = 4, 1000
"""Most texts that end an answer, and most characters of each."""
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP)]


Blank = Annotated[list[Any] | dict[str, Any], Field(max_length=0)]
"""An empty list or object."""


class ChatMessage(BaseModel):
    """One message; only what user and assistant say is read: the model knows no other role."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = Field(None, max_length=MAX_TEXT)

    def text(self) -> str:
        """Return the text of its content; "" if there is none.

        Raises:
            UserError: a part of a question is no text, or the text cannot be read.
        """
        if not isinstance(self.content, list):
            return readable(self.content or "")
        parts = [part.get("text") for part in self.content if part.get("type") == "text"]
        texts = [part for part in parts if isinstance(part, str)]
        if self.role == "user" and len(texts) < len(self.content):
            raise UserError("messages: only parts of type text can be read")
        return readable(" ".join(texts))


class TextFormat(BaseModel):
    """The one format of answers."""

    type: Literal["text"]


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    include_usage: bool | None = None


class ChatRequest(BaseModel):
    """A request, in which null is each field's default.

    Settings of sampling, such as temperature, are not read: an answer is the most likely one. What
    would change an answer's form and is not supported is refused.
    """

    model_config = ConfigDict(extra="ignore")
    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    model: str | None = Field(None, max_length=500)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    response_format: TextFormat | None = None
    tool_choice: Literal["none", "auto"] | None = None
    function_call: Literal["none", "auto"] | None = None
    logit_bias: Blank | None = None
    modalities: list[Literal["text"]] | None = None
    audio: None = None
    web_search_options: None = None

    @property
    def stops(self) -> list[str]:
        """Texts before which an answer ends."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class Ending:
    """Cuts an answer, piece by piece, at the first of some texts.

    Args:
        stops: the texts; what may be the beginning of one is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self.text, self.has_ended = stops, "", False
        self._num_given = 0

    def add(self, piece: str, is_last: bool = False) -> str:
        """Return what can be given out after one more piece."""
        if self.has_ended:
            return ""
        self.text += piece
        places = [place for stop in self.stops if (place := self.text.find(stop)) >= 0]
        if places:
            self.text, self.has_ended = self.text[: min(places)], True
        is_whole = is_last or self.has_ended
        held = 0 if is_whole else max((len(stop) - 1 for stop in self.stops), default=0)
        begin, self._num_given = self._num_given, max(self._num_given, len(self.text) - held)
        return self.text[begin : self._num_given]


def _known(name: str | None) -> None:
    if name not in (None, MODEL):
        raise HTTPException(404, f"there is no model {name!r}; this server has {MODEL!r}")


@router.get("/models")
async def models(user: User) -> Json:
    """List the one model."""
    return {"object": "list", "data": [ONE]}


@router.get("/models/{name}")
async def model(name: Annotated[str, Path(max_length=500)], user: User) -> Json:
    """Return the one model."""
    _known(name)
    return ONE


@router.post("/chat/completions", response_model=None, responses=STREAMED)
async def completions(
    asked: ChatRequest, request: Request, service: Served, user: User
) -> StreamingResponse | Json:
    """Answer the last question; the field ``turngraph`` has evidence, candidates and confidence."""
    _known(asked.model)
    turns, question = dialogue(asked.messages)
    if long := too_long(question):  # now, not in the middle of a stream
        raise UserError(f"messages: {long}")
    max_new_tokens = asked.max_completion_tokens or asked.max_tokens
    streaming = Streaming()
    head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": MODEL}
    admission = service.engine.admit(user)
    future = service.complete(user, turns, question, streaming, max_new_tokens)
    future.add_done_callback(lambda _: admission.end())
    answer, ending = asyncio.wrap_future(future), Ending(asked.stops)
    if asked.stream:
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage is True
        stream = chunks(answer, streaming, head, ending, with_usage)
        return StreamingResponse(stream, media_type="text/event-stream")
    whole = await streaming.whole(answer, request)
    message = {"role": "assistant", "content": ending.add(whole.text, is_last=True)}
    choice = {"index": 0, "message": message, "finish_reason": _finish(whole, ending)}
    return {
        **head,
        "object": "chat.completion",
        "choices": [choice],
        "usage": _usage(whole),
        "turngraph": answer_json(whole),
    }


async def chunks(
    answer: asyncio.Future[ChatAnswer],
    streaming: Streaming,
    head: Json,
    ending: Ending,
    with_usage: bool,
) -> AsyncIterator[str]:
    """Yield the events of a streamed completion."""
    usage = {"usage": None} if with_usage else {}

    def chunk(delta: Json, finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        kind = "chat.completion.chunk"
        return event({**head, "object": kind, "choices": [choice], **usage, **more})

    yield chunk({"role": "assistant", "content": ""})
    async for piece in streaming.until(answer):
        assert isinstance(piece, str), "it asks no memory graph, so there are no steps"
        if text := ending.add(piece):
            yield chunk({"content": text})
    if error := answer.exception():
        yield event({"error": failure(error)})
        return
    if text := ending.add("", is_last=True):
        yield chunk({"content": text})
    whole = answer.result()
    yield chunk({}, _finish(whole, ending), turngraph=answer_json(whole))
    if with_usage:
        kind = "chat.completion.chunk"
        yield event({**head, "object": kind, "choices": [], "usage": _usage(whole)})
    yield "data: [DONE]\n\n"


def dialogue(messages: Sequence[ChatMessage]) -> tuple[list[tuple[str, str]], str]:
    """Return the finished turns and the question.

    Messages without text and an assistant's messages before the first question are skipped. Several
    messages of one role in a row are joined.

    Raises:
        UserError: the messages do not end with a question, or one cannot be read.
    """
    spoken: list[tuple[str, str]] = []
    for message in messages:
        if message.role not in ("user", "assistant") or not (text := message.text()).strip():
            continue
        if spoken and spoken[-1][0] == message.role:
            spoken[-1] = message.role, f"{spoken[-1][1]} {text}"
        elif spoken or message.role == "user":
            spoken.append((message.role, text))
    if not spoken or spoken[-1][0] != "user":
        raise UserError("messages: the last one with a text must be a question of the user")
    texts = [text for _, text in spoken]
    return list(zip(texts[:-1:2], texts[1::2], strict=True)), texts[-1]


def _finish(answer: ChatAnswer, ending: Ending) -> str:
    return "length" if answer.record["is_cut_off"] and not ending.has_ended else "stop"


def _usage(answer: ChatAnswer) -> Json:
    read, written = int(answer.record["num_tokens"]), int(answer.record["num_new_tokens"])
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }
