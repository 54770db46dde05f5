"""The result store beside a store: in a file beside its file, or on its server, through clients of our own.

A client for threads is made anew in a forked child. One for asyncio belongs to the event loop on which its connections
were opened: each loop has its own, which is closed with the loop (``asyncio.run`` sees to it) or with the results.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold.errors import InvalidRequest, StoreUnavailable, Unsupported
from leasehold.patterns.results.redis import RedisResultStore
from leasehold.patterns.results.threaded import ThreadedResultStore

if TYPE_CHECKING:
    from leasehold.patterns.results.result_store import ResultStore
    from leasehold.stores.redis.target import Target

MOST_CONNECTIONS = 16  # of one process, or of one loop: whoever finds none waits for one
ANSWER = 5.0  # seconds for a reply, and for a connection to be free


def default_sqlite(path: str, asynchronous: bool) -> ResultStore:
    """In the file ``<path>-result store``: a store's own file is locked by every claim."""
    from leasehold.patterns.results.sqlite import SUFFIX, SQLiteResultStore

    results = SQLiteResultStore(path + SUFFIX)
    return ThreadedResultStore(results) if asynchronous else results


def default_redis(target: Target, asynchronous: bool) -> ResultStore:
    """On the same server, as the same user, in the same database."""
    make = Maker(target, asynchronous)
    where = f"at {target}"
    return OwnRedisResultStore(PerLoop(make, where) if asynchronous else PerProcess(make, where))


def default_client(store: Any, asynchronous: bool) -> ResultStore:
    """Through the client that the store was given, by its own commands."""
    if not store.awaited:
        results = RedisResultStore(Lent(store))
        return ThreadedResultStore(results) if asynchronous else results
    if not asynchronous:
        raise InvalidRequest("an asyncio client needs leasehold.aio.connect()")
    return RedisResultStore(LentAwaited(store))


class OwnRedisResultStore(RedisResultStore):
    """Its client is closed with it."""

    __slots__ = ("_own",)

    def __init__(self, client: PerLoop | PerProcess) -> None:
        super().__init__(client)
        self._own = client

    def close(self) -> Awaitable[None] | None:
        return self._own.close()


class Maker:
    """Makes clients of redis-py, or of valkey-py where only that is installed. What is missing is said at once."""

    def __init__(self, target: Target, asynchronous: bool) -> None:
        self._target = target
        self._package, self._client = _library(asynchronous)

    def __call__(self) -> Any:
        most = min(self._target.max_connections or MOST_CONNECTIONS, MOST_CONNECTIONS)
        pool = self._package.BlockingConnectionPool(
            max_connections=most, timeout=ANSWER, connection_class=self._kind(), **self._settings()
        )
        return self._client(connection_pool=pool)

    def _kind(self) -> Any:
        target = self._target
        name = (
            "UnixDomainSocketConnection" if target.path else "SSLConnection" if target.tls is not None else "Connection"
        )
        return getattr(self._package, name)

    def _settings(self) -> dict[str, Any]:
        """No retries: what has become of a call that was not answered is for whoever made it to decide."""
        target = self._target
        where = {"path": target.path} if target.path else {"host": target.host, "port": target.port}
        settings: dict[str, Any] = {
            **where, **_tls(target), "db": target.db, "client_name": target.client_name or None, "protocol": 2,
            "retry": None, "socket_timeout": min(ANSWER, target.reply_timeout),
        }  # fmt: skip
        if not target.path:
            settings["socket_connect_timeout"] = target.connect_timeout
        if target.credentials is not None:
            return settings | {"credential_provider": _provider(self._package, target)}
        user, password = target.login()
        return settings | {"username": user or None, "password": password or None}


def _library(asynchronous: bool) -> tuple[Any, Any]:
    for name, client in (("redis", "Redis"), ("valkey", "Valkey")):
        with suppress(ImportError):
            package = __import__(f"{name}.asyncio" if asynchronous else name, fromlist=[client])
            return package, getattr(package, client)
    raise Unsupported(
        "a result store beside a store on Redis or Valkey needs redis-py or valkey-py: pip install "
        "'leasehold[redis]', or say "
        "where else to keep it"
    )


