"""Dependencies of routes: the service, the user of a request by bearer token, checked texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from pydantic import AfterValidator

from turngraph.configs.user_error import UserError
from turngraph.inference.serve.service import Service

REFUSED: dict[int | str, dict[str, Any]] = {
    code: {"description": text}
    for code, text in {
        400: "the request cannot be read",
        401: "the request has no user's token",
        404: "the user has nothing of that name",
        408: "the body came too slowly",
        413: "the body is too long",
        422: "a field is wrong, or the question cannot be answered",
        429: "too many questions wait",
        503: "the server stops",
        504: "the answer took too long",
    }.items()
}
"""Status -> description of the errors that every route may return."""
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the answer, or its pieces as server-sent events",
        "content": {"application/json": {"schema": {}}, "text/event-stream": {"schema": {}}},
    }
}


def user_of(request: Request) -> str:
    """Return the user whose token a request has; ``BodyLimit`` has refused all others."""
    return str(request.scope["user"])


def service_of(request: Request) -> Service:
    """Return the service of the application."""
    return cast(Service, request.app.state.service)


def readable(text: str) -> str:
    """Return a text.

    Raises:
        UserError: it has NUL or half a surrogate pair, which tokenizers and databases refuse.
    """
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise UserError("NUL characters and lone surrogates are not allowed")
    return text


def _spoken(text: str) -> str:
    if not text.strip():
        raise UserError("must not be blank")
    return readable(text)


Spoken = Annotated[str, AfterValidator(_spoken)]
"""A question or a name in a request, with the checks of ``_spoken``."""
User = Annotated[str, Depends(user_of)]
Served = Annotated[Service, Depends(service_of)]


async def place_of(service: Served, user: User) -> AsyncIterator[None]:
    """Hold one of the places for requests that ask for no answer, until the reply is sent.

    Raises:
        Busy: the user, or all together, have too many.
    """
    with service.places.taken(user):
        yield


TAKES_PLACE = Depends(place_of)
"""Dependency of routes whose work takes long and is no answer of the model."""
