"""Summarises themes by quotations: sentences of their members, each with its place.

The paper (GEM-RAG) has an LM write summaries, which lose their sources. Here a summary is a choice
of sentences; one by an LM is optional and marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turngraph.data.eigen.similarity_graph import unit_vectors
from turngraph.data.eigen.themes import Theme
from turngraph.data.eigen.utility_questions import FUNCTION_WORDS
from turngraph.data.linearise import sentence_spans
from turngraph.data.normalise import fold, words

Write = Callable[[Sequence[str]], Sequence[str]]
"""A language model: user messages to replies, in order."""

MAX_WORDS = 100
"""Most words of a theme's quotations."""
MMR = 0.7
"""Weight of centrality against novelty (maximal marginal relevance)."""
CONTENT_WORDS = 6
"""Number of different content words from which on a sentence counts in full. A shorter one counts
less: the most central sentence of a talk may be "Thanks, Anna!"."""
NUM_MEMBERS = 32
"""Heaviest members, chunks or themes, of which something may be quoted."""
MAX_STEPS = 200
"""Most steps of the power iteration, which ends when the centrality no longer changes."""
PROMPT = """Sum up in one or two sentences what these quotations have in common. Use their words.

{quotations}"""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence that may be quoted.

    Args:
        chunk: number of its chunk.
        start, stop: its span in the chunk's text, in characters.
        text: the sentence; in a memory graph with its speaker in front.
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
        theme: theme of level 1.
        texts: texts of all chunks, by number.
    """
    sentences = []
    for chunk in theme.members[:NUM_MEMBERS].tolist():
        text = texts[chunk]
        spans = sentence_spans(text)
        sentences += [Sentence(chunk, start, stop, text[start:stop]) for start, stop in spans]
    return sentences


def quotations(
    theme: Theme,
    sentences: Sequence[Sentence],
    vectors: np.ndarray,
    max_words: int = MAX_WORDS,
) -> tuple[Quotation, ...]:
    """Choose the sentences that stand for a theme: by centrality, then by MMR for novelty.

    Centrality is the leading eigenvector of the sentences' similarities, times the weight of each
    sentence's chunk in the theme, and is lower for a sentence of few words. Equal texts are quoted
    once.

    Args:
        theme: theme of level 1.
        sentences: sentences of its members. The caller leaves out those that may not be quoted
            (ended facts, hypotheses). Sentences of other chunks are an error.
        vectors: [len(sentences), d] unit vectors.
        max_words: most words of all; a longer first sentence is quoted alone.

    Returns:
        The best first; () without sentences.

    Raises:
        UserError: a vector is zero or not finite.
        ValueError: a sentence is of no member.
    """
    if not sentences:
        return ()
    of_chunk = dict(zip(theme.members.tolist(), theme.weights.tolist(), strict=True))
    for index, sentence in enumerate(sentences):
        if sentence.chunk not in of_chunk:
            raise ValueError(f"sentence {index}: its chunk {sentence.chunk} is not in the theme")
    unit = unit_vectors(vectors, "sentence").astype(np.float64)
    near = np.round((1 + unit @ unit.T) / 2, 6)
    weights = np.array([of_chunk[sentence.chunk] for sentence in sentences])
    central = _centrality(near) * weights * _content([sentence.text for sentence in sentences])
    central = np.round(central / central.max(), 6)
    chosen = _most_central(sentences, central, unit, max_words)
    return tuple(Quotation(sentences[i], i, float(central[i])) for i in chosen)


def _centrality(near: np.ndarray) -> np.ndarray:
    """Return the leading eigenvector of similarities, not negative, by power iteration."""
    near = near - np.diag(np.diag(near))
    central = np.ones(len(near))
    for _ in range(MAX_STEPS):
        following = near @ central + central  # shifted, so that two sentences do not alternate
        following /= following.max()
        if np.abs(following - central).max() < 1e-9:
            break
        central = following
    return central


def _content(texts: Sequence[str]) -> np.ndarray:
    """Return the weight of each text by its number of content words, from 0 to 1."""
    counts = np.array([len(set(words(text)) - FUNCTION_WORDS) for text in texts])
    most = max(min(int(counts.max()), CONTENT_WORDS), 1)
    shares: np.ndarray = np.minimum(np.maximum(counts, 1) / most, 1.0)
    return shares


def _most_central(
    sentences: Sequence[Sentence], central: np.ndarray, unit: np.ndarray, max_words: int
) -> list[int]:
    """Return the sentences to quote, by maximal marginal relevance, within the words."""
    chosen: list[int] = []
    said: set[str] = set()
    left = max_words
    repeated = np.zeros(len(sentences))
    rest = list(range(len(sentences)))
    while rest:
        gain = np.round(MMR * central[rest] - (1 - MMR) * repeated[rest], 6)
        best = rest.pop(int(gain.argmax()))
        size, key = len(sentences[best].text.split()), fold(sentences[best].text)
        if key in said or not key.strip() or (chosen and size > left):
            continue
        chosen.append(best)
        said.add(key)
        left -= size
        repeated = np.maximum(repeated, unit @ unit[best])
        if left <= 0:
            break
    return chosen


def quotations_of_themes(
    quoted: Sequence[Sequence[str]], max_words: int = MAX_WORDS
) -> list[tuple[int, int]]:
    """Choose what a theme of level 2 quotes: the first quotations of its heaviest members.

    Args:
        quoted: quotations of the ``NUM_MEMBERS`` heaviest members, the heaviest first.
        max_words: most words of all.

    Returns:
        Places in ``quoted``, by member and position.
    """
    chosen: list[tuple[int, int]] = []
    said: set[str] = set()
    left = max_words
    for position in range(max(map(len, quoted), default=0)):
        for member, texts in enumerate(quoted):
            if position >= len(texts):
                continue
            size, key = len(texts[position].split()), fold(texts[position])
            if key not in said and (not chosen or size <= left):
                chosen.append((member, position))
                said.add(key)
                left -= size
    return chosen


def summaries_by_lm(
    quoted: Sequence[Sequence[str]], write: Write, maker: str = "lm"
) -> list[Summary]:
    """Have a language model write a summary of each theme's quotations, in one batch.

    Args:
        quoted: texts of each theme's quotations.
        write: the language model.
        maker: its name, which marks the summary.

    Returns:
        A summary each; of the quotations (maker ``quotes``) where the reply is blank or shares no
        content word with them.
    """
    quotes = ["\n".join(f"- {text}" for text in each) for each in quoted]
    asked = [number for number, each in enumerate(quoted) if each]
    replies = write([PROMPT.format(quotations=quotes[number]) for number in asked])
    written = dict(zip(asked, replies, strict=True))
    summaries = []
    for number, each in enumerate(quoted):
        text = " ".join(each)
        reply = " ".join(written.get(number, "").split())
        shared = {word for word in words(reply) if len(word) > 3} & set(words(text))
        summaries.append(Summary(reply, maker) if shared else Summary(text, "quotes"))
    return summaries
