"""Files that are made to hurt: what one of them takes is bounded, whoever reads it."""

from __future__ import annotations

import io
import multiprocessing
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.sources import document
from turngraph.data.sources.document import Unreadable
from turngraph.data.sources.readers import read_document
from turngraph.inference.evidence import read_evidence
from turngraph.inference.serve import limited_reading
from turngraph.inference.serve.documents import Documents
from turngraph.tests.data.sources.made_documents import (
    docx,
    paragraph,
    pdf,
    pdf_of_texts,
    stream,
    table,
)
from turngraph.tests.growing import assert_grows_linearly, cpu_seconds

LONG_NAMES = """
import json, sys, threading
from pathlib import Path

from turngraph.data.corpus.build import CorpusBuilder
from turngraph.data.corpus.corpus import Corpus
from turngraph.data.corpus.source_files import find_sources
from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.jsonlines import read_conversations
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.inputs import read_episodes
from turngraph.inference.evidence import read_evidence
from turngraph.inference.serve.documents import Documents
from turngraph.tests.data.memory_graph.hashing import Hashing

folder = Path(sys.argv[1])
sign = "\\ufdfa"  # becomes 18 characters when it is folded
long = "Anna " + sign * 3_000 + "x" * 5_000
table = f"<table><tr><th>a<th>b<tr><td>{long}<td>y</table><p>{long} is here."
entity = {"id": "e", "label": long, "mentions": [long[1:]]}
passage = {"id": "p", "text": f"{long} is y.", "source": "kb", "entities": [entity]}
turns = [{"question": "What is y?", "answers": [{"label": long}]}]
files = {
    "a.html": table, "b.csv": f"name,b\\n{long},y\\n", "c.md": f"# T\\n\\n[{long}](x) and y.\\n",
    "d.jsonl": json.dumps(passage), "e.txt": f"{long} knows Bert. \\u201c{long}\\u201d",
}
for name, text in files.items():
    (folder / name).write_text(text, encoding="utf-8")
conversation = {"id": "c", "turns": turns, "evidence": [passage]}
(folder / "conversations.json").write_text(json.dumps(conversation))
paths = [folder / name for name in files]


def read():
    for path in paths:
        entity_spans(read_evidence([path]))
        print(path.name, flush=True)
    for conversation in read_conversations(folder / "conversations.json"):
        entity_spans(conversation.evidence)
    print("conversations", flush=True)
    sources, _ = find_sources(paths)
    CorpusBuilder(folder / "corpus", None).build(sources)
    found = Corpus(folder / "corpus").index("bm25", None).rank("Anna y", 9)
    entity_spans([item.evidence for item in found])
    print("corpus", flush=True)
    with MemoryGraph.open(folder / "my.db", Hashing()) as graph:
        for path in paths:
            graph.remember_many(read_episodes(path))
        graph.ask(f"Where is {long}? Who knows Bert?")
    print("memory", flush=True)
    (folder / "user").mkdir()
    documents = Documents(lambda user: folder / "user", (), len, len)
    for path in paths:
        documents.add("user", path.name, path.read_bytes())
    entity_spans(documents.pool("user"))
    print("served", flush=True)


threading.stack_size(1 << 18)  # a system that gives threads little
thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


def test_a_long_name_ends_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LONG_NAMES, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.split()[-1:] == ["served"], ended.stdout + ended.stderr


LONG = "Anna " * 2_000
NUM = 200
TEXTS = "Fine, is it not so?\n\n" * NUM
ITEMS = "<li>Fine, is it not so?" * NUM
ROWS = "<tr><td>x<td>y" * NUM
REPEATED: dict[str, str | bytes] = {
    "title.md": f"# {LONG}\n\n{TEXTS}",
    "section.md": f"# T\n\n## {LONG}\n\n" + "- Fine.\n" * NUM,
    "header.md": f"| {LONG} | b |\n|---|---|\n" + "| x | y |\n" * NUM,
    "key.md": "---\n" + f"{'k' * len(LONG)}: x\n" * 2 + f"---\n{TEXTS}",
    "header.csv": f"{LONG},b\n" + "x,y\n" * NUM,
    "title.html": f"<title>{LONG}</title><ul>{ITEMS}</ul>",
    "heading.html": f"<h1>T</h1><h2>{LONG}</h2><ul>{ITEMS}</ul>",
    "term.html": f"<h1>T</h1><dl><dt>{LONG}{ITEMS.replace('li', 'dd')}</dl>",
    "header.html": f"<table><tr><th>{LONG}<th>b{ROWS}</table>",
    "headers.html": "<table>" + f"<tr><th colspan=2>{LONG}<th>b" * 99 + f"{ROWS}</table>",
    "box.html": f"<table class=infobox><tr><th>{LONG}{ROWS}</table>" * 2,
    "title.docx": docx(paragraph(LONG, "T") + paragraph("Fine.") * NUM),
    "header.docx": docx(table([LONG, "b"], *[["x", "y"]] * NUM)),
    "title.pdf": pdf_of_texts(["Fine, is it not so?\n \n" * NUM], title=LONG),
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_all_passages_repeat_is_short(name: str, tmp_path: Path) -> None:
    content = REPEATED[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    passages = read_document(path).passages
    assert len(passages) >= NUM
    assert sum(len(passage.text) for passage in passages) < 3 * len(LONG) + 500 * len(passages)


def test_the_passages_of_a_file_are_no_longer_than_a_multiple_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell of many rows is in each of them, as in the page."""
    monkeypatch.setattr(document, "MAX_CHARACTERS", 10_000)
    path = tmp_path / "rows.html"
    for times, is_read in ((5, True), (100, False)):
        rows = "<tr><td>y" * times
        path.write_text(f"<table><tr><td rowspan={times}>{LONG}<td>x{rows}</table>")
        if is_read:
            assert len(read_document(path).passages) >= times
        else:
            with pytest.raises(Unreadable, match="too large: its passages have more than 18"):
                read_document(path)


