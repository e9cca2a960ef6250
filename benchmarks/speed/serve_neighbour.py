"""Measures how long a user of a server waits while another one keeps it busy.

    python -m turngraph.benchmarks.speed.serve_neighbour --checkpoint reader \
        --input runs/demo/data/test.jsonl

One user asks a question after the other, alone and beside a second user, who uploads a long
document and asks about it, states facts and has their conversation forgotten, reads the list of
many conversations, or asks many questions at once. The server has one decoding row, so that only
its order of questions lets the first user through. Printed are the seconds of the first user's
questions, and their ratios to those asked alone.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

import httpx2

from turngraph.benchmarks.speed.serve_clients import Person, World
from turngraph.benchmarks.speed.serving import server_parser, turngraph_serving
from turngraph.benchmarks.tables import table
from turngraph.data.cli import run_cli
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import read_conversations
from turngraph.infer import positive
from turngraph.model.checkpoint import commit

USERS = ("first", "second")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    args = parse(argv)
    more = ["--deadline", "600", "--max_batch", "1"]
    conversations = [c for c in read_conversations(args.input) if c.turns]
    with turngraph_serving(args, conversations, USERS, *more) as (server, tokens):
        questions = [c.turns[0].question for c in conversations]
        asyncio.run(measure(World(server.url, tokens, ()), questions, args))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = server_parser(__doc__ or "")
    parser.add_argument("--requests", type=positive, default=20, help="of the first user, a load")
    parser.add_argument("--at_once", type=positive, default=60, help="the second user's questions")
    parser.add_argument("--conversations", type=positive, default=10_000, help="that are listed")
    parser.add_argument("--statements", type=positive, default=50, help="that are forgotten")
    parser.add_argument("--kilobytes", type=positive, default=900, help="of the document")
    return parser.parse_args(argv)


async def measure(world: World, questions: Sequence[str], args: argparse.Namespace) -> None:
    """Ask beside each load.

    Raises:
        AssertionError: the server answered something wrongly.
    """
    print(f"commit {commit()}, {args.checkpoint}, {args.requests} questions beside each load\n")
    heads = ["the second user", "p50", "worst", "p50 / alone", "worst / alone", "rounds"]
    print(table(heads, ()), flush=True)
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=world.url, timeout=None, limits=limits) as client:
        first, second = (Person(world, user, client) for user in USERS)
        await waits(first, questions, 1)  # what the first question loads is nobody's
        alone = await waits(first, questions, args.requests)
        print_row("is not there", alone, alone, 0)
        for load in (Uploads, Forgets, Lists, AsksManyAtOnce):
            neighbour = load(second, questions, args)
            await neighbour.prepare()
            busy = asyncio.create_task(neighbour.keep_on())
            seconds = await waits(first, questions, args.requests)
            while not neighbour.rounds and not busy.done():
                seconds += await waits(first, questions, 1)
            busy.cancel()
            with suppress(asyncio.CancelledError):
                await busy
            print_row(load.does, seconds, alone, neighbour.rounds)
    assert not world.wrong, world.wrong


async def waits(person: Person, questions: Sequence[str], num: int) -> list[float]:
    """Ask some questions one after the other, each in a new conversation; return their seconds."""
    found = []
    for question in itertools.islice(itertools.cycle(questions), num):
        id_ = await person.begin()
        begun = time.monotonic()
        await person.ask(id_, question, None)
        found.append(time.monotonic() - begun)
    return found


def print_row(does: str, seconds: Sequence[float], alone: Sequence[float], rounds: int) -> None:
    """Print what the first user waited beside a load, and alone."""
    p50, worst = statistics.median(seconds), max(seconds)
    ratios = f"{p50 / statistics.median(alone):.2f} | {worst / max(alone):.2f}"
    print(f"| {does} | {p50:.3f} s | {worst:.3f} s | {ratios} | {rounds} |", flush=True)


class Neighbour(ABC):
    """The second user, who does one round after the other.

    Args:
        person: who.
        questions: to ask.
        args: the command's options.
    """

    does: str
    """For the table."""

    def __init__(self, person: Person, questions: Sequence[str], args: argparse.Namespace) -> None:
        self.person, self.questions, self.args, self.rounds = person, questions, args, 0

    async def prepare(self) -> None:  # noqa: B027, most need nothing
        """Do what comes before the first round."""

    async def keep_on(self) -> None:
        """Do rounds until cancelled."""
        while True:
            await self.round()
            self.rounds += 1

    @abstractmethod
    async def round(self) -> None:
        """Do it once."""


class Uploads(Neighbour):
    """Uploads a long document under the same name, and asks about it."""

    does = "uploads and asks"

    async def round(self) -> None:
        """Upload it once."""
        line = "- The code of part {} is {}.\n"
        text = "".join(line.format(i, 7 * i) for i in range(self.args.kilobytes * 30))
        content = f"# Parts\n\n{text[: self.args.kilobytes * 1000]}\n".encode()
        await self.person.call("PUT", "/api/documents/parts.md", ok=201, content=content)
        await waits(self.person, ["What is the code of part 12?"], 1)


class Forgets(Neighbour):
    """States facts, and has the conversation forgotten."""

    does = "states and forgets"

    async def prepare(self) -> None:
        """Remove the document of the load before."""
        await self.person.call("DELETE", "/api/documents/parts.md", ok=204)

    async def round(self) -> None:
        """Fill one conversation, and forget it."""
        id_ = await self.person.begin()
        for i in range(self.args.statements):
            body = {"question": f"Person{i} lives in Town{i}.", "stream": False}
            await self.person.call("POST", f"/api/conversations/{id_}/ask", json=body)
        path = f"/api/conversations/{id_}"
        await self.person.call("DELETE", path, ok=204, params={"forget": True})


class Lists(Neighbour):
    """Reads the list of conversations, page by page."""

    does = "lists conversations"

    async def prepare(self) -> None:
        """Begin them."""
        for _ in range(self.args.conversations):
            await self.person.begin()

    async def round(self) -> None:
        """Read all pages."""
        page: list[Json] = [{}]
        after = ""
        while page:
            reply = await self.person.call("GET", f"/api/conversations?limit=1000{after}")
            page = reply["found"]
            after = f"&after={page[-1]['id']}" if page else ""


class AsksManyAtOnce(Neighbour):
    """Asks many questions at once, each in a conversation of its own."""

    does = "asks many at once"

    async def round(self) -> None:
        """Ask them, and wait for all answers."""
        asked = itertools.islice(itertools.cycle(self.questions), self.args.at_once)
        await asyncio.gather(*(waits(self.person, [one], 1) for one in asked))


if __name__ == "__main__":
    run_cli(main)
