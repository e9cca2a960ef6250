"""Finds the terms of a pool that are spelled like a word that the pool does not have."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection
from functools import cached_property

import numpy as np

SHORTEST, SHORTEST_LATIN = 2, 5
"""Fewest characters of a word, and of an ASCII word, for which similar terms are looked for. A word
of scripts without spaces is one character; short English words that are spelled alike are mostly
different words."""
LEAST = 0.55
"""Least share of n-grams that similar terms have in common."""
MOST_TERMS = 8
"""Most similar terms of a word."""
_HANGUL = re.compile("[\uac00-\ud7a3]")  # a character is a syllable


def ngrams(term: str) -> set[str]:
    """Return the character n-grams of a term with a mark of its beginning.

    They are trigrams, and bigrams of Korean syllables. The end has no mark: endings differ.
    """
    size = 2 if _HANGUL.search(term) else 3
    marked = "^" + term
    return {marked[i : i + size] for i in range(max(len(marked) - size + 1, 1))}


class SimilarTerms:
    """Terms by their n-grams. The terms are scanned for those of a word, and no index is kept.

    Args:
        terms: different terms.
    """

    def __init__(self, terms: Collection[str]) -> None:
        self._terms = sorted(terms)

    @cached_property
    def _text(self) -> tuple[str, np.ndarray]:
        """All terms in a row, each after a mark of its beginning, and where each begins."""
        lengths = np.array([len(term) + 1 for term in self._terms], np.int64)
        return "".join("^" + term for term in self._terms), lengths.cumsum() - lengths

    def _having(self, gram: str) -> np.ndarray:
        """Return the numbers of the terms that have an n-gram, ascending."""
        text, starts = self._text
        places = [match.start() for match in re.finditer(re.escape(gram), text)]
        return np.unique(np.searchsorted(starts, places, "right") - 1)

    def like(self, word: str) -> list[tuple[str, float]]:
        """Return the most similar terms with Dice's share of common n-grams, the highest first."""
        if len(word) < (SHORTEST_LATIN if word.isascii() else SHORTEST):
            return []
        grams = ngrams(word)
        common = np.zeros(len(self._terms), np.int64)
        for gram in grams:
            common[self._having(gram)] += 1
        fewest = LEAST / (2 - LEAST) * len(grams)  # what a term without further n-grams needs
        shares = list[tuple[float, int]]()
        for number in np.flatnonzero(common >= fewest).tolist():
            term = self._terms[number]
            of_term = ngrams(term) if len(term) > 1 else set[str]()
            shares.append((2 * len(grams & of_term) / (len(grams) + len(of_term)), -number))
        best = heapq.nlargest(MOST_TERMS, (pair for pair in shares if pair[0] >= LEAST))
        return [(self._terms[-number], share) for share, number in best]
