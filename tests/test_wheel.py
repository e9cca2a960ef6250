"""The wheel, installed beside a project that has its own ``data``, ``model`` and ``configs``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngraph.tests.runs import ROOT, options
from turngraph.tests.waiting import PATIENCE

ROOMS = ("configs", "data", "inference", "model", "training")
TEXT = "Anna lives in Lima. Bob works in Oslo."


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network from a copy: setuptools writes into what it builds."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.py"), *map(ROOT.joinpath, ("pyproject.toml", "README.md"))):
        shutil.copy(path, source)
    shutil.copy(ROOT / "LICENSE", source)
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "-w", output, source)
    (built,) = output.iterdir()
    return built


def pip(python: str | Path, *arguments: object) -> None:
    """Run this environment's pip for some interpreter, offline."""
    command = [sys.executable, "-m", "pip", "--python", python, *arguments]
    quiet = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        list(map(str, command)), env=clean() | quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def clean() -> dict[str, str]:
    """Return the environment without what leads to this checkout."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "COVERAGE"))}


class Installed:
    """An environment with the wheel, and a folder in which a user works.

    Args:
        folder: an empty one.
        wheel: to install.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.environment, self.project = folder / "environment", folder / "project"
        venv = [sys.executable, "-m", "venv", "--without-pip", self.environment]
        subprocess.run(venv, check=True)
        self.bin = self.environment / "bin"
        (self.packages,) = self.environment.glob("lib/python*/site-packages")
        before = self.files()
        pip(self.bin / "python", "install", "--no-deps", wheel)
        self.added = self.files() - before
        # Its libraries are those of the tests. What a .pth file names is searched last, and .pth
        # files inside it are not read: an editable install of the checkout is not seen.
        self.libraries = self.packages / "libraries.pth"
        self.libraries.write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        for room in ("data", "model", "configs"):
            (self.project / room).mkdir(parents=True)
            text = "raise AssertionError('a module of the user was imported')\n"
            (self.project / room / "__init__.py").write_text(text, encoding="utf-8")
        git = ["git", "-c", "user.name=U", "-c", "user.email=u@example.org"]
        for action in (["init", "-q"], ["add", "."], ["commit", "-qm", "Mine"]):
            subprocess.run([*git, *action], cwd=self.project, check=True)

    def files(self) -> set[str]:
        """Return the names in ``bin`` and ``site-packages``."""
        return {path.name for folder in (self.bin, self.packages) for path in folder.iterdir()}

    def __call__(self, *arguments: object) -> str:
        """Run ``turngraph`` in the project; return what it prints."""
        return self._run("turngraph", *arguments)

    def python(self, code: str, *arguments: str) -> str:
        """Run Python in the project; return what it prints."""
        return self._run("python", "-c", code, *arguments)

    def _run(self, program: str, *arguments: object) -> str:
        """Run a program of the environment in the project, whose modules are importable."""
        done = subprocess.run(
            [str(self.bin / program), *map(str, arguments)],
            cwd=self.project,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env=clean() | {"PYTHONPATH": str(self.project), "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


@pytest.fixture(scope="module")
def turngraph(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The command of an installed wheel; at the end it is uninstalled and nothing is left."""
    installed = Installed(tmp_path_factory.mktemp("installed"), wheel)
    yield installed
    installed.libraries.unlink()
    pip(installed.bin / "python", "uninstall", "--yes", "turngraph")
    assert not installed.added & installed.files()


ONE_AFTER_THE_OTHER = """
import io, json, sys
from turngraph.__main__ import run
for name, text, *arguments in json.loads(sys.argv[1]):
    sys.stdin = io.StringIO(text)
    run(name, arguments)
    print("END")
"""


@pytest.fixture(scope="module")
def printed(turngraph: Installed, tiny_folder: str, tiny_data: Path) -> dict[str, str]:
    """What train (from a shipped config), answer and chat print: torch is imported once."""
    (turngraph.project / "text.txt").write_text(TEXT, encoding="utf-8")
    changes = options(tiny_folder, tiny_data, "run", training__max_steps=2)
    answer = ("--input", str(tiny_data / "tune.jsonl"), "--output", "answers.jsonl")
    chat = ("--evidence", "text.txt", "--memory", "chat.db")
    loaded = ("--checkpoint", "run/best", "--max_new_tokens", "4")
    commands = (
        ("train", "", "--config", "sqa/graph_memory", *changes),
        ("answer", "", *loaded, *answer),
        ("chat", "Where does Anna live?\nAnd Bob?\n", *loaded, *chat),
    )
    texts = turngraph.python(ONE_AFTER_THE_OTHER, json.dumps(commands)).split("END\n")
    return {command[0]: text for command, text in zip(commands, texts, strict=False)}


def test_the_wheel_holds_the_modules_and_files_of_the_checkout(wheel: Path) -> None:
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "ls-files", *ROOMS, "*.py", ":!tests", ":!docs", ":!benchmarks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    there = {path for path in tracked if (ROOT / path).is_file()}
    left_out = {path for path in there if Path(path).suffix in (".sbatch", ".md")}
    wanted = {f"turngraph/{path}" for path in there - left_out if not path.startswith(".ci/")}
    assert wanted - found == set()
    assert not any(name.startswith("turngraph/benchmarks") for name in found)
    assert {name for name in found - wanted if ROOT.joinpath(name[10:]).suffix == ".py"} == set()


def test_nothing_but_turngraph_is_installed(turngraph: Installed) -> None:
    (info,) = {name for name in turngraph.added if name.endswith(".dist-info")}
    assert turngraph.added == {"turngraph", info}, "the command is in bin under the package's name"
    assert (turngraph.bin / "turngraph").is_file()
    where = turngraph.python("import turngraph; print(turngraph.__file__)").strip()
    assert Path(where) == turngraph.packages / "turngraph" / "__init__.py"


def test_a_study_is_a_command_of_a_clone(turngraph: Installed) -> None:
    with pytest.raises(AssertionError, match="turngraph study: only in a clone of the repository"):
        turngraph("study", "--plan")


@pytest.mark.usefixtures("printed")
def test_trains_and_never_records_the_commit_of_a_user(turngraph: Installed) -> None:
    path = turngraph.project / "run" / "best" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    assert manifest["commit"] is None
    assert manifest["versions"]["turngraph"] == "0.1.0"


@pytest.mark.usefixtures("printed")
def test_answers(turngraph: Installed) -> None:
    output = turngraph.project / "answers.jsonl"
    records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(records) == 6
    assert all(isinstance(record["answer"], str) for record in records)
    assert turngraph("score", "--predictions", output).startswith("All questions;")


def test_chats_with_a_memory(turngraph: Installed, printed: dict[str, str]) -> None:
    assert printed["chat"].strip()
    assert (turngraph.project / "chat.db").is_file()
