"""The end of a process: the interpreter's, and that of a child of multiprocessing, which runs no ``atexit``."""

from __future__ import annotations

import os
import sys
import threading
import time

from leasehold._core.light_typing import Callable, Iterable

LAST = -100  # among the finalizers of multiprocessing: after those of its queues, which still have something to send
GRACE = 2.0  # seconds

begun = False
armed = False  # in this process


def begin() -> None:
    """From now on coordinators are closed because the process ends."""
    global begun
    begun = True


def wait_for_exit() -> None:
    """Called before "the coordinator is closed" is raised. The end of a process stops daemon threads wherever they are:
    such a thread waits for that, else it would only print a traceback. Not for ever: another thread may join it."""
    if begun and threading.current_thread().daemon:
        time.sleep(GRACE)


def arm(end: Callable[[], None]) -> None:
    """This process holds something: have ``end`` called also where it ends as a child of multiprocessing. Forked
    children of that leave with ``os._exit`` after finalizers of their own, and only those registered in the child."""
    global armed
    armed = True
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _end_child, args=(end,), exitpriority=LAST)


def _end_child(end: Callable[[], None]) -> None:
    """Threads that are not daemons go on working: the end waits for them, in a thread that Python waits for in turn.
    Those of an executor end only later than this call."""
    others = [thread for thread in threading.enumerate() if _counts(thread)]
    if others:
        threading.Thread(target=_end_after, args=(others, end), name="leasehold-end", daemon=False).start()
    else:
        end()


def _counts(thread: threading.Thread) -> bool:
    return not thread.daemon and thread is not threading.current_thread()


def _end_after(threads: Iterable[threading.Thread], end: Callable[[], None]) -> None:
    for thread in threads:
        thread.join()
    end()


def _forked() -> None:
    global begun, armed
    begun = armed = False


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)
