"""How the watchdog's thread is woken, and the queue of leases that the program no longer refers to.

Both may be used at any bytecode of any thread, inside any lock: by callbacks of weak references, by signal handlers.
"""

from __future__ import annotations

import os
import select
import threading

from leasehold._core.light_typing import TYPE_CHECKING, Callable, Iterator, deque

if TYPE_CHECKING:
    from leasehold._core.ports import HolderPushes
    from leasehold._runtime.held_lease import HeldLease

POLL_EVERY = 0.05  # seconds, where no pipe can be opened


class DroppedLeases:
    """Leases are put from anywhere; one thread waits and reads. It also wakes for pushes, where the store has any."""

    def __init__(self, pushes: HolderPushes | None = None) -> None:
        self._items: deque[HeldLease] = deque()  # appending is one step, also inside another one
        self._wakeup = PolledWakeup(pushes) if pushes is not None and pushes.polled else Wakeup(pushes)
        self.wake = self._wakeup.wake
        self.wait = self._wakeup.wait

    def listens(self) -> bool:
        """Does a push of the store arrive? Not before the thread has waited once, nor while a connection is away."""
        return self._wakeup.listens

    def put(self, held: HeldLease) -> None:
        self._items.append(held)
        self.wake()

    def read(self) -> Iterator[HeldLease]:
        """All that is there now."""
        while True:
            try:
                yield self._items.popleft()
            except IndexError:
                return


class Wakeup:
    """Wakes one waiting thread, from anywhere."""

    def __init__(self, pushes: HolderPushes | None = None) -> None:
        self._pushes = pushes
        self.listens = False
        self._asleep = threading.Lock()  # held while nothing has woken it
        self._asleep.acquire()

    def wake(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # it is awake already
            pass

    def wait(self, seconds: float) -> None:
        """Wait until woken. Not with a queue's own timeout: in CPython an interrupted one can wait for ever."""
        if self._pushes is not None:
            self._pushes.fileno(self.wake)  # from now on a delivery wakes it
            self.listens = True
        self._asleep.acquire(timeout=seconds)


class PolledWakeup:
    """A wakeup that is polled together with a store's pushes. The waiting thread opens its pipe: a coordinator that
    holds nothing costs no descriptors, and a forked child, which must forget what its parent held, needs none."""

    def __init__(self, pushes: HolderPushes) -> None:
        self._pushes = pushes
        self.listens = False
        self._woken = False  # since the last wait
        self._out = self._in = -1

    def wake(self, write: Callable[[int, bytes], int] = os.write) -> None:
        """Wake the thread that waits. The default is bound early: at the end of a program ``os`` may be gone
        before the last lease is."""
        self._woken = True  # first: the thread that opens the pipe reads this afterwards
        if self._in >= 0:
            try:
                write(self._in, b"!")
            except BlockingIOError:  # the pipe is full: it was woken many times already
                pass

    def wait(self, seconds: float) -> None:
        """Wait until woken, or until a push is there."""
        poll = select.poll()
        if self._opened():
            poll.register(self._out, select.POLLIN)
        else:
            seconds = min(seconds, POLL_EVERY)
        descriptor = self._pushes.fileno(self.wake)
        self.listens = descriptor >= 0
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
        if not self._woken:
            poll.poll(seconds * 1000)
        self._woken = False
        if self._out >= 0:
            try:
                os.read(self._out, 4096)
            except BlockingIOError:  # only the time was over
                pass

    def _opened(self) -> bool:
        """False where the process has no descriptor left. Its leases are renewed all the same."""
        if self._in < 0:
            try:
                out, into = os.pipe()
            except OSError:
                return False
            os.set_blocking(out, False)
            os.set_blocking(into, False)
            self._out, self._in = out, into
        return True

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        for descriptor in (self._out, self._in):
            if descriptor >= 0:
                close(descriptor)
