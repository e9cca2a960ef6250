"""How commands fail: one line and exit code 2, whatever the system refuses; never a traceback."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from turngraph import memory
from turngraph.configs.json_files import read_json_object
from turngraph.configs.parse import load_config
from turngraph.configs.user_error import UserError
from turngraph.data.cli import CommandParser, run_cli, visible
from turngraph.data.outputs import whole_file
from turngraph.data.scoring.console import PipedConsole
from turngraph.inference.memory_printing import print_json

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def check_shapes(num: int) -> None:
    """Fail as a library does."""
    raise ValueError(f"shapes: {num}")


def failing(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that raises an error."""

    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as stopped:
        run_cli(main)
    assert stopped.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_an_error_of_the_system_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    number, reason = errno.ENOSPC, os.strerror(errno.ENOSPC)
    assert failing(OSError(number, reason, "my.db"), capsys) == f"error: my.db: {reason}"
    assert failing(OSError(number, reason), capsys) == f"error: {reason}"
    assert failing(OSError(number, reason, b"caf\xe9"), capsys) == f"error: caf\ufffd: {reason}"


def test_what_a_user_can_mend_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(OSError("no such\nmodel"), capsys) == "error: no such model"
    assert failing(ConnectionError("refused"), capsys) == "error: refused"
    assert failing(UserError("\x1b[2Jbad\x9b name \u202e"), capsys) == (
        "error: \u241b[2Jbad\ufffd name \ufffd"
    )


@pytest.mark.parametrize("error", [ValueError("shapes"), KeyError("x"), AssertionError("no")])
def test_a_mistake_of_ours_is_not_caught(error: Exception) -> None:
    def main() -> None:
        raise error

    with pytest.raises(type(error)) as raised:  # Python prints it with its traceback, and exits 1
        run_cli(main)
    assert raised.value is error


def test_a_traceback_is_shown_where_one_is_asked_for() -> None:
    bad = ["-m", "turngraph", "train", "--config", "none.yaml"]
    plain = subprocess.run([sys.executable, *bad], check=False, capture_output=True, text=True)
    assert plain.returncode == 2
    [line] = plain.stderr.splitlines()
    for more, variables in ((["--traceback"], {}), ([], {"TURNGRAPH_TRACEBACK": "1"})):
        shown = subprocess.run(
            [sys.executable, *bad, *more],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | variables,
        )
        assert shown.returncode == 2
        head, *_, last = shown.stderr.splitlines()
        assert head.startswith("Traceback")
        assert last == line


