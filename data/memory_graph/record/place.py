"""Handles the place of a memory graph: a file, or a tenant of a PostgreSQL database."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from turngraph.configs.user_error import UserError

_NO_PORT = re.compile(r":(?!\d+(?:[/,]|$))[^/,]*")
"""Matches text in the place of a port that is no number and may be part of a password."""
SCHEMES = ("postgresql://", "postgres://")


def is_url(place: str | Path) -> bool:
    """Return whether a place is a PostgreSQL database."""
    return str(place).startswith(SCHEMES)


def parse_query(url: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the part of a URL before its parameters, and the parameters as libpq decodes them.

    libpq does not decode "+" as a blank. The part before the parameters is not parsed, as a
    password may contain any character.
    """
    base, _, query = url.partition("?")
    return base, parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)


def shown(place: str | Path) -> str:
    """Return a place for messages: a URL without its password and without other secrets."""
    if not is_url(place):
        return str(place)
    base, values = parse_query(str(place))
    scheme, _, rest = base.partition("://")
    tenant = dict(values).get("tenant")
    # the last "@" counts: the password may contain one that the user did not quote
    host = _NO_PORT.sub("", rest.rpartition("@")[2])
    return f"{scheme}://{host}{f'?tenant={quote(tenant)}' if tenant else ''}"


def of_tenant(place: str | Path, tenant: str | None) -> str | Path:
    """Return the place of a tenant: ``postgresql://host/database?tenant=anna``.

    Args:
        place: path of a file, or URL.
        tenant: name of the tenant; None: the URL names it, or the place is a file.

    Raises:
        UserError: a tenant is given for a file, the URL names another tenant, no tenant is named,
            or its name is blank.
    """
    if not is_url(place):
        if tenant is not None:
            raise UserError(f"{place}: a file has no tenants; a postgresql:// URL has")
        return place
    base, parameters = parse_query(str(place))
    values = dict(parameters)
    named = values.get("tenant")
    if tenant is not None and named not in (None, tenant):
        raise UserError(f"{shown(place)}: names another tenant than {tenant!r}")
    owner = named if tenant is None else tenant
    if owner is None or not owner.strip():
        raise UserError(f"{shown(place)}: needs a tenant, the graph's owner (?tenant=NAME)")
    return f"{base}?{urlencode({**values, 'tenant': owner}, quote_via=quote)}"
