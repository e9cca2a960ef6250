"""Trains a language model that reads a diary's entries, to find what later ones ended.

    python -m turngraph.benchmarks.memory_graph ending_reader [--output FILE]
    python -m turngraph.benchmarks.memory_graph ending_reader --trained FILE --diaries FILE

The lower layers of all-MiniLM-L6-v2 read each entry by itself. LoRA adapts its upper layers, in
which all tokens of a diary attend to each other; with ``--apart`` those of each entry. Two
sentences are scored by a product of two projections of their states, and by the features that the
package's classifiers use. It learns from the same diaries and lives as these (``ending_training``).
Prints what both find on the diaries left out, with the threshold that marks few others, and at
given shares of right marks.

Shapes: T tokens of a diary, n sentences, E entries and 0 for none, D width of the encoder.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.benchmarks.memory_graph.ending_training import (
    FOLDER,
    HELD_OUT,
    NUM_LIVES,
    Marked,
    Row,
    judged,
    line_at,
    made_life,
    read_diary,
    scores,
    threshold_of,
    written_diaries,
)
from turngraph.configs.models import resolve_model
from turngraph.data.memory_graph.recall.endings import pair_features, shipped
from turngraph.inference.model_options import EMBEDDER

NUM_LOWER = 3
"""Number of the encoder's layers that read each entry by itself."""
MAX_TOKENS = 60
"""Largest number of tokens of a sentence that are read."""
RANK = 128
NUM_NUMBERS = 64
"""Entries of a diary in training get increasing numbers up to this one."""
KEPT = (1.0, 0.8, 0.6, 0.5)
"""Shares of a diary's entries that are read in training, drawn anew each time."""
PRECISIONS = (0.5, 0.6, 0.7, 0.9)


@dataclass
class Read:
    """A diary as the model reads it.

    Args:
        states: of all tokens after the lower layers, float16 [T, D].
        means: weights of the tokens in the mean of each sentence, [n, T].
        numbers: number of each token's entry, [T].
        entries: column of each sentence's entry, from 1, [n].
        counts: which entries may have ended a sentence, bool [n, E].
        ends: which did, [n, E].
        features: of all pairs, [n, n, 15].
    """

    states: Tensor
    means: Tensor
    numbers: Tensor
    entries: Tensor
    counts: Tensor
    ends: Tensor
    features: Tensor

    def part(self, rng: Random) -> Read:
        """Return a random part of the entries, with other numbers in the same order."""
        kept = rng.choice(KEPT)
        chosen = [e for e in range(1, self.counts.shape[1]) if rng.random() < kept]
        tokens = torch.isin(self.numbers, torch.tensor(chosen))
        rows = torch.isin(self.entries, torch.tensor(chosen))
        if int(rows.sum()) < 2 or len(chosen) > NUM_NUMBERS:
            return self
        columns = torch.tensor([0, *chosen])
        column, number = torch.zeros(2, self.counts.shape[1], dtype=torch.long)
        column[chosen] = torch.arange(1, len(columns))
        number[chosen] = torch.tensor(sorted(rng.sample(range(1, NUM_NUMBERS + 1), len(chosen))))
        return Read(
            self.states[tokens],
            self.means[rows][:, tokens],
            number[self.numbers[tokens]],
            column[self.entries[rows]],
            self.counts[rows][:, columns],
            self.ends[rows][:, columns],
            self.features[rows][:, rows],
        )


