"""Measures how many small faults the tests detect, by mutation testing on a random sample.

    python -m turngraph.benchmarks.quality.mutations --num_faults 60 --seed 0

A fault is one changed operator, condition or number, or one call left out, in any function of the
product. It is made in a copy of the last commit. Only the tests that reach its line are run; if
child processes reach the line, also the tests of the commands. Prints one line per fault and
the share that no test detects. The first run measures which test reaches which line, which takes as
long as the whole suite; ``--lines FILE`` keeps that for later runs on the same commit.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from turngraph.data.outputs import whole_file

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ("tests/", "benchmarks/", ".ci/", "build/")
PYTEST = ("-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no")
IN_CHILDREN = "tests/test_*.py"
OPERATORS: dict[type[ast.AST], ast.AST] = {
    ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(), ast.In: ast.NotIn(), ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(), ast.IsNot: ast.Is(), ast.And: ast.Or(), ast.Or: ast.And(),
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Div(), ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(), ast.Mod: ast.FloorDiv(),
    ast.BitOr: ast.BitAnd(), ast.BitAnd: ast.BitOr(),
}  # fmt: skip
Lines = dict[str, dict[int, list[str]]]


class Fault(NamedTuple):
    """A change of one expression or statement: its file, line, old text and new text."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str


def main(argv: Sequence[str] | None = None) -> None:
    """Draw faults, run the tests on each and print which survive."""
    args = parse(argv)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "turngraph"
        commit = checkout(copy)
        lines = known_lines(args.lines, copy, commit)
        drawn = draw(copy, args.num_faults, args.seed, args.under)
        survivors = 0
        for fault in tqdm(drawn, unit="fault"):
            tests = reaching(lines, fault)
            seen = bool(tests) and is_seen(copy, fault, tests, args.timeout)
            survivors += not seen
            state = "seen" if seen else "SURVIVED" if tests else "NEVER RUN"
            change = f"{_short(fault.old)}  ->  {_short(fault.new)}"
            tqdm.write(f"{state:9}  {fault.path}:{fault.line}  {change}", file=sys.stdout)
    share = survivors / max(1, len(drawn))
    print(
        f"{survivors} of {len(drawn)} faults survive ({share:.0%}), seed {args.seed}, {commit[:7]}"
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--num_faults", type=int, default=60)
    add("--seed", type=int, default=0, help="random seed of the draw")
    add("--under", default="", help="draw from this folder or file alone")
    add("--lines", help="JSON file that keeps which test reaches which line")
    add(
        "--timeout",
        type=float,
        default=600,
        help="seconds; a fault whose tests take longer counts as detected",
    )
    return parser.parse_args(argv)


def checkout(copy: Path) -> str:
    """Clone the last commit to a new folder and return the commit's hash."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True)
    head = ["git", "rev-parse", "HEAD"]
    return subprocess.run(head, cwd=copy, capture_output=True, text=True, check=True).stdout.strip()


def known_lines(kept: str | None, copy: Path, commit: str) -> Lines:
    """Return the tests that reach each line of each file, measured or read from a file.

    Raises:
        ValueError: the file was measured on another commit.
    """
    if kept and Path(kept).is_file():
        record = json.loads(Path(kept).read_text(encoding="utf-8"))
        if record["commit"] != commit:
            raise ValueError(f"{kept}: measured on commit {record['commit'][:7]}, not {commit[:7]}")
        files = record["files"]
    else:
        files = measure_lines(copy)
        if kept:
            with whole_file(kept) as file:
                json.dump({"commit": commit, "files": files}, file)
    return {path: {int(n): tests for n, tests in of.items()} for path, of in files.items()}


def measure_lines(copy: Path) -> dict[str, dict[str, list[str]]]:
    """Run the whole suite once and return the tests that reach each line, by file."""
    (copy / "build" / "coverage").mkdir(parents=True, exist_ok=True)
    suite = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    suite += ["-n", "2", "--dist", "loadfile", "--cov", "--cov-context=test", "--cov-report="]
    subprocess.run(suite, cwd=copy, env=_environment(copy), check=True)
    report = copy / "build" / "lines.json"
    command = [sys.executable, "-m", "coverage", "json", "--quiet", "--show-contexts"]
    subprocess.run([*command, "-o", str(report)], cwd=copy, check=True)
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {
        path: {
            line: sorted({context.rpartition("|")[0] for context in contexts})
            for line, contexts in file["contexts"].items()
        }
        for path, file in files.items()
    }


def draw(copy: Path, num: int, seed: int, under: str) -> list[Fault]:
    """Draw a random sample of all possible faults in the product's functions."""
    names = sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*.py"))
    product = [n for n in names if not n.startswith(OUTSIDE) and n.startswith(under)]
    faults = [fault for name in product for fault in faults_of(name, (copy / name).read_text())]
    return random.Random(seed).sample(faults, min(num, len(faults)))


def faults_of(path: str, text: str) -> Iterator[Fault]:
    """Yield every fault that can be made inside a function of a file."""
    offsets = [0]
    for line in text.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    found = set()
    for node in _in_functions(ast.parse(text)):
        if not isinstance(node, ast.expr | ast.stmt) or node.end_lineno is None:
            continue
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[node.end_lineno - 1] + (node.end_col_offset or 0)
        old = text.encode()[start:end].decode()
        for new in changes(node, old):
            found.add(Fault(path, node.lineno, start, end, old, new))
    yield from sorted(found)


def _in_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes inside the functions of a file, without signatures and types."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        if inside:
            yield node
        inside = inside or isinstance(node, ast.FunctionDef)
        skipped = {id(getattr(node, name, None)) for name in ("args", "annotation", "returns")}
        if not isinstance(node, ast.FunctionDef | ast.AnnAssign):
            skipped = set()
        waiting += [(n, inside) for n in ast.iter_child_nodes(node) if id(n) not in skipped]


def changes(node: ast.AST, old: str) -> Iterator[str]:
    """Yield the replacements of a node's text that are faults."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPERATORS:
            yield _with(node, "ops", [OPERATORS[type(operator)]])
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) | ast.AugAssign(op=operator):
            if type(operator) in OPERATORS and not _is_text(node):
                yield _with(node, "op", OPERATORS[type(operator)])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield f"{value + 1}"
        case ast.IfExp(test=test):
            yield _with(node, "test", ast.UnaryOp(op=ast.Not(), operand=test))
        case ast.Expr(value=ast.Call()):
            yield "pass"


def _with(node: ast.AST, field: str, value: object) -> str:
    changed = ast.parse(ast.unparse(node)).body[0]
    inner = changed.value if isinstance(changed, ast.Expr) else changed
    setattr(inner, field, value)
    text = ast.unparse(ast.fix_missing_locations(changed))
    return text if isinstance(node, ast.stmt) else f"({text})"


def _is_text(node: ast.AST) -> bool:
    """Tell whether a node contains a string, for which most operators are undefined."""
    return any(
        isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str | bytes)
        for part in ast.walk(node)
    )


def reaching(lines: Lines, fault: Fault) -> list[str]:
    """Return the tests that reach a fault's line, those of its module first."""
    contexts = lines.get(fault.path, {}).get(fault.line)
    if contexts is None:
        return []
    own = f"test_{Path(fault.path).stem}.py"
    tests = sorted(filter(None, contexts), key=lambda test: (own not in test, test))
    if "" in contexts:
        by_children = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(IN_CHILDREN))
        tests += [path for path in by_children if path not in tests]
    return tests


def is_seen(copy: Path, fault: Fault, tests: Sequence[str], timeout: float) -> bool:
    """Tell whether a test fails or times out with a fault in the copy; then remove the fault."""
    path = copy / fault.path
    sound = path.read_bytes()
    path.write_bytes(sound[: fault.start] + fault.new.encode() + sound[fault.end :])
    try:
        listed = copy / "build" / "tests.txt"
        listed.parent.mkdir(exist_ok=True)
        listed.write_text("\n".join(tests) + "\n", encoding="utf-8")
        command = [sys.executable, *PYTEST, f"@{listed}"]
        found = subprocess.run(
            command, cwd=copy, env=_environment(copy), capture_output=True, timeout=timeout
        )
        return found.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_bytes(sound)


def _environment(copy: Path) -> dict[str, str]:
    one_thread = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **one_thread, "PYTHONPATH": str(copy.parent)}


def _short(text: str) -> str:
    return " ".join(text.split())[:60]


if __name__ == "__main__":
    main()