def shared(num: int) -> bytes:
    """Return a PDF file whose pages all draw the same."""
    pages = " ".join(f"{4 + index} 0 R" for index in range(num))
    page = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 3 0 R>>"
    kids = f"<</Type/Pages/Count {num}/Kids[{pages}]>>"
    drawn = stream("BT ET q Q " * 50 * num)
    return pdf(["<</Type/Catalog/Pages 2 0 R>>", kids, drawn, *[page] * num])


def numbered(template: str, num: int) -> str:
    return "".join(template.replace("%", str(index)) for index in range(num))


GROWING: dict[str, tuple[int, Callable[[int], str | bytes]]] = {
    "cells.html": (400, lambda n: "<table>" + "<tr><td>x<td>y" * n + "</table>"),
    "bold.html": (1500, lambda n: "<b>" * min(n, 900) + "<p>x" * n),
    "names.html": (3000, lambda n: numbered("<a%>", n) + "</q>x" * n),
    "links.html": (400, lambda n: "<p>" + "<a href='/wiki/X'>Ab.</a> Cd. " * n),
    "options.html": (1300, lambda n: "<select>" + "<option>x" * n),
    "headers.html": (200, lambda n: "<table>" + "<tr><th colspan=2>x<th>z" * n + "<tr><td>y" * n),
    "groups.html": (200, lambda n: "<table>" + "<tr><td colspan=2>G<tr><td>x<td>y" * n),
    "wide.html": (500, lambda n: "<table><tr>" + "<th>h" * n + "<tr>" + "<td>x" * n),
    "lines.html": (600, lambda n: "<table><tr><td>" + "x1<br>" * n + "<td>y</table>"),
    "inside.html": (
        90,
        lambda n: (
            "<table>"
            + "".join(f"<tr><td>{'A ' * (i % 30)}<td>y" for i in range(n))
            + f"</table><p>{'A ' * n}"
        ),
    ),
    "short.md": (60, lambda n: "|" + "a|" * n + "\n|" + "-|" * n + "\n" + "|x|\n" * n),
    "links.md": (300, lambda n: numbered("[[Ab%]]. Cd x. ", n)),
    "rows.md": (300, lambda n: "|a|b|\n|-|-|\n" + "|x|y|\n" * n),
    "wide.csv": (1200, lambda n: "a," * n + "\n" + "x\n" * n),
    "marks.csv": (2500, lambda n: "a,b\nA" + "\u0345" * n + "\u0316" * n + ",y"),
    "sentences.txt": (2000, lambda n: "Anna knows Bert. " * n),
    "entities.jsonl": (
        1500,
        lambda n: (
            '{"text": "Anna is", "entities": ['
            + numbered('{"id": "%", "label": "Anna"}, ', n).rstrip(", ")
            + "]}"
        ),
    ),
    "runs.docx": (400, lambda n: docx(paragraph("x y. ") * n)),
    "rows.docx": (120, lambda n: docx(table(*[["x", "y"]] * n))),
    "word.pdf": (3000, lambda n: pdf_of_texts(["a" * n])),
    "shared.pdf": (24, shared),
    "lines.pdf": (500, lambda n: pdf_of_texts(["\n".join(["foo-bar"] * n)])),
}


