"""A worker: a process that does what it is told on stdin and says what came of it on stdout, a line of JSON each.

    python -m tests.processes.worker sync|asyncio URL JOURNAL NAME

A command is ``{"do": "acquire", ...}``; the answer is a dictionary, with ``error`` when the command raised. So the
order of events in several processes is driven by messages, and nobody sleeps and hopes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import leasehold
from leasehold._core import ledger, ops, policy
from leasehold._core.types import Instant, State
from leasehold.errors import LeaseholdError, LeaseLost, StaleOwner
from leasehold.stores.sqlite.database import Database
from leasehold.stores.sqlite.sockets import SocketFolder
from tests.processes import journal

Answer = dict[str, Any]
kept: list[Any] = []  # what a program keeps in a global until the interpreter ends


def say(answer: Answer) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Commands:
    """Lines from stdin, with nothing read ahead that cannot be asked for."""

    def __init__(self) -> None:
        self._ahead = b""

    def next(self) -> bytes:
        """The next line; empty when there will be none."""
        while b"\n" not in self._ahead:
            more = os.read(0, 65_536)
            if not more:
                return b""
            self._ahead += more
        line, _, self._ahead = self._ahead.partition(b"\n")
        return line

    def waiting(self) -> bool:
        """Is there another one already?"""
        return b"\n" in self._ahead or bool(select.select([0], [], [], 0)[0])


def failure(error: BaseException) -> Answer:
    """An error as an answer."""
    known = {name: getattr(error, name, None) for name in ("reason", "fence", "seen")}
    return {"error": type(error).__name__, "text": str(error), **known}


class Worker:
    """What both flavours can do."""

    hold: Any
    lease: Any = None
    inside = 0

    def __init__(self, url: str, data: str, name: str) -> None:
        self.url = url
        self.data = data
        self.name = name
        self.queued: dict[str, tuple[int, int]] = {}
        self.open(data)

    def open(self, data: str) -> None:
        """What is protected. Workers of other things have their own."""
        self.journal = journal.open_journal(data)

    def entered(self) -> Answer:
        """The lease that was got, or none."""
        if self.lease is None:
            return {"fence": None, "at": journal.now()}
        return {"fence": self.lease.fence, "owner": self.lease.owner, "at": journal.now()}

    def write(self, guarded: bool = True) -> Answer:
        """Increment the counter."""
        return {"value": journal.increment(self.journal, self.lease, self.name, guarded)}

    def state(self) -> Answer:
        """What the lease says of itself."""
        return {"state": self.lease.state, "owned": self.hold.lock(self.lease.resource).owned()}

    def check(self) -> Answer:
        """A look at the clock; the pause may come right after it."""
        self.lease.check()
        return {"checked": True}

    def chdir(self, folder: str) -> Answer:
        """Go elsewhere."""
        os.chdir(folder)
        return {}

    def deafen(self) -> Answer:
        """From now on nothing that this process sends wakes anybody."""

        def lose(self: SocketFolder, push: ops.Push) -> None:
            return

        SocketFolder.send = lose  # type: ignore[method-assign]
        return {}

    def beat_rarely(self) -> Answer:
        """From now on a waiter of this process finds no grant by asking for it: the next beat is a minute away."""
        policy.beat_every_ms = lambda ttl_ms: 60_000
        return {}

    def beat_often(self) -> Answer:
        """From now on a waiter of this process asks ten times a second, however long its lease is to last."""
        policy.beat_every_ms = lambda ttl_ms: 100
        return {}

    def watch_queue(self) -> Answer:
        """Note, inside the store's own turn, behind whom each claim of ours is put."""
        real = ledger.apply

        def spy(
            state: State,
            now: Instant,
            op: ops.ResourceOp,
            reachable: Callable[[str], bool] = ledger.always_reachable,
            advanced: bool = False,
        ) -> ledger.Outcome:
            outcome = real(state, now, op, reachable, advanced)
            if isinstance(op, ops.Claim) and isinstance(outcome.reply, ops.Queued):
                ahead = [waiter.owner for waiter in outcome.state.queue].index(op.owner)  # the reply does not count all
                self.queued[op.owner] = (outcome.state.fence, ahead)
            return outcome

        ledger.apply = spy
        return {}

    def stick_in_commit(self) -> Answer:
        """From now on the first transaction is never committed."""

        def stick(self: Database) -> NoReturn:
            say({"stuck": True})
            while True:
                time.sleep(1)

        Database.commit = stick  # type: ignore[method-assign]
        return {}

    def quit(self, how: str) -> Answer:
        """End, with whatever is held still referenced by a global."""
        kept.append(self)
        if how == "sys.exit":
            sys.exit(3)
        if how == "raise":
            raise SystemError("an error that nobody handles")
        raise EOFError

    def leave(self) -> Answer:
        """End the body of ``within``."""
        raise EOFError


