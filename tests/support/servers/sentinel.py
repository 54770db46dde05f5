"""A primary and replicas that are watched by Sentinels, which promote a replica when the primary is gone."""

from __future__ import annotations

import secrets
import time
from typing import Any, Self

from tests.support.servers.certificates import Certificates
from tests.support.servers.redis import RedisServer, credentials, redis_7
from tests.support.servers.replicas import ConfiguredServer, RedisReplicas
from tests.support.servers.server import restore
from tests.support.waiting import until

SENTINELS = 3
ALONE = 5.0  # seconds in which Sentinels replace a primary that is down; then they are asked to
# Sentinels look, tell each other and correct servers several times a second in place of every 2 to 10 seconds. One that
# stood still for a while looks around before it believes that everybody else is down. Two periods must not be shorter:
# - a replica that said nothing for five times the ping-period is not promoted, and while the primary is down it is
#   asked once a second;
# - a server that is a primary and should not be one is made a replica after four times the publish-period. The Sentinel
#   that promotes a replica asks it once a second whether it is a primary by now, and only then tells the others, which
#   would undo it meanwhile.
HASTE = {
    "info-period": 200,
    "ping-period": 500,
    "ask-period": 100,
    "publish-period": 400,
    "tilt-trigger": 500,
    "tilt-period": 500,
}


class SentinelServer(ConfiguredServer):
    """One Sentinel. It remembers in its file what it has learned."""

    def __init__(self, *options: str, haste: dict[str, int], **more: Any) -> None:
        super().__init__(*options, executable=redis_7(), **more)
        self.id = secrets.token_hex(20)
        self._haste = haste

    def watch(self, lines: list[str]) -> None:
        """What it knows when it starts."""
        with self._file.open("a") as file:
            file.writelines(f"sentinel {line}\n" for line in (f"myid {self.id}", *lines))

    def start(self) -> Self:
        """Start it, and have it hurry."""
        super().start()
        if self._haste:
            periods = " ".join(f"{name} {value}" for name, value in self._haste.items())
            assert self.ask(f"SENTINEL DEBUG {periods}") == b"+OK\r\n"
        return self

    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]


