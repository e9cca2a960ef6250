"""Measures which passages the evidence memory brings into a prompt, and which it displaces.

``evidence_recall --memory`` prints the tables. The rows vary what is remembered of earlier turns,
by what it is ordered, and how much of E_t it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turngraph.benchmarks.quality.pool_rankings import Pool, PoolRankings
from turngraph.benchmarks.study.hits import H_AT_1_AND_5, read_hits
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.evidence_memory import EvidenceMemory
from turngraph.data.retrieval.reciprocal_ranks import fuse_retrieved
from turngraph.data.scoring.score import bootstrap
from turngraph.data.types import Answer, Interaction, Query, Retrieved, weighted_query

NUM_DRAWS = 5
"""Random memories, whose mean is given."""
OTHER_WEIGHT = 0.4
"""Weight of old turns where only the memory's query is weighted."""


@dataclass(frozen=True)
class Asked:
    """A question of a conversation, with what was said before.

    Args:
        conversation, turn, turn_id: id of the conversation, index and id of the turn.
        pool: its passages.
        question, answers: the question and its gold answers.
        earlier: the gold answers of all earlier turns.
        interaction: the finished turns.
        q_t: Q_t, or its turns with their weights.
    """

    conversation: str
    turn: int
    turn_id: str
    pool: Pool
    question: str
    answers: tuple[Answer, ...]
    earlier: tuple[Answer, ...]
    interaction: Interaction
    q_t: Query


@dataclass(frozen=True)
class MemoryRow:
    """A way to remember evidence.

    Args:
        name: what is printed.
        order: by vectors, as ``evidence.memory: rerank``; by reciprocal ranks of these and BM25+;
            or random.
        by: the query that orders: Q_t as E_t has it, Q_t with old turns weighted 0.4, or the
            question.
        share: fraction of E_t that is replaced.
        remembers: what a turn adds: the top passages; those in the prompt; those of the top that
            hold the turn's answer; or the whole pool, from which a memory cannot choose.
    """

    name: str
    order: Literal["vectors", "rrf", "random"] = "vectors"
    by: Literal["q_t", "weighted", "question"] = "q_t"
    share: float = 1 / 3
    remembers: Literal["top", "prompt", "answers", "pool"] = "top"


NONE = "none"
ROWS = (
    MemoryRow(NONE, share=0.0),
    MemoryRow("random", "random"),
    MemoryRow("random, a sixth", "random", share=1 / 6),
    MemoryRow("rerank"),
    MemoryRow("rerank, a sixth", share=1 / 6),
    MemoryRow("rerank by weighted turns", by="weighted"),
    MemoryRow("rerank by the question", by="question"),
    MemoryRow("rerank by the question, a sixth", by="question", share=1 / 6),
    MemoryRow("RRF with BM25+", "rrf"),
    MemoryRow("RRF with BM25+, a sixth", "rrf", share=1 / 6),
    MemoryRow("RRF with BM25+ by the question", "rrf", by="question"),
    MemoryRow("rerank, of prompts", remembers="prompt"),
    MemoryRow("rerank, of answers", remembers="answers"),
    MemoryRow("rerank, of the whole pool", remembers="pool"),
)


class FusedMemory(EvidenceMemory):
    """Evidence memory that is ordered by reciprocal ranks of sentence vectors and BM25+."""

    def _order(self, candidates: list[Retrieved], query: Query) -> list[Retrieved]:
        if not candidates:
            return []
        similar = super()._order(candidates, query)
        scores = EvidenceIndex([c.evidence for c in candidates]).query_scores(query)
        worded = [candidates[i] for i in np.argsort(-scores, kind="stable")]
        return fuse_retrieved([similar, worded], len(candidates))


@dataclass(frozen=True)
class Remembered:
    """A question with the prompt's passages as a memory makes them; means over random draws.

    Args:
        asked: the question.
        values: whether the answer is in the prompt; whether it is in M_t; then of the passages
            brought, and of those displaced: number, those that hold the answer, and those that
            hold only an earlier answer.
        first: the values of the first draw.
    """

    asked: Asked
    values: np.ndarray
    first: np.ndarray


