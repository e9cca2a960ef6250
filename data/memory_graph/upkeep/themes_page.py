"""Export of the themes of a memory graph as one HTML page: themes of themes, themes, passages.

The page is that of ``html_page.py`` with other nodes. The text of a theme is its first quotation; a
theme links to its members and to the passages that it quotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.recall.held_quotes import held_quotes
from turngraph.data.memory_graph.record import theme_rows
from turngraph.data.memory_graph.record.theme_rows import ChunkRow, QuoteRow, ThemeRow
from turngraph.data.memory_graph.times import now, start
from turngraph.data.memory_graph.upkeep.html_page import MAX_NODES, MAX_TEXT, held, origin_of, page
from turngraph.data.outputs import whole_file

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

Json = dict[str, Any]
GROUP, THEME, PASSAGE = range(3)
"""Types of nodes on the page."""
OF_GROUP, OF_THEME = 1, 2
"""Types of edges: from a theme of themes to its themes, from a theme to its passages."""
WORDS = {
    "types": ["object", "thesis", "episodic"],
    "names": ["themes of themes", "themes", "passages"],
    "kinds": ["theme of themes", "theme", "passage"],
    "sections": ["", "Themes of themes and their themes", "Themes and their passages"],
    "relations": ["", "has the theme", "has the passage"],
    "cut": "the largest themes and their heaviest passages",
}
"""The page's words for its nodes and edges; ``types`` are names of colours."""


def export_themes_html(
    store: Store, path: str | Path, max_nodes: int = MAX_NODES
) -> tuple[int, int]:
    """Write the themes of the last committed state as one page.

    Args:
        store: the open graph.
        path: path of the HTML file.
        max_nodes: maximum number of nodes; the largest themes come first, then the heaviest
            passages of each theme.

    Returns:
        The number of nodes on the page, and of themes and passages in the graph.

    Raises:
        UserError: the graph has no themes, or the file cannot be written; no partial file is left.
    """
    with store.reading():
        data = themes_data(store, max_nodes)
        if not data["nodes"]:
            raise UserError(f"{store}: no themes; `turngraph memory themes` makes them")
        with whole_file(path, True) as file:
            file.write(page(data))
    return len(data["nodes"]), data["total"]


def themes_data(store: Store, max_nodes: int = MAX_NODES) -> Json:
    """Return the data of the page, in a read transaction; the format is that of ``page_data``.

    Passages are ``quiet``: they are labelled only beside a chosen node. ``members`` is the number
    of passages, which sets the size of a node. A theme's ``quotes`` have ``text``, ``from`` and
    ``to`` as ISO times, ``holds`` in seconds since 1970, ``episode`` as an index, and the index of
    the passage as ``node`` if it is shown.
    """
    builder = _Builder(store, theme_rows.read_themes(store.db))
    builder.choose(max_nodes)
    builder.add_quotes()
    return {
        "title": f"{store.title}: themes",
        "total": builder.total,
        "words": WORDS,
        "nodes": builder.nodes,
        "edges": builder.edges,
        "episodes": builder.episodes,
    }


