"""Choose the tests that need not be traced for coverage, as tracing doubles their time.

    python -m pytest -m "not slow" --durations=0 --cov --cov-context=test --cov-report= > run.log
    python .ci/untraced.py run.log > tests/untraced.txt

A test function is left out, the longest first, if every file of the product then keeps its share of
reached lines, or 90 % of its lines, both in functions alone, as in ``coverage_floor.py``.
``tests/conftest.py`` reads the list. Tests of the list before have no lines in such a run; empty it
first for a list from nothing.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import coverage

LEAST_SECONDS, FLOOR = 0.3, 0.9


def main(log: str) -> None:
    """Print the names of the test functions, the longest first."""
    seconds = read_seconds(Path(log).read_text(errors="replace"))
    files = read_lines()
    traced = {function for reached in files.values() for function in reached[1]}
    shares = {name: share(reached, traced) for name, reached in files.items()}
    for function, took in seconds.most_common():
        if took < LEAST_SECONDS:
            break
        rest = traced - {function}
        if all(share(files[name], rest) >= min(FLOOR, shares[name]) for name in files):
            traced = rest
            print(function)


def read_seconds(log: str) -> Counter[str]:
    """Return the seconds of each test function, from pytest's list of durations."""
    seconds: Counter[str] = Counter()
    for took, name in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(\S+)", log, re.M):
        seconds[name.partition("[")[0]] += float(took)
    return seconds


def read_lines() -> dict[str, tuple[int, dict[str, set[int]]]]:
    """Return the number of lines in functions of each file, and those that each test reaches."""
    measured = coverage.Coverage()
    measured.load()
    data, found = measured.get_data(), {}
    for name in data.measured_files():
        if not name.endswith(".py"):
            continue
        lines = set(measured.analysis2(name)[1]) & lines_in_functions(Path(name))
        reached = defaultdict[str, set[int]](set)
        for line, contexts in data.contexts_by_lineno(name).items():
            for context in contexts if line in lines else ():
                reached[re.split(r"[\[|]", context)[0]].add(line)
        if lines and reached:
            found[name] = len(lines), dict(reached)
    return found


def lines_in_functions(path: Path) -> set[int]:
    """Return the numbers of the lines in the bodies of a file's functions."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {line for f in functions for line in range(f.body[0].lineno, (f.end_lineno or 0) + 1)}


def share(file: tuple[int, dict[str, set[int]]], functions: set[str]) -> float:
    """Return the share of a file's lines that some test functions reach."""
    num, reached = file
    return len(set().union(*(reached[f] for f in reached.keys() & functions))) / num


if __name__ == "__main__":
    main(sys.argv[1])