def _tls(target: Target) -> dict[str, Any]:
    """As the store itself understands it: a host name is checked unless somebody says otherwise."""
    context = target.tls_context()
    if context is None or target.tls is None:
        return {}
    settings = {**target.tls, "ssl_cert_reqs": context.verify_mode, "ssl_check_hostname": context.check_hostname}
    if settings.get("ssl_min_version"):
        settings["ssl_min_version"] = context.minimum_version
    return settings


def _provider(package: Any, target: Target) -> Any:
    """For passwords that change: asked at each connect."""
    root = __import__(f"{package.__name__.partition('.')[0]}.credentials", fromlist=["CredentialProvider"])

    class Provider(root.CredentialProvider):  # type: ignore[misc, name-defined]  # of whichever package is installed
        def get_credentials(self) -> tuple[str, str]:
            return target.login()

        async def get_credentials_async(self) -> tuple[str, str]:
            return target.login()

    return Provider()


# ---------------------------------------------------------------- clients


class PerProcess:
    """A client for threads. A forked child makes its own, and leaves that of its parent alone."""

    leasehold_retries = False

    def __init__(self, make: Callable[[], Any], where: str) -> None:
        self.leasehold_where = where
        self._make = make
        self._clients: dict[int, Any] = {}  # by process: that of a parent is neither used nor closed
        self._closed = False

    def execute_command(self, *args: Any) -> Any:
        if self._closed:
            raise StoreUnavailable(f"the result store {self.leasehold_where} is closed")
        client = self._clients.get(os.getpid()) or self._clients.setdefault(os.getpid(), self._make())
        return client.execute_command(*args)

    def close(self) -> None:
        self._closed = True
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()
            client.connection_pool.disconnect()


class PerLoop:
    """A client for each event loop."""

    leasehold_retries = False

    def __init__(self, make: Callable[[], Any], where: str) -> None:
        self.leasehold_where = where
        self._make = make
        self._lives: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Life] = weakref.WeakKeyDictionary()
        self._closed = False

    async def execute_command(self, *args: Any) -> Any:
        if self._closed:
            raise StoreUnavailable(f"the result store {self.leasehold_where} is closed")
        loop = asyncio.get_running_loop()
        life = self._lives.get(loop)
        if life is None or life.pid != os.getpid():
            self._sweep()
            life = self._lives[loop] = Life(self._make())
            await life.begin()
        return await life.client.execute_command(*args)

    def _sweep(self) -> None:
        """Each is kept by what it has opened. Loops of other threads come and go meanwhile."""
        for loop in [one() for one in self._lives.keyrefs()]:
            if loop is not None and loop.is_closed():
                self._lives.pop(loop, None)

    async def close(self) -> None:
        """Those of other loops are told to, and not waited for."""
        self._closed = True
        lives, self._lives = self._lives, weakref.WeakKeyDictionary()
        for loop in [one() for one in lives.keyrefs()]:
            life = None if loop is None else lives.get(loop)
            if loop is None or life is None:
                continue
            if life.pid != os.getpid() or loop.is_closed():
                continue
            if loop is asyncio.get_running_loop():
                await life.end()
            else:
                with suppress(RuntimeError):  # it was closed at this moment
                    asyncio.run_coroutine_threadsafe(life.end(), loop)


class Life:
    """From the first command on a loop to the end of the loop: ``asyncio.run`` ends the generators that it has seen."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.pid = os.getpid()
        self._living = self._live()

    async def begin(self) -> None:
        await anext(self._living)

    async def end(self) -> None:
        await self._living.aclose()

    async def _live(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self.client.aclose()
            await self.client.connection_pool.disconnect()


class Lent:
    """The client of a store, under its lock: not every client may be used by several threads at once."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.leasehold_where, self.leasehold_retries = store.where, store.retries

    def execute_command(self, *args: Any) -> Any:
        return self._store.lend(args)


class LentAwaited(Lent):
    """The same for asyncio."""

    async def execute_command(self, *args: Any) -> Any:
        return await self._store.lend(args)
