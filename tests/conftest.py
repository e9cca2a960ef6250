"""Where the tests find the real benchmarks, with a count of what was skipped, and tokenizers."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import huggingface_hub.constants
import pytest
from hypothesis import settings
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from turngraph.configs.models import cache_folder, resolve_model
from turngraph.data.jsonlines import write_conversations
from turngraph.tests.postgres_server import Server, start_or_skip
from turngraph.tests.stand_in_ray import LostError, StandIn, TaskError

settings.register_profile("same_each_time", deadline=None, derandomize=True)
settings.load_profile("same_each_time")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children must stop on it

os.environ["HF_HUB_OFFLINE"] = "1"  # tests need nothing but what is installed
huggingface_hub.constants.HF_HUB_OFFLINE = True  # in this process, which has read the variable

LONG = {
    "test_study", "test_train_distributed", "test_train", "test_resume", "test_distributed",
    "test_memory_in_training", "test_wheel", "test_odd_texts", "test_constrained",
    "test_bad_input", "test_export", "test_chat", "test_infer", "test_answering",
}  # fmt: skip
"""Files whose tests take long."""
MISSING = "TURNGRAPH_DATA does not name a folder with the real benchmarks"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what tests build out of the user's cache; converted models are read from there."""
    models_folder, folder = cache_folder() / "models", tmp_path_factory.mktemp("cache")
    models_folder.mkdir(parents=True, exist_ok=True)
    (folder / "models").symlink_to(models_folder)
    os.environ["TURNGRAPH_CACHE"] = str(folder)


