"""Trains the encoder of questions, so that it finds the statements of a memory that answer them.

    python -m turngraph.benchmarks.memory_graph questions --anchors FILE ... [--output FILE]

LoRA of MiniLM's weights learns from diaries and chats that large language models wrote, with
questions about them: a question's vector is to be closer to the entry that answers it than to the
other entries of its memory. The vectors of the first questions of ``--anchors``, files of
conversations about other things, are to stay as they are. Every fifth memory is left out, and what
is found in it is printed; with ``--output`` all memories are learned, and the weights are written.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import save_file
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.configs.models import local_folder
from turngraph.configs.user_error import UserError
from turngraph.data.embedding import Embed
from turngraph.data.linearise import sentence_spans
from turngraph.data.memory_graph.recall.question_vectors import ENCODER
from turngraph.data.memory_graph.recall.vectors import PROBE

FOLDER = Path(__file__).parent
WRITTEN = (FOLDER / "ending_diaries.jsonl", FOLDER / "written_chats.jsonl")
HELD_OUT = 5
"""Every such memory is left out."""
RANK, LEARNING_RATE, EPOCHS = 8, 1e-3, 3
SHARPNESS = 20.0
"""What cosines are multiplied by before the softmax over the entries of a memory."""
MOST_ANCHORS, ANCHORS_AT_ONCE, ANCHOR_WEIGHT = 1500, 8, 10.0
"""Largest number of anchors of a file; number of those that a step draws; weight of their loss."""
Vectors = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True)
class Memory:
    """A memory's entries and the questions that it answers.

    Args:
        entries: vectors of the E entries, [E, D].
        sentences: vectors of their S sentences, [S, D].
        owners: entry of each sentence, [S].
        questions: Q questions.
        gold: the entries that answer each.
    """

    entries: Tensor
    sentences: Tensor
    owners: Tensor
    questions: list[str]
    gold: list[list[int]]

    def closeness(self, vectors: Tensor) -> Tensor:
        """Return the mean cosine of an entry and of its closest sentence to vectors, [Q, E]."""
        owners = self.owners.expand(len(vectors), -1)
        closest = torch.full((len(vectors), len(self.entries)), -1.0)
        closest = closest.scatter_reduce(1, owners, vectors @ self.sentences.T, "amax")
        return (closest + vectors @ self.entries.T) / 2


def read_memory(line: str, embed: Embed) -> Memory:
    """Read a memory, of which only the questions that it answers are kept."""
    given = json.loads(line)
    texts = [entry["text"] for entry in given["entries"]]
    parts = [(n, text[a:b]) for n, text in enumerate(texts) for a, b in sentence_spans(text)]
    asked = [one for one in given["questions"] if one["evidence"]]
    return Memory(
        torch.from_numpy(embed(texts)),
        torch.from_numpy(embed([part for _, part in parts])),
        torch.tensor([number for number, _ in parts]),
        [one["question"] for one in asked],
        [[number - 1 for number in one["evidence"]] for one in asked],
    )


def read_anchors(paths: Sequence[Path]) -> list[str]:
    """Return the first questions of files of conversations, at most ``MOST_ANCHORS`` of a file."""

    def first(path: Path) -> Iterator[str]:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if turns := json.loads(line).get("turns"):
                    yield turns[0]["question"]

    return [question for path in paths for question in islice(first(path), MOST_ANCHORS)]


def encoder() -> tuple[Any, Vectors]:
    """Return MiniLM with new LoRA, and its function from texts to unit vectors, [len(texts), D].

    Raises:
        UserError: MiniLM is not on this machine.
    """
    folder = local_folder(ENCODER)
    if folder is None:
        raise UserError(f"{ENCODER} is not on this machine")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lora = LoraConfig(r=RANK, lora_alpha=RANK, target_modules=["query", "key", "value", "dense"])
    model = get_peft_model(AutoModel.from_pretrained(folder, add_pooling_layer=False), lora)
    model.eval()  # without dropout

    def vectors(texts: Sequence[str]) -> Tensor:
        tokens = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        mask = tokens["attention_mask"][..., None]
        states = model(**tokens).last_hidden_state * mask
        return normalize(states.sum(1) / mask.sum(1), dim=-1)

    return model, vectors


def train(memories: Sequence[Memory], anchors: Sequence[str], seed: int) -> tuple[Any, Vectors]:
    """Return the trained model and its function."""
    torch.manual_seed(seed)
    rng = Random(seed)
    model, vectors = encoder()
    with torch.no_grad():
        kept = torch.cat([vectors(anchors[i : i + 32]) for i in range(0, len(anchors), 32)])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE)
    steps = EPOCHS * len(memories)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(EPOCHS):
        for memory in rng.sample(memories, len(memories)):
            drawn = rng.choices(range(len(anchors)), k=ANCHORS_AT_ONCE)
            found = vectors([*memory.questions, *(anchors[index] for index in drawn)])
            asked, others = found.split([len(memory.questions), ANCHORS_AT_ONCE])
            likely = (SHARPNESS * memory.closeness(asked)).log_softmax(-1)
            right = [row[gold].logsumexp(0) for row, gold in zip(likely, memory.gold, strict=True)]
            moved = 1 - (others * kept[drawn]).sum(-1)
            loss = ANCHOR_WEIGHT * moved.mean() - torch.stack(right).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model, vectors


@torch.no_grad()
def found(memories: Sequence[Memory], vectors: Vectors) -> str:
    """Return how often an entry that answers a question is closest, and among the three closest."""
    ranks = [
        min((row.argsort(descending=True) == entry).nonzero().item() for entry in gold)
        for memory in memories
        for row, gold in zip(memory.closeness(vectors(memory.questions)), memory.gold, strict=True)
    ]
    shares = np.mean([(rank < 1, rank < 3) for rank in ranks], axis=0)
    return "first {:.3f}, among three {:.3f} of {} questions".format(*shares, len(ranks))


def write(model: Any, path: Path, embed: Embed) -> None:
    """Write the factors of the trained weights, and the probe of the encoder."""
    arrays = {"probe": embed([PROBE])[0].astype(np.float16)}
    for name, value in model.state_dict().items():
        base, lora, factor = name.removeprefix("base_model.model.").partition(".lora_")
        if lora:
            key = f"{base}.weight.{factor[0].lower()}"
            arrays[key] = np.ascontiguousarray(value.numpy().astype(np.float16))
    save_file(arrays, path)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, print what is found in memories that were left out, and write the weights."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--anchors", type=Path, nargs="+", required=True, help="JSON Lines")
    parser.add_argument("--output", type=Path, help="safetensors file; then no memory is left out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    embed, anchors = kept_encoder(ENCODER), read_anchors(options.anchors)
    lines = [line for path in WRITTEN for line in path.read_text("utf-8").splitlines()]
    memories = [read_memory(line, embed) for line in lines]
    held = memories[::HELD_OUT]
    if options.output is None:
        memories = [one for number, one in enumerate(memories) if number % HELD_OUT]
        print(f"before: {found(held, encoder()[1])}")
    model, vectors = train(memories, anchors, options.seed)
    if options.output is None:
        print(f"after: {found(held, vectors)}")
    else:
        write(model, options.output, embed)
