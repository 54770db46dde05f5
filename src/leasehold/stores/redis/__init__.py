"""The Redis and Valkey store: one server, the ledger as Lua, connections of our own.

store      the port
speech     ops as commands, replies as the ledger's; scripts/ holds the Lua
target     where the server is: URLs and settings
wire       a connection for threads     mailbox  one thread's way to the server, reconnecting
loop       a connection for an event loop
batch      the watchdog's connection: many renewals at once, news for holders
handshake  the first words on each connection
failures   errors in words
"""

from leasehold.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
