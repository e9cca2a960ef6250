"""A library of an optional extra that is not installed: one line says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest

from turngraph.configs.extras import extra
from turngraph.tests.processes import Command
from turngraph.training.run_log import RunLog

RUN = "turngraph.__main__"
WORLDFACTS = "turngraph.data.sources.worldfacts"
ASK = ("memory", "ask", "--db", "my.db", "--no_embed", "Where does Anna live?")
REMEMBER = ("memory", "remember", "--db", "my.db", "--input", "text.txt", "--extractor")
SERVER = ("endpoint", "--base_url", "http://localhost:1/v1", "--model", "m")


def run_without(
    library: str, module: str, *options: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a module as a command in a process that cannot import a library."""
    command = Command("-m", module, *options, folder=folder, without=library)
    out, err = command.communicate()
    return subprocess.CompletedProcess(options, command.returncode or 0, out, err)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a memory graph of it."""
    path = tmp_path_factory.mktemp("memory")
    (path / "text.txt").write_text("Anna lives in Lima. Bob works in Oslo.", encoding="utf-8")
    (path / "other.txt").write_text("Zoe hates pasta.", encoding="utf-8")
    command = Command("-m", RUN, *REMEMBER, "rules", folder=path)
    command.communicate()
    assert command.returncode == 0
    return path


@pytest.mark.parametrize(
    ("library", "module", "options", "message"),
    [
        ("usearch", RUN, ASK, "memory graphs need usearch: pip install 'turngraph[memory]'"),
        ("numkong", RUN, ASK, "memory graphs need numkong: pip install 'turngraph[memory]'"),
        (
            "httpx2",
            RUN,
            (*REMEMBER, *SERVER),
            "requests to servers need httpx2: pip install 'turngraph[memory]'",
        ),
        (
            "pyoxigraph",
            RUN,
            (*ASK[:-1], "--compute", ASK[-1]),
            "typed memory graphs need pyoxigraph: pip install 'turngraph[rdf]'",
        ),
        (
            "psycopg",
            RUN,
            ("memory", "tenants", "--url", "postgresql://localhost/memories"),
            "memory graphs in PostgreSQL need psycopg: pip install 'turngraph[postgres]'",
        ),
        (
            "spacy",
            RUN,
            (*REMEMBER, "spacy:pl_core_news_sm"),
            "--extractor spacy:pl_core_news_sm needs spacy: pip install 'turngraph[spacy]'",
        ),
        (
            "simplemma",
            RUN,
            (*REMEMBER[:5], "other.txt"),
            "the rules need simplemma: pip install 'turngraph[memory]'",
        ),
        (
            "llguidance",
            RUN,
            (*REMEMBER, "lm", "--model", "tiny"),
            "--extractor lm needs llguidance: pip install 'turngraph[memory]'",
        ),
        (
            "pycountry",
            WORLDFACTS,
            ("--output", "facts"),
            "the sample benchmark needs pycountry: pip install 'turngraph[demo]'",
        ),
    ],
)
def test_a_missing_library_is_one_line(
    library: str, module: str, options: tuple[str, ...], message: str, folder: Path
) -> None:
    ended = run_without(library, module, *options, folder=folder)
    assert (ended.returncode, ended.stderr, ended.stdout) == (2, f"error: {message}\n", "")


@pytest.mark.slow
def test_without_memory_graphs_their_libraries_are_not_needed() -> None:
    code = (
        "import sys\nfor name in ('usearch', 'numkong', 'llguidance', 'wandb'):\n"
        "    sys.modules[name] = None\n"
        "import turngraph.train, turngraph.inference.api, turngraph.benchmarks.study.run_study\n"
        "from turngraph import load, MemoryGraph\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.parametrize(
    ("library", "name", "message"),
    [
        ("pypdf", "a.pdf", "PDF files need pypdf: pip install 'turngraph[documents]'"),
        ("mammoth", "a.docx", "Word files need mammoth: pip install 'turngraph[documents]'"),
        (
            "selectolax",
            "a.html",
            "HTML, Markdown and Word files need selectolax: pip install 'turngraph[documents]'",
        ),
    ],
)
def test_without_its_library_a_kind_of_documents_is_skipped_and_named(
    library: str, name: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(b"%PDF-1.7")
    options = ("pool", "--input", "in", "--output", "pool.jsonl")
    ended = run_without(library, RUN, *options, folder=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith(f"first: in/{name}: {message}")
    (tmp_path / "in" / "b.txt").write_text("Lima is old.", encoding="utf-8")
    ended = run_without(library, RUN, *options, folder=tmp_path)
    assert ended.returncode == 0
    assert f"WARNING skipped in/{name}: {message}" in ended.stderr
    assert "1 file read: 1 .txt" in ended.stderr
    assert (tmp_path / "pool.jsonl").is_file()


def test_without_tensorboard_a_line_says_so_and_the_log_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    caplog.set_level("INFO")
    log = RunLog(tmp_path, 0, 0, None, {})
    log.write(1, 0.5, {"loss": 2.0})
    assert caplog.messages == [
        "curves beside log.jsonl need tensorboard: pip install 'turngraph[tensorboard]'"
    ]
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 1, "seconds": 0.5, "loss": 2.0}\n'
    assert not (tmp_path / "tensorboard").exists()


def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    message = "training.wandb_project: 'p' needs wandb: pip install 'turngraph\\[wandb\\]'$"
    with pytest.raises(ValueError, match=message):
        RunLog(tmp_path, 0, 0, "p", {})
    run = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", run)
    output = tmp_path / ("long" * 20)
    log = RunLog(output, 0, 0, "p", {"seed": 3})
    log.write(1, 0.5, {"loss": 2.0})
    [(_, given)] = run.init.call_args_list
    assert given["id"] == given["name"][-64:] == ("-" + "long" * 20)[-64:]
    assert given["name"] == str(output).strip("/").replace("/", "-")
    assert (given["dir"], given["resume"]) == (str(output), "allow")
    assert given["config"] == {"seed": 3}
    assert run.init.return_value.method_calls == [call.log({"loss": 2.0}, step=1)]


def test_other_failures_stay_as_they_are() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nothing'"), extra("memory", "x"):
        from os import nothing  # noqa: F401
    with extra("memory", "memory graphs need"):
        import json
    assert json.loads("[]") == []
