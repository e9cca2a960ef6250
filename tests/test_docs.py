"""The README and docs: their Python runs, their commands have their options, links lead on."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngraph.__main__ import COMMANDS, run
from turngraph.configs.parse import load_config
from turngraph.configs.shipped import find_config
from turngraph.data.jsonlines import write_conversations, write_pool
from turngraph.inference.serve.openai_routes import MODEL
from turngraph.tests.runs import ROOT
from turngraph.tests.tiny import tiny_conversation

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Each ``turngraph`` command of a page, as words without its comment."""
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip().startswith("turngraph "):
                    yield page.name, shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in link and not link.startswith("#"):
            if page.name == "api.md" and link.startswith("api/"):
                continue  # made by make docs
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"


def test_every_page_is_found_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in readme, page.name
    assert len(readme.splitlines()) <= 160


def test_the_commands_of_the_readme_write_into_runs_and_pages_name_the_servers_model() -> None:
    """Git ignores ``runs/``, so that whoever tries the blocks leaves no untracked file."""
    text = "\n".join(blocks(ROOT / "README.md", "bash"))
    written = re.findall(r"(?:--(?:training\.)?output|--db|>)[= ]+(\S+)", text)
    assert len(written) > 5
    assert [path for path in written if not path.startswith("runs/")] == []
    models = re.findall(
        r'"?\bmodel"?[=:] ?"([^"]+)"', "".join(page.read_text("utf-8") for page in PAGES)
    )
    assert set(models) == {MODEL}


def help_of(words: list[str]) -> str:
    """What ``--help`` of a command prints; of memory and corpus the command inside it."""
    inside = words[:2] if words[0] in ("memory", "corpus") else words[:1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        run(inside[0], [*inside[1:], "--help"])
    return printed.getvalue()


def test_every_command_has_the_options_that_it_is_given() -> None:
    found = list(command_lines())
    assert {words[0] for _, words in found} >= {
        "answer",
        "score",
        "chat",
        "memory",
        "train",
        "study",
    }
    for page, words in found:
        assert words[0] in COMMANDS, f"{page}: {words}"
        if words[0] == "train":
            check_train(page, words[1:])
            continue
        if words[0] == "study":
            config = words[words.index("--config") + 1]
            assert find_config(config, ROOT / "benchmarks" / "study").is_file(), page
        text = help_of(words)
        for word in words:
            if word.startswith("--"):
                name = word.partition("=")[0]
                assert re.search(rf"{name}\b", text), f"{page}: {name} of {words[0]}"


def check_train(page: str, words: list[str]) -> None:
    """A training command parses; options of how to start stand beside the config."""
    start = {"--dry_run", "--fresh", "--resume_anyway"}
    alone = [word for word in words if word not in start]
    if "--for_gpu" in alone:
        at = alone.index("--for_gpu")
        del alone[at : at + 2]
    load_config(alone)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/answering.md", "docs/api.md", "docs/memory_graph.md"]
)
def test_the_python_of_a_page_runs(
    page: str, graph_checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a random tiny model in place of the demo's checkpoint; it writes into runs/ alone."""
    demo = tmp_path / "runs" / "demo"
    (demo / "data").mkdir(parents=True)
    (demo / "best").symlink_to(graph_checkpoint)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "dune.md").write_text(
        "# Dune\n\nDune was written by Frank Herbert.\n", "utf-8"
    )
    write_pool(demo / "data" / "pool.jsonl", tiny_conversation(0).evidence)
    write_conversations(demo / "data" / "test.jsonl", [tiny_conversation(0)])
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    found = blocks(ROOT / page, "python")
    assert found
    for block in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            exec(compile(block, page, "exec"), {})
        assert "qa" not in block or printed.getvalue() or "save_pretrained" in block
    assert sorted(tmp_path.iterdir()) == before