class SyncWorker(Worker):
    """Threads."""

    def __init__(self, url: str, data: str, name: str) -> None:
        super().__init__(url, data, name)
        self.commands = Commands()
        self.hold = leasehold.connect(url)

    def serve(self) -> None:
        """Obey until told otherwise. What ends a body or the process is raised."""
        while line := self.commands.next():
            command = json.loads(line)
            try:
                say(getattr(self, command.pop("do"))(**command))
            except (LeaseholdError, TimeoutError) as error:
                say(failure(error))
            except EOFError:
                return

    def acquire(self, kind: str, wait: float | None = None, **more: Any) -> Answer:
        """The explicit form."""
        self.lease = self.hold.lock(kind, **more).acquire(wait=wait)
        return self.entered()

    def release(self) -> Answer:
        """Give back."""
        return {"released": self.lease.release(), "at": journal.now()}

    def within(self, kind: str, **more: Any) -> Answer:
        """``with``: commands are obeyed in its body until ``leave``."""
        with self.hold.lock(kind, **more) as self.lease:
            say(self.entered())
            self.serve()
        return {"left": True}

    def rounds(self, kind: str, count: int, ttl: float = 10) -> Answer:
        """Count up under the lock, again and again."""
        turns = []
        for _ in range(count):
            with self.hold.lock(kind, ttl=ttl) as lease:
                entered = journal.now()
                journal.increment(self.journal, lease, self.name)
                left = journal.now()
            turns.append((lease.fence, entered, left, self.queued.pop(lease.owner, None)))
        return {"turns": turns}

    def storm(self, kind: str, ttl: float, work: float) -> Answer:
        """The same among freezes and kills, with some work before the write, until the next command comes."""
        lost = stale = 0
        while not self.commands.waiting():
            try:
                with self.hold.lock(kind, ttl=ttl) as lease:
                    time.sleep(work)
                    try:
                        journal.increment(self.journal, lease, self.name)
                    except StaleOwner:
                        stale += 1
            except LeaseLost:
                lost += 1
        return {"lost": lost, "stale": stale}

    def hammer(self, kind: str) -> Answer:
        """Two threads that keep the store busy for the rest of this process's life."""

        def busy(number: int) -> None:
            while True:
                with self.hold.lock(kind, number, ttl=10):
                    continue

        for number in range(2):
            threading.Thread(target=busy, args=[number], daemon=True).start()
        return {}

    # ------------------------------------------------------------ children

    def hatch(self, kind: str, ttl: float) -> Answer:
        """A child that acquires and releases for ever; the answer comes when it has begun."""

        def life(pipe: Connection) -> None:
            hold = leasehold.connect(self.url)
            pipe.send({})
            while True:
                with contextlib.suppress(LeaseLost), hold.lock(kind, ttl=ttl):
                    continue

        pipe, pid = _fork(life)
        return {**_hear(pipe), "pid": pid}

    def reap(self, pid: int) -> Answer:
        """Wait for a child that was killed, or has ended."""
        return {"code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}

    def fork(self, other: str, leave: str) -> Answer:
        """A child by os.fork: what it believes, and whether it can work."""
        pipe, pid = _fork(lambda pipe: self.as_child(pipe, other), leave)
        return {**_hear(pipe), **self.reap(pid)}

    def fork_and_stay(self, other: str, ttl: float) -> Answer:
        """A child that takes a lock and keeps it until it is killed."""

        def life(pipe: Connection) -> None:
            kept.append(self.hold.lock(other, ttl=ttl).acquire(wait=30))
            pipe.send({"owner": kept[-1].owner})
            time.sleep(60)

        pipe, pid = _fork(life)
        return {**_hear(pipe), "pid": pid}

    def fork_many(self, other: str, count: int) -> Answer:
        """Children that each take a lock of their own, one after the other; how many failed or were stuck."""
        failed = stuck = 0
        for number in range(count):

            def life(pipe: Connection, number: int = number) -> None:
                pipe.send({"got": self.hold.lock(other, number, ttl=10).acquire(wait=30) is not None})

            pipe, pid = _fork(life)
            try:
                failed += not _hear(pipe, 15).get("got")
            except TimeoutError:
                stuck += 1
            os.kill(pid, 9)
            self.reap(pid)
        return {"failed": failed, "stuck": stuck}

    def child(self, method: str, other: str) -> Answer:
        """A child by multiprocessing."""
        ours, theirs = multiprocessing.Pipe()
        context: Any = multiprocessing.get_context(method)
        target, arguments = (
            (self.as_child, (theirs, other)) if method == "fork" else (spawned, (theirs, self.url, other))
        )
        process = context.Process(target=target, args=arguments)
        process.start()
        answer = _hear(ours)
        process.join(20)
        return {**answer, "code": process.exitcode}

    def as_child(self, pipe: Connection, other: str) -> None:
        """In a child: does it believe that it holds what its parent holds?"""
        facts: Answer = self.state()
        try:
            self.lease.check()
        except LeaseholdError as error:
            facts |= {"check": failure(error)}
        facts["released"] = self.lease.release()
        facts["same"] = self.hold.lock(self.lease.resource).try_acquire() is not None
        mine = self.hold.lock(other, ttl=10).acquire(wait=30)
        facts["other"] = mine is not None and mine.release()
        facts["token"] = (
            mine.owner.split(":")[1] == str(os.getpid()) and mine.owner.split(".")[0] not in self.lease.owner
        )
        pipe.send(facts)


def spawned(pipe: Connection, url: str, other: str) -> None:
    """In a child that began from nothing."""
    with leasehold.connect(url) as hold:
        mine = hold.lock(other, ttl=10).acquire(wait=30)
        pipe.send({"other": mine is not None and mine.release()})


def _fork(life: Callable[[Connection], None], leave: str = "os._exit") -> tuple[Connection, int]:
    """A child that lives this life and then ends; never does it go on with what its parent was doing."""
    ours, theirs = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            life(theirs)
            code = 0
        except BaseException as error:
            theirs.send(failure(error))
        if leave == "os._exit":
            os._exit(code)
        sys.exit(code)
    theirs.close()
    return ours, pid


def _hear(pipe: Connection, within: float = 20) -> Answer:
    if not pipe.poll(within):
        raise TimeoutError("the child is stuck")
    answer: Answer = pipe.recv()
    return answer


class AsyncWorker(Worker):
    """asyncio."""

    def __init__(self, url: str, data: str, name: str) -> None:
        super().__init__(url, data, name)
        self.hold = leasehold.aio.connect(url)
        self.lines: asyncio.StreamReader

    def serve(self) -> None:
        """Obey until told otherwise."""
        asyncio.run(self._main())

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        self.lines = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self.lines), sys.stdin)
        await self._serve()

    async def _serve(self) -> None:
        while line := await self.lines.readline():
            command = json.loads(line)
            try:
                answer = getattr(self, command.pop("do"))(**command)
                say(await answer if asyncio.iscoroutine(answer) else answer)
            except LeaseholdError as error:
                say(failure(error))
            except EOFError:
                return

    async def acquire(self, kind: str, wait: float | None = None, **more: Any) -> Answer:
        """The explicit form."""
        self.lease = await self.hold.lock(kind, **more).acquire(wait=wait)
        return self.entered()

    async def release(self) -> Answer:
        """Give back."""
        return {"released": await self.lease.release(), "at": journal.now()}

    async def within(self, kind: str, **more: Any) -> Answer:
        """``async with``: commands are obeyed in its body. A body that is cancelled tries to write once more."""
        async with self.hold.lock(kind, **more) as self.lease:
            say(self.entered())
            try:
                await self._serve()
            except asyncio.CancelledError:
                say({"cancelled": True})
                try:
                    say(self.write())
                except StaleOwner as error:
                    say(failure(error))
                raise
        return {"left": True}

    async def rounds(self, kind: str, count: int, ttl: float = 10) -> Answer:
        """Count up under the lock, again and again."""
        turns = []
        for _ in range(count):
            async with self.hold.lock(kind, ttl=ttl) as lease:
                entered = journal.now()
                journal.increment(self.journal, lease, self.name)
                left = journal.now()
            turns.append((lease.fence, entered, left, self.queued.pop(lease.owner, None)))
        return {"turns": turns}


FLAVOURS: dict[str, type[SyncWorker] | type[AsyncWorker]] = {"sync": SyncWorker, "asyncio": AsyncWorker}


def main(arguments: Sequence[str]) -> None:
    """Begin."""
    flavour, url, data, name = arguments
    FLAVOURS[flavour](url, data, name).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
