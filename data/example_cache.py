"""Caches built examples in the user's cache folder, keyed by content and config.

A cache file is one safetensors file of flat arrays. It holds no conversations: an example refers
to its conversation and turn by index, and to a passage by the turn that retrieved it and its
position in that turn's pool; both are read again from the data file. Passages that a memory graph
recalled are in no pool and are stored in full, as are all passages if a corpus is searched.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from inspect import unwrap
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from turngraph.configs.json_files import file_hash
from turngraph.configs.models import cache_folder, local_folder
from turngraph.configs.progress import progress
from turngraph.configs.schema import EDGE_TYPES, DataConfig
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.embedding import cached
from turngraph.data.entities import complete_entities
from turngraph.data.example_rows import Arrays, example_row, pack, pool_positions, unpack
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.jsonlines import read_conversations
from turngraph.data.ray_workers import map_on_ray
from turngraph.data.retrieval.bm25 import terms
from turngraph.data.types import Conversation
from turngraph.data.workers import map_in_workers

logger = logging.getLogger(__name__)

DATA = Path(__file__).parent
CODE = (
    "eigen/eigen_index eigen/search eigen/shared_names"
    " eigen/similarity_graph eigen/spectrum eigen/summaries eigen/themes eigen/utility_questions"
    " amounts bert_encoder embedding entities evidence_graph example_cache example_rows examples"
    " graph/chain_graph graph/entity_spans"
    " graph/graph_edges graph/mentions graph/rewire json_fields jsonlines linearise name_finder"
    " normalise prompt retrieval/bm25 retrieval/dense retrieval/evidence_memory"
    " retrieval/links retrieval/numpy_bm25s retrieval/reciprocal_ranks retrieval/similar_terms"
    " scoring/metrics"
    " table_structure token_cache turn_retrieval types"
).split()
"""Modules of ``data/`` that determine an example; a change in any of them changes the key."""
PACKAGES = ("bm25s", "rank-bm25", "pyahocorasick", "tokenizers", "numpy")
TASK_SIZE = 16
"""Conversations in a task; fixed, so that the number of processes does not change the examples."""

Task = list[tuple[int, Conversation, list[int]]]
"""Index of a conversation, the conversation, and indices of its turns."""
Built = tuple[dict[int, list[Arrays]], Counter[str]]
"""Rows of examples by index of the conversation, and the builder's counts."""


@dataclass
class Stored:
    """Content of a cache file.

    Args:
        arrays: flat arrays by name; ``x.sizes`` holds the size of each example's part of ``x``.
        counts: the builder's counts, for its log line.
    """

    arrays: Arrays
    counts: dict[str, int]


def load_examples(
    builder: ExampleBuilder,
    path: str | Path,
    num: int | None,
    data: DataConfig,
    seed: int,
    make_builder: Callable[[], ExampleBuilder] | None = None,
    after_task: Callable[[], None] = lambda: None,
) -> list[Example]:
    """Load the examples of a file of conversations from the cache, or build and cache them.

    The examples do not depend on the number of processes, except for the last bits of a sentence
    encoder's scores if this process has other devices or threads than its workers (one CPU thread
    each).

    Args:
        builder: builder of the examples; its counts become those of these examples.
        path: JSON Lines file of conversations.
        num, seed: number of questions to draw (None: all), and random seed for it.
        data: ``single_answers_only``, ``num_workers`` and ``ray`` are read.
        make_builder: makes the same builder in other processes; a top-level function.
        after_task: called whenever some more conversations are built; may raise to stop.

    Raises:
        UserError: the file is invalid or has no question to use, or a worker was killed.
    """
    began = time.monotonic()
    conversations = complete_entities(read_conversations(path))
    try:
        chosen = choose_questions(conversations, num, data.single_answers_only, seed)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    key = cache_key(builder, path, chosen)
    file = cache_folder() / "examples" / f"{Path(path).stem}-{key[:16]}.safetensors"
    stored, how = read_cache(file, key), "read from"
    if stored is None:
        name = Path(path).name
        stored = build(builder, conversations, chosen, data, make_builder, name, after_task)
        how = "built and written to" if write_cache(file, key, stored) else "built but not kept in"
    examples = unpack(stored.arrays, conversations)
    builder.counts = Counter(stored.counts)
    builder.log_counts()
    log_left_out(path, conversations, data.single_answers_only)
    total = plural(sum(bool(t.answers) for c in conversations for t in c.turns), "question")
    held = sum(bool(example.answer_sources) for example in examples)
    logger.info(
        "%s: %d of %s used, the evidence of %d has the answer", path, len(examples), total, held
    )
    logger.info("%s: examples %s %s in %.1f s", path, how, file, time.monotonic() - began)
    return examples


