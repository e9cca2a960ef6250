"""Queries the server to which a memory graph was pushed, if the server has its newest revision."""

from __future__ import annotations

import re
from dataclasses import dataclass

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.http_post import shown_url
from turngraph.data.memory_graph.ontology.ontology import PREFIXES, TG
from turngraph.data.memory_graph.ontology.push import (
    RECORD,
    TIMEOUT_SECONDS,
    ask_server,
    check_url,
    pushed_revision,
)
from turngraph.data.memory_graph.ontology.rdf import SparqlResult, check_query

_READS = re.compile(r"\b(SELECT|ASK|CONSTRUCT|DESCRIBE)\b", re.IGNORECASE)
_HEAD = "".join(f"PREFIX {prefix}: <{iri}> " for prefix, iri in PREFIXES.items())
"""Prefixes of every query, before its first line, so that line numbers in errors are the user's."""


@dataclass(frozen=True, slots=True)
class PushedGraph:
    """Copy of a memory graph on a SPARQL 1.1 server.

    Args:
        url: URL for queries.
        base: beginning of the copy's IRIs, as in ``push``.
        timeout: seconds for each request.

    Raises:
        UserError: the URL is invalid.
    """

    url: str
    base: str = TG
    timeout: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        check_url(self.url)

    @property
    def record(self) -> str:
        """IRI of the graph with names, types and times of facts."""
        return self.base + RECORD

    def check(self, revision: int) -> None:
        """Check that the server has a complete copy of a revision.

        Raises:
            UserError: it has another revision or no complete one, or does not reply.
        """
        pushed = pushed_revision(self.url, self.base, self.timeout)
        if pushed != revision:
            has = "nothing complete" if pushed is None else f"revision {pushed}"
            raise UserError(
                f"{shown_url(self.url)}: the server has {has} of {self.base}, the memory graph is "
                f"at revision {revision}: push the memory graph again"
            )

    def select(self, query: str) -> list[dict[str, str]]:
        """Return the rows of a SELECT: values of the bound variables, by name."""
        bindings = ask_server(self.url, _HEAD + query, self.timeout)["results"]["bindings"]
        return [{name: term["value"] for name, term in row.items()} for row in bindings]

    def ask(self, query: str, revision: int) -> SparqlResult:
        """Ask a user's query, SELECT or ASK.

        Args:
            query: query, with the prefixes of ``PREFIXES``. Facts are in ``GRAPH ?f``, everything
                else is in the graph ``record``.
            revision: revision of the memory graph.

        Raises:
            UserError: the query is not allowed, or the server has another revision or refuses.
        """
        check_query(query)
        kind = _READS.search(query)
        if kind is not None and kind[1].upper() in ("CONSTRUCT", "DESCRIBE"):
            raise UserError(f"--endpoint: takes SELECT and ASK queries, not {kind[1].upper()}")
        self.check(revision)
        reply = ask_server(self.url, _HEAD + query, self.timeout)
        if "boolean" in reply:
            return SparqlResult((), (), bool(reply["boolean"]), "", revision)
        names = tuple(reply["head"]["vars"])
        rows = tuple(tuple(row.get(name) for name in names) for row in reply["results"]["bindings"])
        return SparqlResult(names, rows, None, "", revision)
