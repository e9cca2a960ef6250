"""Filters the facts that a traversal found: keeps those closest to the question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from turngraph.data.memory_graph.recall.word_index import WordIndex
from turngraph.data.normalise import words
from turngraph.data.retrieval.bm25 import K1, B
from turngraph.data.retrieval.numpy_bm25s import STOPWORDS_EN

DENSE, SPARSE = 0.9, 0.1
STOPWORDS = frozenset(STOPWORDS_EN)
"""Words that say little about a fact and, being in most facts, are the slowest to count."""


def closest_facts(
    word_index: WordIndex,
    question: str,
    texts: Mapping[int, str],
    similarities: Mapping[int, float],
    num_facts: int,
) -> list[tuple[int, float]]:
    """Return keys and closeness of the facts closest to a question, best first.

    Closeness is 0.9 * cosine + 0.1 * BM25. BM25 is divided by the candidates' highest (0 if no
    candidate has a word of the question), so that the largest is 1, as for a cosine. Of facts with
    the same text only the first is kept; ties are broken by text.

    Args:
        word_index: index with document frequencies.
        question: the question, as the user wrote it.
        texts: the candidates' texts by fact key.
        similarities: their cosines to the question by fact key.
        num_facts: maximum number of facts.
    """
    keys = list({text: key for key, text in reversed(list(texts.items()))}.values())
    sparse = bm25(word_index, question, [texts[key] for key in keys])
    highest = sparse.max(initial=0)
    dense = np.array([similarities[key] for key in keys])
    scores = DENSE * dense + SPARSE * (sparse / highest if highest else sparse)
    scores = np.round(scores, 6)
    ranked = sorted(zip(keys, scores.tolist(), strict=True), key=lambda f: (-f[1], texts[f[0]]))
    return ranked[:num_facts]


def bm25(word_index: WordIndex, question: str, texts: Sequence[str]) -> np.ndarray:
    """Return BM25 of a few texts for a question, by the document frequencies of all facts.

    Robertson and Zaragoza 2009 with k1 1.5, b 0.75 and idf = ln(1 + (N - n + 0.5) / (n + 0.5)).
    """
    bags = [Counter(words(text)) for text in texts]
    of_question = set(words(question)) - STOPWORDS
    terms = {term for bag in bags for term in bag if term in of_question}
    num_facts, num_words = word_index.counts()
    if not terms or not num_facts:
        return np.zeros(len(texts))
    n = {term: word_index.frequency(term) for term in terms}
    idf = {term: math.log1p((num_facts - n[term] + 0.5) / (n[term] + 0.5)) for term in terms}
    scores = []
    for bag in bags:
        norm = K1 * (1 - B + B * bag.total() * num_facts / max(num_words, 1))
        shared = [term for term in bag if term in terms]
        scores.append(sum(idf[t] * bag[t] * (K1 + 1) / (bag[t] + norm) for t in shared))
    return np.array(scores, dtype=float)