@pytest.fixture(autouse=True)
def _torch_defaults() -> Iterator[None]:
    """Fail the test that leaves torch with another default type or device for those after it."""
    yield
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_default_device"):
        found = torch.get_default_dtype(), torch.get_default_device().type
        if found != (torch.float32, "cpu"):
            torch.set_default_dtype(torch.float32)
            torch.set_default_device("cpu")
            pytest.fail(f"left torch's defaults at {found}")


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays_open(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fail the file of tests after which a thread runs or a file of theirs is open still."""
    folder, before = str(tmp_path_factory.getbasetemp()), set(threading.enumerate())

    def left() -> list[str]:
        threads = {one for one in threading.enumerate() if not one.daemon or one.name == "engine"}
        threads -= {one for one in threads if one.name.startswith("embedding")}  # as its encoder
        targets = map(os.path.realpath, Path("/proc/self/fd").glob("*"))
        files = [target for target in targets if target.startswith(folder)]
        return [*(one.name for one in threads - before), *files]

    yield
    if request.path.parent.name == "memory_graph":  # whose tests leave graphs to gc
        return
    until = time.monotonic() + 60.0
    while (found := left()) and time.monotonic() < until:
        gc.collect()  # what only a circle of references holds is no leak
        time.sleep(0.01)
    assert not found


def _archive(name: str) -> Path:
    root = os.environ.get("TURNGRAPH_DATA", "")
    archive = Path(root) / f"{name}.tar.xz"
    if not root or not archive.is_file():
        pytest.skip(MISSING)
    return archive


def _unpack(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("benchmarks")
    shutil.unpack_archive(_archive(name), target)
    return target / name


@pytest.fixture(scope="session")
def postgres(own_cache: None) -> Iterator[Server]:
    """A PostgreSQL server for all tests of the run; without its packages they are skipped."""
    server = start_or_skip()
    yield server
    server.close()


@pytest.fixture(scope="session", autouse=True)
def _store(request: pytest.FixtureRequest) -> None:
    """Use PostgreSQL for memory graphs if ``TURNGRAPH_TEST_STORE`` says so, for the whole run.

    Then every graph that a test opens by a path is a tenant of a PostgreSQL server, named by the
    path, and is used by a role that owns nothing; ``test_both_stores.py`` runs that.
    """
    if os.environ.get("TURNGRAPH_TEST_STORE") != "postgresql":
        return
    server = request.getfixturevalue("postgres")
    from turngraph.data.memory_graph.record.place import is_url, of_tenant
    from turngraph.data.memory_graph.record.postgres_store import PostgresStore
    from turngraph.data.memory_graph.record.store import Store

    begin, url = PostgresStore.__init__, server.program_url()

    def new(cls: type[Store], path: Any, *_: Any, **__: Any) -> Store:
        is_file = cls is Store and str(path) != ":memory:"
        return object.__new__(PostgresStore if is_file else cls)

    def init(self: PostgresStore, path: Any, *rest: Any, **named: Any) -> None:
        place = path if is_url(path) else of_tenant(url, str(path))
        begin(self, str(place), *rest, **named)
        if not is_url(path):
            self.path = Path(path)  # of which tests take names of other files and of the folder
            self.derived = self.path.with_name(f"{self.path.name}.derived")

    Store.__new__ = new  # type: ignore[method-assign, assignment]
    PostgresStore.__init__ = init  # type: ignore[method-assign, assignment]


@pytest.fixture(autouse=True)
def _about_sqlite(request: pytest.FixtureRequest) -> None:
    """Leave out what is about SQLite's file where PostgreSQL is used."""
    is_left_out = request.node.get_closest_marker("sqlite") is not None
    if is_left_out and os.environ.get("TURNGRAPH_TEST_STORE") == "postgresql":
        pytest.skip("about SQLite's file")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A stand-in for Ray."""
    stand_in, exceptions = StandIn(), ModuleType("ray.exceptions")
    exceptions.RayError, exceptions.RayTaskError = LostError, TaskError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    return stand_in


@pytest.fixture(scope="session")
def sqa_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked SQA benchmark with its pages."""
    return _unpack("sqa", tmp_path_factory)


@pytest.fixture(scope="session")
def hybridqa_questions() -> dict[str, list[dict[str, Any]]]:
    """The questions of HybridQA and OTT-QA in their parts; the tables stay packed."""
    found = {}
    with tarfile.open(_archive("hybridqa")) as archive:
        while len(found) < 3 and (member := archive.next()) is not None:
            path = Path(member.name)
            if path.suffix == ".json" and path.parent.name == "hybridqa":
                found[path.stem] = json.load(archive.extractfile(member))
    return found


@pytest.fixture(scope="session")
def convmix_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked ConvMix development questions and evidence sample."""
    return _unpack("convmix", tmp_path_factory)


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> Any:
    """The tokenizer of SmolLM2-135M-Instruct, from the package that carries the model."""
    from transformers import AutoTokenizer  # not at the top: it imports torch

    return AutoTokenizer.from_pretrained(resolve_model("HuggingFaceTB/SmolLM2-135M-Instruct"))


@pytest.fixture(scope="session")
def inst_tokenizer() -> Any:
    """A SentencePiece-like tokenizer whose template marks turns by the plain text [INST]."""
    from transformers import PreTrainedTokenizerFast

    texts = ["Using the following facts evidence Lima , capital of Peru Question Answer"] * 4
    trained = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()  # no merges beyond a word
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    tokenizer = Tokenizer(trained.model)
    tokenizer.add_special_tokens(special)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.chat_template = (
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
        "[INST] {{ message['content'] }} [/INST]"
        "{% else %} {{ message['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
    )
    return fast


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files of long tests first: processes get a file each, so it must not be the last."""
    gc.freeze()  # what is imported is not searched for garbage again
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run because the benchmarks are not here."""
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if MISSING in str(r.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests skipped: {MISSING}")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a random tiny language model and its tokenizer."""
    from turngraph.tests.tiny import (
        save_tiny,  # torch: seconds that the tests of data/ need not wait
    )

    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def graph_checkpoint(tmp_path_factory: pytest.TempPathFactory, tiny_folder: str) -> str:
    """A checkpoint of a random tiny model with evidence memory and a graph."""
    from turngraph.configs.schema import (
        Config,
        EncoderConfig,
        EvidenceConfig,
        ModelConfig,
        TrainingConfig,
    )
    from turngraph.model.checkpoint import save_checkpoint
    from turngraph.model.make_model import make_model
    from turngraph.tests.tiny import LORA, stir

    model = ModelConfig(
        tiny_folder, lora=LORA, encoder=EncoderConfig(residual_gate=0.5), dtype="float32"
    )
    evidence = EvidenceConfig(memory="random", top_k=4)
    config = Config(evidence=evidence, model=model, training=TrainingConfig(max_steps=0))
    folder = tmp_path_factory.mktemp("checkpoints") / "graph"
    save_checkpoint(stir(make_model(model)), config, {}, folder)
    return str(folder)


@pytest.fixture(scope="session")
def node_ranker_checkpoint(tmp_path_factory: pytest.TempPathFactory, tiny_folder: str) -> str:
    """A checkpoint of a random node ranker, with an evidence memory."""
    from turngraph.configs.schema import (
        Config,
        EvidenceConfig,
        ModelConfig,
        ScorerConfig,
        TrainingConfig,
    )
    from turngraph.model.checkpoint import save_checkpoint
    from turngraph.model.make_model import make_model
    from turngraph.tests.tiny import stir

    scorer = ScorerConfig(num_layers=1, width=16, dropout=0.0)
    model = ModelConfig(tiny_folder, dtype="float32", lora=None, answers="nodes", scorer=scorer)
    evidence = EvidenceConfig(memory="random", top_k=6, graph="reader")
    config = Config(evidence=evidence, model=model, training=TrainingConfig(max_steps=0))
    folder = tmp_path_factory.mktemp("checkpoints") / "node_ranker"
    save_checkpoint(stir(make_model(model)), config, {}, folder)
    return str(folder)


@pytest.fixture(scope="session")
def graph_model(graph_checkpoint: str) -> Any:
    """The model of that checkpoint and the builder of its examples."""
    from turngraph.inference.load import load
    from turngraph.inference.options import LoadOptions
    from turngraph.model.checkpoint import read_checkpoint

    return load(read_checkpoint(graph_checkpoint), LoadOptions(device="cpu"))


@pytest.fixture(scope="module")
def qa(graph_checkpoint: str) -> Any:
    """That checkpoint, as the Python API loads it."""
    from turngraph.inference.api import load

    return load(graph_checkpoint, device="cpu")


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.jsonl and tune.jsonl about different countries."""
    from turngraph.tests.tiny import tiny_conversation

    folder = tmp_path_factory.mktemp("data")
    write_conversations(folder / "train.jsonl", [tiny_conversation(n) for n in range(4)])
    write_conversations(folder / "tune.jsonl", [tiny_conversation(n) for n in (4, 5)])
    return folder


@pytest.fixture(scope="module")
def fresh_accelerator() -> Iterator[None]:
    """Accelerate keeps device and precision of the first run of a process; TRL changes them."""
    from accelerate.state import AcceleratorState

    before = dict(os.environ)
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ.clear()
    os.environ.update(before)