def log_left_out(
    path: str | Path, conversations: Sequence[Conversation], single_only: bool
) -> None:
    """Log how many turns are left out for each reason, and the first three of them."""
    turns = [(c.id, turn) for c in conversations for turn in c.turns]
    kinds = {
        "without a gold answer": [(id_, t.id) for id_, t in turns if not t.answers],
        "whose answer is a list (data.single_answers_only)": [
            (id_, t.id) for id_, t in turns if single_only and len(t.answers) > 1
        ],
    }
    for kind, left_out in kinds.items():
        if left_out:
            named = ", ".join(f"conversation {c} turn {t}" for c, t in left_out[:3])
            more = " ..." if len(left_out) > 3 else ""
            logger.info(
                "%s: left out: %s %s: %s%s", path, plural(len(left_out), "turn"), kind, named, more
            )


def cache_key(builder: ExampleBuilder, path: str | Path, chosen: dict[int, list[int]]) -> str:
    """Return the SHA-256 of everything that determines the examples: data, settings, models, code.

    Args:
        builder: builder of the examples.
        path: file of the conversations.
        chosen: chosen questions, as ``choose_questions`` returns them.
    """
    tokenizer = builder.prompt.tokenizer
    parts = {
        "data": file_hash(Path(path)),
        "questions": [[index, turns] for index, turns in chosen.items()],
        "evidence": asdict(builder.config),
        "memory_graph": builder.memory_graph and asdict(builder.memory_graph),
        "cut": builder.cut,
        "mentions": builder.mentions,
        "max_passages": builder.max_passages,
        "question_first": builder.prompt.question_first,
        "edge_types": EDGE_TYPES,
        "tokenizer": tokenizer.backend_tokenizer.to_str(),
        "chat_template": tokenizer.chat_template,
        "special_tokens": tokenizer.special_tokens_map,
        "encoder": _encoder_files(builder),
        "corpus": builder.corpus and builder.corpus.corpus.fingerprint,
        "code": {str(name): file_hash(DATA / name) for name in _code(builder)},
        "packages": {name: importlib.metadata.version(name) for name in _packages(builder)},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _code(builder: ExampleBuilder) -> list[Path]:
    """Return the files that determine an example, with those of packages that only some use."""
    folders = [DATA / "memory_graph"] * bool(builder.memory_graph)
    folders += [DATA / "eigen"] * (builder.config.retriever == "eigen")
    folders += [DATA / "corpus"] * (builder.config.corpus is not None)
    files = [path for folder in folders for path in sorted(folder.rglob("*"))]
    more = [path for path in files if path.suffix in (".py", ".safetensors")]
    return [Path(f"{name}.py") for name in CODE] + [path.relative_to(DATA) for path in more]


def _packages(builder: ExampleBuilder) -> tuple[str, ...]:
    needed = [*PACKAGES, *["numkong", "usearch"] * bool(builder.memory_graph)]
    needed += ["scipy"] * (builder.config.retriever == "eigen")
    if builder.config.stemmer != "none":
        terms("", builder.config.stemmer)  # raises an error that says what to install
        needed.append("PyStemmer")
    return tuple(needed)


def _encoder_files(builder: ExampleBuilder) -> dict[str, str]:
    """Hash the sentence encoder's files; its name does not identify them."""
    folder = local_folder(builder.config.embedder) if builder.needs_embed else None
    if folder is None:
        return {}
    files = sorted(folder.rglob("*"))
    return {str(f.relative_to(folder)): file_hash(f) for f in files if f.is_file()}


def build(
    builder: ExampleBuilder,
    conversations: Sequence[Conversation],
    chosen: dict[int, list[int]],
    data: DataConfig,
    make_builder: Callable[[], ExampleBuilder] | None,
    name: str,
    after_task: Callable[[], None],
) -> Stored:
    """Build the examples of the chosen questions, in this process, in workers, or on a cluster."""
    tasks, num_workers = make_tasks(conversations, chosen), data.num_workers
    if data.ray is not None:
        assert make_builder is not None, "a cluster needs a function that makes its builder"
        built = map_on_ray(data.ray, make_builder, build_task, tasks)
    elif num_workers:
        assert make_builder is not None, "workers need a function that makes their builder"
        built = map_in_workers(make_builder, build_task, tasks, min(num_workers, len(tasks)))
    else:
        built = (build_task(builder, task) for task in tasks)
    rows: dict[int, list[Arrays]] = {}
    counts: Counter[str] = Counter()
    try:
        shown = progress(len(chosen), f"graphs of {name}", "conversations")
        with closing(built), shown as bar:
            for new_rows, counted in built:
                rows |= new_rows
                counts += counted
                bar.update(len(new_rows))
                after_task()
    except BrokenProcessPool as error:
        raise UserError(
            f"config field data.num_workers: {num_workers} given; a worker was killed, perhaps "
            "because memory ran out: try fewer"
        ) from error
    return Stored(pack([row for index in chosen for row in rows[index]]), dict(counts))


def make_tasks(conversations: Sequence[Conversation], chosen: dict[int, list[int]]) -> list[Task]:
    """Split the chosen conversations into tasks; conversations that share a pool are adjacent."""
    first: dict[int, int] = {}
    for index in chosen:
        first.setdefault(id(conversations[index].evidence), index)
    order = sorted(chosen, key=lambda index: first[id(conversations[index].evidence)])
    items = [(index, conversations[index], chosen[index]) for index in order]
    return [items[i : i + TASK_SIZE] for i in range(0, len(items), TASK_SIZE)]


def build_task(builder: ExampleBuilder, task: Task) -> Built:
    """Build the examples of a task.

    Every task starts with an empty cache of vectors: the other texts of a batch change the last
    bits of a vector, and which tasks a process has run before is not deterministic.
    """
    embed = builder.embed and cached(unwrap(builder.embed))
    builder = replace(builder, embed=embed, counts=Counter())
    rows = {}
    for index, conversation, turns in task:
        positions = pool_positions(conversation)
        examples = builder.conversation(conversation, turns)
        with_corpus = builder.corpus is not None
        rows[index] = [example_row(index, example, positions, with_corpus) for example in examples]
    return rows, builder.counts


def read_cache(file: Path, key: str) -> Stored | None:
    """Read a cache file; return None if it is missing, or with a warning if it is corrupt."""
    if not file.is_file():
        return None
    try:
        with safe_open(file, "np") as opened:
            metadata = opened.metadata() or {}
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        logger.warning("%s: corrupt cache file, rebuilding: %s", file, error)
        return None
    counts = metadata.get("counts", "")
    if metadata.get("digest") != _digest(key, counts, arrays):
        logger.warning("%s: corrupt cache file, rebuilding: its checksum is wrong", file)
        return None
    return Stored(arrays, json.loads(counts))


def write_cache(file: Path, key: str, stored: Stored) -> bool:
    """Write a cache file atomically; return False, with a warning, if that fails."""
    counts = json.dumps(stored.counts)
    metadata = {"counts": counts, "digest": _digest(key, counts, stored.arrays)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=file.parent) as folder:
            partial = Path(folder) / file.name
            save_file(stored.arrays, partial, metadata)
            with partial.open("rb+") as written:
                os.fsync(written.fileno())
            os.replace(partial, file)
    except (SafetensorError, OSError) as error:
        logger.warning("%s: cannot be written, so the next run rebuilds: %s", file, error)
        return False
    return True


def _digest(key: str, counts: str, arrays: Arrays) -> str:
    """Return the SHA-256 of a cache file's content and its key."""
    digest = hashlib.sha256(f"{key} {counts}".encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
