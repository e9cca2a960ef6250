"""Makes what the rows of ``gpu.py`` measure: synthetic examples, random models, training runs.

Nothing is read from a file but Turngraph's own configs: the tokenizer is trained on the synthetic
words, weights are drawn on the device.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from turngraph import train
from turngraph.configs.parse import read_config
from turngraph.configs.schema import Config
from turngraph.configs.shipped import find_config
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import StopRequest
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.prompt import INSTRUCTION, Prompt
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn
from turngraph.model.base_model import recompute_layers
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.known_shapes import known_config, random_model
from turngraph.model.make_model import make_model
from turngraph.model.reader import Reader
from turngraph.model.text_lm import TextLM
from turngraph.training.launcher import make_accelerator
from turngraph.training.operations import (
    LmShape,
    Work,
    lm_shape,
    operations,
    reader_work,
    useful,
)
from turngraph.training.run import Run

Values = dict[str, Any]
NUM_WORDS = 1500
SYLLABLES = "ba ce di fo gu ka le mi no pu ra se ti vo zu".split()


def clock(device: torch.device) -> float:
    """Return the time in seconds, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class RowError(Exception):
    """Raised where a row cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Evidences:
    """Sizes of a benchmark's synthetic questions.

    Args:
        config: shipped config whose evidence and model they get.
        passages: passages of a question, on average; they vary by a fifth.
        words: words of a passage; the first is some tokens, each other one.
        text: tokens of instruction, dialogue and question.
    """

    config: str
    passages: int
    words: int
    text: int


CONVMIX = Evidences("convmix/graph_memory", 100, 8, 200)
SQA = Evidences("sqa/graph", 20, 17, 100)
CONVMIX_READER = Evidences("convmix/reader", 100, 8, 200)
SQA_READER = Evidences("sqa/reader", 15, 17, 100)


@dataclass
class Bench:
    """Device, models and examples of the rows, made when they are needed.

    Args:
        device: ``cuda`` or ``cpu``.
        tiny: a tiny model, few short examples and hardly any repeats.
        seed: of weights and examples.
        folder: for the output of runs, which write nothing there.
        known: values of the rows that are measured already, by name.
        deadline: when the row at hand must be done, by ``time.monotonic``.
    """

    device: torch.device
    tiny: bool
    seed: int
    folder: str
    known: dict[str, Values] = field(default_factory=dict)
    deadline: float = float("inf")

    @cached_property
    def words(self) -> list[str]:
        """Made-up words, each of which is one token after a space."""
        rng, found = random.Random(0), dict[str, None]()
        while len(found) < (200 if self.tiny else NUM_WORDS):
            found["".join(rng.choices(SYLLABLES, k=3))] = None
        return list(found)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """A byte-level tokenizer with a chat format; its ids are below 4,096."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=480 if self.tiny else 4096,
            special_tokens=["<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        texts = [*INSTRUCTION, "<evidence></evidence>", "Question: Answer: user assistant"]
        tokenizer.train_from_iterator([*texts, *(f" {word}" for word in self.words)], trainer)
        end = "<|im_end|>"
        fast: Any = PreTrainedTokenizerFast
        made: PreTrainedTokenizerFast = fast(
            tokenizer_object=tokenizer, eos_token=end, pad_token=end
        )
        made.chat_template = (
            "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
            "{{ message['content'] }}<|im_end|>\n{% endfor %}"
        )
        return made

    def config(self, sizes: Evidences, *options: str) -> Config:
        """Return the shipped config of some examples without data, and with other fields."""
        fixed = [
            "--data.tune=null",
            f"--training.output={self.folder}/run",
            "--training.start_from=null",
            "--evidence.memory=none",
            "--evidence.retriever=bm25",  # the words are drawn at random
        ]
        fixed += ["--training.save_every=null", "--training.save_minutes=null"]
        fixed += [f"--training.seed={self.seed}"]
        if self.tiny:
            fixed += ["--evidence.top_k=6", "--evidence.max_nodes=64", "--model.dtype=float32"]
        config = read_config(find_config(sizes.config), *fixed, *options)
        if self.tiny and config.model.layer:
            scorer = replace(config.model.scorer, kept_nodes=24)
            config = replace(config, model=replace(config.model, layer=1, scorer=scorer))
        return config

    def examples(self, sizes: Evidences, count: int, config: Config | None = None) -> list[Example]:
        """Build examples with a random pool each; the same seed gives the same."""
        config = config or self.config(sizes)
        if self.tiny:
            sizes, count = replace(sizes, passages=6, words=8, text=30), min(count, 4)
        rng = random.Random(self.seed)
        builder = self.builder(config)
        return [
            builder.conversation(conversation, [len(conversation.turns) - 1])[0]
            for conversation in (self._conversation(rng, sizes, n) for n in range(count))
        ]

    def builder(self, config: Config) -> ExampleBuilder:
        """Return the builder of a config's examples."""
        reads_after = config.model.layer > 0
        prompt = Prompt(self.tokenizer, question_first=reads_after)
        return ExampleBuilder(prompt, config.evidence, mentions=reads_after)

    def _conversation(self, rng: random.Random, sizes: Evidences, number: int) -> Conversation:
        names = [  # the first is the answer, of some 8 tokens
            Entity(f"E{n}", " ".join(rng.sample(self.words, 2 if n else 6)))
            for n in range(sizes.passages)
        ]
        often = names[: max(sizes.passages // 5, 2)]

        def passage(index: int) -> Evidence:
            named = [names[index], *rng.sample(often, min(3, len(often)))]
            rest = rng.choices(self.words, k=max(sizes.words - 8, 1))
            text = " ".join([named[0].label, *rest, *(name.label for name in named[1:])])
            return Evidence(str(index), text, "text", tuple(named))

        answers = [Answer(name.label, name.id) for name in names]
        size = round(sizes.passages * rng.uniform(0.8, 1.2))
        pool = tuple(passage(index % len(names)) for index in range(size))
        asked = max((sizes.text - len(INSTRUCTION[0].split()) - 60) // 16, 0)  # earlier turns
        turns = [
            Turn(str(n), " ".join(rng.choices(self.words, k=10)), (rng.choice(answers),))
            for n in range(asked)
        ]
        about = names[0].label
        turns.append(
            Turn(str(asked), f"{about} {' '.join(rng.choices(self.words, k=8))}", (answers[0],))
        )
        return Conversation(f"c{number}", "synthetic", tuple(turns), pool)

    def base(self, config: Config) -> PreTrainedModel:
        """Make a random base model on the device, after the one before is freed."""
        self.free()
        torch.manual_seed(self.seed)
        model = config.model
        base = random_model(
            self.shape(model.base_model), model.dtype, model.attn_implementation, self.device
        )
        if model.gradient_checkpointing:
            recompute_layers(base)
        return base

    def shape(self, name: str) -> PreTrainedConfig:
        """Return the sizes of a model by name; of the tiny one, if all is tiny."""
        if not self.tiny:
            known = known_config(name)
            assert known is not None, name
            return known
        tiny: PreTrainedConfig = AutoConfig.for_model(
            "llama",
            vocab_size=480,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=4096,
        )
        return tiny

    def model(self, config: Config) -> EvidenceModel:
        """Make a model with random weights on the device."""
        return make_model(config.model, self.base(config)).to(self.device)

    def free(self) -> None:
        """Give the memory of deleted models back."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def ceiling(self, name: str) -> float | None:
        """Return a ceiling of row a, None if that row is not there."""
        value: float | None = self.known.get("a ceilings", {}).get(name)
        return value

    def repeat(self, step: Callable[[], object], most: int, warm: int = 1) -> float:
        """Return the seconds of a step: the mean of some, as many as there is time for."""
        for _ in range(warm):
            step()
        began, count = clock(self.device), 0
        while count < most and (count == 0 or time.monotonic() < self.deadline):
            step()
            count += 1
            if self.tiny:
                break
        return (clock(self.device) - began) / count

    def memory(self) -> Values:
        """Return the peak of the device's memory, in GB; nothing on a CPU."""
        if self.device.type != "cuda":
            return {}
        return {"peak_gb": torch.cuda.max_memory_allocated() / 1e9}


class Training:
    """A run of ``train.train_steps`` over a random model, without evaluation and checkpoints.

    Args:
        bench: what it runs on.
        config: batches, model.
        examples: the questions; they are repeated as long as steps are taken.
        model: None: made by the config.
    """

    def __init__(
        self,
        bench: Bench,
        config: Config,
        examples: Sequence[Example],
        model: EvidenceModel | None = None,
    ) -> None:
        training = replace(config.training, num_epochs=1e4)
        self.bench, self.examples = bench, list(examples)
        self.config = replace(config, training=training)
        accelerator = make_accelerator()
        if model is None:
            model = bench.model(self.config)
        self.run = Run(self.config, accelerator, model, bench.builder(config), [])
        self.schedule = BatchSchedule(self.examples, training)
        self.run.prepare(self.schedule)
        self.logged: list[dict[str, float]] = []
        self.run.log = self.logged.append  # type: ignore[assignment, method-assign]
        self.taken = 0

    def steps(self, count: int) -> float:
        """Take some steps, and return their seconds."""
        began = clock(self.bench.device)
        first, self.taken = self.taken, self.taken + count
        indices = range(first, self.taken)
        train.train_steps(self.run, self.examples, self.schedule, indices, StopRequest(), "steps")
        return clock(self.bench.device) - began

    def measure(self, most: int = 10, warm: int = 2) -> Values:
        """Return speed, share of the ceiling and memory of up to ``most`` steps."""
        bench = self.bench
        self.steps(1 if bench.tiny else warm)
        seconds, first = 0.0, self.taken
        while self.taken - first < most and (
            self.taken == first or time.monotonic() + 2 * seconds < bench.deadline
        ):
            seconds += self.steps(2)
            if bench.tiny:
                break
        batches = [b for i in range(first, self.taken) for b in self.schedule.step(i)]
        chosen = [self.examples[index] for batch in batches for index in batch]
        tokens = sum(example.num_tokens for example in chosen)
        values = {
            "examples_s": len(chosen) / seconds,
            "tokens_s": tokens / seconds,
            "batch": len(chosen) / len(batches),
            "seconds_step": seconds / (self.taken - first),
            "loss": self.logged[-1]["loss"],
        }
        if isinstance(self.run.model, TextLM | Reader):
            flops = training_flops(self.run.model, chosen, again=False) / seconds
            values["model_tflops"] = flops / 1e12
            if ceiling := bench.ceiling("matmul_tflops"):
                values["share"] = flops / 1e12 / ceiling
        return values | bench.memory()


def training_flops(model: EvidenceModel, examples: Sequence[Example], again: bool) -> float:
    """Return the operations of training on examples; matrices of encoder or scorer are counted.

    Args:
        model: with an LM.
        examples: each once.
        again: whether those of gradient checkpointing count; model FLOP/s leave them out.
    """
    shape: LmShape = lm_shape(model.causal_lm)
    total = 0.0
    for example in examples:
        parts = [(shape, useful([example.num_tokens], len(example.target_ids)))]
        if isinstance(model, Reader):
            parts = list(zip(shape.divided(model.config.layer), read(model, example), strict=True))
        total += sum(operations(*part, again) for part in parts)
    graphs = [p for part in model.graph_parts.values() for p in part.parameters()]
    trained = sum(p.numel() for p in graphs if p.requires_grad)
    return total + 6 * trained * sum(len(example.graph.node_ids) for example in examples)


def read(model: Reader, example: Example) -> tuple[Work, Work]:
    """Return what a reader computes of an example, below its graph and above it."""
    assert example.graph.mentions is not None, "built without mentions"
    *passages, _ = example.graph.mentions.sizes.tolist()
    answer = len(example.target_ids)
    suffix = len(example.suffix_ids) + answer
    kept = model.config.scorer.kept_nodes
    return reader_work(len(example.prefix_ids), passages, suffix, answer, kept)
