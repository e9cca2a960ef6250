"""Where a memory graph is: a file, or a tenant of a PostgreSQL database."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

_NO_PORT = re.compile(r":(?!\d+(?:[/,]|$))[^/,]*")
"""What stands where a port belongs, and may be a password."""
SCHEMES = ("postgresql://", "postgres://")


def is_url(place: str | Path) -> bool:
    """Return whether a place is a PostgreSQL database."""
    return str(place).startswith(SCHEMES)


def shown(place: str | Path) -> str:
    """Return a place for messages: of a URL without password and options, which may hold one."""
    if not is_url(place):
        return str(place)
    scheme, _, rest = str(place).partition("://")
    tenant = dict(parse_qsl(urlsplit(str(place)).query)).get("tenant")
    # an address may hold "@" where a user forgot to quote one of the password
    host = rest.partition("?")[0].partition("#")[0].rpartition("@")[2]
    host = _NO_PORT.sub("", host)
    return f"{scheme}://{host}{f'?tenant={quote(tenant)}' if tenant else ''}"


def of_tenant(place: str | Path, tenant: str | None) -> str | Path:
    """Return the place of a tenant: ``postgresql://host/database?tenant=anna``.

    Args:
        place: path of a file, or URL.
        tenant: None: the URL names it, or the place is a file.

    Raises:
        ValueError: a file has no tenants, a URL names another tenant or none, or the name is blank.
    """
    if not is_url(place):
        if tenant is not None:
            raise ValueError(f"{place}: a file has no tenants; a postgresql:// URL has")
        return place
    parts = urlsplit(str(place))
    values = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = values.get("tenant")
    if tenant is not None and known not in (None, tenant):
        raise ValueError(f"{shown(place)}: names another tenant than {tenant!r}")
    found = known if tenant is None else tenant
    if found is None or not found.strip():
        raise ValueError(f"{shown(place)}: needs a tenant, whose memory graph it is")
    query = urlencode({**values, "tenant": found}, quote_via=quote)
    return urlunsplit(parts._replace(query=query))
