"""Starts the server of a checkpoint."""

from __future__ import annotations

import gc
import logging
import math
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from ipaddress import ip_address
from pathlib import Path

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.inference.options import LoadOptions
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.users import Users, add_user

logger = logging.getLogger("serve")
GRACE = 5
"""Seconds in which a server that stops sends the answers that ended at the last deadline."""


def new_token(tokens: str, name: str) -> None:
    """Print a new token for a user, and keep its hash.

    Raises:
        UserError: the name is no name, or the file cannot be read or written.
    """
    print(add_user(tokens, name))
    logger.info("the token of %s; %s keeps only its hash", name, tokens)


def serve(
    checkpoint: str, loading: LoadOptions, options: ServeOptions, tokens: str | None, address: str
) -> None:
    """Serve a checkpoint until SIGTERM or Ctrl-C; questions that are being answered are finished.

    Args:
        checkpoint: a folder, or a repository's name on the hub.
        loading: how it is loaded.
        options: what is served, and its limits.
        tokens: file of the users' tokens; None: one user, on this machine only.
        address: ``HOST:PORT``.

    Raises:
        UserError: an option is wrong, a file cannot be read, or the sentence encoder is not found.
    """
    host, port = read_address(address)
    if tokens is None and not _is_this_machine(host):
        raise UserError(f"--address {address}: other machines are served with --tokens only")
    users = Users(tokens)
    with extra("serve", "a server needs"):
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn
    from turngraph.inference.api import load  # torch, which takes seconds
    from turngraph.inference.serve.app import make_app
    from turngraph.inference.serve.service import Service
    from turngraph.model.device_memory import share_one_arena

    share_one_arena()  # before there are threads
    qa = load(checkpoint, **asdict(loading))
    with _folder(options.memory_dir) as folder:
        service = Service(qa, options, folder)
        app = make_app(service, users, qa.checkpoint.folder.name, host)
        logger.info("chat at http://%s:%d/ (Ctrl-C stops)", host, port)
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,  # it would hold what is asked of the memory
            timeout_graceful_shutdown=math.ceil(options.deadline) + GRACE,
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=2**16,
        )
        server = uvicorn.Server(config)

        def loaded(loading: Future[None]) -> None:
            server.should_exit = server.should_exit or loading.exception() is not None
            # else garbage in cycles waits until it is a quarter of all that torch has made
            gc.freeze()

        service.loading.add_done_callback(loaded)
        server.run()
        service.loading.result()


def read_address(text: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        UserError: it is no ``HOST:PORT``.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"--address: {text!r} given, must be HOST:PORT")
    return host, int(port)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _folder(memory_dir: str | None) -> Iterator[Path]:
    """Give the folder of the users; a temporary one if none is named.

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
