"""Events: what happened to a lease, as plain data for observers.

An observer is a callable that takes one event: ``connect(url, observers=[print])``. It is called on the thread or loop
where the event happened, after it happened and outside every lock: so it must be quick, must not block and should not
call the coordinator back. An observer that raises affects neither the lease nor other observers.

    Contended        an acquire found the resource held: it waits in the queue, or was refused
    Acquired         a lease was granted
    Refused          an acquire came to nothing: busy timeout cancelled unavailable unknown
    Renewed          a renewal or an extend was confirmed
    NotRenewed       a renewal or an extend was not confirmed: not_owner (the lease is lost) or failed (it is unsure)
    Downgraded       a writer became a reader: others may read beside it
    Lost             the lease ended while its holder still used it
    Released         the lease was given back
    StaleRelease     it was given back too late: another holder had it, or it had expired
    ReleaseUnknown   whether it was given back is not known; it ends with its ttl at the latest
    FencedOff        a guard refused an older fence
    Unguarded        protects="correctness", and the fence was neither checked by a guard nor read
    LimitDiffers     others use another limit for the same semaphore; reported once for each limit found
    Leaking          how many keys without a TTL ``leaks()`` has found

Every acquire ends with ``Acquired`` or ``Refused``, and every ``Acquired`` is followed by ``Released``,
``StaleRelease``, ``ReleaseUnknown`` or ``Lost`` with the same number. The first of these ends the lease; another may
come after it, such as a ``StaleRelease`` after ``Lost``. A forked child gets no events of its parent's leases: they
end in the parent.

An observer may have two more members. ``wants_holder = True``: the ``Contended`` of an acquire that waits carries the
metadata of the holder, which costs one request to the store. ``carry(number)`` returns a small mapping that is stored
in the metadata of the lease that is about to be claimed, such as the context of a trace.
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
    """The lease that an event is about. All of it may be shown: it has no full id and no owner token."""

    kind: str
    id_hash: str
    owner_prefix: str
    fence: int | None
    ttl_ms: int
    store: str = ""
    number: int = 0  # counts the acquires of this process: the same in every event of one lease


class HolderMeta(dict[str, Any]):
    """The metadata of a holder. Its content is for the observer, not for logs: ``repr`` does not show it."""

    def __repr__(self) -> str:
        return f"<{len(self)} fields>"


class Contended(NamedTuple):
    """``queued``: the acquire waits now. ``waited``: the seconds that it took to learn this. ``holder_meta`` is filled
    in for an observer with ``wants_holder``, when the acquire waits."""

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
    """``slack``: the seconds that were left until the work would have had to stop."""

    lease: Subject
    slack: float


class NotRenewed(NamedTuple):
    """``outcome``: not_owner or failed. ``again``: the renewal before it failed as well."""

    lease: Subject
    outcome: str
    error: str
    again: bool = False


class Downgraded(NamedTuple):
    lease: Subject


class Lost(NamedTuple):
    """``held`` is in seconds, as in every event; ``reason`` as in LeaseLost."""

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
    """``again``: the same was reported of a lease of this kind before."""

    lease: Subject
    again: bool = False


class LimitDiffers(NamedTuple):
    """``asked`` is the limit of this claim, ``found`` the one that ``resize`` stored or, without one, that of other
    claims."""

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
    """The part of a lease that may be shown."""
    name = holding.name
    return Subject(name.kind, name.id_hash, public_owner(holding.owner), holding.fence, holding.ttl_ms, store, number)
