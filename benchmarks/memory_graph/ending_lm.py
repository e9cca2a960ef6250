"""Trains the package's language model to find, in a diary, what later entries ended.

    python -m turngraph.benchmarks.memory_graph ending_lm [--left-out] [--output FILE]
    python -m turngraph.benchmarks.memory_graph ending_lm --trained FILE --diaries FILE

SmolLM2-135M-Instruct reads the entries of a diary in order, and then each sentence once more. A
sentence that is read once more attends to its entry and all later ones, so its states have seen
what ended it; with ``--once`` sentences are read once. The lower layers are the model's own, LoRA
adapts those above them, and the uppermost are left out. Two sentences are scored by products of
their states and of the states of their tokens, and by the features of the package's classifiers. A
softmax over the entries that may have ended a sentence, and "lasts", is trained along with one over
the sentences that an entry may have ended, and "none". It learns from the same diaries and lives as
the classifiers (``ending_training``). Every sixth diary of the training is left out too, to choose
the number of epochs and the threshold; with ``--left-out`` the 32 others are measured as well.

Shapes: S tokens of a row, n sentences, E entries and 0 for none, D width of the model.
"""

from __future__ import annotations

import argparse
import json
import math
import time
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
from transformers import AutoTokenizer

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.benchmarks.memory_graph.ending_reader import EndingReader, most_right, rate
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
    written_diaries,
)
from turngraph.configs.models import resolve_model
from turngraph.data.memory_graph.recall.endings import pair_features, shipped
from turngraph.inference.model_options import EMBEDDER
from turngraph.model.base_model import cast_adapter_inputs, decoder_layers, load_base_model

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
HEADER = "<|im_start|>A diary, entry by entry.\n"
ONCE_MORE = "\nWhat of it no longer holds?"
MAX_TOKENS = 60
"""Largest number of tokens of a sentence that are read."""
RANK = 128
NUM_HEADS, HEAD_WIDTH = 8, 32
"""Numbers of products of the states of tokens, and of their dimensions."""
KEPT = (1.0, 0.8, 0.6, 0.5)
"""Shares of a diary's entries that are read in training, drawn anew each time."""
PRECISIONS = (0.5, 0.7, 0.9)
MAX_FALSE = 0.05
LOWEST = -1e9


@dataclass
class Read:
    """A diary as the model reads it.

    Args:
        states: of all tokens after the lower layers, bfloat16 [S, D].
        positions: of the tokens, [S].
        of_entry: number of each token's entry; 0: the words that are in every row, [S].
        again: number of the sentence that a token reads once more; -1: of none, [S].
        old, new: weights of the tokens in the mean of each sentence, as the older and as the newer
            one, [n, S].
        entries: column of each sentence's entry, from 1, [n].
        counts: which entries may have ended a sentence, bool [n, E].
        ends: which did, [n, E].
        features: of all pairs, [n, n, 15].
    """

    states: Tensor
    positions: Tensor
    of_entry: Tensor
    again: Tensor
    old: Tensor
    new: Tensor
    entries: Tensor
    counts: Tensor
    ends: Tensor
    features: Tensor

    def part(self, rng: Random) -> Read:
        """Return a random part of the entries."""
        kept = rng.choice(KEPT)
        chosen = [e for e in range(1, self.counts.shape[1]) if rng.random() < kept]
        rows = torch.isin(self.entries, torch.tensor(chosen))
        if int(rows.sum()) < 2:
            return self
        columns = torch.tensor([0, *chosen])
        tokens = torch.isin(self.of_entry, columns)
        column = torch.zeros(self.counts.shape[1], dtype=torch.long)
        column[chosen] = torch.arange(1, len(columns))
        return Read(
            self.states[tokens],
            self.positions[tokens],
            column[self.of_entry[tokens]],
            self.again[tokens],
            self.old[rows][:, tokens],
            self.new[rows][:, tokens],
            column[self.entries[rows]],
            self.counts[rows][:, columns],
            self.ends[rows][:, columns],
            self.features[rows][:, rows],
        )


