"""Asks LoCoMo's conversations what a speaker said about a thing over time, within 400 words.

LoCoMo gives observations: sentences about a speaker, each with the turn that it comes from. A
question is made for every speaker and noun whose observations lie in 3 to 10 sessions and 4 to 20
turns; those turns are gold. No language model is used.

The last rows are those of ``ask_themes``, whose statements count in place of whole turns. Their
settings are chosen on the other half of the questions.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from turngraph.benchmarks.memory_graph.memory_retrieval import halves
from turngraph.benchmarks.memory_graph.retrieval_data import Collection, read
from turngraph.benchmarks.memory_graph.retrievers import fill
from turngraph.data.eigen.eigen_index import EigenIndex
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.recall.filter_facts import STOPWORDS
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.theme_search import AskThemes
from turngraph.data.memory_graph.recall.traverse_settings import PPR, Traversal
from turngraph.data.normalise import words
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.reciprocal_ranks import RRF, fuse
from turngraph.data.scoring.score import bootstrap
from turngraph.data.types import Evidence

NUM_WORDS = 400
NUM_TURNS = 60
MMR = 0.7
SPREAD, SPREAD_FROM = 0.05, 10
SESSIONS, TURNS = (3, 10), (4, 20)
_TURN = re.compile(r"D(\d+):(\d+)")
_VERBS = frozenset(
    "feels feel enjoys loves likes wants plans believes thinks finds found values shares shared "
    "appreciates hopes expressed expresses mentioned mentions going getting taking making excited "
    "recently currently also their they them through about towards considering having being able "
    "inspired motivated grateful proud values supports started made took went attended received "
    "enjoyed loved felt gave brings help helps helped finds special really many time times".split()
)
"""Words of observations that name no thing; what else is no noun stays in, and is counted."""
Order = Callable[[str], np.ndarray | Sequence[int]]
FACTORS = (1.0, 0.7, 0.4, 0.0)
NUM_THEMES = (3, 12, 10**6)
ASKED = {
    "ask_themes, by closeness": [AskThemes(by_words=False, others=1.0)],
    "ask_themes, words": [AskThemes(others=1.0)],
    "ask_themes, words and speaker": [AskThemes(others=one) for one in FACTORS],
    "ask_themes, words, speaker and more themes": [
        AskThemes(num_themes=number, others=one) for number, one in product(NUM_THEMES, FACTORS)
    ],
}
"""Settings of each row of ``ask_themes``."""


@dataclass(frozen=True)
class Asked:
    """A question about a theme.

    Args:
        text: the question.
        gold: numbers of the gold turns.
        said: the gold observations' words, for ROUGE-1 recall.
    """

    text: str
    gold: frozenset[int]
    said: Counter[str]


def measure_spoken(folder: Path, embed: Embed, seed: int) -> str:
    """Return the table of gold-turn recall and ROUGE-1 recall within ``NUM_WORDS`` words."""
    path = next(iter(sorted(folder.rglob("locomo_3.json"))))
    items = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    tried: dict[str, list[list[tuple[float, float]]]] = {
        row: [[] for _ in settings] for row, settings in ASKED.items()
    }
    ids = []
    for item, collection in zip(items, read("locomo", folder), strict=True):
        asked = questions_of(item, _numbers(item))
        texts = [episode.text for episode in collection.episodes]
        with (
            tempfile.TemporaryDirectory() as kept,
            fill(collection, "rules", Path(kept) / "my.db", embed) as graph,
        ):
            for row, order in _orders(collection, embed, graph).items():
                found[row] += [_recalls(order(one.text), texts, one) for one in asked]
            graph.make_themes()
            for row, asked_with in ASKED.items():
                for number, one in enumerate(asked_with):
                    tried[row][number] += _of_statements(graph, asked, one)
        ids += [f"{collection.name} {number}" for number in range(len(asked))]
    base = [row for row in found if not row.startswith("eigen")]
    half = halves(len(ids), seed)
    chosen = {row: [_best(one, half == 1 - part) for part in (0, 1)] for row, one in tried.items()}
    for row, which in chosen.items():
        found[row] = [tried[row][which[part]][i] for i, part in enumerate(half.tolist())]
    best = max(base, key=lambda row: float(np.mean([turn for turn, _ in found[row]])))
    values = np.array([found[row] for row in found]).transpose(1, 0, 2)  # [questions, rows, 2]
    gains = values[:, :, 0] - values[:, [list(found).index(best)], 0]
    estimates = bootstrap(np.concatenate([values[:, :, 0], values[:, :, 1], gains], 1), ids)
    count = len(found)
    lines = [
        f"### LoCoMo, {len(ids)} questions about themes, {NUM_WORDS} words",
        "",
        f"| | recall of gold turns | ROUGE-1 recall | turns minus {best} |",
        "|---|---|---|---|",
    ]
    for number, row in enumerate(found):
        cells = [estimates[number + part * count] for part in range(3)]
        shown = [f"{mean:.3f} ({low:.3f} to {high:.3f})" for mean, low, high in cells[:2]]
        mean, low, high = cells[2]
        lines.append(f"| {row} | {' | '.join(shown)} | {mean:+.3f} ({low:+.3f} to {high:+.3f}) |")
    lines += ["", *(f"{row}: {[ASKED[row][i] for i in which]}" for row, which in chosen.items())]
    return "\n".join(lines) + "\n"


def _best(tried: Sequence[Sequence[tuple[float, float]]], part: np.ndarray) -> int:
    """Return the setting with the highest recall of gold turns on a part of the questions."""
    return int(np.argmax([np.array(one)[part, 0].mean() for one in tried]))


def _numbers(item: dict[str, Any]) -> dict[str, int]:
    """Return the number of every turn by its id, in the order of ``retrieval_data``."""
    numbers: dict[str, int] = {}
    session = 1
    while f"session_{session}" in item["conversation"]:
        for turn in item["conversation"][f"session_{session}"]:
            numbers[turn["dia_id"]] = len(numbers)
        session += 1
    return numbers


def questions_of(item: dict[str, Any], numbers: dict[str, int]) -> list[Asked]:
    """Return the questions of one conversation, by speaker and thing in alphabetical order.

    Args:
        item: conversation of LoCoMo's file.
        numbers: number of every turn by its id.
    """
    said: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for session in item["observation"].values():
        for speaker, observations in session.items():
            own = set(words(speaker))
            for sentence, turns in observations:
                named = turns if isinstance(turns, list) else [turns]
                for noun in sorted(set(words(sentence)) - STOPWORDS - _VERBS - own):
                    if len(noun) > 3 and noun.isalpha():
                        said[speaker, noun] += [(sentence, turn) for turn in named]
    asked = []
    for (speaker, noun), pairs in sorted(said.items()):
        matches = [match for _, turn in pairs for match in [_TURN.fullmatch(turn.strip())] if match]
        gold = {numbers[match[0]] for match in matches if match[0] in numbers}
        sessions = {match[1] for match in matches}
        if SESSIONS[0] <= len(sessions) <= SESSIONS[1] and TURNS[0] <= len(gold) <= TURNS[1]:
            text = f"What has {speaker} said about {noun} over time?"
            content = Counter(w for one, _ in dict(pairs).items() for w in words(one))
            for word in STOPWORDS & set(content):
                del content[word]
            asked.append(Asked(text, frozenset(gold), content))
    return asked


def _orders(collection: Collection, embed: Embed, graph: MemoryGraph) -> dict[str, Order]:
    """Return the rankings to compare; the memory graph has remembered the turns."""
    origins = _origins(graph)
    texts = [episode.text for episode in collection.episodes]
    pool = [Evidence(str(i), text, "text") for i, text in enumerate(texts)]
    by_words, vectors = EvidenceIndex(pool), embed(texts)
    index = EigenIndex(pool, embed, num_questions=0)

    def sparse(question: str) -> np.ndarray:
        asked = " ".join(word for word in words(question) if word not in STOPWORDS)
        return np.argsort(-by_words.scores(asked), kind="stable")

    def dense(question: str) -> np.ndarray:
        return np.argsort(-(vectors @ embed([question])[0]), kind="stable")

    def fused(question: str) -> np.ndarray:
        return fuse([sparse(question), dense(question)], len(texts))

    def diverse(question: str) -> list[int]:
        return _mmr(vectors, embed([question])[0])

    def episodes(question: str) -> list[int]:
        settings = RecallSettings(Traversal(ppr=PPR(top_k=NUM_TURNS)))
        facts = graph.ask_episodes(question, settings=settings).facts
        return [origins[fact.key // 2] for fact in facts]

    def eigen(question: str) -> np.ndarray:
        return index.search(question)[0]

    def whole_themes(question: str) -> np.ndarray:
        """Take the two themes closest to the question, their members by RRF, then the others."""
        theme_vectors = np.array([theme.vector for theme in index.themes])
        closest = np.argsort(-(theme_vectors @ embed([question])[0]), kind="stable")[:2]
        inside = np.concatenate([index.themes[int(i)].members for i in closest])
        order = fused(question)
        return np.concatenate([order[np.isin(order, inside)], order[~np.isin(order, inside)]])

    def neighbours(question: str) -> np.ndarray:
        """Add to the neighbours of the ten best by RRF a share of the scores of these."""
        order = fused(question)
        scores = np.zeros(len(texts))
        scores[order] = (RRF + 1) / (RRF + 1 + np.arange(len(texts)))
        spread = scores.copy()
        for number in order[:SPREAD_FROM].tolist():
            near, weights = index.graph.of(number)
            is_chunk = near < len(texts)
            spread[near[is_chunk]] += SPREAD * scores[number] * weights[is_chunk]
        return np.argsort(-spread, kind="stable")

    return {
        "BM25": sparse,
        "dense": dense,
        "RRF": fused,
        "ask_episodes": episodes,
        f"MMR {MMR}": diverse,
        "eigen": eigen,
        "eigen, whole themes": whole_themes,
        "eigen, RRF of eigen and RRF": lambda q: fuse([eigen(q), fused(q)], len(texts)),
        f"eigen, RRF and {SPREAD} of its neighbours": neighbours,
    }


def _mmr(vectors: np.ndarray, asked: np.ndarray, count: int = 60) -> list[int]:
    """Return rows by maximal marginal relevance."""
    close, repeated = vectors @ asked, np.zeros(len(vectors))
    chosen: list[int] = []
    for _ in range(min(count, len(vectors))):
        gain = MMR * close - (1 - MMR) * repeated
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
        repeated = np.maximum(repeated, vectors @ vectors[chosen[-1]])
    return chosen


def _recalls(
    order: np.ndarray | Sequence[int], texts: Sequence[str], asked: Asked
) -> tuple[float, float]:
    """Return gold-turn recall and ROUGE-1 recall of the first turns that fit into the words."""
    left, taken = NUM_WORDS, []
    for number in order:
        size = len(texts[number].split())
        if size > left:
            break
        taken.append(int(number))
        left -= size
    return _shares(taken, [texts[number] for number in taken], asked)


def _of_statements(
    graph: MemoryGraph, asked: Sequence[Asked], settings: AskThemes
) -> list[tuple[float, float]]:
    """Return both recalls of what ``ask_themes`` says for each question, within the words."""
    origins = _origins(graph)
    settings = replace(settings, max_words=NUM_WORDS)
    recalls = []
    for one in asked:
        facts = graph.ask_themes(one.text, settings=settings).facts
        turns = [origins[fact.provenance[0].episode] for fact in facts]
        recalls.append(_shares(turns, [fact.text for fact in facts], one))
    return recalls


def _origins(graph: MemoryGraph) -> dict[int, int]:
    """Return the number of the turn that each episode is."""
    rows = graph.store.db.execute("SELECT node, origin FROM episodes")
    return {node: int(origin) for node, origin in rows}


def _shares(turns: Sequence[int], texts: Sequence[str], asked: Asked) -> tuple[float, float]:
    """Return the share of the gold turns, and of the gold observations' words."""
    shown = Counter(word for text in texts for word in words(text))
    return (
        len(asked.gold.intersection(turns)) / len(asked.gold),
        (asked.said & shown).total() / max(asked.said.total(), 1),
    )
