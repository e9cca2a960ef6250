"""Measures training speed, compared with TRL and PyG's GRetriever.

    python -m turngraph.benchmarks.speed.train_speed [--device cuda] [...]

One run, one LM, the same questions and evidence: our loop (graph, text), TRL's SFTTrainer (text)
and PyG's GRetriever (its graph and text). In every round each system trains once on all questions
at each batch size, systems in turn; medians of the rounds are reported. Batches hold examples of
similar length; the largest size is also measured with batches in random order. Every other option
is a config field, as for ``turngraph train`` (``--model.dtype float32``).
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import platform
import random
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from tqdm import tqdm

from turngraph.benchmarks.speed.base_models import load_base, load_tokenizer, random_base
from turngraph.benchmarks.speed.measures import (
    clock,
    matmul_ceiling,
    peak_bytes,
    resident_bytes,
)
from turngraph.benchmarks.speed.peers import LORA, VARLEN_ATTENTION, Ours, Pyg, System, Trl
from turngraph.benchmarks.speed.train_table import (
    SYSTEMS,
    Cell,
    Cells,
    Json,
    Setting,
    best,
    markdown,
    report,
)
from turngraph.configs.models import sentence_encoder
from turngraph.configs.parse import read_config
from turngraph.configs.schema import Config, ModelConfig
from turngraph.configs.shipped import find_config
from turngraph.configs.user_error import UserError
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import run_cli
from turngraph.data.embedding import cached
from turngraph.data.entities import complete_entities
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.jsonlines import read_conversations
from turngraph.data.prompt import Prompt
from turngraph.data.sources import worldfacts
from turngraph.data.types import Conversation
from turngraph.infer import positive
from turngraph.model.checkpoint import commit
from turngraph.model.graph_lm import GraphLM
from turngraph.model.make_model import make_model
from turngraph.training.operations import LmShape, Work, operations, useful

logger = logging.getLogger("train_speed")
MODULE = "turngraph.benchmarks.speed.train_speed"
Batches = list[list[Example]]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the tables and write the JSON file."""
    args, rest = parse(sys.argv[1:] if argv is None else argv)
    config = load(args, rest)
    run = Run(args, config)
    try:
        run.measure()
    finally:
        result = report(run.cells, run.facts())
        if args.output:
            Path(args.output).write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(markdown(result))


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the rest, which are config fields.

    Raises:
        UserError: there is no GPU, or the last batch of a round would be smaller.
    """
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    common_options(parser)
    add = parser.add_argument
    add("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    add("--batch_sizes", nargs="+", type=positive, default=[1, 2, 4, 8])
    add("--packing", action="store_true", help="ours trains without padding")
    args, rest = parser.parse_known_args(argv)
    for size in args.batch_sizes:
        if args.num_questions % size:
            raise UserError(f"--num_questions {args.num_questions}: no multiple of {size}")
    check_device_option(args)
    return args, rest


def common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of speed measurements: questions, model, device and time."""
    add = parser.add_argument
    add("--config", help="data, evidence, encoder; default: the sample benchmark")
    add("--base_model", help="instead of the config's")
    add(
        "--random_weights",
        action="store_true",
        help="random weights of the architecture, nothing is loaded",
    )
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--num_questions", type=positive, default=32, help="questions per round")
    add("--rounds", type=positive, default=3)
    add(
        "--max_minutes",
        type=float,
        default=math.inf,
        help="stop after this time; finished rounds are reported",
    )
    add("--seed", type=int, default=0)
    add("--output", help="JSON file")


def check_device_option(args: argparse.Namespace) -> None:
    """Check that the device exists.

    Raises:
        UserError: there is no GPU.
    """
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no GPU")


def load(args: argparse.Namespace, rest: Sequence[str]) -> Config:
    """Return the config, with the LoRA settings that GRetriever fixes."""
    options = list(rest)
    if args.base_model:
        options.append(f"--model.base_model={args.base_model}")
    if args.packing:
        options.append("--training.packing=true")
    config = read_config(find_config(args.config or "demo"), *options)
    return replace(config, model=replace(config.model, lora=LORA))


def load_examples(args: argparse.Namespace, config: Config, prompt: Prompt) -> list[Example]:
    """Build the examples of the config's data, or of the sample benchmark.

    Raises:
        UserError: there are fewer questions than --num_questions.
    """
    conversations, chosen = load_questions(args, config)
    rerank = config.evidence.memory == "rerank"
    embed = cached(sentence_encoder(config.evidence.embedder)) if rerank else None
    examples = build_examples(ExampleBuilder(prompt, config.evidence, embed), conversations, chosen)
    if len(examples) < args.num_questions:
        raise UserError(f"--num_questions {args.num_questions}: there are only {len(examples)}")
    return examples


def load_questions(
    args: argparse.Namespace, config: Config
) -> tuple[list[Conversation], dict[int, list[int]]]:
    """Return conversations, and the chosen turns of some of them, by index."""
    if args.config:
        conversations = complete_entities(read_conversations(str(config.data.train)))
    else:
        conversations = worldfacts.build_worldfacts(args.seed, args.num_questions, 1, 1)["train"]
    single = config.data.single_answers_only
    return conversations, choose_questions(conversations, args.num_questions, single, args.seed)


