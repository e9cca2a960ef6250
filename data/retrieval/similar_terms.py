"""Finds the terms of a pool that are spelled like a word that the pool does not have."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Collection
from functools import cached_property

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
    """Terms by their n-grams, which are computed for the first word that asks for them.

    Args:
        terms: different terms.
    """

    def __init__(self, terms: Collection[str]) -> None:
        self._terms = sorted(terms)

    @cached_property
    def _index(self) -> tuple[dict[str, list[int]], list[int]]:
        """Numbers of the terms with each n-gram, and the number of n-grams of each term."""
        having, sizes = defaultdict[str, list[int]](list), list[int]()
        for number, term in enumerate(self._terms):
            grams = ngrams(term) if len(term) > 1 else set()
            sizes.append(len(grams))
            for gram in grams:
                having[gram].append(number)
        return dict(having), sizes

    def like(self, word: str) -> list[tuple[str, float]]:
        """Return the most similar terms with Dice's share of common n-grams, the highest first."""
        if len(word) < (SHORTEST_LATIN if word.isascii() else SHORTEST):
            return []
        grams, (having, sizes) = ngrams(word), self._index
        common = Counter(number for gram in grams for number in having.get(gram, ()))
        shares = (
            (2 * num / (len(grams) + sizes[number]), -number) for number, num in common.items()
        )
        best = heapq.nlargest(MOST_TERMS, (pair for pair in shares if pair[0] >= LEAST))
        return [(self._terms[-number], share) for share, number in best]
