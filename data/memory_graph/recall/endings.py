"""Estimates which statements a later statement has ended: "I sold the Yaris" ends "Bought a Yaris".

For each aspect of a person's life, linear classifiers over sentence vectors estimate the
probability that a sentence states a fact and the probability that it ends one; two more estimate
whether the sentence is about its speaker or about another person. A pair of sentences is judged by
features of these probabilities, by shared names and words, the cosine, and a product of two learned
projections of the vectors. ``ending_training`` of the benchmarks trains all of it. Most ends are
missed and many marks are wrong (docs/results.md), so a mark says only "may have ended".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.recall.filter_facts import STOPWORDS
from turngraph.data.normalise import words

ASPECTS = (
    *("home", "job", "partner", "alive", "thing", "diet", "eats", "habit", "plan", "measure"),
    "illness",
)
REPLACED = ("home", "job", "measure", "illness")
"""Aspects with one value at a time, such as a person's home; other aspects may have several."""
FILE = Path(__file__).with_name("endings.safetensors")


@dataclass(frozen=True, slots=True)
class Said:
    """A statement as the classifiers see it.

    Args:
        text: text of the thesis.
        speaker: who says it; None: unknown.
        names: normal forms of the names in the text, without the speaker's.
    """

    text: str
    speaker: str | None
    names: frozenset[str]

    @property
    def content(self) -> frozenset[str]:
        """Words of the text, without function words, a plural's s and the speaker's name."""
        text = self.text
        if self.speaker is not None:
            text = text.removeprefix(f"{self.speaker}: ")
        kept = (word for word in words(text) if word not in STOPWORDS and len(word) > 1)
        return frozenset(word[:-1] if len(word) > 3 and word[-1] == "s" else word for word in kept)


def said_of(text: str, speaker: str | None, names: Iterable[str]) -> Said:
    """Return a thesis as the classifiers see it.

    Args:
        text: text of the thesis.
        speaker: who says it.
        names: names of the objects that it mentions.
    """
    kept = frozenset(map(alias, names)) - {alias(speaker or "")}
    return Said(text, speaker, kept)


@dataclass(frozen=True)
class Endings:
    """The classifiers.

    Args:
        heads: weights of each sentence classifier, [2 A + 2, D]: states of the A aspects, ends of
            them, about the speaker, about another.
        head_bias: [2 A + 2].
        pair: weights of ``pair_features``, [15].
        pair_bias: bias of a pair, [1].
        old, new: projections of the vectors of the older and of the newer sentence, [R, D].
        old_bias, new_bias: their biases, [R].
        alone: weights of what a sentence adds by itself, as the older and as the newer, [2, D].
        threshold: smallest probability at which a statement is marked.
        probe: vector of ``vectors.PROBE``, [D], by the encoder on which the classifiers were
            trained.
    """

    heads: np.ndarray
    head_bias: np.ndarray
    pair: np.ndarray
    pair_bias: np.ndarray
    old: np.ndarray
    new: np.ndarray
    old_bias: np.ndarray
    new_bias: np.ndarray
    alone: np.ndarray
    threshold: float
    probe: np.ndarray

    def judge(self, said: Sequence[Said], vectors: np.ndarray) -> np.ndarray:
        """Return the probability that statement i is ended by statement j, float [n, n].

        Args:
            said: n statements.
            vectors: vectors of their texts, [n, D].
        """
        old = np.tanh(vectors @ self.old.T + self.old_bias)
        new = np.tanh(vectors @ self.new.T + self.new_bias)
        alone = vectors @ self.alone.T
        logits = pair_features(said, vectors, self.read(vectors)) @ self.pair + self.pair_bias
        logits += old @ new.T / np.sqrt(len(self.old)) + alone[:, :1] + alone[None, :, 1]
        return sigmoid(logits)

    def read(self, vectors: np.ndarray) -> np.ndarray:
        """Return the probabilities of the sentence classifiers, [n, 2 A + 2]."""
        return sigmoid(vectors @ self.heads.T + self.head_bias)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x))."""
    probabilities: np.ndarray = 1 / (1 + np.exp(-np.clip(values, -50, 50)))
    return probabilities


def pair_features(said: Sequence[Said], vectors: np.ndarray, read: np.ndarray) -> np.ndarray:
    """Return the features of all pairs of an old and a new sentence, float32 [n, n, 15].

    The match of an aspect is the smaller of two probabilities: the old sentence states the aspect,
    and the new one ends it. Its maximum over ``REPLACED``, and that over the other aspects, is a
    feature alone and multiplied by whether both sentences share a name, share a word, are about
    their speaker, or are about different people. The other features are shared names, the share of
    words in common, the cosine, and the largest probabilities of ending and of stating.
    """
    num = len(ASPECTS)
    states, ends = read[:, :num], read[:, num : 2 * num]
    meets = np.minimum(states[:, None], ends[None])
    replaced = np.isin(ASPECTS, REPLACED)
    value, thing = meets[:, :, replaced].max(axis=2), meets[:, :, ~replaced].max(axis=2)
    names = _indicators([sentence.names for sentence in said])
    content = _indicators([sentence.content for sentence in said])
    named = np.minimum(names @ names.T, 1)
    shared = content @ content.T / np.maximum(content.sum(axis=1, keepdims=True), 1)
    worded = shared > 0
    own, other = read[:, 2 * num], read[:, 2 * num + 1]
    apart = own[:, None] * other[None] + other[:, None] * own[None] + other[:, None] * other[None]
    apart = apart * (1 - named)
    of_value = (value, value * own[:, None] * own[None], value * named, value * worded)
    of_thing = (thing, thing * named, thing * worded, thing * shared)
    alone = (
        np.broadcast_to(ends.max(axis=1)[None], value.shape),
        np.broadcast_to(states.max(axis=1)[:, None], value.shape),
    )
    parts = (*of_value, value * apart, *of_thing, thing * apart, named, shared, vectors @ vectors.T)
    return np.stack([*parts, *alone], axis=2).astype(np.float32)


def _indicators(sets: Sequence[frozenset[str]]) -> np.ndarray:
    """Return which words each set has, float32 [n, words of all]."""
    columns = {word: column for column, word in enumerate(frozenset().union(*sets))}
    indicators = np.zeros((len(sets), len(columns)), np.float32)
    for row, words_of in zip(indicators, sets, strict=True):
        row[[columns[word] for word in words_of]] = 1
    return indicators


@cache
def shipped() -> Endings:
    """Return the classifiers that come with the package."""
    from safetensors.numpy import load_file

    arrays: dict[str, Any] = load_file(FILE)
    return Endings(**arrays | {"threshold": float(arrays["threshold"])})
