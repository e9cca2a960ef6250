"""Measures how many small faults the tests detect, by mutation testing on a random sample.

    python -m turngraph.benchmarks.quality.mutations --num_faults 60 --seed 0

A fault is one changed operator, condition or number, or one call left out, in any function of the
product. Each is made in a copy of the last commit. The test files called like the fault's file run
first; then, file after file, those that name its function, the nearer by imports first, the tests
that reach the fault's line, until one fails. Prints one line per fault and the share that no test
sees. ``--kept`` holds which lines each test file reaches, measured when first needed, and which
faults were seen, so that the same command resumes, and tests only the rest once tests were added.
The suite is to pass before.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from turngraph.benchmarks.quality.forked_pytest import ForkedPytest
from turngraph.benchmarks.quality.reached_lines import (
    NO_TESTS,
    ReachedLines,
    is_named_like,
    is_product,
)
from turngraph.data.cli import run_cli

ROOT = Path(__file__).resolve().parents[2]
OPERATORS: dict[type[ast.AST], ast.AST] = {
    ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(), ast.In: ast.NotIn(), ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(), ast.IsNot: ast.Is(), ast.And: ast.Or(), ast.Or: ast.And(),
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Div(), ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(), ast.Mod: ast.FloorDiv(),
    ast.BitOr: ast.BitAnd(), ast.BitAnd: ast.BitOr(),
}  # fmt: skip
NUM_NEAR = 4
"""Test files that run whole on a fault, as long as they are not measured."""


class Fault(NamedTuple):
    """A change of one expression or statement: its file, line, old text and new text."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str


class Outcome(NamedTuple):
    """What the tests say of a fault: whether one fails, and which, or why none does."""

    seen: bool
    reason: str


def main(argv: Sequence[str] | None = None) -> None:
    """Draw faults, run the tests on each and print which survive."""
    args = parse(argv)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "turngraph"
        commit = checkout(copy)
        with ForkedPytest(copy) as pytest:
            reached = ReachedLines(pytest, Path(args.kept) / "lines")
            seen = SeenFaults(Path(args.kept) / "seen.jsonl", reached.blobs)
            drawn = draw(copy, args.num_faults, args.seed, args.under)
            for fault in tqdm(drawn, unit="fault"):
                outcome = seen.find(fault) or judge(pytest, fault, reached, args.limit)
                seen.add(fault, outcome)
                survivors += not outcome.seen
                tqdm.write(described(fault, outcome), file=sys.stdout)
                sys.stdout.flush()
    share = survivors / max(1, len(drawn))
    print(
        f"{survivors} of {len(drawn)} faults survive ({share:.0%}), seed {args.seed}, {commit[:7]}"
    )


def described(fault: Fault, outcome: Outcome) -> str:
    """Return two lines: a fault with what came of it, and the reason."""
    state = "seen    " if outcome.seen else "SURVIVED"
    change = f"{_short(fault.old)}  ->  {_short(fault.new)}"
    return f"{state}  {fault.path}:{fault.line}  {change}\n          {outcome.reason}"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--num_faults", type=int, default=60)
    add("--seed", type=int, default=0, help="random seed of the draw")
    add("--under", default="", help="draw from this folder or file alone")
    add("--kept", default=str(ROOT / "build" / "mutations"), help="folder for what is measured")
    add(
        "--limit",
        type=float,
        default=600,
        help="seconds for the tests of one fault; one that they do not decide counts as a survivor",
    )
    return parser.parse_args(argv)


def checkout(copy: Path) -> str:
    """Clone the last commit to a new folder and return the commit's hash."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True)
    head = ["git", "rev-parse", "HEAD"]
    return subprocess.run(head, cwd=copy, capture_output=True, text=True, check=True).stdout.strip()


def draw(copy: Path, num: int, seed: int, under: str) -> list[Fault]:
    """Draw a random sample of all possible faults in the product's functions."""
    names = sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*.py"))
    product = [name for name in names if is_product(name) and name.startswith(under)]
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


class SeenFaults:
    """The faults that a test failed on, kept in a file.

    A fault counts as seen as long as its file and the test file are the same.

    Args:
        path: JSON Lines file, made if it is missing.
        blobs: hash of every file of the commit.
    """

    def __init__(self, path: Path, blobs: dict[str, str]) -> None:
        self.path, self.blobs = path, blobs
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.found: dict[str, Outcome] = {}
        for record in map(json.loads, lines):
            if blobs.get(record["test_file"]) == record["test_blob"]:
                self.found[record["fault"]] = Outcome(True, record["reason"])

    def find(self, fault: Fault) -> Outcome | None:
        """Return the outcome of a fault that was seen; None if it is not known."""
        return self.found.get(self._key(fault))

    def add(self, fault: Fault, outcome: Outcome) -> None:
        """Keep an outcome, if the fault was seen."""
        key = self._key(fault)
        if not outcome.seen or key in self.found:
            return
        self.found[key] = outcome
        test_file = outcome.reason.partition("::")[0]
        record = {"fault": key, "test_file": test_file, "test_blob": self.blobs[test_file]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record | {"reason": outcome.reason}) + "\n")

    def _key(self, fault: Fault) -> str:
        return hashlib.sha256(json.dumps([self.blobs[fault.path], *fault]).encode()).hexdigest()


def judge(pytest: ForkedPytest, fault: Fault, reached: ReachedLines, limit: float) -> Outcome:
    """Run the tests that reach a fault, file after file, until one fails."""
    end = time.monotonic() + limit
    ran: list[str] = []
    for number, test_file in enumerate(files := reached.files(fault.path, fault.line)):
        # The nearest run whole: they decide most faults sooner than a measurement would.
        near = number < NUM_NEAR and not reached.is_measured(test_file)
        whole = near or is_named_like(test_file, fault.path)
        tests = [test_file] if whole else reached.tests(test_file, fault.path, fault.line)
        left = end - time.monotonic()
        if tests and left > 0:
            ran.append(test_file)
            if outcome := failing(pytest, fault, tests, left):
                return outcome
        if time.monotonic() > end:
            names = ", ".join(ran) or "none"
            return Outcome(
                False,
                f"not decided in {limit:g} s, {len(files) - number - 1} of {len(files)} test files "
                f"left; ran without a failure, or until then: {names}; a larger --limit decides",
            )
    return Outcome(False, f"passed: {', '.join(ran)}" if ran else "no test reaches the line")


def failing(
    pytest: ForkedPytest, fault: Fault, tests: Sequence[str], timeout: float
) -> Outcome | None:
    """Run tests with a fault in the copy, then repair it; None if none fails in the time."""
    path = pytest.copy / fault.path
    sound = path.read_bytes()
    path.write_bytes(sound[: fault.start] + fault.new.encode() + sound[fault.end :])
    try:
        code, said = pytest.run(tests, "-x", timeout=timeout)
    finally:
        path.write_bytes(sound)
    if code in (None, 0, NO_TESTS):
        return None
    named = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    test = named[0].split()[1] if named else tests[0]
    return Outcome(True, test if test.startswith("tests/") else tests[0])


def _short(text: str) -> str:
    return " ".join(text.split())[:60]


if __name__ == "__main__":
    run_cli(main)
