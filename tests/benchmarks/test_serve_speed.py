"""The table of a server's speed."""

from __future__ import annotations

import asyncio
from itertools import cycle

import httpx2
import psutil

from turngraph.benchmarks.speed.serve_speed import (
    Load,
    ask,
    cells,
    for_minutes,
    rate,
    timed,
)


def test_a_load_in_numbers() -> None:
    firsts, lasts = [float(n) for n in range(20)], [2.0 * n for n in range(20)]
    load = Load("8 clients", 10.0, firsts, lasts, [100, 101], [5, 6], num_refused=3, num_asked=25)
    assert rate(load) == 2
    times = ["9.50", "18.95", "19.00", "37.90"]
    assert cells(load) == ["2.00", *times, "100.5", "5.5", "3", "2", "0.00"]
    assert cells(Load("nothing")) == ["0.00", *["0.00"] * 4, "0.0", "0.0", "0", "0", "0.00"]


def test_a_load_ends_with_its_number_or_its_minutes() -> None:
    assert list(for_minutes(cycle(["a", "b"]), 3, 1.0)) == ["a", "b", "a"]
    assert list(for_minutes(cycle(["a", "b"]), 3, 0.0)) == []


def test_a_load_is_ended_and_counts_what_has_no_answer() -> None:
    async def answer(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(60 if b"slow" in request.content else 0)
        return httpx2.Response(200, text='data: {"choices": [{"text": "A"}]}\n\ndata: [DONE]\n\n')

    async def found() -> Load:
        load = Load("2 clients")
        service = httpx2.MockTransport(answer)
        async with (
            httpx2.AsyncClient(transport=service, base_url="http://server") as client,
            timed(load, psutil.Process(), give_up=0.5),
        ):
            await asyncio.gather(*(ask(client, {"prompt": n}, load) for n in ("fast", "slow")))
        return load

    load = asyncio.run(found())
    assert (load.num_asked, len(load.lasts), cells(load)[-2]) == (2, 1, "1")
    assert 0.5 <= load.seconds < 60
