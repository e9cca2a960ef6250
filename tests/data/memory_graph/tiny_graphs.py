"""Small graphs drawn by hypothesis, as the arguments of ``TinyView``."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, THESIS, TIME
from turngraph.tests.data.memory_graph.tiny_view import TinyView

OBJECTS = ("ada", "bo", "cy", "di", "eve", "flo")
TEXTS = {"Ada met Bo.": THESIS, "Bo, Cy": THESIS, "di slept": THESIS, "Ada? Di! Eve.": EPISODIC,
         "Bo and CY and Flo": EPISODIC, "2019": TIME}  # fmt: skip
EDGES = {OBJECT: (OBJECT, THESIS, EPISODIC), THESIS: (EPISODIC,), TIME: (THESIS, EPISODIC)}
KINDS = dict.fromkeys(OBJECTS, OBJECT) | TEXTS
COSINES = st.sampled_from((-1.0, -0.5, 0.0, 0.0, 0.5, 0.5, 0.75, 1.0))
VECTORS = st.sampled_from(((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.6, 0.8), (0.8, -0.6)))
POSSIBLE = [
    (source, relation, target)
    for source in KINDS
    for target in KINDS
    if KINDS[target] in EDGES.get(KINDS[source], ())
    for relation in (("likes", "sees") if KINDS[target] == KINDS[source] == OBJECT else ("",))
]


@st.composite
def graphs(draw: st.DrawFn, min_starts: int = 0) -> dict[str, Any]:
    """Draw up to 22 triplets of 12 nodes with many equal similarities, self-loops and parallels."""
    triples = draw(st.lists(st.sampled_from(POSSIBLE), max_size=22, unique=True))
    texts = [f"{s} {r} {t}" if KINDS[t] == OBJECT else t for s, r, t in triples]
    starts = st.lists(st.sampled_from(OBJECTS), min_size=min_starts, max_size=3, unique=True)
    return {
        "triples": triples,
        "starts": draw(starts),
        "types": TEXTS,
        "cosines": {text: draw(COSINES) for text in sorted(set(texts))},
        "vectors": {name: draw(VECTORS) for name in KINDS if name != "2019"},
        "forbidden": draw(st.sampled_from(("", "", "E", "T", "O", "TE"))),
    }


def shuffled(graph: dict[str, Any], seed: int) -> TinyView:
    """Return the same graph with other ids of triplets and nodes."""
    order = np.random.default_rng(seed).permutation(len(graph["triples"]))
    return TinyView(**graph | {"triples": [graph["triples"][i] for i in order]})


def networkx_of(view: TinyView) -> nx.MultiDiGraph:
    """Return a networkx graph of what the view allows: an edge in each direction to walk."""
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(view.ids.values())
    for node in view.ids.values():
        triplets, others = view.around(node)
        graph.add_edges_from((node, int(o), int(t)) for t, o in zip(triplets, others, strict=True))
    return graph