class EndingReader(nn.Module):
    """Estimates which later entry of a diary ended a sentence.

    Args:
        folder: folder of the sentence encoder.
        apart: whether the upper layers, too, read each entry by itself.
    """

    def __init__(self, folder: str, apart: bool = False) -> None:
        super().__init__()
        self.apart = apart
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        # SDPA's fast kernel takes no dropout of attention; it halves the time of a step
        bert = AutoModel.from_pretrained(folder, attention_probs_dropout_prob=0.0)
        width = bert.config.hidden_size
        self.embeddings, self.lower = bert.embeddings, bert.encoder.layer[:NUM_LOWER]
        targets = ["query", "key", "value", "dense"]
        adapter = LoraConfig(r=16, lora_alpha=32, target_modules=targets)
        self.upper: nn.ModuleList = bert.encoder.layer[NUM_LOWER:]
        inject_adapter_in_model(adapter, self.upper)  # in place
        for name, parameter in self.named_parameters():
            parameter.requires_grad = "lora_" in name
        self.number = nn.Linear(32, width)
        nn.init.normal_(self.number.weight, std=0.02)
        self.old, self.new = nn.Linear(2 * width, RANK), nn.Linear(2 * width, RANK)
        self.old_alone, self.new_alone = nn.Linear(2 * width, 1), nn.Linear(2 * width, 1)
        self.lasts = nn.Linear(2 * width, 1)
        nn.init.constant_(self.lasts.bias, 3.0)  # most sentences last
        self.pair = nn.Sequential(nn.Linear(15, 32), nn.GELU(), nn.Linear(32, 1))
        self.mean = nn.Parameter(torch.zeros(15), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(15), requires_grad=False)
        self.dropout = nn.Dropout(0.2)

    @torch.no_grad()
    def read(self, diary: Marked) -> Read:
        """Read the entries of a diary by the lower layers, each by itself."""
        shape = (len(diary.said), int(diary.entries.max()) + 1)
        states, places = [], []
        numbers: list[int] = []
        for entry in range(1, shape[1]):
            ids = [self.tokenizer.cls_token_id]
            for one in (diary.said[i] for i in np.flatnonzero(diary.entries == entry)):
                text = one.text.removeprefix(f"{one.speaker}: ")
                read = self.tokenizer(text, add_special_tokens=False)["input_ids"][:MAX_TOKENS]
                begin = len(numbers) + len(ids)
                places.append((begin, begin + len(read)))
                ids += read
            ids.append(self.tokenizer.sep_token_id)
            hidden = self.embeddings(torch.tensor([ids]))
            for layer in self.lower:
                hidden = layer(hidden)
            states.append(hidden[0])
            numbers += [entry] * len(ids)
        means = torch.zeros(shape[0], len(numbers))
        for row, (begin, stop) in zip(means, places, strict=True):
            row[begin:stop] = 1 / max(stop - begin, 1)
        counts, ends = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
        for i, entry in enumerate(diary.entries.tolist()):
            ended_by = sorted(diary.ends.get(i, ()))
            counts[i, entry + 1 : ended_by[-1] + 1 if ended_by else None] = True
            ends[i, ended_by] = 1
        features = pair_features(diary.said, diary.vectors, shipped().read(diary.vectors))
        entries = torch.from_numpy(diary.entries)
        hidden, number = torch.cat(states).half(), torch.tensor(numbers)
        return Read(hidden, means, number, entries, counts, ends, torch.from_numpy(features))

    def forward(self, read: Read, counts: Tensor) -> Tensor:
        """Return the log-probability that a sentence lasts, and that an entry ended it, [n, 1 + E].

        Args:
            read: the diary.
            counts: which entries may have ended a sentence, [n, E].
        """
        lower = read.states.float()
        angles = read.numbers[:, None] * torch.exp(-torch.arange(16) / 16 * math.log(100.0))
        hidden = lower + self.number(torch.cat([angles.sin(), angles.cos()], dim=1))  # T D
        hidden = (lower if self.apart else hidden)[None]
        own = (read.numbers[:, None] == read.numbers)[None, None] if self.apart else None
        for layer in self.upper:
            hidden = layer(hidden, own)
        means = torch.cat([read.means @ hidden[0], read.means @ lower], dim=1)
        states = self.dropout(means)  # n 2D
        product = torch.tanh(self.old(states)) @ torch.tanh(self.new(states)).T
        logits = 4 * product / RANK**0.5 + self.old_alone(states) + self.new_alone(states)[:, 0]
        logits = logits + self.pair((read.features - self.mean) / self.deviation)[..., 0]  # n n
        columns = read.entries.expand(len(logits), -1)
        lowest = torch.full(counts.shape, -1e9)
        by_entry = lowest.scatter_reduce(1, columns, logits, "amax")  # n E
        by_entry = by_entry.masked_fill(~counts, -1e9)
        return torch.cat([self.lasts(states), by_entry], dim=1).log_softmax(dim=1)

    def loss(self, read: Read) -> Tensor:
        """Return the cross-entropy of what ended each sentence; those that end count twice."""
        logs = self(read, read.counts)
        has_ended = read.ends.any(dim=1)
        right = torch.cat([~has_ended[:, None], read.ends.bool()], dim=1)
        losses = -logs.masked_fill(~right, -1e9).logsumexp(dim=1)
        mean: Tensor = (losses * (1 + has_ended.float())).mean()
        return mean

    @torch.no_grad()
    def judge(self, diary: Marked) -> np.ndarray:
        """Return the probability that sentence i is ended by the entry of sentence j, [n, n]."""
        read = self.read(diary)
        later = torch.arange(read.counts.shape[1]) > read.entries[:, None]
        likely: np.ndarray = self(read, later)[:, 1:].exp()[:, read.entries].numpy()
        return likely

    def trained(self) -> dict[str, Tensor]:
        """Return what is not the encoder's own, by name."""
        own = ("lower.", "upper.", "embeddings.")
        named = self.state_dict().items()
        return {name: one for name, one in named if not name.startswith(own) or "lora_" in name}