def visible(of_entry: Tensor, again: Tensor) -> Tensor:
    """Return which tokens a token attends to, bool [1, 1, S, S].

    A token attends to those before it; one that is read once more to those of its sentence before
    it, to the entry of the sentence and all later ones, and to the words that are in every row.
    """
    first, order = again < 0, torch.arange(len(again))
    before = order <= order[:, None]
    from_here = (of_entry >= of_entry[:, None]) | (of_entry == 0)
    own = torch.where(first[:, None], first, (first & from_here) | (again == again[:, None]))
    return (own & before)[None, None]


class EndingLM(nn.Module):
    """Estimates which later entry of a diary ended a sentence.

    Args:
        lower: number of layers that are the model's own.
        upper: number of layers after which reading stops.
        once: whether sentences are read once only.
    """

    def __init__(self, lower: int, upper: int, rank: int = 8, once: bool = False) -> None:
        super().__init__()
        self.once = once
        self.tokenizer = AutoTokenizer.from_pretrained(resolve_model(BASE))
        lm = load_base_model(BASE, "bfloat16")
        for parameter in lm.parameters():
            parameter.requires_grad = False
        layers = decoder_layers(lm)
        self.embeddings, self.rotary = lm.get_input_embeddings(), lm.model.rotary_emb
        self.lower = nn.ModuleList(layers[:lower])
        self.upper = nn.ModuleList(layers[lower:upper])
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        adapter = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets)
        inject_adapter_in_model(adapter, self.upper)  # in place
        for name, parameter in self.upper.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.float()
                parameter.requires_grad = True
        cast_adapter_inputs(self.upper, False)  # autocast casts
        width = lm.config.hidden_size
        self.state_mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.state_deviation = nn.Parameter(torch.ones(width), requires_grad=False)
        self.old, self.new = nn.Linear(width, RANK), nn.Linear(width, RANK)
        self.old_alone, self.new_alone = nn.Linear(width, 1), nn.Linear(width, 1)
        self.lasts, self.none = nn.Linear(width, 1), nn.Linear(width, 1)
        nn.init.constant_(self.lasts.bias, 3.0)  # most sentences last
        nn.init.constant_(self.none.bias, 3.0)  # most entries end nothing
        self.query = nn.Linear(width, NUM_HEADS * HEAD_WIDTH)
        self.key = nn.Linear(width, NUM_HEADS * HEAD_WIDTH)
        self.pair = nn.Sequential(nn.Linear(15 + NUM_HEADS, 32), nn.GELU(), nn.Linear(32, 1))
        self.mean = nn.Parameter(torch.zeros(15), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(15), requires_grad=False)
        self.dropout = nn.Dropout(0.2)

    def _through(self, layers: nn.ModuleList, hidden: Tensor, read: Read) -> Tensor:
        """Return states [1, S, D] after layers."""
        mask, positions = visible(read.of_entry, read.again), read.positions[None]
        angles = self.rotary(hidden, positions)
        with torch.autocast("cpu", torch.bfloat16):
            for layer in layers:
                hidden = layer(
                    hidden,
                    attention_mask=mask,
                    position_ids=positions,
                    position_embeddings=angles,
                )
        return hidden

    @torch.no_grad()
    def scale(self, read: Sequence[Read]) -> None:
        """Scale features and states by their means and deviations in some diaries."""
        features = torch.cat([one.features.flatten(0, 1) for one in read])
        hidden = [self._through(self.upper, one.states[None], one)[0, 1:] for one in read]
        states = torch.cat(hidden).float()
        for mean, deviation, values in (
            (self.mean, self.deviation, features),
            (self.state_mean, self.state_deviation, states),
        ):
            mean.copy_(values.mean(0))
            deviation.copy_(values.std(0) + 1e-6)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @torch.no_grad()
    def read(self, diary: Marked) -> Read:
        """Read the entries of a diary by the lower layers."""
        shape = (len(diary.said), int(diary.entries.max()) + 1)
        ids = self._ids(HEADER)
        of_entry = [0] * len(ids)
        texts = [one.text.removeprefix(f"{one.speaker}: ") for one in diary.said]
        new_places, old_places = [], []
        for entry in range(1, shape[1]):
            ids += self._ids("-")
            for i in np.flatnonzero(diary.entries == entry):
                read = self._ids(f" {texts[i]}")[:MAX_TOKENS]
                new_places.append((len(ids), len(ids) + len(read)))
                ids += read
            ids += self._ids("\n")
            of_entry += [entry] * (len(ids) - len(of_entry))
        old_places = new_places
        positions, again = list(range(len(ids))), [-1] * len(ids)
        if not self.once:
            prompt = self._ids(ONCE_MORE)
            ids += prompt
            of_entry += [0] * len(prompt)
            again += [-1] * len(prompt)
            positions += range(len(positions), len(ids))
            last, old_places = len(ids), []
            for i, text in enumerate(texts):
                read = self._ids(f" {text}")[:MAX_TOKENS] + self._ids("\n")
                old_places.append((len(ids), len(ids) + len(read)))
                ids += read
                of_entry += [int(diary.entries[i])] * len(read)
                again += [i] * len(read)
                positions += range(last, last + len(read))
        old, new = torch.zeros(2, shape[0], len(ids))
        for weights, places in ((old, old_places), (new, new_places)):
            for row, (begin, stop) in zip(weights, places, strict=True):
                row[begin:stop] = 1 / max(stop - begin, 1)
        counts, ends = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
        for i, entry in enumerate(diary.entries.tolist()):
            ended_by = sorted(diary.ends.get(i, ()))
            counts[i, entry + 1 : ended_by[-1] + 1 if ended_by else None] = True
            ends[i, ended_by] = 1
        features = pair_features(diary.said, diary.vectors, shipped().read(diary.vectors))
        one = Read(
            self.embeddings(torch.tensor(ids)),
            torch.tensor(positions),
            torch.tensor(of_entry),
            torch.tensor(again),
            old,
            new,
            torch.from_numpy(diary.entries),
            counts,
            ends,
            torch.from_numpy(features),
        )
        one.states = self._through(self.lower, one.states[None], one)[0]
        return one

    def forward(self, read: Read, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return two log-probabilities.

        Args:
            read: the diary.
            counts: which entries may have ended a sentence, [n, E].

        Returns:
            That a sentence lasts, and that an entry ended it, [n, 1 + E]; that an entry ended
            nothing, and that it ended a sentence, [1 + n, E].
        """
        hidden = self._through(self.upper, read.states[None], read)[0].float()
        hidden = (hidden - self.state_mean) / self.state_deviation
        hidden = self.dropout(hidden.clamp(-10, 10))
        old, new = read.old @ hidden, read.new @ hidden  # n D
        product = torch.tanh(self.old(old)) @ torch.tanh(self.new(new)).T
        is_old, is_new = read.old.any(dim=0), read.new.any(dim=0)
        query = self.query(hidden[is_old]).view(-1, NUM_HEADS, HEAD_WIDTH).transpose(0, 1)
        key = self.key(hidden[is_new]).view(-1, NUM_HEADS, HEAD_WIDTH).transpose(0, 1)
        meets = 8 * torch.tanh(query @ key.transpose(1, 2) / (8 * HEAD_WIDTH**0.5))
        meets = torch.log(meets.exp() @ (read.new[:, is_new] > 0).float().T + 1e-6)
        meets = (read.old[:, is_old] @ meets).permute(1, 2, 0)  # n n NUM_HEADS
        features = (read.features - self.mean) / self.deviation
        logits = self.pair(torch.cat([features, meets], dim=2))[..., 0]
        logits = logits + 4 * product / RANK**0.5 + self.old_alone(old) + self.new_alone(new)[:, 0]
        columns = read.entries.expand(len(logits), -1)
        lowest = torch.full(counts.shape, LOWEST)
        by_entry = lowest.scatter_reduce(1, columns, logits, "amax")  # n E
        by_entry = by_entry.masked_fill(~counts, LOWEST)
        none = torch.full(counts.shape[1:], LOWEST)
        none = none.scatter_reduce(0, read.entries, self.none(new)[:, 0], "amax")
        ended = torch.cat([self.lasts(old), by_entry], dim=1).log_softmax(dim=1)
        return ended, torch.cat([none[None], by_entry], dim=0).log_softmax(dim=0)

    def loss(self, read: Read) -> Tensor:
        """Return the cross-entropy of what ended each sentence; those that end count twice.

        Half of that of what each entry ended is added, over all sentences too.
        """
        ended, ending = self(read, read.counts)
        has_ended = read.ends.any(dim=1)
        right = torch.cat([~has_ended[:, None], read.ends.bool()], dim=1)
        losses = -ended.masked_fill(~right, LOWEST).logsumexp(dim=1)
        mean: Tensor = (losses * (1 + has_ended.float())).mean()
        told = torch.cat([(~read.ends.any(dim=0))[None].float(), read.ends], dim=0)
        told = told * torch.isin(torch.arange(told.shape[1]), read.entries)
        return mean - 0.5 * (ending * told).sum() / len(read.entries)

    @torch.no_grad()
    def judge(self, read: Read) -> tuple[np.ndarray, np.ndarray]:
        """Return how likely sentence i is ended by the entry of sentence j, [n, n].

        Of the older sentences' softmax, and the geometric mean of both.
        """
        later = torch.arange(read.counts.shape[1]) > read.entries[:, None]
        ended, ending = (one.clamp(min=-60) for one in self(read, later))
        both = (ended[:, 1:] + ending[1:]) / 2
        return (
            ended[:, 1:].exp()[:, read.entries].double().numpy(),
            both.exp()[:, read.entries].double().numpy(),
        )

    def trained(self) -> dict[str, Tensor]:
        """Return what is not the model's own, by name."""
        own = ("lower.", "upper.", "embeddings.", "rotary.")
        named = self.state_dict().items()
        return {name: one for name, one in named if not name.startswith(own) or "lora_" in name}


Diaries = list[tuple[Marked, Read]]


def measured(model: EndingLM, diaries: Diaries) -> list[list[Row]]:
    """Return the rows of diaries by each way of judging."""
    rows: list[list[Row]] = [[], []]
    for diary, read in diaries:
        for kind, likely in zip(rows, model.judge(read), strict=True):
            kind += scores(likely, diary)
    return rows


def threshold_at(rows: Sequence[Row], max_false: float) -> float:
    """Return the smallest probability from which at most a share of lasting ones is marked."""
    others = sorted((row[0] for row in rows if not row[1]), reverse=True)
    return float(np.nextafter(others[int(max_false * len(others))], 2)) if others else 0.0


def table(rows: Sequence[Row], threshold: float) -> str:
    """Describe what is found at a threshold, at ``MAX_FALSE``, and at shares of right marks."""
    found = [f"{most_right(rows, share)} at {share}" for share in PRECISIONS]
    here = line_at(rows, threshold_at(rows, MAX_FALSE))
    return f"{line_at(rows, threshold)}; {', '.join(found)}; at {MAX_FALSE} false {here}"


def fit(
    model: EndingLM, read: list[Read], seed: int, epochs: int, lr: float, asked: Diaries
) -> None:
    """Train by AdamW, four diaries a step; after each epoch measure some diaries."""
    rng = Random(seed)
    model.scale(read[::4])
    lora = [one for name, one in model.named_parameters() if "lora_" in name]
    heads = [
        one for name, one in model.named_parameters() if one.requires_grad and "lora_" not in name
    ]
    groups = [{"params": lora, "lr": lr}, {"params": heads, "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.05)
    num_steps = epochs * math.ceil(len(read) / 4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(rate, num_steps=num_steps))
    began = time.monotonic()
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
            nn.utils.clip_grad_norm_([*lora, *heads], 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        passed = time.monotonic() - began
        print(f"epoch {epoch + 1}: loss {4 * total / len(read):.3f}, {passed:.0f} s", flush=True)
        for kind in measured(model, asked) if asked else ():
            print(f"  {table(kind, threshold_at(kind, MAX_FALSE))}", flush=True)


def every(diaries: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return all but every sixth, and every sixth."""
    rest = [one for i, one in enumerate(diaries, 1) if i % HELD_OUT]
    return rest, diaries[HELD_OUT - 1 :: HELD_OUT]


def main(argv: Sequence[str] | None = None) -> None:
    """Train, print what is found on diaries, and write what was trained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="random seed of the training")
    parser.add_argument("--epochs", type=int, default=6, help="passes over the diaries")
    parser.add_argument("--lower", type=int, default=10, help="layers without LoRA")
    parser.add_argument("--upper", type=int, default=22, help="layers that are read")
    parser.add_argument("--rank", type=int, default=8, help="rank of LoRA")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of LoRA")
    parser.add_argument("--once", action="store_true", help="read each sentence once")
    parser.add_argument("--few", type=int, help="so many diaries only, to try the program")
    parser.add_argument("--beside", type=Path, help="file of a trained ending_reader --apart")
    parser.add_argument("--left-out", action="store_true", help="also measure those left out")
    parser.add_argument("--diaries", nargs="*", type=Path, default=[], help="also measured")
    parser.add_argument("--trained", type=Path, help="safetensors file of what was trained")
    parser.add_argument("--output", type=Path, help="safetensors file of what is trained")
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    embed = kept_encoder(EMBEDDER)
    written, held_out = every(written_diaries()[: options.few])
    fitted, chosen = every(written)
    model = EndingLM(options.lower, options.upper, options.rank, options.once).eval()

    def read(diaries: Iterable[Marked]) -> Diaries:
        return [(diary, model.read(diary)) for diary in diaries]

    dev = read(read_diary(diary, embed) for diary in chosen)
    if options.trained is not None:
        model.load_state_dict(load_file(options.trained), strict=False)
    else:
        sentences = yaml.safe_load((FOLDER / "ending_sentences.yaml").read_text("utf-8"))
        rng = Random(options.seed)
        lives = [made_life(sentences, rng, embed) for _ in range(options.few or NUM_LIVES)]
        learned = [*(read_diary(diary, embed) for diary in fitted), *lives]
        began = time.monotonic()
        reads = [model.read(one) for one in learned]
        print(f"{len(reads)} read, {time.monotonic() - began:.0f} s", flush=True)
        fit(model, reads, options.seed, options.epochs, options.lr, dev)
        if options.output is not None:
            save_file(model.trained(), options.output)
    beside = None
    if options.beside is not None:
        beside = EndingReader(resolve_model(EMBEDDER), apart=True).eval()
        beside.load_state_dict(load_file(options.beside), strict=False)
    thresholds = [threshold_at(kind, MAX_FALSE) for kind in measured(model, dev)]
    files: list[tuple[str, list[dict[str, Any]]]] = []
    if options.left_out:
        files.append((f"{len(held_out)} diaries left out", held_out))
    files += [(path.name, json.loads(path.read_text("utf-8"))) for path in options.diaries]
    for name, listed in files:
        diaries = [read_diary(diary, embed) for diary in listed]
        began = time.monotonic()
        rows = measured(model, read(diaries))
        num = sum(int(one.entries.max()) for one in diaries)
        print(f"{name}: {(time.monotonic() - began) / num:.3f} s per entry")
        for kind, threshold in zip(rows, thresholds, strict=True):
            print(f"  {table(kind, threshold)}")
        if beside is not None:
            both = [
                row
                for one in diaries
                for row in scores(np.sqrt(beside.judge(one) * model.judge(model.read(one))[1]), one)
            ]
            print(f"  with the encoder: {table(both, 1.0)}")
        known = judged(shipped(), diaries)
        print(f"  classifiers: {table(known, shipped().threshold)}", flush=True)
