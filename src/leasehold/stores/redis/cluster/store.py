"""The store over a Redis Cluster: the scripts of one server, each resource on the node that has its slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Push
from leasehold._core.ports import Clock
from leasehold.errors import InvalidRequest
from leasehold.stores.redis.cluster.connection import ClusterConnection
from leasehold.stores.redis.cluster.nodes import Cluster
from leasehold.stores.redis.cluster.urls import cluster_from_url
from leasehold.stores.redis.cluster.watchdog import ClusterWatchdog
from leasehold.stores.redis.store import RedisStore

if TYPE_CHECKING:
    from leasehold.stores.redis.cluster.loop_connection import ClusterLoopConnection


class ClusterStore(RedisStore):
    """Implements ``_core.ports.Store``. Making one connects to nothing; the first op does."""

    capabilities = RedisStore.capabilities._replace(one_slot=True)
    fails_in_parts = True  # a node that does not answer says nothing of the others
    _server: Cluster  # type: ignore[assignment]  # all that the base needs of a server

    def __init__(self, cluster: str | Cluster, clock: Clock | None = None) -> None:
        found = cluster_from_url(cluster) if isinstance(cluster, str) else cluster
        super().__init__(found, clock)  # type: ignore[arg-type]  # as above

    @property
    def where(self) -> str:
        return f"in the Cluster at {self._server}"

    def choose_slots(self, by: str) -> None:
        """``connect(slot=...)``: what decides about the slot of a resource. The URL must not say the opposite."""
        stated = self._server.stated_by
        if stated not in ("", by):
            raise InvalidRequest(f"the URL has slot={stated}, and connect() has slot={by!r}: leave one of them out")
        self._server.by = by

    def check_together(self, resources: Sequence[str]) -> None:
        """Unsupported, unless one node decides about all of these."""
        self._server.common_slot(resources)

    def _thread_connection(self, counts: bool = True) -> ClusterConnection:  # type: ignore[override]  # it has one for each node
        return ClusterConnection(self._server, self._connections.discard, counts)  # type: ignore[arg-type]  # as above

    def _loop_connection(self, notify: Callable[[Push], None]) -> ClusterLoopConnection:  # type: ignore[override]  # the same
        from leasehold.stores.redis.cluster.loop_connection import ClusterLoopConnection

        return ClusterLoopConnection(self._server, notify, self._loop_connections.discard)

    def _watchdog_connection(self) -> ClusterWatchdog:
        return ClusterWatchdog(self._server)
