"""The store over a user's own client: the same scripts, sent by the client's own commands.

There are no pushes, and the client decides how often a command is repeated and how long it may take. So every release
leaves a tombstone, and a repeated one gets the same reply.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence

from leasehold._core.driver import drive, drive_async
from leasehold._core.light_typing import Any
from leasehold._core.ops import Group, Push, Release, Reply, StoreOp
from leasehold._core.policy import tombstone_ms
from leasehold._core.ports import Clock
from leasehold._core.types import Capabilities
from leasehold.errors import InvalidRequest, LeaseholdError, StoreUnavailable, Unsupported
from leasehold.observe import log
from leasehold.stores.clock import SystemClock
from leasehold.stores.redis import clients, failures, protocol
from leasehold.stores.redis.clients import family
from leasehold.stores.redis.cluster.nodes import Cluster
from leasehold.stores.redis.sentinel import SentinelServer
from leasehold.stores.redis.store import RedisStore
from leasehold.stores.redis.target import CONNECT_TIMEOUT, TLS_OPTIONS, Sentinels, Target


class ClientStore:
    """Implements ``_core.ports.Store``."""

    name = "redis"
    capabilities = Capabilities(push=False, durable_fences=False, hosts=True, keyspace=True)

    def __init__(self, client: Any, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self._client = client
        self.where = clients.description(client)
        self.retries = clients.retries(client)
        self.url = f"redis {self.where}"  # its address may be unknown to us
        self._options = clients.undecoded(client)
        self._server = f"Redis {self.where}"
        self._batch_thread: threading.Thread | None = None
        self.awaited = inspect.iscoroutinefunction(client.execute_command)  # an asyncio client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.RLock()  # not every client may be used by several threads at once
        self._closed = False

    def execute(self, op: StoreOp) -> Reply:
        if self.awaited:
            raise InvalidRequest("an asyncio client needs leasehold.aio.connect()")
        with self._lock:
            return drive(self._flow(op), self._perform)

    async def execute_async(self, op: StoreOp) -> Reply:
        self._loop = asyncio.get_running_loop()
        if not self.awaited:
            return await self._loop.run_in_executor(None, self.execute, op)
        return await drive_async(self._flow(op), self._perform)

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """For the watchdog's thread, which has deadlines to keep: it does not wait for a client that takes longer. An
        asyncio client is used on its own loop: while that loop is blocked, nothing can be renewed."""
        if not ops:
            return []
        seconds = min(op.budget_ms for op in ops) / 1000
        replies = self._many_on_loop(ops, seconds) if self.awaited else self._many_in_thread(ops, seconds)
        return replies or [failures.unanswered(self._server, TimeoutError())] * len(ops)

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
        if self._batch_thread is not None and self._batch_thread.is_alive():
            return [StoreUnavailable("the client is still busy with the last call")] * len(ops)
        replies: list[Reply | LeaseholdError] = []
        give_up = time.monotonic() + seconds
        thread = threading.Thread(
            target=lambda: replies.extend(self._many(ops, give_up)), name="leasehold-client", daemon=True
        )
        thread.start()
        self._batch_thread = thread
        thread.join(seconds)
        return list(replies)

    def connection(self) -> ClientConnection:
        return ClientConnection(self)

    def listen(self, notify: Callable[[Push], None]) -> ClientConnection:
        return self.connection()

    def holder_pushes(self) -> None:
        """Nothing is ever pushed."""

    def before_fork(self) -> None:
        """The client takes care of its own sockets."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        self._lock = threading.RLock()
        self._loop = None

    def close(self) -> None:
        """The client stays open: it is the user's."""
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
        return protocol.command(protocol.without_pushes(_with_tombstone(op)))

    def _flow(self, op: StoreOp) -> Generator[protocol.Command, Any, Reply]:
        """A script that the server does not know is sent in full."""
        command = self._prepare(op)
        for attempt in (command, protocol.with_text(command)):
            try:
                reply = yield attempt
            except Exception as error:
                if attempt is command and clients.unknown_script(error):
                    continue
                raise clients.explained(self._server, error, self.retries) from error
            return protocol.decode(reply, op)
        raise AssertionError("the second attempt returns or raises")

    def _perform(self, command: protocol.Command) -> Any:
        return self._client.execute_command(*command, **self._options)

    # ------------------------------------------------------------ many at once

    def _many(self, ops: Sequence[StoreOp], give_up: float) -> list[Reply | LeaseholdError]:
        replies: list[Reply | LeaseholdError] = []
        for op in ops:
            try:
                if time.monotonic() >= give_up:
                    raise StoreUnavailable("there was no time left to send it")
                replies.append(self.execute(op))
            except LeaseholdError as error:
                replies.append(error)
        return replies

    async def _many_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        replies: list[Reply | LeaseholdError] = []
        for op in ops:
            try:
                replies.append(await self.execute_async(op))
            except LeaseholdError as error:
                replies.append(error)
        return replies


