"""The streams of events, and the thread that reads them and calls back.

The JSON gateway takes the whole request before it begins to answer, so that a stream has the watches that it began
with. Watches that are set together share one; when there are many streams, the smaller half of them is replaced by one
that has the watches of all. A watch begins behind a revision that was read, so that nothing is lost meanwhile.
"""

from __future__ import annotations

import json
import math
import select
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable

from leasehold._core.light_typing import Any, TypeAlias
from leasehold.stores.etcd.connection import READ, Broken, addresses
from leasehold.stores.etcd.gateway import Call, Gateway
from leasehold.stores.etcd.http import NotHttp
from leasehold.stores.etcd.keys import encoded
from leasehold.stores.etcd.urls import Endpoint

WATCH, RANGE = "/v3/watch", "/v3/kv/range"
MOST_STREAMS = 4  # of one process, more or less
MOST_TOGETHER = 500  # watches of one stream: its request stays well below 256 KB, which the gateway reads ahead
OPEN_WITHIN = 2.0  # seconds in which a member begins a stream
PROBE_EVERY = 2.0  # seconds between questions whether a member still follows the others
PROBE_WITHIN = 2.0
PAUSE = 0.25  # seconds before one looks again after a watch that could not be set
LINGER = 5.0  # seconds without a watch after which the thread ends
NOPUT, NODELETE = "NOPUT", "NODELETE"

Event: TypeAlias = "dict[str, Any]"


class Watch:
    """One key. ``happened`` is called with its events, or with None when they cannot be known any longer; only once,
    unless it is ``lasting``: then the watch goes on, and nothing is called when it was interrupted."""

    __slots__ = ("_reader", "done", "happened", "key", "lasting", "start", "without")

    def __init__(
        self, key: str, start: int, without: str, happened: Callable[[list[Event] | None], None], lasting: bool = False
    ) -> None:
        self.key = key
        self.start = start  # the first revision that matters; 0: from now on
        self.without = without  # events that do not matter, or nothing
        self.happened = happened
        self.lasting = lasting
        self.done = False
        self._reader: Reader | None = None

    def belongs_to(self, reader: Reader) -> None:
        self._reader = reader

    def close(self) -> None:
        """From any thread."""
        self.done = True
        if self._reader is not None:
            self._reader.wake()

    def request(self, number: int) -> str:
        """With a number that is its own within the stream."""
        start = f',"start_revision":"{self.start}"' if self.start else ""
        without = f',"filters":["{self.without}"]' if self.without else ""
        return f'{{"create_request":{{"key":"{encoded(self.key)}","watch_id":"{number}"{start}{without}}}}}'


class Task:
    """Steps on one connection, and until when the next one must be possible; without events to wait for, that is when
    it is due."""

    def __init__(self, endpoint: Endpoint, gateway: Gateway) -> None:
        self.endpoint = endpoint
        self.connection = gateway.new_connection(endpoint)
        self.deadline = time.monotonic() + OPEN_WITHIN
        self.events = 0
        self.steps: Generator[int, None, None]
        self.closed = False

    def resume(self) -> None:
        """Raises Broken."""
        try:
            self.events = next(self.steps)
        except NotHttp as error:
            raise Broken(str(error)) from error

    def close(self) -> None:
        self.closed = True
        self.steps.close()
        self.connection.close()


class Stream(Task):
    """Some watches."""

    def __init__(self, endpoint: Endpoint, gateway: Gateway, watches: Iterable[Watch], tries: int) -> None:
        super().__init__(endpoint, gateway)
        self.watches = dict(enumerate(watches, 1))
        self.tries = tries  # members that may still be tried if this one does not answer
        self.begun = False

    @property
    def live(self) -> list[Watch]:
        return [watch for watch in self.watches.values() if not watch.done]


