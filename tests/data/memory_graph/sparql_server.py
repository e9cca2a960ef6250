"""Real HTTP server in a thread with SPARQL 1.1 query and update over a pyoxigraph store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyoxigraph import QueryBoolean, QueryResultsFormat, QuerySolutions, Store


class SparqlServer:
    """Server of one store.

    Args:
        status: of all responses but correct ones.
        seconds: delay of each response.
    """

    def __init__(self, status: int = 200, seconds: float = 0.0) -> None:
        self.store, self.status, self.seconds = Store(), status, seconds
        self.is_odd = False
        self.url = ""

    def reply(self, path: str, body: str) -> bytes:
        """Return the content of a response."""
        if path.endswith("/update"):
            self.store.update(body)
            return b""
        if self.is_odd:
            return b"[]"
        found = self.store.query(body)
        assert isinstance(found, QuerySolutions | QueryBoolean)
        return found.serialize(format=QueryResultsFormat.JSON) or b""


@contextmanager
def serving(server: SparqlServer) -> Iterator[SparqlServer]:
    """Run a server at a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            time.sleep(server.seconds)
            good = server.status == 200
            content = server.reply(self.path, body) if good else body.encode()
            self.send_response(server.status)
            self.send_header("Content-Length", str(len(content)))
            with suppress(BrokenPipeError):  # a client that gave up, where the reply is late
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}/query"
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        http.shutdown()
