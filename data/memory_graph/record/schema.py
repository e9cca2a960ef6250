"""Tables of a memory graph's database.

A fact key is 2 * edge id + 1 for a simple triplet and 2 * node id for a thesis or an episode. Ids
are never reused. Times are ISO texts of any precision, as ``times.parse_time`` returns them; NULL
means open or unknown. A column of long texts is the last of its table, as SQLite reads through a
column to reach those behind it.
"""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x54474D47
"""Distinguishes a memory graph from other SQLite databases ("TGMG")."""
SCHEMA_VERSION = 4

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('revision', 0);
CREATE TABLE stamps (revision INTEGER PRIMARY KEY, stamp INTEGER NOT NULL);
CREATE TABLE nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    type INTEGER NOT NULL,           -- memory_types.OBJECT, THESIS, EPISODIC, TIME
    hash INTEGER,                    -- names.text_hash of theses and times; others: NULL
    said TEXT,                       -- first time of a thesis, time of an episode
    valid_from TEXT,                 -- of theses only, as the next two columns
    valid_to TEXT,
    hypothesis INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL,       -- revision that last wrote the row
    text TEXT NOT NULL               -- name, sentence, episode's text, ISO time
);
CREATE INDEX nodes_by_hash ON nodes (hash) WHERE hash IS NOT NULL;
CREATE INDEX nodes_by_revision ON nodes (revision);
CREATE INDEX nodes_by_end ON nodes (id, valid_to) WHERE valid_to IS NOT NULL;
CREATE TABLE episodes (
    node INTEGER PRIMARY KEY REFERENCES nodes (id),
    source TEXT,
    origin TEXT UNIQUE,
    speaker TEXT,
    extractor TEXT NOT NULL,
    properties TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX episodes_by_source ON episodes (source);
CREATE TABLE edges (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    type INTEGER NOT NULL,           -- memory_types.SIMPLE, HYPER, EPISODIC_EDGE, ...
    source INTEGER NOT NULL REFERENCES nodes (id),
    target INTEGER NOT NULL REFERENCES nodes (id),
    relation TEXT,                   -- of simple edges only, as the next four columns
    said TEXT,
    valid_from TEXT,
    valid_to TEXT,
    hypothesis INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL
);
CREATE INDEX edges_by_source ON edges (source, type, id, valid_to, target);
CREATE INDEX edges_by_target ON edges (target, type, id, valid_to, source);
CREATE INDEX simple_edges ON edges (source, relation, valid_to, target) WHERE type = 0;
CREATE INDEX edges_by_revision ON edges (revision);
CREATE TABLE aliases (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    alias TEXT NOT NULL,             -- normalised, see names.py
    spelling TEXT NOT NULL,
    node INTEGER NOT NULL REFERENCES nodes (id),
    given INTEGER NOT NULL DEFAULT 0,  -- by the user: stays without a sighting
    UNIQUE (alias, spelling, node)
);
CREATE INDEX aliases_by_node ON aliases (node);
CREATE TABLE sightings (             -- episodes that contain an alias
    alias INTEGER NOT NULL REFERENCES aliases (id),
    episode INTEGER NOT NULL REFERENCES nodes (id),
    PRIMARY KEY (alias, episode)
) WITHOUT ROWID;
CREATE INDEX sightings_by_episode ON sightings (episode);
CREATE TABLE provenance (            -- of simple triplets and theses; an episode is its own
    fact INTEGER NOT NULL,           -- a fact key
    episode INTEGER NOT NULL REFERENCES nodes (id),
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    PRIMARY KEY (fact, episode, start, stop)
) WITHOUT ROWID;
CREATE INDEX provenance_by_episode ON provenance (episode);
CREATE TABLE supersessions (         -- the old fact ends when the new one begins
    old INTEGER NOT NULL,            -- fact keys
    new INTEGER NOT NULL,
    boundary TEXT,
    old_valid_to TEXT,               -- end that the old fact's own text states
    new_valid_from TEXT,             -- begin that the new fact's own text states
    PRIMARY KEY (old, new)
) WITHOUT ROWID;
CREATE INDEX supersessions_by_new ON supersessions (new);
CREATE TABLE removed (               -- rows that derived indexes must drop
    kind INTEGER NOT NULL,           -- 0 node, 1 edge, 2 question, 3 chunk
    id INTEGER NOT NULL,
    revision INTEGER NOT NULL
);
CREATE INDEX removed_by_revision ON removed (revision);
CREATE TABLE journal (               -- of merge, split and rename, for undo
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    operation TEXT NOT NULL,
    undo TEXT NOT NULL               -- JSON
);
CREATE VIRTUAL TABLE name_words USING fts5 (words, content='', tokenize="ascii tokenchars '_'");
CREATE VIRTUAL TABLE fact_words USING fts5 (words, content='', tokenize="ascii tokenchars '_'");
CREATE TABLE chunks (                -- members of themes: episodes, or parts of long ones
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    episode INTEGER NOT NULL REFERENCES nodes (id),
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    revision INTEGER NOT NULL
);
CREATE UNIQUE INDEX chunks_by_episode ON chunks (episode, start, stop);
CREATE INDEX chunks_by_revision ON chunks (revision);
CREATE TABLE questions (             -- utility questions that a chunk answers
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk INTEGER NOT NULL REFERENCES chunks (id),
    revision INTEGER NOT NULL,
    maker TEXT NOT NULL,             -- rules, or lm: and the name of a model
    kept INTEGER NOT NULL,           -- whether themes are made with the question
    text TEXT NOT NULL               -- empty: the maker has no question for the chunk
);
CREATE INDEX questions_by_chunk ON questions (chunk);
CREATE INDEX questions_by_revision ON questions (revision);
CREATE TABLE themes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    level INTEGER NOT NULL,          -- 1: of a source's chunks, 2: of the themes of level 1
    eigenvalue REAL NOT NULL,
    revision INTEGER NOT NULL,
    source TEXT,                     -- of level 1; NULL: episodes without a source
    maker TEXT,                      -- of the summary
    summary TEXT                     -- by a language model; NULL: none
);
CREATE INDEX themes_by_source ON themes (source);
CREATE TABLE theme_members (
    theme INTEGER NOT NULL REFERENCES themes (id),
    member INTEGER NOT NULL,         -- a chunk; for level 2, a theme of level 1
    weight REAL NOT NULL,
    PRIMARY KEY (theme, member)
) WITHOUT ROWID;
CREATE INDEX theme_members_by_member ON theme_members (member);
CREATE TABLE theme_quotes (          -- sentences that represent a theme, best first
    theme INTEGER NOT NULL REFERENCES themes (id),
    position INTEGER NOT NULL,
    fact INTEGER NOT NULL,           -- key of a thesis, or of an episode without theses
    episode INTEGER NOT NULL REFERENCES nodes (id),
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    PRIMARY KEY (theme, position)
) WITHOUT ROWID;
CREATE INDEX theme_quotes_by_episode ON theme_quotes (episode);
CREATE TABLE themed (                -- sources whose chunks and themes were made
    source TEXT,                     -- NULL: episodes without a source
    revision INTEGER NOT NULL,       -- revision from which they were made
    maker TEXT NOT NULL              -- maker of the questions
);
CREATE INDEX themed_by_source ON themed (source)
"""
"""``name_words`` has a row for every alias, ``fact_words`` for every fact key; both hold the words
that ``data.normalise.words`` returns, joined by spaces (see ``facts.index_facts``). ``stamps`` has
a random number for every revision, which distinguishes the revision from the same revision of
another record (see ``derived_files.State``). The tables from ``chunks`` on belong to themes
(``theme_rows.py``)."""


def create(db: sqlite3.Connection) -> None:
    """Create the tables inside the caller's transaction."""
    for statement in TABLES.split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
