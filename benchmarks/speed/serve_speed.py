"""Measures a server: requests a second, and seconds to the first and the last token.

    python -m turngraph.benchmarks.speed.serve_speed --checkpoint runs/demo/best \
        --input runs/demo/data/test.jsonl [--clients 1 8 32 128]

Starts ``turngraph serve``, and asks it questions by OpenAI's streaming chat API, where each client
asks its next question when it has its answer. The evidence of all questions is one pool. A question
is asked again only when there are no more: servers that keep the keys and values of all prompts
would answer it without reading it. A load is printed when it is at its end; ``--give_up_after``
ends it sooner, and counts the questions that had no answer by then.

``--beside`` starts another server of the same API, and asks it the same prompts as text, by
``/v1/completions``, so that no template is put around them twice. The LM is the same for a
checkpoint of the untrained LM, such as ``runs/demo/untrained``; a folder may name it:

    --beside "transformers serve HuggingFaceTB/SmolLM2-135M-Instruct --host {host} --port {port}" \
        --beside_model HuggingFaceTB/SmolLM2-135M-Instruct
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import shlex
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import httpx2
import psutil
from transformers import AutoTokenizer

from turngraph.benchmarks.speed.serving import (
    Server,
    free_address,
    resident,
    server_parser,
    turngraph_serving,
)
from turngraph.benchmarks.tables import table
from turngraph.configs.models import resolve_model
from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import read_conversations
from turngraph.data.prompt import Prompt
from turngraph.infer import positive
from turngraph.model.checkpoint import commit

Found = TypeVar("Found")


@dataclass
class Load:
    """What was measured of one load.

    Args:
        name: of the load.
        seconds: from its first question to its last answer.
        firsts, lasts: seconds from each question to its first and its last token.
        tokens_in, tokens_out: tokens of each prompt and each answer, as the server counts them.
        num_refused: questions that were refused with 429.
        num_asked: questions that were sent, refused ones included.
        gib: resident memory of the server at its end, in GiB.
    """

    name: str
    seconds: float = 0.0
    firsts: list[float] = field(default_factory=list)
    lasts: list[float] = field(default_factory=list)
    tokens_in: list[int] = field(default_factory=list)
    tokens_out: list[int] = field(default_factory=list)
    num_refused: int = 0
    num_asked: int = 0
    gib: float = 0.0


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    args = parse(argv)
    conversations = read_conversations(args.input)
    questions = list(dict.fromkeys(c.turns[0].question for c in conversations if c.turns))
    questions = questions[: args.requests * len(args.clients)]
    found: dict[str, list[Load]] = {}
    print_head(args)
    bodies = [{"messages": [{"role": "user", "content": one}]} for one in questions]
    more = ["--max_waiting", "1000", "--deadline", "3600"]
    more += ["--max_new_tokens", str(args.max_new_tokens)]
    with turngraph_serving(args, conversations, (), *more) as (server, _):
        if args.beside:
            prompts = asyncio.run(as_text(server.url, questions, args))
        found["turngraph"] = asyncio.run(measure(server, bodies, args, "turngraph"))
    if args.beside:
        system, address = args.beside.split()[0], free_address()
        host, port = address.split(":")
        command = shlex.split(args.beside.format(host=host, port=port))
        with Server(command, address, "/health") as server:
            found[system] = asyncio.run(measure(server, prompts, args, system))
    print_comparison(found)


def print_head(args: argparse.Namespace) -> None:
    """Print what is measured, and the head of the table."""
    print(f"commit {commit()}, {args.checkpoint}, {args.requests} requests a load\n")
    heads = ["load", "system", "requests/s", "first p50", "first p95", "last p50", "last p95"]
    heads += ["tokens in", "tokens out", "refused", "unanswered", "GiB"]
    print(table(heads, ()), flush=True)


def print_comparison(found: dict[str, list[Load]]) -> None:
    """Print how each system compares to the first one."""
    first, *others = found
    for other in others:
        pairs = zip(found[first], found[other], strict=True)
        ratios = [f"{a.name} {rate(a) / rate(b):.2f}" for a, b in pairs if rate(b)]
        print(f"\nrequests/s, {first} to {other}: {', '.join(ratios)}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = server_parser(__doc__ or "")
    parser.add_argument("--clients", type=positive, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--requests", type=positive, default=128, help="of each load")
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most, of each load")
    parser.add_argument(
        "--give_up_after",
        type=float,
        default=math.inf,
        metavar="MINUTES",
        help="of a load: what has no answer by then counts as unanswered",
    )
    parser.add_argument("--max_new_tokens", type=positive, default=16)
    parser.add_argument("--beside", help="command of another server, with {host} and {port}")
    parser.add_argument("--beside_model", help="its name of the model")
    args = parser.parse_args(argv)
    if (args.beside is None) != (args.beside_model is None):
        parser.error("--beside and --beside_model go together")
    return args


async def as_text(url: str, questions: Sequence[str], args: argparse.Namespace) -> list[Json]:
    """Return requests to another server with the prompts that Turngraph's LM reads, as text."""
    prompt = Prompt(AutoTokenizer.from_pretrained(resolve_model(args.beside_model)))
    settings = {"model": args.beside_model, "max_tokens": args.max_new_tokens, "temperature": 0.0}
    bodies = []
    async with httpx2.AsyncClient(base_url=url, timeout=None) as client:
        for question in questions:
            messages = [{"role": "user", "content": question}]
            body = {"messages": messages, "max_tokens": 1}
            reply = await client.post("/v1/chat/completions", json=body)
            texts = [prompt.plain(one["text"]) for one in reply.json()["turngraph"]["evidence"]]
            passages = itertools.chain(*(one.ids for one in prompt.tokenise_passages(texts)))
            ids = [*prompt.prefix_ids, *passages, *prompt.suffix_ids([], question)]
            bodies.append({"prompt": prompt.tokenizer.decode(ids), **settings})
    return bodies


