"""Corpora: what they hold, how they rank, how they change, stop, break and are opened."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import bm25s
import numpy as np
import pytest

from turngraph.data.cli import StopRequest
from turngraph.data.corpus.bm25_files import FOLDER
from turngraph.data.corpus.build import MAX_SMALL, CorpusBuilder
from turngraph.data.corpus.corpus import Corpus
from turngraph.data.corpus.files import SEAL, only_writer
from turngraph.data.corpus.segment_writer import Encoder, Stopped
from turngraph.data.corpus.sign_codes import nearest_codes, sign_codes
from turngraph.data.corpus.source_files import find_sources
from turngraph.data.corpus.version import read_version, switch, version_numbers
from turngraph.data.normalise import words
from turngraph.data.retrieval.bm25 import DELTA, K1, B, EvidenceIndex
from turngraph.data.retrieval.dense import DenseIndex, FusedIndex
from turngraph.data.sources.document import Unreadable
from turngraph.inference import corpus_commands

NOUNS = "bridge river town lake mill tower road harbour school market".split()
QUESTIONS = ["Who built the tower of Town 3?", "mill by the lake", "unseenword", "the the river"]


def embed(texts: Sequence[str]) -> np.ndarray:
    """Return a unit vector for each text, by its words."""
    vectors = np.zeros((len(texts), 96))
    for vector, text in zip(vectors, texts, strict=True):
        for word in words(text):
            vector += np.random.default_rng(list(word.encode())).normal(size=96)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def write_files(folder: Path, num: int = 6, seed: int = 0) -> Path:
    """Write documents and a pool."""
    draw = random.Random(seed)
    folder.mkdir(exist_ok=True)
    for i in range(num):
        lines = [
            f"The {draw.choice(NOUNS)} of Town {i} was built by Person {draw.randrange(9)}."
            for _ in range(draw.randrange(3, 9))
        ]
        (folder / f"town_{i}.txt").write_text(" ".join(lines))
    passages = [
        {"id": f"p{i}", "text": f"Lake {i} has a {draw.choice(NOUNS)} and a mill."}
        for i in range(25)
    ]
    (folder / "lakes.jsonl").write_text("".join(json.dumps(p) + "\n" for p in passages))
    return folder


def build(
    folder: Path, *inputs: Path, encoder: Encoder | None = None, **settings: object
) -> Corpus:
    """Build a corpus with small segments, and open it."""
    builder = CorpusBuilder(folder, encoder, segment=10)
    builder.build(find_sources(inputs)[0], **settings)  # type: ignore[arg-type]
    return Corpus(folder)


def ranked(corpus: Corpus, question: str, top_k: int = 8) -> list[tuple[str, float]]:
    """Return ids and scores of the best passages."""
    return [(r.evidence.id, r.score) for r in corpus.index("bm25").rank(question, top_k)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Corpus:
    folder = tmp_path_factory.mktemp("built") / "corpus"
    return build(folder, files, encoder=Encoder("by words", embed))


def test_a_corpus_ranks_as_a_pool_of_its_passages(corpus: Corpus) -> None:
    pool = list(corpus.passages)
    turns = [("mill", 0.4), (QUESTIONS[0], 1.0)]
    other_endings = "Harbours or schools?"
    assert len(corpus.index("bm25").rank(other_endings, 8)) == 8
    for query in (*QUESTIONS, turns, other_endings):
        of_pool = EvidenceIndex(pool).rank(query, 8)
        assert corpus.index("bm25").rank(query, 8) == of_pool
    for question in QUESTIONS[:2]:
        for retriever, index in (
            ("dense", DenseIndex(pool, embed)),
            ("rrf", FusedIndex(pool, embed, "bm25s", "none")),
        ):
            found = corpus.index(retriever, embed).rank(question, 5)  # type: ignore[arg-type]
            expected = index.rank(question, 5)
            assert [r.evidence.id for r in found] == [r.evidence.id for r in expected]
            assert [r.score for r in found] == pytest.approx([r.score for r in expected], abs=2e-3)
    fused = FusedIndex(pool, embed, "bm25s", "none")
    assert corpus.index("rrf", embed).rank("qwxz", 5) == fused.rank("qwxz", 5)


def test_its_index_holds_the_numbers_of_bm25s(corpus: Corpus) -> None:
    ours = bm25s.BM25.load(corpus.version.folder / FOLDER, mmap=True)
    theirs = bm25s.BM25(method="bm25+", k1=K1, b=B, delta=DELTA, dtype="float64")
    texts = [words(passage.text) for passage in corpus.passages]
    theirs.index(texts, show_progress=False, create_empty_token=False)
    assert set(ours.vocab_dict) == set(theirs.vocab_dict)
    for word in ours.vocab_dict:
        mine, other = ours.get_scores([word]), theirs.get_scores([word])
        np.testing.assert_allclose(mine, other, rtol=1e-12, err_msg=word)


def test_passages_have_ids_of_their_files_and_entities(corpus: Corpus) -> None:
    by_id = {passage.id: passage for passage in corpus.passages}
    assert "lakes.jsonl#p3" in by_id
    assert "town 2" in {entity.id for entity in by_id["town_2.txt#0"].entities}
    assert corpus.passages[-1:] == [corpus.passages[len(corpus) - 1]]


def test_what_changed_is_read_again_and_the_rest_is_kept(tmp_path: Path) -> None:
    files, folder = write_files(tmp_path / "files"), tmp_path / "corpus"
    build(folder, files)
    before = {piece.name for piece in (folder / "segments").iterdir()}
    (files / "town_1.txt").write_text("The harbour of Town 1 was built by Nobody.")
    (files / "town_2.txt").unlink()
    (files / "new.md").write_text("# New\n\nThe mill of Newtown is new.")
    changes = CorpusBuilder(folder, segment=10, keep=0).build(find_sources([files])[0])
    assert (changes.added, changes.replaced) == (["new.md"], ["town_1.txt"])
    assert changes.removed == ["town_2.txt"]
    assert len(changes.kept) == 5
    assert len(before & {piece.name for piece in (folder / "segments").iterdir()}) > 2
    fresh = build(tmp_path / "fresh", files)
    changed = Corpus(folder, hashes=True)
    assert list(changed.passages) == list(fresh.passages)
    for question in QUESTIONS:
        assert ranked(changed, question) == ranked(fresh, question)
    again = CorpusBuilder(folder, segment=10).build(find_sources([files])[0])
    assert again.version.number == changes.version.number
    assert not again.added


def test_sources_are_added_and_removed(tmp_path: Path, files: Path) -> None:
    folder, other = tmp_path / "corpus", tmp_path / "other.txt"
    other.write_text("Oslo has a harbour.")
    build(folder, files)
    whole = build(folder, other, mirror=False)
    assert "other.txt#0" in {passage.id for passage in whole.passages}
    CorpusBuilder(folder, segment=10).remove(["lakes.jsonl"])
    left = {passage.id.partition("#")[0] for passage in Corpus(folder).passages}
    assert left == {f"town_{i}.txt" for i in range(6)} | {"other.txt"}
    with pytest.raises(ValueError, match=r"no source 'lakes\.jsonl'"):
        CorpusBuilder(folder).remove(["lakes.jsonl"])
    with pytest.raises(ValueError, match="no source would be left"):
        CorpusBuilder(folder).remove(list(read_version(folder).sources))


def test_many_small_segments_are_joined(tmp_path: Path) -> None:
    folder, encoder = tmp_path / "corpus", Encoder("by words", embed)
    paths = [tmp_path / f"note_{i:02d}.txt" for i in range(MAX_SMALL + 4)]
    for i, path in enumerate(paths):
        path.write_text(f"Note {i} tells of the mill.")
        changes = CorpusBuilder(folder, encoder, keep=0).build(
            find_sources([path])[0], mirror=False
        )
    assert len(changes.version.segments) <= MAX_SMALL
    assert len(list((folder / "segments").iterdir())) == len(changes.version.segments)
    found = Corpus(folder, hashes=True)
    assert [passage.id for passage in found.passages] == [f"{path.name}#0" for path in paths]
    vectors = found.passages.vectors(np.arange(len(paths)))
    np.testing.assert_allclose(vectors, embed([p.text for p in found.passages]), atol=1e-3)


def test_a_stopped_build_goes_on(tmp_path: Path) -> None:
    pool, folder = tmp_path / "pool.jsonl", tmp_path / "corpus"
    line = json.dumps({"text": "The mill of Town 3."}) + "\n"
    pool.write_text(line * 3500)

    class AfterTwo(StopRequest):
        asked = 0

        def __bool__(self) -> bool:
            self.asked += 1
            return self.asked > 2

    sources = find_sources([pool])[0]
    with pytest.raises(Stopped):
        CorpusBuilder(folder, segment=1500, stop=AfterTwo()).build(sources)
    assert not (folder / "corpus.json").exists()
    stored = {path.name for path in (folder / "segments").iterdir()}
    assert len(stored) == 1
    CorpusBuilder(folder, segment=1500).build(sources)
    assert len(Corpus(folder)) == 3500
    assert stored <= set(Corpus(folder).version.segments)


def test_versions_stand_side_by_side(tmp_path: Path, files: Path) -> None:
    folder, other = tmp_path / "corpus", tmp_path / "other.txt"
    other.write_text("Oslo has a harbour.")
    first = build(folder, files)
    build(folder, other, mirror=False)
    assert version_numbers(folder) == [1, 2]
    assert len(Corpus(folder)) == len(first) + 1
    assert ranked(first, QUESTIONS[0]) == ranked(Corpus(folder, 1), QUESTIONS[0])
    switch(folder, 1)
    assert len(Corpus(folder)) == len(first)
    with pytest.raises(ValueError, match=r"no version 7; it has 1, 2"):
        switch(folder, 7)


@pytest.mark.parametrize("name", ["passages.jsonl", "row.npy", "starts.npy"])
def test_damage_is_seen(tmp_path: Path, files: Path, name: str) -> None:
    folder = tmp_path / "corpus"
    build(folder, files)
    path = next((folder / "segments").glob(f"*/{name}"))
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(ValueError, match=f"{name}: its hash differs"):
        Corpus(folder, hashes=True)
    path.write_bytes(raw[:-1])
    with pytest.raises(ValueError, match=f"{name}: .* bytes, not"):
        Corpus(folder)
    path.unlink()
    with pytest.raises(ValueError, match=f"{name}: missing"):
        Corpus(folder)


def test_a_corpus_of_another_format_is_refused(tmp_path: Path, files: Path) -> None:
    folder = tmp_path / "corpus"
    build(folder, files)
    for kind in ("segments", "versions"):
        path = next((folder / kind).glob(f"*/{SEAL}"))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))
        with pytest.raises(ValueError, match=f"{kind}/.*: has format 1, not 2"):
            Corpus(folder)


WRONG = {
    "bad line": ('{"text": "ok"}\n{"text": 3.5}\n', "pool.jsonl, line 2, field text"),
    "no text": ('{"id": "a"}\n', "pool.jsonl, line 1, field text: missing"),
    "article": ('{"title": "A", "text": []}\n', "pool.jsonl, line 1, field text"),
    "empty": ("\n", "pool.jsonl: nothing to read in it"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_is_named_and_the_old_version_stays(
    tmp_path: Path, files: Path, text: str, message: str
) -> None:
    folder, pool = tmp_path / "corpus", tmp_path / "pool.jsonl"
    before = build(folder, files)
    pool.write_text(text)
    with pytest.raises(ValueError, match=message):
        CorpusBuilder(folder, segment=10).build(find_sources([files, pool])[0], strict=True)
    assert list(Corpus(folder).passages) == list(before.passages)


WIKI = {
    "two": ('<doc id="1" title="A">\n<doc id="2" title="B">\n', "line 2: <doc> inside the <doc>"),
    "end": ("</doc>\n", "line 1: </doc> without <doc>"),
    "open": ('<doc title="A">\nText.\n', "line 1: <doc> without </doc>"),
    "title": ("<doc id='1'>\n</doc>\n", "line 1: <doc> without a title"),
    "outside": ("Text.\n", "line 1: text outside"),
}


@pytest.mark.parametrize(("text", "message"), WIKI.values(), ids=WIKI)
def test_broken_wikipedia_text_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "wiki_00").write_text(text)
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "corpus", tmp_path / "wiki_00")


def test_wikipedia_text_in_both_formats(tmp_path: Path) -> None:
    text = "Oslo\n\nOslo is the capital of Norway. It is old.\nIt has a harbour.\n"
    (tmp_path / "wiki_00").write_text(f'<doc id="1" title="Oslo &amp; more">\n{text}</doc>\n')
    article = {"id": "7", "url": "", "title": "Oslo", "text": text}
    (tmp_path / "a.jsonl").write_text(json.dumps(article) + "\n")
    corpus = build(tmp_path / "corpus", tmp_path)
    assert [passage.id for passage in corpus.passages] == [
        *("a.jsonl:1#0", "a.jsonl:1#1", "wiki_00:1#0", "wiki_00:1#1", "wiki_00:1#2")
    ]
    assert corpus.passages[0].text == "Oslo, Oslo is the capital of Norway. It is old."
    assert corpus.passages[4].text.startswith("Oslo & more, ")


def test_a_document_that_cannot_be_read_any_more_is_not_dropped(tmp_path: Path) -> None:
    files, folder = write_files(tmp_path / "files"), tmp_path / "corpus"
    (files / "empty.txt").write_text("")
    changes = CorpusBuilder(folder).build(find_sources([files])[0])
    assert [str(error) for error in changes.skipped] == [f"{files / 'empty.txt'}: empty"]
    with pytest.raises(Unreadable, match=r"empty\.txt: empty"):
        CorpusBuilder(folder).build(find_sources([files])[0], strict=True)
    (files / "town_0.txt").write_text("")
    with pytest.raises(Unreadable, match=r"town_0\.txt: empty"):
        CorpusBuilder(folder).build(find_sources([files])[0])
    assert "town_0.txt" in read_version(folder).sources


def test_what_is_no_source_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match="in: no file that can be read"):
        find_sources([tmp_path / "in"])
    (tmp_path / "in" / "image.png").write_bytes(b"x")
    mixed = ['{"text": "Lima is old."}', '{"title": "Oslo", "text": "Oslo is cold."}']
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(mixed))
    (tmp_path / "out.txt").write_text("Far away.")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "out.txt")
    sources, refused = find_sources([tmp_path / "in"])
    assert [source.name for source in sources] == ["a.jsonl"]
    assert [error.reason for error in refused] == ["a link that leads out of the folder"]
    assert "files of other kinds not read: 1, first" in caplog.text
    with pytest.raises(Unreadable, match="leads out of the folder"):
        find_sources([tmp_path / "in"], strict=True)
    corpus = build(tmp_path / "corpus", tmp_path / "in")
    assert [passage.id for passage in corpus.passages] == ["a.jsonl#1", "a.jsonl:2#0"]
    (tmp_path / "in" / "a.jsonl").unlink()
    with pytest.raises(Unreadable, match=r"a\.jsonl: cannot be read: No such file"):
        CorpusBuilder(tmp_path / "other").build(sources, strict=True)
    with pytest.raises(Unreadable, match="cannot be read"):
        CorpusBuilder(tmp_path / "other").build(sources)


def test_wrong_inputs(tmp_path: Path, files: Path, corpus: Corpus) -> None:
    (tmp_path / "lakes.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(ValueError, match=r"two sources are called lakes\.jsonl"):
        find_sources([files, tmp_path / "lakes.jsonl"])
    with pytest.raises(ValueError, match="missing: no such file or folder"):
        find_sources([tmp_path / "missing"])
    (tmp_path / "a.exe").write_text("x")
    with pytest.raises(ValueError, match=r"a\.exe: cannot be read"):
        find_sources([tmp_path / "a.exe"])
    with pytest.raises(ValueError, match="no corpus"):
        Corpus(tmp_path)
    with pytest.raises(ValueError, match="sentence encoder by words, this build has none"):
        CorpusBuilder(corpus.folder).build(find_sources([files])[0])
    with only_writer(corpus.folder), pytest.raises(ValueError, match="another process"):
        CorpusBuilder(corpus.folder, Encoder("by words", embed)).build(find_sources([files])[0])
    with pytest.raises(ValueError, match="no vectors, which rrf needs"):
        build(tmp_path / "bare", files).index("rrf")


def test_nearest_codes_are_those_of_a_full_sort() -> None:
    vectors = np.random.default_rng(0).normal(size=(500, 70))
    codes = sign_codes(vectors)
    assert codes.shape == (500, 2)
    distance = ((vectors > 0) != (vectors[7] > 0)).sum(axis=1)
    expected = np.sort(np.argsort(distance, kind="stable")[:40])
    assert nearest_codes(codes, codes[7], 40).tolist() == expected.tolist()
    assert nearest_codes(codes, codes[7], 900).tolist() == list(range(500))


KILLED = """
import os, sys
from pathlib import Path
from turngraph.data.corpus import build, files
from turngraph.data.corpus.source_files import find_sources
steps = int(sys.argv[3])
def count(frame, event, arg):
    global steps
    if event == "call" and "corpus" in frame.f_code.co_filename:
        steps -= 1
        if steps == 0:
            os.kill(os.getpid(), 9)
