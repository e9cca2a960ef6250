"""Small faults of a program: which can be made, a random draw, and marks where they are."""

from __future__ import annotations

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

OUTSIDE = ("tests/", "benchmarks/", ".ci/", "build/")
OPERATORS: dict[type[ast.AST], ast.AST] = {
    ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(), ast.In: ast.NotIn(), ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(), ast.IsNot: ast.Is(), ast.And: ast.Or(), ast.Or: ast.And(),
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Div(), ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(), ast.Mod: ast.FloorDiv(),
    ast.BitOr: ast.BitAnd(), ast.BitAnd: ast.BitOr(),
}  # fmt: skip


class Fault(NamedTuple):
    """A change of one expression or statement: its file, line, place, old text and new text."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    is_statement: bool = False

    def made_in(self, sound: bytes) -> bytes:
        """Return the text of its file with the fault."""
        return sound[: self.start] + self.new.encode() + sound[self.end :]


def is_product(path: str) -> bool:
    """Tell whether a file is code that faults are made in."""
    return path.endswith(".py") and not path.startswith(OUTSIDE)


def draw(copy: Path, num: int, seed: int, under: str) -> list[Fault]:
    """Draw a random sample of all possible faults in the product's functions.

    A fault's rank depends on the seed, its file and its texts alone, so that a change of the
    product elsewhere leaves a draw as it is.
    """
    names = sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*.py"))
    product = [name for name in names if is_product(name) and name.startswith(under)]
    ranked: list[tuple[str, Fault]] = []
    for name in product:
        uses: Counter[tuple[str, str]] = Counter()
        for fault in faults_of(name, (copy / name).read_text(encoding="utf-8")):
            texts = (fault.old, fault.new)
            uses[texts] += 1
            text = json.dumps([seed, name, *texts, uses[texts]])
            ranked.append((hashlib.sha256(text.encode()).hexdigest(), fault))
    return [fault for _, fault in sorted(ranked)[:num]]


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
            found.add(Fault(path, node.lineno, start, end, old, new, isinstance(node, ast.stmt)))
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


def marked(sound: bytes, faults: Mapping[int, Fault]) -> tuple[bytes, list[int]]:
    """Return a file's text that calls ``MARK`` with a fault's number where its place is run.

    Args:
        sound: the text of the file.
        faults: faults of the file by their numbers.

    Returns:
        The text, and the numbers of the faults that no call can be put before, as in a pattern.
    """
    possible = {n: fault for n, fault in faults.items() if _compiles(_marked(sound, {n: fault}))}
    return _marked(sound, possible), sorted(faults.keys() - possible.keys())


def _marked(sound: bytes, faults: Mapping[int, Fault]) -> bytes:
    inserted = []  # place, what comes first there (an inner end, an outer start), text
    for number, fault in faults.items():
        if fault.is_statement:
            inserted.append((fault.start, (1, -fault.end, 0), f"MARK({number}); "))
        else:
            inserted.append((fault.start, (1, -fault.end, 1), f"(MARK({number}), "))
            inserted.append((fault.end, (0, -fault.start, 0), ")[1]"))
    text = sound
    for place, _, added in sorted(inserted, reverse=True):
        text = text[:place] + added.encode() + text[place:]
    return text


def _compiles(text: bytes) -> bool:
    try:
        compile(text, "", "exec")
    except SyntaxError:
        return False
    return True
