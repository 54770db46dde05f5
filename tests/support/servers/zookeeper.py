"""ZooKeeper of one's own: a single server, or an ensemble whose members are killed, frozen and cut off."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.support.servers import process
from tests.support.servers.certificates import Certificates
from tests.support.servers.disk import Disk
from tests.support.servers.proxy import Proxy
from tests.support.servers.server import Server, restore, start_together
from tests.support.waiting import PATIENCE, until

JARS = "/usr/share/java"
PROGRAM = (
    "slf4j-nop",
    "zookeeper",
    "netty-codec",
    "netty-resolver",
)  # TLS needs the latter; Debian's package forgets it
ANSWERS_WITHIN = 0.2  # seconds: one that has just begun to listen may never answer, and is asked again
LISTENS_WITHIN = 1.0  # seconds, for a member that was elected
CHANGES_WITHIN = 10.0  # seconds, for a leader
TICK_MS = 200  # a session lasts 2 to 20 ticks
SETTINGS = {
    "tickTime": str(TICK_MS),
    "minSessionTimeout": str(2 * TICK_MS),
    "maxSessionTimeout": "40000",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "preAllocSize": "1024",
    "snapCount": "1000000",
    "autopurge.purgeInterval": "0",
}
# A small machine that starts fast. Disks are not waited for: servers are killed here, but no machine loses its power.
JAVA = [
    "java",
    "-Xms32m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Djava.awt.headless=true",
    "-Dzookeeper.4lw.commands.whitelist=*",
]


# Members that look for a leader repeat themselves often, in place of once a minute at last.
HASTE = {
    "zookeeper.cnxTimeout": "500",
    "zookeeper.fastleader.minNotificationInterval": "50",
    "zookeeper.fastleader.maxNotificationInterval": "200",
    "zookeeper.leaderConnectDelayDuringRetryMs": "20",
}


class ZooKeeperServer(Server):
    """One server. ``settings`` are lines of its configuration, ``properties`` of the Java system; ``place`` is where
    it keeps its files, if not in memory."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        tls: Certificates | None = None,
        place: Path | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=place or process.home()))
        self._place = process.reserve()
        self.port = self._place.getsockname()[1]
        self.settings = {**SETTINGS, **(settings or {})}
        self._properties = dict(properties or {})
        self._tls_place: socket.socket | None = None
        self.tls_port = 0
        if tls is not None:
            self._use_tls(tls)

    def _use_tls(self, tls: Certificates) -> None:
        self._tls_place = process.reserve()
        self.tls_port = self._tls_place.getsockname()[1]
        store = self.folder / "server.pem"  # Java knows what it is by how its name ends
        trust = self.folder / "authority.pem"
        store.write_bytes(_for_java(tls.server.read_bytes()))
        shutil.copy(tls.authority, trust)
        self.settings |= {
            "secureClientPort": str(self.tls_port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(store),
            "ssl.trustStore.location": str(trust),
        }

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    def url(self, chroot: str = "/leasehold", userinfo: str = "") -> str:
        """For ``connect``."""
        return f"zk://{userinfo}{self.address}{chroot}"

    def ask(self, word: str, within: float = 5.0) -> str:
        """The answer to a four-letter word; empty when there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), within) as connection:
                connection.sendall(word.encode())
                parts = []
                while part := connection.recv(65536):
                    parts.append(part)
        except OSError:
            return ""
        return b"".join(parts).decode()

    @property
    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; empty while it serves nobody."""
        lines = self.ask("srvr", 1.0).splitlines()
        return next((line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")), "")

    def sessions(self) -> list[str]:
        """The ids of the sessions that it knows, in hexadecimal."""
        lines = self.ask("dump").splitlines()
        words = {word.rstrip(":") for line in lines for word in line.split()}
        return sorted(word for word in words if word.startswith("0x"))

    def stop(self) -> None:
        """Gone, with its folder."""
        self.kill()
        self._place.close()
        if self._tls_place is not None:
            self._tls_place.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self) -> list[str]:
        file = self.folder / "zoo.cfg"
        lines = {**self.settings, "dataDir": str(self.folder / "data"), "clientPort": str(self.port)}
        lines["clientPortAddress"] = "127.0.0.1"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        (self.folder / "data").mkdir(exist_ok=True)
        jars = ":".join(f"{JARS}/{name}.jar" for name in PROGRAM)
        properties = [f"-D{name}={value}" for name, value in self._properties.items()]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [*JAVA, *properties, "-cp", jars, main, str(file)]

    def _answers(self) -> bool:
        return self.ask("ruok", ANSWERS_WITHIN) == "imok" and self._serves()

    def _serves(self) -> bool:
        return bool(self.mode)


def _for_java(pem: bytes) -> bytes:
    """A key and its certificate, with the key in the only form that Java reads."""
    from cryptography.hazmat.primitives import serialization as form

    key = form.load_pem_private_key(pem, None)
    written = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return written + pem[pem.index(b"-----BEGIN CERTIFICATE") :]


class _Member(ZooKeeperServer):
    """One of an ensemble. It serves clients only when there is a quorum, so it is up before it serves."""

    def __init__(self, number: int, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings, HASTE)
        self.number = number
        self.disk = Disk()
        self.quorum = process.reserve()
        self.election = process.reserve()

    def _serves(self) -> bool:
        return True

    def _environment(self) -> dict[str, str]:
        return self.disk.environment()

    @property
    def ports(self) -> list[int]:
        """Where the others reach it: for data, and for elections."""
        return [self.quorum.getsockname()[1], self.election.getsockname()[1]]

    def stop(self) -> None:
        super().stop()
        self.quorum.close()
        self.election.close()


class _Way(Proxy):
    """From one member to another. A follower may come before its leader listens. It would try again if it were refused,
    but a proxy has accepted its connection by then, so it waits here for a moment. Otherwise the election would begin
    anew, after both have waited for each other in vain."""

    def _connect(self) -> socket.socket:
        end = time.monotonic() + LISTENS_WITHIN
        while True:
            try:
                return super()._connect()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)


class ZooKeeperEnsemble:
    """Members that elect a leader. It starts with ``with``.

    Each member reaches each other through a network of its own, so that one can be cut off from its leader while its
    clients still reach it.
    """

    def __init__(self, count: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {"initLimit": "10", "syncLimit": "10", **(settings or {})}  # in ticks
        self.members = [_Member(number, self._settings) for number in range(1, count + 1)]
        self._stack = ExitStack()
        self._links: dict[tuple[int, int], tuple[Proxy, Proxy]] = {}  # by who reaches whom: data and elections
        self._cut_off: list[ZooKeeperServer] = []

    def start(self) -> Self:
        """Start all, and wait until there is a leader."""
        for member in self.members:
            self._configure(member)
        start_together(self.members)
        self.settle()
        return self

    def _configure(self, member: _Member) -> None:
        for other in self.members:
            member.settings[f"server.{other.number}"] = self._way(member, other)
        folder = member.folder / "data"
        folder.mkdir(exist_ok=True)
        (folder / "myid").write_text(f"{member.number}\n")

    def _way(self, member: _Member, other: _Member) -> str:
        """How one reaches the other, or where it is itself."""
        ports = other.ports
        if other is not member:
            data, election = [self._stack.enter_context(one) for one in (_Way(ports[0]), Proxy(ports[1]))]
            self._links[member.number, other.number] = (data, election)
            ports = [data.port, election.port]
        return f"127.0.0.1:{ports[0]}:{ports[1]}"

    def stop(self) -> None:
        """Gone, all of it."""
        for member in self.members:
            member.stop()
        self._stack.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *failure: object) -> None:
        self.stop()

    # ------------------------------------------------------------ where it is, and who is what

    def url(self, chroot: str = "/leasehold", members: Sequence[ZooKeeperServer] = ()) -> str:
        """Of all members, or of these."""
        return f"zk://{','.join(one.address for one in members or self.members)}{chroot}"

    @property
    def leader(self) -> ZooKeeperServer:
        """The one that leads now, as the majority knows: one that is cut off may still believe that it does."""
        return self._with_mode("leader")[0]

    @property
    def followers(self) -> list[ZooKeeperServer]:
        """Those that follow now."""
        return self._with_mode("follower")

    def _with_mode(self, mode: str) -> list[ZooKeeperServer]:
        def found() -> list[ZooKeeperServer]:
            heard = [member for member in self.members if member.awake and member not in self._cut_off]
            return [member for member in heard if member.mode == mode]

        members: list[ZooKeeperServer] = until(found, f"there is a {mode}", every=0.02)
        return members

    # ------------------------------------------------------------ what happens to it

    def settle(self) -> None:
        """Wait until every member that is awake serves, and one of them leads."""

        def served() -> bool:
            modes = [member.mode for member in self.members if member.awake]
            return all(modes) and modes.count("leader") == 1

        until(served, "the ensemble has a leader", every=0.02)

    def heal(self) -> None:
        """All members run and reach one another."""
        for member in list(self._cut_off):
            self.reconnect(member)
        ended = [member for member in self.members if not member.runs]
        restore([member for member in self.members if member.runs])
        if ended:
            start_together(ended)
        self.settle()
        if not self._changes():  # the same as in ``reconnect`` may happen after other faults
            leader = self.leader
            leader.kill()
            start_together([leader])
            self.settle()

    def _changes(self) -> bool:
        """To begin a session is a change."""
        client = KazooClient(self.leader.address)
        try:
            client.start(CHANGES_WITHIN)
        except KazooTimeoutError:
            return False
        finally:
            client.stop()
            client.close()
        return True

    def cut_off(self, member: ZooKeeperServer) -> None:
        """From now on it and the others hear nothing of each other, and are not told so. Clients still reach it.

        New connections are refused: members that try to follow one that is silent take long to elect another.
        """
        self._cut_off.append(member)
        for data, election in self._links_of(member):
            data.blackhole()
            data.refuse()
            election.refuse()
            election.cut()

    def reconnect(self, member: ZooKeeperServer) -> None:
        """They hear of each other again.

        A leader has noticed by then. If it led on, with a change that nobody else has confirmed, none would be done any
        more: followers that come back confirm that change and the leader itself in any order, and ZooKeeper 3.8.0 takes
        what comes first for the latter (ZOOKEEPER-4685). All of them look healthy then.
        """
        if member.awake:
            until(lambda: member.mode != "leader", "it notices that nobody follows")
        self._cut_off.remove(member)
        for data, election in self._links_of(member):
            data.release()
            data.cut()
            data.accept()
            election.accept()

    def _links_of(self, member: ZooKeeperServer) -> list[tuple[Proxy, Proxy]]:
        assert isinstance(member, _Member)
        return [links for ends, links in self._links.items() if member.number in ends]


class ChangingEnsemble(ZooKeeperEnsemble):
    """One whose members come and go while it runs. All of them know the same addresses, so none can be cut off."""

    def __init__(self, count: int = 3, settings: Mapping[str, str] | None = None) -> None:
        dynamic = {"reconfigEnabled": "true", "standaloneEnabled": "false", "skipACL": "yes"}
        super().__init__(count, {**dynamic, **(settings or {})})
        self._removed: list[_Member] = []

    def _way(self, member: _Member, other: _Member) -> str:
        return f"127.0.0.1:{other.ports[0]}:{other.ports[1]}:participant;{other.address}"

    def stop(self) -> None:
        """Gone, with those that were removed."""
        super().stop()
        for member in self._removed:
            member.stop()

    def add(self) -> ZooKeeperServer:
        """One more, which has a vote."""
        numbers = [member.number for member in (*self.members, *self._removed)]
        member = _Member(max(numbers) + 1, self._settings)
        self.members.append(member)
        self._configure(member)
        member.start()
        self._change(joining=f"server.{member.number}={self._way(member, member)}")
        return member

    def remove(self, member: ZooKeeperServer) -> None:
        """It is no member any more, and has no vote. It serves its clients until it is stopped."""
        assert isinstance(member, _Member)
        self.members.remove(member)
        self._removed.append(member)
        self._change(leaving=str(member.number))
        for one in self.members:  # should it be started again
            del one.settings[f"server.{member.number}"]

    def _change(self, joining: str | None = None, leaving: str | None = None) -> None:
        """Until it is done: a new member must have caught up, and a leader that goes does not answer any more."""
        wanted = sorted(member.number for member in self.members)
        client = KazooClient(",".join(member.address for member in self.members), timeout=4)
        client.start(PATIENCE)

        def changed() -> bool:
            with suppress(KazooException):
                client.reconfig(joining, leaving, None)
            with suppress(KazooException):
                lines = client.get("/zookeeper/config")[0].decode().splitlines()
                return sorted(int(line[7 : line.index("=")]) for line in lines if line.startswith("server.")) == wanted
            return False

        try:
            until(changed, "the ensemble has other members", every=0.02)
        finally:
            client.stop()
            client.close()
