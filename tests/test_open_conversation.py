"""An open conversation: the order of its work, what it frees, and its end."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, call

import pytest

from turngraph.configs.user_error import UserError
from turngraph.inference.serve.open_conversation import OpenConversation


def session_of(num_tokens: int) -> Any:
    """A session that notes what is asked of it."""
    session = MagicMock()
    session.past = SimpleNamespace(num_tokens=num_tokens, clear=session.clear)
    return session


def test_work_is_done_in_order_and_memory_is_freed_once_after_it() -> None:
    session, may_open = session_of(7), Event()

    def opening() -> Any:
        may_open.wait()
        return session

    conversation = OpenConversation(opening, session.remember)
    assert not conversation.is_idle
    assert (conversation.has_failed, conversation.num_prefix_tokens) == (False, 0)
    answered = conversation.run(lambda one: one.ask("Where?"))
    conversation.release_memory()
    conversation.release_memory()
    assert not conversation.holds_memory
    conversation.drop_prefix()
    again = conversation.run(lambda one: one.ask("When?"))
    assert conversation.holds_memory
    may_open.set()
    assert (answered.result(), again.result()) == (session.ask(), session.ask())
    assert conversation.is_idle
    assert (conversation.has_failed, conversation.num_prefix_tokens) == (False, 7)
    conversation.close().result()
    asked = [call.ask("Where?"), call.release(), call.clear(), call.ask("When?")]
    made = [one for one in session.method_calls if one != call.ask()]
    assert made == [*asked, call.remember(session), call.close()]


def test_a_session_is_closed_even_if_its_turns_cannot_be_remembered() -> None:
    session = session_of(0)
    conversation = OpenConversation(lambda: session, MagicMock(side_effect=UserError("full")))
    with pytest.raises(UserError, match="full"):
        conversation.close().result()
    assert session.method_calls == [call.close()]
    with pytest.raises(RuntimeError, match="shutdown"):
        conversation.run(lambda one: one)


def test_a_conversation_that_cannot_be_opened_has_nothing_to_close() -> None:
    remember = MagicMock()
    conversation = OpenConversation(MagicMock(side_effect=UserError("gone")), remember)
    with pytest.raises(UserError, match="gone"):
        conversation.run(lambda one: one).result()
    assert (conversation.has_failed, conversation.num_prefix_tokens) == (True, 0)
    conversation.close().result()
    assert not remember.called
