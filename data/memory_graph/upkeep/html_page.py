"""Export of a memory graph as one HTML page to browse and search, without network or server.

Cytoscape.js lays the graph out and draws it. Remembered texts enter the page as JSON only, and its
script writes them as text, never as HTML; a content security policy blocks any other script and
any request.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from turngraph.data.memory_graph.memory_types import edge_key, node_key
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.ended_parts import (
    Interval,
    begin_of,
    held_between,
    thesis_ends,
)
from turngraph.data.memory_graph.times import local_time, start
from turngraph.data.outputs import whole_file

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

MAX_NODES = 5000
MAX_TEXT, MAX_QUOTE = 2000, 300
SCRIPTS = {
    "cytoscape.min.js": "turngraph.data.scoring.explain_files",
    "page.js": "turngraph.data.memory_graph.upkeep.page_files",
}
"""The page's scripts, in order, and the package folder of each."""
Json = dict[str, Any]


def export_html(
    store: Store,
    path: str | Path,
    max_nodes: int = MAX_NODES,
    classes: Mapping[int, str] | None = None,
    computed: Json | None = None,
) -> tuple[int, int]:
    """Write the last committed state of the graph as one page.

    Args:
        store: the open graph.
        path: path of the HTML file.
        max_nodes: maximum number of nodes; of a larger graph the page shows those with the most
            edges.
        classes: class of objects by node id, which sets their colour; None: all have one colour.
        computed: a computed answer: question, answer, operation, note, plan, sparql, and facts by
            their keys; None: the page has none.

    Returns:
        The number of nodes on the page and in the graph.

    Raises:
        UserError: the file cannot be written; no partial file is left.
    """
    with store.reading(), whole_file(path, True) as file:
        graph = page_data(store.db, store.title, max_nodes, classes or {}, computed)
        file.write(page(graph))
    return len(graph["nodes"]), graph["total"]


def page(graph: Json) -> str:
    """Return the HTML of a page that shows ``page_data``."""
    scripts = [_read(name, folder) for name, folder in SCRIPTS.items()]
    hashes = (hashlib.sha256(f"\n{text}\n".encode()).digest() for text in scripts)
    return Template(_read("page.html")).substitute(
        title=html.escape(graph["title"]),
        allowed=" ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes),
        style=_read("page.css"),
        data=_script_json(graph),
        scripts="\n".join(f"<script>\n{text}\n</script>" for text in scripts),
    )


def _read(name: str, folder: str = SCRIPTS["page.js"]) -> str:
    package, _, folder = folder.rpartition(".")
    return (files(package) / folder / name).read_text(encoding="utf-8")


def _script_json(value: Json) -> str:
    """Return JSON that neither ends the element around it nor opens another."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(
    db: Database,
    title: str,
    max_nodes: int = MAX_NODES,
    classes: Mapping[int, str] | None = None,
    computed: Json | None = None,
) -> Json:
    """Return the data of a page: nodes, edges, and the episodes that state facts.

    Call it in a read transaction.

    A fact has ``from`` and ``to`` as ISO times, ``holds``: begin and end of each time at which it
    holds, in seconds since 1970, and ``seen``: the indices of the episodes that state it, each with
    the quoted span if it differs from the fact's text. For ``holds``, an undated fact begins when
    it was said, a thesis holds as its triplets do, and an episode while any of its facts holds.
    """
    total = db.execute("SELECT count(*) FROM nodes").fetchone()[0]
    sql = """SELECT nodes.id FROM nodes ORDER BY (SELECT count(*) FROM edges WHERE
        source = nodes.id) + (SELECT count(*) FROM edges WHERE target = nodes.id) DESC, nodes.id
        LIMIT ?"""
    shown = json.dumps([id_ for (id_,) in db.execute(sql, (max_nodes,))])
    nodes = dict(_nodes(db, shown))
    for id_, kind in (classes or {}).items():
        if id_ in nodes:
            nodes[id_]["class"] = kind
    indices = {id_: index for index, id_ in enumerate(nodes)}
    edges = dict(_edges(db, indices, shown))
    sql = f"""SELECT spelling, node FROM aliases WHERE node IN {_SHOWN}
        GROUP BY spelling, node ORDER BY node, min(id)"""
    for alias, id_ in db.execute(sql, (shown,)):
        nodes[id_].setdefault("aliases", []).append(alias)
    facts = {node_key(i): n for i, n in nodes.items()} | {edge_key(i): e for i, e in edges.items()}
    _hold_as_stated(db, facts, shown)
    episodes = _add_provenance(db, facts, indices, shown)
    keys = {edge_key(id_): index for index, id_ in enumerate(edges)}
    told = computed and computed | {
        "facts": [keys[key] for key in computed["facts"] if key in keys],
        "total": len(computed["facts"]),
    }
    return {
        **({"computed": told} if told else {}),
        "title": title,
        "total": total,
        "nodes": list(nodes.values()),
        "edges": list(edges.values()),
        "episodes": episodes,
    }


_SHOWN = "(SELECT value FROM json_each(?1))"


def _nodes(db: Database, shown: str) -> Iterator[tuple[int, Json]]:
    sql = f"""SELECT id, type, text, said, valid_from, valid_to, hypothesis
        FROM nodes WHERE id IN {_SHOWN} ORDER BY id"""
    for id_, type_, text, *times in db.execute(sql, (shown,)):
        note = f"… ({len(text):,} characters)" if len(text) > MAX_TEXT else ""
        yield id_, {"type": type_, "text": text[:MAX_TEXT] + note} | _times(*times)


def _edges(db: Database, indices: dict[int, int], shown: str) -> Iterator[tuple[int, Json]]:
    sql = f"""SELECT id, type, source, target, relation, said, valid_from, valid_to, hypothesis
        FROM edges WHERE source IN {_SHOWN} AND target IN {_SHOWN} ORDER BY id"""
    for id_, type_, source, target, relation, *times in db.execute(sql, (shown,)):
        edge = {"type": type_, "source": indices[source], "target": indices[target]}
        yield id_, edge | ({"relation": relation} if relation else {}) | _times(*times)


def _times(said: str | None, from_: str | None, to: str | None, hypothesis: int) -> Json:
    fields: Json = {"said": said, "from": from_, "to": to, "maybe": hypothesis}
    return {name: value for name, value in fields.items() if value} | held(said, from_, to)


def held(said: str | None, from_: str | None, to: str | None) -> Json:
    """Return the field ``holds`` of a fact, [from, to) in seconds since 1970; {} if unbounded."""
    begin = begin_of(from_, said, to)
    if begin is None and to is None:
        return {}
    return {"holds": [None if time is None else start(time) for time in (begin, to)]}


_STATED = f"""SELECT 2 * p.episode, p.fact, n.said, n.valid_from, n.valid_to
    FROM provenance p JOIN nodes n ON n.id = p.fact / 2
    WHERE p.fact % 2 = 0 AND p.episode IN {_SHOWN}
    UNION ALL SELECT 2 * p.episode, p.fact, e.said, e.valid_from, e.valid_to
    FROM provenance p JOIN edges e ON e.id = p.fact / 2
    WHERE p.fact % 2 = 1 AND p.episode IN {_SHOWN}"""
"""Selects the times of the facts that episodes state, by the episodes' keys."""


