"""A server as a process of its own: started, waited for, and watched for growth."""

from __future__ import annotations

import argparse
import asyncio
import math
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from turngraph.benchmarks.tables import parser_of
from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import join_pools, write_pool
from turngraph.data.types import Conversation
from turngraph.inference.serve.users import add_user

START_SECONDS = 300
"""Seconds in which a server has to be ready."""
BLOCKS = 10
"""Parts of a half of a load; their means are nearly independent, single samples are not."""
T_8 = 2.306
"""Quantile 0.975 of Student's t with ``BLOCKS - 2`` degrees of freedom."""
LEAST_REQUESTS = 500
"""Requests of half a load whose growth is told: with fewer, caches that fill are all of it."""
LEVEL_KIB = 1.0
"""Growth below which memory is level, in KiB a request."""


def server_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of what is served and asked: checkpoint, conversations, device."""
    parser = parser_of(description)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--input", required=True, help="conversations, JSON Lines")
    parser.add_argument("--device")
    return parser


def free_address() -> str:
    """Return this machine's address and a port that is free: host:port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


class Server:
    """A server as a process of its own, ready from the start until the end of a block.

    Args:
        command: starts it.
        address: of it, host:port.
        ready: path that answers 200 when it is ready.
        folder: of what it stores; None: it stores nothing.

    Raises:
        UserError: it ends, or is not ready in time.
    """

    def __init__(
        self, command: Sequence[str], address: str, ready: str, folder: Path | None = None
    ) -> None:
        self.command, self.url = command, f"http://{address}"
        self.ready, self.folder = ready, folder
        self.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._process = subprocess.Popen(self.command)
        end = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            with suppress(httpx2.HTTPError):
                if httpx2.get(f"{self.url}{self.ready}").status_code == 200:
                    self.process = psutil.Process(self._process.pid)
                    return
            time.sleep(0.2)
        self._process.kill()
        raise UserError("the server does not start")

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def stored(self) -> str:
        """Return how much it stores."""
        paths = () if self.folder is None else self.folder.rglob("*")
        return f"{sum(path.stat().st_size for path in paths if path.is_file()) / 2**20:.1f} MiB"


@contextmanager
def turngraph_serving(
    args: argparse.Namespace, asked: Sequence[Conversation], users: Sequence[str], *more: str
) -> Iterator[tuple[Server, dict[str, str]]]:
    """Serve the evidence of conversations as one pool until the end of the block.

    Args:
        args: of ``server_parser``.
        asked: the conversations.
        users: who have tokens, conversations and memories; none: one user without them.
        more: options of ``turngraph serve``.

    Yields:
        The server, and the token of each user.

    Raises:
        UserError: the server does not start.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, address = Path(name), free_address()
        write_pool(folder / "pool.jsonl", join_pools(*(one.evidence for one in asked)))
        tokens = {user: add_user(folder / "tokens", user) for user in users}
        command = [sys.executable, "-m", "turngraph", "serve", "--checkpoint", args.checkpoint]
        command += ["--evidence", str(folder / "pool.jsonl"), "--address", address, *more]
        if users:
            command += ["--tokens", str(folder / "tokens"), "--memory_dir", str(folder / "users")]
        command += ["--device", args.device] if args.device else []
        with Server(command, address, "/readyz", folder / "users") as server:
            yield server, tokens


def resident(process: psutil.Process) -> int:
    """Return the resident memory of a process and of those it has started, in bytes."""
    return sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))


async def watch(
    process: psutil.Process, done: Callable[[], int], samples: list[tuple[int, int]]
) -> None:
    """Sample the memory of a server twice a second, until cancelled.

    Args:
        process: the server.
        done: returns how many requests were answered.
        samples: gets these numbers and the bytes.
    """
    while True:
        samples.append((done(), resident(process)))
        await asyncio.sleep(0.5)


@dataclass(frozen=True)
class Growth:
    """Growth of a server's memory in the second half of a load.

    Args:
        kib: KiB a request.
        low, high: its 95 % confidence interval.
    """

    kib: float
    low: float
    high: float

    def __str__(self) -> str:
        verdict = "undecided"
        if self.low > -LEVEL_KIB and self.high < LEVEL_KIB:
            verdict = "level"
        elif self.low > 0:
            verdict = "grows"
        elif self.high < 0:
            verdict = "shrinks"
        return f"{self.kib:+.2f} KiB a request [{self.low:+.2f}, {self.high:+.2f}]: {verdict}"


def growth(samples: Sequence[tuple[int, int]]) -> Growth | None:
    """Fit a line through the means of the parts of the second half of the samples.

    Args:
        samples: requests answered, and bytes of memory.

    Returns:
        The slope; None: there are too few samples or requests.
    """
    half = samples[len(samples) // 2 :]
    size = len(half) // BLOCKS
    if size < 2:
        return None
    blocks = [half[i * size : (i + 1) * size] for i in range(BLOCKS)]
    xs = [statistics.fmean(x for x, _ in block) for block in blocks]
    if xs[-1] - xs[0] < LEAST_REQUESTS:
        return None
    ys = [statistics.fmean(y for _, y in block) / 2**10 for block in blocks]
    fit = statistics.linear_regression(xs, ys)
    rest = sum((y - fit.intercept - fit.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    middle = statistics.fmean(xs)
    spread = sum((x - middle) ** 2 for x in xs)
    margin = T_8 * math.sqrt(rest / (BLOCKS - 2) / spread)
    return Growth(fit.slope, fit.slope - margin, fit.slope + margin)
