"""Every file that a command writes: devices stay devices, links stay links, permissions stay."""

from __future__ import annotations

import argparse
import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turngraph import infer, memory
from turngraph.benchmarks.study import run_study
from turngraph.data import outputs
from turngraph.data.cli import run_cli
from turngraph.data.jsonlines import dump, write_conversations
from turngraph.data.outputs import whole_file
from turngraph.data.sources import pool
from turngraph.tests.tiny import tiny_conversation

Write = Callable[[Path], None]
MAINS: dict[str, Callable[[Any], None]] = {
    "infer": infer.main,
    "memory": memory.main,
    "pool": pool.main,
    "study": run_study.main,
}
WHOLE_FILES = {
    "infer.py answer --explain",
    "infer.py answer --output",
    "infer.py score --output_json",
    "turngraph memory export --graphml",
    "turngraph memory export --html",
    "turngraph memory export --jsonl",
    "turngraph memory export --shacl",
    "turngraph memory export --themes",
    "turngraph memory export --trig",
    "turngraph pool --output",
}
"""Outputs that may have a name that something has already."""
PRIVATE = {name for name in WHOLE_FILES if "memory" in name and "--shacl" not in name}
NEW_ONLY = {
    "infer.py export --output",
    "infer.py export --prompts",
    "turngraph memory backup --output",
}
"""Outputs whose name must be free."""
FOLDERS = {"turngraph memory remember_all --db_dir", "turngraph study --output"}
READ_OR_NAMED = set(
    "--add --add_user --address --api_key_variable --as_of --backup --base --base_model --base_url "
    "--checkpoint --config --corpus --data --db --device --drop --embedder --host "
    "--endpoint --entity --evidence --grant --input --memory --memory_dir --mixture --model --name "
    "--ontology --plan_model --predictions --question --ray --rdf --reader "
    "--response_format --rows --set --size --source --speaker --tenant --token_limit --tokens "
    "--trust_remote_code --update --url".split()
)
"""Options that name no output."""


