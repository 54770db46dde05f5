"""The methods of the guard for Redis. Each builds one step; ``client`` sends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from leasehold._core.durations import seconds
from leasehold.errors import InvalidRequest
from leasehold.guards.fence import Fenced
from leasehold.guards.guard import BaseGuard
from leasehold.guards.redis.client import AsyncClient, Awaited, Blocking, Client, GuardClient, guard_method
from leasehold.guards.redis.keys import Key, Keys, Tag, check_key, check_keys
from leasehold.guards.redis.step import CALL, CHECK, Step, around

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from leasehold._core.durations import Duration
    from leasehold.observe.events import Observer
    from leasehold.stores.redis.lua import Script

    Way = TypeVarWithDefault("Way", default=Blocking)
else:
    Way = TypeVar("Way")

R = TypeVar("R")
Value = str | bytes | int | float

HOUR_MS = 3_600_000
CENTURY_MS = 100 * 365 * 24 * HOUR_MS
MOST_BITS = 1024  # of a number: Python refuses to print thousands of digits, and hiredis then ends the process
MANY = 2000  # fields at once: a Lua function takes a limited number of arguments


class FenceGuard(BaseGuard, Generic[Way]):
    """Refuses a stale owner in the same step as the command on your data. With an asyncio client, await it.

    ``client`` is your own, of redis-py or valkey-py, for one server or a Cluster; it is never closed here. ``keep`` is
    how long the record of a resource stays after a fence was presented; without it, for ever. A record that has ended
    is forgotten, so make it longer than any pause that you can imagine: ``"30d"``. ``tag`` returns the hash tag of the
    keys of a resource, where that is not the resource itself. All writers of a resource must use the same ``tag`` and
    the same ``keep``.

    ``downstream`` names in logs and metrics what it protects. A refusal is reported to the observers of the lease's
    coordinator; ``observers`` are for a service that has no coordinator and is given bare fences.

    In place of a lease every method takes a bare fence, with the ``resource`` that it belongs to and, where it is
    known, its ``owner``. ``StaleOwner`` says that nothing was changed. The methods below return a ``Step[bool]``: that
    is the bool itself, or with an asyncio client an awaitable of it.

    >>> import fakeredis
    >>> guard = FenceGuard(fakeredis.FakeRedis(decode_responses=True))
    >>> guard.set("report:42", "exported", 1794768018952706, resource="report-export:42")
    >>> guard.get("report:42", 1794768018952706, resource="report-export:42")
    'exported'
    >>> guard.set("report:42", "late", 1794768018952705, resource="report-export:42")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    leasehold.errors.StaleOwner: stale owner of report-export: ...
    """

    __slots__ = ("_client", "_keep", "_places")

    @overload
    def __init__(
        self: FenceGuard[Awaited],
        client: AsyncClient,
        *,
        keep: Duration | None = None,
        tag: Tag | None = None,
        downstream: str = "redis",
        observers: Iterable[Observer] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: FenceGuard[Blocking],
        client: Client,
        *,
        keep: Duration | None = None,
        tag: Tag | None = None,
        downstream: str = "redis",
        observers: Iterable[Observer] = (),
    ) -> None: ...
    def __init__(
        self,
        client: Any,
        *,
        keep: Duration | None = None,
        tag: Tag | None = None,
        downstream: str = "redis",
        observers: Iterable[Observer] = (),
    ) -> None:
        super().__init__(downstream=downstream, observers=observers)
        self._client = GuardClient(client)
        self._places = Keys(tag, self._client.slot)
        self._keep = 0 if keep is None else _ms(keep, "keep", HOUR_MS)

    def key(self, name: str, lease: Fenced | None = None, *, resource: str | None = None) -> str:
        """A name for a key of yours that is in the Cluster slot of this resource: ``{report-export:42}:body``."""
        if lease is None and resource is None:
            raise InvalidRequest("guard.key() takes a lease, or resource=: its keys are named after it")
        return self._places.key(name, resource if lease is None or resource is not None else lease.resource)

    # ------------------------------------------------------------ before you read

    @guard_method
    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Step[None]:
        """Accept and remember this fence, or raise StaleOwner: from here on no older one is accepted. What you write
        later is another step, which needs the guard again."""
        return self._step(CHECK, (), (), _nothing, lease_or_fence, resource, owner, shared)

    @guard_method
    def get(
        self,
        key: Key,
        lease: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Step[Any]:
        """Check, and read a value: as your client returns it, None where there is none. Read what you are going to
        change through the guard, so that no older owner changes it after that."""
        return self._call(b"GET", key, (), _as_it_is, lease, resource, owner, shared)

    @guard_method
    def hget(
        self,
        key: Key,
        field: Value,
        lease: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Step[Any]:
        """Check, and read a field of a hash."""
        return self._call(b"HGET", key, (_value(field, "field"),), _as_it_is, lease, resource, owner, shared)

    # ------------------------------------------------------------ writes

    @guard_method
    def set(
        self,
        key: Key,
        value: Value,
        lease: Fenced | int,
        *,
        ttl: Duration | None = None,
        resource: str | None = None,
        owner: str | None = None,
    ) -> Step[None]:
        """Check, and set a value, which ends after ``ttl``. Without one it stays, even if it had one before."""
        lasting = () if ttl is None else (b"PX", _ms(ttl, "ttl", 1))
        return self._call(b"SET", key, (_value(value, "value"), *lasting), _nothing, lease, resource, owner)

    @guard_method
    def delete(
        self, key: Key, lease: Fenced | int, *, resource: str | None = None, owner: str | None = None
    ) -> Step[bool]:
        """Check, and delete a key of any type. Was it there?"""
        return self._call(b"DEL", key, (), bool, lease, resource, owner)

    @guard_method
    def hset(
        self,
        key: Key,
        fields: Mapping[Any, Value],
        lease: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
    ) -> Step[int]:
        """Check, and set fields of a hash: ``guard.hset("report:42", {"status": "done"}, lease)``. How many are new?"""
        if not isinstance(fields, Mapping):
            raise InvalidRequest(f"hset takes fields and their values as a dict, not {type(fields).__name__}")
        pairs = [part for name, value in fields.items() for part in (_value(name, "field"), _value(value, "value"))]
        return self._call(b"HSET", key, _some(pairs), int, lease, resource, owner)

    @guard_method
    def hdel(
        self,
        key: Key,
        fields: Value | Sequence[Value],
        lease: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
    ) -> Step[int]:
        """Check, and delete one field of a hash, or several. How many were there?"""
        several = fields if isinstance(fields, (list, tuple)) else [fields]
        names = _some([_value(name, "field") for name in several])
        return self._call(b"HDEL", key, names, int, lease, resource, owner)

    @guard_method
    def eval(
        self,
        body: str,
        lease: Fenced | int,
        *,
        keys: Sequence[Key] = (),
        args: Sequence[Value] = (),
        resource: str | None = None,
        owner: str | None = None,
    ) -> Step[Any]:
        """Check, and run a Lua script of yours, which finds ``KEYS`` and ``ARGV`` as usual and returns what you get.

        Name all its keys in ``keys``, and pass what changes in ``args``: the server keeps every text that it has seen.
        An error in it raises OutcomeUnknown: what it did before that is not undone."""
        if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
            raise InvalidRequest("args is a list of values")
        values = tuple([_value(value, "an argument") for value in args])
        return self._step(around(body), check_keys(keys), values, _as_it_is, lease, resource, owner)

    # ------------------------------------------------------------ one step

    def _call(
        self,
        command: bytes,
        key: Key,
        values: tuple[Any, ...],
        read: Callable[[Any], R],
        lease: Fenced | int,
        resource: str | None,
        owner: str | None,
        shared: bool = False,
    ) -> Step[R]:
        return self._step(CALL, (check_key(key),), (command, *values), read, lease, resource, owner, shared)

    def _step(
        self,
        script: Script,
        keys: tuple[Key, ...],
        values: tuple[Any, ...],
        read: Callable[[Any], R],
        lease: Fenced | int,
        resource: str | None,
        owner: str | None,
        shared: bool = False,
    ) -> Step[R]:
        attempt = self.present(lease, resource, owner, shared)
        record = self._places.record(attempt.resource)
        self._places.check_slots(keys, record)
        # Bytes and numbers, never text: a client may have an encoding of its own.
        rule = (self._keep, 1 if shared else 0, (attempt.owner or "-").encode(), attempt.fence)
        refused = partial(self.refused, lease, attempt)
        return Step(attempt, refused, script, (*keys, record), (*values, *rule), read)

    def _send(self, build: Callable[..., Step[R]], *args: Any, **more: Any) -> Any:
        step = build(self, *args, **more)
        return self._client.send(step)

    def __repr__(self) -> str:
        return f"<FenceGuard {self._client.where}>"


def _ms(value: object, what: str, least_ms: int) -> int:
    ms = math.ceil(round(min(seconds(value, what) * 1000, CENTURY_MS + 1.0), 6))
    if not least_ms <= ms <= CENTURY_MS:
        least = "above zero" if least_ms == 1 else "at least 1h, and longer than any pause of a holder"
        raise InvalidRequest(f"{what} must be {least}, and at most 100 years; leave it out for ever")
    return ms


def _value(value: Any, what: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, bytes, int, float)):
        raise InvalidRequest(f"{what} must be text, bytes or a number, not {type(value).__name__}")
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise InvalidRequest(f"{what} is a number of more than {MOST_BITS} bits: write it as text")
    return value


def _some(values: list[Any]) -> tuple[Any, ...]:
    if not 0 < len(values) <= 2 * MANY:
        raise InvalidRequest(f"name 1 to {MANY} fields; for more, eval a script of your own")
    return tuple(values)


def _nothing(reply: Any) -> None:
    """The reader of a reply that carries no result."""


def _as_it_is(reply: Any) -> Any:
    return reply
