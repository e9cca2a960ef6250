"""Combines the candidate objects of a step's names into clue queries, likeliest first."""

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
    """A text of a step, with one candidate object for each of its names.

    Args:
        rank: sum of the ranks of the text and of the objects; rows are sorted by it.
        labels: the objects' own names, by which rows of equal rank are sorted.
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
        """Whether any of the objects' own names is missing in the text."""
        text = fold(self.text)
        return any(fold(label) not in text for label in self.labels)

    def clue(self, query: str) -> Clue:
        """Return the row as a clue query that starts at its objects, if it has any."""
        start = tuple(map(QuestionEntity, self.names, self.nodes))
        return Clue(query, tuple(dict.fromkeys(start)) or None)


def rows(text: str, rank: int, names: Sequence[tuple[Matched, ...]], most: int) -> Iterator[Row]:
    """Yield combinations of one object for each name of a text, by rising rank.

    So the object of every name varies within the first rows, and a wrong first candidate is in only
    some of them. (The first rows of the product of all candidates would vary only the last names.)

    Args:
        text: the text.
        rank: its rank among the texts of its step, from 0.
        names: for each name with candidates, the objects that it may mean, best first.
        most: maximum number of combinations.
    """

    def row(choice: tuple[int, ...]) -> tuple[Row, tuple[int, ...]]:
        chosen = [matches[i] for matches, i in zip(names, choice, strict=True)]
        return Row(
            rank + sum(choice),
            tuple(one_line(each.label) for each in chosen),
            text,
            tuple(each.entity.node for each in chosen),
            tuple(each.entity.name for each in chosen),
        ), choice

    first = (0,) * len(names)
    queue, queued = [row(first)], {first}
    for _ in range(most):
        if not queue:
            return
        best, choice = heapq.heappop(queue)
        yield best
        for place, matches in enumerate(names):
            further = (*choice[:place], choice[place] + 1, *choice[place + 1 :])
            if further[place] < len(matches) and further not in queued:
                queued.add(further)
                heapq.heappush(queue, row(further))
