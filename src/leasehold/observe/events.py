"""Events: what happened to a lease, as plain data, told to whoever observes.

An observer is a callable that takes one event: ``connect(url, observers=[print])``. It is called on the thread or loop
where the thing happened, after it happened and outside every lock: so it must be quick, must not block and should not
call the coordinator back. One that raises harms nobody.

    Contended        an acquire found the resource taken: it waits in the queue, or was refused
    Acquired         a lease was granted
    Refused          an acquire came to nothing: busy timeout cancelled unavailable unknown
    Renewed          a renewal or an extend was confirmed
    NotRenewed       one was not: not_owner (the lease is lost) or failed (it is unsure)
    Downgraded       a writer only reads from here on: others may read beside it
    Lost             the lease is over while somebody believed in it
    Released         it was given back
    StaleRelease     it was given back too late: it was no longer ours
    ReleaseUnknown   whether it was given back is not known; it ends with its ttl at the latest
    FencedOff        a guard refused an older fence
    Unguarded        protects="correctness", and the fence was neither checked by a guard nor read
    LimitDiffers     of one semaphore others go by another limit; told once for each limit found
    Leaking          how many keys without a TTL ``leaks()`` has found

Every acquire ends with ``Acquired`` or ``Refused``, and every ``Acquired`` is followed by ``Released``,
``StaleRelease``, ``ReleaseUnknown`` or ``Lost`` with the same number. The first of these ends the lease; another may
come after it, such as a ``StaleRelease`` after ``Lost``. A forked child hears nothing of its parent's leases: theirs
end in the parent.

An observer may have two more members. ``wants_holder = True``: the ``Contended`` of an acquire that waits carries the
metadata of the holder, which costs one look at the store. ``carry(number)`` gives a small mapping that travels in the
metadata of the lease which is about to be asked for, such as the context of a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold._core.types import public_owner

__all__ = [
    "Acquired",
    "Contended",
    "Downgraded",
    "Event",
    "FencedOff",
    "Leaking",
    "LimitDiffers",
    "Lost",
    "NotRenewed",
    "Refused",
    "ReleaseUnknown",
    "Released",
    "Renewed",
    "StaleRelease",
    "Subject",
    "Unguarded",
]


class Subject(NamedTuple):
    """What an event is about, and may be shown: never a full id or an owner token."""

    kind: str
    id_hash: str
    owner_prefix: str
    fence: int | None
    ttl_ms: int
    store: str = ""
    number: int = 0  # counts the acquires of this process: the same in every event of one lease


class HolderMeta(dict[str, Any]):
    """What a holder said about itself. It is for reading, not for showing: ``repr`` does not tell."""

    def __repr__(self) -> str:
        return f"<{len(self)} fields>"


class Contended(NamedTuple):
    """Found taken. ``queued``: it waits now. ``waited``: the seconds that it took to learn this. ``holder_meta`` is
    filled in for an observer with ``wants_holder``, when it waits."""

    lease: Subject
    holder: str
    queued: bool
    waited: float
    holder_meta: Mapping[str, Any]


class Acquired(NamedTuple):
    """``waited`` is in seconds, from the call to the grant."""

    lease: Subject
    waited: float
    contended: bool


class Refused(NamedTuple):
    """``outcome``: busy (one try), timeout, cancelled, unavailable (nothing was taken) or unknown."""

    lease: Subject
    outcome: str
    waited: float
    holder: str
    contended: bool


class Renewed(NamedTuple):
    """``slack`` seconds were left until the work would have had to stop."""

    lease: Subject
    slack: float


class NotRenewed(NamedTuple):
    """``outcome``: not_owner or failed. ``again``: so did the one before, and nothing was confirmed in between."""

    lease: Subject
    outcome: str
    error: str
    again: bool = False


class Downgraded(NamedTuple):
    lease: Subject


class Lost(NamedTuple):
    """``held`` is in seconds, as everywhere; ``reason`` as in LeaseLost."""

    lease: Subject
    reason: str
    held: float


class Released(NamedTuple):
    lease: Subject
    held: float


class StaleRelease(NamedTuple):
    lease: Subject
    held: float


class ReleaseUnknown(NamedTuple):
    lease: Subject
    held: float


class FencedOff(NamedTuple):
    """``downstream`` is the guard's name for what it protects; ``seen`` the newer fence."""

    lease: Subject
    downstream: str
    seen: int | None


class Unguarded(NamedTuple):
    """``again``: it was told of a lease of this kind before."""

    lease: Subject
    again: bool = False


class LimitDiffers(NamedTuple):
    """``asked`` is the limit that the claim came with, ``found`` the one that was stored with ``resize``, or else that
    others came with."""

    lease: Subject
    asked: int
    found: int


class Leaking(NamedTuple):
    keys: int


Event: TypeAlias = (
    Contended
    | Acquired
    | Refused
    | Renewed
    | NotRenewed
    | Downgraded
    | Lost
    | Released
    | StaleRelease
    | ReleaseUnknown
    | FencedOff
    | Unguarded
    | LimitDiffers
    | Leaking
)
Observer: TypeAlias = Callable[[Event], object]


def subject(holding: Holding, store: str = "", number: int = 0) -> Subject:
    """What may be shown of a lease."""
    name = holding.name
    return Subject(name.kind, name.id_hash, public_owner(holding.owner), holding.fence, holding.ttl_ms, store, number)
