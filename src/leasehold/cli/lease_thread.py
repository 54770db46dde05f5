"""One lease, held by a thread of its own: the main thread hears signals and minds the child meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold.errors import LeaseholdError, LeaseLost

if TYPE_CHECKING:
    from leasehold.primitives.campaign import Campaign
    from leasehold.primitives.lease import Lease
    from leasehold.primitives.lock import Lock

PATIENCE = 10.0  # seconds for a release; the store's own budget is half of that


class LeaseThread:
    """From asking for the lease until it is given back. ``wake`` is called when there is something to see."""

    def __init__(self, lock: Lock | Campaign, wake: Callable[[], None]) -> None:
        self._lock = lock
        self._wake = wake
        self._over = threading.Event()
        self.lease: Lease | None = None
        self.error: BaseException | None = None  # why there is no lease, or how it ended
        self._thread = threading.Thread(target=self._hold, name="leasehold-run", daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        try:
            with self._lock as lease:
                lease.on_lost(lambda _loss: self._wake())
                self.lease = lease
                self._wake()
                self._over.wait()
        except BaseException as error:  # it is the main thread that must know
            self.error = error
        finally:
            self._wake()

    def finish(self, lost: bool) -> LeaseLost | None:
        """Give it back. The loss, if it was lost before. What is known to be lost, nobody waits for."""
        self._over.set()
        self._thread.join(0.5 if lost else PATIENCE)
        if self.error is None or isinstance(self.error, LeaseLost):
            return self.error
        if isinstance(self.error, LeaseholdError):  # not given back: it ends by itself
            return None
        raise self.error
