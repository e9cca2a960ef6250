"""Reads documents of users in a process with limits, so that no file can occupy or end the server.

The processes are forks of one that has imported the readers and nothing else.
"""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import BoundedSemaphore

from turngraph.configs.user_error import UserError
from turngraph.data.types import Evidence
from turngraph.data.warned import collected
from turngraph.inference.evidence import read_evidence

MEMORY = 2 << 30
"""Bytes of memory that reading may take."""
SECONDS, SECONDS_PER_MIB = 60, 20
"""Most CPU seconds of reading: the first number, and the second for each MiB of the documents.
Tables in Markdown, the slowest, take about 6 s for each MiB."""
AT_ONCE = 2
"""Documents that are read at the same time; others wait."""
PART = 1000
"""Passages that are sent together; between parts other threads of the server run."""
_NICENESS = 5  # decoding answers has precedence
_places = BoundedSemaphore(AT_ONCE)
_forks = get_context("forkserver")
_forks.set_forkserver_preload([__name__])


def start_ahead() -> None:
    """Start the process that imports the readers, so that the first document needs not wait."""
    forkserver.ensure_running()


@dataclass(frozen=True)
class _Failed:
    """Why documents could not be read; ``is_ours``: the message is the traceback of a bug."""

    message: str
    is_ours: bool = False


def read_limited(paths: Sequence[Path], ease: int = 1) -> tuple[tuple[Evidence, ...], list[str]]:
    """Read documents as one pool, in a process with limits of time and memory.

    Args:
        paths: paths of the documents.
        ease: factor of the limits; larger for a document that was read within them before.

    Returns:
        The pool, as ``read_evidence`` reads it, and warnings about what was not read.

    Raises:
        UserError: a document cannot be read, or not within the limits.
    """
    size = sum(path.stat().st_size for path in paths if path.is_file())
    limits = MEMORY * ease, (SECONDS + SECONDS_PER_MIB * size // 2**20) * ease
    passages: list[Evidence] = []
    warnings: list[str] = []
    with _places:
        receiver, sender = _forks.Pipe(duplex=False)
        process = _forks.Process(target=_read, args=(sender, paths, *limits), daemon=True)
        process.start()
        sender.close()
        try:
            while isinstance(message := receiver.recv(), list):
                passages += message
            if isinstance(message, tuple):
                warnings += message
        except EOFError:
            message = None
        finally:
            receiver.close()
            process.join()
    if isinstance(message, _Failed) and message.is_ours:
        raise RuntimeError(message.message)
    if isinstance(message, _Failed):
        raise UserError(message.message)
    if message is None:
        raise UserError(f"{paths[0]}: {_ended(process.exitcode or 0, *limits)}")
    return tuple(passages), warnings


def _ended(code: int, memory: int, seconds: int) -> str:
    """Return why a process ended without a result."""
    if -code == signal.SIGXCPU:
        return f"reading takes more than {seconds} seconds"
    name = signal.Signals(-code).name if code < 0 else f"code {code}"
    return f"reading ended with {name}; reading may take {memory >> 20} MiB of memory"


def _read(sender: Connection, paths: Sequence[Path], memory: int, seconds: int) -> None:
    """Run in the process: read, and send parts of the pool and then the warnings."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, which ends this process
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    send_read(sender, paths, memory)


def send_read(sender: Connection, paths: Sequence[Path], memory: int) -> None:
    """Read documents, and send parts of the pool and then the warnings, or why it failed."""
    end: tuple[str, ...] | _Failed
    try:
        with collected() as warnings:
            pool = read_evidence(paths)
        for start in range(0, len(pool), PART):
            sender.send(list(pool[start : start + PART]))
        end = tuple(warnings)
    except UserError as error:
        end = _Failed(str(error))
    except MemoryError:
        end = _Failed(f"{paths[0]}: reading takes more than {memory >> 20} MiB of memory")
    except BrokenPipeError:  # the server no longer waits for the result
        return
    except Exception:
        end = _Failed(traceback.format_exc(), is_ours=True)
    sender.send(end)
