"""The stream of events, and the thread that reads it and calls back.

One connection has all watches of a process: they are created and canceled while events arrive. A second one asks every
now and then whether the member still follows the others.

A watch could begin behind the revision that was read, but etcd looks after such watches ten times in a second only, as
soon as anything has changed since. So a watch that fires once begins now, and the second connection reads its key when
it was created: what has changed in between fires it. A lasting one begins behind a revision, and loses nothing.
"""

from __future__ import annotations

import json
import math
import select
import socket
import threading
import time
from collections.abc import Callable

from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold.stores.etcd.connection import READ, WRITE, Broken, Steps, addresses
from leasehold.stores.etcd.gateway import Gateway
from leasehold.stores.etcd.http import NotHttp, chunk, request, stream_head
from leasehold.stores.etcd.keys import encoded
from leasehold.stores.etcd.urls import Endpoint

WATCH, RANGE, TXN = "/v3/watch", "/v3/kv/range", "/v3/kv/txn"
MOST_CHECKED = 100  # keys that are read at once
CREATE_WITHIN = 2.0  # seconds in which a member confirms a watch
PROBE_EVERY = 2.0  # seconds between questions whether a member still follows the others
PROBE_WITHIN = 2.0
PAUSE = 0.25  # seconds before one looks again after a watch that could not be set
LINGER = 5.0  # seconds without a watch after which the stream is closed, and the thread ends
NOPUT, NODELETE = "NOPUT", "NODELETE"

Event: TypeAlias = "dict[str, Any]"


class Watch:
    """One key. ``happened`` is called with its events, or with None when they cannot be known any longer; only once,
    unless it is ``lasting``: then the watch goes on, and nothing is called when it was interrupted."""

    __slots__ = ("_reader", "done", "happened", "key", "lasting", "revision", "start", "without")

    def __init__(
        self,
        key: str,
        start: int,
        without: str,
        happened: Callable[[list[Event] | None], None],
        lasting: bool = False,
        revision: int = 0,
    ) -> None:
        self.key = key
        self.start = start  # the first revision that matters; 0: from now on
        self.revision = revision  # of the key, at which nothing has happened yet; 0: there is none
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

    def request(self, number: int) -> bytes:
        """With a number that is its own within the stream."""
        start = f',"start_revision":"{self.start}"' if self.start and self.lasting else ""
        without = f',"filters":["{self.without}"]' if self.without else ""
        return (
            f'{{"create_request":{{"key":"{encoded(self.key)}","watch_id":"{number}"{start}{without}}}}}\n'
        ).encode()


class Task:
    """Steps on one connection. When it waits for nothing on its socket, it sleeps until the deadline; otherwise it
    fails then."""

    def __init__(self, endpoint: Endpoint, gateway: Gateway) -> None:
        self.endpoint = endpoint
        self.connection = gateway.new_connection(endpoint)
        self.deadline = time.monotonic() + CREATE_WITHIN
        self.events = 0
        self.closed = False
        self.steps: Steps[None]

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
    """Watches by their numbers, and what is still to be sent about them."""

    def __init__(self, endpoint: Endpoint, gateway: Gateway, tries: int) -> None:
        super().__init__(endpoint, gateway)
        self.tries = tries  # members that may still be tried if this one does not answer
        self.begun = False
        self.watches: dict[int, Watch] = {}
        self._unconfirmed: dict[int, float] = {}  # until when each is to be confirmed, in the order of their times
        self._outgoing = bytearray()
        self._count = 0

    @property
    def live(self) -> list[Watch]:
        return [watch for watch in list(self.watches.values()) if not watch.done]

    def create(self, watches: list[Watch]) -> None:
        late = time.monotonic() + CREATE_WITHIN
        for watch in watches:
            self._count += 1
            self.watches[self._count] = watch
            self._unconfirmed[self._count] = late
            self._outgoing += chunk(watch.request(self._count))
        self._set_deadline()

    def cancel_done(self) -> None:
        for number in [number for number, watch in self.watches.items() if watch.done]:
            del self.watches[number]
            self.confirmed(number)
            self._outgoing += chunk(f'{{"cancel_request":{{"watch_id":"{number}"}}}}\n'.encode())

    def confirmed(self, number: int) -> None:
        self._unconfirmed.pop(number, None)
        self._set_deadline()

    def _set_deadline(self) -> None:
        self.deadline = next(iter(self._unconfirmed.values()), math.inf)

    def flush(self) -> None:
        """Send as much as can be sent now."""
        if self._outgoing:
            del self._outgoing[: self.connection.send_some(self._outgoing)]
        self.events = READ | (WRITE if self._outgoing else 0)


