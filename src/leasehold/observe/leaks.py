"""LeakWatch: looks for keys without a TTL every few minutes, and so sets ``leasehold_keys_without_ttl``.

    hold = leasehold.connect(url, observers=[PrometheusObserver()])
    LeakWatch(hold, every="5m")

One process of a fleet is enough: each look walks through all keys, in small steps. A watch ends with its coordinator,
and does not go on in a forked child.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from abc import ABC, abstractmethod
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from leasehold._core.durations import seconds
from leasehold._core.names import check_pattern
from leasehold.errors import InvalidRequest, LeaseholdError
from leasehold.observe import log

if TYPE_CHECKING:
    from leasehold._core.durations import Duration

__all__ = ["AsyncLeakWatch", "LeakWatch"]

LEAST = 1.0  # seconds between two looks
LONGEST_JOIN = 1.0  # seconds to wait for the end of a look; after that the coordinator is closed under it


class BaseLeakWatch(ABC):
    """What both flavours share. A watch does not keep a coordinator alive that the program has dropped."""

    _of_asyncio: bool

    def __init__(self, hold: Any, *, every: Duration = "5m", pattern: str = "lock:*") -> None:
        if getattr(hold, "_asynchronous", None) is not self._of_asyncio:
            raise InvalidRequest("LeakWatch takes a coordinator of connect(), AsyncLeakWatch one of aio.connect()")
        self._every = seconds(every, "every")
        if self._every < LEAST:
            raise InvalidRequest(f"every is at least {LEAST:g} s: each look walks through all keys")
        hold._engine.ensure_open()
        self._pattern = check_pattern(pattern)
        self._hold = weakref.ref(hold, self._dropped)
        self._failing = False
        self._keys: list[str] | None = None
        self._start()
        hold._closers.append(self.close)

    @property
    def keys(self) -> list[str] | None:
        """The keys without a TTL that the last look found; None before the first one."""
        return None if self._keys is None else list(self._keys)

    def __repr__(self) -> str:
        found = "no look yet" if self._keys is None else f"{len(self._keys)} keys without a TTL"
        return f"<{type(self).__name__} {self._pattern!r} every {self._every:g} s: {found}>"

    def _found(self, keys: list[str]) -> None:
        self._failing, self._keys = False, keys

    def _failed(self, error: LeaseholdError) -> None:
        """Logged once until a look succeeds: the store may be away for hours."""
        if not self._failing:
            self._failing = True
            log.warn("keys without a TTL could not be counted: %s", error)

    def _forget(self) -> None:
        """The coordinator need not close what is closed."""
        hold = self._hold()
        if hold is not None and self.close in hold._closers:
            hold._closers.remove(self.close)

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _dropped(self, reference: Any) -> None:
        """The coordinator is gone. Called in any thread, wherever it is."""

    @abstractmethod
    def close(self) -> Any: ...


class LeakWatch(BaseLeakWatch):
    """Looks at once and then every ``every`` for keys that match ``pattern`` and have no TTL, as ``hold.leaks()`` does,
    in a thread of its own. The observers of the coordinator get a ``Leaking`` event each time. A look that fails is
    logged, and the next one comes as usual. It ends with the coordinator, or with ``close()``.

    >>> import leasehold
    >>> from leasehold.observe.leaks import LeakWatch
    >>> with leasehold.connect("memory://") as hold:
    ...     watch = LeakWatch(hold, every="5m")
    """

    _of_asyncio = False

    def _start(self) -> None:
        self._stop: SimpleQueue[None] = SimpleQueue()  # a weak reference may call back in the middle of anything
        self._thread = threading.Thread(target=self._run, name="leasehold-leaks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._look():
            try:
                self._stop.get(timeout=self._every)
            except Empty:
                continue
            return

    def _look(self) -> bool:
        """False when there is no coordinator any more. It is referred to only during a look."""
        hold = self._hold()
        if hold is None or hold._engine.closed:
            return False
        try:
            self._found(hold.leaks(self._pattern))
        except LeaseholdError as error:
            if not hold._engine.closed:
                self._failed(error)
        return True

    def _dropped(self, reference: Any) -> None:
        self._stop.put(None)

    def close(self) -> None:
        """End it. A look that takes long is not waited for: it ends with the coordinator."""
        self._forget()
        self._stop.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(LONGEST_JOIN)


class AsyncLeakWatch(BaseLeakWatch):
    """The same for asyncio, in a task of the running loop; see :class:`LeakWatch`."""

    _of_asyncio = True

    def _start(self) -> None:
        try:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="leasehold-leaks")
        except RuntimeError:
            raise InvalidRequest("an AsyncLeakWatch is made where an event loop runs") from None

    async def _run(self) -> None:
        looked = await self._look()
        while looked:
            await asyncio.sleep(self._every)
            looked = await self._look()

    async def _look(self) -> bool:
        hold = self._hold()
        if hold is None or hold._engine.closed:
            return False
        try:
            self._found(await hold.leaks(self._pattern))
        except LeaseholdError as error:
            if not hold._engine.closed:
                self._failed(error)
        return True

    def _dropped(self, reference: Any) -> None:
        """Nothing: the task ends at its next look."""

    async def close(self) -> None:
        """End it, and the look that is under way."""
        self._forget()
        if self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])
