"""Who waits in this process, and for what: each claim with its place, and the watch that wakes it.

The first in the queue watches the record, each other one its own place while its offer is good, and else the place
before it (``handover``). A watch wakes a waiter, and proves nothing: what it says is looked at as if it had been read
at any other time. Where the news come with the record and its places, a waiter that has been granted the resource is
told so at once, and one that must go on waiting is not woken.
"""

from __future__ import annotations

from collections.abc import Callable

from leasehold._core import ops
from leasehold._core.light_typing import Any
from leasehold.stores.record.handover import is_fresh, is_owner
from leasehold.stores.record.knowledge import MOST_KNOWN, Knowledge, Known, own_place
from leasehold.stores.record.requests import Place, Record, Server, Watching

PLACE, RECORD = "place", "record"


class Wait:
    """A claim of this process that has a place."""

    __slots__ = ("claim", "fired", "place", "target", "watching")

    def __init__(self, claim: ops.Claim, place: Place) -> None:
        self.claim = claim
        self.place = place
        self.target: tuple[str, object] | None = None  # what is watched for it
        self.watching: Watching | None = None
        self.fired = False

    def unwatch(self) -> None:
        watching, self.watching, self.target = self.watching, None, None
        if watching is not None:
            watching.close()


class Waits:
    """All of one process. ``must_wait`` says whether a claim can do nothing but wait on, by what is known."""

    def __init__(self, server: Server, knowledge: Knowledge, deliver: Callable[[ops.Push], None]) -> None:
        self._server = server
        self._knowledge = knowledge
        self._deliver = deliver
        self.must_wait: Callable[[Wait, Known], bool] = lambda wait, known: False
        self._waits: dict[str, Wait] = {}
        self.sent: dict[str, float] = {}  # owner -> when a claim that went unanswered was first sent
        self.offered: dict[str, float] = {}  # owner -> when a place was first sent that others may grant to

    def __bool__(self) -> bool:
        return bool(self._waits)

    def __contains__(self, owner: str) -> bool:
        return owner in self._waits

    def get(self, owner: str) -> Wait | None:
        return self._waits.get(owner)

    def add(self, op: ops.Claim, place: Place) -> Wait:
        wait = self._waits[op.owner] = Wait(op, place)
        return wait

    def forget(self, owner: str) -> None:
        self._leave(owner)
        self.sent.pop(owner, None)
        self.offered.pop(owner, None)

    def _leave(self, owner: str) -> None:
        wait = self._waits.pop(owner, None)
        if wait is not None:
            wait.unwatch()

    def offers(self, owner: str, now: float) -> None:
        """Its place is about to be sent. If that is forgotten, no time is left of what it is granted."""
        if len(self.offered) > MOST_KNOWN:
            self.offered.pop(next(iter(self.offered)), None)
        self.offered.setdefault(owner, now)

    # ------------------------------------------------------------ watches

    def watch(self, op: ops.Claim) -> None:
        """Watch the place before it, or the record if it is the first."""
        known = self._knowledge.get(op.resource)
        mine = None if known is None else own_place(op.owner, known)
        if known is not None and mine is not None:
            self._watch(self._waits.get(op.owner) or self.add(op, mine), mine, known)

    def _watch(self, wait: Wait, mine: Place, known: Known) -> None:
        before = [one for one in known.record.places or () if one.number < mine.number]
        now = self._knowledge.instant()
        other = mine if mine.offer is not None and is_fresh(mine.offer, now) else before[-1] if before else None
        target = (PLACE, other.key) if before and other else (RECORD, known.record.revision)
        if wait.target == target and not wait.fired:
            return
        wait.unwatch()
        wait.fired, wait.target = False, target
        if before and other:
            wait.watching = self._server.watch_place(wait.claim.resource, other, self._waker(wait, target))
        else:
            wait.watching = self._server.watch_record(known.record, self._waker(wait, target))

    def _waker(self, wait: Wait, target: tuple[str, object]) -> Callable[[Record | None], None]:
        def changed(record: Record | None) -> None:
            """On any thread."""
            if wait.target == target:
                wait.fired = True
                self._changed(wait, record)

        return changed

    def _changed(self, wait: Wait, record: Record | None) -> None:
        claim, resource = wait.claim, wait.claim.resource
        known = self._knowledge.get(resource)
        if record is None or known is None:
            self._knowledge.distrust(resource)
        elif not known.stale and record.revision >= known.record.revision:
            places = known.record.places if record.places is None else record.places
            now = self._knowledge.note(record._replace(places=places, queue=known.record.queue))
            read = record.places is not None
            if self._granted(wait, now, read) or (read and self._goes_on(wait, now)):
                return
        self._deliver(ops.Push(claim.address, "wake", resource, claim.owner, 0, 0, 0))

    def _granted(self, wait: Wait, known: Known, read: bool) -> bool:
        """Tell a waiter that it holds the resource. Its deadline counts from its first claim, after which its place was
        made. It must be in time for that: the flow checks it. ``read``: were the places read? If not, who has come to
        stand behind it is not known, and what it does next is to look."""
        claim = wait.claim
        holders: Any = () if known.kept is None else known.kept.state.holders
        mine = [one for one in holders if is_owner(one.owner, claim.owner)]
        if not mine or wait.place.offer is None:
            return False
        (grant,) = mine
        self._knowledge.removed(known, wait.place)
        if not read:
            self._knowledge.distrust(claim.resource)
        self._leave(claim.owner)  # when its place was sent stays known: the push may be lost
        push = ops.Push(
            claim.address, "granted", claim.resource, claim.owner, grant.fence, 1, grant.ttl_ms, grant.slots
        )
        self._deliver(push)
        return True

    def _goes_on(self, wait: Wait, known: Known) -> bool:
        """Is there nothing to do but to watch again?"""
        mine = own_place(wait.claim.owner, known)
        if mine is None or self._waits.get(wait.claim.owner) is not wait or not self.must_wait(wait, known):
            return False
        self._watch(wait, mine, known)
        return True
