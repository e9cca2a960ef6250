"""HTTP POST that reads the whole reply, within limits of time and size."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from turngraph.configs.extras import extra
from turngraph.data.memory_graph.names import printable

with extra("memory", "requests to servers need"):
    import httpx2

CONNECT_SECONDS = 10.0


class Response(NamedTuple):
    """A whole response: status, header Retry-After and content."""

    status: int
    retry_after: str | None
    content: bytes


class Failure(Exception):
    """A failed attempt that may be retried.

    Args:
        reason: reason for the error message of the last attempt.
        wait: seconds that the server asks to wait; None: it does not.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class NoConnection(Failure):
    """A failed attempt in which nothing was sent."""


def shown_url(url: str) -> str:
    """Return a URL for messages: without user, password and query, which may hold a key."""
    scheme, separator, rest = url.partition("://")
    address = re.split(r"[?#]", rest if separator else scheme)[0].rpartition("@")[2]
    return printable(f"{scheme}://{address}" if separator else address)


def post(
    url: str, content: bytes, headers: Mapping[str, str], timeout: float, most: int
) -> Response:
    """Send a request and return the whole response.

    The library's timeouts apply to each read; a timer limits the whole reply.

    Args:
        url: URL, http or https.
        content: body of the request.
        headers: headers of the request.
        timeout: seconds from the begin of the request to the end of its reply.
        most: maximum size of the reply in bytes.

    Raises:
        Failure: there is no connection or no reply in time, or the reply is too large, or
            compressed (which could fill the memory); the reason quotes nothing of the body.
    """
    try:
        return _post(url, content, headers, timeout, most)
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise NoConnection(f"no connection ({printable(str(error))})") from None
    except (httpx2.TimeoutException, _Late):
        raise Failure(f"no reply within {timeout:g} s") from None
    except httpx2.RequestError as error:
        raise Failure(f"the connection broke ({type(error).__name__})") from None


class _Late(Exception):
    """The reply did not end in time."""


@cache
def _certificates() -> ssl.SSLContext:
    """Return the TLS context of all connections; reading the certificates is slow."""
    return httpx2.create_ssl_context()


def _post(
    url: str, content: bytes, headers: Mapping[str, str], timeout: float, most: int
) -> Response:
    limits = httpx2.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout))
    late = threading.Event()
    sent = {"Accept-Encoding": "identity", **headers}
    with httpx2.Client(headers=sent, timeout=limits, verify=_certificates()) as client:

        def close() -> None:
            late.set()
            client.close()

        timer = threading.Timer(timeout, close)
        timer.start()
        try:
            with client.stream("POST", url, content=content) as response:
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise Failure("a compressed reply, which was not asked for")
                body = bytearray()
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) > most:
                        raise Failure(f"a reply of more than {most} bytes")
                    if late.is_set():
                        raise _Late
                retry_after = response.headers.get("Retry-After")
                return Response(response.status_code, retry_after, bytes(body))
        except (httpx2.RequestError, httpx2.StreamError, OSError, RuntimeError):
            if late.is_set():
                raise _Late from None
            raise
        finally:
            timer.cancel()
