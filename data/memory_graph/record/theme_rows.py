"""Reads the chunks, questions and themes of the record, and finds sources with outdated themes.

A chunk is an episode, or a part of a long episode. The chunks, questions and themes of a source
depend only on the episodes and facts of this source, so only changed sources are processed again. A
chat's questions and answers are no chunks, as they are history and never evidence.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from turngraph.data.memory_graph.memory_types import EPISODIC, SIMPLE, THESIS
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.meta import read_meta

GROUPED, PROBE = "themes grouped", "themes probe"
"""Names of two rows of ``meta``. ``GROUPED`` exists while the stored themes of level 2 are made
from the stored themes of level 1. ``PROBE`` holds the vector of ``vectors.PROBE`` by the encoder
that made the themes."""
EVIDENCE = """coalesce(json_extract(e.properties, '$.kind'), '') NOT IN ('question', 'answer')"""
"""SQL condition that excludes a chat's questions and answers."""
_SOURCES = f"""
SELECT e.source FROM episodes e WHERE {EVIDENCE} GROUP BY e.source
ORDER BY min(e.node)"""
_CHANGED = f"""
SELECT DISTINCT e.source FROM nodes n JOIN episodes e ON e.node = n.id
LEFT JOIN themed t ON t.source IS e.source
WHERE n.type = {EPISODIC} AND n.revision > ?1 AND n.revision > t.revision
UNION SELECT e.source FROM nodes n JOIN provenance p ON p.fact = 2 * n.id
JOIN episodes e ON e.node = p.episode LEFT JOIN themed t ON t.source IS e.source
WHERE n.type = {THESIS} AND n.revision > ?1 AND n.revision > t.revision
UNION SELECT e.source FROM edges f JOIN provenance p ON p.fact = 2 * f.id + 1
JOIN episodes e ON e.node = p.episode LEFT JOIN themed t ON t.source IS e.source
WHERE f.type = {SIMPLE} AND f.revision > ?1 AND f.revision > t.revision"""
_CHUNKS = """
SELECT c.id, c.episode, c.start, c.stop FROM episodes e JOIN chunks c ON c.episode = e.node
WHERE e.source IS ? ORDER BY c.episode, c.start"""
_THESES = f"""
SELECT p.fact, p.episode, p.start, p.stop, t.text, t.hypothesis FROM episodes e
JOIN provenance p ON p.episode = e.node AND p.fact % 2 = 0
JOIN nodes t ON t.id = p.fact >> 1 AND t.type = {THESIS}
WHERE e.source IS ? ORDER BY p.episode, p.start, p.stop, p.fact"""


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk of the record: id, episode and span in the episode's text."""

    id: int
    episode: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ThesisRow:
    """A thesis and a place (span of an episode) that states it."""

    fact: int
    episode: int
    start: int
    stop: int
    text: str
    hypothesis: int


@dataclass(frozen=True, slots=True)
class QuoteRow:
    """A quotation: the key of a thesis (or of an episode), and the quoted place."""

    fact: int
    episode: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ThemeRow:
    """A theme of the record.

    Args:
        id: its id; 0 before it is written.
        level: 1: its members are chunks; 2: themes of level 1.
        source: source of its chunks, for level 1.
        eigenvalue: eigenvalue of its eigenvector.
        members: ids and weights, heaviest first.
        quotes: sentences that represent it best, best first; some may no longer hold.
        summary, maker: summary of the quotes by a language model with its utility questions, a
            line each, and the model's name; None: no summary.
    """

    id: int
    level: int
    source: str | None
    eigenvalue: float
    members: tuple[tuple[int, float], ...]
    quotes: tuple[QuoteRow, ...]
    summary: str | None = None
    maker: str | None = None


# Outdated themes


