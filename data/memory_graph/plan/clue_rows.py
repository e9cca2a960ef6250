"""Combines the objects that the names of a step may mean into clue queries, likeliest first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turngraph.data.memory_graph.extract.replies import one_line
from turngraph.data.memory_graph.recall.link_entities import Matched
from turngraph.data.memory_graph.recall.plan_trace import Clue
from turngraph.data.memory_graph.recall.view import QuestionEntity
from turngraph.data.normalise import fold


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """A text of a step with an object for each of its names.

    Args:
        rank: sum of the ranks of the text and of the objects; the least comes first.
        labels: the objects' own names, by which rows of one rank are ordered.
        text: the text.
        nodes: the objects' node ids.
        names: names as the text spells them.
    """

    rank: int
    labels: tuple[str, ...]
    text: str
    nodes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether the text lacks one of the objects' own names."""
        text = fold(self.text)
        return any(fold(label) not in text for label in self.labels)

    def clue(self, query: str) -> Clue:
        """Return the row as a clue query that starts at its objects, if it has any."""
        start = tuple(map(QuestionEntity, self.names, self.nodes))
        return Clue(query, tuple(dict.fromkeys(start)) or None)


def rows(text: str, rank: int, names: Sequence[tuple[Matched, ...]], most: int) -> Iterator[Row]:
    """Yield a text's first combinations of one object for each name, the least rank first.

    A bad first candidate of a name is thus in some rows only. (The product of all candidates, cut
    to its first rows, would vary the last names only.)

    Args:
        text: the text.
        rank: its rank among the texts of its step, from 0.
        names: for each name the objects that it may mean, best first; names without any left out.
        most: maximum number of combinations.
    """

    def row(choice: tuple[int, ...]) -> tuple[Row, tuple[int, ...]]:
        chosen = [found[i] for found, i in zip(names, choice, strict=True)]
        return Row(
            rank + sum(choice),
            tuple(one_line(each.label) for each in chosen),
            text,
            tuple(each.entity.node for each in chosen),
            tuple(each.entity.name for each in chosen),
        ), choice

    first = (0,) * len(names)
    queue, known = [row(first)], {first}
    for _ in range(most):
        if not queue:
            return
        best, choice = heapq.heappop(queue)
        yield best
        for place, found in enumerate(names):
            further = (*choice[:place], choice[place] + 1, *choice[place + 1 :])
            if further[place] < len(found) and further not in known:
                known.add(further)
                heapq.heappush(queue, row(further))
