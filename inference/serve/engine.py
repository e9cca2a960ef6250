"""Decodes the answers of many conversations at once, in one thread, for callers in others."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from threading import Condition, Thread

import torch
from torch import Tensor

from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import Batch
from turngraph.model.device_memory import is_out_of_memory, release_freed_memory
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import Generated, Past
from turngraph.model.running_batch import Row, RunningBatch
from turngraph.model.text_lm import TextLM

logger = logging.getLogger("serve")
SECONDS_PER_CHECK = 0.5
"""Longest wait for a token until a caller is asked whether it still wants the answer."""
STEPS_PER_RELEASE = 200
"""Steps of decoding after which freed memory goes back to the system."""


class Busy(Exception):
    """Too many questions wait already.

    Args:
        seconds: after which it is worth asking again.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many questions are waiting; ask again in {seconds:.0f} seconds")
        self.seconds = seconds


class Late(Exception):
    """A question was not answered before its deadline."""


class Stopping(Exception):
    """The engine is closed."""


@dataclass(eq=False)
class _Request:
    """A prompt that waits, or is a row of the running batch.

    Args:
        batch: one example.
        max_new_tokens: most tokens of its answer.
        past: prefix cache of its conversation.
        user: user who asks.
        arrived: the ids of its answer, then None; or what went wrong.
    """

    batch: Batch
    max_new_tokens: int
    past: Past | None
    user: str
    arrived: SimpleQueue[int | Exception | None] = field(default_factory=SimpleQueue)
    row: Row | None = None
    cancelled: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens of its prompt and of its longest answer."""
        return self.batch.input_ids.shape[1] + self.max_new_tokens


class Admission:
    """A question that counts as admitted until ``end`` is called.

    Args:
        engine: engine that counts it.
        user: user who asks.
    """

    def __init__(self, engine: Engine, user: str) -> None:
        self._engine, self._user, self._began = engine, user, time.monotonic()

    def end(self) -> None:
        """Tell the engine that the question is finished."""
        self._engine.dismiss(self._user, time.monotonic() - self._began)


class Engine:
    """The thread that decodes: prompts join its running batch as soon as there is room.

    Args:
        model: in evaluation mode.
        end_id: token that ends a turn.
        max_tokens: most tokens of the batch: number of answers that are decoded together, times the
            longest prompt with its answer; a longer prompt is decoded alone.
        max_rows: most answers that are decoded together.
        max_waiting: most questions that wait for room; as many more may wait that are the only
            question of their users.

    Raises:
        UserError: the LM's answers cannot be batched.
    """

    def __init__(
        self,
        model: EvidenceModel,
        end_id: int,
        max_tokens: int,
        max_rows: int,
        max_waiting: int,
    ) -> None:
        self.model, self.end_id = model, end_id
        self.max_tokens, self.max_rows, self.max_waiting = max_tokens, max_rows, max_waiting
        self.num_admitted, self.num_answered, self.num_tokens = 0, 0, 0
        self._num_of_user = Counter[str]()
        self._turns: dict[
            str, int
        ] = {}  # user -> number of their last turn, for users with a request
        self._num_steps = 0
        self._seconds = 1.0  # seconds of an answer, as a moving average
        # answers that are chosen from candidates are computed by the threads that ask, not here
        self._running = RunningBatch(model, end_id) if isinstance(model, TextLM) else None
        self._clock = count()
        self._requests: list[_Request] = []
        self._waiting: deque[_Request] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def _batch(self) -> RunningBatch:
        assert self._running is not None, "without an LM nothing is decoded"
        return self._running

    @property
    def num_running(self) -> int:
        """The number of answers that are being decoded."""
        return len(self._requests)

    @property
    def num_waiting(self) -> int:
        """The number of admitted questions that are not being decoded."""
        return self.num_admitted - self.num_running

    @property
    def most_admitted(self) -> int:
        """The most questions of all users that are admitted at once."""
        return self.max_rows + 2 * self.max_waiting

    def admit(self, user: str) -> Admission:
        """Count a user's question from its arrival to its answer.

        Raises:
            Busy: too many wait already.
        """
        with self._changed:
            room = self.most_admitted - self.max_waiting * bool(self._num_of_user[user])
            if self.num_admitted >= room:
                rounds = self.num_admitted / self.max_rows
                raise Busy(max(1.0, rounds * self._seconds))
            self.num_admitted += 1
            self._num_of_user[user] += 1
        return Admission(self, user)

    def count_chosen(self) -> None:
        """Count an answer that was chosen, not decoded here."""
        with self._changed:
            self.num_answered += 1

    def dismiss(self, user: str, seconds: float) -> None:
        """End the count of a user's question that took so many seconds."""
        with self._changed:
            self.num_admitted -= 1
            self._num_of_user[user] -= 1
            self._num_of_user += Counter()  # this drops users with a count of 0
            self._seconds += 0.1 * (seconds - self._seconds)

    def generate(
        self,
        batch: Batch,
        max_new_tokens: int,
        end_id: int,
        on_token: Callable[[Tensor], None] | None = None,
        past: Past | None = None,
        deadline: float | None = None,
        check: Callable[[], None] = lambda: None,
        user: str = "",
    ) -> Generated:
        """Generate the answer to one prompt, beside those of other threads.

        Args:
            batch: one example, without target.
            max_new_tokens: most tokens of the answer.
            end_id: the engine's own.
            on_token: called in this thread with each id, [1]; if it raises, the row is evicted.
            past: prefix cache of the conversation; it is read and updated.
            deadline: ``time.monotonic`` at which the answer is given up; None: never.
            check: called while there is no new token; if it raises, the answer is given up.
            user: user who asks.

        Raises:
            Late: the deadline has passed.
            Stopping: the engine is closed.
            UserError: the prompt does not fit into the memory.
        """
        assert end_id == self.end_id, "of another tokenizer"
        request = _Request(batch, max_new_tokens, past, user)
        with self._changed:
            if self._closed:
                raise Stopping("the server stops")
            self._waiting.append(request)
            self._changed.notify()
        ids: list[int] = []
        try:
            while (new := self._next(request, deadline, check)) is not None:
                ids.append(new)
                if on_token is not None:
                    on_token(torch.tensor([new]))
        except BaseException:
            request.cancelled = True  # the thread looks before each step
            raise
        assert request.row is not None, "it has ended"
        row = request.row
        return Generated(
            torch.tensor([ids]), torch.tensor([row.logprob]), torch.tensor([row.margin])
        )

    def _next(
        self, request: _Request, deadline: float | None, check: Callable[[], None]
    ) -> int | None:
        """Wait for the next id; None: the answer has ended."""
        while True:
            left = SECONDS_PER_CHECK if deadline is None else deadline - time.monotonic()
            try:
                arrival = request.arrived.get(timeout=max(0.0, min(left, SECONDS_PER_CHECK)))
                break
            except Empty:
                if left <= SECONDS_PER_CHECK and deadline is not None:
                    raise Late("the answer took too long") from None
                check()
        if isinstance(arrival, Exception):
            raise arrival
        return arrival

    def close(self) -> None:
        """Stop the thread; questions that are not answered yet get ``Stopping``."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._turn():
            pass
        for request in (*self._requests, *self._waiting):
            request.arrived.put(Stopping("the server stops"))

    def _turn(self) -> bool:
        """Let a prompt join and take a step; False: the engine was closed."""
        with self._changed:
            while not (self._waiting or self._requests or self._closed):
                self._changed.wait()
            if self._closed:
                return False
            gone = [request for request in self._requests if request.cancelled]
            request = self._admit()
        try:
            if gone:
                self._leave(gone)
            if request is not None:
                self._join(request)
            self._step()
        except Exception as error:  # ends all rows: the batch may be in any state
            logger.exception("a step failed: %d answers are lost", self.num_running)
            for lost in self._requests:
                lost.arrived.put(_as_user_error(error))
            assert isinstance(self.model, TextLM), "decoded together"
            self._requests, self._running = [], RunningBatch(self.model, self.end_id)
        return True

    def _admit(self) -> _Request | None:
        """Take a waiting prompt if there is room.

        It is the first prompt of the user with the fewest answers in the batch; of several such
        users, the one whose last turn was longest ago.
        """
        self._waiting = deque(one for one in self._waiting if not one.cancelled)
        if not self._waiting or len(self._requests) >= self.max_rows:
            return None
        num_running = Counter(request.user for request in self._requests)
        here = num_running.keys() | {request.user for request in self._waiting}
        self._turns = {user: turn for user, turn in self._turns.items() if user in here}
        first = min(
            self._waiting,
            key=lambda one: (num_running[one.user], self._turns.get(one.user, -1)),
        )
        together = [*self._requests, first]  # every row is padded to the longest
        num_tokens = len(together) * max(request.num_tokens for request in together)
        if self._requests and num_tokens > self.max_tokens:
            return None
        self._waiting.remove(first)
        self._turns[first.user] = next(self._clock)
        return first

    def _join(self, request: _Request) -> None:
        try:
            batch = request.batch.to(self.model.device)
            request.row = self._batch.add(batch, request.max_new_tokens, request.past)
        except Exception as error:  # concerns this prompt alone
            request.arrived.put(_as_user_error(error))
            return
        self._requests.append(request)
        self._deliver([request])

    def _step(self) -> None:
        if self._batch.step():
            self._deliver(list(self._requests))
        self._num_steps += 1
        if self._num_steps % STEPS_PER_RELEASE == 0:
            release_freed_memory(self.model.device)

    def _deliver(self, requests: list[_Request]) -> None:
        """Give the callers their new ids."""
        for request in requests:
            assert request.row is not None
            request.arrived.put(request.row.ids[-1])
            self.num_tokens += 1
            if request.row.done:
                request.arrived.put(None)
                self.num_answered += 1
        self._requests = [r for r in self._requests if r.row is not None and not r.row.done]

    def _leave(self, requests: list[_Request]) -> None:
        self._batch.drop([r.row for r in requests if r.row is not None])
        self._requests = [r for r in self._requests if r not in requests]


def _as_user_error(error: Exception) -> Exception:
    if isinstance(error, RuntimeError) and is_out_of_memory(error):
        return UserError("out of memory: the prompt is too long for a batch with the other prompts")
    return error
