"""Tells which tests reach a fault: each test file runs once with marks, and the result is kept."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from turngraph.benchmarks.quality.faults import Fault, is_product, marked
from turngraph.benchmarks.quality.forked_pytest import ForkedPytest
from turngraph.data.outputs import whole_file

PACKAGE = "turngraph"
UNSEEN_IMPORTS = re.compile(r"import_module|subprocess|multiprocessing|os\.fork")
"""Code that may run files which its imports do not name."""
WORD = re.compile(r"\w+")
NO_TESTS = 5
"""pytest's exit code where every test is deselected."""


MARKING = """
import builtins, os

written = set()


def mark(number):
    line = f"{number} {os.environ.get('PYTEST_CURRENT_TEST', '')}\\n"
    if line not in written:
        written.add(line)
        with open(NAME, "a", encoding="utf-8") as file:
            file.write(line)


builtins.MARK = mark
"""
"""Python imports it at the start of every process, also of those that tests start."""


class ReachingTests:
    """The tests of a copy of the repository that reach a fault, the most direct first.

    Args:
        pytest: of a clone of the repository.
        faults: all that is asked for, so that a test file runs once for all of them.
        kept: folder for what was found. A test file runs again when it or a file that it imports
            has changed, or the product where imports do not tell what it runs.
    """

    def __init__(self, pytest: ForkedPytest, faults: Sequence[Fault], kept: Path) -> None:
        self.faults = faults
        self.pytest, self.kept, copy = pytest, kept, pytest.copy
        self.blobs = _blobs(copy)
        self.imports = _imports(copy, sorted(self.blobs))
        self.test_files = [path for path in sorted(self.blobs) if is_test(path)]
        self.steps = {test: _steps(test, self.imports) for test in self.test_files}
        self.texts = {path: (copy / path).read_text(encoding="utf-8") for path in self.imports}
        unseen = {path for path, text in self.texts.items() if UNSEEN_IMPORTS.search(text)}
        self.runs_more = {test for test, steps in self.steps.items() if unseen & steps.keys()}

    def files(self, fault: Fault) -> list[str]:
        """Return the test files that may reach a fault.

        Those called like its file come first, then those that name the function or class it is in,
        then the nearer by imports and folders between. A test file that imports the file nowhere,
        and starts no process, cannot reach it.
        """
        path, line = fault.path, fault.line
        names = _names_around(self.texts[path], line)
        importers: dict[str, set[str]] = defaultdict(set)
        for importer, imported in self.imports.items():
            for name in imported:
                importers[name].add(importer)
        steps = _steps(path, importers)
        beside = ("tests", *Path(path).parent.parts)

        def distance(test: str) -> tuple[bool, int, int, str]:
            folders = Path(test).parent.parts
            shared = sum(one == other for one, other in zip(folders, beside, strict=False))
            far = steps.get(test, len(self.blobs)) + len(folders) - 2 * shared
            unnamed = len(names - set(WORD.findall(self.texts[test])))
            return not is_named_like(test, path), unnamed, far, test

        tests = (t for t in self.test_files if path in self.steps[t] or t in self.runs_more)
        return sorted(tests, key=distance)

    def digest(self, test_file: str) -> str:
        """Return a hash of all that a test file's result depends on."""
        needed = {p for p in self.blobs if Path(p).name == "conftest.py"}
        needed |= self.steps[test_file].keys()
        if test_file in self.runs_more:
            needed |= {p for p in self.blobs if is_product(p)}
        return hashlib.sha256("".join(self.blobs[p] for p in sorted(needed)).encode()).hexdigest()

    def tests(self, test_file: str, fault: Fault) -> list[str]:
        """Return what pytest is to run of a test file for a fault; nothing if it is not reached.

        Tests that reach it come first. What a fixture or an import runs may be looked at by any
        test of the file: then all of the file follows.
        """
        names = hashlib.sha256(json.dumps(self.faults).encode()).hexdigest()[:8]
        digest = self.digest(test_file)[:12]
        record = self.kept / f"{Path(test_file).stem}-{digest}-{names}.json"
        if not record.exists():
            reached = self._reached(test_file)
            record.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(record) as file:
                json.dump(reached, file)
        places = json.loads(record.read_text(encoding="utf-8"))[self.faults.index(fault)]
        tests = sorted(
            place.removesuffix(" (call)") for place in places if place.endswith("(call)")
        )
        return [*tests, test_file] if len(tests) < len(places) else tests

    def _reached(self, test_file: str) -> list[list[str]]:
        """Run a test file with marks; return of each fault the tests, and their parts, there."""
        copy, by_path = self.pytest.copy, defaultdict[str, dict[int, Fault]](dict)
        for number, fault in enumerate(self.faults):
            by_path[fault.path][number] = fault
        found: list[set[str]] = [set() for _ in self.faults]
        sound = {path: (copy / path).read_bytes() for path in by_path}
        written = copy / "build" / "marks.txt"
        written.write_text("")
        marking = f"NAME = {str(written)!r}\n{MARKING}"
        (copy.parent / "sitecustomize.py").write_text(marking, encoding="utf-8")
        try:
            for path, faults in by_path.items():
                text, unmarked = marked(sound[path], faults)
                (copy / path).write_bytes(text)
                for number in unmarked:
                    found[number].add("")
            self.pytest.run([test_file], "-p", "sitecustomize")
        finally:
            for path, text in sound.items():
                (copy / path).write_bytes(text)
        for line in written.read_text(encoding="utf-8").splitlines():
            reached, _, place = line.partition(" ")
            found[int(reached)].add(place)
        return [sorted(places) for places in found]


def is_test(path: str) -> bool:
    """Tell whether pytest collects a file."""
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def is_named_like(test: str, path: str) -> bool:
    """Tell whether a test file has the name of a file of the product."""
    return Path(test).name == f"test_{Path(path).stem}.py"


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
