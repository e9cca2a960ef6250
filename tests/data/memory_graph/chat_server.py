"""Real HTTP server in a thread with the OpenAI chat API, with correct or faulty replies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """Response of the server.

    Args:
        content: of the assistant's message; a dict is written as JSON.
        status, headers: of the response.
        body: the whole response, instead of a chat completion.
        finish: the finish reason.
        seconds: delay of the response.
        usage: whether it reports the tokens of the request.
    """

    content: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    finish: str = "stop"
    seconds: float = 0.0
    usage: bool = True


NO_JSON = b'{"detail":[{"type":"dict_type","loc":["body"],"msg":"Input should be a dictionary"}]}'
"""What a server made with FastAPI answers to a request that is not declared to be JSON."""


class ChatServer:
    """Server that answers and counts requests.

    Args:
        answer: returns the response for a request and its index.
    """

    def __init__(self, answer: Callable[[dict[str, Any], int], Answer]) -> None:
        self.answer = answer
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.parallel = self.most_parallel = self.tokens = 0
        self.url = ""

    def serve(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[Answer, bytes]:
        """Return the response to one request; its words are billed as tokens."""
        with self.lock:
            number = len(self.requests)
            self.requests.append(body)
            self.headers.append(headers)
            self.parallel += 1
            self.most_parallel = max(self.most_parallel, self.parallel)
        answer = self.answer(body, number)
        time.sleep(answer.seconds)
        text = answer.content if isinstance(answer.content, str) else json.dumps(answer.content)
        prompt = len(body["messages"][0]["content"].split())
        completion = min(len(text.split()), body.get("max_tokens", 10**9))
        record: dict[str, Any] = {
            "choices": [{"message": {"content": text}, "finish_reason": answer.finish}]
        }
        if answer.usage:
            record["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}
        with self.lock:
            self.parallel -= 1
            if answer.status == 200 or answer.status >= 500:
                self.tokens += prompt + completion
        return answer, (answer.body or json.dumps(record)).encode()


@contextmanager
def chat_server(answer: Callable[[dict[str, Any], int], Answer]) -> Iterator[ChatServer]:
    """Run a server at ``.url`` within the block."""
    server = ChatServer(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/chat/completions"
            answer, content = server.serve(body, dict(self.headers))
            if self.headers["Content-Type"] != "application/json":
                answer, content = Answer(status=422), NO_JSON
            try:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:  # the client has given up
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
