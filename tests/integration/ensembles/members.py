"""An ensemble of either kind, with the same words for both: who leads, who is cut off, who waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tests.support.servers.etcd import EtcdEnsemble
from tests.support.servers.proxy import Proxy
from tests.support.servers.server import Server
from tests.support.servers.zookeeper import ZooKeeperEnsemble


class Members(Protocol):
    """Three servers that agree by consensus."""

    kind: str
    servers: Sequence[Server]

    def url(self, *servers: Any) -> str:
        """By way of these, in this order; of all members unless some are named."""

    def leader(self) -> Any:
        """The one that leads now."""

    def followers(self) -> list[Any]:
        """The others."""

    def cut_off(self, server: Any) -> None:
        """It and the others hear nothing of each other. Clients still reach all of them."""

    def heal(self) -> None:
        """All members run, reach one another, and have a leader."""

    def places(self) -> int:
        """How many claims wait."""

    def sessions(self) -> int:
        """How many processes the servers know."""


class EtcdMembers:
    """Those of etcd."""

    kind = "etcd"

    def __init__(self, ensemble: EtcdEnsemble) -> None:
        self.ensemble = ensemble
        self.servers = ensemble.members

    def url(self, *servers: Any) -> str:
        return self.servers[0].url_at(*[one.port for one in servers or self.servers])

    def leader(self) -> Any:
        return self.ensemble.leader()

    def followers(self) -> list[Any]:
        return list(self.ensemble.followers())

    def cut_off(self, server: Any) -> None:
        self.ensemble.cut_off(server)

    def heal(self) -> None:
        self.ensemble.heal()
        for one in self.servers:
            if one.runs:
                one.thaw()
        if not all(one.runs for one in self.servers):
            self.ensemble.start_all()
        self.ensemble.leader()

    def places(self) -> int:
        return len(self.leader().keys("leasehold/w/"))

    def sessions(self) -> int:
        return len(self.leader().leases())


class ZooKeeperMembers:
    """Those of ZooKeeper."""

    kind = "zookeeper"

    def __init__(self, ensemble: ZooKeeperEnsemble, chroot: str) -> None:
        self.ensemble = ensemble
        self.servers = ensemble.members
        self.chroot = chroot

    def url(self, *servers: Any) -> str:
        return self.ensemble.url(self.chroot, servers)

    def leader(self) -> Any:
        return self.ensemble.leader

    def followers(self) -> list[Any]:
        return list(self.ensemble.followers)

    def cut_off(self, server: Any) -> None:
        """What is connected falls silent; new connections are refused: members that wait for one elect nobody."""
        self.ensemble.cut_off(server)
        self.ensemble._each_link_of(server, Proxy.refuse)

    def heal(self) -> None:
        for one in self.servers:
            self.ensemble.reconnect(one)
        self.ensemble.heal()

    def places(self) -> int:
        """The leader lists the ephemeral nodes of every session."""
        lines = self.leader().ask("dump").splitlines()
        return len({line.strip() for line in lines if line.strip().startswith(f"{self.chroot}/r/")})

    def sessions(self) -> int:
        lines = self.leader().ask("dump").splitlines()
        return len({line.strip() for line in lines if line.strip().startswith(f"{self.chroot}/s/")})
