"""A primary with replicas, and a way to cut the link between them while all of them live."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from tests.support.servers.certificates import Certificates
from tests.support.servers.clock import WallClock
from tests.support.servers.redis import RedisServer
from tests.support.servers.server import Server, restore, start_together
from tests.support.waiting import until

# A replica is filled from a file. When it is filled from a socket, it says that it is connected, and for up to a second
# it is sent nothing of what is written.
FILLED = ("--repl-diskless-sync", "no")
CUT = "no-such-password"  # what a replica shows to its primary while the link is cut


class ConfiguredServer(RedisServer):
    """A server that keeps its settings in a file, and so remembers its role when it is started again."""

    def __init__(self, *options: str, **more: Any) -> None:
        super().__init__(None, *options, **more)
        lines = " ".join(f'"{option}"' if option[:2] != "--" else f"\n{option[2:]}" for option in self._options)
        self._file = self.folder / "server.conf"
        self._file.write_text(f"{lines}\n")

    def _command(self) -> list[str]:
        return [self.executable, str(self._file)]


class RedisReplicas:
    """It starts with ``with``: a primary and so many replicas, in step.

    ``login`` and ``tls`` are for clients and for replication. With ``clocks`` each server has a clock that the test can
    set (``server.clock``).
    """

    def __init__(
        self,
        replicas: int = 1,
        *options: str,
        executable: str | None = None,
        login: tuple[str, ...] = (),
        tls: Certificates | None = None,
        appendonly: bool = False,
        clocks: bool = True,
    ) -> None:
        self._login = login
        self._tls = tls
        self._masterauth = login[-1] if login else ""
        settings = [
            *FILLED,
            *(("--tls-replication", "yes") if tls else ()),
            *(("--masterauth", self._masterauth) if login else ()),
            *(("--masteruser", login[0]) if len(login) > 1 else ()),
        ]
        self.servers: list[ConfiguredServer] = []
        for _ in range(1 + replicas):
            following = ("--replicaof", "127.0.0.1", str(self.servers[0].announced_port)) if self.servers else ()
            server = ConfiguredServer(
                *settings,
                *following,
                *options,
                executable=executable,
                login=login,
                tls=tls,
                appendonly=appendonly,
                clock=WallClock() if clocks else None,
            )
            self.servers.append(server)
        self._cut: list[RedisServer] = []
        self._stack = ExitStack()

    # ------------------------------------------------------------ who is what

    @property
    def primary(self) -> RedisServer:
        """The one that takes writes."""
        return self.servers[0]

    @property
    def replicas(self) -> list[RedisServer]:
        """All others."""
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    @property
    def url(self) -> str:
        """Of the primary."""
        return self.primary.url

    # ------------------------------------------------------------ what happens to it

    def cut_replication(self, *replicas: RedisServer) -> None:
        """From now on nothing reaches these replicas (all, without names) from the primary; all servers live on.

        A replica shows a wrong password when it connects again, and is refused. Nobody else needs to know of that: who
        watches the servers sees a link that is down, as after any partition between them.
        """
        for replica in replicas or self.replicas:
            self._show(replica, CUT)
            self._cut.append(replica)
            replica.ask("CLIENT KILL TYPE master")
            until(partial(self._apart, replica), "the replica is cut off")

    def heal(self) -> None:
        """The links that were cut are there again, and the replicas in step."""
        for replica in [server for server in self._cut if server.awake]:
            self._show(replica, self._masterauth)
            self._cut.remove(replica)
        self.settle()

    def settle(self) -> None:
        """Wait until every replica that runs, and is not cut off, follows the primary."""
        until(self._settled, "the replicas follow the primary")

    def restart(self, server: Server) -> None:
        """End a server in peace if it runs, start it, and wait until it has its place."""
        server.restart()
        self.settle()

    def wipe(self) -> None:
        """As it was when it was new: every server runs and is in its place, no keys, no scripts, no clients."""
        restore(self._everybody())
        for server in self.servers:
            if isinstance(server.clock, WallClock):
                server.clock.set_off(0)
        self.heal()
        self.primary.wipe()
        for replica in self.replicas:
            replica.forget_clients()
            replica.ask("SCRIPT FLUSH")
            until(partial(is_empty, replica), "the replica is empty")

    # ------------------------------------------------------------ its life

    def __enter__(self) -> Self:
        first, *others = self._everybody()
        start_together([first])  # a replica that does not find its primary tries again only after a second
        with ExitStack() as stack:
            stack.callback(first.stop)
            if others:
                start_together(others)
            for server in others:
                stack.callback(server.stop)
            self.settle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def _everybody(self) -> list[ConfiguredServer]:
        return self.servers

    def _settled(self) -> bool:
        primary = self.primary
        awake = [server for server in self.servers if server.awake]
        following = [server for server in awake if server is not primary and server not in self._cut]
        return primary in awake and all(self._follows(server, primary) for server in following)

    def _follows(self, replica: RedisServer, primary: RedisServer) -> bool:
        role = replica.ask("ROLE")
        return f":{primary.announced_port}\r\n$9\r\nconnected".encode() in role and self._lists(primary, replica)

    def _lists(self, primary: RedisServer, replica: RedisServer) -> bool:
        return f"\r\n{replica.announced_port}\r\n".encode() in primary.ask("ROLE")

    def _apart(self, replica: RedisServer) -> bool:
        primary = self.primary
        return b"$9\r\nconnected" not in replica.ask("ROLE") and (
            not primary.awake or not self._lists(primary, replica)
        )

    def _show(self, replica: RedisServer, masterauth: str) -> None:
        for command in (f'CONFIG SET masterauth "{masterauth}"', "CONFIG REWRITE"):
            assert replica.ask(command) == b"+OK\r\n", command


def is_empty(server: RedisServer) -> bool:
    """Whether it has no keys."""
    return server.ask("DBSIZE") == b":0\r\n"
