"""Defines ``View``, the interface between the graph and a traversal, for one question.

A view shows one revision of the graph at one moment. Nodes and triplets (edges) are given by their
database ids. Every array of triplets that a method takes or returns is int64. Every similarity is a
cosine to the question; larger is closer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from turngraph.data.memory_graph.recall.traverse_settings import Eigen


class QuestionEntity(NamedTuple):
    """An entity of the question and the object that it was linked to.

    Args:
        name: name, as the question spells it.
        node: node id of the object.
    """

    name: str
    node: int


class View(Protocol):
    """The part of the graph that one question may use.

    ``tests/data/memory_graph/tiny_view.py`` has a small implementation.

    Args:
        question: the question, as the user wrote it.
        entities: the question's linked entities, in its order; names without an object are left
            out, and two names may be linked to one object.
    """

    question: str
    entities: tuple[QuestionEntity, ...]

    @property
    def node_types(self) -> np.ndarray:
        """Type of each node by id, int8 (``OBJECT`` and so on); -1 where there is no node."""

    @property
    def question_nodes(self) -> np.ndarray:
        """The linked objects, int64, each once, in the question's order."""

    def around(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Return every allowed triplet at a node, and the node at its other end.

        A triplet is allowed if it holds at the moment and the other node's type is not forbidden;
        linked objects are always allowed (traversals start and end there). Edges are undirected.
        Triplets are in the order of their ids, each once, a self-loop too (its other end is the
        node).
        """

    def around_all(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ``around`` of many nodes: triplets, their ends in ``nodes``, their other ends.

        The rows are in the order of ``nodes``, then of triplet ids. A triplet between two of the
        nodes appears once for each. This is much faster than one call per node.
        """

    def is_hub(self, nodes: np.ndarray) -> np.ndarray:
        """Return which nodes are hubs, bool [k]; ``around_all`` of one hub alone copies nothing."""

    def facts_around(self, triplets: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``fact_keys`` and ``rounded(similarity)`` of triplets from ``around_all``.

        For a hub, this is much faster than both calls, and all but the closest cosines are
        approximate, with an error below 0.005.

        Args:
            triplets, ends: the first two arrays of ``around_all``.
        """

    def similarity(self, triplets: np.ndarray) -> np.ndarray:
        """Return each triplet's cosine to the question, float32; 0 for a text without words."""

    def closeness(self, keys: np.ndarray) -> np.ndarray:
        """Return each fact's cosine to the question by its key, as ``similarity`` does."""

    def types(self, triplets: np.ndarray) -> np.ndarray:
        """Return the edge type of each triplet (``SIMPLE`` and so on), int8."""

    def ends(self, triplets: np.ndarray) -> np.ndarray:
        """Return source and target of each triplet as it is stored, int64 [k, 2]."""

    def fact_keys(self, triplets: np.ndarray) -> np.ndarray:
        """Return each triplet's fact key: 2 * id + 1 if it is simple, else 2 * its target."""

    def node_vectors(self, nodes: np.ndarray) -> np.ndarray:
        """Return unit vectors of objects' names, theses' and episodes' texts, float32 [k, D].

        Times have zeros.
        """

    def text(self, triplet: int) -> str:
        """Return the text of a triplet's fact, to break ties by content."""

    def fact_text(self, key: int) -> str:
        """Return the text of a fact by its key."""

    def names(self, nodes: Iterable[int]) -> list[str]:
        """Return the text of each node: an object's name, a thesis, an episode, an ISO time."""

    def mentions(self, keys: np.ndarray, name: str) -> np.ndarray:
        """Return whether each fact contains the whole words of a name in sequence; bool [k].

        Case, accents and Unicode form are folded (``data.normalise.words``).

        Args:
            keys: keys of the facts.
            name: name, as the question or the graph spells it.
        """

    def nearest(self, k: int) -> np.ndarray:
        """Return the keys of the ``k`` closest facts that hold and are not forbidden.

        Best first, ties by key. Facts need no triplet: a thesis without entities is found too.
        """

    def nearest_of(self, k: int, *, episodes: bool) -> np.ndarray:
        """Return the keys of the ``k`` closest episodes, or other facts, as ``nearest`` does."""

    def nearest_by_words(self, k: int, node_type: int) -> tuple[np.ndarray, np.ndarray]:
        """Return at most ``k`` nodes of a type with the highest BM25 for the question, and BM25.

        Best first, ties by id. Each node has a word of the question (stop words apart), holds, and
        is not forbidden. int64 [k], float64 [k].
        """

    def by_themes(self, settings: Eigen) -> np.ndarray:
        """Return the keys of the facts from a best-first search over the themes, best first, int64.

        The search visits chunks and themes; a chunk gives the facts that it states, a theme those
        that it quotes. The facts hold, are not forbidden, and are returned once each. In a graph
        without themes the closest facts are returned.
        """

    def adjacent(self, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of an episode and the one right before or after it from the same source.

        Two int64 arrays. The first holds an episode up to twice; an episode without a source has no
        pair.
        """


def apart(view: View, nodes: np.ndarray) -> list[np.ndarray]:
    """Split nodes into the groups that are read fastest: each hub alone, all others together."""
    hubs = view.is_hub(nodes)
    groups = [nodes[hubs][i : i + 1] for i in range(np.count_nonzero(hubs))]
    return [nodes[~hubs], *groups] if len(groups) < len(nodes) else groups
