"""An ensemble of either kind, with the same words for both: who leads, who is cut off, who waits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tests.support.servers.etcd import EtcdEnsemble
from tests.support.servers.zookeeper import ZooKeeperEnsemble


class Members(ABC):
    """Three servers that agree by consensus."""

    kind: str
    servers: Sequence[Any]

    @abstractmethod
    def url(self, *servers: Any) -> str:
        """By way of these, in this order; of all members unless some are named."""

    @abstractmethod
    def leader(self) -> Any:
        """The one that leads now."""

    @abstractmethod
    def followers(self) -> list[Any]:
        """The others."""

    @abstractmethod
    def cut_off(self, server: Any) -> None:
        """It and the others hear nothing of each other. Clients still reach all of them."""

    @abstractmethod
    def heal(self) -> None:
        """All members run, reach one another, and have a leader."""

    @abstractmethod
    def places(self) -> int:
        """How many claims wait."""

    @abstractmethod
    def sessions(self) -> int:
        """How many processes the servers know."""


class EtcdMembers(Members):
    """Those of etcd."""

    kind = "etcd"

    def __init__(self, ensemble: EtcdEnsemble) -> None:
        self.ensemble = ensemble
        self.servers = ensemble.members

    def url(self, *servers: Any) -> str:
        """By way of their ports."""
        return str(self.servers[0].url_at(*[one.port for one in servers or self.servers]))

    def leader(self) -> Any:
        """As a majority says."""
        return self.ensemble.leader()

    def followers(self) -> list[Any]:
        """As a majority says."""
        return list(self.ensemble.followers())

    def cut_off(self, server: Any) -> None:
        """By the proxies between them."""
        self.ensemble.cut_off(server)

    def heal(self) -> None:
        """Those that were killed are started."""
        self.ensemble.heal()
        for one in self.servers:
            if one.runs:
                one.thaw()
        if not all(one.runs for one in self.servers):
            self.ensemble.start_all()
        self.ensemble.leader()

    def places(self) -> int:
        """Their keys."""
        return len(self.leader().keys("leasehold/w/"))

    def sessions(self) -> int:
        """Their leases."""
        return len(self.leader().leases())


class ZooKeeperMembers(Members):
    """Those of ZooKeeper."""

    kind = "zookeeper"

    def __init__(self, ensemble: ZooKeeperEnsemble, chroot: str) -> None:
        self.ensemble = ensemble
        self.servers = ensemble.members
        self.chroot = chroot
        self.session = 0.0  # seconds that clients ask for; 0: as many as they do by themselves

    def url(self, *servers: Any) -> str:
        """By way of their addresses."""
        options = f"?session={self.session}" if self.session else ""
        return f"{self.ensemble.url(self.chroot, servers)}{options}"

    def leader(self) -> Any:
        """As it says itself."""
        return self.ensemble.leader

    def followers(self) -> list[Any]:
        """As they say themselves."""
        return list(self.ensemble.followers)

    def cut_off(self, server: Any) -> None:
        """What is connected falls silent; new connections are refused: members that wait for one elect nobody."""
        self.ensemble.cut_off(server)

    def heal(self) -> None:
        """Those that were killed are started."""
        self.ensemble.heal()

    def places(self) -> int:
        """The leader lists the ephemeral nodes of every session."""
        lines = self.leader().ask("dump").splitlines()
        return len({line.strip() for line in lines if line.strip().startswith(f"{self.chroot}/r/")})

    def sessions(self) -> int:
        """Each has a node of its own."""
        lines = self.leader().ask("dump").splitlines()
        return len({line.strip() for line in lines if line.strip().startswith(f"{self.chroot}/s/")})
