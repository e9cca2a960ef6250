"""Measures the recall of memory graphs in PostgreSQL beside that of SQLite.

    python -m turngraph.benchmarks.memory_graph postgres_recall --data FOLDER --url postgresql://...

A benchmark of ``retrieval`` is remembered by the rules in both databases and asked in each mode.
Beside the modes stand three rankings of the texts by words alone: our BM25 in both databases, and
the server's full-text search (``ts_rank`` and ``ts_rank_cd`` over any word of the question).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from turngraph.benchmarks.memory_graph.embedding_cache import EmbeddingCache
from turngraph.benchmarks.memory_graph.memory_retrieval import EMBEDDER, parser_of
from turngraph.benchmarks.memory_graph.retrieval_data import FILES, Collection, read
from turngraph.benchmarks.memory_graph.retrievers import (
    MIXTURES,
    Ranking,
    episodes_ranking,
    fill,
    mixture_ranking,
)
from turngraph.configs.models import cache_folder, sentence_encoder
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import EPISODIC
from turngraph.data.memory_graph.recall.filter_facts import STOPWORDS
from turngraph.data.memory_graph.recall.traverse_settings import PPR
from turngraph.data.memory_graph.record.place import of_tenant
from turngraph.data.normalise import words
from turngraph.data.outputs import whole_file

Json = dict[str, Any]
COMMAND = ("python", "-m", "turngraph.benchmarks.memory_graph", "postgres_recall")
DEPTHS = (5, 10)
_RANKED = """SELECT origin FROM (SELECT e.origin, {rank}(to_tsvector('simple', n.text), q) AS score,
    n.id FROM nodes n JOIN episodes e ON e.node = n.id,
    to_tsquery('simple', $1) AS q WHERE to_tsvector('simple', n.text) @@ q)
    ORDER BY score DESC, id LIMIT 10"""


def main(argv: Sequence[str]) -> None:
    """Measure, print the table and write the JSON file."""
    parser = parser_of(COMMAND, __doc__)
    add = parser.add_argument
    add("--data", required=True, help="folder with the benchmarks' files, at any depth")
    add("--url", required=True, help="PostgreSQL database; tenants begin with 'recall '")
    add("--benchmark", choices=sorted(FILES), default="musique")
    add("--questions", type=int, help="only the first ones of each collection")
    add("--collections", type=int, help="only the first ones")
    add("--modes", nargs="+", choices=MIXTURES, default=list(MIXTURES), help="of ask")
    add("--embedder", default=EMBEDDER, help="sentence encoder")
    add("--output", help="JSON file")
    args = parser.parse_args(argv)
    rows = measure(args)
    print(markdown(rows))
    if args.output:
        with whole_file(args.output) as file:
            json.dump({"command": [*COMMAND, *argv], "rows": rows}, file, indent=1)


def measure(args: argparse.Namespace) -> Json:
    """Return the recall of each row in each database, at each depth."""
    path = cache_folder() / "embeddings" / f"{args.embedder.replace('/', '--')}.db"
    embed = EmbeddingCache(path, sentence_encoder(args.embedder))
    collections = [
        replace(one, questions=one.questions[: args.questions])
        for one in read(args.benchmark, Path(args.data))[: args.collections]
    ]
    found: Json = {}
    with tempfile.TemporaryDirectory() as folder:
        for database in ("SQLite", "PostgreSQL"):
            graphs = []
            for one in collections:
                url = of_tenant(args.url, f"recall {folder} {one.name}")
                place = Path(folder) / f"{one.name}.db" if database == "SQLite" else url
                graphs.append(fill(one, "rules", place, embed))
            for row, ranking in rankings(
                graphs, collections, embed, args.modes, served=database == "PostgreSQL"
            ).items():
                found.setdefault(row, {})[database] = recalls(ranking, collections)
            for graph in graphs:
                graph.close()
    return found


def rankings(
    graphs: Sequence[MemoryGraph],
    collections: Sequence[Collection],
    embed: Embed,
    modes: Sequence[str],
    served: bool,
) -> dict[str, Ranking]:
    """Return the rankings of all rows in one database; ``served``: by its full-text search too."""
    found = {mode: mixture_ranking(graphs, collections, mode, embed) for mode in modes}
    found["ask_episodes"] = episodes_ranking(graphs, collections, PPR(top_k=DEPTHS[-1]))
    found["words: BM25"] = by_words(graphs, collections, _bm25)
    if served:
        for rank in ("ts_rank", "ts_rank_cd"):

            def full_text(graph: MemoryGraph, terms: Sequence[str], rank: str = rank) -> list[str]:
                query = " | ".join(f"'{term.replace(chr(39), '')}'" for term in terms)
                run = graph.store.db.run  # type: ignore[attr-defined]
                return [origin for (origin,) in run(_RANKED.format(rank=rank), [query])]

            found[f"words: {rank}"] = by_words(graphs, collections, full_text)
    return found


def _bm25(graph: MemoryGraph, terms: Sequence[str]) -> list[str]:
    db = graph.store.db
    nodes = [node for node, _ in db.words.best_nodes(terms, EPISODIC, DEPTHS[-1])]
    sql = "SELECT node, origin FROM episodes WHERE node IN (SELECT value FROM json_each(?))"
    origins = dict(db.execute(sql, (json.dumps(nodes),)))
    return [origins[node] for node in nodes]


def by_words(
    graphs: Sequence[MemoryGraph],
    collections: Sequence[Collection],
    find: Callable[[MemoryGraph, Sequence[str]], list[str]],
) -> Ranking:
    """Rank texts by the words of each question that are no stop words."""
    ranking = Ranking()
    for graph, collection in zip(graphs, collections, strict=True):
        for question in collection.questions:
            terms = [word for word in words(question.text) if word not in STOPWORDS]
            with ranking.timed(), graph.store.reading():
                ranking.episodes.append(find(graph, terms) if terms else [])
    return ranking


def recalls(ranking: Ranking, collections: Sequence[Collection]) -> Json:
    """Return the mean recall at each depth, and the mean milliseconds."""
    golds = [question.gold for collection in collections for question in collection.questions]
    found: Json = {}
    for depth in DEPTHS:
        shares = [
            len(gold.intersection(list(dict.fromkeys(episodes))[:depth])) / len(gold)
            for gold, episodes in zip(golds, ranking.episodes, strict=True)
            if gold
        ]
        found[f"recall@{depth}"] = float(np.mean(shares))
    return found | {"milliseconds": float(np.mean(ranking.milliseconds))}


def markdown(rows: Json) -> str:
    """Return the table."""
    names = [*(f"recall@{depth}" for depth in DEPTHS), "milliseconds"]
    heads = [f"{name}, {database}" for name in names for database in ("SQLite", "PostgreSQL")]
    lines = [f"| row | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for row, found in rows.items():
        cells = [
            "" if database not in found else f"{found[database][name]:.3f}"
            for name in names
            for database in ("SQLite", "PostgreSQL")
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)
