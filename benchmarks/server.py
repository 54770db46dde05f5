"""A redis-server for one benchmark: on a free port of 127.0.0.1, nothing on disk, pinned to one core on request."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import redis

SCRIPTS = ("eval", "evalsha", "evalsha_ro", "fcall", "fcall_ro")
SETTINGS = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning"]


class Usage(NamedTuple):
    """What a server has done since it was started."""

    commands: int  # also those inside scripts
    requests: int  # reads from clients: a pipeline is one, and a push is none
    cpu_ms: float
    memory: int

    def since(self, before: Usage) -> Usage:
        """The difference, without the request that read the first numbers."""
        commands, requests, cpu_ms, memory = (now - then for now, then in zip(self, before, strict=True))
        return Usage(int(commands), max(int(requests) - 1, 0), cpu_ms, int(memory))


def usage(client: redis.Redis) -> Usage:
    """All of it, with one request."""
    info: Any = client.info("stats", "commandstats", "cpu", "memory")
    calls = [stats["calls"] for name, stats in info.items() if name.startswith("cmdstat_") and name != "cmdstat_info"]
    cpu_ms = (info["used_cpu_sys"] + info["used_cpu_user"]) * 1000
    return Usage(sum(calls), info["total_reads_processed"], cpu_ms, info["used_memory"])


def execution(client: redis.Redis, *commands: str) -> tuple[int, float]:
    """How many scripts it has run, and the µs that it took to execute scripts and these plain commands. What a script
    calls is part of the script, so a command that scripts call as well must not be named."""
    stats: Any = client.info("commandstats")
    known = {name: stats.get(f"cmdstat_{name}", {"calls": 0, "usec": 0}) for name in (*SCRIPTS, *commands)}
    return sum(known[name]["calls"] for name in SCRIPTS), sum(one["usec"] for one in known.values())


@contextmanager
def one_core(*servers: int) -> Iterator[None]:
    """This process, these, and all that are started meanwhile on one core: what is measured then is work, not the
    wake-up of another core."""
    before = os.sched_getaffinity(0)
    try:
        _pin(servers, {max(before)})
        yield
    finally:
        _pin(servers, before)


def _pin(servers: tuple[int, ...], cores: set[int]) -> None:
    """Affinity belongs to a thread; threads that are started later inherit it."""
    for pid in (os.getpid(), *servers):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setaffinity(int(thread.name), cores)


class Server:
    """A server that runs inside its ``with`` block."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        if shutil.which("redis-server") is None:
            raise SystemExit("redis-server is not installed: tools/servers.sh does it")
        self.port = _free_port()
        self._environment = {**os.environ, **(environment or {})}
        self._stack = ExitStack()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def url(self, db: int = 0) -> str:
        """The URL for clients."""
        return f"redis://127.0.0.1:{self.port}/{db}"

    def usage(self) -> Usage:
        """What it has done until now."""
        return usage(self._client)

    def execution(self, *commands: str) -> tuple[int, float]:
        """As the function of this name says."""
        return execution(self._client, *commands)

    def empty(self) -> None:
        """Delete every key, so that the next contender does not find those of the last."""
        self._client.flushall()

    def one_core(self) -> AbstractContextManager[None]:
        """This process and the server on one core."""
        return one_core(self._process.pid)

    def __enter__(self) -> Server:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            command = ["redis-server", "--port", str(self.port), "--dir", folder, *SETTINGS]
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=self._environment)
            stack.callback(self._stop)
            self._client = stack.enter_context(redis.Redis(port=self.port))
            self._await_start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _await_start(self) -> None:
        until = time.monotonic() + 10
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("redis-server did not start") from None
                time.sleep(0.01)

    def _stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