def remember(
    row: MemoryRow,
    asked: Sequence[Asked],
    wanted: set[int],
    rankings: PoolRankings,
    retriever: str = "bm25",
) -> list[Remembered]:
    """Return what a memory makes of the wanted turns of a conversation.

    Args:
        row: the memory.
        asked: the turns from the first to the last that is wanted.
        wanted: indices of turns.
        rankings: rankings of their pools.
        retriever: what ranks E_t.
    """
    draws = range(NUM_DRAWS if row.order == "random" else 1)
    drawn = [_remember_once(row, asked, wanted, rankings, retriever, draw) for draw in draws]
    return [
        Remembered(first.asked, np.mean([one.values for one in same], axis=0), first.values)
        for first, *rest in zip(*drawn, strict=True)
        for same in [[first, *rest]]
    ]


def _remember_once(
    row: MemoryRow,
    asked: Sequence[Asked],
    wanted: set[int],
    rankings: PoolRankings,
    retriever: str,
    draw: int,
) -> list[Remembered]:
    kind = FusedMemory if row.order == "rrf" else EvidenceMemory
    mode: Literal["random", "rerank"] = "random" if row.order == "random" else "rerank"
    memory = kind(mode, row.share, rankings.embed, f"{draw}/{asked[0].conversation}")
    found: list[Remembered] = []
    stored: set[str] = set()
    for one in asked:
        order = rankings.order(retriever, one.pool, one.q_t)
        place = {id(passage): i for i, passage in enumerate(one.pool)}
        sizes = rankings.sizes(one.pool)
        top = [Retrieved(one.pool[i], 0.0, one.turn) for i in order[: rankings.top_k]]
        kept = top[: rankings.num_in_prompt(one.pool, order)]

        def places(items: Sequence[Retrieved], place: dict[int, int] = place) -> list[int]:
            return [place[id(item.evidence)] for item in items]

        def fits(
            items: list[Retrieved],
            sizes: np.ndarray = sizes,
            place: dict[int, int] = place,
        ) -> bool:
            return int(sizes[[place[id(i.evidence)] for i in items]].sum()) <= rankings.max_nodes

        holds = rankings.holds(one.pool, one.answers)
        if one.turn in wanted:
            merged = places(memory.merge(kept, query_of(row, one), fits))
            old = rankings.holds(one.pool, one.earlier) & ~holds
            known = [i for i, passage in enumerate(one.pool) if passage.text in stored]
            values = [int(holds[merged].any()), int(holds[known].any())]
            before = places(kept)
            for changed in (set(merged) - set(before), set(before) - set(merged)):
                rows = sorted(changed)
                values += [len(rows), int(holds[rows].sum()), int(old[rows].sum())]
            found.append(Remembered(one, (counted := np.array(values, float)), counted))
        new = added(row, one, top, kept, holds[places(top)])
        memory.add(new)
        stored |= {item.evidence.text for item in new}
    return found


def added(
    row: MemoryRow,
    asked: Asked,
    top: Sequence[Retrieved],
    kept: Sequence[Retrieved],
    holds: np.ndarray,
) -> list[Retrieved]:
    """Return the passages that a turn adds to the memory.

    Args:
        row: the memory.
        asked: the turn.
        top: its E_t before the budget.
        kept: the first ones, those in its prompt.
        holds: whether the passages of ``top`` hold the turn's answer.
    """
    if row.remembers == "pool":
        return [Retrieved(passage, 0.0, asked.turn) for passage in asked.pool]
    if row.remembers == "answers":
        return [item for item, is_in in zip(top, holds, strict=True) if is_in]
    return list(kept if row.remembers == "prompt" else top)


def query_of(row: MemoryRow, asked: Asked) -> Query:
    """Return the query that orders a memory."""
    if row.by == "question":
        return asked.question
    if row.by == "weighted":
        return weighted_query(asked.interaction, asked.question, OTHER_WEIGHT)
    return asked.q_t


