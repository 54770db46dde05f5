"""Where the server is, and how to get a session there: a URL, a pool of psycopg's, an engine of SQLAlchemy's.

Options of ours in a URL, beside those of libpq:

table=, schema=   the name of the table; ``leasehold_leases`` in the first schema of the search path
create=no         the table must be there; else it is made when it is missing
unlogged=yes      a new table is not written to the log: faster, and empty after a crash
listen=           a URL to listen at, when the first one leads to a pooler; ``listen=no``: waiters poll
max_connections=  most sessions at a time; ``sessions.MOST`` without it
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from urllib.parse import unquote

import psycopg

from leasehold._core.light_typing import Any, NamedTuple
from leasehold._sql.names import plain_table
from leasehold.errors import InvalidRequest, StoreUnavailable
from leasehold.stores.postgresql import failures, sessions, urls
from leasehold.stores.postgresql.schema import TABLE
from leasehold.stores.postgresql.session import Session

OPTIONS = ("table", "schema", "create", "unlogged", "listen", "max_connections")
LEAST_CONNECT = 2  # seconds: psycopg takes no less
CONNECT = 10  # and the most, for one host


class Target(NamedTuple):
    """The settings of a store."""

    parameters: Mapping[str, Any]  # of libpq
    listen: Mapping[str, Any] | None  # of the session that listens; None: nothing listens
    table: str = TABLE
    create: bool = True
    unlogged: bool = False
    max_connections: int = sessions.MOST

    @property
    def server(self) -> str:
        """As errors name it, without its password."""
        hosts = str(self.parameters.get("host") or self.parameters.get("hostaddr") or "localhost").split(",")
        ports = str(self.parameters.get("port") or 5432).split(",")
        places = [f"{host}:{ports[min(place, len(ports) - 1)]}" for place, host in enumerate(hosts)]
        return f"PostgreSQL at {','.join(places)}"

    def connect(self, give_up: float) -> Session:
        return _connect(self.parameters, give_up, self.server)

    def connect_to_listen(self, give_up: float) -> Session:
        return _connect(self.listen or {}, give_up, self.server)


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
    return Target(
        parameters,
        _listen(ours.get("listen"), parameters),
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


def _listen(given: str | None, parameters: dict[str, Any]) -> dict[str, Any] | None:
    if given is None:
        return parameters
    if given == "no":
        return None
    if not given.startswith(("postgresql://", "postgres://")):
        raise InvalidRequest("listen= is a URL (percent-encoded) of the server itself, or no: then waiters poll")
    return _parameters(given)


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


def _connect(parameters: Mapping[str, Any], give_up: float, server: str) -> Session:
    seconds = min(max(math.ceil(give_up - time.monotonic()), LEAST_CONNECT), CONNECT)
    try:
        connection = psycopg.connect(
            **{"connect_timeout": seconds, **parameters}, autocommit=True, prepare_threshold=None
        )
    except psycopg.OperationalError as error:
        raise _refused(server, error) from error
    except psycopg.Error as error:
        raise InvalidRequest(f"{server}: {' '.join(str(error).split())[:200]}") from error
    return Session(connection)


def _refused(server: str, error: psycopg.OperationalError) -> StoreUnavailable:
    """The server may say why in its own language: its code counts, where there is one."""
    text = failures.TEXTS.get(error.sqlstate or "") or failures.TEXTS.get((error.sqlstate or "")[:2])
    if text is not None:
        return StoreUnavailable(f"{server} {text} ({error.sqlstate})")
    return failures.unreachable(server, error)
