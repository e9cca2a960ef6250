"""SPARQL queries over a memory graph, in a process with limits of time and memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import PREFIXES, TG, load_ontology
from turngraph.data.memory_graph.record.open_store import open_store
from turngraph.data.memory_graph.times import end, now, parse_time, start

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import (
        QueryBoolean,
        QueryResultsFormat,
        QuerySolutions,
        RdfFormat,
        serialize,
    )

LIMIT_BYTES = 1 << 30
LIMIT_SECONDS = 30.0
_MASKED = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|' + r"'''(?:[^'\\]|\\.|'(?!''))*'''|"
    r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'|<[^<>\s\"{}|^`\\]*>|#[^\n]*|[?$]\w+|\w*:[\w.-]*"
)
"""Matches strings, IRIs, comments, variables and prefixed names, which contain no keywords."""
_UPDATES = frozenset("INSERT DELETE LOAD CLEAR CREATE DROP COPY MOVE ADD WITH".split())
_FROM = re.compile(r"\bFROM(?:\s+NAMED)?\s+(\S+)", re.IGNORECASE)
_PREFIX = re.compile(r"\bPREFIX\s+(\w*):", re.IGNORECASE)
_SYNTAX = re.compile(r"error at (\d+):(\d+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SparqlResult:
    """Result of a query.

    Args:
        columns: names of a SELECT's variables; () for other queries.
        rows: terms of a SELECT in SPARQL's JSON format (type, value, datatype); None: unbound.
        answer: answer of an ASK; None for other queries.
        triples: triples of a CONSTRUCT or DESCRIBE, as N-Triples; "" for other queries.
        revision: revision of the record.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[dict[str, str] | None, ...], ...]
    answer: bool | None
    triples: str
    revision: int


def moment_of(as_of: str | None) -> int:
    """Return the last second of a time in ISO form; None: now."""
    return start(now()) if as_of is None else end(parse_time(as_of)) - 1


def check_query(query: str) -> None:
    """Check that a query only reads, and only this graph.

    Raises:
        UserError: it has UPDATE, SERVICE, FROM with another graph's IRI, or an undeclared prefix;
            the message has line and column.
    """
    plain = _MASKED.sub(lambda match: " " * len(match[0]), query)
    for word in re.finditer(r"[A-Za-z]+", plain):
        if word[0].upper() == "SERVICE":
            raise UserError(
                f"{_place(query, word.start())}: SERVICE is refused: queries read this graph only"
            )
    first = re.search(r"(?:\b(?:PREFIX|BASE)\b\s*)*([A-Za-z]+)", plain)
    if first and first[1].upper() in _UPDATES:
        raise UserError(f"{_place(query, first.start(1))}: UPDATE is refused: queries only read")
    declared = {*PREFIXES, "_", *_PREFIX.findall(query)}
    for token in _MASKED.finditer(query):
        prefix = re.match(r"(\w*):", token[0])
        if prefix and prefix[1] not in declared:
            predeclared = ", ".join(PREFIXES)
            place = _place(query, token.start())
            raise UserError(f"{place}: unknown prefix {prefix[0]} (predeclared: {predeclared})")
    for named in _FROM.finditer(query):
        if plain[named.start()].isspace():  # inside a string or a comment
            continue
        if not re.fullmatch(rf"<{TG}[^>]*>|tg:\S*", named[1]):
            place = _place(query, named.start())
            raise UserError(f"{place}: FROM reads this graph only: urn:turngraph:")


def _place(query: str, offset: int) -> str:
    before = query[:offset]
    return f"query:{before.count(chr(10)) + 1}:{offset - before.rfind(chr(10))}"


def ask_sparql(
    path: str | Path,
    query: str,
    as_of: str | None = None,
    ontology: str | None = None,
    alone: bool = False,
    seconds: float = LIMIT_SECONDS,
    memory: int = LIMIT_BYTES,
) -> SparqlResult:
    """Run a query over a memory graph in another process, within limits of time and memory.

    The default graph has the triples that hold, the ontology, names, and statements about facts;
    ``GRAPH ?f`` reaches every fact, including those that no longer hold.

    Args:
        path: path or URL of the memory graph.
        query: SELECT, ASK, CONSTRUCT or DESCRIBE, with the prefixes of ``PREFIXES``.
        as_of: ISO time at whose end the triples hold; None: now.
        ontology, alone: as in ``load_ontology``.
        seconds: time limit of the query, without the loading of the graph.
        memory: memory limit of the query in bytes, without the loaded graph.

    Raises:
        UserError: the query is not allowed, invalid (the message has line and column), too slow or
            too large.
    """
    check_query(query)
    command = [sys.executable, "-m", "turngraph.data.memory_graph.ontology.query_process"]
    asked: dict[str, object] = {"path": str(path), "query": query, "as_of": as_of}
    asked |= {"ontology": ontology, "alone": alone, "memory": memory}
    late = threading.Event()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, stop)
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.close()
            ready = process.stdout.readline()
            timer.start()
            output = process.stdout.read()
        finally:
            timer.cancel()
            process.kill()
    if late.is_set():
        raise UserError(f"the query took longer than {seconds:g} s")
    if json.loads(ready or "{}").get("ready") and not output:
        raise UserError(
            f"the query took more than {memory >> 20} MiB of memory, or is nested too deeply"
        )
    return _read_reply(ready, output)


def _read_reply(ready: str, output: str) -> SparqlResult:
    reply = json.loads(output or ready or "{}")
    if "error" in reply:
        raise UserError(reply["error"])
    if "revision" not in reply:
        raise UserError("the query's process ended without a reply")
    rows = tuple(tuple(row.get(name) for name in reply["columns"]) for row in reply["rows"])
    return SparqlResult(
        tuple(reply["columns"]), rows, reply["answer"], reply["triples"], reply["revision"]
    )


def answer_request(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield ``{"ready": true}`` when the graph is loaded, then the reply to a request.

    Args:
        asked: arguments of ``ask_sparql`` except ``seconds``.
    """
    lens_ontology = load_ontology(asked["ontology"], asked["alone"])
    with open_store(asked["path"], read_only=True) as store:
        lens = Lens(store, lens_ontology)
        revision = lens.refresh()
        rdf = lens.snapshot(moment_of(asked["as_of"]))
    yield {"ready": True}
    try:
        result = rdf.query(asked["query"], prefixes=PREFIXES)
    except SyntaxError as error:
        yield {"error": syntax_message(str(error))}
        return
    reply: dict[str, Any] = {"columns": [], "rows": [], "answer": None, "triples": ""}
    if isinstance(result, QuerySolutions):
        read = json.loads(result.serialize(format=QueryResultsFormat.JSON) or b"{}")
        reply |= {"columns": read["head"]["vars"], "rows": read["results"]["bindings"]}
    elif isinstance(result, QueryBoolean):
        reply["answer"] = bool(result)
    else:
        reply["triples"] = (serialize(result, format=RdfFormat.N_TRIPLES) or b"").decode()
    yield reply | {"revision": revision}


def syntax_message(message: str) -> str:
    """Return a parser's message with line and column in front."""
    match = _SYNTAX.fullmatch(message)
    if match is None:
        return f"query: not SPARQL: {message}"
    return f"query:{match[1]}:{match[2]}: not SPARQL: {' '.join(match[3].split())}"
