"""The members of the ensemble, as it lists them itself: some may have come after the URL was written.

ZooKeeper keeps the list in a node that every client may read. It is read on each connection, and whenever it changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from kazoo.protocol.states import EventType

from leasehold._core.light_typing import Any, TypeAlias
from leasehold.observe import log
from leasehold.stores.zookeeper import calls
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.target import Target

LIST = "/zookeeper/config"
# server.<id>=<host>:<port>:<port>[|<further addresses>][:<role>];[<host for clients>:]<port for clients>
MEMBER = re.compile(r"server\.\d+=(\[[^]]+\]|[^:;|]+):[^;]*;(?:(\[[^]]+\]|[^:]+):)?(\d+)")
EVERYWHERE = {"0.0.0.0", "::", "0:0:0:0:0:0:0:0"}  # noqa: S104 # what a member binds to; nobody can connect to it

Address: TypeAlias = "tuple[str, int]"


class Ensemble:
    """For all connections of a store."""

    def __init__(self, target: Target, send: Callable[[list[Call]], None]) -> None:
        # The list has the ports without TLS only.
        self._is_followed = not target.tls
        self._send = send
        self.members: tuple[Address, ...] = ()

    def follow(self) -> None:
        """There is a connection."""
        if self._is_followed:
            call = calls.get(LIST, self._changed)
            call.finished = partial(self._found, call)
            self._send([call])

    def _changed(self, event: Any) -> None:
        if event.type != EventType.NONE:
            self.follow()

    def _found(self, call: Call) -> None:
        try:
            data, _ = call.result()
        except Exception as error:  # it may not be read, or there is no connection: what was known will do
            log.debug("the members of ZooKeeper are not known: %r", error)
        else:
            self.members = addresses(data.decode("utf-8", "replace"))


def addresses(text: str) -> tuple[Address, ...]:
    """Where its members serve clients."""
    found = [MEMBER.fullmatch(line.strip()) for line in text.splitlines()]
    return tuple(_address(*one.groups()) for one in found if one is not None)


def _address(host: str, for_clients: str | None, port: str) -> Address:
    named = (for_clients or "").strip("[]")
    return (host.strip("[]") if named in EVERYWHERE or not named else named, int(port))
