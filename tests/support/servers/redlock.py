"""Independent masters for Redlock, each with a clock of its own and behind a network of its own."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import Any, Self

from tests.support.servers.certificates import Certificates
from tests.support.servers.clock import WallClock
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from tests.support.servers.server import restore, start_together


class RedlockNode:
    """One master. ``link`` is the network in front of it, ``clock`` its wall clock; ``server`` is the way round the
    network."""

    def __init__(self, server: RedisServer, clock: WallClock) -> None:
        self.server = server
        self.clock = clock
        self.link = Proxy(server.announced_port)

    @property
    def address(self) -> str:
        """Through the network."""
        return f"127.0.0.1:{self.link.port}"

    @property
    def url(self) -> str:
        """Through the network."""
        return f"{'rediss' if self.server.tls_port else 'redis'}://{self.server.userinfo}{self.address}/0"

    def client(self, **more: Any) -> Any:
        """A client of the test that goes through the network, closed when the node is wiped or stopped."""
        tls = {"ssl": True, **self.server.tls.arguments()} if self.server.tls else {}
        return self.server.client(**{"host": "127.0.0.1", "port": self.link.port, **tls, **more})

    def restart(self, keep: bool = True) -> None:
        """A crash and a start, with what was written to disk, or without."""
        self.server.kill()
        if not keep:
            self.lose_data()
        self.server.start()

    def lose_data(self) -> None:
        """While it is down, its disk is lost."""
        assert not self.server.runs, "its files are in use"
        for path in self.server.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix != ".log":
                path.unlink()

    def flush(self) -> None:
        """FLUSHALL."""
        assert self.server.ask("FLUSHALL") == b"+OK\r\n"

    def cut_off(self) -> None:
        """Nobody reaches it, and who tries is told so at once. With ``link.blackhole`` nobody is told."""
        self.link.refuse()
        self.link.cut()

    def heal(self) -> None:
        """A good network again: what waits is delivered."""
        self.link.on_request = None
        self.link.release()
        self.link.accept()

    def wipe(self) -> None:
        """As it was when it was new."""
        restore([self.server])
        self.clock.set_off(0)
        self.heal()
        self.link.cut()
        self.server.wipe()


class RedlockServers:
    """They start with ``with``, all at the same time. Options, ``appendonly`` and ``login`` are those of each."""

    def __init__(
        self,
        size: int = 5,
        *options: str,
        executable: str | None = None,
        appendonly: bool = False,
        login: tuple[str, ...] = (),
        tls: Certificates | None = None,
    ) -> None:
        self._clocks = [WallClock() for _ in range(size)]
        self._servers = [
            RedisServer(None, *options, executable=executable, appendonly=appendonly, login=login, tls=tls, clock=clock)
            for clock in self._clocks
        ]
        self.nodes: list[RedlockNode] = []
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """Every node, through its network."""
        return f"redlock://{self._servers[0].userinfo}{','.join(node.address for node in self.nodes)}"

    @property
    def majority(self) -> int:
        """How many nodes are enough."""
        return len(self.nodes) // 2 + 1

    def clients(self, **more: Any) -> list[Any]:
        """A client of each node, through its network."""
        return [node.client(**more) for node in self.nodes]

    def wipe(self) -> None:
        """As they were when they were new: all run and are reached, no keys, no scripts, no clients."""
        for node in self.nodes:
            node.wipe()

    def __enter__(self) -> Self:
        start_together(self._servers)
        with ExitStack() as stack:
            for server, clock in zip(self._servers, self._clocks, strict=True):
                stack.callback(server.stop)
                self.nodes.append(RedlockNode(server, clock))
                stack.callback(self.nodes[-1].link.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()
