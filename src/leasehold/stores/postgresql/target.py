"""What ``connect`` was given: a URL with its options, a pool of psycopg's, an engine of SQLAlchemy's.

Options of ours in a URL, beside those of libpq:

table=, schema=   the name of the table; ``leasehold_leases`` in the first schema of the search path
create=no         the table must be there; else it is made when it is missing
unlogged=yes      a new table is not written to the log: faster, and empty after a crash
listen=           a URL to listen at, when the first one leads to a pooler; ``listen=no``: waiters poll
max_connections=  most sessions at a time; ``sessions.MOST`` without it
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from leasehold._core.light_typing import Any, NamedTuple
from leasehold._sql.names import plain_table
from leasehold.errors import InvalidRequest
from leasehold.stores.postgresql import sessions, urls
from leasehold.stores.postgresql.schema import TABLE
from leasehold.stores.postgresql.sources import Parameters, Source, source_of

OPTIONS = ("table", "schema", "create", "unlogged", "listen", "max_connections")


class Target(NamedTuple):
    """The settings of a store."""

    source: Source
    listen: Source | None  # of the session that listens; None: nothing listens
    table: str = TABLE
    create: bool = True
    unlogged: bool = False
    max_connections: int = sessions.MOST


def target_of(given: Any) -> Target:
    """For a URL, a pool or an engine. Raises InvalidRequest. Nothing is connected."""
    if isinstance(given, str):
        return from_url(given)
    source = source_of(given)
    return Target(source, source)


def from_url(url: str) -> Target:
    """Raises InvalidRequest. Nothing is connected."""
    place, _, query = url.partition("?")
    urls.options(query)
    ours: dict[str, str] = {}
    theirs = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name in OPTIONS:
            ours[name] = unquote(value)
        else:
            theirs.append(part)  # as it is: libpq has its own reading of it
    parameters = _parameters(_plain(place) + (f"?{'&'.join(theirs)}" if theirs else ""))
    source = Parameters(parameters)
    return Target(
        source,
        _listen(ours.get("listen"), source),
        _table(ours),
        _yes("create", ours.get("create", "yes")),
        _yes("unlogged", ours.get("unlogged", "no")),
        _count(ours.get("max_connections")),
    )


def _plain(place: str) -> str:
    """SQLAlchemy writes the driver into the scheme."""
    scheme, separator, rest = place.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


def _parameters(url: str) -> dict[str, Any]:
    found = urls.parameters(url, OPTIONS)
    found.setdefault("client_encoding", "UTF8")
    found.setdefault("fallback_application_name", "leasehold")
    return found


def _listen(given: str | None, source: Source) -> Source | None:
    if given is None:
        return source
    if given == "no":
        return None
    if not given.startswith(("postgresql://", "postgres://")):
        raise InvalidRequest("listen= is a URL (percent-encoded) of the server itself, or no: then waiters poll")
    return Parameters(_parameters(given))


def _table(ours: Mapping[str, str]) -> str:
    name = ours.get("table", TABLE)
    return plain_table(f"{ours['schema']}.{name}" if "schema" in ours else name)


def _yes(name: str, given: str) -> bool:
    if given not in ("yes", "no"):
        raise InvalidRequest(f"{name}= is yes or no, not {given[:20]!r}")
    return given == "yes"


def _count(given: str | None) -> int:
    if given is None:
        return sessions.MOST
    if not given.isascii() or not given.isdigit() or not 0 < int(given) <= 1000:
        raise InvalidRequest(f"max_connections= is a number from 1 to 1000, not {given[:20]!r}")
    return int(given)
