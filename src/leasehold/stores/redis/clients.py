"""Somebody's own client object: what it knows of its server is enough for connections of our own. One that cannot be
reduced to an address, such as a test double, is used through its own commands. It is never closed by us."""

from __future__ import annotations

import inspect

from leasehold._core.light_typing import Any
from leasehold._core.ports import Clock
from leasehold.observe import log
from leasehold.stores.redis.borrowed import BorrowedStore
from leasehold.stores.redis.client_types import check_client, family
from leasehold.stores.redis.store import RedisStore
from leasehold.stores.redis.target import CONNECT_TIMEOUT, TLS_OPTIONS, Target

CONNECTIONS = ("Connection", "SSLConnection", "UnixDomainSocketConnection")
# What a connection may be told that we cannot do for it.
SPECIAL = (
    "redis_connect_func",
    "valkey_connect_func",
    "ssl_validate_ocsp",
    "ssl_validate_ocsp_stapled",
    "ssl_include_verify_flags",
    "ssl_exclude_verify_flags",
)
REFUSED = {
    "MultiDBClient": "a MultiDBClient moves between databases that share no leases: give it the client of one",
    "RedisCluster": "this version has no store for Cluster",
    "ValkeyCluster": "this version has no store for Cluster",
    "Sentinel": "give it the master's client: sentinel.master_for(name)",
    "Pipeline": "a pipeline sends nothing until it is executed: give it the client",
    "PubSub": "give it the client",
    "Lock": "give it the client",
}


def open_client(client: Any, clock: Clock | None = None) -> RedisStore | BorrowedStore:
    """The store behind a client. Sends nothing."""
    check_client(client, "connect()", REFUSED)
    target = reduce(client)
    if target is None:
        log.debug("%s is used through its own commands: slower, and without pushes", type(client).__name__)
        return BorrowedStore(client, clock)
    return RedisStore(target, clock)


def reduce(client: Any) -> Target | None:
    """Where its server is and how to be let in; None when that is not all there is to it."""
    pool = getattr(client, "connection_pool", None)
    kind: Any = getattr(pool, "connection_class", None)
    settings = getattr(pool, "connection_kwargs", None)
    known = inspect.isclass(kind) and kind.__name__ in CONNECTIONS and kind.__module__.endswith(".connection")
    if not known or not family(kind) or not isinstance(settings, dict) or not _speaks_plainly(client):
        return None
    provider = settings.get("credential_provider")
    if not family(type(pool)) or any(settings.get(name) for name in SPECIAL) or _must_be_awaited(provider):
        return None
    return Target(
        host=settings.get("host") or "localhost",
        port=int(settings.get("port") or 6379),
        path=str(settings.get("path") or ""),
        db=int(settings.get("db") or 0),
        username=settings.get("username") or "",
        password=settings.get("password") or "",
        credentials=provider.get_credentials if provider is not None else None,
        tls={name: settings[name] for name in TLS_OPTIONS if settings.get(name) is not None}
        if kind.__name__ == "SSLConnection"
        else None,
        client_name=settings.get("client_name") or "",
        connect_timeout=float(settings.get("socket_connect_timeout") or CONNECT_TIMEOUT),
    ).checked()


def _must_be_awaited(provider: Any) -> bool:
    """It only has the asyncio way to get credentials: redis-py's own base class has neither."""
    for cls in type(provider).__mro__:
        if "get_credentials" in vars(cls):
            return cls.__name__ == "CredentialProvider" and family(cls) != ""
    return False


def _speaks_plainly(client: Any) -> bool:
    """Commands go to the server as they are: no subclass of somebody's changes them on the way."""
    for cls in type(client).__mro__:
        if "execute_command" in vars(cls):
            return family(cls) != "" and "execute_command" not in vars(client)
    return False
