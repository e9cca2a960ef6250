"""Opens the record of a memory graph in a file or in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from turngraph.data.memory_graph.record.place import is_url, of_tenant
from turngraph.data.memory_graph.record.store import WAIT_SECONDS, Store

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.postgres_store import PostgresStore


def open_store(
    place: str | Path,
    read_only: bool = False,
    wait: float = WAIT_SECONDS,
    tenant: str | None = None,
) -> Store:
    """Open the record of a memory graph.

    Args:
        place: path of a file, or URL of a PostgreSQL database.
        read_only, wait: as in ``Store``.
        tenant: as in ``of_tenant``.

    Raises:
        UserError: as ``Store``, or ``PostgresStore``.
    """
    place = of_tenant(place, tenant)
    if not is_url(place):
        return Store(place, read_only=read_only, wait=wait)
    return _postgres(str(place), read_only, wait)


def _postgres(url: str, read_only: bool, wait: float) -> PostgresStore:
    from turngraph.data.memory_graph.record.postgres_store import PostgresStore

    return PostgresStore(url, read_only=read_only, wait=wait)
