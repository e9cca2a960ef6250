"""Trains the classifiers that judge which statements later ones have ended.

    python -m turngraph.benchmarks.memory_graph endings [--output FILE]
    python -m turngraph.benchmarks.memory_graph endings --trained --diaries FILE

Sentence classifiers learn what a sentence states and ends, from the sentences with blanks of
``ending_sentences.yaml``. The classifier of pairs learns from lives that are made of the same
sentences, and from ``ending_diaries.jsonl``: diaries that large language models wrote, in which
every sentence that no longer holds is marked with the entry that ended it. Every sixth diary is
left out, and the threshold is set on these. Prints what is found on them and on ``--diaries``.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.numpy import save_file
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.benchmarks.memory_graph.answers import DIARIES, diary_questions
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.endings import (
    ASPECTS,
    Endings,
    Said,
    pair_features,
    said_of,
    shipped,
)
from turngraph.data.memory_graph.recall.vectors import PROBE
from turngraph.data.memory_graph.turns import TurnExtractor
from turngraph.inference.model_options import EMBEDDER

FOLDER = Path(__file__).parent
WRITTEN = FOLDER / "ending_diaries.jsonl"
HELD_OUT = 6
"""Every such diary of ``WRITTEN`` is left out of the training."""
NUM_LIVES = 50
KINDS = ("states", "starts", "ends")
CAPITAL = re.compile(r"[A-Z][\w'&]*")
FILLINGS = 8
"""Number of sentences made of each sentence with blanks."""
RANK = 64
MAX_FALSE = 0.03
"""Largest share of the lasting sentences that a threshold may mark."""
Sentences = dict[str, Any]


@dataclass(frozen=True)
class Filled:
    """A sentence whose blanks are filled.

    Args:
        text: as it is remembered, most often with a speaker in front.
        label: what it states and ends, and whom it is about, [2 A + 2].
        said: the same text as the classifiers of pairs see it.
    """

    text: str
    label: np.ndarray
    said: Said


def fill(
    template: str, aspect: str, kind: str, values: dict[str, str], speaker: str | None = None
) -> Filled:
    """Fill the blanks of a sentence of an aspect; "" as aspect for one that states nothing."""
    role = kind.removeprefix("other_")
    label = np.zeros(2 * len(ASPECTS) + 2, dtype=np.float32)
    if aspect:
        label[ASPECTS.index(aspect)] = role in ("states", "starts")
        label[len(ASPECTS) + ASPECTS.index(aspect)] = role in ("ends", "starts")
        label[-2 if role == kind else -1] = 1
    text = template.format(**values)
    text = text[0].upper() + text[1:]
    names = [*CAPITAL.findall(text[1:]), *(v for v in (values["pet"], values["who"]) if v in text)]
    told = f"{speaker}: {text}" if speaker else text
    return Filled(told, label, said_of(told, speaker, names))


def drawn(slots: dict[str, list[str]], rng: Random) -> dict[str, str]:
    """Return a value for each blank: "thing", "thing2", and "thing0" for what was before."""
    values = {}
    for slot, choices in slots.items():
        values[slot], values[f"{slot}2"], values[f"{slot}0"] = rng.sample(choices, 3)
    return values | {"who": rng.choice([*slots["kin"], *slots["name"]])}


def filled(sentences: Sentences, rng: Random) -> Iterator[Filled]:
    """Yield every sentence with its blanks filled, ``FILLINGS`` times."""
    listed = [("", "none", sentences["none"])]
    listed += [(aspect, *kind) for aspect in ASPECTS for kind in sentences[aspect].items()]
    for aspect, kind, templates in listed:
        for template in templates:
            for _ in range(FILLINGS):
                values = drawn(sentences["slots"], rng)
                yield fill(template, aspect, kind, values, _speaker(values, rng))


def _speaker(values: dict[str, str], rng: Random) -> str | None:
    return f"{values['name0']} {values['name2']}son" if rng.random() < 0.8 else None


def made_life(sentences: Sentences, rng: Random, embed: Embed) -> Marked:
    """Return a diary of filled sentences, an entry each: states of a life, and what ends some."""
    speaker = _speaker(drawn(sentences["slots"], rng), rng)
    threads = [("", rng.sample(ASPECTS, 8))]
    threads += [("other_", rng.sample(ASPECTS, 3)) for _ in range(3)]
    lines: list[tuple[float, Filled, int | None, int | None]] = []  # when, what, states, ends
    for prefix, aspects in threads:
        for aspect in aspects:
            kinds = {kind: sentences[aspect].get(prefix + kind) for kind in KINDS}
            values = drawn(sentences["slots"], rng)
            ending = values | {f"{slot}0": values[slot] for slot in sentences["slots"]}
            if rng.random() < 0.5:  # "the Yaris" of "a Toyota Yaris"
                short = values["thing"].rpartition(" ")[2]
                ending |= {"thing": short, "thing0": short}
            begin, end = sorted((rng.random(), rng.random()))
            state = len(lines)
            drawn_state = rng.choice(kinds["states"] or kinds["starts"])
            one = fill(drawn_state, aspect, f"{prefix}states", values, speaker)
            lines.append((begin, one, state, None))
            kind = rng.choice([kind for kind in ("starts", "ends") if kinds[kind]])
            if kind == "starts":  # a new value in place of the old one
                ending |= (
                    drawn(sentences["slots"], rng)
                    | {f"{slot}0": values[slot] for slot in sentences["slots"]}
                    | {"who": values["who"]}
                )
            if rng.random() < 0.6:
                one = fill(rng.choice(kinds[kind]), aspect, prefix + kind, ending, speaker)
                lines.append((end, one, None, state))
    for template in rng.sample(sentences["none"], 10):
        one = fill(template, "", "none", drawn(sentences["slots"], rng), speaker)
        lines.append((rng.random(), one, None, None))
    lines.sort(key=lambda line: line[0])
    entry_of = {ended: i for i, (_, _, _, ended) in enumerate(lines, 1) if ended is not None}
    ends = {
        i: {entry_of[state]}
        for i, (_, _, state, _) in enumerate(lines)
        if state is not None and state in entry_of
    }
    said = [one.said for _, one, _, _ in lines]
    vectors = embed([one.text for one in said])
    return Marked(said, vectors, np.arange(1, len(said) + 1), ends, 0)


def fit_heads(vectors: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit a sentence classifier for each column of labels, few and many counting alike."""
    weights, biases = [], []
    for column in labels.T:
        model = LogisticRegression(max_iter=200, tol=1e-3, class_weight="balanced")
        fitted = model.fit(vectors, column)
        weights.append(fitted.coef_[0])
        biases.append(fitted.intercept_[0])
    return np.array(weights, np.float32), np.array(biases, np.float32)


