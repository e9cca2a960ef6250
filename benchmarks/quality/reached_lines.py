"""Tells which tests reach a line: each test file is measured once, alone, and the result kept."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from coverage import CoverageData

from turngraph.benchmarks.quality.forked_pytest import ForkedPytest
from turngraph.data.json_fields import Json
from turngraph.data.outputs import whole_file

PACKAGE = "turngraph"
OUTSIDE = ("tests/", "benchmarks/", ".ci/", "build/")
MEASURED = ("--cov", "--cov-context=test", "--cov-report=")
UNSEEN_IMPORTS = re.compile(r"import_module|subprocess|multiprocessing|os\.fork")
"""Code that may run files which its imports do not name."""
WORD = re.compile(r"\w+")
NO_TESTS = 5
"""pytest's exit code where every test is deselected."""


class ReachedLines:
    """The tests of a copy of the repository that reach a line, the most direct first.

    Args:
        pytest: of a clone of the repository.
        kept: folder for the measured lines. A test file is measured again when it or a file that
            it imports has changed, or the product where imports do not tell what it runs.
    """

    def __init__(self, pytest: ForkedPytest, kept: Path) -> None:
        self.pytest, self.kept, copy = pytest, kept, pytest.copy
        self.blobs = _blobs(copy)
        self.imports = _imports(copy, sorted(self.blobs))
        self.test_files = [path for path in sorted(self.blobs) if is_test(path)]
        self.steps = {test: _steps(test, self.imports) for test in self.test_files}
        self.texts = {path: (copy / path).read_text(encoding="utf-8") for path in self.imports}
        unseen = {path for path, text in self.texts.items() if UNSEEN_IMPORTS.search(text)}
        self.runs_more = {test for test, steps in self.steps.items() if unseen & steps.keys()}

    def files(self, path: str, line: int) -> list[str]:
        """Return the test files that may reach a line.

        Those called like its file come first, then those that name the function or class it is in,
        then the nearer by imports and folders between, of these the ones that were measured. A test
        file that imports the file nowhere, and starts no process, cannot reach it.
        """
        names = _names_around(self.texts[path], line)
        importers: dict[str, set[str]] = defaultdict(set)
        for importer, imported in self.imports.items():
            for name in imported:
                importers[name].add(importer)
        steps = _steps(path, importers)
        beside = ("tests", *Path(path).parent.parts)

        def distance(test: str) -> tuple[bool, int, int, bool, str]:
            folders = Path(test).parent.parts
            shared = sum(one == other for one, other in zip(folders, beside, strict=False))
            far = steps.get(test, len(self.blobs)) + len(folders) - 2 * shared
            unnamed = len(names - set(WORD.findall(self.texts[test])))
            return not is_named_like(test, path), unnamed, far, not self.is_measured(test), test

        tests = (t for t in self.test_files if path in self.steps[t] or t in self.runs_more)
        return sorted(tests, key=distance)

    def is_measured(self, test_file: str) -> bool:
        """Tell whether the lines that a test file reaches are known."""
        return self._record(test_file).exists()

    def _record(self, test_file: str) -> Path:
        """Return the file that keeps the lines of a test file, named by what they depend on."""
        needed = {p for p in self.blobs if Path(p).name == "conftest.py"}
        needed |= self.steps[test_file].keys()
        if test_file in self.runs_more:
            needed |= {p for p in self.blobs if is_product(p)}
        digest = hashlib.sha256("".join(self.blobs[path] for path in sorted(needed)).encode())
        return self.kept / f"{Path(test_file).stem}-{digest.hexdigest()[:12]}.json"

    def tests(self, test_file: str, path: str, line: int) -> list[str]:
        """Return what pytest is to run of a test file for a line; nothing if it is not reached.

        Tests that reach it come first. What a fixture or a child process runs may be looked at by
        any test of the file: then all of the file follows.
        """
        record = self._record(test_file)
        if not record.exists():
            measured = measure(self.pytest, test_file)
            record.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(record) as file:
                json.dump(measured, file)
        contexts = json.loads(record.read_text(encoding="utf-8")).get(path, {}).get(str(line), [])
        tests = sorted(c.removesuffix("|run") for c in contexts if c.endswith("|run"))
        return [*tests, test_file] if len(tests) < len(contexts) else tests


def is_product(path: str) -> bool:
    """Tell whether a file is code that faults are made in."""
    return path.endswith(".py") and not path.startswith(OUTSIDE)


def is_test(path: str) -> bool:
    """Tell whether pytest collects a file."""
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def is_named_like(test: str, path: str) -> bool:
    """Tell whether a test file has the name of a file of the product."""
    return Path(test).name == f"test_{Path(path).stem}.py"


def measure(pytest: ForkedPytest, test_file: str) -> Json:
    """Run a test file; return coverage's contexts, "test|run" or "test|setup", by file and line."""
    folder = pytest.copy / "build" / "coverage"
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("data*"):
        left.unlink()
    code, said = pytest.run([test_file], *MEASURED)
    if code not in (0, NO_TESTS):
        raise ValueError(f"{test_file}: fails without a fault:\n{said[-2000:]}")
    data = CoverageData(str(folder / "data"))
    data.read()  # nothing where no line was run
    found: Json = {}
    for path in data.measured_files():
        contexts = {line: c for line, c in data.contexts_by_lineno(path).items() if c}
        found[Path(path).relative_to(pytest.copy.resolve()).as_posix()] = contexts
    return found


def _blobs(copy: Path) -> dict[str, str]:
    """Return git's hash of every file of a commit."""
    command = ["git", "-c", "core.quotepath=off", "ls-tree", "-r", "HEAD"]
    listed = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True).stdout
    return {line.partition("\t")[2]: line.split()[2] for line in listed.splitlines()}


def _imports(copy: Path, paths: Sequence[str]) -> dict[str, set[str]]:
    """Return the files that each file imports, inside functions too."""
    known, found = set(paths), {}
    for path in paths:
        if path.endswith(".py"):
            modules = _imported((copy / path).read_text(encoding="utf-8"))
            inside = [m.removeprefix(PACKAGE).lstrip(".").replace(".", "/") for m in modules]
            names = {n for i in inside for n in (f"{i}.py", f"{i}/__init__.py".lstrip("/"))}
            found[path] = names & known
    return found


def _steps(start: str, following: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Return how many steps lead from a file to each that can be reached."""
    steps, waiting = {start: 0}, [start]
    for path in waiting:
        for other in following.get(path, ()):
            if other not in steps:
                steps[other] = steps[path] + 1
                waiting.append(other)
    return steps


def _names_around(text: str, line: int) -> set[str]:
    """Return the names of the functions and classes that contain a line."""
    definitions = ast.FunctionDef | ast.ClassDef
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, definitions))
    return {node.name for node in found if node.lineno <= line <= (node.end_lineno or line)}


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
