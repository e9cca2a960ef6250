"""A plugin of pytest that writes which lines of the product's functions the tests run.

    python -m pytest -p turngraph.tests.lines_run
    python .ci/coverage_floor.py 85

Before Python 3.12 coverage's tracer adds half of their time to the tests. Here each statement sets
an item of a list before it, a few per cent of the time. Processes are left to coverage itself, and
only those of tests marked ``traced_processes``.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import coverage
import pytest

import turngraph

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "build" / "coverage" / "data"
LEFT_OUT = ("turngraph.tests", "turngraph.benchmarks")
NOT_COUNTED = ("benchmarks", "test_structure.py", "test_wheel.py")
"""Folder and files of tests: what they run of the product does not count."""
RUN: list[tuple[str, list[int], list[bool]]] = []
"""Of each file that was imported its path, the lines of its statements, and which were run."""


class Marking(SourceFileLoader):
    """A loader of modules whose functions tell which of their lines run."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree, lines, run = ast.parse(self.get_data(path)), list[int](), list[bool]()
        name = f"_lines_run_{len(RUN)}"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                _mark_inside(node, name, lines)
        run += [False] * len(lines)
        RUN.append((path, lines, run))
        setattr(builtins, name, run)  # the module's own names stay as they are
        return compile(tree, path, "exec", dont_inherit=True)


def _mark_inside(node: ast.AST, name: str, lines: list[int]) -> None:
    """Put a mark before each statement inside a node; functions inside are visited on their own."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        found = getattr(node, field, None)
        if not isinstance(found, list):
            continue
        marked = list[ast.AST]()
        for number, inner in enumerate(found):
            if isinstance(inner, ast.stmt) and not (number == 0 and _is_text(inner)):
                if number == 0 and isinstance(node, ast.ExceptHandler | ast.match_case):
                    head = node.pattern if isinstance(node, ast.match_case) else node
                    marked.append(_mark(inner, head.lineno, name, lines))
                marked.append(_mark(inner, inner.lineno, name, lines))
            marked.append(inner)
            if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                _mark_inside(inner, name, lines)
        setattr(node, field, marked)


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring, which must stay the first."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _mark(before: ast.stmt, line: int, name: str, lines: list[int]) -> ast.stmt:
    """Return ``name[place] = True`` for a line, as part of the statement that it stands before."""
    at = {"lineno": before.lineno, "col_offset": before.col_offset}
    item = ast.Subscript(
        ast.Name(name, ast.Load(), **at), ast.Constant(len(lines), **at), ast.Store(), **at
    )
    lines.append(line)
    return ast.Assign([item], ast.Constant(True, **at), **at)


class Finder:
    """Finds the product's modules with that loader, whatever else is there to find them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not f"{fullname}.".startswith("turngraph.") or fullname.startswith(LEFT_OUT):
            return None
        spec = PathFinder.find_spec(fullname, path or [], target)
        if fullname == "turngraph":
            spec = turngraph.__spec__
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Marking(fullname, spec.loader.path)
        return spec


sys.meta_path.insert(0, Finder())
importlib.reload(turngraph)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Forget what a test that does not count has run; trace the processes of one that asks."""
    if set(item.path.relative_to(ROOT / "tests").parts) & set(NOT_COUNTED):
        before = [run[:] for _, _, run in RUN]
        try:
            return (yield)
        finally:
            for index, (_, _, run) in enumerate(RUN):
                run[:] = before[index] if index < len(before) else [False] * len(run)
    if item.get_closest_marker("traced_processes") is None:
        return (yield)
    asked = coverage.Coverage(
        str(DATA), config_file=str(ROOT / "pyproject.toml"), source=[str(ROOT)]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVERAGE_PROCESS_CONFIG", asked.config.serialize())
        return (yield)


def pytest_unconfigure() -> None:
    """Write the lines as coverage's data, which ``coverage combine`` joins with those of others."""
    DATA.parent.mkdir(parents=True, exist_ok=True)
    data = coverage.CoverageData(basename=str(DATA), suffix=f"lines.{os.getpid()}")
    for path, lines, run in RUN:
        data.add_lines({path: [line for line, ran in zip(lines, run, strict=True) if ran]})
    data.touch_files([str(path) for path in _product()])  # of which none ran, too
    data.write()


def _product() -> Iterator[Path]:
    """Iterate over the product's files."""
    yield from ROOT.glob("*.py")
    for folder in ROOT.iterdir():
        if folder.name[0] != "." and folder.name not in ("benchmarks", "build", "tests"):
            yield from folder.rglob("*.py")
