"""The handshake on a new connection: log in, switch to RESP3, subscribe to pushes, and check that the server will do.

It is written once, as a flow that yields lists of commands to be sent together and is sent their replies. Threads and
event loops drive it over their own sockets (``_core.driver``).
"""

from __future__ import annotations

from collections.abc import Generator

import hiredis

from leasehold._core.light_typing import Any
from leasehold.errors import LeaseholdError, StoreUnavailable, Unsupported
from leasehold.observe import log
from leasehold.stores.redis import failures
from leasehold.stores.redis.protocol import Command
from leasehold.stores.redis.sockets import SLOW, Broken
from leasehold.stores.redis.target import Target

OLDEST = (6, 2)
GARBAGE, TLS_ALERT = "Protocol error", '"\\x15"'  # as hiredis reports them; a TLS alert begins with that byte
WANTS_TLS = "if this port wants TLS, connect with it (rediss://)"
ReplyError = hiredis.ReplyError

Flow = Generator[list[Command], list[Any], Any]


class Handshake:
    """The handshake of one connection, which wants the pushes published to ``channel``. The ``first`` connection to a
    server also checks how that server is configured."""

    def __init__(self, target: Target, channel: str, first: bool) -> None:
        self._target = target
        self._channel = channel
        self._first = first
        self._answered = False

    def flow(self) -> Generator[list[Command], list[Any], bool]:
        """Returns whether this connection receives pushes."""
        try:
            resp3 = self._target.resp == 3 and (yield from self._hello())
            if not resp3:
                yield from self._log_in_with_resp2()
            pushes: bool = yield from self._set_up(resp3)
        except Broken as error:
            raise self._interrupted(error) from error
        if not pushes:
            log.debug("Redis at %s: no pushes on this connection, so the first waiter polls", self._target)
        return pushes

    def _set_up(self, resp3: bool) -> Flow:
        target = self._target
        selected, subscribed, memory = yield from self._exchange(
            ("SELECT", target.db) if target.db else ("PING",),  # a user need not be allowed more than it needs
            self._subscription() if resp3 else ("PING",),
            ("INFO", "memory") if self._first else ("PING",),
        )
        if target.db and isinstance(selected, ReplyError):
            raise StoreUnavailable(f"Redis at {target} has no database {target.db} for us: {selected}") from selected
        if self._first:
            _warn_of_eviction(target, memory)
        return resp3 and not isinstance(subscribed, ReplyError)

    def _subscription(self) -> Command:
        return ("SUBSCRIBE", self._channel)

    def _hello(self) -> Flow:
        """Returns whether the server speaks RESP3."""
        target = self._target
        user, password = _login(target)
        hello: Command = ("HELLO", 3)
        if user or password:
            hello += ("AUTH", user, password)
        if target.client_name:
            hello += ("SETNAME", target.client_name)
        (reply,) = yield from self._exchange(hello)
        if isinstance(reply, ReplyError):
            if str(reply).startswith(("NOPROTO", "ERR unknown command")):
                return False
            raise _denied(target, reply)
        self._check(reply)
        return True

    def _log_in_with_resp2(self) -> Flow:
        """For a server that cannot do better, or a URL that asks for RESP2."""
        target = self._target
        user, password = _login(target)
        if user or password:
            command = ("AUTH", password) if user == "default" else ("AUTH", user, password)
            (reply,) = yield from self._exchange(command)
            if isinstance(reply, ReplyError):
                raise _denied(target, reply)
        if target.client_name:
            yield from self._exchange(("CLIENT", "SETNAME", target.client_name))
        server, replication = yield from self._exchange(("INFO", "server"), ("INFO", "replication"))
        if isinstance(server, ReplyError):
            if str(server).startswith("NOAUTH"):
                raise _denied(target, server)
            return  # this user may not use INFO; the scripts will show whether the server is new enough
        fields = {**_fields(replication), **_fields(server)}
        names = {b"version": "redis_version", b"mode": "redis_mode", b"role": "role"}
        self._check({name: fields.get(field, "").encode() for name, field in names.items()})

    def _check(self, server: dict[bytes, Any]) -> None:
        """Whether the server will do: as HELLO describes it."""
        version = server.get(b"version", b"").decode()
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if numbers and numbers < OLDEST:
            raise Unsupported(f"Redis at {self._target} is version {version}: leases need 6.2 or newer")
        self._check_kind(server.get(b"mode", b"").decode(), server.get(b"role", b"").decode())

    def _check_kind(self, mode: str, role: str) -> None:
        """Whether it is the kind of server that this store expects. Either may be empty: not every user may ask."""
        if mode == "cluster":
            raise Unsupported(f"Redis at {self._target} is a node of a Cluster: connect with redis+cluster://host")

    def _exchange(self, *commands: Command) -> Flow:
        replies = yield list(commands)
        self._answered = True
        return replies

    def _interrupted(self, error: Broken) -> StoreUnavailable:
        """The connection ended in the middle of the handshake. A port that wants TLS closes it before its first reply,
        or replies with an alert."""
        target, text = self._target, str(error)
        other_reason = text == SLOW or (GARBAGE in text and TLS_ALERT not in text)
        if not self._answered and target.tls is None and not target.path and not other_reason:
            error = Broken(f"{text}; {WANTS_TLS}")
        return failures.unreachable(target.server, error)


def _login(target: Target) -> tuple[str, str]:
    try:
        return target.login()
    except Exception as error:  # raised by the user's credential provider
        raise StoreUnavailable(
            f"the credentials for Redis at {target} could not be obtained: {type(error).__name__}"
        ) from error


def _denied(target: Target, reply: BaseException) -> LeaseholdError:
    """A server may quote what it was sent: the reply itself is not shown."""
    error = failures.refusal(target.server, reply)
    if isinstance(error, StoreUnavailable):
        return error
    return StoreUnavailable(f"Redis at {target} refused the login ({str(reply).split(' ', 1)[0]})")


def _warn_of_eviction(target: Target, reply: Any) -> None:
    """A server that evicts keys when memory is short evicts locks as well (trap 38)."""
    if isinstance(reply, ReplyError):  # this user may not use INFO
        return
    fields = _fields(reply)
    policy = fields.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and fields.get("maxmemory", "0") != "0":
        log.warn(
            "Redis at %s has maxmemory-policy %s: when memory is short it deletes locks that are held. "
            "Set noeviction, or keep locks on another server",
            target,
            policy,
        )


def _fields(info: bytes) -> dict[str, str]:
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
