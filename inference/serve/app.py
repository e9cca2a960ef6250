"""The HTTP application: routes, errors, health, and the page of the chat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as StarletteHTTPException

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json
from turngraph.data.memory_graph.record.database import Unavailable
from turngraph.inference.serve.conversation_routes import conversations, documents
from turngraph.inference.serve.conversation_store import Conflict
from turngraph.inference.serve.engine import Busy, Late, Stopping
from turngraph.inference.serve.errors import FAILED, NOT_FOUND, NotFound, own_fault
from turngraph.inference.serve.limits import BodyLimit, OwnPages, RefusalLog, refusal
from turngraph.inference.serve.memory_routes import memory
from turngraph.inference.serve.openai_routes import MODEL
from turngraph.inference.serve.openai_routes import router as openai
from turngraph.inference.serve.service import Service
from turngraph.inference.serve.users import Users

PAGE = Path(__file__).with_name("page")
THIS_MACHINE = ["127.0.0.1", "localhost", "[::1]"]
NO_JSON = "the body is no JSON"
UNPARSED = "There was an error parsing the body"
"""FastAPI's message for bodies that are nested too deep, not UTF-8, or have too long numbers."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    yield
    await run_in_threadpool(app.state.service.close)


def make_app(service: Service, users: Users, host: str) -> FastAPI:
    """Return the application.

    Args:
        service: service that answers.
        users: users who may ask.
        host: host at which it is served; without tokens only this name and those of this machine
            reach it.
    """
    app = FastAPI(
        title="Turngraph",
        version=version("turngraph"),
        lifespan=_life,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    for router in (openai, conversations, documents, memory):
        app.include_router(router)
    _add_errors(app)
    _add_health(app, service)
    for path in PAGE.iterdir():
        route = "/" if path.name == "index.html" else f"/{path.name}"
        app.add_api_route(route, _file(path), include_in_schema=False, methods=["GET"])
    app.add_middleware(BodyLimit, users=users)
    if users.path is None:
        url_host = f"[{host}]" if ":" in host else host
        app.add_middleware(OwnPages, hosts={*THIS_MACHINE, url_host.lower()})
    app.add_middleware(RefusalLog)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(StarletteHTTPException)
    async def http_error(_: Request, error: HTTPException) -> JSONResponse:
        detail = NO_JSON if error.detail == UNPARSED else str(error.detail)
        return refusal(error.status_code, detail, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def wrong_field(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return wrong(request, f"{NO_JSON}: {first['ctx']['error']}")
        if first["loc"] == ("body",):
            return wrong(request, "the body must be a JSON object, sent as application/json")
        place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
        message = str(first["msg"]).removeprefix("Value error, ")
        if first["type"].endswith("too_long") and isinstance(first["input"], str):
            most = first["ctx"]["max_length"]
            message = f"{len(first['input'])} characters, at most {most} are read"
        param = place.partition(".")[0] or None
        return wrong(request, f"{place}: {message}" if place else message, param)

    @app.exception_handler(UserError)
    async def wrong_input(request: Request, error: UserError) -> JSONResponse:
        return wrong(request, " ".join(str(error).split()))

    def wrong(request: Request, message: str, param: str | None = None) -> JSONResponse:
        status = 400 if request.url.path.startswith("/v1/") else 422  # OpenAI's API returns 400
        return refusal(status, message, param=param)

    replies: dict[type[Exception], Callable[[Any], JSONResponse]] = {
        NotFound: lambda _: refusal(404, NOT_FOUND),
        Conflict: lambda error: refusal(409, str(error)),
        Busy: lambda error: refusal(429, str(error), {"Retry-After": f"{error.seconds:.0f}"}),
        Late: lambda error: refusal(504, str(error)),
        Stopping: lambda error: refusal(503, str(error), {"Retry-After": "5"}),
        Unavailable: lambda error: refusal(*own_fault(error)),
        Exception: lambda _: refusal(500, FAILED),  # it is logged with its traceback, too
    }
    for kind, reply in replies.items():
        app.add_exception_handler(kind, _handler(reply))


def _handler(
    reply: Callable[[Any], JSONResponse],
) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def handle(_: Request, error: Exception) -> JSONResponse:
        return reply(error)

    return handle


class _Counts(Collector):
    """Metrics of a server: its present work, its work so far, and its content in memory.

    Args:
        service: service whose numbers are read at each collection.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this moment."""
        engine, name = self.service.engine, "turngraph"
        yield GaugeMetricFamily(
            f"{name}_answers_running", "answers in the batch", engine.num_running
        )
        yield GaugeMetricFamily(
            f"{name}_questions_waiting", "questions that wait for the batch", engine.num_waiting
        )
        yield CounterMetricFamily(f"{name}_answers", "answers written", engine.num_answered)
        yield CounterMetricFamily(f"{name}_tokens", "tokens written", engine.num_tokens)
        held = GaugeMetricFamily(f"{name}_held", "kept in memory, each to a limit", labels=["what"])
        for what, num in self.service.held().items():
            held.add_metric([what], num)
        yield held


def _add_health(app: FastAPI, service: Service) -> None:
    registry = CollectorRegistry()
    registry.register(_Counts(service))

    @app.get("/healthz", tags=["health"])
    async def healthz() -> Json:
        return {"status": "alive"}

    @app.get("/readyz", tags=["health"], responses={503: {"description": "not ready yet"}})
    async def readyz() -> Json:
        if not service.is_ready:
            raise HTTPException(503, "the sentence encoder is not loaded yet", {"Retry-After": "1"})
        return {"status": "ready", "model": MODEL}

    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _file(path: Path) -> Callable[[], Any]:
    async def reply() -> FileResponse:
        return FileResponse(path, headers=HEADERS)

    return reply