class Reader:
    """The thread, and what it reads. It ends when there was nothing to watch for some seconds."""

    def __init__(self, gateway: Gateway, probe_key: str) -> None:
        self._gateway = gateway
        self._probe_body = f'{{"key":"{encoded(probe_key)}","keys_only":true}}'.encode()
        self._lock = threading.RLock()
        self._over = False
        self._new: list[Watch] = []
        self._later: list[tuple[float, Watch]] = []  # whose turn comes at that time: to fire, or to go on if lasting
        self._stream: Stream | None = None
        self._probe: Task | None = None
        self._unchecked: list[Watch] = []  # created, and not read since
        self._bell, self._heard = socket.socketpair()
        for one in (self._bell, self._heard):
            one.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="leasehold-etcd-watches", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # ------------------------------------------------------------ from any thread

    def add(self, watch: Watch, known: bool) -> bool:
        """False: it has ended."""
        with self._lock:
            if self._over:
                return False
            if known:
                self._new.append(watch)
            else:
                self._later.append((time.monotonic() + PAUSE, watch))
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
            stream = self._stream
            return [*self._new, *(watch for _, watch in self._later), *(stream.live if stream else ())]

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
                    if self._new or self._later or (self._stream and self._stream.live):
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
        for task in (self._stream, self._probe):
            if task is not None:
                task.close()
        self._bell.close()
        self._heard.close()

    def _set_new(self, now: float) -> None:
        with self._lock:
            due = [watch for at, watch in self._later if at <= now and not watch.done]
            new = [watch for watch in self._new if not watch.done] + [watch for watch in due if watch.lasting]
            self._later = [(at, watch) for at, watch in self._later if at > now and not watch.done]
            self._new = []
            if self._stream is not None:  # under the lock, so that fire_all finds them here or there
                self._stream.create(new)
            elif new:
                self._open(new, len(self._gateway.target.endpoints) - 1)
        for watch in due:
            self._fire_once(watch)

    def _fire_once(self, watch: Watch) -> None:
        if not watch.lasting:
            self._fire(watch, None)

    def _open(self, watches: list[Watch], tries: int) -> None:
        stream = self._stream = Stream(self._gateway.first, self._gateway, tries)
        stream.create(watches)
        stream.steps = self._read(stream)

    def _tidy(self) -> None:
        """Begin what is new, and send what is to be sent."""
        stream = self._stream
        if stream is not None:
            stream.cancel_done()
            if stream.begun:
                self._flush(stream)
        while self._stream is not None and not self._stream.events:  # one that fails may open the next
            self._resume(self._stream)
        self._watch_over()

    def _watch_over(self) -> None:
        """The member of the stream is probed as long as something is watched there."""
        stream, probe = self._stream, self._probe
        endpoint = stream.endpoint if stream is not None and stream.live else None
        if probe is not None and probe.endpoint != endpoint:
            probe.close()
            self._probe = None
        if self._probe is None and endpoint is not None:
            probe = self._probe = Task(endpoint, self._gateway)
            probe.steps = self._ask(probe)
            self._resume(probe)
        if self._probe is not None and not self._probe.events and self._unchecked:
            self._resume(self._probe)

    def _flush(self, stream: Stream) -> None:
        try:
            stream.flush()
        except Broken:
            self._failed(stream)

    def _wait(self) -> None:
        """Until something happens; then the tasks that it is for go on."""
        tasks = [task for task in (self._stream, self._probe) if task is not None]
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
            if task.deadline <= now and not task.closed:
                self._late(task)

    def _resume(self, task: Task) -> None:
        if task.closed:  # the other one has failed a moment ago, and this one with it
            return
        try:
            task.resume()
        except Broken:
            self._failed(task)

    def _late(self, task: Task) -> None:
        if task.events:
            self._failed(task)
        else:
            self._resume(task)

    def _failed(self, task: Task) -> None:
        """A stream that never began is tried at another member. Otherwise everybody looks again: what happened
        meanwhile is not known."""
        self._gateway.distrust(task.endpoint)
        task.close()
        if task is self._probe:
            self._probe = None
            if self._stream is None or self._stream.endpoint != task.endpoint:
                return
            self._stream.close()
        stream = self._stream
        if stream is None:
            return
        watches = stream.live
        with self._lock:
            self._stream = None
            if not stream.begun and stream.tries and watches:
                self._open(watches, stream.tries - 1)
                return
            waits = [watch for watch in watches if watch.lasting or not stream.begun]
            self._later += [(time.monotonic() + PAUSE, watch) for watch in waits]
        if stream.begun:
            for watch in watches:
                self._fire_once(watch)

    # ------------------------------------------------------------ the steps of a task

    def _read(self, stream: Stream) -> Steps[None]:
        connection = stream.connection
        yield from connection.open(addresses(stream.endpoint))
        yield from connection.send(stream_head(WATCH, str(stream.endpoint), self._gateway.token))
        while True:
            stream.flush()
            yield stream.events
            connection.receive()
            status, lines, ended = connection.lines()
            if status not in (0, 200):
                raise Broken("it refused the stream")
            for line in lines:
                self._receive(stream, _message(line))
            if ended:
                raise Broken("it ended the stream")

    def _receive(self, stream: Stream, message: Message) -> None:
        watch = stream.watches.get(message.number)
        stream.begun = True
        stream.confirmed(message.number)
        if watch is None or watch.done:
            return
        if message.created and not watch.lasting and message.now >= watch.start:
            self._unchecked.append(watch)
        if message.canceled:
            del stream.watches[message.number]
            self._canceled(watch, message.compacted)
        elif message.events:
            watch.start = message.revision + 1
            self._fire(watch, message.events)

    def _canceled(self, watch: Watch, compacted: bool) -> None:
        """What it was to begin with is compacted, or it is not allowed: then the next one would be canceled as well."""
        if compacted and not watch.lasting:
            self._fire(watch, None)
            return
        watch.start = 0
        with self._lock:
            self._later.append((time.monotonic() + PAUSE, watch))

    def _ask(self, probe: Task) -> Steps[None]:
        """Read by consensus every now and then: a member that is frozen, or cut off from the others, keeps its streams
        open and sends nothing. An error that is about us is an answer as well."""
        opened = False
        while True:
            if not self._unchecked:
                probe.deadline = time.monotonic() + PROBE_EVERY
                yield 0
            probe.deadline = time.monotonic() + PROBE_WITHIN
            if not opened:
                yield from probe.connection.open(addresses(probe.endpoint))
                opened = True
            checked, self._unchecked = self._unchecked[:MOST_CHECKED], self._unchecked[MOST_CHECKED:]
            path, body = (TXN, _ranges(checked)) if checked else (RANGE, self._probe_body)
            reply = yield from probe.connection.post(request(path, str(probe.endpoint), self._gateway.token, body))
            if reply.status >= 500:
                raise Broken("it cannot read")
            self._compare(checked, reply.body if reply.status == 200 else b"{}")

    def _compare(self, watches: list[Watch], body: bytes) -> None:
        """Fire those whose key is not what it was. What cannot be read fires as well: the caller looks."""
        try:
            answers = json.loads(body).get("responses", []) if watches else []
        except (ValueError, AttributeError):
            answers = []
        for place, watch in enumerate(watches):
            if place >= len(answers):
                self._fire(watch, None)
                continue
            found = answers[place]["response_range"].get("kvs")
            revision = int(found[0]["mod_revision"]) if found else 0
            if revision != watch.revision:
                self._fire(watch, [{"kv": found[0]} if found else {"type": "DELETE", "kv": {}}])


def _ranges(watches: list[Watch]) -> bytes:
    reads = [f'{{"request_range":{{"key":"{encoded(watch.key)}"}}}}' for watch in watches]
    return f'{{"success":[{",".join(reads)}]}}'.encode()


class Message(NamedTuple):
    """What a member tells of one watch."""

    number: int
    canceled: bool
    compacted: bool  # that is why
    created: bool
    events: list[Event]
    revision: int  # of the last event
    now: int  # the revision of the member


def _message(line: bytes) -> Message:
    try:
        found = json.loads(line)["result"]
        events = found.get("events", [])
        return Message(
            int(found.get("watch_id", 0)),
            bool(found.get("canceled")),
            "compact_revision" in found,
            bool(found.get("created")) and not found.get("canceled"),
            events,
            int(events[-1]["kv"]["mod_revision"]) if events else 0,
            int(found["header"]["revision"]),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Broken("it sent an error in the stream") from error