def build_examples(
    builder: ExampleBuilder, conversations: Sequence[Conversation], chosen: dict[int, list[int]]
) -> list[Example]:
    """Build the examples of the chosen turns."""
    return [
        example
        for index, turns in tqdm(chosen.items(), desc="graphs")
        for example in builder.conversation(conversations[index], turns)
    ]


def make_batches(examples: Sequence[Example], setting: Setting, seed: int) -> Batches:
    """Put all examples into batches: of similar length in random order, or fully at random."""
    rng, size = random.Random(seed), setting.batch_size
    ordered = sorted(examples, key=lambda example: example.num_tokens)
    if not setting.grouped:
        rng.shuffle(ordered)
    batches = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    rng.shuffle(batches)
    return batches


def lm_operations(
    system: System, shape: LmShape, batches: Batches, model: ModelConfig
) -> dict[str, float]:
    """Count the LM's operations on some batches: as executed, and without padding."""
    packed = system.packs(len(batches[0]))
    total = {"executed": 0.0, "useful": 0.0}
    for batch in batches:
        lengths = [example.num_tokens for example in batch]
        answers = sum(len(example.target_ids) for example in batch)
        work = {
            "executed": executed(lengths, answers, packed, model.attn_implementation),
            "useful": useful(lengths, answers),
        }
        for kind in total:
            total[kind] += operations(shape, work[kind], model.gradient_checkpointing)
    return total


def executed(
    lengths: Sequence[int], answer_tokens: int, packed: bool = False, attention: str = "sdpa"
) -> Work:
    """Return the work of one batch as the device executes it, padding included.

    Args:
        lengths: number of tokens of each example.
        answer_tokens: number of answer tokens of all examples.
        packed: one row without padding; else one row per example, padded to the longest.
        attention: transformers' name of the attention. Half of the T x T pairs are skipped if no
            mask is needed: by SDPA without padding, and by flex and flash attention, which also
            skip pairs between packed examples.
    """
    longest, total = max(lengths), sum(lengths)
    padded = longest * len(lengths)
    tokens = total if packed else padded
    if attention in VARLEN_ATTENTION:
        pairs = sum(length**2 for length in lengths) / 2
    elif packed:
        pairs = total**2 / (1 if len(lengths) > 1 else 2)
    else:
        pairs = padded * longest / (1 if padded > total else 2)
    return Work(tokens, pairs, answer_tokens)