sys.setprofile(count)
build.CorpusBuilder(Path(sys.argv[2]), segment=10).build(find_sources([sys.argv[1]])[0])
"""


@pytest.mark.slow
def test_a_build_killed_anywhere_loses_nothing(tmp_path: Path) -> None:
    files, folder = write_files(tmp_path / "files"), tmp_path / "corpus"
    before = build(folder, files)
    (files / "town_1.txt").write_text("The harbour of Town 1 was built by Nobody.")
    fresh = build(tmp_path / "fresh", files)
    expected = [list(before.passages), list(fresh.passages)]
    for steps in (*range(1, 400, 37), 10**9):
        argv = [sys.executable, "-c", KILLED, str(files), str(folder), str(steps)]
        subprocess.run(argv, check=False, capture_output=True)
        assert list(Corpus(folder, hashes=True).passages) in expected, steps
    assert list(Corpus(folder).passages) == expected[1]


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, folder = write_files(tmp_path / "files"), str(tmp_path / "corpus")

    def run(*argv: str) -> str:
        corpus_commands.main(argv)
        return capsys.readouterr().out

    build_ = ("build", "--input", str(files), "--output", folder)
    assert "7 added; version 1: " in run(*build_, "--vectors", "words")
    assert "7 unchanged; version 1: " in run(*build_)
    other = tmp_path / "other.txt"
    other.write_text("Oslo has a harbour.")
    assert "1 added, 7 unchanged; version 2" in run(
        "add", "--input", str(other), "--corpus", folder
    )
    for retriever in ("bm25", "dense", "rrf"):
        found = run("search", "--corpus", folder, "harbour of Oslo", "--retriever", retriever)
        assert re.match(
            r"  1  +\d+\.\d{3}  other\.txt#0\n     other, Oslo has a harbour\.\n", found
        )
    nothing = run("search", "--corpus", folder, "zzz", "--retriever", "bm25")
    assert nothing == "no passage has a word of the question\n"
    assert "1 removed, 7 unchanged" in run("remove", "--corpus", folder, "--source", "other.txt")
    shown = run("show", "--corpus", folder, "--sources")
    assert "* version 3: " in shown
    assert "vectors by words" in shown
    assert "town_5.txt" in shown
    assert "version 3 is whole" in run("check", "--corpus", folder)
    assert "version 2 is the current one" in run("switch", "--corpus", folder, "--version", "2")
    passages = next(Path(folder, "segments").glob("*/passages.jsonl"))
    whole = passages.read_bytes()
    passages.write_bytes(whole.replace(b"a", b"e"))
    with pytest.raises(ValueError, match="its hash differs"):
        run("check", "--corpus", folder)
    passages.write_bytes(whole)
    with pytest.raises(ValueError, match="--top_k 0"):
        run("search", "--corpus", folder, "x", "--top_k", "0")
    (files / "new.txt").write_text("Bergen has a harbour.")
    with pytest.raises(SystemExit) as stopped:
        run(*build_, "--max_minutes", "1e-9")
    assert stopped.value.code == 75


def test_every_option_of_the_commands_arrives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, folder = write_files(tmp_path / "files"), tmp_path / "corpus"
    (files / "empty.txt").write_text("")
    other = tmp_path / "other.txt"

    def run(command: str, *argv: str) -> list[str]:
        place = "--output" if command == "build" else "--corpus"
        corpus_commands.main([command, *argv, place, str(folder)])
        return capsys.readouterr().out.splitlines()

    def add(text: str, *options: str) -> list[str]:
        other.write_text(text)
        return run("add", "--input", str(other), *options)

    with pytest.raises(Unreadable, match=r"empty\.txt: empty"):
        run("build", "--input", str(files), "--strict")
    [said] = run("build", "--input", str(files))
    assert said.startswith(f"{folder}: ")
    assert "7 added, 1 skipped; version 1: " in said
    with pytest.raises(Unreadable, match=r"other\.txt: empty"):
        add("", "--strict")
    add("Oslo has a harbour.")
    add("Oslo has a mill.")
    assert version_numbers(folder) == [2, 3]  # one older version is kept
    add("Oslo has a tower.", "--keep", "2")
    assert version_numbers(folder) == [2, 3, 4]
    shown = run("show", "--sources")
    total = "passages of 8 sources"
    assert [line[:11] for line in shown[:3]] == ["  version 2", "  version 3", "* version 4"]
    assert all(line.endswith(total) for line in shown[:3])
    assert [line.split()[2] for line in shown[3:]] == sorted(read_version(folder).sources)
    hashes = {name: of["sha256"] for name, of in read_version(folder).sources.items()}
    assert shown[4] == f"        1  {hashes['other.txt'][:12]}  other.txt"
    assert shown[:3] == run("show")
    assert "mill" in " ".join(run("search", "Oslo", "--version", "3"))
    assert "tower" in " ".join(run("search", "Oslo"))
    assert len(run("search", "mill")) == 2 * 5
    found = run("search", "mill", "--top_k", "2")
    assert [line[:5].strip() for line in found[::2]] == ["1", "2"]
    run("remove", "--source", "other.txt", "--keep", "0")
    assert version_numbers(folder) == [5]
    add("Oslo has a harbour.", "--keep", "0")
    run("remove", "--source", "other.txt")
    assert version_numbers(folder) == [6, 7]
    run("build", "--input", str(files / "town_1.txt"), "--keep", "0")
    assert version_numbers(folder) == [8]
    assert len(run("show", "--sources")) == 1 + 1  # what is not named is removed
    assert len(run("search", "Town", "--top_k", "1")) == 2


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ([], "COMMAND"),
        (["build", "--output", "x"], "--input"),
        (["build", "--input", "x"], "--output"),
        (["add", "--input", "x"], "--corpus"),
        (["remove", "--corpus", "x"], "--source"),
        (["search", "x"], "--corpus"),
        (["switch", "--corpus", "x"], "--version"),
    ],
)
def test_what_a_command_needs_is_named(
    words: list[str], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        corpus_commands.main(words)
    assert stopped.value.code == 2
    assert f"required: {missing}" in capsys.readouterr().err


def test_help_says_what_each_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        with pytest.raises(SystemExit):
            corpus_commands.main([*words, "--help"])
        return " ".join(capsys.readouterr().out.split())

    said = shown()
    assert "Keep a corpus of passages on disk, which questions search without reading" in said
    assert "Raises" not in said
    assert "Find the best passages for a question." in said
    assert "Find the best passages for a question." in shown("search")


def test_a_folder_without_a_corpus_cannot_be_switched(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no corpus"):
        corpus_commands.main(["switch", "--corpus", str(tmp_path), "--version", "1"])
    assert list(tmp_path.iterdir()) == []
