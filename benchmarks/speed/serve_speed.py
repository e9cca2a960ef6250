"""Measures a server: requests a second, and seconds to the first and the last token.

    python -m turngraph.benchmarks.speed.serve_speed --checkpoint runs/demo/best \
        --input runs/demo/data/test.jsonl [--clients 1 8 32 128]

Starts ``turngraph serve`` twice, once with batches and once with ``--max_batch 1`` (one by one).
Asks each the same questions by OpenAI's streaming chat API: in a closed loop, where each client
asks its next question when it has its answer, and in an open loop, where questions arrive at random
moments (Poisson), at four fifths of the rate that the closed loop has reached. The evidence of all
questions is one pool. The server's memory is read at the end of each load.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psutil

from turngraph.data.cli import run_cli
from turngraph.data.jsonlines import join_pools, read_conversations, write_pool
from turngraph.infer import positive
from turngraph.model.checkpoint import commit

START_SECONDS = 300
"""Seconds in which a server has to be ready."""


@dataclass
class Load:
    """What was measured of one load.

    Args:
        name: of the load.
        seconds: from its first question to its last answer.
        firsts, lasts: seconds from each question to its first and its last token.
        num_refused: questions that were refused with 429.
        gib: resident memory of the server at its end, in GiB.
    """

    name: str
    seconds: float = 0.0
    firsts: list[float] = field(default_factory=list)
    lasts: list[float] = field(default_factory=list)
    num_refused: int = 0
    gib: float = 0.0


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    args = parse(argv)
    conversations = read_conversations(args.input)
    questions = [c.turns[0].question for c in conversations if c.turns]
    found: dict[str, list[Load]] = {}
    with tempfile.TemporaryDirectory() as folder:
        pool = Path(folder) / "pool.jsonl"
        write_pool(pool, join_pools(*(c.evidence for c in conversations)))
        for system, options in (("batched", []), ("one by one", ["--max_batch", "1"])):
            with server(args, pool, options) as (address, process):
                found[system] = asyncio.run(measure(address, process, questions, args))
    print(f"commit {commit()}, {args.checkpoint}, {args.requests} requests a load\n")
    heads = ["load", "system", "requests/s", "first p50", "first p95", "last p50", "last p95"]
    print(f"| {' | '.join([*heads, 'refused', 'GiB'])} |\n|{'---|' * 9}")
    for system, loads in found.items():
        for load in loads:
            print(f"| {load.name} | {system} | {' | '.join(cells(load))} |")
    pairs = zip(found["batched"], found["one by one"], strict=True)
    ratios = [f"{a.name} {rate(a) / rate(b):.2f}" for a, b in pairs if rate(b)]
    print(f"\nrequests/s, batched to one by one: {', '.join(ratios)}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--input", required=True, help="conversations, JSON Lines")
    parser.add_argument("--clients", type=positive, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--requests", type=positive, default=128, help="of each load")
    parser.add_argument("--max_new_tokens", type=positive, default=16)
    parser.add_argument("--device")
    return parser.parse_args(argv)


@contextmanager
def server(
    args: argparse.Namespace, pool: Path, options: Sequence[str]
) -> Iterator[tuple[str, psutil.Process]]:
    """Run a server until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "turngraph", "serve", "--checkpoint", args.checkpoint]
    command += ["--evidence", str(pool), "--address", address, "--max_waiting", "1000"]
    command += ["--deadline", "3600", "--max_new_tokens", str(args.max_new_tokens), *options]
    command += ["--device", args.device] if args.device else []
    with subprocess.Popen(command) as process:
        try:
            wait_until_ready(address, process)
            yield f"http://{address}", psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


def wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait for a server.

    Raises:
        ValueError: it ends, or is not ready in time.
    """
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            if httpx2.get(f"http://{address}/readyz").status_code == 200:
                return
        except httpx2.HTTPError:
            time.sleep(0.2)
    raise ValueError("the server does not start")


async def measure(
    url: str, process: psutil.Process, questions: Sequence[str], args: argparse.Namespace
) -> list[Load]:
    """Ask in a closed loop with each number of clients, then in an open one."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        await ask(client, questions[0], Load("warm up"))
        loads = []
        for num in args.clients:
            load = Load(f"{num} {'client' if num == 1 else 'clients'}")
            waiting = iter(itertools.islice(itertools.cycle(questions), args.requests))
            began = time.monotonic()
            await asyncio.gather(*(in_turn(client, waiting, load) for _ in range(num)))
            load.seconds = time.monotonic() - began
            loads.append(load)
            load.gib = process.memory_info().rss / 2**30
        speed = 0.8 * max(map(rate, loads))
        load = Load(f"open, {speed:.1f}/s" if speed >= 0.1 else "open")
        began = time.monotonic()
        tasks = []
        async for question in arrivals(questions, args.requests, speed):
            tasks.append(asyncio.create_task(ask(client, question, load)))
        await asyncio.gather(*tasks)
        load.seconds, load.gib = time.monotonic() - began, process.memory_info().rss / 2**30
        return [*loads, load]


async def arrivals(questions: Sequence[str], num: int, speed: float) -> AsyncIterator[str]:
    """Yield questions at random moments, so many a second on average."""
    rng = random.Random(0)
    for question in itertools.islice(itertools.cycle(questions), num):
        await asyncio.sleep(rng.expovariate(speed))
        yield question


async def in_turn(client: httpx2.AsyncClient, waiting: Iterator[str], load: Load) -> None:
    """Ask one question after the other, as one client."""
    for question in waiting:
        await ask(client, question, load)


async def ask(client: httpx2.AsyncClient, question: str, load: Load) -> None:
    """Ask one question, and note when its first and its last token came."""
    body = {"messages": [{"role": "user", "content": question}], "stream": True}
    began, first = time.monotonic(), None
    async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        if reply.status_code == 429:
            load.num_refused += 1
            return
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise ValueError(f"the server: {chunk['error']['message']}")
            if first is None and chunk["choices"][0]["delta"].get("content"):
                first = time.monotonic() - began
    load.lasts.append(time.monotonic() - began)
    load.firsts.append(load.lasts[-1] if first is None else first)


def rate(load: Load) -> float:
    """Return the requests that were answered in a second."""
    return len(load.lasts) / load.seconds if load.seconds else 0.0


def cells(load: Load) -> list[str]:
    """Return the numbers of a load."""
    found = [f"{rate(load):.2f}"]
    for seconds in (load.firsts, load.lasts):
        marks = statistics.quantiles(seconds, n=20) if len(seconds) > 1 else [0.0] * 19
        found += [f"{statistics.median(seconds or [0.0]):.2f}", f"{marks[18]:.2f}"]
    return [*found, str(load.num_refused), f"{load.gib:.2f}"]


if __name__ == "__main__":
    run_cli(main)