def print_memory(rows: Mapping[str, Sequence[Remembered]], clusters: Sequence[str]) -> None:
    """Print what each memory brings and displaces, of all questions and by turn, in percent."""
    plain = np.array([one.values[0] for one in rows[NONE]])
    later = np.array([one.asked.turn > 0 for one in rows[NONE]])
    heads = ["memory", "answer in the prompt", "to none", "brought", "lost"]
    heads += ["in M_t, not in the prompt without it"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, found in rows.items():
        values = np.array([one.values for one in found])
        [gain] = bootstrap(100 * (values[:, :1] - plain[:, None]), clusters)
        cells = [f"{100 * values[:, 0].mean():.1f}"]
        cells += [f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]", *changes(values, plain)]
        print(f"| {' | '.join([name, *cells])} |")
    heads = ["memory, turns after the first", "passages brought", "with the answer, %"]
    heads += ["with an earlier answer alone, %", "displaced: with the answer, %"]
    heads += ["with an earlier answer alone, %"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, found in rows.items():
        num, *shares = passages_of(np.array([one.values for one in found])[later])
        if name != NONE:
            print(f"| {' | '.join([name, f'{num:.2f}', *(f'{s:.1f}' for s in shares)])} |")
    print_turns(rows, plain)


def changes(values: np.ndarray, plain: np.ndarray) -> list[str]:
    """Return the shares of answers that a memory brings, loses and could bring, in percent."""
    hits, in_memory = values[:, 0], values[:, 1]
    parts = (hits * (1 - plain), (1 - hits) * plain, in_memory * (1 - plain))
    return [f"{100 * part.mean():.1f}" for part in parts]


def passages_of(values: np.ndarray) -> list[float]:
    """Return the number of passages brought a question, and the shares of them and the displaced.

    Args:
        values: as of ``Remembered``, [questions, 8].
    """
    brought, right, old, gone, right_gone, old_gone = values[:, 2:].sum(0)
    shares = [right / max(brought, 1), old / max(brought, 1)]
    shares += [right_gone / max(gone, 1), old_gone / max(gone, 1)]
    return [brought / len(values), *(100 * share for share in shares)]


def print_turns(rows: Mapping[str, Sequence[Remembered]], plain: np.ndarray) -> None:
    """Print what each memory brings and displaces by turn."""
    turns = np.minimum([one.asked.turn for one in rows[NONE]], 3)
    groups = [(turn, turns == turn) for turn in range(4) if (turns == turn).any()]
    heads = ["memory: answer in the prompt (brought, lost, in M_t alone)"]
    heads += [
        f"turn {turn + 1}{' and later' if turn == 3 else ''}, {chosen.sum()} questions"
        for turn, chosen in groups
    ]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, found in rows.items():
        values = np.array([one.values for one in found])
        cells = [
            f"{100 * values[chosen, 0].mean():.1f} "
            f"({', '.join(changes(values[chosen], plain[chosen]))})"
            for _, chosen in groups
        ]
        print(f"| {' | '.join([name, *cells])} |")


def print_hits(rows: Mapping[str, Sequence[Remembered]], path: str) -> None:
    """Print H@1 of a study's rows by whether the answer is in the prompt without memory and with.

    Args:
        rows: memories; the study has ``rerank`` and ``random``, of which the first draw counts.
        path: the study's hits.csv; the mean over the seeds that both rows have is taken.
    """
    study = read_hits([path])
    heads = ["study's rows", "prompts with the answer", "questions", "H@1", "without memory"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, without, memory in STUDY_ROWS:
        seeds = sorted(study[name].keys() & study[without].keys())
        groups: dict[str, list[tuple[float, float]]] = {}
        for plain, one in zip(rows[NONE], rows[memory], strict=True):
            key = one.asked.conversation, one.asked.turn_id
            if key in study[name][seeds[0]]:
                group = GROUPS[bool(plain.first[0]), bool(one.first[0])]
                if one.first[2] == 0:
                    group = "the same passages"
                h_at_1 = [
                    float(np.mean([H_AT_1_AND_5[study[row][seed][key]][0] for seed in seeds]))
                    for row in (name, without)
                ]
                groups.setdefault(group, []).append((h_at_1[0], h_at_1[1]))
        for group, pairs in sorted(groups.items()):
            hits, before = np.mean(pairs, axis=0)
            label = f"{name} / {without}, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
            cells = [label, group, str(len(pairs)), f"{hits:.3f}", f"{before:.3f}"]
            print(f"| {' | '.join(cells)} |")


GROUPS = {
    (True, True): "both, with other passages",
    (True, False): "only that without memory",
    (False, True): "only that with memory",
    (False, False): "neither",
}
STUDY_ROWS = (
    ("text_memory", "text", "rerank"),
    ("graph_memory", "graph", "rerank"),
    ("text_random_memory", "text", "random"),
    ("graph_random_memory", "graph", "random"),
)
"""Row, the same without memory, and its memory."""
