"""A conversation at the terminal or through a pipe: ``turngraph chat``."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural, similar
from turngraph.data.cli import visible
from turngraph.data.scoring.console import PipedConsole
from turngraph.inference.answer import EXIT_ERRORS
from turngraph.inference.display import (
    AnswerStream,
    show_evidence,
    show_passages,
    show_probability,
    show_question,
    show_reasons,
    show_table,
)
from turngraph.inference.memory_printing import step_cells
from turngraph.inference.session import Session

if TYPE_CHECKING:  # needs an extra
    from turngraph.data.memory_graph.ontology.compute import Computed
    from turngraph.data.memory_graph.recall.plan_trace import PlanTrace

COMMANDS = {
    "/evidence": "all passages of the last answer; /evidence WORD: those with the word",
    "/why": "reasons of the last answer: passages by share, and the entities that link them",
    "/plan": "steps by which the memory graph was asked for the last answer (chat --plan)",
    "/undo": "remove the last turn, also from the memory graph",
    "/new": "begin a new conversation over the same evidence and memory graph",
    "/save": "/save FILE writes the conversation as JSON Lines; /save! FILE replaces a file",
    "/quit": "end the chat, as the end of the input (Ctrl-D) does",
    "/help": "this list",
}
WITH_ARGUMENT = {"/evidence", "/save", "/save!"}


def chat(session: Session, evidence: Sequence[str], memory: str | None, num_passages: int) -> None:
    """Answer one question a line, from a terminal or a pipe, and print the evidence below.

    Args:
        session: the conversation; it is closed at the end.
        evidence: paths that its pool was read from.
        memory: path of its memory graph, if it has one.
        num_passages: number of passages that are printed below an answer.

    Raises:
        UserError: the memory graph cannot be written.
        SystemExit: with ``EXIT_ERRORS`` if a line from a pipe failed.
    """
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            # bytes that are not UTF-8 become lone surrogates, which read_line refuses
            escape = "surrogateescape" if stream is sys.stdin else "backslashreplace"
            stream.reconfigure(encoding="utf-8", errors=escape)
    typed = sys.stdin.isatty() and sys.stdout.isatty()
    terminal = TerminalChat(session, PipedConsole(), typed, num_passages)
    try:
        session.warm_up()
        terminal.greet(len(evidence), memory)
        terminal.run()
    finally:
        session.close()
    if terminal.num_errors and not terminal.interactive:
        raise SystemExit(EXIT_ERRORS)


class TerminalChat:
    """Reads questions and commands, one a line, and prints the replies.

    Args:
        session: the conversation.
        console: receives the answers.
        interactive: a person types and reads at a terminal; False: questions are repeated before
            their answers, and Ctrl-C ends the chat.
        num_passages: number of passages below an answer.

    Attributes:
        num_errors: number of lines that failed.
    """

    def __init__(
        self, session: Session, console: Console, interactive: bool, num_passages: int
    ) -> None:
        self.session, self.console, self.num_passages = session, console, num_passages
        self.interactive, self.num_errors = interactive, 0
        if interactive:
            import readline  # noqa: F401 (input() then has a history and can be edited)

    def greet(self, num_pools: int, memory_graph: str | None) -> None:
        """Print what answers come from and, at a terminal, what can be typed."""
        searched = self.session.builder.corpus
        if not num_pools and memory_graph is None and searched is None:
            missing = "No --evidence, no --corpus and no --memory"
            self.say(f"{missing}: answers come from what the model knows.")
        if not self.interactive:
            return
        if num_pools:
            self.say(f"{plural(len(self.session.conversation.evidence), 'passage')}.")
        if searched is not None:
            corpus = searched.corpus
            self.say(f"{plural(len(corpus), 'passage')} of {corpus.folder}.")
        if memory_graph is not None:
            is_read = getattr(self.session.memory.graph, "read_only", False)
            does = "is only read" if is_read else "remembers what you state"
            self.say(f"{memory_graph} {does}.")
        self.say("One question a line; /help lists the commands; Ctrl-D or /quit ends.")

    def say(self, text: str, style: str = "") -> None:
        """Print a line about the chat itself."""
        one_line = not self.console.is_terminal
        self.console.print(
            visible(text), style=style, markup=False, highlight=False, soft_wrap=one_line
        )

    def run(self) -> None:
        """Answer questions and run commands until the input ends; errors are printed."""
        while True:
            try:
                if (line := self.read_line()) is None:
                    return
                self.take(line)
            except UserError as error:
                self.num_errors += 1
                self.say("error: " + " ".join(str(error).split()), "red")
            except KeyboardInterrupt:
                if not self.interactive:
                    raise
                self.console.out()

    def read_line(self) -> str | None:
        """Return the next line that is not blank; None at the end of the input or at ``/quit``.

        Raises:
            UserError: the line is not UTF-8.
        """
        try:
            while not (line := input("> " if self.interactive else "").strip()):
                pass
        except EOFError:
            if self.interactive:
                self.console.out()
            return None
        if any("\ud800" <= char <= "\udfff" for char in line):
            raise UserError("not UTF-8: this line is skipped")
        if line == "/quit":
            return None
        if not self.interactive:
            show_question(self.console, line)
        return line

    def take(self, line: str) -> None:
        """Answer a question or run a command.

        Raises:
            UserError: the command failed; the message says what it has changed, if anything.
        """
        if line.startswith("//"):
            self.answer(line[1:])
        elif line.startswith("/"):
            name, _, argument = line.partition(" ")
            self.obey(name, argument.strip())
        else:
            self.answer(line)

    def answer(self, question: str) -> None:
        """Print the answer to a question, word by word, and its evidence below.

        Raises:
            UserError: the question cannot be answered and is not part of the conversation, or it
                was answered and cannot be stored in the memory graph yet.
        """
        stream = AnswerStream(self.console, self.session.builder.prompt, self.session.may_withhold)
        try:
            turn = self.session.ask(question, stream.add)
        except UserError:
            stream.end(None)
            raise
        except KeyboardInterrupt:
            self.console.out()
            self.say("stopped: this question is not part of the conversation")
            if not self.interactive:
                raise
            return
        stream.end(turn.text)
        show_probability(self.console, turn.record)
        show_passages(self.console, turn.record, turn.example, self.num_passages)
        try:
            self.session.remember()
        except UserError as error:
            raise UserError(
                f"this turn is not remembered yet, the next one retries: {error}"
            ) from error

    def obey(self, name: str, argument: str) -> None:
        """Run a command.

        Raises:
            UserError: there is no such command, or it failed.
        """
        if name not in COMMANDS | {"/save!": ""}:
            near = similar(name, COMMANDS)
            hint = f"did you mean {near}?" if near else "/help lists the commands"
            raise UserError(
                f"no command {name}: {hint} (begin with // to ask a question that begins with /)"
            )
        if argument and name not in WITH_ARGUMENT:
            raise UserError(f"{name} takes no argument")
        if name == "/evidence":
            show_evidence(self.console, self.session.last().example, argument)
        elif name == "/why":
            show_reasons(self.console, self.session.why())
            self.show_computed()
        elif name == "/plan":
            self.show_plan()
        elif name == "/undo":
            self.say(f"undone: {self.session.undo()}")
        elif name == "/new":
            self.session.begin()
            self.say("a new conversation")
        elif name == "/help":
            show_table(self.console, ("", ""), COMMANDS.items())
        else:
            self.save(argument, overwrite=name == "/save!")

    def show_computed(self) -> None:
        """Print what was computed for the last question, its facts, plan and SPARQL, if any."""
        computed: Computed | None = getattr(self.session.memory.graph, "computed", None)
        if computed is None:
            return
        self.say(f"computed: {computed.answer} ({computed.operation})")
        if computed.note:
            self.say(f"note: {computed.note}")
        rows = [(str(fact.key), fact.text, fact.valid_from or "") for fact in computed.facts]
        show_table(self.console, ("fact", "text", "from"), rows)
        self.say(f"plan: {computed.plan}")
        for query in computed.queries:
            self.say(query)

    def show_plan(self) -> None:
        """Print the steps of the last question to the memory graph.

        Raises:
            UserError: there were none.
        """
        planned: PlanTrace | None = getattr(self.session.memory.graph, "planned", None)
        if planned is None:
            raise UserError(
                "no plan to show: begin the chat with --memory and --plan, and ask a question"
            )
        subs = planned.subs
        rows = []
        for index, sub in enumerate(subs, 1):
            for trace in sub.steps:
                number = f"{index}.{trace.step.number}" if len(subs) > 1 else f"{trace.step.number}"
                rows.append(step_cells(number, trace))
        show_table(self.console, ("", "step", "starts at", "found"), rows)

    def save(self, name: str, overwrite: bool) -> None:
        """Write the conversation to a file.

        Raises:
            UserError: no file is named, or it exists already or cannot be written.
        """
        if not name:
            raise UserError("/save needs the name of a file")
        path = self.session.save(name, overwrite)
        self.say(f"saved: {path}, {plural(len(self.session.turns), 'turn')}")
