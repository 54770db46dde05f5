"""A program whose children use the store and are frozen or killed after one of their requests to the server.

    python -m tests.integration.postgresql.steps sync|asyncio URL "" NAME

It is told what to do on stdin, as every worker (``tests.support.workers``). Each child begins with a coordinator of its
own, prepares its scene, and from then on counts the requests that it makes.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import leasehold
import leasehold.aio
from leasehold import LeaseholdError
from leasehold.stores.postgresql import store as postgresql
from leasehold.stores.postgresql.session import Session
from tests.support.waiting import until
from tests.support.workers.journal import now
from tests.support.workers.worker import Commands, say

TTL = 2.0  # seconds
SHORT = 0.05  # seconds: the ttl of a lease that is left to expire
AWHILE = 0.3  # seconds that a child waits in the queue before it gives up
Inside = tuple[str, int, float, float]  # a resource, a fence, and since when and till when its holder may have acted
Place = Callable[[Any, str], Any]


def lock(hold: Any, name: str) -> Any:
    """A mutex."""
    return hold.lock("step", name, ttl=TTL)


def both(hold: Any, name: str) -> Any:
    """Two at once."""
    return hold.all(hold.lock("step", name, "a", ttl=TTL), hold.lock("step", name, "b", ttl=TTL))


def semaphore(hold: Any, name: str) -> Any:
    """The only place of a semaphore."""
    return hold.semaphore("step", name, limit=1, ttl=TTL)


def writer(hold: Any, name: str) -> Any:
    """Alone in a lock for readers and writers."""
    return hold.rwlock("step", name).write(ttl=TTL)


def parts(lease: Any) -> list[Any]:
    """The leases of several at once, or the only one."""
    lease = lease.inner if isinstance(lease, Run) else lease
    return list(lease) if isinstance(lease, tuple) else [lease]


class Run:
    """An object of ``leasehold.aio`` whose coroutines run to their end on the main thread, so that a scene is the same
    for both flavours."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self.inner = inner
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        """A method, or what the object says."""
        value = getattr(self.inner, name)
        return functools.partial(self._call, value) if callable(value) else value

    def _call(self, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
        found = method(*[one.inner if isinstance(one, Run) else one for one in given], **named)
        if asyncio.iscoroutine(found):
            found = self._runner.run(found)
        return Run(found, self._runner) if type(found).__module__.startswith("leasehold.") else found


class Child:
    """One use of the store. ``ready`` ends what it prepares: the next request is the first that counts."""

    def __init__(self, flavour: str, url: str, place: Place, name: str, nth: int, harm: int) -> None:
        self.hold: Any = (
            leasehold.connect(url) if flavour == "sync" else Run(leasehold.aio.connect(url), asyncio.Runner())
        )
        self.place = place(self.hold, name)
        self.resource = f"step:{name}"
        self.inside: list[Inside] = []
        self._left = nth
        self._harm = harm
        self._main = threading.current_thread()

    def ready(self) -> None:
        """From now on requests are counted; those of other threads, which renew and listen, are not."""
        real, real_async = Session.perform, Session.perform_async

        def perform(session: Session, request: Any, give_up: float) -> Any:
            try:
                return real(session, request, give_up)
            finally:
                self._count()

        async def perform_async(session: Session, request: Any, give_up: float) -> Any:
            try:
                return await real_async(session, request, give_up)
            finally:
                self._count()

        setattr(Session, "perform", perform)  # noqa: B010  # type checkers know only methods there
        setattr(Session, "perform_async", perform_async)  # noqa: B010

    def _count(self) -> None:
        if threading.current_thread() is self._main:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._harm)

    def enter(self, wait: float = 0) -> Any:
        """A lease, whose time inside is noted when it ends."""
        lease = self.place.acquire(wait=wait)
        return None if lease is None else (lease, now())

    def leave(self, entered: Any) -> None:
        """Give it back."""
        lease, since = entered
        self.note(lease, since)
        lease.release()

    def note(self, lease: Any, since: float) -> None:
        """It may have acted until now, or until its deadline."""
        for one in parts(lease):
            self.inside.append((one.resource, one.fence, since, min(now(), one.deadline)))


