"""One node of Redis or Valkey, or a Sentinel, asked over a short connection of its own.

A connection logs in as a program does. It subscribes to nothing and runs no check of its own, so that a server that no
store would use can be examined as well.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hiredis

from leasehold._core.driver import drive
from leasehold.doctor import rights
from leasehold.doctor.clocks import Reading, read_clock
from leasehold.doctor.members import Away
from leasehold.errors import LeaseholdError
from leasehold.stores.redis import failures
from leasehold.stores.redis.handshake import Handshake
from leasehold.stores.redis.lua import assemble
from leasehold.stores.redis.sockets import Broken, RedisSocket
from leasehold.stores.redis.target import Target

SECONDS = 3.0  # for one node, all questions together
INFO = ("server", "clients", "memory", "persistence", "replication", "cluster")
SLOW_ENTRIES = 32
ReplyError = hiredis.ReplyError


class QuietHandshake(Handshake):
    """Logs in, and nothing more. ``resp3``: it can get pushes."""

    resp3 = False

    def __init__(self, target: Target) -> None:
        super().__init__(target, "", first=False)

    def _set_up(self, resp3: bool) -> Generator[list[Any], list[Any], bool]:
        self.resp3 = resp3
        if self._target.db:
            yield from self._exchange(("SELECT", self._target.db))
        return False

    def _check(self, server: dict[bytes, Any]) -> None:
        """Nothing is refused: what is wrong becomes a finding."""


class Node:
    """An open connection. Raises Away."""

    def __init__(self, target: Target, seconds: float = SECONDS) -> None:
        self.target = target
        self._give_up = time.monotonic() + seconds
        try:
            self._socket = RedisSocket(target, self._give_up, deque())
        except Broken as error:
            raise Away(failures.reason(error)) from error
        handshake = QuietHandshake(target)
        try:
            drive(handshake.flow(), lambda commands: self._socket.exchange_many(commands, self._give_up))
        except (LeaseholdError, Broken) as error:
            self._socket.close()
            raise Away(str(error)) from error
        self.resp3 = handshake.resp3

    def ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """One reply for each command; an error reply is one of them."""
        try:
            return self._socket.exchange_many(commands, self._give_up)
        except Broken as error:
            raise Away(failures.reason(error)) from error

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


# ---------------------------------------------------------------- what one node says


class Facts:
    """All that a node was asked. None: this user may not ask that, or the server does not know the question."""

    def __init__(self, node: Node, resource: str) -> None:
        self.target = node.target
        self.resp3 = node.resp3
        replies = node.ask(
            *[("INFO", section) for section in INFO],
            ("CONFIG", "GET", "*"),
            ("SLOWLOG", "GET", SLOW_ENTRIES),
            ("ACL", "WHOAMI"),
        )
        *sections, config, slow, user = replies
        self.info = info_of(sections)
        self.config = None if isinstance(config, ReplyError) else pairs_of(config)
        self.slow: list[Any] | None = None if isinstance(slow, ReplyError) else slow
        self.user = None if isinstance(user, ReplyError) else _text(user)
        self.refused, self.scripts_refused = _refused(node, rights.arguments(resource=resource))
        self.operator_refused, _ = _refused(node, rights.arguments(rights.OPERATOR, resource))
        self.clock = _clock(node)

    @property
    def place(self) -> str:
        return str(self.target)

    def number(self, field: str) -> int | None:
        """A field of INFO."""
        value = (self.info or {}).get(field, "")
        return int(value) if value.lstrip("-").isdigit() else None

    def setting(self, *names: str) -> str | None:
        """The first of these settings that there is: some have had another name."""
        return next((self.config[name] for name in names if self.config is not None and name in self.config), None)


def facts(target: Target, resource: str) -> Facts:
    """``resource``: about whose keys the rights are. Raises Away."""
    with Node(target) as node:
        return Facts(node, resource)


def clock_of(target: Target) -> Reading | None:
    """None where it may not be asked. Raises Away."""
    with Node(target) as node:
        return _clock(node)


def _clock(node: Node) -> Reading | None:
    def ask() -> float:
        (reply,) = node.ask(("TIME",))
        if isinstance(reply, ReplyError):
            raise PermissionError
        seconds, microseconds = reply
        return int(seconds) + int(microseconds) / 1e6

    try:
        return read_clock(ask)
    except PermissionError:
        return None


def _refused(node: Node, commands: list[str]) -> tuple[list[str] | None, str]:
    """Which of these commands this user may not use, and why scripts are refused altogether."""
    text = assemble(Path(__file__).parent, "permissions")
    (reply,) = node.ask(("EVAL", text, 0, *commands))
    if isinstance(reply, ReplyError):
        return None, str(reply).split(" ", 1)[0]
    return (None if reply is None else [_text(one) for one in reply]), ""


def info_of(sections: Sequence[Any]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for section in sections:
        if not isinstance(section, ReplyError):
            found |= dict(line.split(":", 1) for line in _text(section).splitlines() if ":" in line)
    return found or None


def pairs_of(reply: Any) -> dict[str, str]:
    items = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(name): _text(value) for name, value in items}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# ---------------------------------------------------------------- as it is examined

SETTINGS_HIDDEN = "CONFIG is refused to this user, or does not exist here, as in most managed services"
INFO_HIDDEN = "INFO is refused to this user: allow +info"


class Server(NamedTuple):
    """One server with its replicas, as it is examined."""

    facts: Facts
    fails_over: bool  # Sentinels or a Cluster promote a replica by themselves
    rights: str  # the ACL line