async def measure(
    server: Server, bodies: Sequence[Json], args: argparse.Namespace, system: str
) -> list[Load]:
    """Ask with each number of clients, and print each load."""
    give_up = 60 * args.give_up_after
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=server.url, timeout=None, limits=limits) as client:
        await ask(client, bodies[0], Load("warm up"))
        loads, endless = [], itertools.cycle(bodies)
        for num in args.clients:
            load = Load(f"{num} {'client' if num == 1 else 'clients'}")
            waiting = for_minutes(endless, args.requests, args.minutes)
            async with timed(load, server.process, give_up):
                await asyncio.gather(*(in_turn(client, waiting, load) for _ in range(num)))
            print_load(load, system)
            loads.append(load)
        return loads


@asynccontextmanager
async def timed(load: Load, process: psutil.Process, give_up: float) -> AsyncIterator[None]:
    """Time a load until the end of the block, which is ended after ``give_up`` seconds."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(give_up) as patience:
            yield
    except TimeoutError:
        if not patience.expired():
            raise
    load.seconds, load.gib = time.monotonic() - began, resident(process) / 2**30


def for_minutes(bodies: Iterator[Found], num: int, minutes: float) -> Iterator[Found]:
    """Yield so many requests, fewer if the minutes do not suffice."""
    end = time.monotonic() + 60 * minutes
    asked = itertools.islice(bodies, num)
    return itertools.takewhile(lambda _: time.monotonic() < end, asked)


async def in_turn(client: httpx2.AsyncClient, waiting: Iterator[Json], load: Load) -> None:
    """Ask one question after the other, as one client."""
    for body in waiting:
        await ask(client, body, load)


async def ask(client: httpx2.AsyncClient, body: Json, load: Load) -> None:
    """Ask one question, and note when its first and its last token came.

    Raises:
        UserError: the server answers with an error.
    """
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    began, first = time.monotonic(), None
    load.num_asked += 1
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    async with client.stream("POST", path, json=body) as reply:
        if reply.status_code == 429:
            load.num_refused += 1
            return
        if reply.status_code != 200:
            raise UserError(f"the server answers {reply.status_code}: {await reply.aread()!r}")
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise UserError(f"the server: {chunk['error']['message']}")
            if usage := chunk.get("usage"):
                load.tokens_in.append(usage["prompt_tokens"])
                load.tokens_out.append(usage["completion_tokens"])
            if first is None and any(map(written, chunk["choices"])):
                first = time.monotonic() - began
    load.lasts.append(time.monotonic() - began)
    load.firsts.append(load.lasts[-1] if first is None else first)


def written(choice: Json) -> str:
    """Return the text that a chunk of either API adds."""
    return choice.get("text") or choice.get("delta", {}).get("content") or ""


def rate(load: Load) -> float:
    """Return the requests that were answered in a second."""
    return len(load.lasts) / load.seconds if load.seconds else 0.0


def print_load(load: Load, system: str) -> None:
    """Print a load as a row of the table."""
    print(f"| {load.name} | {system} | {' | '.join(cells(load))} |", flush=True)


def cells(load: Load) -> list[str]:
    """Return the numbers of a load."""
    found = [f"{rate(load):.2f}"]
    for seconds in (load.firsts, load.lasts):
        marks = statistics.quantiles(seconds, n=20) if len(seconds) > 1 else [0.0] * 19
        found += [f"{statistics.median(seconds or [0.0]):.2f}", f"{marks[18]:.2f}"]
    for counts in (load.tokens_in, load.tokens_out):
        found.append(f"{statistics.fmean(counts or [0]):.1f}")
    unanswered = load.num_asked - load.num_refused - len(load.lasts)
    return [*found, str(load.num_refused), str(unanswered), f"{load.gib:.2f}"]


if __name__ == "__main__":
    run_cli(main)
