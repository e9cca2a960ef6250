"""Parallel map over spawned worker processes, which end with their parent."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from logging.handlers import QueueHandler
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeVar

Made = TypeVar("Made")
Task = TypeVar("Task")
Result = TypeVar("Result")

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
"""Environment of workers: one thread each, so that they do not compete; no progress bar, no GPU."""
_worker: dict[str, Any] = {}  # the state of a worker; empty in the parent


def map_in_workers(
    make: Callable[[], Made],
    work: Callable[[Made, Task], Result],
    tasks: Sequence[Task],
    num_workers: int,
) -> Generator[Result, None, None]:
    """Yield ``work(make(), task)`` for every task, in order.

    Processes are spawned, as a fork would copy locks that threads of torch and tokenizers hold.
    Their log records are logged in this process. They end with the iterator, or if this process
    dies.

    Args:
        make: called once in each process; it and ``work`` must be top-level functions.
        work: called for each task; its exceptions are raised in this process.
        tasks: tasks, sent to the processes one by one.
        num_workers: number of processes, at least one.

    Raises:
        concurrent.futures.process.BrokenProcessPool: a process was killed.
    """
    reader, writer = get_context("spawn").Pipe(duplex=False)
    arguments = (make, work, reader, logging.getLogger().level)
    pool = ProcessPoolExecutor(num_workers, get_context("spawn"), _start, arguments)
    try:
        with _environment():
            futures = [pool.submit(_run, task) for task in tasks]
        for future in futures:
            result, records = future.result()
            for record in records:
                if (logger := logging.getLogger(record.name)).isEnabledFor(record.levelno):
                    logger.handle(record)
            yield result
        pool.shutdown()
    finally:
        writer.close()  # ends the processes, even during a task
        pool.shutdown(cancel_futures=True)
        reader.close()


@contextmanager
def _environment() -> Iterator[None]:
    """Set the environment variables that libraries read when a new process imports them."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _start(
    make: Callable[[], Any], work: Callable[[Any, Any], Any], parent: Connection, level: int
) -> None:
    """Initialise a worker; ``make`` is called later, as errors here would not reach the parent."""
    for signum in (signal.SIGINT, signal.SIGUSR1):  # the parent gets them too and ends its workers
        signal.signal(signum, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    logged: SimpleQueue[logging.LogRecord] = SimpleQueue()
    root = logging.getLogger()
    root.addHandler(QueueHandler(logged))
    root.setLevel(level)
    _worker.update(make=cache(make), work=work, logged=logged)


def _exit_with_parent(parent: Connection) -> None:
    """Exit when the parent closes the pipe or dies; nothing is ever sent through it."""
    try:
        parent.poll(None)
    finally:
        os._exit(1)


def _run(task: Any) -> tuple[Any, list[logging.LogRecord]]:
    result = _worker["work"](_worker["make"](), task)
    logged = _worker["logged"]
    return result, [logged.get() for _ in range(logged.qsize())]