class RedisSentinel(RedisReplicas):
    """It starts with ``with``: a primary, its replicas, and three Sentinels that know all of it.

    ``login``, ``options``, ``appendonly`` and ``executable`` are those of the servers, ``sentinel_login`` that of the
    Sentinels; ``tls`` is for both. ``haste=False`` leaves the Sentinels as slow as they are in production.
    """

    def __init__(
        self,
        replicas: int = 1,
        *options: str,
        service: str = "leases",
        sentinel_login: tuple[str, ...] = (),
        down_after_ms: int = 1000,
        haste: bool = True,
        tls: Certificates | None = None,
        **more: Any,
    ) -> None:
        super().__init__(replicas, *options, tls=tls, **more)
        self.service = service
        self._sentinel_login = sentinel_login
        between = ("--tls-replication", "yes") if tls else ()
        self.sentinels = [
            SentinelServer(*between, haste=HASTE if haste else {}, login=sentinel_login, tls=tls)
            for _ in range(SENTINELS)
        ]
        for sentinel in self.sentinels:
            sentinel.watch(self._lines(sentinel, down_after_ms))

    def _lines(self, own: SentinelServer, down_after_ms: int) -> list[str]:
        # The last Sentinel waits twice as long: of two candidates one always wins, of three all may lose.
        first, *others = self.servers
        return [
            f"monitor {self.service} 127.0.0.1 {first.announced_port} {SENTINELS // 2 + 1}",
            f"down-after-milliseconds {self.service} {down_after_ms * (1 + (own is self.sentinels[-1]))}",
            f"failover-timeout {self.service} {2 * down_after_ms}",
            f"parallel-syncs {self.service} {len(self.servers)}",
            *(f"auth-pass {self.service} {password}" for password in self._login[-1:]),
            *(f"auth-user {self.service} {user}" for user in self._login[:-1]),
            *(f"sentinel-pass {password}" for password in self._sentinel_login[-1:]),
            *(f"sentinel-user {user}" for user in self._sentinel_login[:-1]),
            *(f"known-replica {self.service} 127.0.0.1 {server.announced_port}" for server in others),
            *(
                f"known-sentinel {self.service} 127.0.0.1 {one.announced_port} {one.id}"
                for one in self.sentinels
                if one is not own
            ),
        ]

    # ------------------------------------------------------------ where it is

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of the Sentinels."""
        return [("127.0.0.1", sentinel.announced_port) for sentinel in self.sentinels]

    @property
    def url(self) -> str:
        """The Sentinels and the service, with the login of the servers."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.addresses)
        return f"redis+sentinel://{self.servers[0].userinfo}{hosts}/{self.service}/0"

    def arguments(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What redis-py is called with, for the Sentinels and for the servers: logins and certificates."""
        tls = {"ssl": True, **self._tls.arguments()} if self._tls else {}
        return {**credentials(self._sentinel_login), **tls}, {**credentials(self._login), **tls}

    # ------------------------------------------------------------ who is what

    @property
    def primary(self) -> RedisServer:
        """The one that the first Sentinel names that answers."""
        named = [server for sentinel in self._awake() if (server := self._named_by(sentinel))]
        assert named, "no Sentinel answers"
        return named[0]

    def _named_by(self, sentinel: SentinelServer) -> RedisServer | None:
        said = sentinel.ask(f"SENTINEL GET-MASTER-ADDR-BY-NAME {self.service}").split()
        return next((server for server in self.servers if str(server.announced_port).encode() in said), None)

    # ------------------------------------------------------------ what happens to it

    def failover(self) -> RedisServer:
        """The Sentinels promote a replica; then all name it, and the old primary follows it. Returns the new one."""
        self.settle()
        new = self.replace(self.primary)
        self.settle()
        return new

    def replace(self, old: RedisServer) -> RedisServer:
        """The Sentinels are asked to promote a replica in place of this primary, which may serve on. Returned when all
        of them name it.

        One of them is asked, again and again until it has done it. It refuses while what it knows of the replica is not
        from just now, and gives up where that happens in the middle. A primary that serves is not replaced by a replica
        whose link has been cut for ten seconds.
        """
        chosen = self._awake()[0]

        def replaced() -> RedisServer | None:
            if self._named_by(chosen) is old:
                chosen.ask(f"SENTINEL FAILOVER {self.service}")
            return self._named_instead(old)

        new: RedisServer = until(replaced, "the Sentinels name another primary")
        return new

    def isolate(self, server: RedisServer) -> None:
        """From now on it is as if Sentinels could not reach this server, and clients could: nobody makes it a replica,
        and it closes no connection."""
        assert server.ask("ACL SETUSER default -slaveof -replicaof -client|kill") == b"+OK\r\n"

    def reunite(self, server: RedisServer) -> None:
        """Sentinels reach it again, and it follows the primary that they name."""
        assert server.ask("ACL SETUSER default +@all") == b"+OK\r\n"
        self.heal()

    def kill_primary(self) -> RedisServer:
        """SIGKILL, and wait until the Sentinels have promoted another, which is returned."""
        old = self.primary
        old.kill()
        return self.await_another(old)

    def await_another(self, old: RedisServer) -> RedisServer:
        """Wait until all Sentinels name another primary than this one, which is down. It is returned. On a busy machine
        they may find no replica fit, and give up: then they are asked."""
        end = time.monotonic() + ALONE
        until(lambda: self._named_instead(old) or time.monotonic() > end, "another primary")
        return self.replace(old)

    def _named_instead(self, old: RedisServer) -> RedisServer | None:
        """The one that all Sentinels name, when it is another and is a primary."""
        named = {self._named_by(sentinel) for sentinel in self._awake()}
        if len(named) != 1 or not named.isdisjoint({old, None}):
            return None
        (found,) = named
        return found if found and found.ask("ROLE").startswith(b"*3\r\n$6\r\nmaster") else None

    def _settled(self) -> bool:
        return super()._settled() and all(map(self._sees_all, self._awake()))

    def _sees_all(self, sentinel: SentinelServer) -> bool:
        """Whether it knows who is what, believes nobody down who runs, and could fail over now."""
        import redis

        with redis.Redis(port=sentinel.port, decode_responses=True, **credentials(sentinel.login)) as client:
            primary: Any = client.sentinel_master(self.service)
            replicas: Any = client.sentinel_slaves(self.service)
        seen = {int(one["port"]): (one["flags"], int(one["master-port"])) for one in replicas}
        named = self.primary
        others = [one for one in self.servers if one.awake and one is not named]
        return (
            (int(primary["port"]), primary["flags"]) == (named.announced_port, "master")
            and all(seen.get(one.announced_port) == ("slave", named.announced_port) for one in others)
            and sentinel.ask(f"SENTINEL CKQUORUM {self.service}").startswith(b"+OK")
            and b"sentinel_tilt:0" in sentinel.ask("INFO sentinel")
        )

    def wipe(self) -> None:
        """As it was when it was new. A primary of before is a replica at once, as Sentinels would make it after a
        while."""
        restore(self._everybody())
        for server in self.servers:
            server.ask("ACL SETUSER default +@all")
        until(lambda: all(map(self._at_rest, self.sentinels)), "no failover is under way")
        for replica in self.replicas:
            if b"$6\r\nmaster" in replica.ask("ROLE"):
                replica.ask(f"REPLICAOF 127.0.0.1 {self.primary.announced_port}")
                replica.ask("CONFIG REWRITE")
        super().wipe()
        for server in self.servers:  # from when a replica was filled: a server that is started again would read it
            (server.folder / "dump.rdb").unlink(missing_ok=True)

    def _at_rest(self, sentinel: SentinelServer) -> bool:
        """Whether it names the same primary as the others, and neither believes it down nor replaces it."""
        state = sentinel.ask(f"SENTINEL MASTER {self.service}")
        return b"$5\r\nflags\r\n$6\r\nmaster\r\n" in state and self._named_by(sentinel) is self.primary

    # ------------------------------------------------------------ its life

    def _everybody(self) -> list[ConfiguredServer]:
        return [*self.servers, *self.sentinels]

    def _awake(self) -> list[SentinelServer]:
        return [sentinel for sentinel in self.sentinels if sentinel.awake]
