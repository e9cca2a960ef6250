"""Measures answering speed, compared with transformers' ``generate`` and PyG's GRetriever.

    python -m turngraph.benchmarks.speed.infer_speed [--device cuda] [...]

One run, one LM with LoRA of rank 8, the same questions and evidence, the same limit of new tokens:
ours (graph, text) in batches, ``generate`` one by one (LoRA as an adapter, or merged into
them), and PyG's ``GRetriever.inference``. Systems take turns in rounds; medians are reported. The
upper bound of ours is measured in the same rounds: its LM's passes alone, on the same inputs in the
same batches, without graphs, tokenizer, encoder, choice of tokens and records. Every other option
is a config field, as for ``turngraph train`` (``--model.dtype float32``).
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch
from tqdm import tqdm

from turngraph.benchmarks.speed.answerers import (
    Answerer,
    Bare,
    OneByOne,
    Ours,
    PygAnswerer,
    greedy_until,
)
from turngraph.benchmarks.speed.base_models import load_base, load_tokenizer, random_base
from turngraph.benchmarks.speed.infer_table import OURS, SYSTEMS, Cell, Json, markdown, report
from turngraph.benchmarks.speed.measures import clock, peak_bytes
from turngraph.benchmarks.speed.peers import Pyg
from turngraph.benchmarks.speed.train_speed import (
    build_examples,
    check_device_option,
    common_options,
    load,
    load_questions,
)
from turngraph.configs.models import sentence_encoder
from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.data.embedding import cached
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.infer import positive
from turngraph.inference.options import ANSWER_TOKENS
from turngraph.model.checkpoint import commit
from turngraph.model.graph_lm import TextLM, make_model

logger = logging.getLogger("infer_speed")
MODULE = "turngraph.benchmarks.speed.infer_speed"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the tables and write the JSON file."""
    args, rest = parse(sys.argv[1:] if argv is None else argv)
    run = Run(args, load(args, rest))
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
        UserError: there is no GPU.
    """
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    common_options(parser)
    add = parser.add_argument
    add("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    add("--max_new_tokens", type=positive, default=16)
    add("--batch_tokens", type=positive, default=ANSWER_TOKENS, help="tokens in a batch of ours")
    add("--pyg_batch_size", type=positive, default=8, help="questions per call of GRetriever")
    add(
        "--no_end",
        action="store_true",
        help="all answers have max_new_tokens: the same work for all",
    )
    parser.set_defaults(packing=False)
    args, rest = parser.parse_known_args(argv)
    check_device_option(args)
    return args, rest


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
        self.prompt = Prompt(self.tokenizer)
        self.conversations, self.chosen = load_questions(args, config)
        self.embed = sentence_encoder(config.evidence.embedder)
        self.examples = self.build_examples()
        self.cells = {name: Cell(len(self.examples)) for name in args.systems}
        self.bare: dict[str, Bare] = {}
        self.build_seconds: list[float] = []
        self.interleaved, self.complete = self.fit_together(), False

    def build_examples(self) -> list[Example]:
        """Build the examples; only the sentence encoder has been loaded before.

        Raises:
            UserError: there are fewer questions than --num_questions.
        """
        rerank = self.config.evidence.memory == "rerank"
        embed = cached(self.embed) if rerank else None
        builder = ExampleBuilder(self.prompt, self.config.evidence, embed)
        examples = build_examples(builder, self.conversations, self.chosen)
        if len(examples) < self.args.num_questions:
            given = self.args.num_questions
            raise UserError(f"--num_questions {given}: there are only {len(examples)}")
        return examples

    def fit_together(self) -> bool:
        """Return whether all systems fit on the device together, in half of its memory."""
        if self.device.type == "cpu":
            return True
        base = random_base(replace(self.config.model, quantization="none"), torch.device("meta"))
        weights = sum(p.numel() * p.element_size() for p in base.parameters())
        free = torch.cuda.mem_get_info(self.device)[0]
        return bool(weights * len(self.args.systems) < free / 2)

    def measure(self) -> None:
        """Run all rounds; systems take turns if they fit on the device together."""
        names = self.args.systems
        groups = [names] if self.interleaved else [[name] for name in names]
        for group in groups:
            if not self.measure_group(group):
                logger.warning("--max_minutes %g: stopped", self.args.max_minutes)
                return
            self.free()
        self.complete = True

    def measure_group(self, names: Sequence[str]) -> bool:
        """Run the rounds of systems that share the device; return False if time runs out."""
        systems = {}
        for name in names:
            if self.late():
                return False
            systems[name] = self.build(name)
            self.warm_up(name, systems[name])
        for index in tqdm(range(self.args.rounds), desc=f"rounds of {', '.join(names)}"):
            shift = index % len(names)  # no system is always the first
            for name in [*names[shift:], *names[:shift]]:
                if self.late():
                    return False
                self.measure_round(name, systems[name])
            if set(names) & OURS:
                began = clock(self.device)
                self.build_examples()
                self.build_seconds.append(clock(self.device) - began)
        self.bare.clear()
        return True

    def late(self) -> bool:
        """Tell whether --max_minutes is over."""
        return time.monotonic() > self.deadline

    def build(self, name: str) -> Answerer:
        """Build a system with its own base model and LoRA, from the same random seed."""
        config, args = self.config, self.args
        torch.manual_seed(args.seed)
        base = load_base(config.model, self.device, args.random_weights)
        prompt = greedy_until(base, self.prompt, not args.no_end)
        if name == "pyg":
            system = Pyg(base, self.tokenizer, config)
            return PygAnswerer(system, args.max_new_tokens, args.pyg_batch_size)
        evidence: Literal["graph", "text"] = "text" if name == "text" else "graph"
        model = make_model(replace(config.model, evidence=evidence), base).to(self.device).eval()
        assert isinstance(model, TextLM), "the config has neither nodes nor a layer"
        if name in OURS:
            settings = {"batch_tokens": args.batch_tokens}
            return Ours(model, prompt, args.max_new_tokens, settings)
        return OneByOne(model, prompt, args.max_new_tokens, merged=name == "merged")

    def warm_up(self, name: str, system: Answerer) -> None:
        """Answer once, and measure the peak memory."""
        cell, largest = self.cells[name], system.largest(self.examples)
        weights = {p.data_ptr(): p.nbytes for p in system.module.parameters()}
        try:
            needed = peak_bytes(lambda: system.answer(largest), self.device)
            cell.peak_bytes = sum(weights.values()) + needed
        except torch.OutOfMemoryError:  # reported, and not tried again
            cell.error = "out of memory"
            self.free()

    def measure_round(self, name: str, system: Answerer) -> None:
        """Answer all questions once; for our systems, then replay the LM's passes alone."""
        cell = self.cells[name]
        if cell.error:
            return
        bare = self.bare.get(name)
        if isinstance(system, Ours) and bare is None:
            bare = self.bare[name] = Bare(system.module)
            with bare.recording():
                found = system.answer(self.examples)
            cell.passes = bare.counts()
        else:
            found = system.answer(self.examples)
        cell.seconds.append(found.seconds)
        cell.answers, cell.num_tokens = found.answers, found.num_tokens
        if bare is not None:
            prompts, steps = bare.run()
            cell.prompt_seconds.append(prompts)
            cell.step_seconds.append(steps)

    def free(self) -> None:
        """Release the memory of deleted systems."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def facts(self) -> Json:
        """Return the run's metadata: command, versions, device, sizes."""
        args, config = self.args, self.config
        cuda = self.device.type == "cuda"
        return {
            "command": shlex.join(["python", "-m", MODULE, *sys.argv[1:]]),
            "commit": commit(),
            "versions": {
                name: version(name) for name in ("torch", "transformers", "peft", "torch-geometric")
            },
            "device": torch.cuda.get_device_name() if cuda else "CPU",
            "num_threads": torch.get_num_threads(),
            "model": config.model.base_model + ", random weights" * args.random_weights,
            "dtype": config.model.dtype,
            "seed": args.seed,
            "rounds": args.rounds,
            "num_questions": args.num_questions,
            "max_new_tokens": args.max_new_tokens,
            "no_end": args.no_end,
            "batch_tokens": args.batch_tokens,
            "pyg_batch_size": args.pyg_batch_size,
            "tokens_per_question": statistics.mean(
                e.num_tokens - len(e.target_ids) for e in self.examples
            ),
            "build_seconds": self.build_seconds,
            "interleaved": self.interleaved,
            "complete": self.complete,
        }


if __name__ == "__main__":
    run_cli(main)
