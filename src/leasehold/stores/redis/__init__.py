"""The Redis and Valkey store: one server, the ledger as Lua, connections of our own.

store      the port
speech     ops as commands, replies as the ledger's; scripts/ holds the Lua
target     where the server is: URLs and settings
wire       a connection for threads     mailbox  one thread's way to the server, reconnecting
loop       a connection for an event loop
batch      the watchdog's connection: many renewals at once, news for holders
handshake  the first words on each connection
failures   errors in words
kinds      what somebody's object is    lua  scripts put together from files

The last three need no hiredis: guards use them too.
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
