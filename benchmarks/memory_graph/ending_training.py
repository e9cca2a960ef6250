"""Trains the classifiers that judge which statements later ones have ended.

    python -m turngraph.benchmarks.memory_graph endings [--output FILE]
    python -m turngraph.benchmarks.memory_graph endings --trained --diaries FILE

Lives of invented people are made from the sentences of ``ending_sentences.yaml``: homes, jobs, pets
and so on begin, are told of, and end, of the diarist and of others, among sentences about nothing
of it. Sentence classifiers learn what each sentence states and ends; the classifier of pairs learns
from what these say of sentences on whose template they were not trained. The threshold is set on
``diaries_tune.json``, written by hand. Prints what is found on these and on ``--diaries``.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file
from sklearn.linear_model import LogisticRegression

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.benchmarks.memory_graph.answers import DIARIES, diary_questions
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.recall.endings import (
    ASPECTS,
    Endings,
    Said,
    pair_features,
    said_of,
    shipped,
    sigmoid,
)
from turngraph.data.memory_graph.recall.vectors import PROBE
from turngraph.data.memory_graph.turns import TurnExtractor
from turngraph.inference.model_options import EMBEDDER

FOLDER = Path(__file__).parent
NUM_LIVES = 50
FOLDS = 2
MAX_FALSE = 0.05
"""Largest share of the lasting sentences that a threshold may mark."""
CAPITAL = re.compile(r"[A-Z][\w'&]*")
Sentences = dict[str, Any]


@dataclass
class Line:
    """A sentence of an invented life.

    Args:
        text: as it is remembered, with the speaker in front.
        said: the same, as the classifiers see it.
        template: number of the template.
        labels: what it states and ends, and whom it is about; [2 A + 2].
        state: state that it tells of; None: of none that another sentence ends.
        ended: states that it ends.
    """

    text: str
    said: Said
    template: int
    labels: np.ndarray
    state: int | None = None
    ended: frozenset[int] = frozenset()


@dataclass
class Life:
    """Maker of the sentences of one life."""

    sentences: Sentences
    rng: Random
    numbers: dict[str, int]
    lines: list[Line] = field(default_factory=list)
    num_states: int = 0

    def __post_init__(self) -> None:
        self.slots = self.sentences["slots"]
        first, second = self.rng.sample(self.slots["name"], 2)
        self.speaker: str | None = f"{first} {second}son" if self.rng.random() < 0.8 else None

    def values(self, who: str | None) -> dict[str, str]:
        """Draw a value for every slot."""
        found = {}
        for slot, values in self.slots.items():
            found[slot], found[f"{slot}2"] = self.rng.sample(values, 2)
        found["who"] = who or found["name"]
        return found

    def line(
        self, template: str, values: dict[str, str], old: dict[str, str], **labels: Any
    ) -> Line:
        """Return a sentence of a template."""
        kept = {f"{slot}0": value for slot, value in old.items()}
        text = template.format(**values | kept)
        short = values["thing"].rpartition(" ")[2]
        if labels.get("ends") and self.rng.random() < 0.5:
            text = text.replace(values["thing"], short)
        text = text[0].upper() + text[1:]
        vector = np.zeros(2 * len(ASPECTS) + 2, dtype=np.float32)
        for at, aspect in ((0, labels.get("states")), (len(ASPECTS), labels.get("ends"))):
            if aspect:
                vector[at + ASPECTS.index(aspect)] = 1
        if labels.get("states") or labels.get("ends"):
            vector[-1 if labels.get("other") else -2] = 1
        names = frozenset(alias(name) for name in CAPITAL.findall(text[1:]))
        names |= {alias(v) for v in (values["pet"], values["who"]) if v in text}
        told = text if self.speaker is None else f"{self.speaker}: {text}"
        said = Said(told, self.speaker, names)
        return Line(told, said, self.numbers[template], vector)

    def thread(self, aspect: str, who: str | None) -> list[Line]:
        """Return the sentences of one aspect of a person, in order of time."""
        prefix = "" if who is None else "other_"
        parts = {key: self.sentences[aspect][prefix + key] for key in ("states", "starts", "ends")}
        values: dict[str, str] = self.values(who)
        old: dict[str, str] = {}
        lines: list[Line] = []
        state: int | None = None
        other = who is not None
        for _ in range(self.rng.choice((1, 1, 2, 2, 3))):
            if state is None or not parts["ends"] or (parts["starts"] and self.rng.random() < 0.5):
                before, old = state, values
                values = self.values(who)
                state, self.num_states = self.num_states, self.num_states + 1
                begins = parts["starts"] and (before is not None or self.rng.random() < 0.4)
                if begins:
                    template = self.rng.choice(parts["starts"])
                    one = self.line(template, values, old, states=aspect, ends=aspect, other=other)
                    ended = frozenset[int]() if before is None else frozenset({before})
                    lines.append(replace(one, state=state, ended=ended))
                mentions = self.rng.choice((0, 1, 1) if begins else (1, 1, 2))
                for template in self.rng.sample(
                    parts["states"], min(mentions, len(parts["states"]))
                ):
                    one = self.line(template, values, old, states=aspect, other=other)
                    lines.append(replace(one, state=state))
            if state is not None and parts["ends"] and self.rng.random() < 0.6:
                template = self.rng.choice(parts["ends"])
                one = self.line(template, values, values, ends=aspect, other=other)
                lines.append(replace(one, ended=frozenset({state})))
                state = None
        return lines

    def make(self) -> list[Line]:
        """Return the sentences of the life in order of time."""
        threads = [self.thread(aspect, None) for aspect in ASPECTS if self.rng.random() < 0.8]
        people = self.rng.sample([*self.slots["kin"], *self.slots["name"]], 4)
        for who in people:
            for aspect in self.rng.sample(ASPECTS, 3):
                threads.append(self.thread(aspect, who))
        threads.append(self.thread("thing", None))
        for template in self.rng.sample(self.sentences["none"], 14):
            threads.append([self.line(template, self.values(None), {})])
        placed = [
            (at, line)
            for lines in threads
            for at, line in zip(sorted(self.rng.random() for _ in lines), lines, strict=True)
        ]
        return [line for _, line in sorted(placed, key=lambda pair: pair[0])]


def templates(sentences: Sentences) -> dict[str, int]:
    """Return a number for each template."""
    lists = [sentences["none"]]
    lists += [one for aspect in ASPECTS for one in sentences[aspect].values()]
    return {text: i for i, text in enumerate(dict.fromkeys(t for one in lists for t in one))}


def pairs_of(life: Sequence[Line]) -> tuple[np.ndarray, np.ndarray]:
    """Return which pairs of old and new are ends, and which pairs count, [n, n] each.

    A state that another sentence has ended before is left out.
    """
    ends = np.zeros((len(life), len(life)), dtype=bool)
    counts = np.triu(np.ones_like(ends), 1)
    for i, old in enumerate(life):
        if old.state is None:
            continue
        for j in range(i + 1, len(life)):
            if old.state in life[j].ended:
                ends[i, j] = True
                counts[i, j + 1 :] = False
                break
    return ends, counts


def fit(
    features: np.ndarray, labels: np.ndarray, weight: str | None = None
) -> tuple[np.ndarray, float]:
    """Fit a logistic regression; return weights and bias."""
    model = LogisticRegression(max_iter=200, tol=1e-3, class_weight=weight)
    found = model.fit(features, labels)
    return found.coef_[0].astype(np.float32), float(found.intercept_[0])


def fit_heads(vectors: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit a sentence classifier for each column of labels, few and many counting alike."""
    fitted = [fit(vectors, labels[:, k], "balanced") for k in range(labels.shape[1])]
    return np.stack([w for w, _ in fitted]), np.array([b for _, b in fitted], np.float32)