def seconds_to_read(path: Path, content: str | bytes) -> float:
    """Return the CPU seconds of reading a file and finding its entity spans, or refusing it."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def read() -> None:
        with suppress(UserError):
            entity_spans(read_evidence([path]))

    return cpu_seconds(read)


@pytest.mark.parametrize("name", GROWING)
def test_the_time_of_reading_grows_as_a_file_does(name: str, tmp_path: Path) -> None:
    num, made = GROWING[name]
    assert_grows_linearly(lambda n: seconds_to_read(tmp_path / name, made(n)), num)


def test_of_a_word_file_nothing_but_its_texts_is_unpacked(tmp_path: Path) -> None:
    """A relationship may name any part, of any size."""
    made = docx(paragraph("Fine."))
    path, out = tmp_path / "file.docx", io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(made)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            text = old.read(name).replace(b"word/document.xml", b"word/document.bin")
            new.writestr(name.replace("document.xml", "document.bin"), text)
    path.write_bytes(out.getvalue())
    with pytest.raises(Unreadable, match="broken Word file"):
        read_document(path)
    comment = f"<!--{'x' * 70_000}--><!DOCTYPE a [<!ENTITY b 'c'>]>"
    path.write_bytes(docx(paragraph("&b;"), doctype=comment))
    with pytest.raises(Unreadable, match="its XML defines entities"):
        read_document(path)


def test_a_process_with_limits_reads_what_users_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = Documents(lambda user: tmp_path, (), len, len)
    rows = "".join(f"| Anna {i} | Lima | Oslo |\n" for i in range(40_000))
    slow = f"# T\n\n| a | b | c |\n|---|---|---|\n{rows}".encode()
    added = documents.add("user", "fine.md", b"# T\n\n" + b"Anna is fine.\n\n" * 1_001)
    assert added == {"name": "fine.md", "num_passages": 1_001, "warnings": []}
    assert len(documents.pool("user")) == 1_001
    with pytest.raises(UserError, match=r"^bad\.html: nested too deep to be read"):
        documents.add("user", "bad.html", b"<b>" * 9_999)
    monkeypatch.setattr(limited_reading, "SECONDS", 1)
    monkeypatch.setattr(limited_reading, "SECONDS_PER_MIB", 0)
    with pytest.raises(UserError, match=r"^slow\.md: reading takes more than 1 seconds"):
        documents.add("user", "slow.md", slow)
    monkeypatch.setattr(limited_reading, "MEMORY", 1 << 20)
    with pytest.raises(UserError, match=r"^slow\.md: reading .* \d MiB of memory"):
        documents.add("user", "slow.md", slow)
    assert [one["name"] for one in documents.listed("user")] == ["fine.md"]


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [(MemoryError(), UserError, "more than 2048 MiB"), (KeyError("k"), RuntimeError, "KeyError")],
)
def test_why_reading_failed_is_told(
    error: Exception,
    raised: type[Exception],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(paths: object) -> None:
        raise error

    class InThisProcess:
        """A context whose processes run here, when they start."""

        exitcode = 0

        def __init__(self, **given: Any) -> None:
            self.args = given["args"]

        def start(self) -> None:
            sender, paths, memory, _ = self.args
            limited_reading.send_read(sender, paths, memory)

        def join(self) -> None: ...

    monkeypatch.setattr(limited_reading, "read_evidence", fail)
    monkeypatch.setattr(limited_reading._forks, "Process", InThisProcess)
    with pytest.raises(raised, match=told):
        limited_reading.read_limited([tmp_path / "a.md"])


@pytest.mark.parametrize(("ease", "more"), [((), 1), ((1,), 1), ((3,), 3)])
def test_reading_may_take_longer_for_each_mebibyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ease: tuple[int, ...], more: int
) -> None:
    limits = list[int]()

    class ReadsNothing(MagicMock):
        """A process that reads no document."""

        exitcode = 0

        def start(self) -> None:
            sender, _, *given = self.args
            limits.extend(given)
            sender.send(())

    def process(**given: Any) -> Any:
        made = ReadsNothing()
        made.args = given["args"]
        return made

    monkeypatch.setattr(limited_reading._forks, "Process", process)
    paths = [tmp_path / name for name in ("a.md", "b.md", "removed.md")]
    for path in paths[:2]:
        with path.open("wb") as file:
            file.truncate(3 << 19)  # one and a half mebibytes
    assert limited_reading.read_limited(paths, *ease) == ((), [])
    assert limits == [(2 << 30) * more, (60 + 3 * 20) * more]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (-signal.SIGXCPU, "reading takes more than 60 seconds"),
        (-signal.SIGKILL, "reading ended with SIGKILL; reading may take 2048 MiB of memory"),
        (3, "reading ended with code 3; reading may take 2048 MiB of memory"),
    ],
)
def test_why_a_process_ended_without_a_result_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    ended = MagicMock(return_value=MagicMock(exitcode=code))
    monkeypatch.setattr(limited_reading._forks, "Process", ended)
    with pytest.raises(UserError, match=f"a.md: {told}$"):
        limited_reading.read_limited([tmp_path / "a.md"])


def test_what_was_read_and_what_was_not_is_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    (tmp_path / "a.jsonl").write_text('{"text": "A pier is old.", "secret": 1}', encoding="utf-8")
    limited_reading.send_read(sender, [tmp_path / "a.jsonl"], 1 << 30)
    [passage] = receiver.recv()
    assert passage.text == "A pier is old."
    [warning] = receiver.recv()
    assert "field secret: unknown" in warning
    assert "secret" not in caplog.text  # a server's log must not hold what users' files say
    limited_reading.send_read(sender, [tmp_path / "b.md"], 1 << 30)
    failed = receiver.recv()
    assert "b.md" in failed.message
    assert not failed.is_ours
    receiver.close()
    limited_reading.send_read(sender, [tmp_path / "a.jsonl"], 1 << 30)  # nobody waits: no error


def test_what_was_read_is_sent_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_reading, "PART", 2)
    texts = [f"Pier {number} is old." for number in range(5)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts), encoding="utf-8")
    receiver, sender = multiprocessing.Pipe(duplex=False)
    limited_reading.send_read(sender, [tmp_path / "a.txt"], 1 << 30)
    parts = [receiver.recv() for _ in range(4)]
    assert [len(part) for part in parts] == [2, 2, 1, 0], "the last are the warnings"
    assert [passage.text for part in parts for passage in part] == [f"a, {text}" for text in texts]


def test_a_process_that_reads_limits_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(limited_reading.resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(limited_reading.os, "nice", lambda _: 0)
    monkeypatch.setattr(limited_reading.signal, "signal", lambda *_: None)
    _, sender = multiprocessing.Pipe(duplex=False)
    limited_reading._read(sender, [tmp_path / "none.md"], 1 << 30, 60)
    assert {(1 << 30, 1 << 30), (60, 61), (0, 0)} == set(limits.values())
