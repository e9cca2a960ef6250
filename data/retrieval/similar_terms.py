"""Finds the terms of a pool that are spelled like a word that the pool does not have."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection

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
    """Terms by their n-grams, which are indexed for the first word that asks for them.

    Args:
        terms: different terms.
    """

    def __init__(self, terms: Collection[str]) -> None:
        self._terms = sorted(terms)
        self._indexes: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def _index(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the n-grams of all terms as numbers, ascending, and the term of each.

        Those across two terms hold the mark of a beginning, which no word has.
        """
        if size not in self._indexes:
            text = "".join("^" + term for term in self._terms).encode("utf-32-le", "surrogatepass")
            codes = _codes(np.frombuffer(text, "<u4"), size)
            lengths = [len(term) + 1 for term in self._terms]
            owners = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[: len(codes)]
            order = codes.argsort(kind="stable")
            self._indexes[size] = codes[order], owners[order]
        return self._indexes[size]

    def like(self, word: str) -> list[tuple[str, float]]:
        """Return the most similar terms with Dice's share of common n-grams, the highest first."""
        if len(word) < (SHORTEST_LATIN if word.isascii() else SHORTEST):
            return []
        grams = ngrams(word)
        common = np.zeros(len(self._terms), np.int64)
        codes, owners = self._index(len(next(iter(grams))))
        for gram in grams:
            code = _codes(np.array([ord(character) for character in gram]), len(gram))
            first, last = (np.searchsorted(codes, code, side)[0] for side in ("left", "right"))
            common[np.unique(owners[first:last])] += 1
        fewest = LEAST / (2 - LEAST) * len(grams)  # what a term without further n-grams needs
        shares = list[tuple[float, int]]()
        for number in np.flatnonzero(common >= fewest).tolist():
            term = self._terms[number]
            of_term = ngrams(term) if len(term) > 1 else set[str]()
            shares.append((2 * len(grams & of_term) / (len(grams) + len(of_term)), -number))
        best = heapq.nlargest(MOST_TERMS, (pair for pair in shares if pair[0] >= LEAST))
        return [(self._terms[-number], share) for share, number in best]


def _codes(text: np.ndarray, size: int) -> np.ndarray:
    """Return the n-gram that begins at each character, as one number of 21 bits a character."""
    count = max(len(text) - size + 1, 0)
    codes = np.zeros(count, np.uint64)
    for offset in range(size):
        codes = codes << np.uint64(21) | text[offset : offset + count].astype(np.uint64)
    return codes