def _with_tombstone(op: StoreOp) -> StoreOp:
    """A release that leaves a tombstone; any other op as it is."""
    if isinstance(op, Release) and not op.forget_ms:
        return op._replace(forget_ms=tombstone_ms(0))
    if isinstance(op, Group):
        steps: Any = tuple([_with_tombstone(step) for step in op.steps])
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
# The settings of most clients are enough to open connections of our own. A client that cannot be reduced to an address,
# such as a test double, is used through its own commands. It is never closed by us.


CONNECTIONS = ("Connection", "SSLConnection", "UnixDomainSocketConnection")
# Settings of a client's connections that ours do not have.
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
    "ClusterPipeline": "a pipeline sends nothing until it is executed: give it the client",
    "Pipeline": "a pipeline sends nothing until it is executed: give it the client",
    "PubSub": "give it the client",
    "Lock": "give it the client",
}


CLUSTERS = ("RedisCluster", "ValkeyCluster")


def open_client(client: Any, clock: Clock | None = None) -> RedisStore | ClientStore:
    """The store behind a client. Sends nothing."""
    clients.check(client, "connect()", REFUSED)
    if any(cls.__name__ in CLUSTERS and family(cls) for cls in type(client).__mro__):
        from leasehold.stores.redis.cluster.store import ClusterStore

        return ClusterStore(cluster_of(client), clock)
    sentinels = sentinels_of(client)
    if sentinels is not None:
        return RedisStore(SentinelServer(sentinels), clock)
    target = address_of(client)
    if target is None:
        log.debug("%s is used through its own commands: slower, and without pushes", type(client).__name__)
        return ClientStore(client, clock)
    return RedisStore(target, clock)


def address_of(client: Any) -> Target | None:
    """The address of its server and the login there; None for a client that does more than connect and send."""
    pool = getattr(client, "connection_pool", None)
    kind: Any = getattr(pool, "connection_class", None)
    settings = getattr(pool, "connection_kwargs", None)
    known = inspect.isclass(kind) and kind.__name__ in CONNECTIONS and kind.__module__.endswith(".connection")
    if not known or not family(kind) or not isinstance(settings, dict) or not _sends_unchanged(client):
        return None
    if not family(type(pool)) or _special(settings):
        return None
    return target_of(settings, kind.__name__ == "SSLConnection").checked()


def target_of(settings: Mapping[str, Any], secure: bool) -> Target:
    """The settings of a client's connections, as ours have them."""
    provider = settings.get("credential_provider")
    return Target(
        host=settings.get("host") or "localhost",
        port=int(settings.get("port") or 6379),
        path=str(settings.get("path") or ""),
        db=int(settings.get("db") or 0),
        username=settings.get("username") or "",
        password=settings.get("password") or "",
        credentials=provider.get_credentials if provider is not None else None,
        tls={name: settings[name] for name in TLS_OPTIONS if settings.get(name) is not None} if secure else None,
        client_name=settings.get("client_name") or "",
        connect_timeout=float(settings.get("socket_connect_timeout") or CONNECT_TIMEOUT),
    )


