"""The Redis and Valkey store: the ledger as Lua, and connections of our own.

store                the port
protocol             ops as commands, replies as the ledger's; scripts/ holds the Lua
target               the address of the server: URLs and settings
server               where the server is now, and its open connections
sentinel             a server that Sentinels name
connection           a thread's connection; sockets: its socket
loop_connection      an event loop's connection; loop_socket: its socket
watchdog_connection  the watchdog's connection: many renewals at once, pushes for holders
handshake            the first commands on each connection
client_store         the store over the commands of a user's own client
cluster/             the store over a Redis Cluster
redlock/             the store over a majority of independent masters

failures             errors of the server and the network
clients              what a user's client is, and what its errors mean
lua                  scripts put together from files

The last three need no hiredis: guards and result stores use them too.
"""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.stores.redis.store import RedisStore

__all__ = ["RedisStore"]


def __getattr__(name: str) -> object:
    if name != "RedisStore":
        raise AttributeError(f"module 'leasehold.stores.redis' has no attribute {name!r}")
    from leasehold.stores.redis.store import RedisStore

    return RedisStore
