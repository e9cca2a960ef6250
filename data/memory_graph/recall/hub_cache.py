"""What lies around hubs, kept from one question to the next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MAX_KEPT = 1_000_000
"""So many triplets of hubs are kept, 32 bytes each; the oldest hub gives way."""


class Hub(NamedTuple):
    """The triplets that may be walked from one node, rising.

    Args:
        triplets, ends, others, keys: int64 [k]: each triplet, the node, the node at the other end,
            the fact that it reads as.
        since, until: seconds between which no triplet begins or ends to hold.
    """

    triplets: np.ndarray
    ends: np.ndarray
    others: np.ndarray
    keys: np.ndarray
    since: int
    until: int


class HubCache:
    """Hubs of one revision, each as of the second when it was last asked for."""

    def __init__(self) -> None:
        self._kept: dict[int, Hub] = {}

    def clear(self) -> None:
        """Forget all: the record has another revision."""
        self._kept = {}

    def get(self, node: int, as_of: int) -> Hub | None:
        """What is kept of a node and the same at a second."""
        hub = self._kept.get(node)
        return hub if hub and hub.since <= as_of < hub.until else None

    def keep(self, node: int, hub: Hub) -> None:
        """Keep a hub, if it is not larger than all that may be kept."""
        for column in hub[:4]:
            column.flags.writeable = False
        self._kept.pop(node, None)
        room = MAX_KEPT - len(hub.triplets)
        if room < 0:
            return
        while sum(len(kept.triplets) for kept in self._kept.values()) > room:
            self._kept.pop(next(iter(self._kept)))
        self._kept[node] = hub
