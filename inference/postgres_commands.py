"""Commands about a PostgreSQL database of memory graphs: its schema and its tenants."""

from __future__ import annotations

import argparse

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.memory_graph.record.place import is_url, shown
from turngraph.inference.memory_printing import print_line


def add_migrate(added: argparse.ArgumentParser) -> None:
    """Add the options of ``migrate``."""
    _add_url(added)
    added.add_argument("--to", type=int, metavar="VERSION", help="default: this program's; 0: none")
    added.add_argument(
        "--yes", action="store_true", help="go down, which deletes what a version brought"
    )
    added.add_argument("--grant", metavar="ROLE", help="let a role of the server use the schema")
    added.set_defaults(run=migrate)


def add_tenants(added: argparse.ArgumentParser) -> None:
    """Add the options of ``tenants``."""
    _add_url(added)
    change = added.add_mutually_exclusive_group()
    change.add_argument("--add", metavar="NAME", help="make a tenant, if it is not there")
    change.add_argument("--drop", metavar="NAME", help="delete a tenant with all its memories")
    added.set_defaults(run=tenants)


def _add_url(added: argparse.ArgumentParser) -> None:
    added.add_argument("--url", required=True, metavar="postgresql://HOST/DATABASE")


def migrate(*, url: str, to: int | None, yes: bool, grant: str | None) -> None:
    """Change the version of a database's schema, and let a role use it.

    Raises:
        UserError: it is no URL, there is no such version or role, the server refuses, ``to`` is
            below the present version without ``yes``, or another one than ``grant`` needs.
    """
    _check(url)
    if grant is not None and to is not None:
        raise UserError(f"--grant {grant}: needs this program's version, leave out --to {to}")
    from turngraph.data.memory_graph.record import postgres_schema as schema
    from turngraph.data.memory_graph.record.postgres_store import administering

    wanted = schema.VERSION if to is None else to
    with administering(url) as db:
        found = schema.found_version(db)
        if wanted < found and not yes:
            raise UserError(
                f"--to {wanted}: below version {found}, deletes what that brought; --yes does it"
            )
        begun = schema.migrate(db, wanted)
        print_line(f"{shown(url)}: version {begun}, now {wanted}")
        if grant is not None:
            print_line(f"{shown(url)}: {schema.grant(db, grant)}")


def tenants(*, url: str, add: str | None, drop: str | None) -> None:
    """Print the tenants of a database, make or delete one.

    Raises:
        UserError: it is no URL, there is no such tenant, or the server refuses.
    """
    _check(url)
    if add is not None and not add.strip():
        raise UserError("--add: a tenant needs a name")
    from turngraph.data.memory_graph.record import postgres_schema as schema
    from turngraph.data.memory_graph.record.postgres_store import administering, require_version

    with administering(url) as db:
        require_version(db, shown(url))
        if add is not None:
            schema.make_tenant(db, add)
            print_line(f"{add}: there")
        elif drop is None:
            for name in (names := schema.tenants(db)):
                print_line(name)
            print_line(plural(len(names), "tenant"))
        elif schema.drop_tenant(db, drop):
            print_line(f"{drop}: deleted")
        else:
            raise UserError(f"{shown(url)}: no tenant {drop!r}")


def _check(url: str) -> None:
    if not is_url(url):
        raise UserError("--url: must begin with postgresql://")
