"""A budget of tokens that requests at the same time never exceed together."""

from __future__ import annotations

import logging
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

logger = logging.getLogger(__name__)

TEMPLATE_TOKENS = 128
"""What a chat template may add around a message: roles, a date, a default system message."""


class Tokens(NamedTuple):
    """Tokens of prompts and of completions."""

    prompt: int
    completion: int


class BudgetSpent(ValueError):
    """The next request might take more tokens than are left."""


class Reserved:
    """A request's share of the budget: the most that it can take, until it is known what it took.

    Args:
        most: the most that it can take.
    """

    def __init__(self, most: Tokens) -> None:
        self.most, self.taken, self.known = most, most, False

    def used(self, prompt: int, completion: int) -> None:
        """Say what the request took."""
        self.taken, self.known = Tokens(prompt, completion), True


class Budget:
    """Counts tokens, and holds every request back that might exceed the limit.

    Args:
        limit: tokens of prompts and completions together; None: none.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.spent = Tokens(0, 0)
        self.requests = self.estimated = 0
        self._reserved = self._under_way = self._hidden = 0
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, prompt: int, completion: int) -> Iterator[Reserved]:
        """Hold the most that a request can take, from before it is sent until it is answered.

        Waits while what others have reserved may yet be given back.

        Args:
            prompt, completion: the most that it can take of either.

        Raises:
            BudgetSpent: it might exceed the limit.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._fits(prompt + completion) or not self._under_way)
            most = Tokens(prompt + self._hidden, completion)
            if not self._fits(prompt + completion):
                raise BudgetSpent(
                    f"budget of {self.limit} tokens: {sum(self.spent)} are spent, and the next "
                    f"request could take {sum(most)}; what was remembered so far is kept, the same "
                    "command with a further budget goes on from there"
                )
            self._reserved += sum(most)
            self._under_way += 1
            self.requests += 1
        reserved = Reserved(most)
        try:
            yield reserved
        finally:
            self._settle(reserved)

    def _fits(self, tokens: int) -> bool:
        taken = sum(self.spent) + self._reserved + self._hidden + tokens
        return self.limit is None or taken <= self.limit

    def _settle(self, reserved: Reserved) -> None:
        with self._changed:
            self._reserved -= sum(reserved.most)
            self._under_way -= 1
            self.estimated += not reserved.known
            self.spent = Tokens(*map(sum, zip(self.spent, reserved.taken, strict=True)))
            more = reserved.taken.prompt - reserved.most.prompt
            if more > 0:
                logger.warning("the server adds %d tokens or more to every prompt", more)
                self._hidden += more
            self._changed.notify_all()


def prompt_bound(body: bytes) -> int:
    """The most tokens that a request's prompt can have, its schema included.

    No tokenizer makes more tokens than bytes; some first bring the text into compatibility form,
    which can be longer.
    """
    compatible = unicodedata.normalize("NFKC", body.decode("utf-8", "replace")).encode()
    return max(len(body), len(compatible)) + TEMPLATE_TOKENS
