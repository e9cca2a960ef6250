"""Prefetches a run's batches on a background thread; estimates its cost; fingerprints its data."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from turngraph.configs.schema import TrainingConfig
from turngraph.configs.words import plural
from turngraph.data.batches.collate import Batch, collate
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.examples import Example

STEPS_AHEAD = 2
"""Number of steps that are prefetched."""


@dataclass
class Step:
    """One optimizer step of this process.

    Args:
        index: index of the step, from 0.
        batches: tensors, one batch per forward pass.
        examples: the examples of each batch.
        answer_tokens: answer tokens in the batches of all processes; the divisor of the loss.
        num_tokens: tokens of all processes, without padding.
        wait: seconds spent waiting for the batches.
    """

    index: int
    batches: list[Batch]
    examples: list[list[Example]]
    answer_tokens: int
    num_tokens: int
    wait: float = 0.0


class Batches(Protocol):
    """Schedule of batches: which examples, by index, are in which batch of a step."""

    def step(self, index: int, /) -> list[list[int]]:
        """Return the batches of one step."""


def steps(
    examples: Sequence[Example],
    schedule: Batches,
    indices: Sequence[int],
    rank: int = 0,
    world: int = 1,
    packed: bool = False,
    pinned: bool = False,
) -> Iterator[Step]:
    """Yield the steps of one process, prefetched on a background thread.

    Args:
        examples: the examples that the schedule was made for.
        schedule: assigns the examples to batches.
        indices: indices of the steps, in the order in which they are taken.
        rank: index of this process.
        world: number of processes; they share the batches of every step.
        packed: concatenate the examples of a batch in one row.
        pinned: put the tensors into pinned memory, from which a GPU copies asynchronously.
    """

    def make(index: int) -> Step:
        all_batches = [[examples[i] for i in batch] for batch in schedule.step(index)]
        mine = all_batches[rank::world]
        tensors = [collate(batch, "right", True, packed=packed) for batch in mine]
        tensors = [batch.pinned() for batch in tensors] if pinned else tensors
        answer_tokens = sum(len(e.target_ids) for batch in all_batches for e in batch)
        num_tokens = sum(e.num_tokens for batch in all_batches for e in batch)
        return Step(index, tensors, mine, answer_tokens, num_tokens)

    prefetched: deque[Future[Step]] = deque()
    with ThreadPoolExecutor(1) as pool:
        for position in range(len(indices) + STEPS_AHEAD):
            if position < len(indices):
                prefetched.append(pool.submit(make, indices[position]))
            if position >= STEPS_AHEAD and prefetched:
                began = time.monotonic()
                step = prefetched.popleft().result()
                step.wait = time.monotonic() - began
                yield step


class Trial:
    """Sample of steps for time and memory estimates: the largest, and three to ten spread out.

    Args:
        schedule: schedule of the run.
        examples: the examples that it was made for.

    Attributes:
        indices: indices of the steps of the sample, the largest first.
        sizes: tokens of every step of the run, padding included.
        times: seconds of the sampled steps, in the order of ``indices``; set by the caller.
    """

    def __init__(self, schedule: BatchSchedule, examples: Sequence[Example]) -> None:
        self.examples, self.schedule = examples, schedule
        lengths = [example.num_tokens for example in examples]
        packing = schedule.settings.packing

        def computed(batch: Sequence[int]) -> int:
            longest = max(lengths[i] for i in batch)
            return sum(lengths[i] for i in batch) if packing else len(batch) * longest

        batches = [list(map(computed, schedule.step(n))) for n in range(schedule.num_steps)]
        self.sizes = [sum(sizes) for sizes in batches]
        largest = max(range(schedule.num_steps), key=lambda n: max(batches[n]))
        num_timed = min(max(3, schedule.num_steps // 10), 10)
        between = [round(i * (schedule.num_steps - 1) / (num_timed - 1)) for i in range(num_timed)]
        self.indices = [largest, *dict.fromkeys(between)]
        self.times: list[float] = []

    def lines(self, settings: TrainingConfig, evaluation: float) -> list[str]:
        """Return lines of text: sizes of the data and an estimate of the run's time.

        Args:
            settings: settings of the run.
            evaluation: seconds of one evaluation.
        """
        per_token = sum(self.times[1:]) / sum(self.sizes[n] for n in self.indices[1:])
        training, num_steps = per_token * sum(self.sizes), self.schedule.num_steps
        times = 1 + ((num_steps - 1) // settings.eval_every if settings.eval_every else 0)
        num_tokens = [example.num_tokens for example in self.examples]
        num_nodes = [len(example.graph.node_ids) for example in self.examples]
        num_edges = [example.graph.edge_index.shape[1] for example in self.examples]
        batches = plural(settings.batches_per_step, "batch", "batches")
        return [
            f"examples      {len(num_tokens)}: tokens {_spread(num_tokens)}, "
            f"nodes {_spread(num_nodes)}, edges {_spread(num_edges)}",
            f"steps         {num_steps} of {batches}; "
            f"{self.schedule.examples_per_batch():.1f} examples a batch, "
            f"{100 * self.schedule.padding_share():.1f} % padding",
            f"time          {_minutes(training + times * evaluation)}: training "
            f"{_minutes(training)} ({1 / per_token:.0f} tokens/s), "
            f"{plural(times, 'evaluation')} of "
            f"{_minutes(evaluation)}",
        ]


def _spread(values: Sequence[int]) -> str:
    return f"{sum(values) / len(values):.0f} on average, {max(values)} at most"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def fingerprint(examples: Sequence[Example]) -> str:
    """Return the SHA-256 of the training data: every token, edge and answer, in order."""
    digest = hashlib.sha256()
    for example in examples:
        graph = example.graph
        sizes = (len(example.prefix_ids), len(graph.node_ids), len(example.suffix_ids))
        digest.update(repr((example.key, sizes)).encode())
        ids = [example.prefix_ids, graph.node_ids, example.suffix_ids, example.target_ids]
        types: np.ndarray | list[int] = [] if graph.edge_types is None else graph.edge_types
        for part in (*ids, graph.edge_index, types, [graph.num_hidden]):
            digest.update(np.asarray(part, np.int64).tobytes())
    return digest.hexdigest()
