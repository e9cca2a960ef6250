"""Options of a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.record.place import is_url
from turngraph.inference.options import check_share

MAX_DEADLINE = 31_536_000
"""Longest deadline, in seconds (a year); the timeouts of locks are limited, too."""


@dataclass(frozen=True)
class ServeOptions:
    """Options of serving.

    Args:
        evidence: paths of evidence that all users share.
        memory_dir: folder of the users' conversations, documents and memory graphs; None: a
            conversation lasts until the server stops, and nothing is remembered.
        memory: URL of a PostgreSQL database that keeps the users' conversations and memory graphs,
            a tenant each, and that other servers may use too; None: they are in ``memory_dir``.
        max_new_tokens: longest answer in tokens; None: as training has set it.
        abstain_below: confidence below which "not in the evidence" is answered; None: the
            checkpoint's own, if it has one.
        plan: planner that asks memory graphs; None: as trained.
        batch_tokens: most tokens of a batch: number of answers that are decoded together, times the
            longest prompt with its answer.
        max_batch: most answers that are decoded together.
        prefix_tokens: most tokens whose keys and values are kept for next turns, in all
            conversations together.
        max_waiting: most questions that wait for room; as many more may wait that are the only
            question of their users. Others get "too many requests".
        deadline: seconds after which an answer is given up.

    Raises:
        UserError: a number is out of range.
    """

    evidence: tuple[str, ...] = ()
    memory_dir: str | None = None
    memory: str | None = None
    max_new_tokens: int | None = None
    abstain_below: float | None = None
    plan: Literal["none", "rules"] | None = None
    batch_tokens: int = 2**14
    max_batch: int = 32
    prefix_tokens: int = 2**15
    max_waiting: int = 128
    deadline: float = 120.0

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "max_batch", "prefix_tokens", "max_waiting"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name}: {getattr(self, name)} given, must be at least 1")
        if self.memory is not None and not is_url(self.memory):
            raise UserError("--memory: must begin with postgresql://; --memory_dir takes a folder")
        check_share("abstain_below", self.abstain_below)
        if not 0 < self.deadline <= MAX_DEADLINE:
            most = f"above 0 and at most {MAX_DEADLINE} (a year)"
            raise UserError(f"--deadline: {self.deadline} given, must be {most}")
