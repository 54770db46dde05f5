"""Handing over: how a holding leaves its holder for whoever has its ticket, and comes back when nobody ever will.

HELD or UNSURE ── transfer's Renew is confirmed ──> RELEASED ── the giver was interrupted ──> its Release
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.holding import RELEASED, Holding
from leasehold._core.policy import tombstone_ms
from leasehold._core.tickets import Giving


class Transferable(Holding):
    """A holding that its holder can give away."""

    __slots__ = ()

    def handing_over(self, ticket: str, now: float) -> ops.Renew:
        """The Renew of ``transfer``: from its arrival on, whoever knows the ticket may adopt. Until it is answered the
        lease stays ours; nobody else knows the ticket."""
        with self.lock:
            self._require(now)
            self._extending += 1
            return self._apart(self._wanted_ms, now)._replace(ticket=ticket)

    def handed_over(
        self, giving: Giving, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float
    ) -> None:
        """It waits for its adopter now, for a whole ttl, and is ours no longer. LeaseLost when it was not ours."""
        with self.lock:
            self._answered(renew, sent, reply, now)
            self._require(now)
            giving.done = True
            self.phase = RELEASED

    def recall(self, giving: Giving) -> ops.Release | None:
        """The Release of what was handed over with a ticket that nobody will ever have: its giver was interrupted."""
        with self.lock:
            if not giving.done or self.phase != RELEASED:
                return None
            giving.done = False
            return ops.Release(self.name.text, self.owner, self.fence, tombstone_ms(self.ttl_ms), again=True)
