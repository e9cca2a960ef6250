"""``turngraph pool --themes``: a page of the themes of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from turngraph.configs.words import plural
from turngraph.data.eigen.eigen_index import EigenIndex
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.upkeep.html_page import MAX_TEXT, page
from turngraph.data.memory_graph.upkeep.themes_page import GROUP, OF_GROUP, PASSAGE, THEME
from turngraph.data.types import Evidence
from turngraph.inference import pool_themes
from turngraph.inference.model_options import EMBEDDER
from turngraph.inference.pool_themes import file_of, main, page_data, write_themes_page
from turngraph.tests.data.memory_graph.test_html_page import HOSTILE, read

PLANTS = "roses tulips beans peas mint sage leeks kale".split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    documents = tmp_path / "documents"
    documents.mkdir()
    for name, verb in (("garden", "grows"), ("kitchen", "cooks")):
        lines = [f"Anna {verb} {plant} and {HOSTILE[0]} all year long." for plant in PLANTS]
        (documents / f"{name}.txt").write_text("\n\n".join(lines), "utf-8")
    return documents


def test_themes_lead_to_the_passages_of_their_files(folder: Path, tmp_path: Path) -> None:
    pool, html = str(tmp_path / "pool.jsonl"), tmp_path / "pool.html"
    main(["--input", str(folder), "--output", pool, "--themes", str(html), "--no_embed"])
    assert Path(pool).exists()
    assert html.stat().st_mode & 0o777 == 0o600  # as private as what it quotes
    _, data = read(html)
    themes = [node for node in data["nodes"] if node["type"] == THEME]
    passages = [node for node in data["nodes"] if node["type"] == PASSAGE]
    assert len(passages) == 2 * len(PLANTS)
    assert sum(theme["members"] for theme in themes) == len(passages)
    assert data["total"] == len(data["nodes"])
    for theme in themes:
        assert theme["text"] == theme["quotes"][0]["text"]
        for quote in theme["quotes"]:
            assert data["nodes"][quote["node"]]["text"] == quote["text"]
            file = data["episodes"][quote["episode"]]["source"]
            assert ("grows" in quote["text"]) == (file == "garden.txt")
            assert theme["about"].startswith(f"{plural(theme['members'], 'passage')} of {file}; ")


def test_vectors_of_many_passages_are_made_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def embed(texts: Sequence[str]) -> np.ndarray:
        sizes.append(len(texts))
        return word_vectors(texts)

    shown: list[object] = []

    @contextmanager
    def progress(*given: object, delay: float) -> Iterator[SimpleNamespace]:
        shown.append((*given, delay))
        yield SimpleNamespace(update=shown.append)

    monkeypatch.setattr(pool_themes, "progress", progress)
    monkeypatch.setattr(pool_themes, "BATCH", 5)
    pool = [
        Evidence(f"a.txt#{i}", f"Anna grows {plant}.", "text") for i, plant in enumerate(PLANTS)
    ]
    write_themes_page(pool, tmp_path / "some.html", embed, "some")
    assert sizes == [5, 3]
    assert shown == [(8, "vectors", "passages", 2), 5, 3]
    write_themes_page(pool, tmp_path / "at_once.html", word_vectors, "some")
    assert (tmp_path / "some.html").read_bytes() == (tmp_path / "at_once.html").read_bytes()


def test_a_page_has_at_most_so_many_nodes() -> None:
    texts = [f"Anna {verb} {plant}." for verb in ("grows", "cooks", "sells") for plant in PLANTS]
    pool = [Evidence(f"{i // 8}.txt#{i}", text, "text") for i, text in enumerate(texts)]
    long = pool[0].text + "x" * MAX_TEXT
    pool[0] = replace(pool[0], text=long)
    sources = [file_of(one) for one in pool]
    index = EigenIndex(pool, word_vectors, sources)
    index.upper = [replace(index.themes[0], members=np.array(m)) for m in ([0, 1], [1])]
    index.quoted = [*index.quoted, *index.quoted[:2]]
    whole = page_data(index, sources, "whole", 1000)
    assert {node["type"] for node in whole["nodes"]} >= {THEME, PASSAGE}
    groups = [node for node in whole["nodes"] if node["type"] == GROUP]
    sizes = [len(theme.members) for theme in index.themes]
    assert [group["members"] for group in groups] == [sizes[0] + sizes[1], sizes[1]]
    assert [group["about"].partition(";")[0] for group in groups] == ["2 themes", "1 theme"]
    shown = f"{long[:MAX_TEXT]}… ({len(long):,} characters)"
    assert shown in [node["text"] for node in whole["nodes"] if node["type"] == PASSAGE]
    number = len(index.themes)
    of_groups = [(e["source"], e["target"]) for e in whole["edges"] if e["type"] == OF_GROUP]
    assert of_groups == [(number, 0), (number, 1), (number + 1, 1)]
    assert whole["total"] == len(whole["nodes"])
    assert {(node["members"], node["quiet"]) for node in whole["nodes"] if "quiet" in node} == {
        (1, 1)
    }
    pool[0] = replace(pool[0], text=long[:MAX_TEXT])
    index.pool = pool
    cut = page_data(index, sources, "cut", 1000)
    assert long[:MAX_TEXT] in [node["text"] for node in cut["nodes"]]
    few = page_data(index, sources, "few", len(index.themes) + 1)
    assert len(few["nodes"]) == len(index.themes) + 1
    assert few["total"] == whole["total"]
    assert "<title>few</title>" in page(few)


def test_the_encoder_that_is_named_makes_the_vectors(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[str] = []

    def sentence_encoder(name: str) -> Embed:
        named.append(name)
        return word_vectors

    monkeypatch.setattr("turngraph.configs.models.sentence_encoder", sentence_encoder)
    files = ["--output", str(tmp_path / "pool.jsonl"), "--themes", str(tmp_path / "pool.html")]
    main(["--input", str(folder), *files])
    main(["--input", str(folder), *files, "--embedder", "mine"])
    assert named == [EMBEDDER, "mine"]


def test_files_of_few_passages_have_no_themes(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        path.write_text("Anna grows beans.", "utf-8")
    options = ["--output", str(tmp_path / "pool.jsonl"), "--themes", str(tmp_path / "pool.html")]
    with pytest.raises(ValueError, match="no themes: no file has 8 passages"):
        main(["--input", str(folder), *options, "--no_embed"])
    assert file_of(Evidence("a.pdf, page 3#12", "x", "text")) == "a.pdf"
