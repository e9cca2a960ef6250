"""Starts the server of a checkpoint."""

from __future__ import annotations

import gc
import logging
import math
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from ipaddress import ip_address
from pathlib import Path

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.inference.options import LoadOptions
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.users import Users, add_user

logger = logging.getLogger("serve")
HOST, PORT = "127.0.0.1", 8080
GRACE = 5
"""Seconds after the last deadline in which a server that stops sends its last answers."""


def new_token(tokens: str, name: str) -> None:
    """Print a new token for a user, and keep its hash.

    Raises:
        UserError: the name is not valid, or the file cannot be read or written.
    """
    print(add_user(tokens, name))
    logger.info("this is the token of %s; %s keeps only a hash", name, tokens)


def serve(
    checkpoint: str,
    loading: LoadOptions,
    options: ServeOptions,
    tokens: str | None,
    host: str,
    port: int,
) -> None:
    """Serve a checkpoint until SIGTERM or Ctrl-C; questions that are being answered are finished.

    Args:
        checkpoint: folder of the checkpoint.
        loading: options of loading the checkpoint.
        options: options of the server.
        tokens: file of the users' tokens; None: one user, on this machine only.
        host, port: address to listen at.

    Raises:
        UserError: an option is wrong, the port is taken, a file cannot be read, or the sentence
            encoder is not found.
    """
    if tokens is None and not _is_this_machine(host):
        raise UserError(f"host {host}: other machines are served with --tokens only")
    users = Users(tokens)
    with extra("serve", "a server needs"):
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    from turngraph.inference.serve.connections import listening, server_of

    with ExitStack() as stack:
        # before the model is loaded: a port that is taken is an error at once
        sockets = [stack.enter_context(listener) for listener in listening(host, port)]
        from turngraph.inference.api import load  # imports torch, which takes seconds
        from turngraph.inference.serve import limited_reading
        from turngraph.inference.serve.app import make_app
        from turngraph.inference.serve.service import Service
        from turngraph.model.device_memory import share_one_arena

        share_one_arena()  # must come before any thread starts
        limited_reading.start_ahead()  # while the model is loaded
        qa = load(checkpoint, **asdict(loading))
        service = Service(qa, options, stack.enter_context(_folder(options.memory_dir)))
        app = make_app(service, users, host)
        logger.info("chat at http://%s/ (Ctrl-C stops)", _shown(host, port))
        server = server_of(app, math.ceil(options.deadline) + GRACE)

        def loaded(loading: Future[None]) -> None:
            server.should_exit = server.should_exit or loading.exception() is not None
            # else garbage would wait until it is a quarter of all objects that torch has made
            gc.freeze()

        service.loading.add_done_callback(loaded)
        server.run(sockets)
        service.loading.result()


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_address(host: str | None, port: int | None, address: str | None) -> tuple[str, int]:
    """Return host and port, given apart or as ``HOST:PORT``.

    Raises:
        UserError: they are given in both ways, or are no valid host and port.
    """
    if address is not None:
        if host is not None or port is not None:
            raise UserError(f"--address {address}: cannot be given with --host or --port")
        host, _, digits = address.rpartition(":")
        if not host or not digits.isdecimal():
            raise UserError(f"--address: {address!r} given, must be HOST:PORT")
        port = int(digits)
    host, port = HOST if host is None else host.strip("[]"), PORT if port is None else port
    if not host:
        raise UserError("--host: must not be empty")
    if not 0 < port < 2**16:
        raise UserError(f"--port: {port} given, must be from 1 to {2**16 - 1}")
    return host, port


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _folder(memory_dir: str | None) -> Iterator[Path]:
    """Yield the folder of the users; a temporary one if none is named.

    Raises:
        UserError: it cannot be made.
    """
    if memory_dir is None:
        with tempfile.TemporaryDirectory(prefix="turngraph-") as name:
            yield Path(name)
        return
    path = Path(memory_dir)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--memory_dir {memory_dir}: {error.strerror}") from None
    yield path
