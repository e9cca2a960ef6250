"""Examples from the cache: equal to built ones, found again, and never stale or corrupt."""

from __future__ import annotations

import ast
import copy
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.schema import DataConfig, EvidenceConfig
from turngraph.configs.user_error import UserError
from turngraph.data import example_cache
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.embedding import cached
from turngraph.data.entities import complete_entities
from turngraph.data.example_cache import (
    CODE,
    build_task,
    cache_key,
    example_row,
    load_examples,
    log_left_out,
    make_tasks,
    pack,
    pool_positions,
    unpack,
)
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.chain_graph import ChainGraph, Mentions
from turngraph.data.jsonlines import read_conversations, write_conversations
from turngraph.data.prompt import Prompt
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn
from turngraph.tests.data import golden
from turngraph.tests.stand_in_ray import StandIn

ROOT = Path(__file__).parents[2]
NAMES = ["Lima", "Peru", "Oslo", "Norway", "sol", "krone", "Kid A", "1985"]


VARIANTS: list[dict[str, Any]] = [{}, {"graph": "reader"}]


def vectors_that_depend_on_company(texts: Sequence[str]) -> np.ndarray:
    """As a sentence encoder's: which texts it gets together changes their last bits."""
    vectors = golden.embed([f"e {text}" for text in texts])
    return vectors + 1e-9 * len("".join(texts))


class PlainTokenizer:
    """Tokenizer with only what a prompt needs; transformers' would cost workers seconds."""

    is_fast, name_or_path, chat_template, bos_token = True, "plain", None, None
    eos_token, eos_token_id, all_special_tokens = "<end>", 0, ("<end>",)
    special_tokens_map = {"eos_token": "<end>"}  # noqa: RUF012
    added_tokens_decoder = {0: "<end>"}  # noqa: RUF012

    def __init__(self) -> None:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {token: number for number, token in enumerate([self.eos_token, *letters])}
        self.backend_tokenizer = Tokenizer(models.BPE(vocabulary, []))
        self.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.backend_tokenizer.decoder = decoders.ByteLevel()
        self.backend_tokenizer.add_special_tokens([self.eos_token])

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.backend_tokenizer.id_to_token(number) for number in ids]


def make_builder(tokenizer: Any = None) -> ExampleBuilder:
    """What a worker makes its builder with."""
    embed = cached(vectors_that_depend_on_company)
    return ExampleBuilder(Prompt(tokenizer or PlainTokenizer()), EvidenceConfig(top_k=7), embed)


def make_no_builder() -> ExampleBuilder:
    raise UserError("tokenizer of 'none': not found")


