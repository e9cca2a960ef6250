"""Turns built examples into flat arrays, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from turngraph.data.examples import Example
from turngraph.data.graph.chain_graph import ChainGraph, Mentions
from turngraph.data.json_fields import Json, Location
from turngraph.data.jsonlines import join_pools, parse_evidence, to_json
from turngraph.data.types import SOURCES, Conversation, Evidence, Retrieved

Arrays = dict[str, np.ndarray]


def pool_positions(conversation: Conversation) -> list[dict[str, int]]:
    """Return for each turn a map from passage id to position in the turn's pool."""
    known: dict[int, dict[str, int]] = {}
    pools = turn_pools(conversation)
    for pool in pools:
        if id(pool) not in known:
            known[id(pool)] = {passage.id: position for position, passage in enumerate(pool)}
    return [known[id(pool)] for pool in pools]


def turn_pools(conversation: Conversation) -> list[tuple[Evidence, ...]]:
    """Return the pool that each turn retrieves from."""
    return [join_pools(conversation.evidence, turn.evidence) for turn in conversation.turns]


def example_row(
    index: int, example: Example, positions: Sequence[dict[str, int]], with_corpus: bool = False
) -> Arrays:
    """Return an example as flat arrays, without what the data file has.

    Args:
        index: index of the conversation.
        example: example to store.
        positions: for each turn, passage id -> position in the pool.
        with_corpus: passages may be of a corpus, so that all are stored in full.
    """
    graph, evidence = example.graph, example.evidence

    def stored(item: Retrieved) -> bool:
        return with_corpus or item.evidence.source == "memory"  # not in a pool

    stored_passages = [to_json(item.evidence) for item in evidence if stored(item)]
    row = {
        "index": [
            *(index, example.turn, graph.num_entity_edges, graph.num_hidden),
            -1 if example.dialogue_start is None else example.dialogue_start,
        ],
        "prefix_ids": example.prefix_ids,
        "node_ids": graph.node_ids,
        "edge_index": graph.edge_index.ravel(),
        "edge_types": graph.edge_types,
        "mention_entities": [] if graph.mentions is None else graph.mentions.entities,
        "mention_nodes": [] if graph.mentions is None else graph.mentions.nodes,
        "mention_sizes": [] if graph.mentions is None else graph.mentions.sizes,
        "mention_answers": [] if graph.mentions is None else graph.mentions.answers.ravel(),
        "suffix_ids": example.suffix_ids,
        "target_ids": example.target_ids,
        "from_turn": [item.from_turn for item in evidence],
        "passage": [
            -1 if stored(item) else positions[item.from_turn][item.evidence.id] for item in evidence
        ],
        "stored_passages": list(json.dumps(stored_passages).encode()),
        "answer_sources": [SOURCES.index(source) for source in example.answer_sources],
    }
    arrays = {name: np.asarray(values, np.int32) for name, values in row.items()}
    return arrays | {"score": np.array([item.score for item in evidence], np.float64)}


def pack(rows: Sequence[Arrays]) -> Arrays:
    """Concatenate rows of examples into one flat array for each name, with their sizes."""
    arrays: Arrays = {}
    for name in rows[0]:
        arrays[name] = np.concatenate([row[name] for row in rows])
        arrays[f"{name}.sizes"] = np.array([len(row[name]) for row in rows], np.int64)
    return arrays


def unpack(arrays: Arrays, conversations: Sequence[Conversation]) -> list[Example]:
    """Restore examples from packed rows.

    Args:
        arrays: result of ``pack``.
        conversations: conversations of the same data file.
    """
    parts = {name: _parts(arrays, name) for name in arrays if f"{name}.sizes" in arrays}
    examples, index, pools = [], -1, []
    for row in zip(*parts.values(), strict=True):
        by_name = dict(zip(parts, row, strict=True))
        if index != by_name["index"][0]:
            index = int(by_name["index"][0])
            pools = turn_pools(conversations[index])
        items = zip(
            *(by_name[name].tolist() for name in ("from_turn", "passage", "score")), strict=True
        )
        turn = int(by_name["index"][1])
        in_full = iter(json.loads(bytes(by_name["stored_passages"].tolist())))
        example = Example(
            conversation=conversations[index],
            turn=turn,
            prefix_ids=by_name["prefix_ids"].tolist(),
            graph=_graph(by_name),
            suffix_ids=by_name["suffix_ids"].tolist(),
            target_ids=by_name["target_ids"].tolist(),
            evidence=[
                Retrieved(_passage(pools[turn], passage, in_full), score, turn)
                for turn, passage, score in items
            ],
            answer_sources=[SOURCES[code] for code in by_name["answer_sources"]],
            dialogue_start=start if (start := int(by_name["index"][4])) >= 0 else None,
        )
        examples.append(example)
    return examples


def _graph(part: Arrays) -> ChainGraph:
    """Return the graph of a row."""
    entities, nodes, sizes, answers = (
        part[f"mention_{name}"] for name in ("entities", "nodes", "sizes", "answers")
    )
    mentions = Mentions(entities, nodes, sizes, answers.reshape(2, -1))
    return ChainGraph(
        part["node_ids"],
        part["edge_index"].reshape(2, -1),
        int(part["index"][2]),
        part["edge_types"],
        int(part["index"][3]),
        mentions if len(mentions.sizes) else None,
    )


def _passage(pool: Sequence[Evidence], position: int, stored: Iterator[Json]) -> Evidence:
    """Return a passage of a pool, or the next one that is stored in full."""
    return parse_evidence(next(stored), Location("cache"), "") if position < 0 else pool[position]


def _parts(arrays: Arrays, name: str) -> list[np.ndarray]:
    """Split a flat array into each example's part, as 64-bit numbers."""
    wide = np.float64 if arrays[name].dtype.kind == "f" else np.int64
    return np.split(arrays[name].astype(wide), np.cumsum(arrays[f"{name}.sizes"])[:-1])
