"""A crew of real processes whose leases live in a Redis server, and a record of who came and who was served."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import Any, NamedTuple

from leasehold._core.types import Grant, State, Waiter
from leasehold.stores.redis.protocol import keys
from tests.support.redis.stage import Look
from tests.support.servers.redis import RedisServer
from tests.support.workers.crew import Crew, Worker


class RedisCrew(Crew):
    """The same workers, on another store."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        super().__init__(folder, server.url)
        self.server = server
        self.look = Look(server)

    def peek(self, resource: str) -> State:
        """Holder and queue as they lie there: a look that advances nothing. Times are the server's."""
        client: Any = self.look.client
        key = keys(resource)[0]
        with client.pipeline() as pipe:
            raw, left_ms, (seconds, micros) = pipe.get(key).pttl(key).time().execute()
        queue = tuple(Waiter(one, 0, 0, 0) for one in self.look.queue(resource))
        if not raw or raw.startswith(":") or " " not in raw:
            return State(queue=queue)
        fence, owner, ttl_ms = raw.split(" ")[:3]
        expires_ms = seconds * 1000 + micros // 1000 + left_ms + 1
        return State(holders=(Grant(owner, int(fence), int(ttl_ms), expires_ms),), queue=queue)

    def freeze(self, worker: Worker) -> None:
        """At any moment: whatever it was asking, nobody waits for it."""
        worker.stop()

    def sound(self) -> None:
        """Every key has an end."""
        self.look.leftovers()


class Served(NamedTuple):
    """What happened to one resource, in the server's own order: who stood in line, and who was granted."""

    events: list[tuple[str, str]]  # ("waits", owner) and ("granted", owner)

    def overtakes(self) -> int:
        """Grants to somebody while another had stood in line for longer (I15)."""
        queue: list[str] = []
        wrong = 0
        for event, owner in self.events:
            if event == "waits":
                queue.append(owner)
            elif queue:
                wrong += queue[0] != owner
                if owner in queue:
                    queue.remove(owner)
        return wrong

    def waited(self) -> int:
        """How many had to stand in line."""
        return sum(event == "waits" for event, _ in self.events)


class Monitor:
    """MONITOR: the server tells of every command in the order in which it did them, also those of scripts."""

    LINE = re.compile(rb'"(RPUSH|SET)" "lock:v1:\{([^}]*)\}:(queue|owner)" "(?:\d+ )?([^" ]*)')

    def __init__(self, server: RedisServer, resource: str) -> None:
        self._resource = resource.encode()
        self._line = socket.create_connection(("127.0.0.1", server.port), 10)
        self._line.sendall(b"MONITOR\r\n")
        assert self._line.recv(5) == b"+OK\r\n"
        self._heard = bytearray()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while chunk := self._line.recv(65_536):
            self._heard += chunk

    def close(self) -> Served:
        """What was heard until now."""
        self._line.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._line.close()
        found = [match for match in self.LINE.findall(bytes(self._heard)) if match[1] == self._resource]
        events = [("waits" if command == b"RPUSH" else "granted", owner.decode()) for command, _, _, owner in found]
        return Served(list(dict.fromkeys(events)))  # the key of a holder is written again when others begin to wait
