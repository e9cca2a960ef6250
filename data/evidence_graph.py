"""Builds the evidence graph of a turn: token chains, entity edges and question nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turngraph.configs.schema import EvidenceConfig
from turngraph.data.graph.chain_graph import (
    ChainGraph,
    CutEdges,
    TokenisedPassage,
    chain_graph,
    cut_edges,
    node_starts,
    span_nodes,
)
from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.graph.graph_edges import more_edges
from turngraph.data.graph.mentions import find_mentions
from turngraph.data.graph.rewire import shuffle_entity_edges
from turngraph.data.types import Evidence

LEFT_OUT: dict[str, CutEdges] = {"no_entity": "entity", "none": "all"}
"""The edges to cut for a value of ``evidence.edges``."""


def evidence_graph(
    passages: Sequence[Evidence],
    tokens: Sequence[TokenisedPassage],
    config: EvidenceConfig,
    *,
    question: tuple[str, TokenisedPassage] | None = None,
    cut: CutEdges = "nothing",
    entities_of: Sequence[Evidence] | None = None,
) -> ChainGraph:
    """Build the graph of passages.

    Args:
        passages: the evidence, best first, with the texts that were tokenised.
        tokens: tokens of each passage.
        config: config, which chooses the chains and edges of the graph.
        question: text and tokens of question nodes; None: the graph has none.
        cut: edges to remove, or ``shuffle`` to rewire them, as a control.
        entities_of: the passages as they were retrieved, to record which nodes mention which of
            their entities; None: this is not recorded.
    """
    texts, all_tokens, num_hidden = list(passages), list(tokens), 0
    if question is not None:
        texts.append(Evidence("question", question[0], "text"))
        all_tokens.append(question[1])
        num_hidden = len(question[1].ids)
    spans = entity_spans(texts)
    has_question = question is not None
    is_rich = config.graph == "reader"
    more = more_edges(texts, all_tokens, spans, with_tables=is_rich, with_question=has_question)
    if has_question:
        spans[-1] = []  # ``more`` has the question's edges
    graph = chain_graph(
        all_tokens, spans, both_ways=is_rich, more_edges=more, num_hidden=num_hidden
    )
    starts = node_starts(all_tokens)
    if config.edges in LEFT_OUT:
        graph = cut_edges(graph, LEFT_OUT[config.edges])
    if "shuffle" in (cut, config.edges.removesuffix("d")):
        graph = shuffle_entity_edges(graph, starts)
    else:
        graph = cut_edges(graph, cut)
    if entities_of is None:
        return graph
    nodes = span_nodes(all_tokens, spans, starts)
    sizes = [len(passage.ids) for passage in all_tokens] + [0] * (not has_question)
    return replace(graph, mentions=find_mentions(entities_of, nodes, sizes))
