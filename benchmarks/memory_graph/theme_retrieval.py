"""Measures themes: retrieval of passages, questions about a theme, planted topics, scale.

    python -m turngraph.benchmarks.memory_graph themes --data FOLDER

- ``passages``: recall on MuSiQue-100, HotpotQA-500 and LoCoMo of best-first search over passages,
  their utility questions by rules and themes, and its ablations.
- ``spoken``: LoCoMo's observations: what has X said about Y over time, in 400 words.
- ``planted``: passages of many pages, titles cut, as one source: purity and NMI by page.
- ``scale``: made-up vectors: seconds to build, peak memory, milliseconds of a question.

Prints Markdown tables. The first run computes vectors, which are kept in the user's cache folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from turngraph.benchmarks.memory_graph.embedding_cache import EmbeddingCache
from turngraph.benchmarks.memory_graph.memory_retrieval import EMBEDDER, MAIN_DEPTH, score
from turngraph.benchmarks.memory_graph.retrieval_data import FILES, Collection, read
from turngraph.benchmarks.memory_graph.retrievers import Ranking, flat_rankings
from turngraph.benchmarks.memory_graph.spoken_themes import measure_spoken
from turngraph.benchmarks.memory_graph.theme_scale import (
    measure_more,
    measure_planted,
    measure_scale,
)
from turngraph.configs.models import cache_folder, sentence_encoder
from turngraph.data.eigen.eigen_index import WORD_WEIGHT, EigenIndex
from turngraph.data.eigen.search import SEARCH, SearchSettings
from turngraph.data.eigen.themes import DEFAULT, ThemeSettings
from turngraph.data.eigen.utility_questions import FUNCTION_WORDS, NUM_QUESTIONS, Stated
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.normalise import words as split
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.types import Entity, Evidence

PARTS = ("passages", "spoken", "planted", "scale", "more")
WORDS, SHARED, GAMMAS = (0.2, 0.4, 0.8), (0.1, 0.2, 0.4), (0.0, 0.7)
GRIDS = {
    "eigen, words and gamma by the other half": list(product(WORDS, (0.0,), GAMMAS)),
    "eigen, shared names, too": list(product(WORDS, SHARED, GAMMAS)),
}
"""Weights of words, of shared names and gamma; one setting is chosen on the other half."""
BESIDE, NUM_BEST = "no edges but to the turns beside, weights by the other half", 10
"""Row of dialogues, and the number of the best turns that raise the turns beside them."""


def main(argv: Sequence[str]) -> None:
    """Measure the parts that are asked for, and print their tables."""
    args = parse(argv)
    if "scale" in args.parts:
        print(measure_scale(args.chunks, args.seed), flush=True)
    if "more" in args.parts:
        print(measure_more(args.chunks, args.seed), flush=True)
    path = cache_folder() / "embeddings" / f"{EMBEDDER.replace('/', '--')}.db"
    embed = EmbeddingCache(path, sentence_encoder(EMBEDDER))
    if "planted" in args.parts and args.pages:
        print(measure_planted(Path(args.pages), embed, args.seed), flush=True)
    if "spoken" in args.parts:
        print(measure_spoken(Path(args.data), embed, args.seed), flush=True)
    for name in args.benchmarks if "passages" in args.parts else ():
        print(measure_passages(name, Path(args.data), embed, args.questions, args.seed), flush=True)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m turngraph.benchmarks.memory_graph themes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", required=True, help="folder with the benchmarks' files, at any depth")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--benchmarks", nargs="+", choices=sorted(FILES), default=list(FILES))
    add("--questions", type=int, nargs="+", default=[0, 1, 3, 5], help="utility questions a chunk")
    add("--pages", help="JSON Lines of conversations over pages, for planted")
    add("--chunks", type=int, nargs="+", default=[10_000, 100_000], help="for scale and more")
    add("--seed", type=int, default=0, help="random seed")
    return parser.parse_args(argv)


def measure_passages(
    name: str, folder: Path, embed: Embed, numbers: Sequence[int], seed: int
) -> str:
    """Return the table of one benchmark: flat retrieval, eigen, and its ablations.

    Args:
        name: a key of ``FILES``.
        folder: folder with the benchmarks' files.
        embed: the sentence encoder.
        numbers: utility questions a chunk; with the largest one, questions are shuffled too.
        seed: random seed of shuffling.
    """
    collections = read(name, folder)
    made = [_with_statements(one) for one in collections]
    rows = {row: [ranking] for row, ranking in flat_rankings(collections, embed).items()}
    baselines = list(rows)
    for number in numbers:
        indexes = [_index(*one, embed, number) for one in made]
        rows[f"eigen, m = {number}"] = [_ranked(indexes, collections)]
        if number and number == max(numbers):
            for index in indexes:
                _shuffle_questions(index, seed)
            rows[f"eigen, m = {number}, questions shuffled"] = [_ranked(indexes, collections)]
    m = 0
    indexes = [_index(*one, embed, m) for one in made]
    for row, settings in {
        "gamma 0": SearchSettings(gamma=0),
        "gamma 0.9": SearchSettings(gamma=0.9),
        "start at 1": SearchSettings(num_starts=1),
    }.items():
        rows[f"eigen, m = {m}, {row}"] = [_ranked(indexes, collections, settings)]
    rows[f"eigen, m = {m}, no shared names"] = [
        _weighted(indexes, collections, WORD_WEIGHT, 0.0, SEARCH.gamma)
    ]
    for row, grid in GRIDS.items():
        rows[row] = [_weighted(indexes, collections, *one) for one in grid]
    if collections[0].dated is not None:
        rows[BESIDE] = [_beside(indexes, collections, *one) for one in product(WORDS, SHARED)]
    rows[f"eigen, m = {m}, no words"] = [
        _ranked([_index(*one, embed, m, word_weight=0) for one in made], collections)
    ]
    rows[f"eigen, m = {m}, no themes"] = [
        _ranked([_index(*one, embed, m, themes=None) for one in made], collections)
    ]
    complete = ThemeSettings(graph="complete", rotation="none")
    rows[f"eigen, m = {m}, the paper's complete graph, no rotation"] = [
        _ranked([_index(*one, embed, m, themes=complete) for one in made], collections)
    ]
    questions = [question for collection in collections for question in collection.questions]
    depth = MAIN_DEPTH[name]
    report = score(rows, questions, baselines, depth, seed)
    lines = [
        f"### {name}, {report['questions']} questions",
        "",
        f"| | recall@{depth} | minus {report['baseline']} | ms |",
        "|---|---|---|---|",
    ]
    for row, found in report["rows"].items():
        recall, gain = found["recall"][depth], found["gain"]
        cells = f"{interval(recall)} | {interval(gain, '+')} | {found['milliseconds']:.1f} |"
        lines.append(f"| {row} | {cells}")
    for row, weights in (GRIDS | {BESIDE: list(product(WORDS, SHARED))}).items():
        if row in rows:
            chosen = [weights[one] for one in report["rows"][row]["chosen"]]
            lines += ["", f"{row}: {chosen}"]
    return "\n".join(lines) + "\n"


def interval(estimate: Sequence[float], sign: str = "") -> str:
    """Return a mean with its 95 % interval."""
    mean, low, high = estimate
    return f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def _with_statements(
    collection: Collection,
) -> tuple[list[Evidence], dict[str, list[Stated]]]:
    """Return a collection's episodes as passages, and what the rules read in each text."""
    pool, stated = [], {}
    extracted = RulesExtractor().extract(collection.episodes)
    for number, (episode, one) in enumerate(zip(collection.episodes, extracted, strict=True)):
        names = dict.fromkeys(name for thesis in one.theses for name in thesis.entities)
        entities = tuple(Entity(name, name) for name in names)
        pool.append(Evidence(str(number), episode.text, "text", entities))
        whole = (0, len(episode.text))
        stated[episode.text] = [
            Stated(t.subject, t.relation, t.object, t.valid_from, t.span or whole)
            for t in one.triplets
        ]
    return pool, stated