def test_of_several_processes_the_one_that_fails_says_which(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    assert failing(UserError("bad"), capsys) == "rank 2 of 4: error: bad"
    with pytest.raises(ValueError, match="shapes"):
        run_cli(partial(check_shapes, 2))
    assert capsys.readouterr().err == "rank 2 of 4: failed:\n"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", re.sub("^turngraph", f"{sys.executable} -m turngraph", command)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize("command", ["configs", "memory --help"])
def test_standard_output_that_is_full_closed_or_not_read(command: str) -> None:
    full = shell(f"turngraph {command} > /dev/full")
    assert full.returncode == 2
    assert full.stderr == "error: standard output: No space left on device\n"
    closed = shell(f"turngraph {command} >&-")
    assert (closed.returncode, closed.stderr) == (0, "")
    unread = shell(f"turngraph {command} | true; exit ${{PIPESTATUS[0]}}")
    assert unread.returncode in (0, 141)
    assert unread.stderr == ""


def test_standard_input_that_is_closed_is_an_error_of_one_line(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(
        "from turngraph.data.cli import run_cli\n"
        "import sys\n"
        "run_cli(lambda: print(input() if sys.argv[1:] else list(sys.stdin)))\n"
    )
    for more in ("", "typed"):
        done = shell(f"{sys.executable} {script} {more} <&-")
        assert (done.returncode, done.stderr) == (2, "error: standard input: closed\n")


def test_a_descriptor_that_was_closed_is_not_given_to_a_file(tmp_path: Path) -> None:
    """Else what is printed would be written into the next file that is opened."""
    script = tmp_path / "write.py"
    script.write_text(
        "from turngraph.data.cli import run_cli\n"
        "import os, sys\n"
        "def main():\n"
        "    with open(sys.argv[1], 'w') as file:\n"
        "        os.write(1, b'to standard output')\n"
        "        assert file.fileno() > 2\n"
        "run_cli(main)\n"
    )
    done = shell(f"{sys.executable} {script} {tmp_path / 'file'} <&- >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "file").read_text() == ""


def test_names_that_are_not_utf_8_are_printed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    name = os.fsdecode(b"caf\xe9.db")
    run_cli(lambda: print(name))
    assert capfdbinary.readouterr().out == b"caf\\udce9.db\n"


def test_control_characters_are_visible() -> None:
    assert visible("a\x00\x1b\n\t\x7f") == "a\u2400\u241b\u240a\u2409\u2421"
    hidden = "\x80\x9b\u2028\u2029" + BIDI + "\udce9"
    assert visible(hidden) == "\ufffd" * len(hidden)
    shown = "A caf\xe9, \u4eac, \u0639\u0627\u0635\u0645\u0629, \U0001f469\u200d\U0001f467 $\xa05"
    assert visible(shown) == shown


def test_messages_and_usage_have_no_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    run_cli(lambda: logging.getLogger("x").warning("a \x1b[31m\nERROR \u202e %s", "\x9b2J"))
    assert capsys.readouterr().err == "WARNING a \u241b[31m\u240aERROR \ufffd \ufffd2J\n"
    with pytest.raises(SystemExit):
        CommandParser(prog="p").parse_args(["\x1b[2J\u202e"])
    assert "\u241b[2J\ufffd" in capsys.readouterr().err


def test_printed_json_escapes_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": "\x1b[31m \x9b2J \u202e \xe9"})
    assert capsys.readouterr().out == '{"text": "\\u001b[31m \\u009b2J \\u202e \xe9"}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ' * 20_000, "damaged, not JSON: too deep"),
        ('{"format": ' + "9" * 5000 + "}", "damaged, not JSON"),
        ('{\n"format": }', r"damaged, not JSON \(line 2, column 11\)"),
        ("[1]", "damaged, not a JSON object"),
    ],
)
def test_damaged_json_names_file_and_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"^{path}: {message}"):
        read_json_object(path)


NINES = "9" * 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"training:\n  max_steps: {NINES}\n", "line 2, field training.max_steps: not a value"),
        (
            f"training:\n  max_steps: 0x{'f' * 5000}\n",
            "line 2, field training.max_steps: a number of thousands of digits given",
        ),
        ("data:\n  train: " + "[" * 700, "line 2: not YAML: too deep"),
        ("data:\n" + "".join(f"{'  ' * n}a{n}:\n" for n in range(1, 900)), "not YAML: too deep"),
        ("training:\n  learning_rate: -.inf\n", "field training.learning_rate: -inf given"),
        ("model: &a\n  x: *a\n", "line 2, field model.x: unknown"),
    ],
)
def test_odd_yaml_names_file_and_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"^config {path}, .*{message}") as error:
        load_config(["--config", str(path)])
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("value", [NINES, "[" * 700, "0x" + "f" * 5000, ".nan", "1e999"])
@pytest.mark.parametrize("name", ["training.max_steps", "training.learning_rate"])
def test_odd_values_of_options_are_named_and_cut(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^option --{name}: .* given, must be a ") as error:
        load_config([f"--{name}={value}"])
    assert len(str(error.value)) < 250


def test_a_closed_pipe_of_a_table_is_left_to_the_command() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    console = PipedConsole(file=Closed())
    with pytest.raises(BrokenPipeError):
        console.print("text")


def test_links_in_a_circle_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    reason = os.strerror(errno.ELOOP)
    options = ["export", "--db", str(tmp_path), "--jsonl", str(tmp_path / "a")]
    with pytest.raises(SystemExit) as stopped:
        run_cli(lambda: memory.main(options))
    assert stopped.value.code == 2
    said = f"a: cannot be written: {reason}"
    with pytest.raises(ValueError, match=said), whole_file(tmp_path / "a"):
        pass
    assert "Traceback" not in capsys.readouterr().err
