"""An open conversation, and who waits for its answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from turngraph.inference.serve.engine import Late
from turngraph.inference.session import Session

if TYPE_CHECKING:
    from turngraph.data.memory_graph.recall.plan_trace import StepTrace

Result = TypeVar("Result")


class Gone(Exception):
    """The client has left before its answer."""


class Listener(Protocol):
    """Receiver of an answer, piece by piece.

    Attributes:
        gone: set when the client no longer waits.
    """

    gone: Event

    def emit(self, piece: str) -> None:
        """Take a piece of the answer's text."""

    def step(self, number: str, trace: StepTrace) -> None:
        """Take a finished step of the plan by which the memory graph is asked."""


def check_wanted(listener: Listener, deadline: float) -> None:
    """Check that a client waits for an answer; the deadline is a ``time.monotonic``.

    Raises:
        Gone: the client has left.
        Late: the deadline has passed.
    """
    if listener.gone.is_set():
        raise Gone
    if time.monotonic() > deadline:
        raise Late("the answer took too long")


class OpenConversation:
    """A conversation with a thread of its own, in which all work on it runs in order.

    Args:
        opening: opens its session.
        remember: stores its finished turns in the memory graph.

    Attributes:
        holds_memory: whether its memory graph may keep in memory what it has read for questions.
    """

    def __init__(self, opening: Callable[[], Session], remember: Callable[[Session], None]) -> None:
        self._remember = remember
        self._pool = ThreadPoolExecutor(1, "conversation")
        self._session = self._pool.submit(opening)
        self._last: Future[Any] = self._session
        self.holds_memory = True

    @property
    def is_idle(self) -> bool:
        """Whether all its work is done."""
        return self._last.done()

    @property
    def has_failed(self) -> bool:
        """Whether it could not be opened."""
        return self._session.done() and self._session.exception() is not None

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens of the last prompt whose keys and values it keeps."""
        is_open = self._session.done() and not self.has_failed
        return self._session.result().past.num_tokens if is_open else 0

    def run(self, work: Callable[[Session], Result]) -> Future[Result]:
        """Run a function of the session in the thread, after all earlier work."""
        done = self._pool.submit(lambda: work(self._session.result()))
        self._last, self.holds_memory = done, True
        return done

    def release_memory(self) -> None:
        """Free what the memory graph can read again, once all earlier requests are answered."""
        if self.holds_memory:
            self._pool.submit(lambda: self._session.result().release())
            self.holds_memory = False

    def drop_prefix(self) -> None:
        """Drop the keys and values of its last prompt, after all earlier work."""
        self._pool.submit(lambda: self._session.result().past.clear())

    def close(self) -> Future[None]:
        """Close the session after all earlier work; the future is done then."""

        def end() -> None:
            if not self._session.exception():
                session = self._session.result()
                try:
                    self._remember(session)
                finally:
                    session.close()

        done = self._pool.submit(end)
        self._pool.shutdown(wait=False)
        return done
