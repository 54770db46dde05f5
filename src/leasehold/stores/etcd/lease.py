"""The lease of this process: its places in queues, and the keys where it hears news, go when it ends.

Nothing is concluded from it about a grant. It begins when it is needed, a thread keeps it alive as long as it is, and
some seconds later it is revoked. Its number is ours, so that a repeated request for it is harmless; a lease that is
gone is replaced by one with another number, and what belonged to the old one is not ours any more.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable

from leasehold._core.driver import drive
from leasehold._core.light_typing import Any, TypeVar
from leasehold.errors import LeaseholdError
from leasehold.stores.etcd import failures
from leasehold.stores.etcd.connection import Broken
from leasehold.stores.etcd.failures import Refused
from leasehold.stores.etcd.gateway import Call, Gateway
from leasehold.stores.etcd.http import Reply
from leasehold.stores.etcd.keys import encoded
from leasehold.stores.etcd.transactions import NO_LEASE
from leasehold.stores.record.requests import Place

TTL = 3  # seconds
EVERY = 1.0  # seconds between two keepalives
RETRY = 0.2  # seconds after one that failed
BUDGET = 2.0  # seconds for one round
IDLE = 5.0  # seconds after which a lease that nobody needs is given up
LAST_WORDS = 1.0  # seconds for its end
GRANT, KEEPALIVE, REVOKE = "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"
PUT, DELETE = "/v3/kv/put", "/v3/kv/deleterange"

T = TypeVar("T")


class Lease:
    """``lost`` is called, on any thread, when it has ended without our doing."""

    def __init__(self, gateway: Gateway, lost: Callable[[], None]) -> None:
        self._gateway = gateway
        self._lost = lost
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._granted = False
        self._needed_at = 0.0
        self.number = NO_LEASE
        self._places: dict[str, set[str]] = {}  # the keys of our places, by resource
        self._news: dict[str, Callable[[int], None]] = {}  # by key; called with the revision when it is there
        self._announced: set[str] = set()  # keys that exist under this lease, some of them no longer wanted

    # ------------------------------------------------------------ for those who need it

    def ready(self, give_up: float) -> Generator[Call, Reply, int]:
        """Its number, after it was granted. Raises StoreUnavailable."""
        with self._lock:
            self._needed_at = time.monotonic()  # it is not given up under whoever is about to use it
            if self.number == NO_LEASE:
                self.number = secrets.randbits(62) + 1
                self._granted = False
            number = self.number
            if self._granted:
                return number
        yield from self._ask(GRANT, f'{{"ID":"{number}","TTL":"{TTL}"}}', give_up, failures.PRECONDITION)
        with self._lock:
            if self.number == number:
                self._granted = True
                self._begin()
        return number

    def ended(self, number: int) -> None:
        """etcd does not know it any more."""
        with self._lock:
            if self.number != number:
                return
            self.number, self._granted = NO_LEASE, False
            self._places.clear()
            self._announced.clear()
            self._wake.set()
        self._lost()

    def add_place(self, resource: str, key: str) -> None:
        """It is about to be made, or it was."""
        with self._lock:
            self._places.setdefault(resource, set()).add(key)

    def remove_places(self, resource: str, keys: Iterable[str]) -> None:
        with self._lock:
            rest = self._places.get(resource, set()).difference(keys)
            self._set_places(resource, rest)

    def seen(self, resource: str, places: Iterable[Place]) -> None:
        """All places of a resource, as they were read: others may have removed ours."""
        with self._lock:
            self._set_places(resource, {place.key for place in places if place.ours})

    def _set_places(self, resource: str, keys: set[str]) -> None:
        if keys:
            self._places[resource] = keys
        else:
            self._places.pop(resource, None)

    def listen(self, key: str, announced: Callable[[int], None]) -> None:
        """Make this key soon, and again whenever a new lease begins."""
        with self._lock:
            self._news[key] = announced
            self._begin()
            self._wake.set()

    def unlisten(self, key: str) -> None:
        with self._lock:
            self._news.pop(key, None)
            self._wake.set()

    # ------------------------------------------------------------ the thread

    def _begin(self) -> None:
        """Under the lock."""
        if self._thread is None:
            self._needed_at = time.monotonic()
            thread = threading.Thread(target=self._keep, name="leasehold-etcd-lease", daemon=True)
            thread.start()
            self._thread = thread  # not before: an interrupt leaves none here that does not run

    def _keep(self) -> None:
        wake, pause = self._wake, EVERY
        while True:
            wake.wait(pause)
            wake.clear()
            with self._lock:
                if self._thread is not threading.current_thread():
                    return
                now = time.monotonic()
                if self._places or self._news:
                    self._needed_at = now
                over = now - self._needed_at > IDLE
                if over:
                    self._thread = None
                    number = self.number
                    self.number, self._granted = NO_LEASE, False
                    self._announced.clear()
            if over:
                self._revoke(number)
                return
            try:
                self._perform(self._round(now + BUDGET))
                pause = EVERY
            except Exception:  # nobody answers, or with something else than etcd: the next round tells more
                pause = RETRY

    def _round(self, give_up: float) -> Generator[Call, Reply, None]:
        with self._lock:
            number = self.number if self._granted else NO_LEASE  # one that is not granted yet would seem to have ended
        if number != NO_LEASE:
            found = yield from self._ask(KEEPALIVE, f'{{"ID":"{number}"}}', give_up, failures.NOT_FOUND)
            if found and "result" not in found:
                raise failures.unreachable(self._gateway.server, Broken("it cannot keep a lease alive now"))
            if "TTL" not in found.get("result", ()):  # that is how etcd says so, or with the error
                self.ended(number)
        with self._lock:
            missing = [key for key in self._news if key not in self._announced]
            unwanted = [key for key in self._announced if key not in self._news]
        for key in missing:
            yield from self._announce(key, give_up)
        for key in unwanted:
            self._announced.discard(key)
            yield from self._ask(DELETE, f'{{"key":"{encoded(key)}"}}', give_up, failures.NOT_FOUND)

    def _announce(self, key: str, give_up: float) -> Generator[Call, Reply, None]:
        number = yield from self.ready(give_up)
        found = yield from self._ask(PUT, f'{{"key":"{encoded(key)}","lease":"{number}"}}', give_up, failures.NOT_FOUND)
        if not found:
            self.ended(number)
            return
        with self._lock:
            if self.number != number:
                return
            self._announced.add(key)
            announced = self._news.get(key)
        if announced is not None:
            announced(int(found["header"]["revision"]))

    def _ask(self, path: str, body: str, give_up: float, expected: int) -> Generator[Call, Reply, dict[str, Any]]:
        """The reply; nothing for an error with the code that is expected. Repeating any of these does no harm."""
        try:
            return (yield from self._gateway.post(path, body.encode(), give_up, harmless=True))
        except Refused as error:
            if error.code != expected:
                raise failures.refused(self._gateway.server, error) from error
            return {}

    def _perform(self, flow: Generator[Call, Reply, T]) -> T:
        return drive(flow, self._gateway.send)

    # ------------------------------------------------------------ its end

    def _revoke(self, number: int) -> None:
        if number != NO_LEASE:
            try:
                give_up = time.monotonic() + LAST_WORDS
                self._perform(self._ask(REVOKE, f'{{"ID":"{number}"}}', give_up, failures.NOT_FOUND))
            except LeaseholdError:  # it ends by itself
                pass

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            number = self.number if self._granted else NO_LEASE
            self.number, self._granted = NO_LEASE, False
            self._places.clear()
            self._news.clear()
            self._announced.clear()
            self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._revoke(number)

    def forked(self) -> None:
        """In a child: the lease is the parent's."""
        self._start()
