"""The nodes that a URL names, or a list of clients and URLs."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold._core.durations import ttl_ms
from leasehold._core.light_typing import Any
from leasehold._core.schemes import OPENED, store_of
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
        one = f"{scheme}://{host if '@' in host else login + at + host}{end}"
        found.append(target.from_url(one, "redlock", EXAMPLE))
    return found, longest_ttl_ms


def _longest_ttl_ms(text: str) -> int:
    try:
        return ttl_ms(float(text) if text.replace(".", "", 1).isdigit() else text, "max_ttl")
    except InvalidRequest as error:
        raise InvalidRequest(f"the URL of a Redlock: {error}") from None


def _yes(text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidRequest("tls must be true or false in a redlock URL")
    return text == "true"


def of_list(some: Sequence[Any]) -> tuple[list[Target], int]:
    """The addresses of these clients and URLs, one for each node, and the longest ttl. Clients are never used
    themselves. The option ``max_ttl`` of a URL is that of all nodes, so URLs that have it must agree."""
    found, longest = [], set()
    for one in some:
        if not isinstance(one, str):
            found.append(_of_client(one))
            continue
        address, own_longest_ttl_ms = _of_url(one)
        found.append(address)
        longest.update(own_longest_ttl_ms)
    if len(longest) > 1:
        raise InvalidRequest("the URLs of a Redlock have different values of max_ttl: give all nodes the same")
    return found, longest.pop() if longest else MAX_TTL_MS


def _of_url(url: str) -> tuple[Target, list[int]]:
    """One node, and its option ``max_ttl`` if it has one."""
    scheme, separator, _ = url.partition("://")
    schemes = OPENED["redis"].schemes
    if not separator or scheme not in schemes:
        wrong = f"{scheme}:// does" if separator and store_of(scheme) else "one of these does"  # no part of a password
        raise InvalidRequest(
            f"a URL in a list names one master of a Redlock, and {wrong} not: the schemes are {', '.join(schemes)}, as "
            "in redis://host:6379/0"
        )
    front, _, query = url.partition("?")
    options = query.split("&") if query else []
    longest = [_longest_ttl_ms(option.partition("=")[2]) for option in options if option.startswith("max_ttl=")]
    others = [option for option in options if not option.startswith("max_ttl=")]
    return target.from_url(front + (f"?{'&'.join(others)}" if others else "")), longest


def _of_client(client: Any) -> Target:
    from leasehold.stores.redis.client_store import REFUSED, address_of  # needs asyncio, which a URL does not

    clients.check(client, "connect()", REFUSED)
    address = address_of(client)
    if address is None:
        raise Unsupported(
            f"a {type(client).__name__} cannot be a node of a Redlock: it does more than connect and send, and all "
            "nodes are used at once over connections of our own"
        )
    return address