def _hold_as_stated(db: Database, facts: Mapping[int, Json], shown: str) -> None:
    """Let a thesis hold as its triplets do, and an episode while any of its facts holds."""
    stated = db.execute(_STATED, (shown,)).fetchall()
    keys = {*facts, *(fact for _, fact, *_ in stated)}
    ends, parts = thesis_ends(db, keys), held_between(db, keys)
    of_episodes: dict[int, list[Interval]] = defaultdict(list)
    for episode, fact, said, from_, to in stated:
        end = to or ends.get(fact)
        of_episodes[episode] += parts.get(fact, [(begin_of(from_, said, end), end)])
    for key, fact in facts.items():
        intervals = of_episodes.get(key) or parts.get(key)
        if key in ends and "to" not in fact and (not intervals or _all_end(intervals)):
            fact["to"] = ends[key]
            fact |= held(fact.get("said"), fact.get("from"), ends[key])
        if intervals:
            fact["holds"] = _union(intervals)


def _all_end(intervals: Sequence[Interval]) -> bool:
    return all(end is not None for _, end in intervals)


def _union(intervals: Sequence[Interval]) -> list[int | None]:
    """Return begin and end of each interval in turn, in seconds since 1970, without overlaps."""
    first, last = -math.inf, math.inf
    merged: list[list[float]] = []
    for begin, end in sorted(
        (first if begin is None else start(begin), last if end is None else start(end))
        for begin, end in intervals
    ):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return [int(second) if math.isfinite(second) else None for one in merged for second in one]


def _add_provenance(
    db: Database, facts: dict[int, Json], indices: dict[int, int], shown: str
) -> list[Json]:
    """Add to every fact the spans that state it, and return the episodes of the spans."""
    positions: dict[int, int] = {}
    last, text = None, ""
    sql = f"""SELECT fact, episode, start, stop FROM provenance WHERE fact IN {_SHOWN}
        ORDER BY episode, fact, start"""
    for key, episode, start_, stop in db.execute(sql, (json.dumps(list(facts)),)):
        if episode != last:  # not SQL's substr, which ends at a NUL
            last = episode
            text = db.execute("SELECT text FROM nodes WHERE id = ?", [episode]).fetchone()[0]
        quote = text[start_ : min(stop, start_ + MAX_QUOTE)]
        position = positions.setdefault(episode, len(positions))
        is_own_text = quote == facts[key].get("text", "")[:MAX_QUOTE]
        facts[key].setdefault("seen", []).append([position] if is_own_text else [position, quote])
    sql = f"SELECT node FROM episodes WHERE node IN {_SHOWN} ORDER BY node"
    for (node,) in db.execute(sql, (shown,)):
        facts[node_key(node)]["episode"] = positions.setdefault(node, len(positions))
    return [origin_of(db, node) | _at(indices.get(node)) for node in positions]


def origin_of(db: Database, node: int) -> Json:
    """Return source and speaker of an episode, and its time as the speaker's clock showed it."""
    source, speaker, said, properties = db.execute(
        "SELECT source, speaker, said, properties FROM episodes JOIN nodes ON id = node"
        " WHERE node = ?",
        [node],
    ).fetchone()
    fields = {"source": source, "speaker": speaker}
    fields["said"] = local_time(said, json.loads(properties))
    return {name: value for name, value in fields.items() if value is not None}


def _at(index: int | None) -> Json:
    """Return the index of a node that the page shows."""
    return {} if index is None else {"node": index}
