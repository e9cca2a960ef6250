"""Which database the tests of memory graphs use: SQLite, or PostgreSQL for a second run.

With ``TURNGRAPH_TEST_STORE=postgresql`` every graph that a test opens by a path is a tenant of a
PostgreSQL server, named by the path. ``test_both_stores.py`` runs that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.record.place import is_url, of_tenant
from turngraph.data.memory_graph.record.store import Store


@pytest.fixture(autouse=True)
def _store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use PostgreSQL instead of SQLite in the second run."""
    if os.environ.get("TURNGRAPH_TEST_STORE") != "postgresql":
        return
    if request.node.get_closest_marker("sqlite"):
        pytest.skip("about SQLite's file")
    server = request.getfixturevalue("postgres")
    from turngraph.data.memory_graph.record.postgres_store import PostgresStore

    begin = PostgresStore.__init__

    def new(cls: type[Store], path: Any, *_: Any, **__: Any) -> Store:
        is_file = cls is Store and str(path) != ":memory:"
        return object.__new__(PostgresStore if is_file else cls)

    def init(self: PostgresStore, path: Any, *rest: Any, **named: Any) -> None:
        place = path if is_url(path) else of_tenant(server.url, str(path))
        begin(self, str(place), *rest, **named)
        if not is_url(path):
            self.path = Path(path)  # of which tests take names of other files and of the folder
            self.derived = self.path.with_name(f"{self.path.name}.derived")

    monkeypatch.setattr(Store, "__new__", new)
    monkeypatch.setattr(PostgresStore, "__init__", init)
