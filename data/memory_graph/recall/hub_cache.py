"""Caches the triplets around hubs from one question to the next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MAX_KEPT = 1_000_000
"""Most triplets in the cache, 32 bytes each; the oldest hub is evicted."""


class Hub(NamedTuple):
    """The triplets that may be walked from one node, in rising order of their ids.

    Args:
        triplets, ends, others, keys: int64 [k]: each triplet, the node, the node at the other end,
            the key of its fact.
        since, until: seconds between which no triplet starts or stops holding.
    """

    triplets: np.ndarray
    ends: np.ndarray
    others: np.ndarray
    keys: np.ndarray
    since: int
    until: int


class HubCache:
    """Hubs of one revision, each for the interval around its last request."""

    def __init__(self) -> None:
        self._kept: dict[int, Hub] = {}

    def clear(self) -> None:
        """Evict all hubs, as after a change of the record's revision."""
        self._kept = {}

    def get(self, node: int, as_of: int) -> Hub | None:
        """Return the hub of a node if it is cached and valid at a second."""
        hub = self._kept.get(node)
        return hub if hub and hub.since <= as_of < hub.until else None

    def keep(self, node: int, hub: Hub) -> None:
        """Cache a hub unless it alone is larger than the cache; evict the oldest ones for it."""
        for column in hub[:4]:
            column.flags.writeable = False
        self._kept.pop(node, None)
        free = MAX_KEPT - len(hub.triplets)
        if free < 0:
            return
        while sum(len(kept.triplets) for kept in self._kept.values()) > free:
            self._kept.pop(next(iter(self._kept)))
        self._kept[node] = hub
