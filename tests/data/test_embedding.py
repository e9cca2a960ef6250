"""A sentence encoder in one thread: results, turns of its callers, errors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from turngraph.data.embedding import in_one_thread


def test_callers_in_many_threads_share_one() -> None:
    threads = set[int]()

    def embed(texts: Sequence[str]) -> np.ndarray:
        threads.add(threading.get_ident())
        return np.array([[len(text)] for text in texts])

    alone = in_one_thread(embed, at_once=3)
    asked = [["a" * n for n in range(first, first + 8)] for first in range(20)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(alone, asked))
    assert [one[:, 0].tolist() for one in found] == [[len(t) for t in texts] for texts in asked]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_long_call_lets_others_have_their_turn() -> None:
    first, go = threading.Event(), threading.Event()
    order: list[str] = []

    def embed(texts: Sequence[str]) -> np.ndarray:
        first.set()
        go.wait()
        order.extend(texts)
        return np.zeros((len(texts), 1))

    alone = in_one_thread(embed, at_once=2)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(alone, list("abcdef"))
        first.wait()
        short = pool.submit(alone, ["x"])
        while not short.running():
            pass
        threading.Timer(0.1, go.set).start()  # x waits in the queue by then
        assert short.result().shape == (1, 1)
        assert long.result().shape == (6, 1)
    assert order.index("x") <= 4, order


def test_its_errors_reach_the_caller() -> None:
    def embed(_: Sequence[str]) -> np.ndarray:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        in_one_thread(embed)(["a"])
