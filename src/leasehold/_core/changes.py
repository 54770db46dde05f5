"""What a holder can change of its lease while it holds it: from writing to reading, and what it says of itself.

A change travels in a Renew of its own, beside those of the watchdog. Until one is confirmed, every Renew says it again:
a later one may overtake it, and the store then goes by the later.
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.handover import Transferable
from leasehold._core.rules import READ, WRITE
from leasehold._core.unconfirmed import Changes
from leasehold.errors import InvalidRequest

NONE = Changes()


class Changeable(Transferable):
    """A holding whose holder can lower it to a reader's, and say something else of itself."""

    __slots__ = ()

    @property
    def shared(self) -> bool:
        """May it only read?"""
        return self.rule == READ

    def downgrading(self, now: float) -> ops.Renew:
        """The Renew of ``downgrade``. From here on it only reads, before the store has heard of it: others may read
        beside it as soon as that has. May be repeated until its caller was told that it succeeded."""
        with self.lock:
            self._require(now)
            changes = self._changes or NONE
            if self.rule != WRITE and not changes.untold:
                raise self._not_a_writer()
            self.rule = READ
            self._changes = changes._replace(lowering=True, untold=True)
            return self._begin_change(now)

    def downgraded(self) -> None:
        """Its caller is told."""
        with self.lock:
            self._changes = (self._changes or NONE)._replace(untold=False).left()

    def saying(self, meta: str, now: float) -> ops.Renew:
        """The Renew that says something else of its holder."""
        with self.lock:
            self._require(now)
            self._changes = (self._changes or NONE)._replace(meta=meta, since=self._number + 1)
            return self._begin_change(now)

    def _begin_change(self, now: float) -> ops.Renew:
        self._extending += 1
        return self._apart(self._wanted_ms, now)

    def _not_a_writer(self) -> InvalidRequest:
        if self.rule == READ:
            return InvalidRequest(
                f"the lease on {self.name.kind} reads already: there is nothing to downgrade", resource=self.name.text
            )
        return InvalidRequest(
            f"the lease on {self.name.kind} is no writer's: downgrade() is for what rwlock(...).write() gives",
            resource=self.name.text,
        )
