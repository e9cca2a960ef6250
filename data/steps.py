"""The steps of a run as tensors, made ahead of the device, and what identifies their data."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from data.batches import BatchSchedule
from data.collate import Batch, collate
from data.examples import Example

STEPS_AHEAD = 2


@dataclass
class Step:
    """One optimizer step of this process.

    Args:
        number: from 0.
        batches: tensors, one batch per forward pass.
        examples: what is in them.
        answer_tokens: in the batches of all processes; the loss is divided by them.
        num_tokens: without padding, of all processes.
        wait: seconds for which the batches were waited for.
    """

    number: int
    batches: list[Batch]
    examples: list[list[Example]]
    answer_tokens: int
    num_tokens: int
    wait: float = 0.0


def steps(
    examples: Sequence[Example],
    schedule: BatchSchedule,
    first: int,
    rank: int = 0,
    world: int = 1,
    packed: bool = False,
) -> Iterator[Step]:
    """The steps of one process from ``first`` on, made ahead in a thread of their own.

    Args:
        examples: that the schedule was made for.
        schedule: which of them are in which batch.
        first: number of the first step.
        rank: this process.
        world: number of processes; they share the batches of every step.
        packed: lay the examples of a batch in one row.
    """

    def make(number: int) -> Step:
        everything = [[examples[i] for i in batch] for batch in schedule.step(number)]
        mine = everything[rank::world]
        tensors = [collate(batch, "right", True, packed=packed) for batch in mine]
        answer_tokens = sum(len(e.target_ids) for batch in everything for e in batch)
        num_tokens = sum(e.num_tokens for batch in everything for e in batch)
        return Step(number, tensors, mine, answer_tokens, num_tokens)

    ahead: deque[Future[Step]] = deque()
    with ThreadPoolExecutor(1) as pool:
        for number in range(first, schedule.num_steps + STEPS_AHEAD):
            if number < schedule.num_steps:
                ahead.append(pool.submit(make, number))
            if number >= first + STEPS_AHEAD:
                began = time.monotonic()
                step = ahead.popleft().result()
                step.wait = time.monotonic() - began
                yield step


def fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over what is trained on: every token, edge and answer, in order."""
    digest = hashlib.sha256()
    for example in examples:
        sizes = (len(example.prefix_ids), len(example.graph.node_ids), len(example.suffix_ids))
        digest.update(repr((example.key, sizes)).encode())
        ids = [example.prefix_ids, example.graph.node_ids, example.suffix_ids, example.target_ids]
        for part in (*ids, example.graph.edge_index):
            digest.update(np.asarray(part, np.int64).tobytes())
    return digest.hexdigest()