class _Builder:
    """Collects the nodes and edges of a page.

    Args:
        store: the graph, in a read transaction.
        themes: all themes of the graph.
    """

    def __init__(self, store: Store, themes: Sequence[ThemeRow]) -> None:
        self.store, self.db = store, store.db
        self.nodes: list[Json] = []
        self.edges: list[Json] = []
        self.episodes: list[Json] = []
        self._positions: dict[int, int] = {}  # of episodes
        self._shown: list[tuple[ThemeRow, int]] = []
        self._passages: dict[int, list[tuple[ChunkRow, int]]] = {}  # by episode
        self._second = start(now())
        self._groups = [theme for theme in themes if theme.level == 2]
        self._themes = sorted(
            (theme for theme in themes if theme.level == 1), key=lambda t: (-len(t.members), t.id)
        )
        self._sizes = {theme.id: len(theme.members) for theme in self._themes}
        self.total = len(themes) + len({m for t in self._themes for m, _ in t.members})

    def choose(self, max_nodes: int) -> None:
        """Add at most ``max_nodes`` nodes, and the edges between them."""
        numbers: dict[int, int] = {}
        for theme in self._themes[: max(max_nodes - len(self._groups), 0)]:
            numbers[theme.id] = self._add_theme(theme, THEME)
        for theme in self._groups[: max_nodes - len(self.nodes)]:
            group = self._add_theme(theme, GROUP)
            self.edges += [
                {"type": OF_GROUP, "source": group, "target": numbers[member]}
                for member, _ in theme.members
                if member in numbers
            ]
        ranked = sorted(
            (place, theme.id, member)
            for theme in self._themes
            if theme.id in numbers
            for place, (member, _) in enumerate(theme.members)
        )
        for _, theme_id, chunk in ranked[: max(max_nodes - len(self.nodes), 0)]:
            target = self._add_passage(chunk)
            self.edges.append({"type": OF_THEME, "source": numbers[theme_id], "target": target})

    def _add_theme(self, theme: ThemeRow, type: int) -> int:
        quotes = held_quotes(self.store, theme.quotes, self._second)
        first = quotes[0].text if quotes else "(none of its quotations holds now)"
        members = plural(len(theme.members), "theme" if type == GROUP else "passage")
        source = "" if type == GROUP else f" of {theme.source or 'no source'}"
        about = f"{members}{source}; eigenvalue {theme.eigenvalue:.3f}"
        if theme.summary is not None:
            about += f"; by {theme.maker}: {' '.join(theme.summary.split())}"
        node = {"type": type, "text": first, "about": about, "members": self._num_chunks(theme)}
        self._shown.append((theme, len(self.nodes)))
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _num_chunks(self, theme: ThemeRow) -> int:
        if theme.level == 1:
            return len(theme.members)
        return sum(self._sizes[member] for member, _ in theme.members)

    def _add_passage(self, chunk: int) -> int:
        sql = "SELECT id, episode, start, stop FROM chunks WHERE id = ?"
        row = ChunkRow(*self.db.execute(sql, (chunk,)).fetchone())
        [text] = theme_rows.chunk_texts(self.db, [row])
        note = f"… ({len(text):,} characters)" if len(text) > MAX_TEXT else ""
        node = {
            "type": PASSAGE,
            "text": text[:MAX_TEXT] + note,
            "episode": self._episode(row.episode),
            "members": 1,
            "quiet": 1,
        }
        self._passages.setdefault(row.episode, []).append((row, len(self.nodes)))
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _episode(self, node: int) -> int:
        """Return the index of an episode on the page."""
        if node not in self._positions:
            self._positions[node] = len(self.episodes)
            self.episodes.append(origin_of(self.db, node))
        return self._positions[node]

    def add_quotes(self) -> None:
        """Add to every theme its quotations, including ended ones."""
        for theme, number in self._shown:
            facts = self.store.facts([quote.fact for quote in theme.quotes])
            self.nodes[number]["quotes"] = [
                self._quote(quote, fact) for quote, fact in zip(theme.quotes, facts, strict=True)
            ]

    def _quote(self, quote: QuoteRow, fact: Fact) -> Json:
        text = fact.text[quote.start : quote.stop] if fact.type == "episodic" else fact.text
        entry: Json = {"text": text, "episode": self._episode(quote.episode)}
        for chunk, number in self._passages.get(quote.episode, ()):
            if chunk.start <= quote.start < chunk.stop:
                entry["node"] = number
        said = min((p.said for p in fact.provenance if p.said), key=start, default=None)
        times = {"from": fact.valid_from, "to": fact.valid_to}
        entry |= {name: time for name, time in times.items() if time is not None}
        return entry | held(said, fact.valid_from, fact.valid_to)