class Run:
    """One measurement and its results so far.

    Args:
        args: options of the command line.
        config: data, evidence and model.
    """

    def __init__(self, args: argparse.Namespace, config: Config) -> None:
        self.args, self.config = args, config
        self.device = torch.device(args.device)
        self.deadline: float = time.monotonic() + 60 * args.max_minutes
        self.tokenizer = load_tokenizer(config.model.base_model, args.random_weights)
        self.examples = load_examples(args, config, Prompt(self.tokenizer))
        settings = [Setting(size, True) for size in sorted(set(args.batch_sizes))]
        self.settings = [*settings, Setting(max(args.batch_sizes), False)]
        self.cells: Cells = {(name, s): Cell() for name in args.systems for s in self.settings}
        self.encoder: Json | None = None
        self.ceiling: float | None = None
        self.interleaved, self.complete = self.fit_together(), False

    def fit_together(self) -> bool:
        """Return whether all systems fit on the device together, in half of its memory."""
        if self.device.type == "cpu":
            return True
        base = random_base(replace(self.config.model, quantization="none"), torch.device("meta"))
        weights = sum(p.numel() for p in base.parameters())  # GRetriever makes them float32
        needed = sum(weights * (4 if name == "pyg" else 2) for name in self.args.systems)
        return bool(needed < torch.cuda.mem_get_info(self.device)[0] / 2)

    def measure(self) -> None:
        """Run all rounds; systems take turns if they fit on the device together."""
        if self.device.type == "cuda":
            self.ceiling = matmul_ceiling(self.device)
        names = self.args.systems
        groups = [names] if self.interleaved else [[name] for name in names]
        with tqdm(total=self.args.rounds * len(self.cells), desc="rounds") as bar:
            for group in groups:
                if not self.measure_group(group, bar):
                    logger.warning("--max_minutes %g: stopped", self.args.max_minutes)
                    return
                self.free()
        self.complete = True

    def measure_group(self, names: Sequence[str], bar: tqdm[Any]) -> bool:
        """Run the rounds of systems that share the device; return False if time runs out."""
        systems = {name: self.build(name) for name in names}
        for name, system in systems.items():
            if self.late():
                return False
            self.warm_up(name, system)
        for index in range(self.args.rounds):
            shift = index % len(names)  # no system is always the first
            for setting in self.settings:
                batches = make_batches(self.examples, setting, self.args.seed + index)
                for name in [*names[shift:], *names[:shift]]:
                    if self.late():
                        return False
                    self.measure_round(systems[name], self.cells[name, setting], batches)
                    bar.update()
        if isinstance(graph := systems.get("graph"), Ours):
            self.encoder = self.measure_encoder(graph)
        return True

    def late(self) -> bool:
        """Tell whether --max_minutes is over."""
        return time.monotonic() > self.deadline

    def build(self, name: str) -> System:
        """Build a system with its own base model and new LoRA on the device."""
        config = self.config
        torch.manual_seed(self.args.seed)
        base = load_base(config.model, self.device, self.args.random_weights)
        if name == "pyg":
            return Pyg(base, self.tokenizer, config)
        evidence: Literal["graph", "text"] = "graph" if name == "graph" else "text"
        model = make_model(replace(config.model, evidence=evidence), base).to(self.device)
        return Trl(model, config, self.tokenizer) if name == "trl" else Ours(model, config)

    def warm_up(self, name: str, system: System) -> None:
        """Count tokens, create Adam's state, and measure peaks on the largest batches."""
        num_tokens = sum(system.num_tokens(example) for example in self.examples)
        cells = [self.cells[name, setting] for setting in self.settings]
        with self.note_out_of_memory(system, *cells):
            system.train([self.examples[:1]])
        for setting, cell in tqdm(
            list(zip(self.settings, cells, strict=True)),
            desc=f"warm up {SYSTEMS[name]}",
            leave=False,
        ):
            cell.num_examples, cell.num_tokens = len(self.examples), num_tokens
            batches = make_batches(self.examples, setting, self.args.seed)
            largest = [max(batches, key=lambda batch: max(e.num_tokens for e in batch))]
            with self.note_out_of_memory(system, cell):
                needed = peak_bytes(partial(system.train, largest), self.device)
                cell.peak_bytes = resident_bytes(system.module, system.optimizer) + needed

    def measure_round(self, system: System, cell: Cell, batches: Batches) -> None:
        """Train once on all questions."""
        if cell.error:
            return
        with self.note_out_of_memory(system, cell):
            seconds, loss = system.train(batches)
            if not math.isfinite(loss):
                raise ValueError(f"{type(system).__name__}, batches of {len(batches[0])}: {loss}")
            cell.seconds.append(seconds)
            cell.losses.append(loss)
            if system.shape is not None:
                total = lm_operations(system, system.shape, batches, self.config.model)
                cell.executed.append(total["executed"] / seconds)
                cell.useful.append(total["useful"] / seconds)

    @contextmanager
    def note_out_of_memory(self, system: System, *cells: Cell) -> Iterator[None]:
        """Note that a setting does not fit on the GPU; it is not tried again."""
        try:
            yield
            return
        except torch.OutOfMemoryError:
            for cell in cells:
                cell.error = "out of memory"
        system.optimizer.zero_grad()
        self.free()

    def free(self) -> None:
        """Release the memory of deleted systems."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def measure_encoder(self, system: Ours) -> Json | None:
        """Measure the encoder's two passes alone, as a share of a step at the best batch size."""
        setting = best(self.cells, "graph")
        if setting is None:
            return None
        batches = make_batches(self.examples, setting, self.args.seed)
        inputs = [system.tensors(batch) for batch in batches]
        rounds = []
        for _ in range(self.args.rounds + 1):
            began = clock(self.device)
            for tensors in inputs:
                system.encode(tensors)
            rounds.append(clock(self.device) - began)
        largest = max(inputs, key=lambda tensors: int(tensors.node_mask.sum()))
        cell = self.cells["graph", setting]
        assert isinstance(system.module, GraphLM)
        assert cell.peak_bytes is not None
        held = resident_bytes(system.module.encoder, system.optimizer)
        memory = held + peak_bytes(lambda: system.encode(largest), self.device)
        return {
            "batch_size": setting.batch_size,
            "time_share": statistics.median(rounds[1:]) / statistics.median(cell.seconds),
            "memory_share": memory / cell.peak_bytes,
        }

    def facts(self) -> Json:
        """Return the run's metadata: command, versions, device, sizes."""
        args, config = self.args, self.config
        cuda = self.device.type == "cuda"
        named = config.model.base_model + ", random weights" * args.random_weights
        libraries = ("torch", "transformers", "peft", "trl", "torch-geometric")
        return {
            "command": shlex.join(["python", "-m", MODULE, *sys.argv[1:]]),
            "commit": commit(),
            "versions": {name: version(name) for name in libraries},
            "device": torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})",
            "num_threads": torch.get_num_threads(),
            "model": named,
            "dtype": config.model.dtype,
            "attention": config.model.attn_implementation,
            "packing": config.training.packing,
            "seed": args.seed,
            "rounds": args.rounds,
            "num_questions": args.num_questions,
            "tokens_per_example": statistics.mean(e.num_tokens for e in self.examples),
            "interleaved": self.interleaved,
            "complete": self.complete,
            "ceiling": self.ceiling,
            "encoder": self.encoder,
        }


if __name__ == "__main__":
    run_cli(main)
