"""Talks about a few topics, and what a graph's themes are, told without ids."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.record.theme_rows import read_themes
from turngraph.data.memory_graph.upkeep.theme_questions import Lm
from turngraph.tests.data.memory_graph.hashing import Hashing

TOPICS = {
    "Anna": "roses tulips soil compost bees tomatoes weeds".split(),
    "Bob": "sails harbour anchor waves rudder storm islands".split(),
    "Carl": "violin concert orchestra melody choir piano jazz".split(),
}
SECRET = "Zorkmid"
Content = list[tuple[Any, ...]]


def talk(source: str | None, count: int, seed: int = 0) -> list[Episode]:
    """Texts of a source, each about one person's topic, one a day, each with an origin."""
    draw = random.Random(f"{source} {seed}")
    found = []
    for number in range(count):
        person = draw.choice(list(TOPICS))
        one, two, three = draw.sample(TOPICS[person], 3)
        text = f"{person} likes {one} and {two}. {person} saw {three} with Guest {number}."
        day = f"2020-{number // 28 % 12 + 1:02d}-{number % 28 + 1:02d}"
        found.append(Episode(text, day, source, f"{source} {seed} {number}", person))
    return found


def opened(path: Path | str, **options: Any) -> MemoryGraph:
    return MemoryGraph.open(path, Hashing(), **options)


def with_talks(
    path: Path | str, sources: Iterable[str | None] = "ab", count: int = 24
) -> MemoryGraph:
    """A graph of some talks, without themes yet."""
    graph = opened(path)
    graph.remember_many(episode for source in sources for episode in talk(source, count))
    return graph


def content(graph: MemoryGraph) -> Content:
    """Themes by source and level: eigenvalue, members with weights, quotations, summary."""
    db = graph.store.db
    chunks = {
        id_: (source, text[start:stop], start)
        for id_, start, stop, source, text in db.execute(
            "SELECT c.id, c.start, c.stop, e.source, n.text FROM chunks c"
            " JOIN episodes e ON e.node = c.episode JOIN nodes n ON n.id = c.episode"
        )
    }
    texts = dict(db.execute("SELECT id, text FROM nodes"))
    told: dict[int, tuple[Any, ...]] = {}
    for theme in sorted(read_themes(db), key=lambda theme: (theme.level, theme.id)):
        members = chunks if theme.level == 1 else told
        told[theme.id] = (
            theme.level,
            str(theme.source),
            round(theme.eigenvalue, 4),
            sorted((str(members[m]), round(weight, 4)) for m, weight in theme.members),
            [(texts[q.fact >> 1], texts[q.episode], q.start, q.stop) for q in theme.quotes],
            theme.summary,
        )
    return sorted(told.values(), key=str)


def questions(graph: MemoryGraph) -> list[tuple[str, str, int, str]]:
    """Text, maker and use of every question, and the text of its chunk."""
    sql = """SELECT q.text, q.maker, q.kept, n.text FROM questions q JOIN chunks c ON c.id = q.chunk
        JOIN nodes n ON n.id = c.episode ORDER BY 4, 1"""
    return graph.store.db.execute(sql).fetchall()


class Script:
    """A language model that asks for words of each text, and keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.written: list[str] = []

    def generate(self, prompts: Sequence[str], schema: Any) -> list[tuple[str, bool]]:
        self.asked += prompts
        replies = []
        for prompt in prompts:
            said = [w for words in TOPICS.values() for w in words if w in prompt] or ["it"]
            text = f"What did {speaker(prompt)} say of {said[0]}{secret(prompt)}?"
            replies.append(json.dumps({"questions": [text]}))
        return [(reply, True) for reply in replies]

    def write(self, prompts: Sequence[str]) -> list[str]:
        self.written += prompts
        return [f"{speaker(prompt)} likes much{secret(prompt)}." for prompt in prompts]

    def lm(self, summaries: bool = True) -> Lm:
        return Lm("script", self.generate, self.write if summaries else None)


def speaker(text: str) -> str:
    return next((name for name in TOPICS if name in text), "Nobody")


def secret(text: str) -> str:
    """A word to forget, where a text has it."""
    return f" and {SECRET}" if SECRET in text else ""
