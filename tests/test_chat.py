"""The chat: what is asked, looked at, taken back, saved; and what fails and leaves nothing."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import turngraph.inference.chat
import turngraph.inference.options
from turngraph import infer
from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli, visible
from turngraph.data.examples import Example
from turngraph.data.jsonlines import read_conversations, write_conversations, write_pool
from turngraph.data.prompt import Prompt
from turngraph.data.types import Evidence, Interaction
from turngraph.inference.answer_batches import prompt_length
from turngraph.inference.chat import TerminalChat
from turngraph.inference.chat import chat as run_chat
from turngraph.inference.chat_answer import ChatAnswer
from turngraph.inference.display import AnswerStream
from turngraph.inference.session import Session
from turngraph.model.evidence_model import EvidenceModel
from turngraph.tests.chatting import CONVERSATION, QUESTIONS, Loaded, Screen, ctrl_c, evidence_of
from turngraph.tests.runs import ROOT
from turngraph.tests.tiny import tiny_tokenizer
from turngraph.tests.waiting import PATIENCE


@pytest.fixture
def session(graph_model: Loaded) -> Session:
    return Session(*graph_model, CONVERSATION.evidence, None, 8)


def chat(
    checkpoint: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, *options: object
) -> str:
    """What ``infer.py chat`` prints for a text that is piped in."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    capsys.readouterr()
    infer.main(["chat", "--checkpoint", checkpoint, *map(str, options)])
    return capsys.readouterr().out


def pool_file(folder: Path) -> Path:
    write_pool(folder / "pool.jsonl", CONVERSATION.evidence)
    return folder / "pool.jsonl"