def _index(
    pool: Sequence[Evidence],
    stated: dict[str, list[Stated]],
    embed: Embed,
    number: int = NUM_QUESTIONS,
    themes: ThemeSettings | None = DEFAULT,
    word_weight: float = WORD_WEIGHT,
) -> EigenIndex:
    return EigenIndex(
        pool,
        embed,
        num_questions=number,
        themes=themes,
        word_weight=word_weight,
        read=lambda text: stated[text],
    )


def _shuffle_questions(index: EigenIndex, seed: int) -> None:
    """Give the questions of each passage to another: the control for what they contribute."""
    moved = np.random.default_rng(seed).permutation(len(index.chunks))
    index.change_owners(moved[index.owners])


def _weighted(
    indexes: Sequence[EigenIndex],
    collections: Sequence[Collection],
    words: float,
    shared: float,
    gamma: float,
) -> Ranking:
    """Rank with other weights of words and of shared names, and another gamma."""
    for index in indexes:
        index.word_weight, index.shared_weight = words, shared
    return _ranked(indexes, collections, SearchSettings(gamma=gamma))


def _beside(
    indexes: Sequence[EigenIndex], collections: Sequence[Collection], words: float, share: float
) -> Ranking:
    """Rank turns by cosine and words; the best give a share of their score to those beside."""
    ranking = Ranking()
    for index, collection in zip(indexes, collections, strict=True):
        by_words = EvidenceIndex(index.pool)
        vectors = index.embed([one.text for one in index.pool])
        for question in collection.questions:
            vector = index.embed([question.text])[0]
            with ranking.timed():
                terms = [one for one in split(question.text) if one not in FUNCTION_WORDS]
                worded = by_words.scores(" ".join(terms) or question.text)
                own = vectors @ vector + words * worded / (worded.max() or 1.0)
                gained = np.zeros(len(own) + 2)  # a place before the first turn and after the last
                for best in np.argsort(-own, kind="stable")[:NUM_BEST].tolist():
                    gained[[best, best + 2]] = np.maximum(gained[[best, best + 2]], own[best])
                order = np.argsort(-(own + share * gained[1:-1]), kind="stable")
            ranking.episodes.append([index.pool[i].id for i in order[:10].tolist()])
            ranking.closeness.append(0.0)
    return ranking


def _ranked(
    indexes: Sequence[EigenIndex],
    collections: Sequence[Collection],
    settings: SearchSettings = SEARCH,
) -> Ranking:
    ranking = Ranking()
    for index, collection in zip(indexes, collections, strict=True):
        index.settings = settings
        for question in collection.questions:
            index.embed([question.text])  # cached, so that it is not timed
            with ranking.timed():
                order, _ = index.search(question.text)
            ranking.episodes.append([index.pool[int(i)].id for i in index.chunks[order[:10]]])
            ranking.closeness.append(0.0)
    return ranking