# ---------------------------------------------------------------- scenes


def use(child: Child) -> None:
    """Take what is free, and give it back."""
    child.ready()
    entered = child.enter()
    if entered is not None:
        child.leave(entered)


def queue(child: Child) -> None:
    """Wait for what another holds, and give up."""
    child.ready()
    entered = child.enter(AWHILE)
    if entered is not None:
        child.leave(entered)


def hand_over(child: Child) -> None:
    """Give back what another waits for."""
    entered = child.enter()
    until(lambda: child.hold.inspect(child.resource).waiters, "somebody waits")
    child.ready()
    child.leave(entered)


def take_over(child: Child) -> None:
    """Take what its holder has left until it expired, and give it back."""
    time.sleep(2 * SHORT)  # who looks whether it is over does so already
    use(child)


def prolong(child: Child) -> None:
    """Renew by hand, and give back."""
    entered = child.enter()
    child.ready()
    entered[0].extend(TTL)
    child.leave(entered)


def give_away(child: Child) -> None:
    """Transfer a lease, and adopt it."""
    lease, since = child.enter()
    child.ready()
    child.note(lease, since)
    adopted = child.hold.adopt(lease.transfer())
    child.leave((adopted, now()))


def downgrade(child: Child) -> None:
    """A writer that becomes a reader."""
    child.ready()
    entered = child.enter()
    if entered is not None:
        entered[0].downgrade()
        child.leave(entered)


def evict(child: Child) -> None:
    """Take a lease away from its holder."""
    lease, since = child.enter()
    child.note(lease, since)
    child.ready()
    child.hold.evict(lease.resource, fence=lease.fence, reason="a test")


SCENES: dict[str, tuple[Place, Callable[[Child], None]]] = {
    "use": (lock, use),
    "queue": (lock, queue),
    "hand over": (lock, hand_over),
    "take over": (lock, take_over),
    "prolong": (lock, prolong),
    "give away": (lock, give_away),
    "evict": (lock, evict),
    "all": (both, use),
    "semaphore": (semaphore, use),
    "queue at a semaphore": (semaphore, queue),
    "downgrade": (writer, downgrade),
}


# ---------------------------------------------------------------- the program


def live(flavour: str, url: str, scene: str, name: str, nth: int, harm: int) -> dict[str, Any]:
    """In a child: its life, and what it says of it."""
    place, act = SCENES[scene]
    child = Child(flavour, url, place, name, nth, harm)
    error = ""
    try:
        act(child)
    except LeaseholdError as raised:
        error = type(raised).__name__
    child.hold.close()
    return {"inside": child.inside, "error": error}


class Program:
    """Children that live until they end, are killed or stand still."""

    def __init__(self, flavour: str, url: str) -> None:
        self._flavour = flavour
        self._url = url
        self._reports: dict[int, int] = {}

    def play(self, scene: str, name: str, nth: int, harm: int) -> dict[str, Any]:
        """The answer comes when the child has ended or stands still."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.write(theirs, json.dumps(live(self._flavour, self._url, scene, name, nth, harm)).encode())
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(theirs)
        self._reports[pid] = ours
        return self._wait(pid)

    def go_on(self, pid: int) -> dict[str, Any]:
        """SIGCONT, and the rest of its life."""
        os.kill(pid, signal.SIGCONT)
        time.sleep(0)  # it may be ready before us
        return self._wait(pid)

    def _wait(self, pid: int) -> dict[str, Any]:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return {"pid": pid, "harmed": True}
        with os.fdopen(self._reports.pop(pid)) as report:
            text = report.read()
        return {"harmed": os.WIFSIGNALED(status), **(json.loads(text) if text else {})}


def main(flavour: str, url: str) -> None:
    """Obey until stdin ends."""
    postgresql.PostgresStore(url).close()  # so that no child has to load anything
    program, commands = Program(flavour, url), Commands()
    while line := commands.next():
        command = json.loads(line)
        say(getattr(program, command.pop("do"))(**command))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