def train(embed: Embed, seed: int) -> Endings:
    """Return the trained classifiers, with a threshold of 1."""
    rng = Random(seed)
    sentences = yaml.safe_load((FOLDER / "ending_sentences.yaml").read_text("utf-8"))
    numbers = templates(sentences)
    lives = [Life(sentences, rng, numbers).make() for _ in range(NUM_LIVES)]
    lines = [line for life in lives for line in life]
    vectors = embed([line.text for line in lines])
    labels = np.stack([line.labels for line in lines])
    fold = np.array([line.template for line in lines]) % FOLDS
    read = np.zeros(labels.shape, dtype=np.float32)
    for k in range(FOLDS):
        heads, bias = fit_heads(vectors[fold != k], labels[fold != k])
        read[fold == k] = sigmoid(vectors[fold == k] @ heads.T + bias)
    heads, bias = fit_heads(vectors, labels)
    rows, wanted, begin = [], [], 0
    for life in lives:
        part = slice(begin, begin + len(life))
        begin += len(life)
        ends, counts = pairs_of(life)
        found = pair_features([line.said for line in life], vectors[part], read[part])
        rows.append(found[counts])
        wanted.append(ends[counts])
    weights, pair_bias = fit(np.concatenate(rows), np.concatenate(wanted))
    print(f"{len(lines)} sentences, {sum(map(len, wanted))} pairs, {sum(map(np.sum, wanted))} ends")
    return Endings(heads, bias, weights, pair_bias, 1.0, embed([PROBE])[0])


