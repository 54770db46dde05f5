"""The store over somebody's own client: the same scripts, sent through its own commands. There are no pushes, and how
often a command is repeated or how long it may take is the client's to say; so every release leaves a tombstone, and a
repeated one gets the same answer."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Sequence

from leasehold._core.light_typing import Any
from leasehold._core.ops import Group, Push, Release, Reply, StoreOp
from leasehold._core.policy import tombstone_ms
from leasehold._core.ports import Clock
from leasehold._core.types import Capabilities
from leasehold.errors import InvalidRequest, LeaseholdError, StoreUnavailable
from leasehold.observe import log
from leasehold.stores.clock import SystemClock
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.client_types import behind, check_client, family, retries, undecoded
from leasehold.stores.redis.store import RedisStore
from leasehold.stores.redis.target import CONNECT_TIMEOUT, TLS_OPTIONS, Target


class ClientStore:
    """Implements ``core.ports.Store``."""

    name = "redis"
    capabilities = Capabilities(push=False, durable_fences=False, hosts=True)

    def __init__(self, client: Any, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self._client = client
        self.where = behind(client)
        self.retries = retries(client)
        self._options = undecoded(client)
        self._server = f"Redis {self.where}"
        self._asking: threading.Thread | None = None
        self.awaited = inspect.iscoroutinefunction(client.execute_command)  # an asyncio client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.RLock()  # not every client may be used by several threads at once
        self._closed = False

    def execute(self, op: StoreOp) -> Reply:
        command = self._prepare(op)
        if self.awaited:
            raise InvalidRequest("an asyncio client needs leasehold.aio.connect()")
        return protocol.decode(self._call(command), op)

    async def execute_async(self, op: StoreOp) -> Reply:
        self._loop = asyncio.get_running_loop()
        if not self.awaited:
            return await self._loop.run_in_executor(None, self.execute, op)
        return protocol.decode(await self._await(self._prepare(op)), op)

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """From the watchdog's thread, which has deadlines to keep: a client that takes longer is left to it. An asyncio
        client is asked on its own loop: while that is blocked, nothing can be renewed."""
        if not ops:
            return []
        seconds = min(op.budget_ms for op in ops) / 1000
        answers = self._many_on_loop(ops, seconds) if self.awaited else self._many_in_thread(ops, seconds)
        return answers or [failures.unanswered(self._server, TimeoutError())] * len(ops)

    def _many_on_loop(self, ops: Sequence[StoreOp], seconds: float) -> list[Reply | LeaseholdError]:
        loop = self._loop
        if loop is None or loop.is_closed():
            return [StoreUnavailable("the event loop of the client is closed")] * len(ops)
        task = asyncio.run_coroutine_threadsafe(self._many_async(ops), loop)
        try:
            return task.result(seconds)
        except TimeoutError:
            task.cancel()
            return []

    def _many_in_thread(self, ops: Sequence[StoreOp], seconds: float) -> list[Reply | LeaseholdError]:
        if self._asking is not None and self._asking.is_alive():
            return [StoreUnavailable("the client has not come back from the last call")] * len(ops)
        answers: list[Reply | LeaseholdError] = []
        give_up = time.monotonic() + seconds
        asking = threading.Thread(
            target=lambda: answers.extend(self._many(ops, give_up)), name="leasehold-borrowed", daemon=True
        )
        asking.start()
        self._asking = asking
        asking.join(seconds)
        return list(answers)

    def connection(self) -> ClientConnection:
        return ClientConnection(self)

    def listen(self, notify: Callable[[Push], None]) -> ClientConnection:
        return self.connection()

    def holder_pushes(self) -> None:
        """Nothing is ever pushed."""

    def before_fork(self) -> None:
        """The client looks after its own sockets."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        self._lock = threading.RLock()
        self._loop = None

    def close(self) -> None:
        """The client is not ours to close."""
        self._closed = True

    def execute_command(self, command: protocol.Command, seconds: float) -> Any:
        """Send a command that is not an op, such as a script of a result store: awaitable with an asyncio client. How
        long it takes is up to the client, and errors are the client's own."""
        self._check_open()
        if self.awaited:
            return self._client.execute_command(*command)
        with self._lock:
            return self._client.execute_command(*command)

    # ------------------------------------------------------------ one command

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _prepare(self, op: StoreOp) -> protocol.Command:
        self._check_open()
        return protocol.command(protocol.without_pushes(_remembered(op)))

    def _call(self, command: protocol.Command) -> Any:
        with self._lock:
            try:
                return self._client.execute_command(*command, **self._options)
            except Exception as error:
                if not failures.unknown_script(error):
                    raise failures.of_client(self._server, error, self.retries) from error
            try:
                return self._client.execute_command(*protocol.with_text(command), **self._options)
            except Exception as error:
                raise failures.of_client(self._server, error, self.retries) from error

    async def _await(self, command: protocol.Command) -> Any:
        try:
            return await self._client.execute_command(*command, **self._options)
        except Exception as error:
            if not failures.unknown_script(error):
                raise failures.of_client(self._server, error, self.retries) from error
        try:
            return await self._client.execute_command(*protocol.with_text(command), **self._options)
        except Exception as error:
            raise failures.of_client(self._server, error, self.retries) from error

    # ------------------------------------------------------------ many at once

    def _many(self, ops: Sequence[StoreOp], give_up: float) -> list[Reply | LeaseholdError]:
        answers: list[Reply | LeaseholdError] = []
        for op in ops:
            try:
                if time.monotonic() >= give_up:
                    raise StoreUnavailable("there was no time left to ask")
                answers.append(self.execute(op))
            except LeaseholdError as error:
                answers.append(error)
        return answers

    async def _many_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        answers: list[Reply | LeaseholdError] = []
        for op in ops:
            try:
                answers.append(await self.execute_async(op))
            except LeaseholdError as error:
                answers.append(error)
        return answers


def _remembered(op: StoreOp) -> StoreOp:
    """Every release leaves a tombstone."""
    if isinstance(op, Release) and not op.forget_ms:
        return op._replace(forget_ms=tombstone_ms(0))
    if isinstance(op, Group):
        steps: Any = tuple([_remembered(step) for step in op.steps])
        return op._replace(steps=steps)
    return op


class ClientConnection:
    """Implements ``_core.ports.Connection`` and ``AsyncConnection``. It gets no pushes: a waiter beats again."""

    address = ""

    def __init__(self, store: ClientStore) -> None:
        self.execute, self.execute_async = store.execute, store.execute_async
        self.execute_command = store.execute_command

    def next_push(self, seconds: float) -> Push | None:
        time.sleep(seconds)
        return None

    def close(self) -> None:
        """Nothing is open."""


# ---------------------------------------------------------------- clients
#
# Somebody's own client object: what it knows of its server is enough for connections of our own. One that cannot be
# reduced to an address, such as a test double, is used through its own commands. It is never closed by us.


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


def open_client(client: Any, clock: Clock | None = None) -> RedisStore | ClientStore:
    """The store behind a client. Sends nothing."""
    check_client(client, "connect()", REFUSED)
    target = reduce(client)
    if target is None:
        log.debug("%s is used through its own commands: slower, and without pushes", type(client).__name__)
        return ClientStore(client, clock)
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
