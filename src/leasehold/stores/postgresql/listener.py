"""The session that listens: one for each process and store, on a thread of its own, from the first claim that waits.

It has an advisory lock while it listens, by which other clients see that it does (``pushes``): a grant is given only to
a waiter who will hear of it. Behind a pooler that shares sessions among clients, notifications get lost, so there
nothing listens and waiters poll. Such a pooler is known by the number of the server's process: it tells its clients one
of its own.
"""

from __future__ import annotations

import os
import select
import threading
import time
import weakref
from collections.abc import Callable

from leasehold._core.light_typing import Any, Protocol
from leasehold._core.ops import WAKE, Push
from leasehold.errors import LeaseholdError
from leasehold.observe import log
from leasehold.stores.postgresql import pushes
from leasehold.stores.postgresql.rows import listener_key
from leasehold.stores.postgresql.session import Broken, Refused, Request, Session

STARTED_WITHIN = 5.0  # seconds for LISTEN and its lock
LOCK_EVERY = 1.0  # seconds between attempts, while the session before this one still has the lock
FIRST_PAUSE, LAST_PAUSE = 0.05, 5.0  # seconds before another attempt to connect


class Receiver(Protocol):
    """A thread's or an event loop's connection, or the holder pushes of a coordinator."""

    address: str

    def deliver(self, push: Push) -> None: ...


class Listener:
    """Starts when it is first needed. Any thread may call it."""

    def __init__(self, connect: Callable[[float], Session] | None, server: str, orphan: Callable[[Push], None]) -> None:
        self._connect = connect  # None: nothing can listen here
        self._server = server
        self._orphan = orphan  # called with a grant that nobody waits for any more
        # Weakly: one that an interrupt kept from being given back is collected.
        self._receivers: weakref.WeakValueDictionary[str, Receiver] = weakref.WeakValueDictionary()
        self._start()

    def _start(self) -> None:
        self.channel = pushes.new_channel()
        self._key = listener_key(self.channel)
        self._numbers = 0
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()  # of the next three
        self._listening = False
        self._failed = False  # the last attempt to connect: nobody waits for the next one
        self._closed = False
        self._pipe: tuple[int, int] | None = None
        self._session: Session | None = None

    @property
    def listening(self) -> bool:
        return self._listening

    # ------------------------------------------------------------ receivers

    def new_address(self) -> str:
        with self._lock:
            self._numbers += 1
            return f"{self.channel}.{self._numbers}"

    def add(self, receiver: Receiver) -> None:
        self._receivers[receiver.address] = receiver

    def remove(self, receiver: Receiver) -> None:
        self._receivers.pop(receiver.address, None)

    def owns(self, address: str) -> bool:
        """Is it an address of this process?"""
        return pushes.channel(address) == self.channel

    def knows(self, address: str) -> bool:
        """Does somebody in this process receive there?"""
        return address in self._receivers

    def deliver(self, push: Push) -> None:
        """To whoever has this address in this process."""
        receiver = self._receivers.get(push.address)
        if receiver is not None:
            receiver.deliver(push)

    # ------------------------------------------------------------ its life

    def start(self) -> bool:
        """Begin to listen, without waiting for it. False where nothing can listen."""
        if self._connect is None or self._closed:
            return False
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._pipe = os.pipe()
                    thread = threading.Thread(target=self._run, name="leasehold-listen", daemon=True)
                    thread.start()
                    self._thread = thread
        return True

    def wait(self, give_up: float) -> bool:
        """True as soon as it listens; False when it cannot, or not in time."""
        if self._listening:
            return True
        if not self.start():
            return False
        with self._changed:
            self._changed.wait_for(self._settled, max(give_up - time.monotonic(), 0))
        return self._listening

    def _settled(self) -> bool:
        return self._listening or self._failed or self._closed or self._connect is None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._pipe is not None:  # the thread has not ended by itself
                os.write(self._pipe[1], b"!")
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(STARTED_WITHIN)

    def forked(self) -> None:
        """In the child: the thread is the parent's, and so are the receivers."""
        session, pipe = self._session, self._pipe
        if session is not None:
            session.close_copy()
        if pipe is not None:
            os.close(pipe[0])
            os.close(pipe[1])
        self._receivers = weakref.WeakValueDictionary()
        self._start()

    # ------------------------------------------------------------ on its thread

    def _run(self) -> None:
        pipe = self._pipe
        if pipe is None:
            return
        pause = FIRST_PAUSE
        while not self._closed:
            try:
                if not self._open():
                    break
                pause = FIRST_PAUSE
                self._wake_all()
                self._listen(pipe[0])
            except (Broken, Refused, LeaseholdError) as error:
                log.debug("%s: the session that listens ended: %s", self._server, error)
            self._set(listening=False, failed=True)
            self._end()
            self._wake_all()
            if not self._closed:
                _sleep(pipe[0], pause)
                pause = min(pause * 2, LAST_PAUSE)
        self._end()
        self._set(listening=False, failed=True)
        with self._changed:
            self._pipe = None
            os.close(pipe[0])
            os.close(pipe[1])

    def _open(self) -> bool:
        """Connect, and listen. False behind a pooler that shares its sessions."""
        connect = self._connect
        if connect is None:
            return False
        give_up = time.monotonic() + STARTED_WITHIN
        self._session = session = connect(give_up)
        (found,) = session.perform(Request((b"SELECT pg_backend_pid()", ())), give_up)
        if found.rows[0][0] != str(session.process):
            log.debug(
                "%s: a pooler shares its sessions, so waiters poll unless ?listen= names the server", self._server
            )
            self._connect = None
            return False
        session.perform(Request((f"LISTEN {self.channel}".encode(), ())), give_up)
        self._take_lock(session)
        self._set(listening=True, failed=False)
        return True

    def _take_lock(self, session: Session) -> bool:
        """False while an earlier session of ours has it, which the server has not yet seen to be gone."""
        request = Request((f"SELECT pg_try_advisory_lock({self._key})".encode(), ()))
        (found,) = session.perform(request, time.monotonic() + STARTED_WITHIN)
        self._locked = found.rows[0][0] == "t"
        return self._locked

    def _listen(self, out: int) -> None:
        session = self._session
        assert session is not None  # noqa: S101  # for type checkers: ``_open`` has set it
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(session.socket, select.POLLIN)
        while not self._closed:
            for _, payload in session.received():  # first: some may have come with the reply to a request
                self._receive(payload)
            poll.poll(None if self._locked else LOCK_EVERY * 1000)
            if not self._locked:
                self._take_lock(session)

    def _receive(self, payload: str) -> None:
        address, push = pushes.decode(payload)
        receiver = self._receivers.get(address)
        if receiver is not None:
            receiver.deliver(WAKE if push is None else push)
        elif push is not None and push.event == "granted":
            self._orphan(push)

    def _wake_all(self) -> None:
        """What was pushed while nobody listened is lost: every waiter beats now."""
        for receiver in list(self._receivers.values()):
            receiver.deliver(WAKE)

    def _set(self, listening: bool, failed: bool) -> None:
        with self._changed:
            self._listening, self._failed = listening, failed
            self._changed.notify_all()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _sleep(out: int, seconds: float) -> None:
    """Until it is over, or the store is closed."""
    poll: Any = select.poll()
    poll.register(out, select.POLLIN)
    poll.poll(seconds * 1000)
