"""Changes of a lease that the store has not confirmed: every Renew says them, until one that did is answered."""

from __future__ import annotations

from leasehold._core.light_typing import NamedTuple
from leasehold._core.ops import Renew


class Changes(NamedTuple):
    """Mostly there are none, and this is None."""

    lowering: bool = False  # from writer to reader
    untold: bool = False  # whoever wanted that does not know that it succeeded
    meta: str = ""  # what the holder says of itself
    since: int = 0  # the number of the first Renew that says so

    def on(self, renew: Renew) -> Renew:
        """The Renew that says so."""
        return renew._replace(shared=self.lowering, meta=self.meta)

    def after(self, renew: Renew) -> Changes | None:
        """What is left when this one was confirmed."""
        meta = "" if renew.number >= self.since else self.meta
        return self._replace(lowering=self.lowering and not renew.shared, meta=meta).left()

    def left(self) -> Changes | None:
        """None when there is nothing more to say."""
        return self if self.lowering or self.untold or self.meta else None
