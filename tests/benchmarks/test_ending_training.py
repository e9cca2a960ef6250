"""The sentences and diaries from which ends are learned, and the threshold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
import torch
import yaml

from turngraph.benchmarks.memory_graph import ending_training as training
from turngraph.data.memory_graph.recall.endings import ASPECTS, Endings, Said, pair_features


def no_vectors(texts: Sequence[str]) -> np.ndarray:
    return np.zeros((len(texts), 384), np.float32)


def test_every_blank_is_filled_and_each_sentence_has_its_labels() -> None:
    sentences = yaml.safe_load((training.FOLDER / "ending_sentences.yaml").read_text("utf-8"))
    made = list(training.filled(sentences, Random(0)))
    assert not any("{" in one.text for one in made)
    labels = np.stack([one.label for one in made])
    states, ends = labels[:, : len(ASPECTS)], labels[:, len(ASPECTS) : -2]
    about = labels[:, -2:].sum(axis=1)
    assert set(about) == {0, 1}  # the speaker, another person, or no state at all
    assert np.array_equal(about > 0, (states + ends).any(axis=1))
    assert (states.sum(axis=1) <= 1).all()
    assert states.any(axis=0).all()


def made_diary(rng: np.random.Generator, topics: np.ndarray) -> training.Marked:
    """Return a diary in which a sentence near topics[0, k] is ended by one near topics[1, k]."""
    chosen = rng.permutation(topics.shape[1])[:4]
    vectors = np.concatenate([topics[0, chosen], topics[1, chosen[:2]]]).astype(np.float32)
    said = [Said(str(number), None, frozenset()) for number in range(len(vectors))]
    return training.Marked(said, vectors, np.arange(1, len(said) + 1), {0: {5}, 1: {6}}, 0)


def test_pairs_learn_which_sentence_ends_which() -> None:
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(2, 8, 32)) / 32**0.5
    blank = np.zeros(0, np.float32)
    heads = np.zeros((2 * len(ASPECTS) + 2, 32), np.float32)
    base = Endings(heads, heads[:, 0], *[blank] * 7, threshold=1.0, probe=blank)

    def features(one: training.Marked) -> np.ndarray:
        return pair_features(one.said, one.vectors, base.read(one.vectors))

    diaries = [made_diary(rng, topics) for _ in range(60)]
    examples = [training.example_of(one, features(one)) for one in diaries]
    arrays = training.fit_pairs(examples, seed=0, epochs=25)
    endings = Endings(**{**vars(base), **arrays})
    rows = training.judged(endings, [made_diary(rng, topics) for _ in range(20)])
    threshold = training.threshold_of(rows)
    assert sum(is_right and likely >= threshold for likely, _, is_right in rows) > 0.8 * 2 * 20


def test_the_weights_judge_as_the_model_in_training_does() -> None:
    rng = np.random.default_rng(0)
    diary = made_diary(rng, rng.normal(size=(2, 8, 32)))
    heads = rng.normal(size=(2 * len(ASPECTS) + 2, 32)).astype(np.float32)
    blank = np.zeros(0, np.float32)
    base = Endings(heads, heads[:, 0], *[blank] * 7, threshold=1.0, probe=blank)
    found = pair_features(diary.said, diary.vectors, base.read(diary.vectors))
    model = training.Pairs(torch.from_numpy(found).flatten(0, 1), 32).eval()
    torch.nn.init.normal_(model.alone.weight)
    with torch.no_grad():
        logits = model(torch.from_numpy(found), torch.from_numpy(diary.vectors))
    judged = Endings(**{**vars(base), **model.arrays()}).judge(diary.said, diary.vectors)
    np.testing.assert_allclose(judged, logits.sigmoid().numpy(), atol=1e-5)


def test_the_threshold_marks_few_lasting_sentences() -> None:
    lasting = [(0.001 * i, False, False) for i in range(38)]
    rows = [(0.9, True, True), (0.8, False, False), (0.7, True, True), (0.6, True, False)]
    rows += [(0.5, False, False), (0.4, False, False), (0.3, True, True), *lasting]
    assert training.threshold_of(rows) == 0.7
    assert training.line_at(rows, 0.7) == (
        "from 0.700: 2 of 4 ends right, 1 of 41 others false, 0 ended by another, precision 0.67"
    )
    assert training.threshold_of([(0.9, False, False)]) == 1


NAMES = ["diaries_tune.json", "diaries.json", "diaries_unread.json", "diaries_second.json"]


@pytest.mark.parametrize("name", NAMES)
def test_every_marked_end_is_a_sentence(name: str) -> None:
    for diary in json.loads((training.FOLDER / name).read_text("utf-8")):
        read = training.read_diary(diary, no_vectors)
        assert read.num_lost == 0
        assert all(read.entries[index] < min(by) for index, by in read.ends.items())


def test_two_marked_ends_in_one_sentence_are_one_that_either_entry_ends() -> None:
    texts = ["I live in Oslo and own a boat.", "I moved out.", "I sold the boat."]
    quotes = [("I live", 2), ("own a boat", 3)]
    diary = {
        "name": "eva",
        "speaker": "Eva Moe",
        "entries": [{"date": f"202{i}-01-01", "text": text} for i, text in enumerate(texts)],
        "ends": [{"entry": 1, "quote": quote, "ended_by": by} for quote, by in quotes],
    }
    read = training.read_diary(diary, no_vectors)
    assert (read.ends, read.num_lost) == ({0: {2, 3}}, 0)


def test_diaries_of_the_training_are_well_formed() -> None:
    diaries = training.written_diaries()
    assert len({one["name"] for one in diaries}) == len(diaries) > 150
    for one in diaries:
        dates = [entry["date"] for entry in one["entries"]]
        assert dates == sorted(set(dates))
        for end in one["ends"]:
            assert one["entries"][end["entry"] - 1]["text"].count(end["quote"]) == 1
            assert end["entry"] < end["ended_by"] <= len(dates)
