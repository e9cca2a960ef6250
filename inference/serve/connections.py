"""Listens for connections, and closes those that send nothing, read nothing or are too many."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import time
from collections.abc import Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from turngraph.configs.user_error import UserError

logger = logging.getLogger("serve")
HEAD_SECONDS = 10.0
"""Seconds from a connection, or the first byte of a further request, to the end of its head."""
WRITE_SECONDS = 30.0
"""Seconds in which a client has to read some of the bytes that wait for it."""
IDLE_SECONDS = 30
"""Seconds between two requests of a connection."""
LOG_SECONDS = 60.0
"""Least seconds between two lines of the log about descriptors."""
MAX_CONNECTIONS = 1000
MOST_FILES = 1000
"""Files that a process may have open beside its connections: conversations, memories, documents."""
BACKLOG = 128
"""Connections that wait to be accepted; asyncio tries to accept as many at once, even if the
process has no descriptor left."""
MAX_HEAD = 2**16
"""Bytes of the head of a request."""


class Connection(H11Protocol):
    """One connection; a client has to send a whole head, and to read its answers, in time.

    If there are too many connections, the one that has been idle for longest is closed; if none is
    idle, one whose client does not read.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection; if there are too many, close another one for it."""
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.since = self.loop.time()
        assert self.limit_concurrency is not None
        if len(self.connections) >= self.limit_concurrency - 1 and not self._make_room():
            transport.abort()
        super().connection_made(transport)
        self._await_head()

    def _make_room(self) -> bool:
        """Close a connection that does nothing; return False if there is none."""
        others = [one for one in self.connections if isinstance(one, Connection)]
        idle = [one for one in others if one.is_idle] or [one for one in others if one._unread]
        if not idle:
            return False
        oldest = min(idle, key=lambda one: one.since)
        self.connections.discard(oldest)  # at once: its loss is reported in the loop's next turn
        oldest.transport.abort()
        return True

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered; half a head that has come does not count."""
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take bytes; if they begin a request's head, the rest of the head has to come in time."""
        super().data_received(data)
        if self.is_idle:
            self._await_head()
        else:
            self._head_has_come()

    def _head_has_come(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def on_response_complete(self) -> None:
        """Wait for the next request; the rest of an answered request's body has to come in time."""
        self.since = self.loop.time()
        super().on_response_complete()
        if self.is_idle and self.cycle.more_body:
            self._await_head()

    def pause_writing(self) -> None:
        """Give the client some time to read."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on, as the client reads."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End what waits for the client."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._head_has_come()
        self.resume_writing()


class Server(uvicorn.Server):
    """A server that logs exhausted descriptors once in a while, not at each connection."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        self._logged = -LOG_SECONDS
        asyncio.get_running_loop().set_exception_handler(self._fault)
        await super().startup(sockets)

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "accept" not in context["message"]:
            loop.default_exception_handler(context)
        elif (now := time.monotonic()) >= self._logged + LOG_SECONDS:
            self._logged = now
            logger.error("no connection is accepted: %s", context.get("exception"))


def server_of(app: ASGIApp, seconds_to_stop: int) -> Server:
    """Return a server of an application.

    Args:
        app: the application.
        seconds_to_stop: seconds in which running requests have to end when the server stops.
    """
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=Connection,
        ws="none",
        log_level="error",  # no warnings of invalid requests: strangers may send many
        access_log=False,  # it would contain questions to the memory
        backlog=BACKLOG,
        limit_concurrency=_max_connections() + 1,
        timeout_graceful_shutdown=seconds_to_stop,
        timeout_keep_alive=IDLE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD,
    )
    return Server(config)


def _max_connections() -> int:
    """Return the most connections; let the process have as many files open, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + MOST_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_CONNECTIONS
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = max(soft - MOST_FILES, soft // 4)
    if most < MAX_CONNECTIONS:
        logger.warning(
            "at most %d connections are accepted; ulimit -n %d allows more", most, wanted
        )
    return most


def listening(host: str, port: int) -> list[socket.socket]:
    """Listen at all addresses of a host; clients that come before the server runs wait for it.

    Raises:
        UserError: the host is unknown, or the port is taken or not allowed.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            try:
                made = socket.create_server(address, family=family, backlog=BACKLOG)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:  # such as ::1 without IPv6
                    raise
                missing = error
            else:
                sockets.append(made)
        if not sockets:
            raise missing
    except OSError as error:
        for made in sockets:
            made.close()
        reason = str(error.strerror).partition(" (")[0]  # the rest is the address again
        raise UserError(f"host {host}, port {port}: {reason}") from None
    return sockets


def _addresses(host: str, port: int) -> Sequence[tuple[socket.AddressFamily, Any]]:
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in resolved))
