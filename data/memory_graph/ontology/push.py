"""Copies a memory graph to a SPARQL 1.1 server, by SPARQL UPDATE.

The named graphs whose IRIs begin with the base are replaced; all other graphs stay. Graphs of
forgotten facts are deleted, but the server may keep their bytes on its disk.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.http_post import Failure, post, shown_url
from turngraph.data.memory_graph.ontology.ontology import TG, Ontology
from turngraph.data.memory_graph.ontology.rdf_export import exported
from turngraph.data.memory_graph.record.store import Store

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import DefaultGraph, Literal, NamedNode, Quad

TIMEOUT_SECONDS = 60.0
QUADS_PER_REQUEST = 5000
_URL = re.compile(r"https?://[^\s/?#]+(?:/[^\s?#]*)?")
_LARGEST_REPLY = 1 << 24
_Item = TypeVar("_Item")
RECORD = "record"
"""Local name of the graph with names, types, statements about facts, and the revision."""


def push(
    store: Store,
    ontology: Ontology,
    url: str,
    update_url: str | None = None,
    base: str = TG,
    timeout: float = TIMEOUT_SECONDS,
) -> tuple[int, int]:
    """Replace the graphs of a memory on a server; return the numbers of quads and deleted graphs.

    Args:
        store: the record.
        ontology: the ontology.
        url: URL for queries.
        update_url: URL for updates; None: ``url`` with its last part "query" replaced by "update",
            or ``url`` itself.
        base: beginning of the IRIs; each memory on a server needs its own.
        timeout: seconds for each request.

    Raises:
        UserError: a URL is invalid, or the server refuses or does not reply; the message contains
            nothing of the memory. Graphs that were replaced before the error stay replaced.
    """
    for endpoint in filter(None, (url, update_url)):
        check_url(endpoint)
    update = update_url or re.sub(r"/query/?$", "/update", url)
    revision, quads = exported(store, ontology, base)
    stored = _graphs(url, base, timeout)
    record = NamedNode(base + RECORD)
    stamp = Quad(record, NamedNode(TG + "revision"), Literal(revision), record)
    graphs: dict[str, list[Quad]] = defaultdict(list)
    for quad in quads:
        graph = record if isinstance(quad.graph_name, DefaultGraph) else quad.graph_name
        assert isinstance(graph, NamedNode)
        graphs[graph.value].append(Quad(quad.subject, quad.predicate, quad.object, graph))
    removed = sorted(stored - graphs.keys())
    _send(update, f"DROP SILENT GRAPH {record}", timeout)  # no complete revision until the end
    for batch in _parts(sorted(stored), 500):
        _send(update, " ; ".join(f"DROP SILENT GRAPH <{name}>" for name in batch), timeout)
    ordered = [quad for name in sorted(graphs) for quad in graphs[name]]
    for chunk in _parts([*ordered, stamp], QUADS_PER_REQUEST):
        _send(update, _insertion(chunk), timeout)
    return len(quads), len(removed)


def check_url(url: str) -> None:
    """Check the URL of a server.

    Raises:
        UserError: it is not a URL of HTTP, or it has a query.
    """
    if not _URL.fullmatch(url):
        raise UserError(f"endpoint: {shown_url(url)!r} given, must be http(s), without a query")


def pushed_revision(url: str, base: str = TG, timeout: float = TIMEOUT_SECONDS) -> int | None:
    """Return the revision of which a server has a complete copy; None: it has none.

    Raises:
        UserError: the server refuses or does not reply.
    """
    query = f"SELECT ?r {{ GRAPH <{base}{RECORD}> {{ <{base}{RECORD}> <{TG}revision> ?r }} }}"
    rows = _ask(url, query, timeout)
    return int(rows[0]["r"]["value"]) if rows else None


def _parts(items: Sequence[_Item], size: int) -> Iterator[list[_Item]]:
    left = iter(items)
    while part := list(islice(left, size)):
        yield part


def _insertion(quads: Sequence[Quad]) -> str:
    lines: dict[str, list[str]] = defaultdict(list)
    for quad in quads:
        triple = f"{quad.subject} {quad.predicate} {quad.object} ."
        lines[str(quad.graph_name)].append(triple)
    graphs = (f"GRAPH {name} {{ {' '.join(triples)} }}" for name, triples in lines.items())
    return f"INSERT DATA {{ {' '.join(graphs)} }}"


def _graphs(url: str, base: str, timeout: float) -> set[str]:
    start = json.dumps(base, ensure_ascii=False)
    query = f"SELECT DISTINCT ?g {{ GRAPH ?g {{ ?s ?p ?o }} FILTER(STRSTARTS(STR(?g), {start})) }}"
    graphs = {row["g"]["value"] for row in _ask(url, query, timeout)}
    mine = re.compile(
        re.escape(base) + rf"(?:f\d+|{RECORD})"
    )  # another base may begin with this one
    return {graph for graph in graphs if mine.fullmatch(graph)}


def _ask(url: str, query: str, timeout: float) -> list[dict[str, dict[str, str]]]:
    rows: list[dict[str, dict[str, str]]] = ask_server(url, query, timeout)["results"]["bindings"]
    return rows


def ask_server(url: str, query: str, timeout: float) -> dict[str, Any]:
    """Return a server's reply to a SELECT or ASK, in SPARQL's JSON format.

    Raises:
        UserError: the server refuses or does not reply; the message contains nothing that was sent.
    """
    headers = {"Content-Type": "application/sparql-query"}
    headers["Accept"] = "application/sparql-results+json"
    content = _post(url, query, headers, timeout)
    try:
        reply: dict[str, Any] = json.loads(content)
        if "boolean" not in reply:
            reply["head"]["vars"], reply["results"]["bindings"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{shown_url(url)}: the reply is not a SPARQL result in JSON") from None
    return reply


def _send(url: str, update: str, timeout: float) -> None:
    _post(url, update, {"Content-Type": "application/sparql-update"}, timeout)


def _post(url: str, body: str, headers: dict[str, str], timeout: float) -> bytes:
    try:
        response = post(url, body.encode(), headers, timeout, _LARGEST_REPLY)
    except Failure as failure:
        raise UserError(f"{shown_url(url)}: {failure}") from None
    if not 200 <= response.status < 300:
        raise UserError(f"{shown_url(url)}: the server answered with status {response.status}")
    return response.content
