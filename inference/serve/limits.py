"""Refuses requests without token or from other sites' pages, long or slow bodies; logs that."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import Event, Lock

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turngraph.inference.serve.engine import Busy
from turngraph.inference.serve.users import Users

logger = logging.getLogger("serve")
TOKEN_NEEDED = "a user's token is needed: Authorization: Bearer TOKEN"
FOREIGN = "pages of other servers may not use this one; with --tokens they need a user's token"
WRONG_HOST = "the server is not reached under this host name; with --tokens any name will do"
CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}
"""HTTP status of an error -> its code in OpenAI's API."""
MAX_BODY = 2**20
"""Bytes of a body."""
MAX_DOCUMENT = 2**25
"""Bytes of a document."""
MAX_HELD_OF_USER, MAX_HELD = 2**27, 2**29
"""Bytes of the bodies of one user, and of all, that are in memory at the same time."""
BODY_SECONDS = 30.0
"""Seconds in which a whole body has to come."""
MOST_BODIES = 64
"""Bodies of one user that may be on their way at the same time; each needs a connection."""


class Places:
    """Limits requests that take long and are no answers: memory graphs, explanations, documents.

    Attributes:
        most: most requests of all users; fewer than threads for routes, as quick routes need some.
        most_of_user: most requests of one user.
    """

    def __init__(self) -> None:
        self.most, self.most_of_user = 32, 8
        self._taken = Counter[str]()

    @contextmanager
    def taken(self, user: str) -> Iterator[None]:
        """Take a place of a user; for the event loop alone.

        Raises:
            Busy: there is none.
        """
        if self._taken[user] >= self.most_of_user or self._taken.total() >= self.most:
            raise Busy(1.0)
        self._taken[user] += 1
        try:
            yield
        finally:
            self._taken -= Counter([user])  # this drops users with a count of 0


class Turns:
    """A lock that users get in turn: many waiting requests of one user give no precedence."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._held = False
        self._waiting: OrderedDict[str, deque[Event]] = OrderedDict()

    @contextmanager
    def of(self, user: str) -> Iterator[None]:
        """Hold the lock for a user."""
        mine = Event()
        with self._changing:
            self._waiting.setdefault(user, deque()).append(mine)
            self._give()
        mine.wait()
        try:
            yield
        finally:
            with self._changing:
                self._held = False
                self._give()

    def _give(self) -> None:
        """Give the lock to the next user, if it is free and somebody waits."""
        if self._held or not self._waiting:
            return
        user, events = self._waiting.popitem(last=False)
        self._held = True
        events.popleft().set()
        if events:
            self._waiting[user] = events  # at the end of the queue of users


def refusal(
    status: int, message: str, headers: dict[str, str] | None = None, param: str | None = None
) -> JSONResponse:
    """Return an error in the form of OpenAI's; ``param`` is the field that is wrong."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": CODES.get(status)}}
    return JSONResponse(body, status, headers)


class BodyLimit:
    """Reads each body whole, within bytes and seconds, before the application sees it.

    The body of a request without a user's token is not read. For other requests, the user is added
    to the scope.

    Args:
        app: the application.
        users: the users of the server.
    """

    def __init__(self, app: ASGIApp, users: Users) -> None:
        self.app, self.users = app, users
        self._held = Counter[str]()  # user -> bytes of bodies in memory
        self._coming = Counter[str]()  # user -> bodies that are on their way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if not is_private(scope):  # these routes read no body
            await self.app(scope, _given(b"", receive), send)
            return
        token = Headers(scope=scope).get("authorization")
        if (user := self.users.user_of(token)) is None:
            reply = refusal(401, TOKEN_NEEDED, {"WWW-Authenticate": "Bearer"})
            await reply(scope, receive, send)
            return
        scope["user"] = user
        mine = Counter[str]()
        try:
            body = await self._body(scope, receive, mine)
            if isinstance(body, bytes):
                await self.app(scope, _given(body, receive), send)
            else:
                await body(scope, receive, send)
        finally:
            self._held -= mine  # this drops users with a count of 0

    async def _body(self, scope: Scope, receive: Receive, mine: Counter[str]) -> bytes | Response:
        """Return the body of a user's request, or why it is refused; ``mine`` counts its bytes."""
        is_document = scope["method"] == "PUT" and scope["path"].startswith("/api/documents/")
        limit = MAX_DOCUMENT if is_document else MAX_BODY
        user, parts, more = str(scope["user"]), list[bytes](), True
        if self._coming[user] >= MOST_BODIES:
            return refusal(429, "too many bodies come at once", {"Retry-After": "5"})
        self._coming[user] += 1
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        return refusal(400, "the client has left")
                    parts.append(message.get("body", b""))
                    mine[user] += len(parts[-1])
                    self._held[user] += len(parts[-1])
                    if mine[user] > limit:
                        return refusal(413, f"the body has more than {limit} bytes")
                    if self._held[user] > MAX_HELD_OF_USER or self._held.total() > MAX_HELD:
                        return refusal(429, "too many bodies come at once", {"Retry-After": "5"})
                    more = message.get("more_body", False)
        except TimeoutError:
            return refusal(408, f"the body did not come in {BODY_SECONDS:.0f} seconds")
        finally:
            self._coming -= Counter([user])  # this drops users with a count of 0
        return b"".join(parts)


def is_private(scope: Scope) -> bool:
    """Tell whether a request needs a user, unlike those for the page, health and metrics."""
    return str(scope["path"]).startswith(("/api/", "/v1/"))


def _given(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that returns a whole body, and then the messages after it."""
    bodies = [body]

    async def whole() -> Message:
        if not bodies:
            return await receive()
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    return whole


class OwnPages:
    """Refuses requests from pages of other sites to a server that asks for no token.

    A browser sends simple requests without asking, such as the POST that begins a conversation, and
    asks this server for pages of a site whose name leads here (DNS rebinding).

    Args:
        app: the application.
        hosts: names under which the server is reached, in lower case, without a port.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "").lower()
            if re.sub(r":\d+$", "", host) not in self.hosts:
                await refusal(400, WRONG_HOST)(scope, receive, send)
                return
        if scope["type"] == "http" and is_private(scope):
            headers = Headers(scope=scope)
            origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
            is_own = origin is None or origin.partition("://")[2] == headers.get("host")
            if not is_own or site not in ("none", "same-origin"):
                await refusal(403, FOREIGN)(scope, receive, send)
                return
        await self.app(scope, receive, send)


class RefusalLog:
    """Logs which routes refuse or fail, and nothing of their requests.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def logged(message: Message) -> None:
            # the route's own path: the request's has names of documents, and the query
            route = getattr(scope.get("route"), "path", "a path")
            refused = message["type"] == "http.response.start" and message["status"] >= 400
            if refused and route != "/readyz":  # this route is asked each second at the start
                logger.info("%s %s: %d", scope["method"], route, message["status"])
            await send(message)

        await self.app(scope, receive, logged)
