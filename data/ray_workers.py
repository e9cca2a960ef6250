"""Parallel map over the processes of a Ray cluster, of one machine or of many."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError

Made = TypeVar("Made")
Task = TypeVar("Task")
Result = TypeVar("Result")

LOCAL = "local"
"""In place of an address: a cluster of this machine's cores, which ends with the map."""
RETRIES = 10
"""Times that a task is given to another process after its own, or its node, has died."""
WAITING = 2
"""Tasks that are sent for each core or GPU, so that none waits for the next."""
_made: dict[str, Any] = {}  # key of a map -> state of this process of the cluster


def map_on_ray(
    address: str,
    make: Callable[[], Made],
    work: Callable[[Made, Task], Result],
    tasks: Iterable[Task],
    num_gpus: float = 0,
) -> Generator[Result, None, None]:
    """Yield ``work(make(), task)`` for every task, in order.

    A task whose process or node dies is done by another one. What a task writes must therefore be
    the same however often it is done.

    Args:
        address: address of the cluster, as ``ray.init`` takes it; ``local``: this machine.
        make: called once in each process of the cluster; it and ``work`` are top-level functions.
        work: called for each task; its exceptions are raised in this process.
        tasks: sent to the cluster as it has room.
        num_gpus: GPUs that a process needs; one core is needed in any case.

    Raises:
        UserError: Ray is not installed, or the cluster cannot be reached, has no such resources,
            or its processes died again and again.
    """
    with extra("ray", "--ray needs"):
        import ray
    key = uuid.uuid4().hex
    with _cluster(address):
        room = _room(num_gpus)
        # a process that used a GPU would end with its task by default, and its model with it
        remote = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=RETRIES, max_calls=0)(_run)
        waiting: deque[Any] = deque()
        try:
            for task in tasks:
                waiting.append(remote.remote(key, make, work, task))
                if len(waiting) >= room:
                    yield _result(waiting.popleft())
            while waiting:
                yield _result(waiting.popleft())
        finally:
            for left in waiting:
                with suppress(Exception):
                    ray.cancel(left, force=True)


class _cluster:
    """Connection to a cluster; a connection that was open before stays open."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> None:
        import ray

        self.own = not ray.is_initialized()
        if not self.own:
            return
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
        if self.address == LOCAL:
            settings["include_dashboard"] = False
        else:
            settings["address"] = self.address
        try:
            ray.init(**settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"--ray {self.address}: cannot be reached: {reason}") from None

    def __exit__(self, *_: object) -> None:
        import ray

        if self.own:
            ray.shutdown()


def _room(num_gpus: float) -> int:
    """Return how many tasks the cluster takes at a time, those that wait included."""
    import ray

    resources = ray.cluster_resources()
    if num_gpus and resources.get("GPU", 0) < num_gpus:
        raise UserError(f"--ray: the cluster has no GPU, and {num_gpus:g} are needed")
    at_once = resources.get("GPU", 0) / num_gpus if num_gpus else resources.get("CPU", 1)
    return max(int(at_once * WAITING), 1)


def _run(
    key: str, make: Callable[[], Any], work: Callable[[Any, Any], Result], task: Any
) -> Result:
    """Do a task in a process of the cluster, which keeps what ``make`` has made for one map."""
    if key not in _made:
        _made.clear()
        _made[key] = make()
    return work(_made[key], task)


def _result(reference: Any) -> Any:
    """Wait for a result; an exception of the task is raised as it was.

    Raises:
        UserError: the task's processes died again and again.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"--ray: a task was lost {RETRIES + 1} times: {reason}") from None