@dataclass
class Marked:
    """The theses of a diary, and which of them end.

    Args:
        said, vectors: of the theses.
        entries: number of each one's entry, from 1.
        ends: by index of a thesis, the numbers of the entries that end it or parts of it.
        num_lost: number of marked ends that are in no thesis.
    """

    said: list[Said]
    vectors: np.ndarray
    entries: np.ndarray
    ends: dict[int, set[int]]
    num_lost: int


def read_diary(diary: dict[str, Any], embed: Embed) -> Marked:
    """Read the theses of a diary by the rules, and find the marked ones among them."""
    episodes, _ = diary_questions({"questions": [], **diary})
    said, entries, spans = [], [], []
    for number, extraction in enumerate(TurnExtractor().extract(episodes), 1):
        for thesis in extraction.theses:
            assert thesis.span is not None, "the rules say where a thesis stands"
            said.append(said_of(thesis.text, diary["speaker"], thesis.entities))
            entries.append(number)
            spans.append(thesis.span)
    ends: dict[int, set[int]] = defaultdict(set)
    num_lost = 0
    for end in diary["ends"]:
        at = diary["entries"][end["entry"] - 1]["text"].index(end["quote"])
        places = enumerate(zip(entries, spans, strict=True))
        ended = [i for i, (n, (start, stop)) in places if n == end["entry"] and start <= at < stop]
        num_lost += not ended
        for i in ended:
            ends[i].add(end["ended_by"])
    vectors = embed([one.text for one in said])
    return Marked(said, vectors, np.array(entries), dict(ends), num_lost)


def written_diaries() -> list[dict[str, Any]]:
    """Return the diaries of ``WRITTEN``."""
    return [json.loads(line) for line in WRITTEN.read_text("utf-8").splitlines()]


