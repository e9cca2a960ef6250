"""The predictions file: resumed from its journal, whatever the disk and the user do to both."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turngraph.inference.output import AnswerFile

SETTINGS = {"checkpoint": "abc"}
RECORDS: dict[int, dict[str, Any]] = {n: {"answer": f"a{n}"} for n in range(3)}


def answered(path: Path, *numbers: int, finish: bool = False) -> AnswerFile:
    with AnswerFile(path, SETTINGS, len(RECORDS), False) as file:
        file.begin()
        file.add({number: RECORDS[number] for number in numbers})
        if finish:
            file.finish()
    return file


def whole(path: Path) -> str:
    answered(path, *RECORDS, finish=True)
    return path.read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense\n", "line 2: not JSON"),
        (b"\xff\n", "line 2: not UTF-8 at byte 1"),
        (b"[" * 50_000 + b"\n", "line 2: not JSON: too deep"),
        (b"[" + b"9" * 5000 + b", {}]\n", "line 2: not JSON: a number has 5000 digits"),
        (b'["x", {}]\n', "line 2: damaged, not an answer of this run; --fresh starts over"),
        (b'[3, {"answer": "a"}]\n', "line 2: damaged, not an answer of this run"),
        (b'[-1, {"answer": "a"}]\n', "line 2: damaged, not an answer of this run"),
        (b"[1, []]\n", "line 2: damaged, not an answer of this run"),
        (b"[1, {}]\n", "line 2: damaged, not an answer of this run"),
        (b'[1, {"answer": 7}]\n', "line 2: damaged, not an answer of this run"),
        (b"{}\n", "line 2: damaged, not an answer of this run"),
    ],
)
def test_a_damaged_journal_names_file_and_line(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "out.jsonl"
    answered(path, 0)
    journal = tmp_path / "out.jsonl.unfinished"
    journal.write_bytes(journal.read_bytes() + line)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"^{journal}, {message}"):
        answered(path, 1)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": ' * 20_000, '{"a": ' + "9" * 5000 + "}"])
def test_damaged_settings_are_named(tmp_path: Path, text: str) -> None:
    answered(tmp_path / "out.jsonl", 0)
    (tmp_path / "out.jsonl.run.json").write_text(text)
    with pytest.raises(ValueError, match=r"out\.jsonl\.run\.json: damaged.*--fresh starts over"):
        AnswerFile(tmp_path / "out.jsonl", SETTINGS, 3, False)


@pytest.mark.parametrize(("before", "now"), [({}, {"corpus": "x"}), ({"corpus": "x"}, {})])
def test_a_setting_that_only_one_of_two_runs_has_keeps_them_apart(
    before: dict[str, str], now: dict[str, str], tmp_path: Path
) -> None:
    with AnswerFile(tmp_path / "out.jsonl", SETTINGS | before, 3, False) as file:
        file.begin()
    with pytest.raises(ValueError, match=r"out\.jsonl: begun with corpus .*, now .* given: "):
        AnswerFile(tmp_path / "out.jsonl", SETTINGS | now, 3, False)


def test_all_answers_are_on_the_disk_before_the_journal_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "out.jsonl", list[tuple[int, bool]]()

    def sync(handle: int) -> None:
        if os.path.samestat(os.fstat(handle), path.stat()):
            synced.append((os.fstat(handle).st_size, Path(f"{path}.unfinished").exists()))

    monkeypatch.setattr(os, "fsync", sync)
    text = whole(path)
    assert synced[-1:] == [(len(text), True)]


def test_a_full_disk_loses_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole(tmp_path / "expected.jsonl")
    path = tmp_path / "out.jsonl"
    file = AnswerFile(path, SETTINGS, 3, False)
    with pytest.raises(ValueError, match=r"out\.jsonl\.unfinished: cannot be written: No space"):
        fill_the_disk(file)
    assert path.read_text() == '{"answer": "a0"}\n'
    file = AnswerFile(path, SETTINGS, 3, False)
    with file:
        file.begin()
        assert file.known == {0: RECORDS[0]}
        file.add({1: RECORDS[1], 2: RECORDS[2]})
        file.finish()
    assert path.read_text() == expected


def fill_the_disk(file: AnswerFile) -> None:
    class Full:
        """A journal on a full disk: a part of a line is taken."""

        def __init__(self, journal: Any) -> None:
            self.journal = journal

        def write(self, text: bytes) -> None:
            self.journal.write(text[:5])
            self.journal.flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            self.journal.close()

    with file:
        file.begin()
        file.add({0: RECORDS[0]})
        file._files[1] = Full(file._files[1])  # type: ignore[call-overload]
        file.add({1: RECORDS[1]})


def test_nothing_lies_beside_a_device(tmp_path: Path) -> None:
    for _ in range(2):  # nothing to resume
        answered(Path("/dev/null"), *RECORDS, finish=True)
    assert not [path for path in Path("/dev").iterdir() if path.name.startswith("null.")]
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    answered(tmp_path / "pipe", *RECORDS, finish=True)
    assert os.read(reading, 10_000).decode() == whole(tmp_path / "out.jsonl")
    os.close(reading)
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "out.jsonl", "out.jsonl.run.json"}


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_whether_the_run_begins_or_not(tmp_path: Path, there: bool) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    if there:
        target.touch()
    with AnswerFile(link, SETTINGS, 3, False):
        pass  # it failed before its first answer
    assert link.is_symlink()
    assert target.exists() == there
    text = whole(link)
    assert link.is_symlink()
    assert target.read_text() == text


@pytest.mark.parametrize(("name", "number"), [("", errno.EISDIR), ("x" * 300, errno.ENAMETOOLONG)])
def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str, number: int) -> None:
    def begin() -> None:
        with AnswerFile(tmp_path / name, SETTINGS, 3, False):
            pass

    check: Callable[[], None] = begin
    with pytest.raises((ValueError, OSError), match=os.strerror(number)):
        check()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_stopped_before_its_first_answer_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.unfinished").touch()
    answered(tmp_path / "out.jsonl", 0)
    assert (tmp_path / "out.jsonl.run.json").is_file()
    assert whole(tmp_path / "out.jsonl") == whole(tmp_path / "other.jsonl")
