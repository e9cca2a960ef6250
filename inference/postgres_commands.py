"""Commands about a PostgreSQL database of memory graphs: its schema and its tenants."""

from __future__ import annotations

import argparse

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.memory_graph.record.place import is_url, shown
from turngraph.inference.memory_printing import print_line


def add_schema(added: argparse.ArgumentParser) -> None:
    """Add the options of ``schema``."""
    _add_url(added)
    change = added.add_mutually_exclusive_group()
    change.add_argument("--grant", metavar="ROLE", help="let a role of the server use the schema")
    change.add_argument("--drop", action="store_true", help="delete it with all its memories")
    added.add_argument("--yes", action="store_true", help="with --drop: do it")
    added.set_defaults(run=schema)


def add_tenants(added: argparse.ArgumentParser) -> None:
    """Add the options of ``tenants``."""
    _add_url(added)
    change = added.add_mutually_exclusive_group()
    change.add_argument("--add", metavar="NAME", help="make a tenant, if it is not there")
    change.add_argument("--drop", metavar="NAME", help="delete a tenant with all its memories")
    added.set_defaults(run=tenants)


def _add_url(added: argparse.ArgumentParser) -> None:
    added.add_argument("--url", required=True, metavar="postgresql://HOST/DATABASE")


def schema(*, url: str, grant: str | None, drop: bool, yes: bool) -> None:
    """Make the schema of a database and let a role use it, or delete it.

    Raises:
        UserError: it is no URL, there is no such role, the server refuses, the schema has another
            version, or ``drop`` is without ``yes``.
    """
    _check(url)
    if drop and not yes:
        raise UserError("--drop deletes the memories of all tenants: confirm with --yes")
    from turngraph.data.memory_graph.record import postgres_schema
    from turngraph.data.memory_graph.record.postgres_store import administering, require_version

    with administering(url) as db:
        if drop:
            postgres_schema.drop(db)
            print_line(f"{shown(url)}: schema deleted")
            return
        postgres_schema.make(db)
        require_version(db, shown(url))
        print_line(f"{shown(url)}: schema of version {postgres_schema.VERSION}")
        if grant is not None:
            print_line(f"{shown(url)}: {postgres_schema.grant(db, grant)}")


def tenants(*, url: str, add: str | None, drop: str | None) -> None:
    """Print the tenants of a database, make or delete one.

    Raises:
        UserError: it is no URL, there is no such tenant, or the server refuses.
    """
    _check(url)
    if add is not None and not add.strip():
        raise UserError("--add: a tenant needs a name")
    from turngraph.data.memory_graph.record import postgres_schema
    from turngraph.data.memory_graph.record.postgres_store import administering, require_version

    with administering(url) as db:
        require_version(db, shown(url))
        if add is not None:
            postgres_schema.make_tenant(db, add)
            print_line(f"{add}: exists")
        elif drop is None:
            for name in (names := postgres_schema.tenants(db)):
                print_line(name)
            print_line(plural(len(names), "tenant"))
        elif postgres_schema.drop_tenant(db, drop):
            print_line(f"{drop}: deleted")
        else:
            raise UserError(f"{shown(url)}: no tenant {drop!r}")


def _check(url: str) -> None:
    if not is_url(url):
        raise UserError("--url: must begin with postgresql://")