class Pairs(nn.Module):
    """Classifier of pairs, in training.

    Args:
        features: features of some pairs, [m, 15], by whose means and deviations they are scaled.
        width: width D of the vectors.
    """

    def __init__(self, features: Tensor, width: int) -> None:
        super().__init__()
        self.mean, self.deviation = features.mean(0), features.std(0) + 1e-6
        self.pair = nn.Linear(features.shape[1], 1)
        self.old, self.new = nn.Linear(width, RANK), nn.Linear(width, RANK)
        self.alone = nn.Linear(width, 2, bias=False)
        self.dropout = nn.Dropout(0.6)
        for layer in (self.old, self.new):
            nn.init.normal_(layer.weight, std=0.3)
        nn.init.zeros_(self.alone.weight)

    def forward(self, features: Tensor, vectors: Tensor) -> Tensor:
        """Return the logit that statement i is ended by statement j, [n, n]."""
        logits: Tensor = self.pair((features - self.mean) / self.deviation)[..., 0]
        old, new = self.dropout(vectors), self.dropout(vectors)
        product = torch.tanh(self.old(old)) @ torch.tanh(self.new(new)).T / RANK**0.5
        by_old, by_new = self.alone(old)[:, :1], self.alone(new)[:, 1]
        total: Tensor = logits + product + by_old + by_new
        return total

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights as ``Endings`` has them, for features that are not scaled."""
        with torch.no_grad():
            pair = self.pair.weight[0] / self.deviation
            tensors = {
                "pair": pair,
                "pair_bias": self.pair.bias - pair @ self.mean,
                "old": self.old.weight,
                "old_bias": self.old.bias,
                "new": self.new.weight,
                "new_bias": self.new.bias,
                "alone": self.alone.weight,
            }
            return {name: tensor.numpy() for name, tensor in tensors.items()}


@dataclass
class Example:
    """A diary to train on: its pairs of a statement and an entry.

    Args:
        features: [n, n, 15].
        vectors: [n, D].
        entries: number of each statement's entry, [n].
        counts: which pairs count, [n, entries + 1]: later entries, up to the one that ended it.
        ends: which entry ended a statement, [n, entries + 1].
    """

    features: Tensor
    vectors: Tensor
    entries: Tensor
    counts: Tensor
    ends: Tensor

    def loss(self, model: Pairs) -> Tensor:
        """Return the binary cross-entropy of the largest logit of each entry's statements."""
        logits = model(self.features, self.vectors)
        columns = self.entries.expand(len(self.entries), -1)
        lowest = torch.full(self.counts.shape, -1e9)
        by_entry = lowest.scatter_reduce(1, columns, logits, "amax")
        chosen, ends = by_entry[self.counts], self.ends[self.counts]
        return binary_cross_entropy_with_logits(chosen, ends, pos_weight=torch.tensor(3.0))


def example_of(diary: Marked, features: np.ndarray) -> Example:
    """Return a diary as an example; ``features`` of its pairs, [n, n, 15]."""
    shape = (len(diary.said), int(diary.entries.max()) + 1)
    counts, ends = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
    for i, entry in enumerate(diary.entries.tolist()):
        ended_by = sorted(diary.ends.get(i, ()))
        last = ended_by[-1] if ended_by else shape[1] - 1
        counts[i, entry + 1 : last + 1] = True
        ends[i, ended_by] = 1
    vectors, entries = torch.from_numpy(diary.vectors), torch.from_numpy(diary.entries)
    return Example(torch.from_numpy(features), vectors, entries, counts, ends)