def changed_sources(db: Database, maker: str | None = None) -> list[str | None]:
    """Return the sources whose themes are missing or outdated, in the order of their episodes.

    Args:
        db: the record, in a read transaction.
        maker: maker of the questions with which themes must be made; None: any.
    """
    made: dict[str | None, tuple[int, str]] = {
        source: (revision, by)
        for source, revision, by in db.execute("SELECT source, revision, maker FROM themed")
    }
    since = min((revision for revision, _ in made.values()), default=0)
    changed = {source for (source,) in db.execute(_CHANGED, (since,))}
    return [
        source
        for (source,) in db.execute(_SOURCES)
        if source not in made or source in changed or maker not in (None, made[source][1])
    ]


def maker_of_questions(db: Database) -> str | None:
    """Return the maker of the questions of the last themes; None: there are no themes."""
    row = db.execute("SELECT maker FROM themed ORDER BY revision DESC LIMIT 1").fetchone()
    return None if row is None else str(row[0])


def makers_in_use(db: Database, likely: str) -> list[str]:
    """Return the makers of the questions in use; fast if all are by ``likely``."""
    sql = "SELECT DISTINCT maker FROM questions WHERE kept = 1 AND maker != ?"
    makers = [maker for (maker,) in db.execute(sql, (likely,))]
    sql = "SELECT 1 FROM questions WHERE kept = 1 AND maker = ? LIMIT 1"
    if db.execute(sql, (likely,)).fetchone():
        makers.append(likely)
    return sorted(makers)


def is_grouped(db: Database) -> bool:
    """Return whether the themes of level 2 are made from the stored themes of level 1."""
    return read_meta(db, GROUPED) is not None


# Reading


def chunks_of(db: Database, source: str | None) -> list[ChunkRow]:
    """Return the chunks of a source in the order of its texts."""
    return [ChunkRow(*row) for row in db.execute(_CHUNKS, (source,))]


def chunk_texts(db: Database, chunks: Iterable[ChunkRow]) -> list[str]:
    """Return the texts of chunks, in order; chunks of an episode must be adjacent."""
    texts = []
    last, text = -1, ""
    for chunk in chunks:  # not SQL's substr, which ends at a NUL
        if chunk.episode != last:
            last = chunk.episode
            [text] = db.execute("SELECT text FROM nodes WHERE id = ?", (last,)).fetchone()
        texts.append(text[chunk.start : chunk.stop])
    return texts


def theses_of(db: Database, source: str | None) -> list[ThesisRow]:
    """Return all theses of a source, also closed ones, in the order of their places."""
    return [ThesisRow(*row) for row in db.execute(_THESES, (source,))]


def questions_of(
    db: Database, chunks: Iterable[ChunkRow], maker: str
) -> dict[int, list[tuple[int, str]]]:
    """Return ids and texts of the questions that a maker made for chunks, by chunk.

    A chunk for which the maker has no question has an empty list; a chunk that the maker has not
    processed is missing.
    """
    sql = """SELECT q.chunk, q.id, q.text FROM json_each(?) k JOIN questions q ON q.chunk = k.value
        WHERE q.maker = ? ORDER BY q.chunk, q.id"""
    questions: dict[int, list[tuple[int, str]]] = {}
    for chunk, id_, text in db.execute(sql, (json.dumps([c.id for c in chunks]), maker)):
        questions.setdefault(chunk, [])
        if text:
            questions[chunk].append((id_, text))
    return questions


def kept_questions(db: Database, chunks: Iterable[ChunkRow]) -> list[tuple[int, int]]:
    """Return (id, chunk) of the questions with which the themes of chunks are made."""
    sql = """SELECT q.id, q.chunk FROM json_each(?) k JOIN questions q ON q.chunk = k.value
        WHERE q.kept = 1 ORDER BY q.chunk, q.id"""
    return list(db.execute(sql, (json.dumps([chunk.id for chunk in chunks]),)))


