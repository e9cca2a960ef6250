"""A chat whose lines are given and whose console is looked at."""

from __future__ import annotations

import io
import signal
from typing import Any

import pytest
from rich.console import Console

from turngraph.data.examples import Example, ExampleBuilder
from turngraph.inference.chat import TerminalChat
from turngraph.inference.session import Session
from turngraph.model.evidence_model import EvidenceModel
from turngraph.tests.tiny import tiny_conversation

CONVERSATION = tiny_conversation(0, "chat")
QUESTIONS = [turn.question for turn in CONVERSATION.turns]
Loaded = tuple[EvidenceModel, ExampleBuilder]


class Screen:
    """A chat whose lines are given and whose console is looked at."""

    def __init__(self, session: Session, interactive: bool = False, **console: Any) -> None:
        self.file = io.StringIO()
        settings = {"width": 80, "color_system": None} | console
        self.chat = TerminalChat(session, Console(file=self.file, **settings), interactive, 3)

    def __call__(self, *lines: str) -> str:
        """Return what is printed for some lines."""
        start = len(self.file.getvalue())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
            self.chat.run()
        return self.file.getvalue()[start:]


def evidence_of(example: Example) -> list[tuple[str, float, int]]:
    return [(i.evidence.text, i.score, i.from_turn) for i in example.evidence]


def ctrl_c(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)
