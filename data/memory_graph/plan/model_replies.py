"""Asks a language model for JSON: counts calls, checks and caches replies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.budget import BudgetSpent
from turngraph.data.memory_graph.extract.model_extractor import Ask, Prompt
from turngraph.data.memory_graph.extract.replies import misfit

MAX_REPLIES = 10_000
"""Maximum number of cached replies; the cache is cleared when more would be added."""


class ReplyCache:
    """In-memory cache of complete, valid replies; any deletion from the memory graph clears it.

    A reply depends on its prompt alone, so it stays valid when new episodes are remembered. But a
    reply may repeat remembered texts, so no reply may outlive a text that was forgotten. Nothing is
    written to disk.

    Args:
        deletions: returns a number that changes whenever something is deleted from the memory
            graph, by any process; None: nothing ever is.
    """

    def __init__(self, deletions: Callable[[], int] | None = None) -> None:
        self._deletions = deletions
        self._seen: int | None = None
        self._replies: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._replies)

    def clear(self) -> None:
        """Drop all replies."""
        self._replies.clear()

    def find(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the cached replies by key; keys without a reply are left out."""
        self._drop_what_is_forgotten()
        return {key: self._replies[key] for key in keys if key in self._replies}

    def keep(self, replies: dict[str, Any]) -> None:
        """Add replies, unless something was deleted since ``find``, which they may repeat."""
        if self._drop_what_is_forgotten():
            return
        if len(self._replies) + len(replies) > MAX_REPLIES:
            self.clear()
        self._replies |= replies

    def _drop_what_is_forgotten(self) -> bool:
        """Clear the cache if something was deleted since the last call; return whether it was."""
        deletions = self._deletions() if self._deletions is not None else 0
        if deletions == self._seen:
            return False
        self._seen = deletions
        self.clear()
        return True


class ModelReplies:
    """Replies of one language model, decoded in one way.

    Args:
        ask: the language model.
        model: name of the model, a part of the cache's keys.
        decoding: description of the decoding, a part of the cache's keys.
        cache: cache of complete replies, such as ``MemoryGraph.replies``; None: no cache.
        max_calls: maximum number of calls for a question; None: no limit.
        count: returns the number of requests so far, if ``ask`` counts them itself, its retries
            included; None: the prompts are counted.
    """

    def __init__(
        self,
        ask: Ask,
        model: str,
        decoding: str = "",
        cache: ReplyCache | None = None,
        max_calls: int | None = None,
        count: Callable[[], int] | None = None,
    ) -> None:
        self.ask, self.model, self.decoding = ask, model, decoding
        self.cache = cache
        self.max_calls, self.count = max_calls, count
        self._calls = self._calls_before = 0

    @property
    def calls(self) -> int:
        """Number of calls so far."""
        return self._calls if self.count is None else self.count()

    def begin(self) -> None:
        """Begin a question: count its calls from here on."""
        self._calls_before = self.calls

    def __call__(self, prompts: Sequence[Prompt]) -> list[Any]:
        """Return the values of the replies to prompts, in order; all prompts are sent together.

        Equal prompts are sent once, and prompts with a cached reply not at all.

        Raises:
            BudgetSpent: the question would need more than ``max_calls`` calls; or ``ask`` raised
                it.
            UserError: a reply does not fit its schema, or is cut off; or ``ask`` raised it.
        """
        if not prompts:
            return []
        keys = [self._key(prompt) for prompt in prompts]
        values = {} if self.cache is None else self.cache.find(keys)
        todo = {k: prompt for k, prompt in zip(keys, prompts, strict=True) if k not in values}
        if todo:
            values |= self._ask(todo)
        for key, prompt in todo.items():
            if key not in values:
                raise UserError(f"{prompt.subject}: no complete reply of the prompt's schema")
        return [values[key] for key in keys]

    def some(self, prompts: Iterable[Prompt | None]) -> list[Any | None]:
        """Return the values of replies as ``__call__`` does, and None in place of each None."""
        listed = list(prompts)
        values = iter(self([prompt for prompt in listed if prompt is not None]))
        return [None if prompt is None else next(values) for prompt in listed]

    def _ask(self, prompts: dict[str, Prompt]) -> dict[str, Any]:
        """Send prompts once, and return the values of valid replies by key."""
        used = self.calls - self._calls_before
        if self.max_calls is not None and used + len(prompts) > self.max_calls:
            raise BudgetSpent(f"max_calls: the question has used {used} of {self.max_calls}")
        self._calls += len(prompts)
        replies = self.ask(list(prompts.values()))
        values, whole = {}, {}
        for (key, prompt), reply in zip(prompts.items(), replies, strict=True):
            if reply.value is not None and misfit(reply.value, prompt.schema) is None:
                values[key] = reply.value
                if reply.is_complete:
                    whole[key] = reply.value
        if self.cache is not None:
            self.cache.keep(whole)
        return values

    def _key(self, prompt: Prompt) -> str:
        """Return a prompt's key: a hash, so that keys do not repeat remembered texts."""
        parts = [self.model, self.decoding, prompt.text, prompt.schema]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
