"""Holds a server to its word for minutes: mixed clients, and kills if wanted.

    python -m turngraph.benchmarks.speed.serve_soak --checkpoint runs/demo/best \
        --input runs/demo/data/test.jsonl --minutes 30
    python -m turngraph.benchmarks.speed.serve_soak ... --minutes 15 --kills 30

Readers follow dialogues whose answers are known from a quiet server, tellers state, recall and
forget facts, uploaders ask about documents; beside them others vanish in the middle of an answer,
stall, and lie. Each honest client notes in which states its conversations may be. At the end the
server is killed and started again: every conversation is in a noted state, every fact that was
stated and not forgotten is remembered, and no user has anything of another. Without ``--kills`` the
server's memory, open files and threads are compared, too.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections.abc import Sequence

import httpx2

from turngraph.benchmarks.speed.serve_clients import (
    BusyPerson,
    Liar,
    Person,
    Reader,
    Script,
    Staller,
    Teller,
    Uploader,
    Vanisher,
    World,
)
from turngraph.benchmarks.speed.serving import (
    Server,
    growth,
    server_parser,
    turngraph_serving,
    watch,
)
from turngraph.data.cli import run_cli
from turngraph.data.jsonlines import read_conversations
from turngraph.data.types import Conversation
from turngraph.infer import positive
from turngraph.inference.serve.service import MAX_OPEN
from turngraph.model.checkpoint import commit

logger = logging.getLogger("benchmarks")
KINDS: dict[type[BusyPerson], int] = {
    Reader: 6, Teller: 2, Uploader: 2, Vanisher: 3, Staller: 3, Liar: 1,
}  # fmt: skip
"""Clients of each kind."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the clients, and print what they have found.

    Raises:
        AssertionError: something was lost, mixed up or answered wrongly.
    """
    args = parse(argv)
    users = ["quiet", *(f"{k.__name__.lower()}{i}" for k, n in KINDS.items() for i in range(n))]
    more = ["--deadline", "600", "--max_new_tokens", str(args.max_new_tokens)]
    conversations = [c for c in read_conversations(args.input) if c.turns][: args.scripts]
    with turngraph_serving(args, conversations, users, *more) as (server, tokens):
        world = World(server.url, tokens, ())
        asyncio.run(soak(server, world, conversations, args))
    print(f"commit {commit()}, {args.checkpoint}, {args.minutes:g} minutes, {args.kills} kills")
    print(", ".join(f"{what} {num}" for what, num in sorted(world.counts.items())))
    print(f"wrong: {len(world.wrong)}")
    if world.wrong:
        raise AssertionError("\n".join(["the server is not right:", *world.wrong[:20]]))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = server_parser(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=0, help="at random moments of the load")
    parser.add_argument("--scripts", type=positive, default=16, help="dialogues that are followed")
    parser.add_argument("--max_new_tokens", type=positive, default=8)
    return parser.parse_args(argv)


async def soak(
    server: Server, world: World, conversations: Sequence[Conversation], args: argparse.Namespace
) -> None:
    """Let all clients live for some minutes, and look at the end what is there."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=server.url, timeout=None, limits=limits) as client:
        quiet = Person(world, "quiet", client)
        world.scripts = [await known(quiet, c) for c in conversations]
        people = [k(world, f"{k.__name__.lower()}{i}", client)
                  for k, num in KINDS.items() for i in range(num)]  # fmt: skip
        if not args.kills:
            await fill([p for p in people if isinstance(p, Reader)])
            print(f"held before the load: {await held(client)}; stored {server.stored()}")
        world.end = time.monotonic() + 60 * args.minutes
        before = server.process.num_fds(), server.process.num_threads()
        samples: list[tuple[int, int]] = []
        beside = [asyncio.create_task(killing(server, world, args.kills))]
        if not args.kills:
            counted = watch(server.process, lambda: world.counts["requests"], samples)
            beside.append(asyncio.create_task(counted))
        await asyncio.gather(*(person.live() for person in people), beside[0])
        beside[-1].cancel()
        if not args.kills:
            await at_rest(client, world)
            after = server.process.num_fds(), server.process.num_threads()
            print(f"open files and threads: {before} after the first questions, {after} at the end")
            print(f"resident memory, second half: {growth(samples)}")
            print(f"held after the load: {await held(client)}; stored {server.stored()}")
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        world.end = 0.0
        for person in (quiet, *people):
            await person.settle()
            await person.settle_memory()


async def known(quiet: Person, conversation: Conversation) -> Script:
    """Return the questions of a conversation, and their answers as long as nobody else asks."""
    id_, found = await quiet.begin(), list[tuple[str, str]]()
    for turn in conversation.turns[:3]:
        answer = await quiet.ask(id_, turn.question, None)
        found.append((turn.question, str(answer["answer"])))
    return tuple(found)


async def fill(readers: Sequence[Reader]) -> None:
    """Open as many conversations as a server keeps open, so that memory can be level.

    Each has as many turns as those that the load leaves open, which will take their places.
    """

    async def follow(person: Reader, number: int) -> None:
        id_ = await person.begin()
        for question, answer in person.world.scripts[number % len(person.world.scripts)]:
            await person.ask(id_, question, answer)

    for number in range(0, MAX_OPEN + 20, len(readers)):
        await asyncio.gather(*(follow(r, number + i) for i, r in enumerate(readers)))


async def killing(server: Server, world: World, num: int) -> None:
    """Kill the server so many times at random moments; each time it is started again."""
    rng = random.Random(0)
    while world.goes_on and world.counts["kills"] < num:
        await asyncio.sleep(rng.uniform(1.0, 6.0))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        world.counts["kills"] += 1
        logger.info("%d kills, wrong: %d", world.counts["kills"], len(world.wrong))
    if num:
        world.end = min(world.end, time.monotonic() + 5)


async def at_rest(client: httpx2.AsyncClient, world: World) -> None:
    """Wait until nothing is decoded and nothing waits: those that have left hold no place."""
    for _ in range(60):
        numbers = await metrics(client)
        going = {name: numbers[name] for name in ("answers_running", "questions_waiting")}
        if not any(going.values()):
            return
        await asyncio.sleep(1)
    world.expect(False, f"after the load: {going}")


async def metrics(client: httpx2.AsyncClient) -> dict[str, float]:
    """Return the server's metrics by name, without its own in front."""
    lines = (await client.get("/metrics")).text.splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return {name.removeprefix("turngraph_"): float(number) for name, number in pairs}


async def held(client: httpx2.AsyncClient) -> str:
    """Return what the server keeps in memory, in one line."""
    numbers = await metrics(client)
    found = (f"{n[11:-2]} {num:.0f}" for n, num in numbers.items() if n.startswith("held{"))
    return ", ".join(found)


if __name__ == "__main__":
    run_cli(main)