def cluster_of(client: Any) -> Cluster:
    """The nodes that a client of a Cluster begins with, and the settings of its connections. Its own connections are
    not used, so one that does more than connect and send is refused."""
    manager = getattr(client, "nodes_manager", None)
    settings: Any = getattr(client, "connection_kwargs", None) or getattr(manager, "connection_kwargs", None)
    nodes = [(node.host, int(node.port)) for node in getattr(manager, "startup_nodes", {}).values()]
    own = [name for name in SPECIAL if not name.endswith("_connect_func")]
    special = not isinstance(settings, dict) or any(settings.get(name) for name in own)
    if special or not nodes or not _sends_unchanged(client) or getattr(client, "user_on_connect_func", None):
        raise Unsupported(
            f"connect() cannot use this {type(client).__name__}: it has settings or commands of its own, which "
            "Leasehold's connections do not have. Give a URL such as redis+cluster://host1,host2"
        )
    secure = bool(settings.get("ssl")) or getattr(settings.get("connection_class"), "__name__", "") == "SSLConnection"
    if _only_async(settings.get("credential_provider")):
        raise Unsupported("connect() cannot use a credential provider that gets credentials for asyncio only")
    return Cluster(target_of(settings, secure).checked(), nodes, getattr(manager, "address_remap", None))


def _special(settings: dict[str, Any]) -> bool:
    """True for settings of connections that ours do not have."""
    return any(settings.get(name) for name in SPECIAL) or _only_async(settings.get("credential_provider"))


def sentinels_of(client: Any) -> Sentinels | None:
    """The Sentinels of ``sentinel.master_for(name)``, or of a ``Sentinel`` that watches one service; None for any other
    client, and for one that does more than ask, connect and send."""
    if _is_sentinel(client):
        settings = client.connection_kwargs
        found = _sentinels(client, "", settings, bool(settings.get("ssl")))
        if found is None:
            raise Unsupported("connect() cannot use the settings of this Sentinel: give it sentinel.master_for(name)")
        return found
    pool: Any = getattr(client, "connection_pool", None)
    manager = getattr(pool, "sentinel_manager", None)
    if not _is_sentinel(manager) or not _is_primary_pool(client, pool):
        return None
    tls = pool.connection_class.__name__ == "SentinelManagedSSLConnection"
    return _sentinels(manager, pool.service_name, pool.connection_kwargs, tls)


def _sentinels(manager: Any, service: str, settings: dict[str, Any], tls: bool) -> Sentinels | None:
    if not all(_is_own(manager, name) for name in ("discover_master", "check_master_state")):
        return None  # a subclass of the user's finds the primary in its own way
    addresses = [address_of(one) for one in manager.sentinels]
    targets = tuple([target for target in addresses if target is not None])
    if not targets or len(targets) < len(addresses) or _special(settings):
        return None
    return Sentinels(
        targets=targets,
        service=service,
        primary=target_of(settings, tls).checked(),
        force_host=str(getattr(manager, "_force_master_ip", None) or ""),
        least_others=int(manager.min_other_sentinels or 0),
    )


def _is_sentinel(thing: Any) -> bool:
    """True for a Sentinel of redis-py or valkey-py."""
    return any(cls.__name__ == "Sentinel" and family(cls) for cls in type(thing).__mro__)


def _is_primary_pool(client: Any, pool: Any) -> bool:
    """True for a pool of connections to the primary as the library made it."""
    if family(type(pool)) and not pool.is_master:
        raise Unsupported("connect() cannot use a client of replicas: give it sentinel.master_for(name)")
    kind = pool.connection_class
    known = kind.__name__ in ("SentinelManagedConnection", "SentinelManagedSSLConnection")
    return bool(known and family(kind) and family(type(pool)) and _sends_unchanged(client))


def _is_own(thing: Any, name: str) -> bool:
    """True when the library's own class defines the method."""
    for cls in type(thing).__mro__:
        if name in vars(cls):
            return family(cls) != "" and name not in vars(thing)
    return False


def _only_async(provider: Any) -> bool:
    """True when it gets credentials for asyncio only. redis-py's own base class has neither method."""
    for cls in type(provider).__mro__:
        if "get_credentials" in vars(cls):
            return cls.__name__ == "CredentialProvider" and family(cls) != ""
    return False


def _sends_unchanged(client: Any) -> bool:
    """True when commands go to the server as they are: no subclass of the user's changes them on the way."""
    return _is_own(client, "execute_command")
