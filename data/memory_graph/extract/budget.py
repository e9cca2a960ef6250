"""Token budget that simultaneous requests together never exceed."""

from __future__ import annotations

import logging
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural

logger = logging.getLogger(__name__)

TEMPLATE_TOKENS = 128
"""Tokens that a chat template may add to a message: roles, a date, a default system message."""


class Tokens(NamedTuple):
    """Numbers of tokens of prompts and of completions."""

    prompt: int
    completion: int


class BudgetSpent(UserError):
    """The next request might exceed the budget."""


class Reservation:
    """Part of the budget for one request: its largest possible usage, until usage is reported.

    Args:
        most: largest numbers of tokens that the request can use.
    """

    def __init__(self, most: Tokens) -> None:
        self.most, self.taken, self.is_known = most, most, False

    def report(self, taken: Tokens) -> None:
        """Report the usage of the request."""
        self.taken, self.is_known = taken, True


class Budget:
    """Counter of tokens that blocks requests that might exceed a limit.

    Args:
        limit: tokens of prompts and completions together; None: no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.spent = Tokens(0, 0)
        self.requests = self.estimated = 0
        self._reserved = self._num_pending = self._hidden = 0
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, most: Tokens) -> Iterator[Reservation]:
        """Context that reserves the largest possible usage of a request until its reply is read.

        It waits while other requests may still return reserved tokens.

        Args:
            most: largest numbers of tokens that the request can use.

        Raises:
            BudgetSpent: the request might exceed the limit.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._fits(sum(most)) or not self._num_pending)
            is_affordable = self._fits(sum(most))
            most = Tokens(most.prompt + self._hidden, most.completion)
            if not is_affordable:
                raise BudgetSpent(
                    f"budget of {self.limit} tokens: {sum(self.spent)} are spent, and the next "
                    f"request could take {sum(most)}; the episodes remembered so far are kept, and "
                    "the same command with a new budget continues after them"
                )
            self._reserved += sum(most)
            self._num_pending += 1
            self.requests += 1
        reservation = Reservation(most)
        try:
            yield reservation
        finally:
            self._settle(reservation)

    def _fits(self, tokens: int) -> bool:
        taken = sum(self.spent) + self._reserved + self._hidden + tokens
        return self.limit is None or taken <= self.limit

    def _settle(self, reservation: Reservation) -> None:
        taken, most = reservation.taken, reservation.most
        with self._changed:
            self._reserved -= sum(most)
            self._num_pending -= 1
            self.estimated += not reservation.is_known
            self.spent = Tokens(
                prompt=self.spent.prompt + taken.prompt,
                completion=self.spent.completion + taken.completion,
            )
            more = taken.prompt - most.prompt
            if more > 0:
                logger.warning("the server adds at least %s to every prompt", plural(more, "token"))
                self._hidden += more
            self._changed.notify_all()


def prompt_bound(body: bytes) -> int:
    """Return an upper bound of the tokens of a request's prompt and schema.

    No tokenizer makes more tokens than the text has bytes. Some tokenizers first convert the text
    to its compatibility form (NFKC), which can be longer.
    """
    characters = Counter(body.decode("utf-8", "replace"))
    forms = (len(unicodedata.normalize("NFKC", c).encode()) * n for c, n in characters.items())
    return max(len(body), sum(forms)) + TEMPLATE_TOKENS