def fit(model: EndingReader, diaries: Iterable[Marked], seed: int, epochs: int) -> None:
    """Train a reader by AdamW, four diaries a step."""
    rng = Random(seed)
    model.eval()
    read = [model.read(diary) for diary in diaries]
    features = torch.cat([one.features.flatten(0, 1) for one in read])
    model.mean.copy_(features.mean(0))
    model.deviation.copy_(features.std(0) + 1e-6)
    parameters = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05)
    num_steps = epochs * math.ceil(len(read) / 4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(rate, num_steps=num_steps))
    for epoch in range(epochs):
        model.train()
        rng.shuffle(read)
        total = 0.0
        for begin in range(0, len(read), 4):
            optimizer.zero_grad()
            for one in read[begin : begin + 4]:
                loss = model.loss(one.part(rng)) / 4
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {4 * total / len(read):.3f}", flush=True)
    model.eval()


def rate(step: int, num_steps: int) -> float:
    """Return the learning rate of a step as a share of the largest."""
    return min((step + 1) / 30, 0.5 * (1 + math.cos(math.pi * step / num_steps)))


def most_right(rows: Sequence[Row], precision: float) -> int:
    """Return the largest number of right ends of which such a share of the marks is right."""
    ranked = sorted(rows, reverse=True)
    right = np.cumsum([row[2] for row in ranked])
    enough = right >= precision * np.arange(1, len(rows) + 1)
    return int(right[enough].max(initial=0))


def table(rows: Sequence[Row], threshold: float) -> str:
    """Describe what is found at a threshold and at shares of right marks."""
    found = [f"{most_right(rows, share)} at {share}" for share in PRECISIONS]
    return f"{line_at(rows, threshold)}; right by share of right marks: {', '.join(found)}"


def main(argv: Sequence[str] | None = None) -> None:
    """Train, print what is found on diaries, and write what was trained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="random seed of the training")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the diaries")
    parser.add_argument("--apart", action="store_true", help="read each entry by itself")
    parser.add_argument("--diaries", nargs="*", type=Path, default=[], help="also measured")
    parser.add_argument("--trained", type=Path, help="safetensors file of a trained reader")
    parser.add_argument("--output", type=Path, help="safetensors file of what is trained")
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    embed = kept_encoder(EMBEDDER)
    written = [read_diary(diary, embed) for diary in written_diaries()]
    held_out = written[HELD_OUT - 1 :: HELD_OUT]
    del written[HELD_OUT - 1 :: HELD_OUT]
    model = EndingReader(resolve_model(EMBEDDER), options.apart).eval()
    if options.trained is not None:
        model.load_state_dict(load_file(options.trained), strict=False)
    else:
        sentences = yaml.safe_load((FOLDER / "ending_sentences.yaml").read_text("utf-8"))
        rng = Random(options.seed)
        lives = [made_life(sentences, rng, embed) for _ in range(NUM_LIVES)]
        fit(model, [*written, *lives], options.seed, options.epochs)
    threshold = None
    files: list[tuple[str, list[Marked]]] = [(f"{len(held_out)} diaries left out", held_out)]
    for path in options.diaries:
        listed: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
        files.append((path.name, [read_diary(diary, embed) for diary in listed]))
    for name, diaries in files:
        rows = [row for diary in diaries for row in scores(model.judge(diary), diary)]
        beside = judged(shipped(), diaries)
        threshold = threshold_of(rows) if threshold is None else threshold  # of those left out
        print(f"{name}: {table(rows, threshold)}", flush=True)
        print(f"  classifiers: {table(beside, shipped().threshold)}", flush=True)
    if options.output is not None:
        save_file(model.trained(), options.output)