@dataclass
class Marked:
    """The theses of a diary, and which of them end.

    Args:
        said, vectors: of the theses.
        entries: number of each one's entry, from 1.
        ends: by index of a thesis, the number of the entry that ends it.
    """

    said: list[Said]
    vectors: np.ndarray
    entries: np.ndarray
    ends: dict[int, int]


def read_diary(diary: dict[str, Any], embed: Embed) -> Marked:
    """Read the theses of a diary by the rules, and find the marked ones among them."""
    episodes, _ = diary_questions({"questions": [], **diary})
    said, entries, spans = [], [], []
    for number, found in enumerate(TurnExtractor().extract(episodes), 1):
        for thesis in found.theses:
            assert thesis.span is not None, "the rules say where a thesis stands"
            said.append(said_of(thesis.text, diary["speaker"], thesis.entities))
            entries.append(number)
            spans.append(thesis.span)
    ends: dict[int, int] = {}
    for one in diary["ends"]:
        at = diary["entries"][one["entry"] - 1]["text"].index(one["quote"])
        [index] = [
            i
            for i, (number, (start, stop)) in enumerate(zip(entries, spans, strict=True))
            if number == one["entry"] and start <= at < stop
        ]
        ends[index] = one["ended_by"]
    return Marked(said, embed([one.text for one in said]), np.array(entries), ends)


def judged(endings: Endings, diary: Marked) -> tuple[np.ndarray, np.ndarray]:
    """Return how likely each thesis has ended, and the entry that ends it."""
    found = endings.judge(diary.said, diary.vectors)
    found[diary.entries[:, None] >= diary.entries[None, :]] = 0
    return found.max(axis=1), diary.entries[found.argmax(axis=1)]


Row = tuple[float, bool, bool]
"""How likely a thesis has ended, whether it is marked, and whether the right entry ends it."""


def scores(endings: Endings, path: Path, embed: Embed) -> list[Row]:
    """Return a row for each thesis of the diaries in a file."""
    rows = []
    for given in json.loads(path.read_text("utf-8")):
        diary = read_diary(given, embed)
        likely, by = judged(endings, diary)
        for i, p in enumerate(likely.tolist()):
            rows.append((p, i in diary.ends, diary.ends.get(i) == int(by[i])))
    return rows


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
    parser.add_argument("--seed", type=int, default=0, help="random seed of the invented lives")
    parser.add_argument("--diaries", nargs="*", type=Path, default=[DIARIES], help="also measured")
    parser.add_argument("--trained", action="store_true", help="measure the package's own only")
    parser.add_argument("--output", type=Path, help="safetensors file of the classifiers")
    options = parser.parse_args(argv)
    run(kept_encoder(EMBEDDER), options)


def run(embed: Embed, options: argparse.Namespace) -> None:
    """Do what the options say with an encoder."""
    endings = shipped() if options.trained else train(embed, options.seed)
    tuning = FOLDER / "diaries_tune.json"
    rows = scores(endings, tuning, embed)
    if not options.trained:
        endings = replace(endings, threshold=threshold_of(rows))
    print(f"{tuning.name}: {line_at(rows, endings.threshold)}", flush=True)
    for path in options.diaries:
        rows = scores(endings, path, embed)
        print(f"{path.name}: {line_at(rows, endings.threshold)}", flush=True)
    if options.output is not None:
        arrays = {key: np.asarray(value, np.float32) for key, value in asdict(endings).items()}
        save_file(arrays, options.output)
