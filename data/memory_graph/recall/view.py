"""What a traversal sees: one revision, one question, one moment, some node types forbidden.

Nodes and triplets (edges) are numbered by their database ids. Every array of triplets that a
method takes or gives is int64; every similarity is a cosine to the question, larger is closer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np


class QuestionEntity(NamedTuple):
    """An entity of the question and the object that it was linked to.

    Args:
        name: as the question writes it.
        node: the object.
    """

    name: str
    node: int


class View(Protocol):
    """The graph as one question may see it (``tests/data/memory_graph/tiny_view.py`` has a small
    one).

    Args:
        question: as it was asked.
        entities: what it mentions and where that was found, in its order; a name that was linked to
            nothing is not there, and two names may have one object.
        node_types: int8 by node id (``types.OBJECT`` and so on), -1 where there is no node.
    """

    question: str
    entities: tuple[QuestionEntity, ...]
    node_types: np.ndarray

    @property
    def question_nodes(self) -> np.ndarray:
        """The linked objects, int64, each once, in the question's order."""

    def around(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Every allowed triplet at a node, and the node at its other end.

        A triplet is allowed if it holds at the moment and the other node's type is not forbidden;
        linked objects never are (traversals start and end there).
        Walked undirected; in the order of triplet ids; no triplet twice, a self-loop once (its
        other end is the node).
        """

    def around_all(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``around`` of many nodes at once: triplets, their ends in ``nodes``, their other ends.

        In the order of ``nodes``, then of triplet ids. A triplet between two of the nodes comes
        once for each. Much faster than one call a node.
        """

    def is_hub(self, nodes: np.ndarray) -> np.ndarray:
        """Of which nodes ``around_all`` is fastest alone, bool [k]: what is kept is not copied."""

    def facts_around(self, triplets: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``fact_keys`` and ``rounded(similarity)`` of the first two arrays of ``around_all``.

        Much faster than these for a hub; its facts but the closest are less than 0.005 off there.
        """

    def similarity(self, triplets: np.ndarray) -> np.ndarray:
        """Cosine between each triplet and the question, float32; 0 for a text without words."""

    def closeness(self, keys: np.ndarray) -> np.ndarray:
        """Cosine between each fact and the question, by its key; as ``similarity``."""

    def types(self, triplets: np.ndarray) -> np.ndarray:
        """``types.SIMPLE`` and so on of each triplet, int8."""

    def ends(self, triplets: np.ndarray) -> np.ndarray:
        """Source and target of each triplet as it is stored, int64 [k, 2]."""

    def fact_keys(self, triplets: np.ndarray) -> np.ndarray:
        """The fact that each triplet reads as: 2 * id + 1 if simple, else 2 * its target."""

    def node_vectors(self, nodes: np.ndarray) -> np.ndarray:
        """Unit vectors of objects' names and of theses' and episodes' texts, float32 [k, D].

        Zeros for times, which have none.
        """

    def question_vector(self) -> np.ndarray:
        """The question's unit vector, float32 [D]."""

    def text(self, triplet: int) -> str:
        """What a triplet reads as, to break ties by content."""

    def fact_text(self, key: int) -> str:
        """What a fact reads as, by its key."""

    def names(self, nodes: Iterable[int]) -> list[str]:
        """The text of each node: an object's name, a thesis, an episode, an ISO time."""

    def mentions(self, keys: np.ndarray, name: str) -> np.ndarray:
        """Whether each fact's text has the words of a name, whole, one after the other; bool [k].

        Case, accents and Unicode form are folded (``data.retrieve.words``). Takes fact keys.
        """

    def nearest(self, k: int) -> np.ndarray:
        """Keys of the ``k`` facts closest to the question that hold and are not forbidden.

        Best first, ties by key. Needs no triplet: a thesis that mentions nothing is found too.
        """

    def nearest_by_words(self, k: int, node_type: int) -> tuple[np.ndarray, np.ndarray]:
        """At most ``k`` nodes of a type by BM25 of their texts for the question, and that.

        Best first, ties by id; only such as have one of its words (stop words apart), hold, and are
        not forbidden. int64 [k], float64 [k].
        """

    def beside(self, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Episodes, and what was remembered right before or after each from the same source.

        Two int64 arrays, an episode up to twice in the first; those without a source have none.
        """


def apart(view: View, nodes: np.ndarray) -> list[np.ndarray]:
    """Nodes in groups that are looked at fastest together: each hub alone, all others at once."""
    hubs = view.is_hub(nodes)
    groups = [nodes[hubs][i : i + 1] for i in range(np.count_nonzero(hubs))]
    return [nodes[~hubs], *groups] if len(groups) < len(nodes) else groups