def fit_pairs(examples: list[Example], seed: int, epochs: int = 60) -> dict[str, np.ndarray]:
    """Fit the classifier of pairs by AdamW, and return its weights."""
    torch.manual_seed(seed)
    rng = Random(seed)
    features = torch.cat([one.features.flatten(0, 1) for one in examples])
    model = Pairs(features, examples[0].vectors.shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        rng.shuffle(examples)
        for begin in range(0, len(examples), 4):
            loss = torch.stack([one.loss(model) for one in examples[begin : begin + 4]]).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return model.arrays()


def train(embed: Embed, diaries: Sequence[Marked], seed: int) -> Endings:
    """Return the classifiers, trained on diaries, with a threshold of 1."""
    sentences = yaml.safe_load((FOLDER / "ending_sentences.yaml").read_text("utf-8"))
    rng = Random(seed)
    known = list(filled(sentences, rng))
    heads, bias = fit_heads(embed([one.text for one in known]), np.stack([o.label for o in known]))
    lives = [made_life(sentences, rng, embed) for _ in range(NUM_LIVES)]
    blank = np.zeros(0, np.float32)
    untrained = Endings(
        heads, bias, blank, blank, blank, blank, blank, blank, blank, 1.0, embed([PROBE])[0]
    )
    examples = [
        example_of(one, pair_features(one.said, one.vectors, untrained.read(one.vectors)))
        for one in [*diaries, *lives]
    ]
    num_ends = sum(len(one.ends) for one in diaries)
    print(
        f"{len(known)} sentences; {len(lives)} lives; {len(diaries)} diaries with {num_ends} ends",
        flush=True,
    )
    arrays: dict[str, Any] = fit_pairs(examples, seed)
    return replace(untrained, **arrays)


Row = tuple[float, bool, bool]
"""How likely a thesis has ended, whether it is marked, and whether a right entry ends it."""


def scores(likely: np.ndarray, diary: Marked) -> list[Row]:
    """Return a row for each thesis of a diary, and one for each marked end that is in none.

    Args:
        likely: probability that thesis i is ended by thesis j, [n, n]; changed in place.
        diary: the theses and their ends.
    """
    likely[diary.entries[:, None] >= diary.entries[None, :]] = 0
    by = diary.entries[likely.argmax(axis=1)].tolist()
    rows = [
        (highest, i in diary.ends, by[i] in diary.ends.get(i, ()))
        for i, highest in enumerate(likely.max(axis=1).tolist())
    ]
    return rows + [(0.0, True, False)] * diary.num_lost


def judged(endings: Endings, diaries: Iterable[Marked]) -> list[Row]:
    """Return the rows of diaries by the classifiers."""
    return [row for one in diaries for row in scores(endings.judge(one.said, one.vectors), one)]


def threshold_of(rows: Sequence[Row]) -> float:
    """Return the probability from which most ends are right, of the lasting ones few are marked."""
    others = sum(not is_marked for _, is_marked, _ in rows)
    right = false = 0
    best = (0, 1.0)
    for likely, is_marked, is_right in sorted(rows, reverse=True):
        right, false = right + is_right, false + (not is_marked)
        if false > MAX_FALSE * others:
            break
        best = max(best, (right, likely))  # of equally many the first, which marks least
    return best[1]


def line_at(rows: Sequence[Row], threshold: float) -> str:
    """Describe what is found above a threshold."""
    told = [row for row in rows if row[0] >= threshold]
    marked = sum(row[1] for row in rows)
    right, false = sum(row[2] for row in told), sum(not row[1] for row in told)
    others = len(rows) - marked
    share = right / len(told) if told else 0
    return (
        f"from {threshold:.3f}: {right} of {marked} ends right, {false} of {others} others false,"
        f" {len(told) - right - false} ended by another, precision {share:.2f}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Train, set the threshold, print what is found on diaries, and write the classifiers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="random seed of the training")
    parser.add_argument("--diaries", nargs="*", type=Path, default=[DIARIES], help="also measured")
    parser.add_argument("--trained", action="store_true", help="measure the package's own only")
    parser.add_argument("--output", type=Path, help="safetensors file of the classifiers")
    options = parser.parse_args(argv)
    run(kept_encoder(EMBEDDER), options)


def run(embed: Embed, options: argparse.Namespace) -> None:
    """Do what the options say with an encoder."""
    written = [read_diary(diary, embed) for diary in written_diaries()]
    held_out = written[HELD_OUT - 1 :: HELD_OUT]
    del written[HELD_OUT - 1 :: HELD_OUT]
    endings = shipped() if options.trained else train(embed, written, options.seed)
    rows = judged(endings, held_out)
    if not options.trained:
        endings = replace(endings, threshold=threshold_of(rows))
    print(f"{len(held_out)} diaries left out: {line_at(rows, endings.threshold)}", flush=True)
    for path in options.diaries:
        diaries = [read_diary(diary, embed) for diary in json.loads(path.read_text("utf-8"))]
        rows = judged(endings, diaries)
        print(f"{path.name}: {line_at(rows, endings.threshold)}", flush=True)
    if options.output is not None:
        arrays = {key: np.asarray(value, np.float32) for key, value in asdict(endings).items()}
        save_file(arrays, options.output)
