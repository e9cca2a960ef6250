"""The command that makes a pool of documents, and on request a page of its themes.

The page is that of a memory graph's themes (``data/memory_graph/upkeep/themes_page.py``): themes of
themes, themes, passages. A theme of a pool quotes whole passages.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.outputs import whole_file
from turngraph.data.sources.pool import make_pool, pool_parser
from turngraph.data.types import Evidence
from turngraph.inference.model_options import EMBEDDER

if TYPE_CHECKING:  # themes need scipy, which takes long to import
    from turngraph.data.eigen.eigen_index import EigenIndex
    from turngraph.data.eigen.themes import Theme
    from turngraph.data.embedding import Embed

BATCH = 2048
"""Texts whose vectors are computed between two reports of progress."""

logger = logging.getLogger(__name__)
Json = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> None:
    """Make an evidence pool of files and folders, and a page of its themes with ``--themes``.

    Raises:
        UserError: a file or folder cannot be read, or with ``--strict`` a file of a folder; no file
            has as many passages as themes need.
    """
    parser = pool_parser()
    parser.add_argument(
        "--themes", metavar="FILE.html", help="also write a page of the pool's themes, by file"
    )
    parser.add_argument("--embedder", default=EMBEDDER, help="sentence encoder, for --themes")
    parser.add_argument(
        "--no_embed", action="store_true", help="no model: compare words, for --themes"
    )
    args = parser.parse_args(argv)
    passages = make_pool(args.input, args.output, args.strict)
    if args.themes is None:
        return
    from turngraph.configs.models import sentence_encoder
    from turngraph.data.memory_graph.recall.word_vectors import word_vectors

    embed = word_vectors if args.no_embed else sentence_encoder(args.embedder)
    names = ", ".join(Path(path).resolve().name for path in args.input)
    write_themes_page(passages, args.themes, embed, f"{names}: themes")


def write_themes_page(pool: Sequence[Evidence], path: str | Path, embed: Embed, title: str) -> None:
    """Write the themes of a pool as one HTML page.

    Args:
        pool: passages, whose ids begin with the names of their files.
        path: path of the HTML file.
        embed: texts to unit vectors.
        title: title of the page.

    Raises:
        UserError: there are no themes, or the file cannot be written.
    """
    from turngraph.data.eigen.eigen_index import EigenIndex
    from turngraph.data.memory_graph.upkeep.html_page import MAX_NODES, page

    sources = [file_of(passage) for passage in pool]
    index = EigenIndex(pool, reporting(embed), sources)
    if not index.themes:
        raise UserError(f"{path}: no themes: no file has 8 passages or more")
    data = page_data(index, sources, title, MAX_NODES)
    with whole_file(path, True) as file:
        file.write(page(data))
    shown, total = len(data["nodes"]), data["total"]
    logger.info("%d of %d themes and passages written to %s", shown, total, path)


def reporting(embed: Embed) -> Embed:
    """Return a sentence encoder that shows its progress, as many passages take minutes."""

    def embed_reported(texts: Sequence[str]) -> np.ndarray:
        vectors = []
        with progress(len(texts), "vectors", "passages", delay=2) as bar:
            for start in range(0, len(texts), BATCH):
                batch = texts[start : start + BATCH]
                vectors.append(np.asarray(embed(batch)))
                bar.update(len(batch))
        return np.concatenate(vectors)

    return embed_reported


def file_of(passage: Evidence) -> str:
    """Return the file of a passage: "a.pdf" of "a.pdf, page 3#12"."""
    return passage.id.rpartition("#")[0].partition(", page ")[0]


def page_data(index: EigenIndex, sources: Sequence[str], title: str, max_nodes: int) -> Json:
    """Return the data of the page, in the format of ``themes_page.themes_data``.

    Args:
        index: the pool and its themes.
        sources: the file of each passage.
        title: title of the page.
        max_nodes: limit; themes come first, then the heaviest passages of each.
    """
    from turngraph.data.memory_graph.upkeep.themes_page import WORDS

    builder = _Builder(index, sources)
    builder.add_themes(max_nodes)
    builder.add_passages(max_nodes)
    builder.add_quotes()
    in_themes = sum(len(theme.members) for theme in index.themes)
    return {
        "title": title,
        "total": len(index.themes) + len(index.upper) + in_themes,
        "words": WORDS,
        "nodes": builder.nodes,
        "edges": builder.edges,
        "episodes": [{"source": file} for file in builder.files],
    }


class _Builder:
    """Collects the nodes and edges of a page: themes, themes of themes, passages."""

    def __init__(self, index: EigenIndex, sources: Sequence[str]) -> None:
        self.index, self.sources = index, sources
        self.files = {file: number for number, file in enumerate(dict.fromkeys(sources))}
        self.nodes: list[Json] = []
        self.edges: list[Json] = []
        self._quoted: list[list[int]] = []  # of each theme, passages
        self._shown: dict[int, int] = {}  # nodes of passages

    def add_themes(self, max_nodes: int) -> None:
        """Add themes, and the themes of themes with their edges, as far as there is room."""
        from turngraph.data.memory_graph.upkeep.themes_page import GROUP, OF_GROUP, THEME

        index = self.index
        for number, theme in enumerate(index.themes[:max_nodes]):
            file = self.sources[int(theme.members[0])]
            about = f"{plural(len(theme.members), 'passage')} of {file}"
            self._add_theme(number, theme, THEME, about, len(theme.members))
        left = max_nodes - len(self.nodes)
        for number, group in enumerate(index.upper[:left], len(index.themes)):
            members = group.members.tolist()
            self.edges += [
                {"type": OF_GROUP, "source": len(self.nodes), "target": member}
                for member in members  # all are shown: groups come after all themes
            ]
            size = sum(len(index.themes[member].members) for member in members)
            self._add_theme(number, group, GROUP, plural(len(members), "theme"), size)

    def _add_theme(self, number: int, theme: Theme, type_: int, members: str, size: int) -> None:
        about = f"{members}; eigenvalue {theme.eigenvalue:.3f}"
        self.nodes.append({"type": type_, "about": about, "members": size})
        self._quoted.append(self.index.chunks[self.index.quoted[number]].tolist())

    def add_passages(self, max_nodes: int) -> None:
        """Add the heaviest passages of every theme as far as there is room."""
        from turngraph.data.memory_graph.upkeep.themes_page import OF_THEME, PASSAGE

        heaviest = sorted(
            (place, number, passage)
            for number, theme in enumerate(self.index.themes[:max_nodes])
            for place, passage in enumerate(theme.members.tolist())
        )
        for _, number, passage in heaviest[: max_nodes - len(self.nodes)]:
            self._shown[passage] = len(self.nodes)
            self.edges.append({"type": OF_THEME, "source": number, "target": len(self.nodes)})
            node = self._text(passage) | {"type": PASSAGE, "members": 1, "quiet": 1}
            self.nodes.append(node)

    def add_quotes(self) -> None:
        """Add to every theme the passages that it quotes, the first of which is its text."""
        for node, passages in zip(self.nodes, self._quoted, strict=False):
            node["quotes"] = [
                self._text(passage)
                | ({"node": self._shown[passage]} if passage in self._shown else {})
                for passage in passages
            ]
            node["text"] = node["quotes"][0]["text"]

    def _text(self, passage: int) -> Json:
        from turngraph.data.memory_graph.upkeep.html_page import MAX_TEXT

        text = self.index.pool[passage].text
        rest = f"… ({len(text):,} characters)" if len(text) > MAX_TEXT else ""
        return {"text": text[:MAX_TEXT] + rest, "episode": self.files[self.sources[passage]]}
