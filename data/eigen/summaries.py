"""Summarises themes by quotations: sentences of their members, each with its place.

The paper (GEM-RAG) has an LM write summaries, which lose their sources. Here a summary is a choice
of sentences; one by an LM is optional and marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turngraph.data.eigen.themes import Theme

Write = Callable[[Sequence[str]], Sequence[str]]
"""A language model: user messages to replies, in order."""

MAX_WORDS = 100
"""Most words of a theme's quotations."""
MMR = 0.7
"""Weight of centrality against novelty (maximal marginal relevance)."""
NUM_MEMBERS = 32
"""Heaviest members whose sentences may be quoted."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence that may be quoted.

    Args:
        chunk: number of its chunk.
        start, stop: its span in the chunk's text, in characters.
        text: the sentence, possibly with its speaker in front, as a thesis has.
    """

    chunk: int
    start: int
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class Quotation:
    """A sentence of a theme's summary.

    Args:
        sentence: the sentence and its place.
        index: number of the sentence among the candidates that were given.
        centrality: its eigenvector centrality among them, the largest 1.
    """

    sentence: Sentence
    index: int
    centrality: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary in words: the quotations, or what a language model made of them.

    Args:
        text: the summary.
        maker: ``quotes``, or the name of the language model that wrote it.
    """

    text: str
    maker: str


def sentences_of(theme: Theme, texts: Sequence[str]) -> list[Sentence]:
    """Return the sentences of a theme's ``NUM_MEMBERS`` heaviest chunks, in their order.

    Args:
        theme: of level 1.
        texts: of all chunks, by number.
    """
    raise NotImplementedError


def quotations(
    theme: Theme,
    sentences: Sequence[Sentence],
    vectors: np.ndarray,
    max_words: int = MAX_WORDS,
) -> tuple[Quotation, ...]:
    """Choose the sentences that stand for a theme: by centrality, then by MMR for novelty.

    Centrality is the leading eigenvector of the sentences' similarities, times the weight of each
    sentence's chunk in the theme. Equal texts are quoted once.

    Args:
        theme: of level 1.
        sentences: of its members; the caller leaves out what may not be quoted (ended facts,
            hypotheses). Sentences of other chunks are an error.
        vectors: [len(sentences), d] unit vectors.
        max_words: most words of all; a longer first sentence is quoted alone.

    Returns:
        The best first; () without sentences.

    Raises:
        ValueError: a sentence is of no member, or a vector is zero or not finite.
    """
    raise NotImplementedError


def quotations_of_themes(
    theme: Theme, quoted: Sequence[Sequence[Quotation]], max_words: int = MAX_WORDS
) -> tuple[Quotation, ...]:
    """Return the quotations of a theme of level 2: the first ones of its heaviest members.

    Args:
        theme: of level 2.
        quoted: quotations of every theme of level 1, by number.
        max_words: most words of all.
    """
    raise NotImplementedError


def summaries_by_lm(
    quoted: Sequence[Sequence[Quotation]], write: Write, maker: str = "lm"
) -> list[Summary]:
    """Have a language model write a summary of each theme's quotations, in one batch.

    Args:
        quoted: quotations of each theme.
        write: the language model.
        maker: its name, which marks the summary.

    Returns:
        A summary each; of the quotations (maker ``quotes``) where the reply is blank or shares no
        content word with them.
    """
    raise NotImplementedError
