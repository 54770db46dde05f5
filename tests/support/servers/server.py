"""The life of a server, whichever it is: it starts, is harmed, comes back, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from tests.support.servers import process
from tests.support.waiting import PATIENCE, until


class Server(ABC):
    """It starts with ``start`` or with ``with``. ``kill`` is a crash: ``start`` finds port and data of before."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = None
    _account: dict[str, Any] = {}  # noqa: RUF012 # nobody writes to it; ours, unless a server says otherwise
    _farewell = signal.SIGTERM  # asks it to end in peace, whoever is connected

    @abstractmethod
    def _command(self) -> list[str]:
        """The program and its options."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it is ready for clients."""

    @abstractmethod
    def stop(self) -> None:
        """Gone, with everything that it wrote."""

    def _environment(self) -> dict[str, str]:
        return {}

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has a process, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def awake(self) -> bool:
        """Whether it runs and is not frozen."""
        return self.runs and process.status(self.pid) != "T"

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        log = self.folder / "server.log"
        self._process = process.start(self._command(), self.folder, log, self._environment(), **self._account)
        until(self._is_up, f"the server answers; its log:\n{log}")
        return self

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the server ended:\n{(self.folder / 'server.log').read_text()}")
        return self._answers()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """End it in peace and start it again, with the same data."""
        self._end(self._farewell)
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: it stands still and does not know it."""
        process.freeze(self.pid)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            if how is not signal.SIGKILL:
                self._process.send_signal(signal.SIGCONT)  # a frozen one would not hear
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *failure: object) -> None:
        self.stop()


def start_together(servers: Sequence[Server]) -> None:
    """Start all of them at the same time. When one fails, nothing of any of them is left."""
    with ThreadPoolExecutor(len(servers)) as threads:
        starts = [threads.submit(server.start) for server in servers]
    try:
        for start in starts:
            start.result()
    except BaseException:
        for server in servers:
            server.stop()
        raise


def restore(servers: Sequence[Server]) -> None:
    """All of them run: what is frozen is thawed, what was killed is started again."""
    for server in servers:
        if server.runs:
            server.thaw()
        else:
            server.start()
