"""What lies in a folder of documents and is no document: links, pipes, devices, odd names."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from turngraph.data.jsonlines import read_pool
from turngraph.data.sources import readers
from turngraph.data.sources.document import Unreadable
from turngraph.data.sources.html_text import MAX_DEPTH, is_nested_deep
from turngraph.data.sources.pool import main, read_documents
from turngraph.inference.evidence import read_evidence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one document, beside another one."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(f"Lima is {name}.")
    return tmp_path / "in"


def ids(folder: Path) -> list[str]:
    return [passage.id for passage in read_documents(folder)]


def link(path: Path, target: str) -> None:
    path.symlink_to(target)


REFUSED = {
    "out": (lambda path: link(path, "../out/a.txt"), "a link that leads out of the folder"),
    "nowhere": (lambda path: link(path, "gone.txt"), "a link that leads nowhere"),
    "circle": (lambda path: link(path, path.name), "a link that leads in a circle"),
    "same": (lambda path: link(path, "a.txt"), "a link to a file that is read by itself"),
    "parent": (lambda path: link(path, ".."), "a link that leads out of the folder"),
    "itself": (lambda path: link(path, "."), "a link to a folder"),
    "device": (lambda path: link(path, "/dev/zero"), "a link that leads out of the folder"),
    "pipe": (os.mkfifo, "a pipe"),
    "socket": (lambda path: socket.socket(socket.AF_UNIX).bind(str(path)), "a socket"),
}


@pytest.mark.parametrize("name", ["b.txt", "b"])
@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_file_of_the_folder_is_named_and_skipped(
    folder: Path,
    make: object,
    reason: str,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)  # the name of a socket is limited
    assert callable(make)
    make(Path(name))
    assert ids(folder) == ["a.txt#0"]
    if name == "b" and Path(name).is_file():  # what lies there is no document
        assert "1 file of other kinds not read: b" in caplog.text
        return
    assert f"skipped {folder}/{name}: {reason}" in caplog.text
    with pytest.raises(Unreadable, match=f"/{name}: {reason}"):
        read_documents(folder, strict=True)


def test_a_device_is_named_and_skipped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    try:
        os.mknod(folder / "zero.txt", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")
    assert ids(folder) == ["a.txt#0"]
    assert "zero.txt: a device" in caplog.text


def test_a_single_pipe_is_an_error_and_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.txt")
    with pytest.raises(Unreadable, match=r"pipe.txt: not a regular file"):
        read_documents(folder / "pipe.txt")
    with pytest.raises(Unreadable, match=r"pipe.txt: not a regular file"):
        read_evidence([str(folder / "pipe.txt")])


def test_a_link_to_a_file_that_is_not_read_by_itself_is_read(folder: Path) -> None:
    (folder / "blob").write_text("Oslo is cold.")
    link(folder / "b.txt", "blob")
    link(folder / "c.txt", "blob")
    assert ids(folder) == ["a.txt#0", "b.txt#0"]


def test_a_folder_that_is_a_link_is_read(folder: Path) -> None:
    link(folder.parent / "link", "in")
    assert ids(folder.parent / "link") == ["a.txt#0"]


def test_a_name_that_is_not_utf_8_is_shown_with_its_bytes(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (b"caf\xe9.txt", b"caf\xe8.txt", b"\xff.csv"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"Oslo is cold.\n")
    main(["--input", str(folder), "--output", str(folder.parent / "pool.jsonl")])
    passages = list(read_pool(folder.parent / "pool.jsonl"))
    names = ["a.txt#0", r"caf\xe8.txt#0", r"caf\xe9.txt#0"]
    assert [passage.id for passage in passages] == names
    assert passages[1].text == r"caf\xe8, Oslo is cold."
    assert rf"skipped {folder}/\xff.csv: nothing to read in it" in caplog.text


def test_files_and_folders_without_permission_are_named(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "b.txt").write_text("Secret.")
    (folder / "sub").mkdir()
    read_bytes, scandir = Path.read_bytes, os.scandir

    def read(path: Path) -> bytes:
        if path.name == "b.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return read_bytes(path)

    def scan(path: str) -> object:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    monkeypatch.setattr(os, "scandir", scan)
    assert ids(folder) == ["a.txt#0"]
    assert f"skipped {folder}/b.txt: cannot be read: Permission denied" in caplog.text
    assert f"skipped {folder}/sub: cannot be read: Permission denied" in caplog.text
    assert "2 files skipped: cannot be read (2)" in caplog.text


@pytest.mark.parametrize(("name", "limit"), [("b.txt", "MAX_BYTES"), ("b.html", "MAX_HTML_BYTES")])
def test_a_file_that_is_too_large_is_not_read(
    folder: Path,
    name: str,
    limit: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (folder / name).open("wb") as file:
        file.truncate(3 << 20)
    monkeypatch.setattr(readers, limit, 2 << 20)
    assert ids(folder) == ["a.txt#0"]
    assert f"skipped {folder}/{name}: too large: 3 MiB, at most 2 are read" in caplog.text


def test_open_elements_of_a_name_are_counted_and_closed_ones_are_not() -> None:
    assert not is_nested_deep("<div>" * MAX_DEPTH)
    assert is_nested_deep("<div>" * (MAX_DEPTH + 1))
    closed = "<div></div>" + "<div><div></div>" * (MAX_DEPTH - 1)
    assert not is_nested_deep(f"{closed}<div>")
    assert is_nested_deep(f"{closed}<div><div>")


@pytest.mark.parametrize("name", ["b.html", "b.md"])
@pytest.mark.parametrize("depth", [700, 200_000])
def test_a_page_that_is_nested_too_deep_is_named(
    folder: Path, name: str, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / name).write_text("<div>" * depth + "Some text.")
    with caplog.at_level(logging.INFO):
        found = ids(folder)
    is_read = name == "b.md" and depth == 700
    assert found == ["a.txt#0", *(["b.md#0"] if is_read else [])]
    assert (f"{name}: nested too deep to be read" in caplog.text) == (not is_read)


def test_unclosed_tags_that_a_parser_closes_are_not_deep(folder: Path) -> None:
    rows = "".join(f"<tr><td>{n}<td>Lima<br>" for n in range(1000))
    (folder / "b.html").write_text(f"<table>{rows}</table>" + "<p>Lima is old." * 1000)
    assert len(ids(folder)) == 2001
