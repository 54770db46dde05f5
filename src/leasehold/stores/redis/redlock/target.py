"""The nodes that a URL or a list of clients names."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold._core.durations import ttl_ms
from leasehold._core.light_typing import Any
from leasehold.errors import InvalidRequest, Unsupported
from leasehold.stores.redis import clients, target
from leasehold.stores.redis.target import Target

MAX_TTL_MS = 300_000  # of a lease, unless ``max_ttl`` says another: a node that lost its memory is left out for so long
EXAMPLE = "redlock://host1:6379,host2:6379,host3:6379"


def from_url(url: str) -> tuple[list[Target], int]:
    """``redlock://[[user]:password@]host[:port],...[/db][?option=value&...]``. What stands before the first host, and
    the options, are those of all nodes. ``tls=true`` connects with TLS."""
    rest, _, query = url.partition("://")[2].partition("?")
    hosts, slash, path = rest.partition("/")
    login, at, _ = hosts.partition(",")[0].rpartition("@")
    options, longest_ttl_ms, tls = [], MAX_TTL_MS, False
    for option in query.split("&") if query else []:
        name, _, value = option.partition("=")
        if name == "max_ttl":
            longest_ttl_ms = _longest_ttl_ms(value)
        elif name == "tls":
            tls = _yes(value)
        else:
            options.append(option)
    scheme = "rediss" if tls else "redis"
    end = f"{slash}{path}" + (f"?{'&'.join(options)}" if options else "")
    found = []
    for host in hosts.split(","):
        if not host.rpartition("@")[2]:
            raise InvalidRequest(f"the redlock URL has an empty host: write {EXAMPLE}")
        found.append(_one(f"{scheme}://{host if '@' in host else login + at + host}{end}", scheme))
    return found, longest_ttl_ms


def _one(url: str, scheme: str) -> Target:
    try:
        return target.from_url(url)
    except InvalidRequest as error:
        raise InvalidRequest(str(error).replace(f"the {scheme} URL", "the redlock URL")) from None


def _longest_ttl_ms(text: str) -> int:
    try:
        return ttl_ms(float(text) if text.replace(".", "", 1).isdigit() else text, "max_ttl")
    except InvalidRequest as error:
        raise InvalidRequest(f"the redlock URL: {error}") from None


def _yes(text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidRequest("tls must be true or false in a redlock URL")
    return text == "true"


def of_clients(some: Sequence[Any]) -> list[Target]:
    """The addresses of these clients. They are never used themselves."""
    from leasehold.stores.redis.client_store import REFUSED, address_of  # needs asyncio, which a URL does not

    found = []
    for client in some:
        clients.check(client, "connect()", REFUSED)
        address = address_of(client)
        if address is None:
            raise Unsupported(
                f"a {type(client).__name__} cannot be a node of a Redlock: it does more than connect and send, and all "
                "nodes are used at once over connections of our own"
            )
        found.append(address)
    return found
