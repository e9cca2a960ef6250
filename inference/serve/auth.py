"""What routes depend on: the service, and the user of a request by its bearer token."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import Depends, HTTPException, Request

from turngraph.inference.serve.service import Service

REFUSED: dict[int | str, dict[str, Any]] = {
    code: {"description": text}
    for code, text in {
        400: "the request cannot be read",
        401: "no user's token",
        404: "the user has none of that name",
        408: "the body came too slowly",
        413: "the body is too long",
        422: "a field is wrong, or the question cannot be answered",
        429: "too many questions wait",
        503: "the server stops",
        504: "the answer took too long",
    }.items()
}
"""What every route may answer instead."""
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the answer, or its pieces as server-sent events",
        "content": {"application/json": {"schema": {}}, "text/event-stream": {"schema": {}}},
    }
}


def user_of(request: Request) -> str:
    """Return the user whose token a request has.

    Raises:
        HTTPException: 401: it has none.
    """
    user = request.app.state.users.user_of(request.headers.get("authorization"))
    if user is None:
        message = "a user's token is needed: Authorization: Bearer TOKEN"
        raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})
    return str(user)


def service_of(request: Request) -> Service:
    """Return the service of the application."""
    return cast(Service, request.app.state.service)


User = Annotated[str, Depends(user_of)]
Served = Annotated[Service, Depends(service_of)]