class Reader:
    """The thread, and what it reads. It ends when there was nothing to watch for some seconds."""

    def __init__(self, gateway: Gateway, probe_key: str) -> None:
        self._gateway = gateway
        self._probe_body = f'{{"key":"{encoded(probe_key)}","keys_only":true}}'.encode()
        self._lock = threading.Lock()
        self._over = False
        self._new: list[Watch] = []
        self._later: list[tuple[float, Watch]] = []  # whose turn comes at that time: to fire, or to go on if lasting
        self._streams: list[Stream] = []
        self._probes: dict[Endpoint, Task] = {}
        self._bell, self._heard = socket.socketpair()
        for one in (self._bell, self._heard):
            one.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="leasehold-etcd-watches", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # ------------------------------------------------------------ from any thread

    def add(self, watch: Watch) -> bool:
        """False: it has ended."""
        with self._lock:
            if self._over:
                return False
            self._new.append(watch)
        watch.belongs_to(self)
        self.wake()
        return True

    def wake(self) -> None:
        try:
            self._bell.send(b"!")
        except OSError:  # it was woken often enough, or has ended
            pass

    def fire_all(self) -> None:
        for watch in self._all():
            if not watch.lasting:
                self._fire(watch, None)
        self.wake()

    def _all(self) -> list[Watch]:
        with self._lock:
            waiting = [*self._new, *(watch for _, watch in self._later)]
            return waiting + [watch for stream in self._streams for watch in stream.live]

    def _fire(self, watch: Watch, events: list[Event] | None) -> None:
        with self._lock:
            if watch.done:
                return
            watch.done = not watch.lasting
        if events is not None or not watch.lasting:
            watch.happened(events)

    def close(self) -> None:
        with self._lock:
            self._over = True
        self.wake()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def forked(self) -> None:
        """In a child, which has no such thread. The connections are closed with all others of the gateway."""
        self._bell.close()
        self._heard.close()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        idle_since = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                with self._lock:
                    if self._streams or self._new or self._later:
                        idle_since = now
                    self._over |= now - idle_since > LINGER
                    if self._over:
                        return
                self._set_new(now)
                self._tidy()
                self._wait()
        finally:
            self._end()

    def _end(self) -> None:
        """Whoever has watched until now looks again."""
        with self._lock:
            self._over = True
        for watch in self._all():
            self._fire(watch, None)
        for task in (*self._streams, *self._probes.values()):
            task.close()
        self._bell.close()
        self._heard.close()

    def _set_new(self, now: float) -> None:
        with self._lock:
            new, self._new = [watch for watch in self._new if not watch.done], []
            due = [watch for at, watch in self._later if at <= now]
            self._later = [(at, watch) for at, watch in self._later if at > now and not watch.done]
        for watch in due:
            if watch.lasting:
                new.append(watch)
            else:
                self._fire(watch, None)
        if new and len(self._streams) >= MOST_STREAMS:
            new += self._gathered(MOST_TOGETHER - len(new))
        for at in range(0, len(new), MOST_TOGETHER):
            self._open(new[at : at + MOST_TOGETHER], len(self._gateway.target.endpoints) - 1)

    def _gathered(self, most: int) -> list[Watch]:
        """The watches of the smaller half of the streams, which are closed."""
        found: list[Watch] = []
        for stream in sorted(self._streams, key=lambda stream: len(stream.live))[: MOST_STREAMS // 2]:
            if len(found) + len(stream.live) <= most:
                found += stream.live
                self._drop(stream)
        return found

    def _open(self, watches: list[Watch], tries: int) -> None:
        stream = Stream(self._gateway.first, self._gateway, watches, tries)
        stream.steps = self._read(stream)
        with self._lock:
            self._streams.append(stream)
        self._resume(stream)

    def _drop(self, stream: Stream) -> None:
        with self._lock:
            self._streams.remove(stream)
        stream.close()

    def _tidy(self) -> None:
        """Streams without a watch are closed, and so are probes without a stream."""
        for stream in list(self._streams):
            if not stream.live:
                self._drop(stream)
        needed = {stream.endpoint for stream in self._streams}
        for endpoint in self._probes.keys() - needed:
            self._probes.pop(endpoint).close()
        for endpoint in needed - self._probes.keys():
            probe = self._probes[endpoint] = Task(endpoint, self._gateway)
            probe.steps = self._probe(probe)
            self._resume(probe)

    def _wait(self) -> None:
        """Until something happens; then the tasks that it is for go on."""
        tasks: list[Task] = [*self._streams, *self._probes.values()]
        poll = select.poll()
        poll.register(self._heard, READ)
        by_descriptor = {}
        for task in tasks:
            if task.events:
                by_descriptor[task.connection.fileno()] = task
                poll.register(task.connection.fileno(), task.events)
        times = [task.deadline for task in tasks] + [at for at, _ in self._later] + [time.monotonic() + LINGER]
        ready = {descriptor for descriptor, _ in poll.poll(max(math.ceil((min(times) - time.monotonic()) * 1000), 0))}
        if self._heard.fileno() in ready:
            self._heard.recv(4096)
        for descriptor in ready & by_descriptor.keys():
            self._resume(by_descriptor[descriptor])
        now = time.monotonic()
        for task in tasks:
            if task.deadline <= now:
                self._late(task)

    def _resume(self, task: Task) -> None:
        if task.closed:  # another one has failed a moment ago, and this one with it
            return
        try:
            task.resume()
        except Broken:
            self._failed(task)

    def _late(self, task: Task) -> None:
        if not task.events:  # it has only slept
            self._resume(task)
        elif not task.closed:
            self._failed(task)

    def _failed(self, task: Task) -> None:
        """A stream that never began is tried at another member. Otherwise everybody looks again: what happened
        meanwhile is not known."""
        self._gateway.distrust(task.endpoint)
        if not isinstance(task, Stream):
            self._probes.pop(task.endpoint, None)
            task.close()
            for stream in [stream for stream in self._streams if stream.endpoint == task.endpoint]:
                self._failed(stream)
            return
        self._drop(task)
        if not task.begun and task.tries and task.live:
            self._open(task.live, task.tries - 1)
            return
        at = time.monotonic() + PAUSE
        for watch in task.live:
            if watch.lasting or not task.begun:
                with self._lock:
                    self._later.append((at, watch))
            else:
                self._fire(watch, None)

    # ------------------------------------------------------------ the steps of a task

    def _read(self, stream: Stream) -> Generator[int, None, None]:
        connection = stream.connection
        body = "\n".join(watch.request(number) for number, watch in stream.watches.items()).encode()
        call = Call(stream.endpoint, WATCH, self._gateway.token, body, stream.deadline)
        yield from connection.open(addresses(stream.endpoint))
        yield from connection.send(self._gateway.packed(call))
        while True:
            yield READ
            connection.receive()
            status, lines, ended = connection.lines()
            if status not in (0, 200):
                raise Broken("it refused the stream")
            for line in lines:
                self._message(stream, _result(line))
            if ended:
                raise Broken("it ended the stream")

    def _message(self, stream: Stream, result: dict[str, Any]) -> None:
        stream.begun = True
        stream.deadline = math.inf
        watch = stream.watches.get(int(result.get("watch_id", 0)))
        if watch is None or watch.done:
            return
        if result.get("canceled"):
            self._canceled(stream, watch, "compact_revision" in result)
        elif events := result.get("events"):
            watch.start = int(events[-1]["kv"]["mod_revision"]) + 1
            self._fire(watch, events)

    def _canceled(self, stream: Stream, watch: Watch, compacted: bool) -> None:
        """What it was to begin with is compacted, or it is not allowed: then the next one would be canceled as well."""
        stream.watches = {number: one for number, one in stream.watches.items() if one is not watch}
        if compacted and not watch.lasting:
            self._fire(watch, None)
            return
        watch.start = 0
        with self._lock:
            self._later.append((time.monotonic() + PAUSE, watch))

    def _probe(self, probe: Task) -> Generator[int, None, None]:
        """Read by consensus every now and then: a member that was frozen, or cut off from the others, keeps its streams
        open and sends nothing. An error that is about us is an answer as well."""
        yield from self._sleep(probe)
        probe.deadline = time.monotonic() + OPEN_WITHIN
        yield from probe.connection.open(addresses(probe.endpoint))
        while True:
            probe.deadline = time.monotonic() + PROBE_WITHIN
            call = Call(probe.endpoint, RANGE, self._gateway.token, self._probe_body, probe.deadline)
            reply = yield from probe.connection.post(self._gateway.packed(call))
            if reply.status >= 500:
                raise Broken("it cannot read")
            yield from self._sleep(probe)

    def _sleep(self, probe: Task) -> Generator[int, None, None]:
        probe.deadline = time.monotonic() + PROBE_EVERY
        yield 0


def _result(line: bytes) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(line)["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise Broken("it sent an error in the stream") from error
    return result
