"""Assigns examples to batches and steps, as a function of lengths, settings and seed alone.

The schedule has no state, so a resumed run needs only the index of its step, and any number of
processes takes the same steps.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from functools import lru_cache

from turngraph.configs.schema import TrainingConfig
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.examples import Example

logger = logging.getLogger(__name__)

# Lengths are increased at random by up to this fraction before sorting: enough for new neighbours
# in every epoch, too little to add much padding.
BLUR = 0.03


class BatchSchedule:
    """Batches of a run, in a new random order in every epoch.

    With ``batch_size``, examples are in random order, and a batch may span two epochs. With
    ``batch_tokens``, examples of similar length form a batch, batches are in random order, and
    none spans two epochs. Packed batches hold examples of any length.

    Args:
        examples: training examples; at least one.
        settings: ``batch_size`` or ``batch_tokens``, ``batches_per_step``, ``packing``,
            ``num_epochs``, ``max_steps`` and ``seed`` are read.

    Raises:
        UserError: an example is longer than ``batch_tokens``.
    """

    def __init__(self, examples: Sequence[Example], settings: TrainingConfig) -> None:
        assert len(examples) > 0, "nothing to train on"
        if settings.batch_tokens is not None:
            check_lengths(examples, settings.batch_tokens)
        self.settings = settings
        self._lengths = [example.num_tokens for example in examples]
        self._order = lru_cache(maxsize=4)(self._draw_order)
        self._grouped = lru_cache(maxsize=4)(self._group)
        self._first_batch = lru_cache(maxsize=None)(self._count_before)
        self.num_steps = self._count_steps()

    def step(self, index: int) -> list[list[int]]:
        """Return the batches of one optimizer step, as indices of examples.

        Args:
            index: index of the step, from 0; may exceed the last one.

        Returns:
            ``batches_per_step`` batches; process r of w takes ``[r::w]`` of them.
        """
        size = self.settings.batches_per_step
        return [self._batch(i) for i in range(index * size, (index + 1) * size)]

    def epoch_batches(self, epoch: int) -> list[list[int]]:
        """Return the batches of one epoch; every example is in exactly one of them."""
        if (size := self.settings.batch_size) is None:
            return self._grouped(epoch)
        order = self._order(epoch)
        return [order[i : i + size] for i in range(0, len(order), size)]

    def padding_share(self) -> float:
        """Return the fraction of the first epoch's computed tokens that is padding, from 0 to 1."""
        if self.settings.packing:
            return 0.0
        lengths = self._lengths
        batches = self.epoch_batches(0)
        computed = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
        return 1 - sum(lengths) / computed

    def examples_per_batch(self) -> float:
        """Return the mean number of examples in the batches of the first epoch."""
        return len(self._lengths) / len(self.epoch_batches(0))

    def _batch(self, index: int) -> list[int]:
        """Return a batch of the run by its index over all epochs."""
        if (size := self.settings.batch_size) is not None:
            positions = range(index * size, (index + 1) * size)
            num = len(self._lengths)
            return [self._order(position // num)[position % num] for position in positions]
        epoch = 0
        while self._first_batch(epoch + 1) <= index:
            epoch += 1
        return self._grouped(epoch)[index - self._first_batch(epoch)]

    def _count_steps(self) -> int:
        """Count the steps of ``num_epochs``, or ``max_steps`` if fewer; at least one."""
        settings = self.settings
        if settings.batch_size is not None:
            num_batches = len(self._lengths) * settings.num_epochs / settings.batch_size
        else:
            num_batches = self._count_grouped()
        steps = max(1, _round_up(num_batches / settings.batches_per_step))
        if settings.max_steps is None:
            return steps
        if steps < settings.max_steps:
            logger.warning(
                "training.max_steps: %d given, but training.num_epochs: %g ends after %s",
                settings.max_steps, settings.num_epochs, plural(steps, "step"),
            )  # fmt: skip
        return min(steps, settings.max_steps)

    def _count_grouped(self) -> int:
        """Count the batches in ``num_epochs``, without grouping epochs beyond ``max_steps``."""
        settings, num_batches, epoch = self.settings, 0, 0
        enough = (settings.max_steps or math.inf) * settings.batches_per_step
        while epoch < settings.num_epochs and num_batches < enough:
            share = min(settings.num_epochs - epoch, 1)
            num_batches += _round_up(share * len(self._grouped(epoch)))
            epoch += 1
        return num_batches

    def _draw_order(self, epoch: int) -> list[int]:
        order = list(range(len(self._lengths)))
        random.Random(f"epoch {epoch} of seed {self.settings.seed}").shuffle(order)
        return order

    def _count_before(self, epoch: int) -> int:
        """Return the cumulative batch count before an epoch; call in order of epochs."""
        return self._first_batch(epoch - 1) + len(self._grouped(epoch - 1)) if epoch else 0

    def _group(self, epoch: int) -> list[list[int]]:
        """Group an epoch's examples into batches within ``batch_tokens``, in random order."""
        settings, lengths, order = self.settings, self._lengths, self._order(epoch)
        assert settings.batch_tokens is not None, "only batches by tokens are grouped"
        rng = random.Random(f"batches of epoch {epoch} of seed {settings.seed}")
        if not settings.packing:
            order = sorted(order, key=lambda i: -lengths[i] * (1 + BLUR * rng.random()))
        batches: list[list[int]] = [[]]
        longest = total = 0
        for i in order:
            longest, total = max(longest, lengths[i]), total + lengths[i]
            needed = total if settings.packing else (len(batches[-1]) + 1) * longest
            if needed > settings.batch_tokens:
                batches.append([])
                longest = total = lengths[i]
            batches[-1].append(i)
        rng.shuffle(batches)
        return batches


def _round_up(value: float) -> int:
    """Round up to an integer, ignoring floating-point error (10 * 1.1 is above 11)."""
    return math.ceil(round(value, 9))


def check_shared_evenly(batches_per_step: int, num_processes: int) -> None:
    """Check that the processes can share the batches of a step evenly.

    Raises:
        UserError: the processes would get different numbers of batches.
    """
    if batches_per_step % num_processes == 0:
        return
    below = batches_per_step // num_processes * num_processes
    above = below + num_processes
    nearest = below if below and batches_per_step - below <= above - batches_per_step else above
    raise UserError(
        f"config field training.batches_per_step: {batches_per_step} given, which {num_processes} "
        f"processes cannot share evenly; the nearest value that fits is {nearest}"
    )


def check_lengths(examples: Sequence[Example], batch_tokens: int) -> None:
    """Check that every example fits into a batch.

    Raises:
        UserError: an example is longer than ``batch_tokens``.
    """
    longest = max(examples, key=lambda example: example.num_tokens)
    if longest.num_tokens <= batch_tokens:
        return
    num = sum(example.num_tokens > batch_tokens for example in examples)
    conversation, turn = longest.key
    raise UserError(
        f"config field training.batch_tokens: {batch_tokens} given, but {num} examples are longer; "
        f"conversation {conversation}, turn {turn}, the longest, has {longest.num_tokens} tokens: "
        "give at least as many, or limit the evidence with evidence.max_nodes"
    )
