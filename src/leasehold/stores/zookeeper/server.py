"""ZooKeeper as a server that keeps records: what a turn requests, by way of one session of this process.

Watches, news and their callbacks run on the thread that receives from the server: a callback must not call ``perform``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from leasehold._core.light_typing import Any
from leasehold.errors import InvalidRequest
from leasehold.stores.record.requests import Change, List, Look, Place, Record, Request, Tell
from leasehold.stores.zookeeper.changes import MOST_PARTS, change
from leasehold.stores.zookeeper.looks import listing, look
from leasehold.stores.zookeeper.news import Hearing, tell
from leasehold.stores.zookeeper.rounds import LoopLatch, ThreadLatch, Work, perform, perform_async, rounds
from leasehold.stores.zookeeper.session import Session
from leasehold.stores.zookeeper.target import target_of
from leasehold.stores.zookeeper.tree import Tree
from leasehold.stores.zookeeper.watches import Watch, Watches

WORKS: dict[type, Callable[[Tree, Any], Work]] = {Look: look, Change: change, List: listing, Tell: tell}


class ZooKeeper:
    """For a URL, or a client of kazoo's whose settings are used. Nothing is connected before the first request."""

    most_parts = MOST_PARTS
    offers = True

    def __init__(self, given: Any) -> None:
        target = target_of(given)
        self.server = target.server
        self.url = target.url
        self._session = Session(target)
        self._session.on_joined = self._joined
        self._session.on_lost = self._lost
        self._tree = Tree(target, self._session)
        self._tree.on_prepared = self._joined
        self._watches = Watches(self._tree)
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._hearings: list[Hearing] = []

    # ------------------------------------------------------------ requests

    def perform(self, requests: Sequence[Request], give_up: float) -> list[Any]:
        return perform(self._rounds(requests, give_up, ThreadLatch))

    async def perform_async(self, requests: Sequence[Request], give_up: float) -> list[Any]:
        return await perform_async(self._rounds(requests, give_up, LoopLatch))

    def _rounds(self, requests: Sequence[Request], give_up: float, latch: Callable[[int], Any]) -> Any:
        for request in requests:
            if isinstance(request, Change) and len(request.parts) > MOST_PARTS:
                raise InvalidRequest(f"a change has at most {MOST_PARTS} parts, not {len(request.parts)}")
        works = [partial(WORKS[type(request)], self._tree, request) for request in requests]
        return rounds(self._session, self.server, self._tree.prepare, works, give_up, latch)

    def versions(self, give_up: float) -> list[str]:
        version = self._session.server_version(give_up)
        return [f"ZooKeeper {version}"] if version else []

    def wall_us(self) -> int:
        return self._session.wall_us()

    # ------------------------------------------------------------ watches and news

    def watch_record(self, record: Record, changed: Callable[[Record | None], None]) -> Watch:
        return self._watches.record(record, changed)

    def watch_place(self, resource: str, place: Place, changed: Callable[[Record | None], None]) -> Watch:
        return self._watches.place(resource, place, changed)

    def hear(self, address: str, receive: Callable[[str], None]) -> Hearing:
        """What is requested afterwards comes after it at the server: who learns the address from that is heard."""
        hearing = Hearing(self._tree, address, receive, self._unheard)
        with self._lock:
            self._hearings.append(hearing)
        self._session.begin(self._session.closings)
        if self._session.connected:
            hearing.join()
        return hearing

    def _unheard(self, hearing: Hearing) -> None:
        with self._lock:
            self._hearings = [one for one in self._hearings if one is not hearing]

    def _joined(self) -> None:
        with self._lock:
            hearings = list(self._hearings)
        for hearing in hearings:
            hearing.join()

    def _lost(self) -> None:
        self._watches.fire_all()

    # ------------------------------------------------------------ its end

    @property
    def session_seconds(self) -> float:
        """How long the server keeps the places of a process that is silent."""
        return self._session.seconds

    def forked(self) -> None:
        self._session.forked()
        self._watches.start()
        self._tree.removals = {}
        self._start()

    def close(self) -> None:
        with self._lock:
            self._hearings = []
        self._session.close()