def test_every_piped_question_is_answered_with_its_evidence(
    graph_checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pool = ("--evidence", pool_file(tmp_path))
    said = chat(graph_checkpoint, "\n".join(QUESTIONS), monkeypatch, capsys, *pool)
    assert sum(line.startswith("  [") for line in said.splitlines()) == 3 * len(QUESTIONS)
    assert "Peru, capital, Lima" in said
    assert "No --evidence" not in said
    assert all(f"> {question}" in said for question in QUESTIONS)
    spaced = chat(graph_checkpoint, "\n" + "\n \n".join(QUESTIONS), monkeypatch, capsys, *pool)
    assert spaced == said  # blank lines lose no question
    bare = chat(graph_checkpoint, QUESTIONS[0], monkeypatch, capsys, *pool, "--passages", 0)
    assert bare.splitlines() == said.splitlines()[:3]
    lines = f"{QUESTIONS[0]}\n /quit \n{QUESTIONS[1]}"
    ended = chat(graph_checkpoint, lines, monkeypatch, capsys, *pool)
    assert said.startswith(ended.rstrip())
    assert QUESTIONS[1] not in ended


def test_a_chat_is_infer_answer_with_predicted_history(
    graph_checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    write_conversations(tmp_path / "input.jsonl", [CONVERSATION])
    output = tmp_path / "output.jsonl"
    options = ("--checkpoint", graph_checkpoint, "--history", "predicted", "--output", output)
    infer.main(["answer", "--input", str(tmp_path / "input.jsonl"), *map(str, options)])
    pool = ("--evidence", pool_file(tmp_path))
    said = chat(graph_checkpoint, "\n".join(QUESTIONS), monkeypatch, capsys, *pool)
    records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    for record in records:
        assert f"> {record['question']}\n{visible(record['answer']) or '(no answer)'}\n" in said


def test_with_neither_it_says_what_answers_come_from(
    graph_checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    said = chat(graph_checkpoint, "Why?\n/evidence\n/why\n", monkeypatch, capsys)
    first, question, _, *rest = said.splitlines()
    missing = "No --evidence, no --corpus and no --memory"
    assert first == f"{missing}: answers come from what the model knows."
    assert question == "> Why?"
    assert rest.count("No evidence was given.") == 2


def test_words_come_while_the_answer_is_written(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen, seen = Screen(session), []
    add = AnswerStream.add

    def spy(stream: AnswerStream, ids: torch.Tensor) -> None:
        add(stream, torch.tensor([prompt_ids[len(stream.text.ids)]]))
        seen.append(screen.file.getvalue())

    prompt_ids = Prompt(tiny_tokenizer()).target_ids("Lima is the capital of Peru and more")[:8]
    monkeypatch.setattr(AnswerStream, "add", spy)
    screen(QUESTIONS[0])
    assert len(seen) >= 2
    assert seen[0] == f"> {QUESTIONS[0]}\n"
    assert "Lima" in seen[-1]


def test_nothing_steers_the_terminal(session: Session) -> None:
    evil = "\x1b[31mred\x07 \x9b2J [bold]Peru[/bold] [/]"
    pool = (*CONVERSATION.evidence, Evidence("evil", f"Peru {evil}", "text"))
    session.conversation = replace(session.conversation, evidence=pool)
    said = Screen(session)(f"{evil} Peru?", "/evidence evil", "/evidence", "/why", f"/{evil}")
    assert "[bold]Peru[/bold] [/]" in said
    assert "␛[31mred␇" in said
    assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in said)


def test_all_passages_can_be_looked_at_and_looked_through(session: Session) -> None:
    screen = Screen(session)
    screen(*QUESTIONS)
    example = session.last().example
    said = screen("/evidence")
    for item in example.evidence:
        row = next(line for line in said.splitlines() if item.evidence.text in line)
        came = "new" if item.from_turn == 2 else f"from turn {item.from_turn + 1}"
        assert row.split()[1:3] == [f"{item.score:.2f}", item.evidence.source]
        assert came in row
    assert any(item.from_turn < 2 for item in example.evidence)
    found = [i for i in example.evidence if "lima" in i.evidence.text.casefold()]
    said = screen("/evidence LIMA")
    assert f"{len(found)} of {len(example.evidence)} passages with 'LIMA'" in said
    assert "0 of 4 passages with 'nowhere'" in screen("/evidence nowhere")


def test_why_lists_the_passages_by_share(session: Session) -> None:
    screen = Screen(session)
    screen(QUESTIONS[0])
    said = screen("/why").splitlines()
    shares = [int(line.split()[1][:-1]) for line in said if line[:2].strip().isdecimal()]
    assert len(shares) == len(session.last().example.evidence)
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=3)
    assert any(line.endswith("Peru: passages 1, 2") for line in said[said.index("Linked by") :])
    assert session.ask(QUESTIONS[1]).record["answer"] is not None  # it has trained nothing


def test_where_reasons_or_answers_do_not_fit_into_memory_the_chat_goes_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr("turngraph.inference.explain.attribute", no_memory)
    said = Screen(session)(QUESTIONS[0], "/why", QUESTIONS[1])
    assert "error: out of memory: an explanation takes more than an answer" in said
    assert len(session.turns) == 2

    def begun(*given: Any) -> None:
        for id_ in session.builder.prompt.target_ids("Lima, Lima"):
            given[4](torch.tensor([id_]))
        no_memory()

    monkeypatch.setattr("turngraph.inference.session.answer_batch", begun)
    *_, last = Screen(session)(QUESTIONS[2]).splitlines()
    assert last.startswith("error: out of memory; /undo removes turns")
    assert len(session.turns) == 2


def test_unknown_commands_name_the_nearest(session: Session) -> None:
    screen = Screen(session)
    assert "error: no command /evidnce: did you mean /evidence?" in screen("/evidnce")
    assert "/help lists the commands" in screen("/qqqqqq")
    assert "error: /undo takes no argument" in screen("/undo this")
    for command in ("/undo", "/why", "/evidence", "/save x"):
        assert "error: no question was answered yet" in screen(command)
    assert "/save needs the name of a file" in screen("/save")
    assert screen.chat.num_errors == 8
    assert not session.turns
    assert all(command in screen("/help") for command in turngraph.inference.chat.COMMANDS)
    screen("//undo is a word?")
    assert session.last().record["question"] == "/undo is a word?"


def test_a_turn_that_was_taken_back_leaves_nothing(session: Session, graph_model: Loaded) -> None:
    for question in QUESTIONS:
        session.ask(question)
    session.ask("What else is in Peru?")
    assert session.undo() == "What else is in Peru?"
    assert session.undo() == QUESTIONS[2]
    again = session.ask(QUESTIONS[2])
    other = Session(*graph_model, CONVERSATION.evidence, None, 8)
    for question in QUESTIONS:
        expected = other.ask(question)
    assert evidence_of(again.example) == evidence_of(expected.example)
    assert again.record["answer"] == expected.record["answer"]
    assert session.interaction == other.interaction
    for num in (0, -1):
        with pytest.raises(UserError, match=f"^{num} turns to undo, at least 1 is needed"):
            session.undo(num)
    assert session.interaction == other.interaction
    for _ in QUESTIONS:
        session.undo()
    assert len(session.memory) == 0
    assert session.conversation.turns == ()


def test_a_turn_that_cannot_be_taken_back_stays(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for question in QUESTIONS[:2]:
        session.ask(question)
    turns, conversation = list(session.turns), session.conversation

    def fail(_: Any) -> None:
        raise UserError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(session.memory, "restore", fail)
        with pytest.raises(UserError, match="disk is full"):
            session.undo()
    assert session.turns == turns
    assert session.conversation == conversation
    assert session.undo() == QUESTIONS[1]
    assert session.conversation.turns == conversation.turns[:1]


@pytest.mark.parametrize(
    ("most", "message"),
    [
        (4_000, "a question of 25,001 characters, at most 4,000 are read"),
        (10**6, "4096 positions; a smaller --max_new_tokens leaves more room"),
    ],
)
def test_what_is_too_long_is_one_line_and_the_chat_goes_on(
    most: int, message: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turngraph.inference.options, "MAX_QUESTION", most)
    screen = Screen(session)
    said = screen(QUESTIONS[0], "word " * 5000 + "?", QUESTIONS[1])
    (error,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert message in error
    assert [question for question, _ in session.interaction] == QUESTIONS[:2]
    assert screen.chat.num_errors == 1


def test_ctrl_c_stops_an_answer_only(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(session, interactive=True)
    screen(QUESTIONS[0])
    before = session.memory.state()
    with monkeypatch.context() as patch:
        patch.setattr(AnswerStream, "add", ctrl_c)
        said = screen(QUESTIONS[1])
        with pytest.raises(KeyboardInterrupt):  # what is piped ends
            Screen(session)(QUESTIONS[1])
    assert said.startswith("\nstopped: this question is not part of the conversation")
    assert len(session.turns) == len(session.conversation.turns) == 1
    assert session.memory.state() == before
    build = session.builder.turn

    def pressed_early(*arguments: Any) -> Example:
        ctrl_c()
        return build(*arguments)  # the signal waits: what is read here is read to its end

    with monkeypatch.context() as patch:
        patch.setattr(session.builder, "turn", pressed_early)
        assert "stopped: " in screen(QUESTIONS[1])
    assert session.memory.state() == before
    assert "[kb, " in screen(QUESTIONS[1])
    assert len(session.turns) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_at_the_prompt_goes_on_and_ends_what_is_piped(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_lines = iter([KeyboardInterrupt(), QUESTIONS[0], EOFError()])

    def typed(_: str = "") -> str:
        line = next(given_lines)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", typed)
    screen = Screen(session, interactive=True)
    screen.chat.run()
    assert len(session.turns) == 1
    said = screen.file.getvalue()
    assert said.startswith("\n")  # the next prompt begins a line
    assert said.endswith("\n\n")
    given_lines = iter([KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        Screen(session).chat.run()


def test_a_pipe_is_utf8_whatever_the_locale_says(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = "Où est Lima, 東京?\n".encode() + b"caf\xe9?\n"
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="latin-1"))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    with pytest.raises(SystemExit, match=r"^1$"):
        run_chat(session, [], None, 0)
    sys.stdout.flush()
    said = written.getvalue().decode("utf-8")
    assert "> Où est Lima, 東京?\n" in said
    assert said.endswith("error: not UTF-8: this line is skipped\n")


@pytest.mark.parametrize("terminals", [(True, True), (True, False), (False, True), (False, False)])
def test_a_chat_is_typed_only_between_two_terminals(
    terminals: tuple[bool, bool], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed, done = [], list[str]()

    class Made(TerminalChat):
        def run(self) -> None:
            typed.append(self.interactive)
            done.append("run")
            self.num_errors += 1

    for name in ("warm_up", "close"):
        monkeypatch.setattr(session, name, partial(done.append, name))
    monkeypatch.setattr("turngraph.inference.chat.TerminalChat", Made)
    for stream, terminal in zip(("stdin", "stdout"), terminals, strict=True):
        given = io.StringIO()
        given.isatty = lambda terminal=terminal: terminal
        monkeypatch.setattr(f"sys.{stream}", given)
    with nullcontext() if all(terminals) else pytest.raises(SystemExit, match=r"^1$"):
        run_chat(session, [], None, 3)
    assert typed == [all(terminals)]
    assert done == ["warm_up", "run", "close"]


def test_a_chat_that_is_broken_off_closes_its_session(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = list[bool]()
    monkeypatch.setattr(session, "warm_up", ctrl_c)
    monkeypatch.setattr(session, "close", lambda: closed.append(True))
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}", io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        run_chat(session, [], None, 3)
    assert closed == [True]


def test_what_is_saved_can_be_read_answered_and_trained_on(
    session: Session, graph_checkpoint: str, tmp_path: Path
) -> None:
    screen, path = Screen(session), tmp_path / "new" / "peru.jsonl"
    screen(*QUESTIONS)
    assert "saved: " in screen(f"/save {path}")
    (found,) = read_conversations(path)
    assert found.id == "peru"
    for turn, finished in zip(found.turns, session.turns, strict=True):
        record, example = finished.record, finished.example
        assert (turn.id, turn.question) == (record["turn"], record["question"])
        assert [answer.label for answer in turn.answers] == [record["answer"]] * bool(
            record["answer"]
        )
        assert turn.evidence == tuple(item.evidence for item in example.evidence)
    output = tmp_path / "answers.jsonl"
    options = ["--checkpoint", graph_checkpoint, "--input", path, "--output", output]
    infer.main(["answer", *map(str, options), "--max_new_tokens", "8"])
    first = json.loads(output.read_text(encoding="utf-8").splitlines()[0])
    assert {item["id"] for item in first["evidence"]} == {e.id for e in found.turns[0].evidence}


def test_saving_writes_over_nothing_unless_told(session: Session, tmp_path: Path) -> None:
    screen, path = Screen(session), tmp_path / "a file.jsonl"
    screen(*QUESTIONS[:2])
    path.write_text("mine", encoding="utf-8")
    said = screen(f"/save {path}")
    assert f"error: {path} exists already; /save! {path} replaces it" in said
    with pytest.raises(ValueError, match="exists already"):
        session.save(path)
    assert path.read_text(encoding="utf-8") == "mine"
    screen(f"/save! {path}")
    assert len(read_conversations(path)[0].turns) == 2
    assert "error: " in screen(f"/save {tmp_path}")
    assert "error: " in screen(f"/save! {tmp_path}")
    assert "error: " in screen(f"/save {tmp_path / ('x' * 300)}")
    assert "error: ~nobody-here/x.jsonl: " in screen("/save ~nobody-here/x.jsonl")
    assert len(session.turns) == 2


@pytest.mark.slow
def test_as_a_script_runs_it(graph_checkpoint: str, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, no colour, no UTF-8 locale; and an exit code that says it."""
    command = [sys.executable, "infer.py", "chat", "--checkpoint", graph_checkpoint]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [*command, "--evidence", str(pool_file(tmp_path)), "--max_new_tokens", "4"],
        cwd=ROOT,
        input="Où est Lima, 東京?\n".encode() + b"caf\xe9?\n/evidence\n",
        capture_output=True,
        timeout=PATIENCE,
        env=environment | {"TERM": "dumb", "NO_COLOR": "1"},
    )
    said = done.stdout.decode("utf-8")
    assert done.returncode == 1
    assert "> Où est Lima, 東京?\n" in said
    assert "error: not UTF-8: this line is skipped\n" in said
    assert said.count("> ") == 2
    assert "\x1b" not in said
    assert "Traceback" not in done.stderr.decode("utf-8")


def test_new_begins_another_conversation_over_the_same_evidence(session: Session) -> None:
    screen = Screen(session)
    screen(QUESTIONS[0], QUESTIONS[1])
    first, indexes = session.turns[0], dict(session.builder.retrieval.indexes)
    said = screen("/new", QUESTIONS[0])
    assert "a new conversation" in said
    assert len(session.turns) == 1
    assert session.turns[0].text == first.text
    assert evidence_of(session.turns[0].example) == evidence_of(first.example)
    assert session.builder.retrieval.indexes == indexes
    assert "error: no question was answered yet" in screen("/new", "/why")


def test_a_chat_that_outgrows_the_model_leaves_out_its_oldest_turns(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session.ask(QUESTIONS[0])
    limit = prompt_length(session.ask(QUESTIONS[1]).example) + session.max_new_tokens + 40
    monkeypatch.setattr(EvidenceModel, "max_tokens", limit)
    counts = []
    for number in range(8):
        turn = session.ask(f"{QUESTIONS[1]} {number}")
        counts.append(turn.num_left_out)
        assert prompt_length(turn.example) + session.max_new_tokens <= limit
        assert f"{QUESTIONS[1]} {number}" in decoded(session, turn)
    assert counts == sorted(counts)
    assert counts[-1] > 0
    assert QUESTIONS[0] not in decoded(session, turn)
    told = [r for r in caplog.messages if "longer than the model" in r]
    assert len(told) == len(set(counts) - {0})  # once for each turn that is left out, not for all
    assert f"the first {counts[-1]} of " in told[-1]
    assert len(session.interaction) == 10  # the conversation is whole
    for _ in range(10):
        session.undo()
    assert session.ask(QUESTIONS[0]).num_left_out == 0


def test_a_long_dialogue_is_tokenised_twice_and_without_the_lock(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.ask(QUESTIONS[0])
    limit = prompt_length(session.ask(QUESTIONS[1]).example) + session.max_new_tokens + 40
    monkeypatch.setattr(EvidenceModel, "max_tokens", limit)
    fresh = Session(session.model, session.builder, CONVERSATION.evidence, None, 8)
    record = {"question": QUESTIONS[1], "answer": "Lima", "logprob": 0.0}
    parts, lengths = Prompt.parts, list[int]()

    def noted(prompt: Prompt, interaction: Interaction, question: str) -> Any:
        assert not lock.locked() or not interaction  # nobody waits for it
        lengths.append(len(interaction))
        return parts(prompt, interaction, question)

    monkeypatch.setattr(Prompt, "parts", noted)
    lock = threading.Lock()
    fresh.building = lambda: lock
    fresh.resume([(record, None)] * 64)
    assert sum(lengths) == 0
    turn = fresh.ask(QUESTIONS[2])
    assert sum(lengths) < 2 * 64 + 8  # turns: a trial has half of those before
    kept = 64 - turn.num_left_out
    assert 0 < kept < 8
    longer = parts(fresh.builder.prompt, fresh.interaction[: kept + 1], QUESTIONS[2])[1]
    added = len(longer) - len(turn.example.suffix_ids)
    assert prompt_length(turn.example) <= limit - 8 < prompt_length(turn.example) + added
    fresh.undo()
    assert fresh.why().passages  # of a turn whose dialogue is tokenised for it
    assert lengths[-1] > 0


def test_a_question_that_nobody_waits_for_any_more_ends_between_its_steps(
    session: Session,
) -> None:
    record = {"question": QUESTIONS[0], "answer": "Lima", "logprob": 0.0}
    checks = [True, True]

    def check() -> None:
        if not checks:
            raise TimeoutError
        checks.pop()

    session.check = check
    with pytest.raises(TimeoutError):
        session.resume([(record, None)] * 64)
    assert len(session.turns) == 2
    with pytest.raises(TimeoutError):
        session.ask(QUESTIONS[1])
    assert len(session.turns) == 2


def decoded(session: Session, turn: ChatAnswer) -> str:
    return str(session.builder.prompt.tokenizer.decode(turn.example.suffix_ids))


def test_a_chat_whose_input_is_closed_is_one_line(
    graph_checkpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SystemExit) as ended:
        run_cli(lambda: infer.main(["chat", "--checkpoint", graph_checkpoint]))
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: standard input: closed"