class Parsed(Exception):
    """A parser is complete."""


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command line and of each command in it."""

    def take(self: argparse.ArgumentParser, *_: Any) -> None:
        raise Parsed(self)

    for main in MAINS.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(argparse.ArgumentParser, "parse_known_args", take)
            with pytest.raises(Parsed) as caught:
                main([])
        waiting = [caught.value.args[0]]
        while waiting:
            yield (parser := waiting.pop())
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    waiting += action.choices.values()


def test_every_option_that_takes_a_text_is_known_to_this_file() -> None:
    found = {
        f"{parser.prog} {option}"
        for parser in parsers()
        for action in parser._actions
        for option in action.option_strings
        if action.nargs != 0 and action.choices is None and action.type in (None, str)
    }
    known = WHOLE_FILES | NEW_ONLY | FOLDERS
    assert known <= found
    others = {name.rpartition(" ")[2] for name in found - known}
    assert others - READ_OR_NAMED == set(), "an output? then it needs a row in the tables above"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "documents").mkdir()
    (folder / "documents" / "lima.txt").write_text("Lima is the capital of Peru.\n")
    (folder / "notes.txt").write_text("Anna lives in Paris. Anna works at the Louvre.\n")
    memory.main(["remember", "--db", str(folder / "my.db"), "--input", str(folder / "notes.txt")])
    texts = [
        f"Anna planted {plant}." for plant in "roses tulips beans peas mint sage leeks".split()
    ]
    (folder / "plants.txt").write_text("\n\n".join([*texts, "Anna sold kale."]))
    themed = ["--db", str(folder / "themed.db")]
    memory.main(["remember", *themed, "--input", str(folder / "plants.txt")])
    memory.main(["themes", *themed, "--no_embed"])
    write_conversations(folder / "in.jsonl", [tiny_conversation(0)])
    line = {"conversation": "a", "turn": "0", "answer": "b", "candidates": []}
    gold = {"gold": [{"label": "b"}], "turn_index": 0}
    (folder / "predictions.jsonl").write_text(dump(line | gold) + "\n")
    return folder


@pytest.fixture(params=sorted(WHOLE_FILES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def write(name: str, sources: Path, graph_checkpoint: str, tmp_path: Path) -> Write:
    """Run the command that writes an output, without what turns errors into exit codes."""
    *_, command, option = name.split()

    graph = "themed.db" if option == "--themes" else "my.db"

    def run(path: Path) -> None:
        given = {
            "answer": (infer.main, "answer", "--checkpoint", graph_checkpoint),
            "score": (infer.main, "score", "--predictions", sources / "predictions.jsonl"),
            "export": (memory.main, "export", "--db", sources / graph),
            "pool": (pool.main, "--input", sources / "documents"),
        }
        main, *arguments = given[command]
        if command == "answer":
            arguments += ["--input", sources / "in.jsonl", "--max_new_tokens", 2]
        if option == "--explain":
            arguments += ["--output", tmp_path / "explained.jsonl"]
        main([*map(str, arguments), option, str(path)])

    return run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def read_from(pipe: Path, write: Write) -> bytes:
    """What a reader of a pipe gets while something writes it."""
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    reader.join(60)
    return b"".join(got)


def test_a_pipe_is_written_to_and_a_link_stays(name: str, write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    assert len(read_from(folder / "pipe", write)) > 20
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)
    assert names(folder) == {"pipe"}  # nothing is left beside it

    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "target"
    target.write_bytes(b"")
    target.chmod(0o640)
    (folder / "link").symlink_to(target)
    write(folder / "link")
    assert (folder / "link").readlink() == target
    assert target.stat().st_size > 20
    assert mode(target) == (0o600 if name in PRIVATE else 0o640)  # an empty file is a new one


def test_permissions_are_kept_and_what_is_private_is_made_so(
    name: str, write: Write, tmp_path: Path
) -> None:
    umask = os.umask(0o022)
    try:
        write(tmp_path / "new")
    finally:
        os.umask(umask)
    assert mode(tmp_path / "new") == (0o600 if name in PRIVATE else 0o644)
    if name.endswith("answer --output"):
        return  # with answers of another run in it, it is refused
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o660)
    write(tmp_path / "old")
    assert mode(tmp_path / "old") == 0o660
    assert (tmp_path / "old").read_text() != "old"


def test_what_cannot_be_written_is_one_line_with_its_name(
    name: str, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for path, reason in (
        (Path("/dev/full"), os.strerror(errno.ENOSPC)),
        (folder, os.strerror(errno.EISDIR)),
        (folder / ("long" * 80), os.strerror(errno.ENAMETOOLONG)),
        (tmp_path / "out.txt" / "below", os.strerror(errno.ENOTDIR)),
    ):
        (tmp_path / "out.txt").write_text("a file")
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run_cli(lambda path=path: write(path))  # type: ignore[misc]
        last = capsys.readouterr().err.strip().splitlines()[-1]
        assert stopped.value.code == 2, last
        assert last.startswith(f"error: {path}")
        assert reason in last
    assert names(folder) == set()


def test_names_that_must_be_free_are_refused(
    sources: Path, graph_checkpoint: str, tmp_path: Path
) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    exported = ["export", "--checkpoint", graph_checkpoint]
    conversations = ["--input", str(sources / "in.jsonl")]
    for path in map(str, (tmp_path / "link", tmp_path / "pipe", Path("/dev/null"))):
        with pytest.raises(ValueError, match="already there"):
            memory.main(["backup", "--db", str(sources / "my.db"), "--output", path])
        with pytest.raises(ValueError, match="exists already"):
            infer.main([*exported, "--output", path])
        with pytest.raises(ValueError, match="exists already"):
            infer.main([*exported, *conversations, "--prompts", path])
    assert (tmp_path / "target").read_text() == "mine"


def test_standard_output_gets_the_file_and_nothing_else(sources: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "turngraph", "memory", "export", "--db", sources / "my.db"]
    memory.main(["export", "--db", str(sources / "my.db"), "--jsonl", str(tmp_path / "a")])
    for stdout in (subprocess.PIPE, (tmp_path / "b").open("wb")):
        done = subprocess.run(
            [*map(str, command), "--jsonl", "/dev/stdout"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=True,
        )
        got = done.stdout if stdout is subprocess.PIPE else (tmp_path / "b").read_bytes()
        assert got == (tmp_path / "a").read_bytes()
        assert b"lines written to /dev/stdout" in done.stderr
    assert Path("/dev/stdout").is_symlink()


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(f"new {1 / 0}")
    assert path.read_text() == "old"
    assert names(tmp_path) == {"file"}


def test_a_full_disk_names_the_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(outputs.os, "fsync", fail)
    said = f"file: cannot be written: {os.strerror(errno.EIO)}"
    with pytest.raises(ValueError, match=said), whole_file(path) as file:
        file.write("new")
    assert path.read_text() == "old"
    assert names(tmp_path) == {"file"}


def test_errors_about_other_files_keep_their_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"), whole_file(tmp_path / "file"):
        (tmp_path / "absent").read_bytes()


def test_a_link_to_nothing_gets_its_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("folder/file")
    with whole_file(tmp_path / "link") as file:
        file.write("text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "text"


def test_a_name_of_255_bytes_can_be_written(tmp_path: Path) -> None:
    with whole_file(tmp_path / ("x" * 255)) as file:
        file.write("text")
    assert (tmp_path / ("x" * 255)).read_text() == "text"
