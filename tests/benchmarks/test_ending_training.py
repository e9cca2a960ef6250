"""Invented lives from which ends are learned, and the diaries on which a threshold is set."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
import yaml

from turngraph.benchmarks.memory_graph import ending_training as training
from turngraph.data.memory_graph.recall.endings import ASPECTS


def test_a_life_ends_only_what_it_has_stated() -> None:
    sentences = yaml.safe_load((training.FOLDER / "ending_sentences.yaml").read_text("utf-8"))
    numbers = training.templates(sentences)
    num_ends = 0
    for seed in range(5):
        life = training.Life(sentences, Random(seed), numbers).make()
        ends, counts = training.pairs_of(life)
        assert not np.tril(ends).any()
        assert not np.any(ends & ~counts)
        assert ends.sum(axis=1).max() == 1  # a state ends once
        for old, new in zip(*np.nonzero(ends), strict=True):
            stated, ended = life[old].labels[: len(ASPECTS)], life[new].labels[len(ASPECTS) :]
            assert np.flatnonzero(stated).tolist() == np.flatnonzero(ended[:-2]).tolist()
        num_ends += int(ends.sum())
    assert num_ends > 50
    assert not any("{" in line.text for line in life)


def test_the_threshold_marks_few_lasting_sentences() -> None:
    lasting = [(0.001 * i, False, False) for i in range(38)]
    rows = [(0.9, True, True), (0.8, False, False), (0.7, True, True), (0.6, True, False)]
    rows += [(0.5, False, False), (0.4, False, False), (0.3, True, True), *lasting]
    assert training.threshold_of(rows) == 0.7
    assert training.line_at(rows, 0.7) == (
        "from 0.700: 2 of 4 ends right, 1 of 41 others false, 0 ended by another, precision 0.67"
    )
    assert training.threshold_of([(0.9, False, False)]) == 1


@pytest.mark.parametrize("name", ["diaries_tune.json", "diaries.json", "diaries_unread.json"])
def test_every_marked_end_is_a_sentence(name: str) -> None:
    for diary in json.loads((training.FOLDER / name).read_text("utf-8")):
        read = training.read_diary(diary, lambda texts: np.zeros((len(texts), 384), np.float32))
        assert len(read.ends) == len(diary["ends"])
        assert all(read.entries[index] < by for index, by in read.ends.items())
