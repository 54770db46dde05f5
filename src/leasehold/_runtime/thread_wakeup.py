"""How one thread wakes another that waits in a cohort.

A ``threading.Lock`` is released with the interpreter in hand: the thread that it wakes finds the interpreter taken,
sleeps once more, and is woken a second time. A write to a descriptor gives the interpreter away first, so the thread
that is woken can run at once. It sleeps in an epoll that reports each write once, so that it need not read: a read
would give the interpreter away once more, and another thread may take it. Where there is no descriptor for it, a lock
does the same, more slowly.

A thread keeps its descriptors for its next wait. They are closed when neither the thread nor anybody who may still wake
it refers to them: a write never goes to a descriptor that has become another file. A forked child closes those of the
threads that it does not have; what waits in these would keep them open for ever.
"""

from __future__ import annotations

import os
import select
import threading

from leasehold._core.light_typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from weakref import ref
else:
    from _weakref import ref  # ``weakref`` itself has more in it, which takes time to load

MOST = 128  # threads of a process, with two descriptors each: one with more needs the other descriptors itself
_opened: dict[int, ref[DescriptorWakeup]] = {}  # by the descriptor that is written to
_plain_lock = threading.Lock  # as it was when this was loaded: gevent replaces it


class LockWakeup:
    """Wakes a thread by a lock. May be woken before it sleeps, and more than once."""

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()  # held while nothing has woken it
        self._asleep.acquire()

    def wake(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # it is awake already
            pass

    def sleep(self, seconds: float) -> None:
        self._asleep.acquire(timeout=seconds)


class DescriptorWakeup:
    """The same by a descriptor that counts, and an epoll that reports each time that it does."""

    __slots__ = ("__weakref__", "_descriptor", "_poll", "_thread", "_writes")

    def __init__(self) -> None:
        self._descriptor = -1
        self._thread = threading.get_ident()  # that sleeps by it
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        _opened[self._descriptor] = ref(self)
        self._writes = select.epoll()  # closed with the last reference to it
        self._writes.register(self._descriptor, select.EPOLLIN | select.EPOLLET)
        self._poll = self._writes.poll

    def wake(self) -> None:
        os.eventfd_write(self._descriptor, 1)

    def sleep(self, seconds: float) -> None:
        self._poll(seconds, 1)

    def forked(self) -> None:
        """In a forked child: it is of no use to a thread that does not exist here."""
        if self._thread != threading.get_ident():
            if (writes := getattr(self, "_writes", None)) is not None:  # its thread may have been about to make it
                writes.close()
            self.__del__()
            self._descriptor = -1

    def __del__(self, close: Callable[[int], None] = os.close, opened: dict[int, Any] = _opened) -> None:
        if self._descriptor >= 0:
            opened.pop(self._descriptor, None)
            close(self._descriptor)


class _Kept(threading.local):
    """What the calling thread keeps for its next wait."""

    wakeup: DescriptorWakeup | None = None


_kept = _Kept()


def take() -> DescriptorWakeup | LockWakeup:
    """A wakeup for the calling thread. A signal handler that waits inside a wait gets another one."""
    wakeup, _kept.wakeup = _kept.wakeup, None
    if wakeup is not None:
        return wakeup
    if threading.Lock is _plain_lock and len(_opened) < MOST:
        try:
            return DescriptorWakeup()
        except (OSError, AttributeError):  # no descriptor is left; or not Linux
            pass
    return LockWakeup()


def give_back(wakeup: Any) -> None:
    """The calling thread has done with it. A late wake ends its next sleep too soon, and it looks and sleeps again."""
    if type(wakeup) is DescriptorWakeup:
        _kept.wakeup = wakeup


def _forked() -> None:
    """The child and its parent have the same descriptor: one would sleep through what the other was woken for."""
    global _kept
    _kept = _Kept()
    for known in list(_opened.values()):
        wakeup = known()
        if wakeup is not None:
            wakeup.forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)
