"""The conversations of all users over one model: opened when they are asked, kept on disk."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from inspect import unwrap
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from torch import Tensor

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.models import sentence_encoder
from turngraph.configs.user_error import UserError
from turngraph.data.embedding import cached, in_one_thread
from turngraph.data.json_fields import Json
from turngraph.data.memory_graph.recall.recollection import ReadAnswer, Recollection
from turngraph.data.memory_graph.record.place import of_tenant
from turngraph.inference.api import QA
from turngraph.inference.calibrated import read_confidence
from turngraph.inference.chat_answer import ChatAnswer
from turngraph.inference.evidence import read_evidence
from turngraph.inference.memory_reader import MemoryReader
from turngraph.inference.options import AnswerOptions, MemoryOptions
from turngraph.inference.serve.conversation_store import ConversationStore
from turngraph.inference.serve.documents import Documents
from turngraph.inference.serve.engine import Engine
from turngraph.inference.serve.errors import NotFound
from turngraph.inference.serve.limits import Places, Turns
from turngraph.inference.serve.open_conversation import Listener, OpenConversation, check_wanted
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.session import Session
from turngraph.inference.text_stream import TextStream
from turngraph.model.text_lm import TextLM

logger = logging.getLogger("serve")
Result = TypeVar("Result")
MAX_TEXTS = 1000
"""Most sentence vectors in the cache that all memory graphs share, 2 kB each. It spares several
conversations of a user from encoding the same text; each graph keeps the vectors of its texts."""
MAX_OPEN = 128
"""Conversations that are kept open; the one that was asked longest ago is closed. Each has about
five files of a memory graph open, and a process may often have 1,024."""
MAX_REMEMBERING = 32
"""Most users whose memory graphs stay in memory between questions: pages of SQLite, at most 160 MiB
a graph, edges and vectors."""


class Service:
    """Answers the questions of many users with one model.

    Args:
        qa: the loaded checkpoint.
        options: what is served, and its limits.
        folder: of the users; one folder each.

    Raises:
        UserError: evidence cannot be read, or the LM's answers cannot be batched.
    """

    def __init__(self, qa: QA, options: ServeOptions, folder: Path) -> None:
        self.qa, self.options, self.folder = qa, options, folder
        self.remembers = options.memory is not None or options.memory_dir is not None
        shared = read_evidence(map(Path, options.evidence))
        of_pools = qa.builder.prepare, qa.builder.retrieval.drop_index
        self.documents = Documents(self.user_folder, shared, *of_pools)
        resolved = AnswerOptions(max_new_tokens=options.max_new_tokens).resolved(qa.config)
        assert resolved.max_new_tokens is not None
        self.max_new_tokens = resolved.max_new_tokens
        self.building, self.answering = Turns(), Turns()
        self.loading = self._load_encoder()
        self.confidence = read_confidence(qa.checkpoint, options.abstain_below)
        limits = options.batch_tokens, options.max_batch, options.max_waiting
        self.engine = Engine(qa.model, qa.builder.prompt.end_id, *limits)
        # not the threads of routes: they are few, and other routes would wait for answers
        self._completing = ThreadPoolExecutor(self.engine.most_admitted, "completion")
        self.places = Places()
        self._open: OrderedDict[tuple[str, str], OpenConversation] = OrderedDict()
        self._stores: dict[str, ConversationStore] = {}
        self._states: dict[tuple[str, str], str | None] = {}
        self._lock = Lock()

    def _load_encoder(self) -> Future[None]:
        """Load the sentence encoder, if answers need one, in a thread of its own."""
        builder = self.qa.builder
        config = self.qa.config.memory_graph or MemoryGraphConfig()
        if builder.embed is not None:
            builder.embed = cached(in_one_thread(unwrap(builder.embed)))
        elif self.remembers and config.vectors == "encoder":
            encoder = sentence_encoder(self.qa.config.evidence.embedder)
            builder.embed = cached(in_one_thread(encoder), MAX_TEXTS)
        embed, pool = builder.embed, ThreadPoolExecutor(1, "loading")

        def load() -> None:
            if embed is not None:
                embed(["loaded"])

        done = pool.submit(load)
        pool.shutdown(wait=False)
        return done

    @property
    def is_ready(self) -> bool:
        """Whether answers begin at once: the sentence encoder is loaded if one is needed."""
        return self.loading.done() and self.loading.exception() is None

    def held(self) -> dict[str, int]:
        """Count what is kept in memory and made again when it is missing."""
        with self._lock:
            opened = list(self._open.values())
        return {
            "conversations": len(opened),
            "memory_graphs": sum(one.holds_memory for one in opened),
            "prefix_tokens": sum(one.num_prefix_tokens for one in opened),
            "document_pools": self.documents.num_pools,
            **self.qa.builder.num_cached,
        }

    # what a user has

    def user_folder(self, user: str) -> Path:
        """Return a user's folder; it is made if it is not there."""
        path = self.folder / user
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def store(self, user: str) -> ConversationStore:
        """Return a user's conversations."""
        with self._lock:
            if user not in self._stores:
                self._stores[user] = self._new_store(user)
            return self._stores[user]

    def _new_store(self, user: str) -> ConversationStore:
        if self.options.memory is None:
            return ConversationStore(self.user_folder(user) / "conversations.db")
        from turngraph.inference.serve.shared_conversations import SharedConversations

        return SharedConversations(self.memory_place(user))

    def memory_place(self, user: str) -> str:
        """Return the path of a user's memory graph, or the URL of the tenant who is the user."""
        if self.options.memory is None:
            return str(self.user_folder(user) / "memory.db")
        return str(of_tenant(self.options.memory, user))

    # conversations

    def run(self, user: str, id_: str, work: Callable[[Session], Result]) -> Future[Result]:
        """Do something with a conversation of a user, in its thread; it is opened if it is not.

        Raises:
            NotFound: the user has no such conversation.
        """
        state = self.store(user).state(id_)
        if state is None:
            self._drop(user, id_)  # another server may have deleted it
            raise NotFound(id_)
        with self._lock:  # held until the work is handed over: an idle one may be closed
            current, closing = self._open.pop((user, id_), None), []
            if current is not None and current.is_idle and self._states.get((user, id_)) != state:
                closing.append(current)  # another server went on with it
                current = None
            if current is None or current.has_failed:
                current = OpenConversation(
                    partial(self._session, user, id_), partial(self._remember, user, id_)
                )
            self._open[user, id_] = current
            future = current.run(work)
            self._release(user, current)
            closing += self._surplus()
        future.add_done_callback(partial(self._drop_deleted, user, id_))
        for conversation in closing:
            conversation.close()
        return future

    def _drop_deleted(self, user: str, id_: str, done: Future[Any]) -> None:
        """Forget a conversation that was deleted before it was opened; in its own thread."""
        if isinstance(done.exception(), NotFound):
            self._drop(user, id_)

    def _drop(self, user: str, id_: str) -> Future[None]:
        """Close a conversation, if it is open, after all that was asked of it."""
        with self._lock:
            conversation = self._open.pop((user, id_), None)
        closed = Future[None]() if conversation is None else conversation.close()
        # at the end: what was still asked of it has noted one
        closed.add_done_callback(lambda _: self._states.pop((user, id_), None))
        if conversation is None:
            closed.set_result(None)
        return closed

    def _release(self, user: str, asked: OpenConversation) -> None:
        """Free what is kept twice or is too much: memory graphs, and prefixes of all."""
        room, users = self.options.prefix_tokens, {user}
        for (owner, _), conversation in reversed(self._open.items()):
            is_further = owner in users or len(users) >= MAX_REMEMBERING
            if is_further and conversation is not asked:
                conversation.release_memory()
            users.add(owner)
            if num := conversation.num_prefix_tokens:
                room -= num
                if room < 0 and conversation is not asked:
                    conversation.drop_prefix()

    def _surplus(self) -> list[OpenConversation]:
        """Take idle conversations out until there are no more than may be open."""
        idle = [key for key, one in self._open.items() if one.is_idle]
        out = idle[: max(0, len(self._open) - MAX_OPEN)]
        for key in out:
            self._states.pop(key, None)
        return [self._open.pop(key) for key in out]

    def _session(self, user: str, id_: str) -> Session:
        """Open a conversation as it was left; in its own thread, as SQLite wants it."""
        store = self.store(user)
        if self._note_state(user, id_) is None:
            raise NotFound(id_)
        memory = self.memory_place(user) if self.remembers else None
        session = self._new_session(user, memory)
        graph = session.persistent
        if graph is not None:
            if (identity := store.memory_of(id_)) is not None:
                graph.go_on(*identity)
            else:
                store.set_memory(id_, *graph.identity)
                self._note_state(user, id_)
        session.resume(store.turns(id_))
        if graph is not None:
            noted = store.num_remembered(id_)
            graph.num_turns = graph.num_remembered(noted, len(session.turns))
        return session

    def _remember(self, user: str, id_: str, session: Session) -> None:
        """Store the finished turns in the memory graph, and note how many it was given."""
        graph = session.persistent
        if graph is None:
            return
        before = graph.num_turns
        session.remember()
        if graph.num_turns > before:
            self.store(user).set_num_remembered(id_, graph.num_turns)
            if (user, id_) in self._states:  # else it is being closed
                self._note_state(user, id_)

    def _note_state(self, user: str, id_: str) -> str | None:
        """Note which state of a conversation this process has, before reading or after writing."""
        state = self._states[user, id_] = self.store(user).state(id_)
        return state

    def _new_session(self, user: str, memory: str | None) -> Session:
        self.loading.result()  # else each thread that comes earlier would load an encoder
        return Session(
            self.qa.model,
            self.qa.builder,
            self.documents.pool(user),
            None if memory is None else MemoryOptions(memory, plan=self.options.plan),
            self.max_new_tokens,
            confidence=self.confidence,
            building=partial(self.building.of, user),
            answering=self._answering(user),
        )

    def _answering(self, user: str) -> Callable[[], AbstractContextManager[None]]:
        """Return the lock around a model that answers one question at a time, else none."""
        in_turn = partial(self.answering.of, user)
        return nullcontext if isinstance(self.qa.model, TextLM) else in_turn

    def ask(self, user: str, id_: str, question: str, listener: Listener) -> Future[ChatAnswer]:
        """Answer a question of a conversation; the turn is on disk when the future is done.

        Args:
            user, id_: the conversation.
            question: not blank.
            listener: is told, in another thread, what comes.

        Raises:
            NotFound: the user has no such conversation.
        """
        deadline = time.monotonic() + self.options.deadline

        def work(session: Session) -> ChatAnswer:
            self._set_pool(session, user)
            self._remember(user, id_, session)  # what could not be before
            if session.persistent is not None:
                session.persistent.on_step = listener.step
            answer = self._answer(session, question, listener, deadline, user)
            try:
                passages = answer.evidence
                self.store(user).add_turn(id_, len(session.turns) - 1, answer.record, passages)
                self._note_state(user, id_)
            except Exception:
                self._states.pop((user, id_), None)  # of another server perhaps: read it again
                session.undo()
                raise
            try:
                self._remember(user, id_, session)
            except UserError as error:
                logger.warning("a turn is not remembered yet, the next one retries: %s", error)
            return answer

        return self.run(user, id_, work)

    def complete(
        self,
        user: str,
        turns: Sequence[tuple[str, str]],
        question: str,
        listener: Listener,
        max_new_tokens: int | None,
    ) -> Future[ChatAnswer]:
        """Answer a question after the turns that a client sent along; nothing is kept of it.

        Args:
            user: whose documents are asked.
            turns: questions and answers before.
            question: not blank.
            listener: is told, in another thread, what comes.
            max_new_tokens: longest answer, if shorter than the server's.
        """
        deadline = time.monotonic() + self.options.deadline
        limit = min(max_new_tokens or self.max_new_tokens, self.max_new_tokens)

        def work() -> ChatAnswer:
            session = self._new_session(user, None)
            session.max_new_tokens = limit
            session.check = partial(check_wanted, listener, deadline)
            records: list[Json] = [
                {"turn": str(i), "question": asked, "answer": said, "logprob": 0.0}
                for i, (asked, said) in enumerate(turns)
            ]
            session.resume([(record, None) for record in records])
            return self._answer(session, question, listener, deadline, user, max_new_tokens)

        return self._completing.submit(work)

    def read(self, user: str, recollection: Recollection) -> ReadAnswer | None:
        """Answer a user's question from what their memory graph recalled; None: nothing was.

        Raises:
            Busy: too many questions wait already.
            Late: the answer took too long.
        """
        deadline = time.monotonic() + self.options.deadline
        reader = MemoryReader(
            self.qa.model,
            self.qa.builder,
            self.max_new_tokens,
            self.confidence,
            partial(self.engine.generate, deadline=deadline, user=user),
            partial(self.building.of, user),
            self._answering(user),
        )
        admission = self.engine.admit(user)
        try:
            return reader.read(recollection)
        finally:
            admission.end()

    def _answer(
        self,
        session: Session,
        question: str,
        listener: Listener,
        deadline: float,
        user: str,
        most: int | None = None,
    ) -> ChatAnswer:
        """Answer a question, with at most ``most`` tokens of an answer that is chosen."""
        text = TextStream(self.qa.builder.prompt, session.may_withhold)

        def on_token(ids: Tensor) -> None:
            session.check()
            if piece := text.add(ids):
                listener.emit(piece)

        session.check = partial(check_wanted, listener, deadline)
        session.generate = partial(
            self.engine.generate, deadline=deadline, check=session.check, user=user
        )
        answer = session.ask(question, on_token)
        num_new_tokens, is_cut_off = len(text.ids), False
        if text.ids:
            is_cut_off = text.ids[-1] not in self.qa.model.end_ids(self.engine.end_id)
        else:  # the answer was chosen, not written
            ids = self.qa.builder.prompt.target_ids(answer.text)
            if most is not None and (is_cut_off := len(ids) > most):
                cut = self.qa.builder.prompt.answer_text(ids[:most])
                answer = replace(answer, record=answer.record | {"answer": cut})
            num_new_tokens = len(ids[:most])
            self.engine.count_chosen()
        answer.record.update(num_new_tokens=num_new_tokens, is_cut_off=is_cut_off)
        if not text.restarts(answer.text) and (rest := text.end(answer.text)):
            listener.emit(rest)
        return answer

    def undo(self, user: str, id_: str) -> Future[str]:
        """Remove the last turn; the future has its question."""

        def work(session: Session) -> str:
            store, last = self.store(user), len(session.turns) - 1
            if store.num_remembered(id_) > last >= 0:
                store.set_num_remembered(id_, last)  # first: a kill leaves what is looked for
            question = session.undo()
            store.remove_turn(id_, last)
            self._note_state(user, id_)
            return question

        return self.run(user, id_, work)

    def delete(self, user: str, id_: str, forget: bool) -> Future[None]:
        """Delete a conversation; the future is done when it is closed, too.

        Args:
            user, id_: whose, and which.
            forget: erase what it stated from the memory graph, too; else that stays. The future has
                a ``UserError`` if the memory graph cannot be written: the conversation is still
                there.

        Raises:
            NotFound: the user has no such conversation.
        """
        store, done = self.store(user), Future[None]()
        if not store.has(id_):
            raise NotFound(id_)
        done.set_running_or_notify_cancel()  # no client can cancel it

        def work(session: Session) -> None:
            if session.turns:
                session.undo(len(session.turns))
            store.delete(id_)

        def close(asked: Future[None] | None = None) -> None:
            if asked is not None and (error := asked.exception()) is not None:
                done.set_exception(error)
            else:
                self._drop(user, id_).add_done_callback(lambda _: done.set_result(None))

        if forget and self.remembers:
            self.run(user, id_, work).add_done_callback(close)
        else:
            store.delete(id_)  # first: a question that comes now finds none
            close()
        return done

    def close(self) -> None:
        """Finish what runs, and close all conversations."""
        with self._lock:
            conversations = list(self._open.values())
            self._open.clear()
        wait([conversation.close() for conversation in conversations])
        self._completing.shutdown(wait=True)
        self.engine.close()

    def _set_pool(self, session: Session, user: str) -> None:
        pool = self.documents.pool(user)
        if session.pool is not pool:
            session.pool = pool
            session.conversation = replace(session.conversation, evidence=pool)