def count_blank(db: Database) -> int:
    """Return the number of episodes without words, so without chunks, in sources with themes."""
    sql = f"""SELECT count(*) FROM episodes e JOIN themed t ON t.source IS e.source
        WHERE {EVIDENCE} AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.episode = e.node)"""
    return int(db.execute(sql).fetchone()[0])


def is_episode(db: Database, fact: int) -> bool:
    """Return whether a fact key is that of an episode."""
    sql = "SELECT 1 FROM episodes WHERE node = ?"
    return fact % 2 == 0 and db.execute(sql, (fact >> 1,)).fetchone() is not None


def read_themes(
    db: Database,
    ids: Iterable[int] | None = None,
    level: int | None = None,
    with_places: bool = True,
) -> list[ThemeRow]:
    """Return themes by falling eigenvalue within each level and source, level 2 first.

    Args:
        db: the record, in a read transaction.
        ids: ids of the themes; None: all.
        level: level of the themes; None: both.
        with_places: whether to read members and quotations, which takes most of the time.
    """
    condition = "" if ids is None else "WHERE id IN (SELECT value FROM json_each(?))"
    values = [] if ids is None else [json.dumps(list(ids))]
    sql = f"""SELECT id, level, source, eigenvalue, summary, maker FROM themes {condition}
        ORDER BY level DESC, id"""
    rows = [row for row in db.execute(sql, values) if level in (None, row[1])]
    chosen = json.dumps([row[0] for row in rows] if with_places else [])
    members: dict[int, list[tuple[int, float]]] = defaultdict(list)
    sql = """SELECT theme, member, weight FROM json_each(?) k JOIN theme_members ON theme = k.value
        ORDER BY theme, weight DESC, member"""
    for theme, member, weight in db.execute(sql, (chosen,)):
        members[theme].append((member, weight))
    quotes = quotes_of(db, [row[0] for row in rows] if with_places else [])
    return [
        ThemeRow(
            id=id_,
            level=theme_level,
            source=source,
            eigenvalue=eigenvalue,
            members=tuple(members[id_]),
            quotes=quotes.get(id_, ()),
            summary=summary,
            maker=maker,
        )
        for id_, theme_level, source, eigenvalue, summary, maker in rows
    ]


def quotes_of(db: Database, themes: Iterable[int]) -> dict[int, tuple[QuoteRow, ...]]:
    """Return the quotations of themes, best first, by theme id."""
    by_theme: dict[int, list[QuoteRow]] = defaultdict(list)
    sql = """SELECT theme, fact, episode, start, stop FROM json_each(?) k
        JOIN theme_quotes ON theme = k.value ORDER BY theme, position"""
    for theme, *quote in db.execute(sql, (json.dumps(list(themes)),)):
        by_theme[theme].append(QuoteRow(*quote))
    return {theme: tuple(quotes) for theme, quotes in by_theme.items()}


def theme_ids(db: Database, level: int) -> list[int]:
    """Return the ids of a level's themes in rising order."""
    return [
        id_ for (id_,) in db.execute("SELECT id FROM themes WHERE level = ? ORDER BY id", (level,))
    ]


def changed_questions(db: Database, since: int) -> Iterator[tuple[int, str]]:
    """Yield key and text of questions and of parts of episodes that were written after a revision.

    The key of a question is 2 * its id; the key of a chunk that is a part of an episode is 2 * its
    id + 1.
    """
    sql = "SELECT 2 * id, text FROM questions WHERE revision > ? AND text != ''"
    read = db.scan if since < 0 else db.execute
    yield from read(sql, (since,))
    sql = "SELECT id, episode, start, stop FROM chunks WHERE revision > ? ORDER BY episode, start"
    last, text = -1, ""
    for id_, episode, start, stop in read(sql, (since,)):
        if episode != last:
            last = episode
            [text] = db.execute("SELECT text FROM nodes WHERE id = ?", (episode,)).fetchone()
        if stop - start < len(text):
            yield 2 * id_ + 1, text[start:stop]
