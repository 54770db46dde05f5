"""A result store on Redis or Valkey: two keys for each resource, one script and one round trip for each call.

    results:v1:{<resource>}:value   the text, with the fence under which it was written; ends with ``keep``
    results:v1:{<resource>}:fence   the last fence that was presented, and a digest of its owner; a day longer

Both are in one slot of a Cluster. Braces in the name of a resource are percent-encoded, and the name is then repeated
at the end. Time is the server's. After a failover that loses the value it is missing, never wrong; one that loses the
fence too lets a holder that was paused since then write once more, where no newer holder has presented a fence yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.guards.fence import Fenced, Presented, check_resource, label
from leasehold.guards.redis.client import GuardClient
from leasehold.guards.redis.step import FOLDER as RULE
from leasehold.guards.redis.step import NO, Step
from leasehold.patterns.results.result_store import (
    REMEMBERED_MS,
    Entry,
    ResultStore,
    check_keep,
    check_text,
    timed_entry,
)
from leasehold.stores.redis.failures import TooManyConnections
from leasehold.stores.redis.lua import assemble, make_script

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.connections import ConnectionPool
    from leasehold.observe.events import Observer

FOLDER = Path(__file__).parent / "scripts"
PREFIX = "results:v1:"
REPLY_SECONDS = 5.0  # for a script over a coordinator's own connection
CLUSTER = "is a node of a Cluster: give the result store a client for all of it, such as redis.RedisCluster"
REFUSALS = {
    **NO,
    "ASK": CLUSTER,
    "MOVED": CLUSTER,
    "NOPERM": "does not allow this user what a result store needs; docs/patterns/result-stores.md has the ACL line",
}
_BRACES = str.maketrans({"{": "%7B", "}": "%7D"})


_FOREIGN, _NEWER, _RULE = assemble(FOLDER, "_foreign"), assemble(FOLDER, "_newer"), assemble(RULE, "_rule")
READ = make_script(assemble(FOLDER, "read"))
OPEN, WRITE = (make_script(_FOREIGN, _NEWER, _RULE, assemble(FOLDER, name)) for name in ("open", "write"))


class RedisResultStore(ResultStore):
    """On the server of your own client, of redis-py or valkey-py, for one server or a Cluster. The client is never
    closed here. With an asyncio client the calls are awaited.

    OutcomeUnknown means that a write may or may not have been done: the same holder may repeat it.

    >>> import fakeredis, leasehold
    >>> results = RedisResultStore(fakeredis.FakeRedis())
    >>> with leasehold.connect("memory://") as hold, hold.lock("page", 42) as lease:
    ...     results.write(lease, "<h1>42</h1>", keep="1m")
    >>> results.read("page:42").text
    '<h1>42</h1>'
    """

    __slots__ = ("_client",)

    def __init__(self, client: Any, *, downstream: str = "results", observers: Iterable[Observer] = ()) -> None:
        super().__init__(downstream=downstream, observers=observers)
        self._client = GuardClient(client, "RedisResultStore()")

    def read(self, resource: str) -> Any:
        name = check_resource(resource)
        value, _ = _keys(name)
        return self._send(ReadStep(Presented(name, 0), _never_refused, READ, (value,), (), partial(_entry, name)))

    def open(self, lease: Fenced) -> Any:
        attempt = self.present(lease)
        value, record = _keys(attempt.resource)
        values = (REMEMBERED_MS, *_rule(attempt, REMEMBERED_MS))
        refused = partial(self.refused, lease, attempt)
        keys = (value, record, record)
        return self._send(WriteStep(attempt, refused, OPEN, keys, values, partial(_entry, attempt.resource)))

    def write(self, lease: Fenced, text: str | None, keep: Duration) -> Any:
        new, keep_ms = check_text(text), check_keep(keep)
        attempt = self.present(lease)
        content = () if new is None else (len(new), new.encode())
        values = (keep_ms, attempt.fence, *content, *_rule(attempt, keep_ms + REMEMBERED_MS))
        refused = partial(self.refused, lease, attempt)
        return self._send(WriteStep(attempt, refused, WRITE, _keys(attempt.resource), values, _nothing))

    def _send(self, step: Step[Any]) -> Any:
        return self._client.send(step)

    def __repr__(self) -> str:
        return f"<RedisResultStore {self._client.where}>"


def _keys(resource: str) -> tuple[bytes, bytes]:
    """As bytes: clients with different encodings must find the same ones."""
    tag = resource.translate(_BRACES) if "{" in resource or "}" in resource else resource
    more = "" if tag == resource else f":{resource}"
    return f"{PREFIX}{{{tag}}}:value{more}".encode(), f"{PREFIX}{{{tag}}}:fence{more}".encode()


def _rule(attempt: Presented, keep_ms: int) -> tuple[Any, ...]:
    """The arguments of the guard rule: keep_ms shared owner fence."""
    return keep_ms, 0, (attempt.owner or "-").encode(), attempt.fence


def _never_refused(seen: int) -> NoReturn:
    raise AssertionError("a read is never refused")


def _nothing(reply: Any) -> None:
    """The reader of a reply that carries no result."""


# ---------------------------------------------------------------- replies


def _entry(resource: str, reply: Any) -> Entry | None:
    """The entry in a value as a client returns it: bytes, or text that it has decoded."""
    if reply is None:
        return None
    value, seconds, micros, left_ms = reply
    try:
        text = value.decode() if isinstance(value, bytes) else value
        *numbers, content = text.split(" ", 4)
        fence, written, keep_ms, length = map(int, numbers)
        wrong = len(content) - length
        age_ms = (int(seconds) * 1_000_000 + int(micros) - written) / 1000
    except ValueError as error:
        raise _foreign(resource, "value") from error
    if wrong:
        raise InvalidRequest(
            "this client decodes replies with another encoding than UTF-8: give the result store one without "
            "decode_responses"
        )
    left = int(left_ms) if int(left_ms) >= 0 else keep_ms - age_ms  # another program has removed its end
    return timed_entry(content, fence, age_ms, left, keep_ms) if left > 0 else None


def _foreign(resource: str, which: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"at the key results:v1:{{...}}:{which} of {label(resource)} is something that no result store has written: "
        "nothing was accepted. See who writes there, and delete it"
    )


class WriteStep(Step[Any]):
    """A step of a result store that writes, or presents a fence."""

    no = REFUSALS

    def _explained(self, error: Exception) -> LeaseholdError | None:
        for word, which in (("FOREIGNRECORD", "fence"), ("FOREIGNVALUE", "value")):
            if str(error).startswith(word):
                return _foreign(self._attempt.resource, which)
        return super()._explained(error)

    def _again(self) -> str:
        return "It may be repeated: the result store accepts the same owner again"


class ReadStep(WriteStep):
    """A step that changes nothing: a reply that was lost leaves nothing unknown."""

    def failure(self, server: str, error: Exception, retries: bool) -> LeaseholdError:
        found = super().failure(server, error, retries)
        found.fence = None
        if not isinstance(found, OutcomeUnknown):
            return found
        return StoreUnavailable(
            f"it could not be read: {found}".partition(" It may be repeated")[0], resource=found.resource
        )


# ---------------------------------------------------------------- beside the leases
#
# The default result store of a coordinator on Redis sends its scripts over the coordinator's own connections: its
# threads take one from its pool for each call, and an event loop uses the one that it has for its claims. So the login,
# TLS, time limits, reconnecting and forks are those of the leases, and nothing more is opened, unless as many as
# max_connections allows are in use.


def redis_results(store: Any, pool: ConnectionPool, driver: AsyncDriver | None) -> ResultStore:
    """The result store beside the leases of ``store``. ``driver`` is that of a coordinator for asyncio. A store that
    uses the commands of a client says whether those are ``awaited``."""
    if driver is not None and getattr(store, "awaited", True):
        return RedisResultStore(LoopClient(store, driver))
    if getattr(store, "awaited", False):
        raise InvalidRequest("an asyncio client needs leasehold.aio.connect()")
    results = RedisResultStore(PoolClient(store, pool))
    if driver is None:
        return results
    from leasehold.patterns.results.threaded import ThreadedResultStore  # loads asyncio

    return ThreadedResultStore(results)


class OwnClient:
    """What a client over a coordinator's own connections has in common with a user's client."""

    def __init__(self, store: Any) -> None:
        self.leasehold_where: str = store.where
        self.leasehold_retries: bool = store.retries


class PoolClient(OwnClient):
    """Sends commands on the calling thread, over a connection of the coordinator's pool."""

    def __init__(self, store: Any, pool: ConnectionPool) -> None:
        super().__init__(store)
        self._store = store
        self._pool = pool

    def execute_command(self, *command: Any) -> Any:
        connection: Any = self._pool.borrow()
        try:
            return connection.execute_command(command, REPLY_SECONDS)
        except TooManyConnections as error:
            refused = error
        finally:
            self._pool.give_back(connection)
        return self._store.execute_beyond_limit(command, REPLY_SECONDS, refused)


class LoopClient(OwnClient):
    """Sends commands over the connection of the running event loop."""

    def __init__(self, store: Any, driver: AsyncDriver) -> None:
        super().__init__(store)
        self._driver = driver

    async def execute_command(self, *command: Any) -> Any:
        import asyncio

        connection: Any = self._driver.connection(asyncio.get_running_loop()).subscriber
        return await connection.execute_command(command, REPLY_SECONDS)