@pytest.fixture
def builder() -> ExampleBuilder:
    return make_builder()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a test's own cache."""
    monkeypatch.setenv("TURNGRAPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "examples"


def passage(number: int, names: Sequence[str], text: str) -> Evidence:
    entities = tuple(Entity(f"Q-{name}", name) for name in dict.fromkeys(names))
    source = ("kb", "text", "table", "infobox", "memory")[number % 5]
    return Evidence(str(number), f"{text} {', '.join(names)} {number}", source, entities)


def conversation_of(number: int, rng: np.random.Generator, shared: Any) -> Conversation:
    """A conversation with pools on itself, on its turns, on both or on neither."""

    def pool(size: int) -> tuple[Evidence, ...]:
        return tuple(
            passage(i, rng.choice(NAMES, 2).tolist(), str(rng.choice(["In", "Of", "With the"])))
            for i in range(size)
        )

    own = (shared, pool(12), ())[rng.integers(3)]
    turns = tuple(
        Turn(
            str(t),
            f"What of {rng.choice(NAMES)}?",
            tuple(Answer(str(name)) for name in rng.choice(NAMES, rng.integers(3))),
            evidence=pool(9) if rng.random() < 0.4 else (),
        )
        for t in range(4)
    )
    return Conversation(f"c{number}", "test", turns, own)


def conversations_of(seed: int, num: int) -> list[Conversation]:
    rng = np.random.default_rng(seed)
    shared = tuple(passage(i, rng.choice(NAMES, 3).tolist(), "Shared:") for i in range(15))
    return [conversation_of(number, rng, shared) for number in range(num)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty conversations: three tasks; some share a pool, and ids repeat between pools."""
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    write_conversations(path, conversations_of(0, 40))
    return path


def load(builder: ExampleBuilder, path: Path, **changes: Any) -> list[Example]:
    values = {"num": None, "data": DataConfig(), "seed": 0} | changes
    return load_examples(builder, path, **values)


def built(builder: ExampleBuilder, path: Path) -> list[Example]:
    """Examples as the builder gives them, without the cache."""
    conversations = complete_entities(read_conversations(path))
    chosen = choose_questions(conversations, None, False, 0)
    return [e for n, turns in chosen.items() for e in builder.conversation(conversations[n], turns)]


def same(one: Sequence[Example], other: Sequence[Example]) -> bool:
    """Whether examples are equal in every field, types and kinds of numbers included."""
    return len(one) == len(other) and all(
        same_value(getattr(a, field.name), getattr(b, field.name))
        for a, b in zip(one, other, strict=True)
        for field in fields(Example)
    )


def same_value(one: Any, other: Any) -> bool:
    if isinstance(one, ChainGraph | Mentions):
        return all(same_value(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_value(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, np.ndarray):
        same_kind = (one.dtype, one.shape) == (other.dtype, other.shape)
        return same_kind and bool((one == other).all())
    return type(one) is type(other) and repr(one) == repr(other)


def digest(file: Path) -> str:
    with safe_open(file, "np") as opened:
        return opened.metadata()["digest"]


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


@pytest.mark.parametrize(
    ("memory", "max_nodes", "mentions"),
    [("none", None, False), ("rerank", 250, True), ("random", None, False)],
)
def test_a_cached_example_is_the_built_one(
    builder: ExampleBuilder, data: Path, memory: Any, max_nodes: int | None, mentions: bool
) -> None:
    config = replace(builder.config, memory=memory, max_nodes=max_nodes)
    builder = replace(builder, config=config, embed=golden.embed, mentions=mentions)
    expected = built(builder, data)
    counts, builder.counts = builder.counts, type(builder.counts)()
    miss = load(builder, data)
    assert same(miss, expected)
    assert builder.counts == counts
    builder.counts["graphs"] = 99
    hit = load(builder, data)
    assert same(hit, expected)
    assert builder.counts == counts
    assert len(expected) > 80
    assert all((example.graph.mentions is not None) == mentions for example in hit)
    if memory != "none":
        assert any(item.from_turn < e.turn for e in hit for item in e.evidence)
        assert {tuple(map(bool, (e.evidence, e.conversation.evidence))) for e in hit} >= {
            (True, True),
            (True, False),
        }


@hypothesis_settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    memory=st.sampled_from(["none", "random"]),
    variant=st.sampled_from(VARIANTS),
)
def test_packing_keeps_every_field(seed: int, memory: Any, variant: dict[str, Any]) -> None:
    config = EvidenceConfig(top_k=6, memory=memory, **variant)
    builder = ExampleBuilder(Prompt(PlainTokenizer()), config)
    conversations = conversations_of(seed, 3)
    examples, rows = [], []
    for number, conversation in enumerate(conversations):
        positions = pool_positions(conversation)
        for example in builder.conversation(conversation):
            examples.append(example)
            rows.append(example_row(number, example, positions))
    assert same(unpack(pack(rows), conversations), examples)


def test_examples_without_any_evidence(builder: ExampleBuilder, tmp_path: Path) -> None:
    bare = Conversation("c", "", (Turn("0", "What?", (Answer("a"),)),))
    write_conversations(tmp_path / "bare.jsonl", [bare])
    for _ in range(2):
        (example,) = load(builder, tmp_path / "bare.jsonl")
        assert example.graph.edge_index.shape == (2, 0)
        assert example.evidence == []


def test_processes_change_nothing(builder: ExampleBuilder, data: Path, folder: Path) -> None:
    """Not even the last bits of scores, which depend on what else was scored."""
    alone, counts = load(builder, data), builder.counts
    expected = digest(only_file(folder))
    shutil.rmtree(folder)
    together = load(builder, data, data=DataConfig(num_workers=2), make_builder=make_builder)
    assert same(together, alone)
    assert digest(only_file(folder)) == expected
    assert builder.counts == counts
    scores = {item.score for e in alone for item in e.evidence if item.from_turn < e.turn}
    assert len(scores) > 20  # cosines, with all their bits


def test_a_cluster_changes_nothing(
    ray: StandIn, builder: ExampleBuilder, data: Path, folder: Path
) -> None:
    alone = load(builder, data)
    expected = digest(only_file(folder))
    shutil.rmtree(folder)
    config = DataConfig(ray="local", num_workers=2)
    assert same(load(builder, data, data=config, make_builder=make_builder), alone)
    assert digest(only_file(folder)) == expected
    assert ray.most_waiting == 3


def test_a_task_does_not_depend_on_those_before(builder: ExampleBuilder, data: Path) -> None:
    conversations = complete_entities(read_conversations(data))
    tasks = make_tasks(conversations, choose_questions(conversations, None, False, 0))
    assert len(tasks) == 3
    after = [build_task(builder, task)[0] for task in tasks]
    alone = [build_task(make_builder(), task)[0] for task in tasks]
    assert same_value(after, alone)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_no_builder, r"^tokenizer of 'none': not found$"),
        (partial(os._exit, 9), r"data\.num_workers: 1 given; a worker was killed"),
    ],
)
def test_an_error_in_a_worker_is_the_users_error(
    builder: ExampleBuilder, data: Path, folder: Path, make: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(builder, data, data=DataConfig(num_workers=1), make_builder=make)
    assert not folder.exists()


def test_the_log_is_the_same_but_says_hit_or_miss(
    builder: ExampleBuilder, data: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = []
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            load(builder, data)
        said.append([r.message for r in caplog.records if r.levelno == logging.INFO])
        said[-1] = [line for line in said[-1] if not line.startswith("graphs of")]  # of a build
    assert said[0][:-1] == said[1][:-1]
    assert any("has the answer" in line for line in said[0])
    assert any("graphs: mean" in line for line in said[0])
    assert f"examples built and written to {only_file(folder)} in" in said[0][-1]
    assert f"examples read from {only_file(folder)} in" in said[1][-1]


def test_nothing_is_built_on_a_hit(
    builder: ExampleBuilder, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(builder, data)
    monkeypatch.setattr(ExampleBuilder, "conversation", None)
    assert load(builder, data)
    assert load(builder, data, seed=9)  # the seed draws nothing where all are taken


def changed_tokenizers(tokenizer: Any) -> list[Any]:
    """Copies with another token, with another template, and with another end of the text."""
    copies = [copy.deepcopy(tokenizer) for _ in range(3)]
    copies[0].add_tokens(["Lima"])
    copies[1].chat_template = tokenizer.chat_template.replace("assistant", "bot")
    copies[2].eos_token = "<|endoftext|>"
    return copies


def test_all_that_shapes_examples_is_in_the_key(
    smollm2_tokenizer: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, chosen = make_builder(smollm2_tokenizer), {0: [0, 1], 3: [2]}
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (encoder / name).write_text("{}")
    builder = replace(builder, config=replace(builder.config, embedder=str(encoder)))
    keys = [cache_key(builder, data, chosen)]
    config = builder.config
    for changed in (
        replace(builder, config=replace(config, top_k=8)),
        replace(builder, config=replace(config, memory="random")),
        replace(builder, config=replace(config, stemmer="english")),
        replace(builder, cut="entity"),
        replace(builder, mentions=True),
        *(replace(builder, prompt=Prompt(t)) for t in changed_tokenizers(smollm2_tokenizer)),
    ):
        keys.append(cache_key(changed, data, chosen))
    keys.append(cache_key(builder, data, {0: [0], 3: [2]}))
    other = tmp_path / "other.jsonl"
    other.write_bytes(data.read_bytes() + b"\n")
    keys.append(cache_key(builder, other, chosen))
    (encoder / "model.safetensors").write_text("{ }")
    keys.append(cache_key(builder, data, chosen))
    monkeypatch.setattr(example_cache, "PACKAGES", ("numpy",))
    keys.append(cache_key(builder, data, chosen))
    assert len(set(keys)) == len(keys)


@pytest.mark.slow  # it starts a process that imports torch
def test_the_key_is_the_same_in_every_process(smollm2_tokenizer: Any, data: Path) -> None:
    code = (
        "from turngraph.tests.data.test_example_cache import *;"
        "from transformers import AutoTokenizer;"
        f"tokenizer = AutoTokenizer.from_pretrained({smollm2_tokenizer.name_or_path!r});"
        f"print(cache_key(make_builder(tokenizer), Path({str(data)!r}), {{0: [0, 1]}}))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "5", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    expected = cache_key(make_builder(smollm2_tokenizer), data, {0: [0, 1]})
    assert done.stdout.strip() == expected, done.stderr


def imported_from_data(file: Path) -> Iterator[str]:
    """Modules of data/ that a file imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("turngraph.data."):
            module = node.module.removeprefix("turngraph.data.").replace(".", "/")
            is_folder = (ROOT / "data" / module).is_dir()
            yield from [f"{module}/{a.name}" for a in node.names] if is_folder else [module]


def test_the_code_that_shapes_examples_is_in_the_key(
    builder: ExampleBuilder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a developer changes it, and all of it: whatever the builder and the reader import."""
    copied = shutil.copytree(ROOT / "data", tmp_path / "data")
    monkeypatch.setattr(example_cache, "DATA", copied)
    keys = [cache_key(builder, data, {0: [0]})]
    for name in ("graph/chain_graph", "entities", "example_cache"):
        with (copied / f"{name}.py").open("a") as file:
            file.write("# changed\n")
        keys.append(cache_key(builder, data, {0: [0]}))
    assert len(set(keys)) == 4

    own = {"examples", "entities", "jsonlines", "retrieval/evidence_memory"}
    needed, new = set(), own
    while new:
        needed |= new
        files = [ROOT / "data" / f"{name}.py" for name in new]
        new = {name for file in files for name in imported_from_data(file)} - needed
    in_memory_graph = {name for name in needed if name.startswith("memory_graph/")}
    needed = {name for name in needed if not name.startswith("corpus/")}  # whole, where it is used
    needed -= {"cli", "outputs", "warned"}  # commands, what writes files, and who is warned
    assert set(CODE) == needed - in_memory_graph | {"example_cache", "example_rows"}
    graph = replace(builder, memory_graph=MemoryGraphConfig())
    known = {path.as_posix() for path in example_cache._code(graph)}
    assert known >= {f"{name}.py" for name in in_memory_graph}
    assert "memory_graph/recall/questions.safetensors" in known
    assert not any("memory_graph" in str(path) for path in example_cache._code(builder))


def harms(content: bytes) -> dict[str, bytes]:
    """A cache file cut off, or with one byte changed, at places all over it."""
    length = len(content)
    cut = {f"cut at {at}": content[:at] for at in (0, 1, 7, 8, 200, length // 2, length - 1)}
    places = [0, 5, *range(8, 1600, 160), *range(2000, length, length // 9), length - 1]
    flipped = {
        f"flipped at {at}": content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        for at in places
    }
    return cut | flipped | {"longer": content + b"x"}


def test_a_corrupt_file_is_never_trusted(
    builder: ExampleBuilder, data: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(builder, data)
    file, key = only_file(folder), key_of(builder, data)
    assert example_cache.read_cache(file, key) is not None
    content = file.read_bytes()
    for name, corrupt in harms(content).items():
        file.write_bytes(corrupt)
        caplog.clear()
        assert example_cache.read_cache(file, key) is None, name
        assert "corrupt cache file, rebuilding" in caplog.text, name
    expected = load(builder, data)
    assert example_cache.read_cache(file, key) is not None
    assert same(load(builder, data), expected)


def key_of(builder: ExampleBuilder, path: Path) -> str:
    conversations = complete_entities(read_conversations(path))
    return cache_key(builder, path, choose_questions(conversations, None, False, 0))


def test_a_file_of_another_key_is_not_taken(
    builder: ExampleBuilder, data: Path, folder: Path
) -> None:
    load(builder, data)
    assert example_cache.read_cache(only_file(folder), "0" * 64) is None


def test_two_that_write_at_the_same_time_leave_one_whole_file(
    builder: ExampleBuilder, data: Path, folder: Path
) -> None:
    load(builder, data)
    file, key = only_file(folder), key_of(builder, data)
    stored = example_cache.read_cache(file, key)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: example_cache.write_cache(file, key, stored), range(100)))
    assert example_cache.read_cache(only_file(folder), key) is not None


def test_where_nothing_can_be_written_it_says_so_and_goes_on(
    builder: ExampleBuilder, data: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    with caplog.at_level(logging.INFO):
        assert load(builder, data)
    assert "cannot be written, so the next run rebuilds" in caplog.text
    assert "built but not kept in" in caplog.text


def test_turns_that_are_left_out_are_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    turns = (
        Turn("0", "Who?"),
        Turn("1", "Which?", (Answer("a"), Answer("b"))),
        Turn("2", "What?", (Answer("a"),)),
    )
    conversations = [Conversation(f"c{i}", "", turns) for i in range(4)]
    with caplog.at_level("INFO"):
        log_left_out("train.jsonl", conversations, single_only=True)
    without, lists = (record.getMessage() for record in caplog.records)
    named = "conversation c0 turn 0, conversation c1 turn 0, conversation c2 turn 0 ..."
    assert without == f"train.jsonl: left out: 4 turns without a gold answer: {named}"
    assert "left out: 4 turns whose answer is a list (data.single_answers_only)" in lists
    caplog.clear()
    with caplog.at_level("INFO"):
        log_left_out("train.jsonl", [Conversation("c", "", turns[1:])], single_only=False)
    assert not caplog.records
